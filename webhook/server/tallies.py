"""Counters and histograms whose numbers are plain integers until a scrape.

prometheus_client takes a lock and five calls for each count, and a review counts three times. Here all counting happens
on the event loop, and so does collecting.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from typing import Final

from prometheus_client.metrics_core import CounterMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

Labels = tuple[str, ...]


class CounterTally(Collector):
    """A counter with labels.

    Args:
        name: the name of the metric, without ``_total``.
        text: its help.
        labels: their names.
        known: label values that are shown before anything was counted.

    Attributes:
        counts: counts by label values; callers add to them directly, for a method would be most of the cost.
    """

    def __init__(self, name: str, text: str, labels: Labels, known: Iterable[Labels] = ()) -> None:
        self._name: Final = name
        self._text: Final = text
        self._labels: Final = labels
        self._created: Final = time.time()
        self.counts: Final[dict[Labels, int]] = dict.fromkeys(known, 0)

    def describe(self) -> Iterable[Metric]:
        """The metric family without numbers, for prometheus_client at the registration."""
        yield CounterMetricFamily(self._name, self._text, labels=self._labels)

    def collect(self) -> Iterable[Metric]:
        """The metric family, for prometheus_client at a scrape."""
        family = CounterMetricFamily(self._name, self._text, labels=self._labels)
        for values, count in self.counts.items():
            family.add_metric(values, count, created=self._created)
        yield family


class Latencies:
    """How long the requests of one endpoint took; callers add to both directly, as for a `CounterTally`.

    Args:
        buckets: how many there are.

    Attributes:
        counts: requests in each bucket; the last is beyond all bounds.
        total: the time of all requests, in seconds.
    """

    __slots__ = ("counts", "total")

    def __init__(self, buckets: int) -> None:
        self.counts = [0] * (buckets + 1)
        self.total = 0.0


class LatencyTally(Collector):
    """A histogram with one label.

    Args:
        name: the name of the metric.
        text: its help.
        label: its name.
        values: the values of the label.
        bounds: the upper bounds of the buckets in seconds, ascending.
    """

    def __init__(self, name: str, text: str, label: str, values: Iterable[str], bounds: Sequence[float]) -> None:
        self._name: Final = name
        self._text: Final = text
        self._label: Final = label
        self._created: Final = time.time()
        self._bounds: Final = [
            floatToGoString(bound)  # type: ignore[no-untyped-call]
            for bound in (*bounds, float("inf"))
        ]
        self.latencies: Final = {value: Latencies(len(bounds)) for value in values}

    def describe(self) -> Iterable[Metric]:
        """The metric family without numbers, for prometheus_client at the registration."""
        yield HistogramMetricFamily(self._name, self._text, labels=(self._label,))

    def collect(self) -> Iterable[Metric]:
        """The metric family, for prometheus_client at a scrape."""
        family = HistogramMetricFamily(self._name, self._text, labels=(self._label,))
        for value, latencies in self.latencies.items():
            below = 0
            buckets = []
            for bound, count in zip(self._bounds, latencies.counts, strict=True):
                below += count
                buckets.append((bound, float(below)))
            family.add_metric((value,), buckets, latencies.total)
            family.add_sample(f"{self._name}_created", {self._label: value}, self._created)
        yield family
