"""Measures the index and the plain loop in turns, and lets neither pass that answers otherwise than the other."""

from __future__ import annotations

import os
import statistics
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

import msgspec

from bench.index.cluster import IndexReview, nodes, reviews
from tests.builders import read_node
from webhook.placement.eligibility import unmet_requirements
from webhook.placement.index import NodeIndex
from webhook.placement.nodes import Node
from webhook.placement.requirements import UnmetRequirement

# What the project promises at 5,000 nodes, in ms.
AIM_REVIEW: Final = 0.5
AIM_UPDATE: Final = 0.1
# Of quick operations many make one sample, or the clock would be what is measured.
_SAMPLE_SECONDS: Final = 0.02


class DisagreementError(Exception):
    """The index and the plain loop give different answers: no figure is worth anything then."""


@dataclass(frozen=True, slots=True)
class IndexPlan:
    """How much is measured."""

    nodes: int = 5000
    rounds: int = 5


@dataclass(frozen=True, slots=True)
class Figure:
    """One operation: medians of all rounds, in ms.

    Attributes:
        aim: what the index should need at most, in ms; None: nothing was promised.
        beside: what the other figure is of.
    """

    name: str
    index: float
    other: float
    aim: float | None
    beside: str = "looking at each node"

    @property
    def ratio(self) -> float:
        """How many times as long the other takes."""
        return self.other / self.index

    @property
    def met(self) -> bool | None:
        """Whether the aim is."""
        return None if self.aim is None else self.index <= self.aim


@dataclass(frozen=True, slots=True)
class IndexOutcome:
    """All figures of one run.

    Attributes:
        labels: of a node, on average.
    """

    figures: tuple[Figure, ...]
    labels: float


def measure(plan: IndexPlan) -> IndexOutcome:
    """Run all rounds, on one core.

    Raises:
        DisagreementError: see there.
    """
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    cluster = [read_node(json) for json in nodes(plan.nodes)]
    index = NodeIndex(cluster)
    figures = [figure for review in reviews(cluster) for figure in _of_review(review, index, cluster, plan)]
    figures += _of_updates(index, cluster, plan)
    return IndexOutcome(tuple(figures), statistics.mean(len(node.labels) for node in cluster))


def _of_review(review: IndexReview, index: NodeIndex, cluster: list[Node], plan: IndexPlan) -> Iterator[Figure]:
    def counted() -> tuple[int, int]:
        eligibility = index.review(review.requirements)
        return eligibility.count, sum(failure.count for failure in eligibility.failures)

    def counted_plainly() -> tuple[int, int]:
        eligible, classes = 0, Counter[UnmetRequirement]()
        for node in cluster:
            why = unmet_requirements(review.requirements, node)
            eligible += not why
            classes.update(why)
        return eligible, classes.total()

    if counted() != counted_plainly():
        raise DisagreementError(f"{review.name}: the index answers otherwise than looking at each node")
    size = f"{review.name} ({len(review.requirements)} requirements)"
    yield Figure(f"{size}: count and classes", *_in_turns(counted, counted_plainly, plan), AIM_REVIEW)


def _of_updates(index: NodeIndex, cluster: list[Node], plan: IndexPlan) -> Iterator[Figure]:
    node, other = cluster[-1], cluster[0]  # one with all labels, one with few
    relabelled = msgspec.structs.replace(other, name=node.name)
    cordoned = msgspec.structs.replace(node, unschedulable=not node.unschedulable)

    def to(state: Node) -> Callable[[], object]:
        def both_ways() -> None:
            index.put(state)
            index.put(node)

        return both_ways

    def rebuild() -> object:
        return NodeIndex(cluster)

    beside = "building the index anew"
    for name, state in (("one node cordoned", cordoned), ("one node relabelled", relabelled)):
        twice, anew = _in_turns(to(state), rebuild, plan)
        yield Figure(name, twice / 2, anew, AIM_UPDATE, beside)


def _in_turns(ours: Callable[[], object], other: Callable[[], object], plan: IndexPlan) -> tuple[float, float]:
    """The medians of both, in ms; they take turns, so that a disturbance meets both."""
    samples = [(_sample(ours), _sample(other)) for _ in range(plan.rounds)]
    return statistics.median(first for first, _ in samples), statistics.median(second for _, second in samples)


def _sample(operation: Callable[[], object]) -> float:
    """How long one takes, in ms of this process."""
    count, start = 0, time.process_time()
    while True:
        operation()
        count += 1
        spent = time.process_time() - start
        if spent >= _SAMPLE_SECONDS:
            return spent / count * 1000
