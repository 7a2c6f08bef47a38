"""From samples to figures, and how they are shown."""

from __future__ import annotations

import dataclasses
import json
import statistics
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from bench.reviews.load import CLIENT_LIMIT, Sample
from bench.reviews.payloads import MIGRATION, PAYLOADS, POD, VM
from bench.reviews.rounds import CONCURRENCIES, ReviewsOutcome, ReviewsPlan
from bench.reviews.servers import NEWER, OURS, TITLES

_ALONE: Final = CONCURRENCIES[0]
_BUSY: Final = CONCURRENCIES[-1]

_REVIEWS: Final = {POD.name: "launcher pod", VM.name: "VM", MIGRATION.name: "migration"}

# How many times as much CPU these should need: what the project aims at.
_AIMS: Final = {
    (POD.name, "plain"): 4.5,
    (POD.name, "controllerruntime"): 18.0,
    (POD.name, "partial"): 1.1,
    (VM.name, "plain"): 1.33,
}

_HEADER: Final = (
    *("Review", "Server", "CPU µs", "ratio", "Reviews/s"),
    *(f"{quantile} ms @{concurrency}" for concurrency in (_BUSY, _ALONE) for quantile in ("p50", "p99")),
    "RSS MB",
)
_LEGEND: Final = (
    f"CPU per review, reviews/s and RSS with {_BUSY} reviews in flight. "
    f"@{_BUSY}: latency with as many, mostly queueing; @{_ALONE}: with one."
)
_LEFT: Final = 2  # The first columns are words; the others are figures.

_METRICS: Final = ("cpu_us", "rps", "p50_us", "p99_us", "max_us", "rss_mb", "client_share")


@dataclass(frozen=True, slots=True)
class ReviewFigures:
    """The medians of all rounds for one server, payload and concurrency."""

    cpu_us: float
    rps: float
    p50_us: float
    p99_us: float
    max_us: float
    rss_mb: float
    client_share: float

    @classmethod
    def of(cls, samples: Sequence[Sample]) -> ReviewFigures:
        return cls(**{name: statistics.median(getattr(sample, name) for sample in samples) for name in _METRICS})


@dataclass(frozen=True, slots=True)
class Ratio:
    """How many times as much CPU another server needs for a review as kubevirt-webhook.

    Attributes:
        median: of the rounds' ratios.
        low: of all rounds.
        high: of all rounds.
        aim: what it should be at least, if anything.
    """

    server: str
    payload: str
    median: float
    low: float
    high: float
    aim: float | None

    @property
    def met(self) -> bool | None:
        return None if self.aim is None else self.median >= self.aim

    def __str__(self) -> str:
        spread = "" if self.low == self.high else f", {self._range} in the rounds"
        aim = "" if self.aim is None else f"; the aim is 1/{self.aim:g}: {'met' if self.met else 'NOT met'}"
        return f"{self.clause}{spread}{aim}"

    @property
    def _range(self) -> str:
        """Of all rounds, the same way around as the median."""
        if self.median >= 1:
            return f"1/{self.low:.1f} to 1/{self.high:.1f}"
        return f"{1 / self.high:.2f} to {1 / self.low:.2f} times"

    @property
    def clause(self) -> str:
        """The ratio in words: of what is dearer as a part, of what is cheaper as a multiple."""
        part = f"1/{self.median:.1f} of" if self.median >= 1 else f"{1 / self.median:.2f} times"
        return f"a {_REVIEWS[self.payload]} review takes {part} the CPU time of {TITLES[self.server]}"


class ReviewsReport:
    """What one run showed.

    Args:
        machine: what it ran on, by name.
    """

    def __init__(self, plan: ReviewsPlan, outcome: ReviewsOutcome, machine: Mapping[str, str]) -> None:
        self._plan = plan
        self._outcome = outcome
        self._machine = machine
        groups: dict[tuple[str, str, int], list[Sample]] = {}
        for sample in outcome.samples:
            groups.setdefault((sample.payload, sample.server, sample.concurrency), []).append(sample)
        self._groups = groups
        self._figures = {key: ReviewFigures.of(samples) for key, samples in groups.items()}
        self._ratios = {(ratio.payload, ratio.server): ratio for ratio in self._all_ratios()}

    def _all_ratios(self) -> Iterable[Ratio]:
        """Ratios are taken within a round, where both servers met the same machine."""
        for payload, server, concurrency in self._groups:
            own = self._groups.get((payload, OURS, concurrency))
            if own is None or server == OURS or concurrency != _BUSY:
                continue
            other = self._groups[payload, server, concurrency]
            rounds = [theirs.cpu_us / ours.cpu_us for theirs, ours in zip(other, own, strict=True)]
            aim = _AIMS.get((payload, server))
            yield Ratio(server, payload, statistics.median(rounds), min(rounds), max(rounds), aim)

    def print(self) -> None:
        """For people: a drawn table on a terminal, a plain one elsewhere."""
        console = Console()
        plain = _aligned([_HEADER, *self._rows()])
        if console.is_terminal and console.width >= len(plain[0]):
            table = Table(*_HEADER[:_LEFT], box=SIMPLE_HEAD)
            for name in _HEADER[_LEFT:]:
                table.add_column(name, justify="right")
            last = None
            for row in self._rows():
                if last is not None and row[0] != last:
                    table.add_section()
                table.add_row(
                    row[0] if row[0] != last else "", *row[1:], style="bold" if row[1] == TITLES[OURS] else ""
                )
                last = row[0]
            console.print(table)
        else:
            print("\n".join(plain))
        print(_LEGEND)
        for line in (*self._headline(), *self._notes()):
            print(f"* {line}")
        for name, value in self._machine.items():
            print(f"{name}: {value}")

    def markdown(self) -> str:
        """For the README."""
        rule = ["---"] * _LEFT + ["---:"] * (len(_HEADER) - _LEFT)
        rows = (_bold(row) if row[1] == TITLES[OURS] else row for row in self._rows())
        table = [f"| {' | '.join(row)} |" for row in (_HEADER, rule, *rows)]
        points = [f"* {line}" for line in (*self._headline(), *self._notes())]
        machine = [f"* {name}: {value}" for name, value in self._machine.items()]
        return "\n".join([*table, "", _LEGEND, "", *points, *machine]) + "\n"

    def summary(self) -> str:
        """For the README: the figures with many reviews in flight, and what they say."""
        header = ("Review", "Server", "CPU µs", "ratio", "Reviews/s", f"p50 / p99 ms, {_BUSY} in flight", "RSS MB")
        rows = [list(header), ["---"] * _LEFT + ["---:"] * (len(header) - _LEFT)]
        for name, title, cpu, ratio, rps, p50, p99, *_, rss in self._rows():
            if title != TITLES[NEWER]:
                row = [name, title, cpu, ratio, rps, f"{p50} / {p99}", rss]
                rows.append(_bold(row) if title == TITLES[OURS] else row)
        table = [f"| {' | '.join(row)} |" for row in rows]
        clauses = "; ".join(self._ratios[key].clause for key in _AIMS if key in self._ratios)
        machine = "; ".join(self._machine.values())
        prose = textwrap.fill(f"{clauses[:1].upper()}{clauses[1:]}. {machine}.", 120, break_on_hyphens=False)
        return "\n".join([*table, "", prose]) + "\n"

    def write_json(self, path: Path) -> None:
        """For programs: everything, each round's samples too."""
        document = {
            "machine": dict(self._machine),
            "plan": dataclasses.asdict(self._plan),
            "medians": [
                {"payload": payload, "server": server, "concurrency": concurrency, **dataclasses.asdict(figures)}
                for (payload, server, concurrency), figures in self._figures.items()
            ],
            "ratios": [dataclasses.asdict(ratio) | {"met": ratio.met} for ratio in self._ratios.values()],
            "samples": [dataclasses.asdict(sample) for sample in self._outcome.samples],
            "skipped": [{"server": server, "payload": payload} for server, payload in sorted(self._outcome.skipped)],
            "reviews": self._outcome.reviews,
            "audit_lines": self._outcome.audit,
            "notes": self._notes(),
        }
        path.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n")

    def _rows(self) -> list[list[str]]:
        rows = []
        for payload in PAYLOADS:
            name = f"{_REVIEWS[payload.name]}, {payload.file.stat().st_size / 1000:.1f} kB"
            for server in TITLES:
                if server not in self._plan.servers:
                    continue
                busy = self._figures.get((payload.name, server, _BUSY))
                alone = self._figures.get((payload.name, server, _ALONE))
                if busy is None or alone is None:
                    rows.append([name, TITLES[server], *["-"] * (len(_HEADER) - _LEFT)])
                    continue
                ratio = self._ratios.get((payload.name, server))
                rows.append(
                    [
                        name,
                        TITLES[server],
                        f"{busy.cpu_us:.0f}",
                        f"{ratio.median:.2f}" if ratio else "1" if server == OURS else "-",
                        f"{busy.rps:,.0f}",
                        *(f"{value / 1000:.2f}" for value in (busy.p50_us, busy.p99_us, alone.p50_us, alone.p99_us)),
                        f"{busy.rss_mb:.0f}",
                    ]
                )
        return rows

    def _headline(self) -> list[str]:
        return [str(self._ratios[key]) for key in _AIMS if key in self._ratios]

    def _notes(self) -> list[str]:
        """What a reader must know before quoting a figure."""
        notes = []
        if self._plan.rounds < 3:
            notes.append(f"only {self._plan.rounds} round(s), so no median: a try-out, not figures to quote")
        for server, payload in sorted(self._outcome.skipped):
            notes.append(f"{TITLES[server]} has no endpoint for the {_REVIEWS[payload]} yet (404), so it was skipped")
        for server, lines in self._outcome.audit.items():
            reviews = self._outcome.reviews.get(server, 0)
            if lines < reviews:
                notes.append(
                    f"{TITLES[server]} wrote {lines:,} audit lines for {reviews:,} reviews: the rest is missing"
                )
            else:
                notes.append(f"{TITLES[server]} wrote an audit line for each of its {reviews:,} reviews")
        for (payload, server, concurrency), figures in self._figures.items():
            if concurrency == _BUSY and figures.client_share > CLIENT_LIMIT:
                notes.append(
                    f"{TITLES[server]}, {_REVIEWS[payload]}: the load client used {figures.client_share:.0%} of its "
                    "core, so the server can do more reviews per second than shown"
                )
        return notes


def _bold(row: Sequence[str]) -> list[str]:
    return [row[0], *(cell if cell == "-" else f"**{cell}**" for cell in row[1:])]


def _aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        words = [cell.ljust(width) for cell, width in zip(row[:_LEFT], widths[:_LEFT], strict=True)]
        figures = [cell.rjust(width) for cell, width in zip(row[_LEFT:], widths[_LEFT:], strict=True)]
        lines.append("  ".join((*words, *figures)))
    return lines
