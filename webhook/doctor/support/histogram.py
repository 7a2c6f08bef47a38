"""A histogram in one line."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final

from webhook.text import pluralize

_MOST_BARS: Final = 8


def histogram(values: Sequence[float], unit: str = "") -> str:
    """How many nodes have which values, the least first, as ``0 on 10 nodes, 5 to 9 on 10``.

    Args:
        values: one value for each node, at least one.
        unit: the unit of the values.
    """
    whole = [math.floor(value) for value in values]
    width = next(width for width in _widths() if len({value // width for value in whole}) <= _MOST_BARS)
    texts: list[str] = []
    for bar, nodes in sorted(Counter(value // width for value in whole).items()):
        least = bar * width
        shown = f"{least}{unit}" if width == 1 else f"{least} to {least + width - 1}{unit}"
        texts.append(f"{shown} on {nodes}" if texts else f"{shown} on {pluralize(nodes, 'node')}")
    return ", ".join(texts)


def _widths() -> Iterator[int]:
    """1, 2, 5, 10, 20, 50 and so on."""
    for exponent in itertools.count():
        for step in (1, 2, 5):
            yield step * 10**exponent
