"""From samples to figures, and how they are shown."""

from __future__ import annotations

import dataclasses
import json
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from bench.reviews.load import CLIENT_LIMIT, Sample
from bench.reviews.payloads import PAYLOADS, POD
from bench.reviews.ratios import AIMS, REVIEWS, GroupKey, ratios
from bench.reviews.rounds import ALONE, BURSTS, BUSY, STEADY, ReviewsOutcome, ReviewsPlan
from bench.reviews.servers import OURS, TITLES

_HEADER: Final = (
    *("Review", "Server", "CPU µs", "ratio", "Reviews/s"),
    *(
        f"{quantile} ms @{concurrency}"
        for concurrency in (BUSY.in_flight, ALONE.in_flight)
        for quantile in ("p50", "p99")
    ),
    "RSS MB",
)
_LEGEND: Final = (
    f"CPU per review, reviews/s and RSS with {BUSY.title}. The ratio is the median of the rounds' ratios. "
    f"@{BUSY.in_flight}: latency with as many, mostly queueing; @{ALONE.in_flight}: with one."
)
_LATENCY_HEADER: Final = (
    f"{REVIEWS[POD.name]}s, latency",
    *(
        f"{quantile} ms, {arrival.title}" if quantile else "ratio of p99"
        for arrival in (STEADY, BURSTS)
        for quantile in ("p50", "p99", "")
    ),
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


class ReviewsReport:
    """What one run showed.

    Args:
        machine: what it ran on, by name.
    """

    def __init__(self, plan: ReviewsPlan, outcome: ReviewsOutcome, machine: Mapping[str, str]) -> None:
        self._plan = plan
        self._outcome = outcome
        self._machine = machine
        groups: dict[GroupKey, list[Sample]] = {}
        for sample in outcome.samples:
            groups.setdefault((sample.payload, sample.server, sample.arrival), []).append(sample)
        self._figures = {key: ReviewFigures.of(samples) for key, samples in groups.items()}
        self._ratios = {(ratio.payload, ratio.server, ratio.arrival): ratio for ratio in ratios(groups)}

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
        print("\n".join(_aligned([_LATENCY_HEADER, *self._latency_rows()], left=1)))
        for line in (*self._headline(), *self._notes()):
            print(f"* {line}")
        for name, value in self._machine.items():
            print(f"{name}: {value}")

    def markdown(self) -> str:
        """For the page about performance."""
        table = _table(_HEADER, self._rows(), left=_LEFT)
        latency = _table(_LATENCY_HEADER, self._latency_rows(), left=1)
        points = [f"* {line}" for line in (*self._headline(), *self._notes())]
        machine = [f"* {name}: {value}" for name, value in self._machine.items()]
        return "\n".join([*table, "", _LEGEND, "", *latency, "", *points, *machine]) + "\n"

    def write_json(self, path: Path) -> None:
        """For programs: everything, each round's samples too."""
        document = {
            "machine": dict(self._machine),
            "plan": dataclasses.asdict(self._plan),
            "medians": [
                {"payload": payload, "server": server, "arrival": arrival, **dataclasses.asdict(figures)}
                for (payload, server, arrival), figures in self._figures.items()
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
            name = f"{REVIEWS[payload.name]}, {payload.file.stat().st_size / 1000:.1f} kB"
            for server in TITLES:
                if server not in self._plan.servers:
                    continue
                busy = self._figures.get((payload.name, server, BUSY.title))
                alone = self._figures.get((payload.name, server, ALONE.title))
                if busy is None or alone is None:
                    rows.append([name, TITLES[server], *["-"] * (len(_HEADER) - _LEFT)])
                    continue
                ratio = self._ratios.get((payload.name, server, BUSY.title))
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

    def _latency_rows(self) -> list[list[str]]:
        rows = []
        for server in self._plan.servers:
            cells = []
            for arrival in (STEADY, BURSTS):
                figures = self._figures.get((POD.name, server, arrival.title))
                ratio = self._ratios.get((POD.name, server, arrival.title))
                cells += [f"{figures.p50_us / 1000:.2f}", f"{figures.p99_us / 1000:.2f}"] if figures else ["-", "-"]
                cells.append(f"{ratio.median:.2f}" if ratio else "1" if server == OURS else "-")
            rows.append([TITLES[server], *cells])
        return rows

    def _headline(self) -> list[str]:
        return [str(self._ratios[key]) for key in AIMS if key in self._ratios]

    def _notes(self) -> list[str]:
        """What a reader must know before quoting a figure."""
        notes = []
        if self._plan.rounds < 3:
            notes.append(f"only {self._plan.rounds} round(s), so no median: a try-out, not figures to quote")
        for server, payload in sorted(self._outcome.skipped):
            notes.append(f"{TITLES[server]} has no endpoint for the {REVIEWS[payload]} yet (404), so it was skipped")
        for server, lines in self._outcome.audit.items():
            reviews = self._outcome.reviews.get(server, 0)
            if lines < reviews:
                notes.append(
                    f"{TITLES[server]} wrote {lines:,} audit lines for {reviews:,} reviews: the rest is missing"
                )
            else:
                notes.append(f"{TITLES[server]} wrote an audit line for each of its {reviews:,} reviews")
        for (payload, server, arrival), figures in self._figures.items():
            if arrival == BUSY.title and figures.client_share > CLIENT_LIMIT:
                notes.append(
                    f"{TITLES[server]}, {REVIEWS[payload]}: the load client used {figures.client_share:.0%} of its "
                    "core, so the server can do more reviews per second than shown"
                )
        return notes


def _table(header: Sequence[str], rows: Sequence[Sequence[str]], *, left: int) -> list[str]:
    """A table in Markdown, with kubevirt-webhook's rows in bold; the first columns are words."""
    rule = ["---"] * left + ["---:"] * (len(header) - left)
    shown = (_bold(row, left) if row[left - 1] == TITLES[OURS] else row for row in rows)
    return [f"| {' | '.join(row)} |" for row in (header, rule, *shown)]


def _bold(row: Sequence[str], left: int) -> list[str]:
    return [*row[: left - 1], *(cell if cell == "-" else f"**{cell}**" for cell in row[left - 1 :])]


def _aligned(rows: Sequence[Sequence[str]], left: int = _LEFT) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        words = [cell.ljust(width) for cell, width in zip(row[:left], widths[:left], strict=True)]
        figures = [cell.rjust(width) for cell, width in zip(row[left:], widths[left:], strict=True)]
        lines.append("  ".join((*words, *figures)))
    return lines
