"""What runs have shown, as tables."""

from __future__ import annotations

import dataclasses
import json
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from bench.cluster.figures import GOALS, Figures, GroupKey, Ratio, Sample, grouped
from bench.cluster.load import Arrival
from bench.cluster.objects import ELSEWHERE, LAUNCHER, MACHINE, ObjectKind
from bench.cluster.ways import KYVERNO_CEL, NONE, OURS, POLICY, RUNTIME, WAYS
from bench.reviews.errors import BenchError

STEADY: Final = "steady"
_SHARES: Final[Mapping[str, float]] = {"p50": 0.5, "p95": 0.95, "p99": 0.99}
_ABSENT: Final = "-"
# A way that creates less than this share of what comes has a queue that grows.
_KEEPS_UP: Final = 0.9
# The README has few lines.
_IN_THE_README: Final = (NONE, OURS, RUNTIME, POLICY, KYVERNO_CEL)


@dataclass(frozen=True)
class ClusterReport:
    """The tables of one run, or of several together.

    Attributes:
        arrivals: how objects came.
        versions: of what was run and measured, by name.
        samples: of all rounds.
        runs: how many.
    """

    arrivals: Sequence[Arrival]
    versions: Mapping[str, str]
    samples: Sequence[Sample]
    runs: int = 1

    @classmethod
    def read(cls, paths: Sequence[Path]) -> ClusterReport:
        """The report of runs that were written as JSON.

        Raises:
            BenchError: they measured different things, or one is none.
        """
        documents = [_document(path) for path in paths]
        first = documents[0]
        samples: list[Sample] = []
        for path, document in zip(paths, documents, strict=True):
            for what in ("arrivals", "versions"):
                if document[what] != first[what]:
                    raise BenchError(f"{path} is a run with other {what} than {paths[0]}")
            begin = 1 + max((each.round for each in samples), default=-1)
            samples += [Sample(**{**each, "round": each["round"] + begin}) for each in document["samples"]]
        arrivals = [Arrival(**each) for each in first["arrivals"]]
        return cls(arrivals, first["versions"], samples, sum(document["runs"] for document in documents))

    def write(self, path: Path) -> None:
        """Write all samples, so that runs can be put together."""
        document = {
            "runs": self.runs,
            "versions": dict(self.versions),
            "arrivals": [dataclasses.asdict(each) for each in self.arrivals],
            "samples": [dataclasses.asdict(each) for each in self.samples],
        }
        path.write_text(json.dumps(document, ensure_ascii=False) + "\n")

    @property
    def figures(self) -> dict[GroupKey, Figures]:
        """The figures of each way, kind and arrival."""
        return grouped(self.samples)

    @property
    def rounds(self) -> int:
        """How many rounds all runs had."""
        return len({each.round for each in self.samples})

    @property
    def faults(self) -> Counter[str]:
        """What went wrong in all, and how often, the warm-up included."""
        return sum((each.faults for each in self.samples), Counter())

    def markdown(self) -> str:
        """For the page: all tables, the goals, and what was run."""
        figures = self.figures
        lines: list[str] = []
        for kind in (LAUNCHER, MACHINE):
            lines += [*self._latencies(figures, kind), "", *self._costs(figures, kind), ""]
        lines += [*self._elsewhere(figures), ""]
        lines += [f"* {line}" for line in (*self.goals(), *self._late(), *self._wrong(), *self._said())]
        return "\n".join(lines) + "\n"

    def summary(self) -> str:
        """For the README: p50 and p99 of each way, at a steady rate."""
        figures = self.figures
        kinds = (LAUNCHER, MACHINE, ELSEWHERE)
        shares = {name: share for name, share in _SHARES.items() if name != "p95"}
        header = ["p50 / p99, ms", *(kind.plural for kind in kinds), "memory, MB"]
        rows = []
        for way in self._ways():
            if way not in _IN_THE_README:
                continue
            found = [figures.get((way, kind.key, STEADY)) for kind in kinds]
            memory = max(each.memory_mb for key, each in figures.items() if key[0] == way)
            cells = [_ABSENT if each is None else _percentiles(each, shares) for each in found]
            rows.append([WAYS[way].title, *cells, _whole(memory)])
        table = _table(header, rows)
        return "\n".join([*table, "", f"{self._extent()} (`make bench-cluster`): {self._machine()}."]) + "\n"

    def goals(self) -> Iterator[str]:
        """Each goal, what was measured, and whether it is met."""
        figures = self.figures
        for goal in GOALS:
            ours, other = (figures.get((way, goal.kind, STEADY)) for way in (OURS, goal.other))
            ratio = Ratio.of(ours, other) if ours and other else None
            if ratio is None:
                continue
            kind = LAUNCHER if goal.kind == LAUNCHER.key else MACHINE
            yield (
                f"p99 of {kind.plural}, {self._title(STEADY)}: {ratio.median:.2f} of {WAYS[goal.other].title}, "
                f"{ratio.low:.2f} to {ratio.high:.2f} in the rounds, {ratio.together:.2f} of all objects together; "
                f"the goal is at most {goal.most:g}: {'met' if ratio.median <= goal.most else 'NOT met'}"
            )

    def _ways(self) -> list[str]:
        measured = {each.way for each in self.samples}
        return [key for key in WAYS if key in measured]

    def _shown(self) -> list[Arrival]:
        """Those of the tables: not the warm-up."""
        return [each for each in self.arrivals if any(each.key == sample.arrival for sample in self.samples)][1:]

    def _latencies(self, figures: Mapping[GroupKey, Figures], kind: ObjectKind) -> list[str]:
        arrivals = self._shown()
        header = [f"{kind.plural}: p50 / p95 / p99, ms"]
        for arrival in arrivals:
            header += [arrival.title, *([f"in a second by {arrival.title}"] if arrival.users else [])]
        rows = []
        for way in self._ways():
            cells = []
            for arrival in arrivals:
                found = figures.get((way, kind.key, arrival.key))
                cells.append(_ABSENT if found is None else _percentiles(found, _SHARES))
                if arrival.users:
                    cells.append(_ABSENT if found is None else _whole(found.per_second))
            if any(cell != _ABSENT for cell in cells):
                rows.append([WAYS[way].title, *cells])
        return _table(header, rows)

    def _costs(self, figures: Mapping[GroupKey, Figures], kind: ObjectKind) -> list[str]:
        header = [f"{kind.plural}: for each, at {self._title(STEADY)}", "call, mean ms", "webhook's CPU, ms"]
        header += ["API server's CPU, ms", "webhook's memory, MB", "created in all", "failed"]
        rows = []
        for way in self._ways():
            steady = figures.get((way, kind.key, STEADY))
            if steady is None:
                continue
            every = [each for key, each in figures.items() if key[:2] == (way, kind.key)]
            has_process = steady.memory_mb > 0
            rows.append(
                [
                    WAYS[way].title,
                    _hundredth(steady.call_ms),
                    _hundredth(steady.webhook_cpu_ms) if has_process else _ABSENT,
                    _hundredth(steady.apiserver_cpu_ms),
                    _whole(max(each.memory_mb for each in every)),
                    f"{sum(each.objects for each in every):,}",
                    f"{sum(each.failed.total() for each in every):,}",
                ]
            )
        return _table(header, rows)

    def _elsewhere(self, figures: Mapping[GroupKey, Figures]) -> list[str]:
        header = [f"{ELSEWHERE.plural}: p50 / p95 / p99, ms", self._title(STEADY), "calls of a webhook"]
        header += ["created", "failed"]
        rows = []
        for way in self._ways():
            found = figures.get((way, ELSEWHERE.key, STEADY))
            if found:
                calls = sum(each.calls for each in found.rounds)
                counts = [f"{count:,}" for count in (calls, found.objects, found.failed.total())]
                rows.append([WAYS[way].title, _percentiles(found, _SHARES), *counts])
        return _table(header, rows)

    def _title(self, key: str) -> str:
        return next(each.title for each in self.arrivals if each.key == key)

    def _late(self) -> Iterator[str]:
        """Which ways did not keep up with a steady rate, so that their percentiles are those of a queue."""
        figures, rate = self.figures, next(each.per_second for each in self.arrivals if each.key == STEADY)
        for kind in (LAUNCHER, MACHINE, ELSEWHERE):
            for way in self._ways():
                found = figures.get((way, kind.key, STEADY))
                if found and found.per_second < _KEEPS_UP * rate:
                    yield (
                        f"{WAYS[way].title} did not keep up: {found.per_second:.0f} of {rate} {kind.plural} in a "
                        "second, so that most of what they took was the wait for others"
                    )

    def _wrong(self) -> Iterator[str]:
        """What went wrong, by way and kind."""
        for way in self._ways():
            wrong: Counter[str] = sum((each.faults for each in self.samples if each.way == way), Counter())
            for what, count in wrong.items():
                yield f"{WAYS[way].title}: {count:,} objects: {what}"

    def _said(self) -> Iterator[str]:
        for name, value in self.versions.items():
            yield f"{name}: {value}"
        yield (
            f"Method: {self._extent().lower()}, interleaved; percentiles are of all objects of all rounds, a ratio is "
            "the median of the rounds' ratios"
        )

    def _extent(self) -> str:
        runs = "One run" if self.runs == 1 else f"{self.runs} runs"
        rounds = self.rounds // self.runs
        return f"{runs} of {rounds} round{'s' if rounds != 1 else ''}"

    def _machine(self) -> str:
        versions = self.versions
        named = [f"{name} {versions[name]}" for name in ("Kubernetes", "Kyverno", "Go", "Python") if name in versions]
        return ", ".join([versions["Machine"].partition(",")[0], *named])


def _document(path: Path) -> dict[str, Any]:
    try:
        document: dict[str, Any] = json.loads(path.read_text())
        if missing := {"runs", "versions", "arrivals", "samples"} - document.keys():
            raise BenchError(f"{path} is no run of this benchmark: it has no {', '.join(sorted(missing))}")
    except (ValueError, AttributeError) as error:
        raise BenchError(f"{path} is no run of this benchmark: {error}") from error
    return document


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """A table in Markdown, with kubevirt-webhook's row in bold; the first column is words."""
    rule = ["---", *["---:"] * (len(header) - 1)]
    bold = [
        [cell if cell == _ABSENT else f"**{cell}**" for cell in row] if row[0] == WAYS[OURS].title else row
        for row in rows
    ]
    return [f"| {' | '.join(row)} |" for row in (header, rule, *bold)]


def _percentiles(figures: Figures, shares: Mapping[str, float]) -> str:
    values = [figures.at(share) for share in shares.values()]
    return _ABSENT if any(map(math.isnan, values)) else " / ".join(f"{value:.1f}" for value in values)


def _hundredth(value: float) -> str:
    return _ABSENT if math.isnan(value) else f"{value:.2f}"


def _whole(value: float) -> str:
    return f"{value:,.0f}" if value else _ABSENT
