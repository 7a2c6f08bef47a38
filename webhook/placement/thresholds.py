"""The nodes on either side of a number, for a label whose values are numbers: what ``Gt`` and ``Lt`` ask for.

A label may have a value of its own on each of thousands of nodes, and a pod's affinity may hold thousands of
thresholds. So the values are sorted once, and a threshold is found among them by halving.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Mapping
from typing import Final

from webhook.placement.expression import GREATER, integer

# Between two prefixes that are kept lie so many values: an answer adds up fewer, and memory stays a sixteenth.
_STEP: Final = 16


class Thresholds:
    """The values of one label, sorted by number; those that are not whole numbers of 64 bits are on no side.

    Args:
        values: the nodes that have each value, as `bits`.
    """

    def __init__(self, values: Mapping[str, int]) -> None:
        pairs = sorted((number, nodes) for value, nodes in values.items() if (number := integer(value)) is not None)
        self._numbers: Final = [number for number, _ in pairs]
        self._nodes: Final = [nodes for _, nodes in pairs]
        self._prefixes: Final = [0]
        union = 0
        for index, nodes in enumerate(self._nodes, 1):
            union |= nodes
            if index % _STEP == 0:
                self._prefixes.append(union)
        self._all: Final = union

    def beyond(self, operator: str, bound: int) -> int:
        """The nodes whose value is greater (``Gt``) or else less (``Lt``) than a number, as `bits`."""
        if operator == GREATER:
            return self._all ^ self._first(bisect_right(self._numbers, bound))
        return self._first(bisect_left(self._numbers, bound))

    def _first(self, count: int) -> int:
        """The nodes that have one of the first so many values."""
        prefix = count // _STEP
        union = self._prefixes[prefix]
        for nodes in self._nodes[prefix * _STEP : count]:
            union |= nodes
        return union
