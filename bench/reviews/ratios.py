"""How servers compare in a run, and what the project aims at."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from bench.reviews.load import Sample
from bench.reviews.payloads import DRAIN, MIGRATION, POD, VM
from bench.reviews.rounds import BURSTS, BUSY, STEADY
from bench.reviews.servers import OURS, TITLES

# Payload, server, title of an arrival.
GroupKey = tuple[str, str, str]

REVIEWS: Final = {
    POD.name: "launcher pod",
    VM.name: "VM",
    MIGRATION.name: "migration",
    DRAIN.name: "drain's migration",
}

# How many times as much these should need as kubevirt-webhook: what the project aims at.
AIMS: Final[Mapping[GroupKey, float]] = {
    (POD.name, "plain", BUSY.title): 1 / 0.75,
    (POD.name, "controllerruntime", BUSY.title): 6.0,
}

# What is compared, by how reviews arrive.
_METRICS: Final = {BUSY.title: "cpu_us", STEADY.title: "p99_us", BURSTS.title: "p99_us"}
# From here on, a share is written as a fraction.
_FRACTION: Final = 1.5


@dataclass(frozen=True, slots=True)
class Ratio:
    """How many times as much another server needs for a review as kubevirt-webhook: of CPU time, or p99 of latency.

    Attributes:
        arrival: the title of how the reviews arrived.
        median: of the rounds' ratios.
        low: of all rounds.
        high: of all rounds.
        aim: what it should be at least, if anything.
    """

    server: str
    payload: str
    arrival: str
    median: float
    low: float
    high: float
    aim: float | None

    @property
    def met(self) -> bool | None:
        return None if self.aim is None else self.median >= self.aim

    def __str__(self) -> str:
        spread = "" if self.low == self.high else f", {_share(self.high)} to {_share(self.low)} in the rounds"
        aim = "" if self.aim is None else f"; the aim is {_share(self.aim)}: {'met' if self.met else 'NOT met'}"
        return f"{self.clause}{spread}{aim}"

    @property
    def clause(self) -> str:
        """The share of kubevirt-webhook in words."""
        part = _share(self.median)
        part += " of" if "/" in part else " times"
        if _METRICS[self.arrival] == "cpu_us":
            return f"a {REVIEWS[self.payload]} review takes {part} the CPU time of {TITLES[self.server]}"
        return f"p99 of {REVIEWS[self.payload]} reviews, {self.arrival}, is {part} that of {TITLES[self.server]}"


def ratios(groups: Mapping[GroupKey, Sequence[Sample]]) -> Iterator[Ratio]:
    """All comparisons of a run; each is taken within a round, where both servers met the same machine.

    Args:
        groups: samples of all rounds.
    """
    for (payload, server, arrival), other in groups.items():
        metric = _METRICS.get(arrival)
        own = groups.get((payload, OURS, arrival))
        if own is None or server == OURS or metric is None:
            continue
        rounds = [getattr(theirs, metric) / getattr(ours, metric) for theirs, ours in zip(other, own, strict=True)]
        aim = AIMS.get((payload, server, arrival))
        yield Ratio(server, payload, arrival, statistics.median(rounds), min(rounds), max(rounds), aim)


def _share(ratio: float) -> str:
    """What kubevirt-webhook needs, where another one needs so many times as much."""
    return f"1/{ratio:.1f}" if ratio >= _FRACTION else f"{1 / ratio:.2f}"
