"""The nodes of a cluster by how much of one resource they have, as sets of `bits`."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator
from typing import Final

# A union is kept for every so many amounts: memory differs from node to node, and each union of 5000 nodes takes 625
# bytes.
_STEP: Final = 64


class Levels:
    """Answers which nodes have less than an amount, by a bisection and at most 64 unions of sets."""

    def __init__(self) -> None:
        self._nodes: dict[int, int] = {}  # amount -> nodes
        self._amounts: list[int] = []  # sorted
        self._unions: list[int] = [0]  # at place k: the nodes of the first k * _STEP amounts; grows when it is needed
        # The nodes that have any amount, be it zero.
        self.nodes = 0

    def __bool__(self) -> bool:
        return bool(self._nodes)

    def flip(self, amount: int, bit: int) -> None:
        """Add a node with an amount, or remove it where it has this amount."""
        before = self._nodes.get(amount, 0)
        after = before ^ bit
        place = bisect_left(self._amounts, amount)
        if not before:
            insort(self._amounts, amount)
        if after:
            self._nodes[amount] = after
        else:
            del self._nodes[amount], self._amounts[place]
        self.nodes ^= bit
        del self._unions[place // _STEP + 1 :]

    def below(self, amount: int) -> int:
        """The nodes that have less than an amount, without those that have none at all."""
        place = bisect_left(self._amounts, amount)
        while len(self._unions) <= place // _STEP:
            start = (len(self._unions) - 1) * _STEP
            self._unions.append(self._unions[-1] | self._union(start, start + _STEP))
        whole = place // _STEP
        return self._unions[whole] | self._union(whole * _STEP, place)

    def ascending(self, amount: int) -> Iterator[int]:
        """The nodes that have at least an amount, those of each amount together, the smallest amount first."""
        return map(self._nodes.__getitem__, self._amounts[bisect_left(self._amounts, amount) :])

    def descending(self) -> Iterator[int]:
        """All nodes, those of each amount together, the largest amount first."""
        return map(self._nodes.__getitem__, reversed(self._amounts))

    def _union(self, start: int, end: int) -> int:
        nodes = 0
        for amount in self._amounts[start:end]:
            nodes |= self._nodes[amount]
        return nodes
