"""Sets of small numbers as the bits of an integer: a hundred times faster than sets where there are thousands."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import reduce
from itertools import compress
from operator import or_
from typing import Final, TypeVar

T = TypeVar("T")

_TRUTH: Final = bytes.maketrans(b"01", b"\x00\x01")


def select(bits: int, items: Iterable[T]) -> Iterator[T]:
    """The items whose position is in the set."""
    return compress(items, bin(bits)[:1:-1].encode().translate(_TRUTH))


def union(sets: Iterable[int]) -> int:
    """The members of any of the sets."""
    return reduce(or_, sets, 0)


def positions(bits: int) -> Iterator[int]:
    """The members of a set in their order; each costs the width of the integer, so for sets of a few."""
    while bits:
        lowest = bits & -bits
        yield lowest.bit_length() - 1
        bits ^= lowest
