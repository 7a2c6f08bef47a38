"""How evenly pods lie on nodes."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Spread:
    """The pods of one round, counted on every node, in the nodes' order; empty nodes count too."""

    counts: tuple[int, ...]

    @classmethod
    def of(cls, nodes: Sequence[str], bound_to: Iterable[str]) -> Spread:
        """Count pods.

        Args:
            nodes: all that there are.
            bound_to: the node of each pod.

        Raises:
            ValueError: a pod is on a node that is not one of them.
        """
        counts = dict.fromkeys(nodes, 0)
        for node in bound_to:
            if node not in counts:
                raise ValueError(f"a pod is on {node}, which is none of the {len(nodes)} nodes")
            counts[node] += 1
        return cls(tuple(counts.values()))

    @property
    def total(self) -> int:
        return sum(self.counts)

    @property
    def mean(self) -> float:
        return statistics.fmean(self.counts)

    @property
    def deviation(self) -> float:
        """The standard deviation of the whole population: there are no nodes beyond these."""
        return statistics.pstdev(self.counts)

    @property
    def fewest(self) -> int:
        return min(self.counts)

    @property
    def most(self) -> int:
        return max(self.counts)

    @property
    def empty(self) -> int:
        return self.counts.count(0)


def middle(spreads: Sequence[Spread]) -> int:
    """The index of the round whose standard deviation is the median: of an even number, the lower of the two.

    A round, not the median of each figure: all figures and the chart then show what happened at one time.
    """
    return sorted(range(len(spreads)), key=lambda index: spreads[index].deviation)[(len(spreads) - 1) // 2]
