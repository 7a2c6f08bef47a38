"""The arithmetic: percentiles of all objects, ratios, and whether the goals are met."""

from __future__ import annotations

import math
import statistics
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

_P99: Final = 0.99
# Way, kind, arrival.
GroupKey = tuple[str, str, str]


@dataclass(frozen=True, slots=True)
class Sample:
    """What one way showed with one kind of objects, in one round.

    Attributes:
        way: its key.
        kind: the key of the objects' kind.
        arrival: the key of how they came.
        round: its number; of several runs, that of all.
        milliseconds: of each object that was created as it should be, the whole request of the client.
        failed: how many were not, by what was wrong.
        seconds: from the first request to the last answer.
        webhook_cpu: seconds of CPU time that the webhook's process took.
        apiserver_cpu: the same of the API server's.
        memory_mb: what the webhook's process had in RAM afterwards; 0: there is none.
        calls: how often the API server called a webhook.
        call_seconds: how long it waited for all of these.
        passed_over: calls that failed, after which the API server went on without an answer.
    """

    way: str
    kind: str
    arrival: str
    round: int
    milliseconds: Sequence[float]
    failed: Mapping[str, int]
    seconds: float
    webhook_cpu: float
    apiserver_cpu: float
    memory_mb: float
    calls: int
    call_seconds: float
    passed_over: int

    @property
    def objects(self) -> int:
        """All objects that were to be created."""
        return len(self.milliseconds) + sum(self.failed.values())

    @property
    def faults(self) -> Counter[str]:
        """What went wrong, and how often; a call that failed shows where the object cannot."""
        passed_over = {"webhook passed over": self.passed_over} if self.passed_over else {}
        return Counter(self.failed) + Counter(passed_over)


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest value that so large a share of all values does not exceed; NaN where there are none."""
    if not values:
        return math.nan
    return sorted(values)[max(0, math.ceil(share * len(values)) - 1)]


@dataclass(frozen=True)
class Figures:
    """The figures of one way with one kind and arrival: of all objects of all rounds.

    Attributes:
        rounds: the samples, one of each round.
    """

    rounds: Sequence[Sample]

    @property
    def objects(self) -> int:
        """All objects that were to be created."""
        return sum(each.objects for each in self.rounds)

    @property
    def failed(self) -> Counter[str]:
        """What went wrong, and how often."""
        return sum((each.faults for each in self.rounds), Counter())

    def at(self, share: float) -> float:
        """A percentile in milliseconds."""
        return percentile([value for each in self.rounds for value in each.milliseconds], share)

    @property
    def per_second(self) -> float:
        """Objects that were created in a second."""
        return sum(len(each.milliseconds) for each in self.rounds) / sum(each.seconds for each in self.rounds)

    @property
    def webhook_cpu_ms(self) -> float:
        """CPU time of the webhook for an object, in milliseconds."""
        return sum(each.webhook_cpu for each in self.rounds) / self.objects * 1000

    @property
    def apiserver_cpu_ms(self) -> float:
        """CPU time of the API server for an object, in milliseconds."""
        return sum(each.apiserver_cpu for each in self.rounds) / self.objects * 1000

    @property
    def memory_mb(self) -> float:
        """The most memory of the webhook after any of its rounds, in MB."""
        return max(each.memory_mb for each in self.rounds)

    @property
    def call_ms(self) -> float:
        """The mean time of a call by the API server's count, in milliseconds; NaN where it made none."""
        calls = sum(each.calls for each in self.rounds)
        return sum(each.call_seconds for each in self.rounds) / calls * 1000 if calls else math.nan


def grouped(samples: Iterable[Sample]) -> dict[GroupKey, Figures]:
    """The figures of each way, kind and arrival."""
    found: dict[GroupKey, list[Sample]] = defaultdict(list)
    for each in samples:
        found[each.way, each.kind, each.arrival].append(each)
    return {key: Figures(rounds) for key, rounds in found.items()}


@dataclass(frozen=True, slots=True)
class Ratio:
    """How many times as long the slowest of a hundred requests takes as with another way: p99 of both.

    Attributes:
        median: of the rounds' ratios, in each of which both met the same machine.
        low: the lowest of them.
        high: the highest of them.
        together: the ratio for all objects of all rounds, which one slow round of either can decide.
    """

    median: float
    low: float
    high: float
    together: float

    @classmethod
    def of(cls, ours: Figures, other: Figures) -> Ratio | None:
        """The ratio of two ways' figures; None where no round created objects in both."""
        theirs = {each.round: each for each in other.rounds}
        rounds = [
            percentile(each.milliseconds, _P99) / percentile(theirs[each.round].milliseconds, _P99)
            for each in ours.rounds
            if each.milliseconds and each.round in theirs and theirs[each.round].milliseconds
        ]
        if not rounds:
            return None
        return cls(statistics.median(rounds), min(rounds), max(rounds), ours.at(_P99) / other.at(_P99))


@dataclass(frozen=True, slots=True)
class Goal:
    """What p99 of kubevirt-webhook should be at most, in times that of another way."""

    kind: str
    other: str
    most: float


GOALS: Final = (
    *(Goal("pod", other, 0.6) for other in ("kyverno", "kyverno-cel", "kyverno-reads")),
    *(Goal("vm", other, 1.0) for other in ("kyverno", "kyverno-cel")),
    *(Goal(kind, "empty", 1.5) for kind in ("pod", "vm")),
)
