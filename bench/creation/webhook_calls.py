"""What the API server says of the webhooks that it called, between two moments."""

from __future__ import annotations

import math
from collections import Counter
from typing import Final, NamedTuple, Self

from prometheus_client.parser import text_string_to_metric_families

_DURATIONS: Final = "apiserver_admission_webhook_admission_duration_seconds"
_PASSED_OVER: Final = "apiserver_admission_webhook_fail_open_count"


class Calls(NamedTuple):
    """The calls for objects that are created.

    Attributes:
        below: how many took no longer than so many seconds, by the histogram's edges; infinity: all.
        seconds: what all of them took.
        passed_over: calls that failed, after which the API server went on without an answer.
    """

    below: Counter[float]
    seconds: float
    passed_over: int

    @classmethod
    def of(cls, text: str) -> Self:
        """The calls in the API server's metrics, since it began."""
        below: Counter[float] = Counter()
        seconds, passed_over = 0.0, 0
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                if family.name == _DURATIONS and sample.labels.get("operation") == "CREATE":
                    if sample.name.endswith("_bucket"):
                        below[float(sample.labels["le"])] += int(sample.value)
                    elif sample.name.endswith("_sum"):
                        seconds += sample.value
                elif family.name == _PASSED_OVER.removesuffix("_total"):
                    passed_over += int(sample.value)
        return cls(below, seconds, passed_over)

    @property
    def total(self) -> int:
        """How many calls there were."""
        return self.below[math.inf]

    def since(self, before: Calls) -> Calls:
        """The calls that these have beyond the earlier ones."""
        below = Counter({edge: count - before.below[edge] for edge, count in self.below.items()})
        return Calls(below, self.seconds - before.seconds, self.passed_over - before.passed_over)

    def within(self, share: float) -> float:
        """The lowest edge of the histogram, in seconds, below which this share of the calls lies.

        The API server's histogram has no edge below 5 ms; an estimate between two of them would be made up.
        """
        return min((edge for edge, count in self.below.items() if count >= share * self.total), default=math.inf)

    def cells(self) -> tuple[str, ...]:
        """The cells of a table: calls, mean, and where the median and the 99th percentile lie, in milliseconds."""
        if not self.total:
            return ("0", "-", "-", "-")
        mean = self.seconds / self.total * 1000
        return (f"{self.total:,}", f"{mean:.2f}", *(f"< {self.within(share) * 1000:g}" for share in (0.5, 0.99)))
