"""What was used last, kept up to a weight."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Final, Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class LruCache(Generic[K, V]):
    """A mapping of the most recently used keys; a value that is heavier than all may be is not kept.

    Args:
        most: the weight of all values at most.
        weigh: the weight of a value, at least 1; by default 1, so that ``most`` is their number.

    Attributes:
        weight: that of all values.
    """

    def __init__(self, most: int, weigh: Callable[[V], int] = lambda _: 1) -> None:
        self._most: Final = most
        self._weigh: Final = weigh
        self._kept: Final[OrderedDict[K, V]] = OrderedDict()
        self.weight = 0

    def get(self, key: K) -> V | None:
        """The value of a key, which counts as used; None where there is none."""
        value = self._kept.get(key)
        if value is not None:
            self._kept.move_to_end(key)
        return value

    def put(self, key: K, value: V) -> None:
        """Keep a value in the place of another one of its key; those that were used least recently make room."""
        self.drop(key)
        self._kept[key] = value
        self.weight += self._weigh(value)
        while self.weight > self._most:
            self.drop(next(iter(self._kept)))

    def drop(self, key: K) -> None:
        """Forget the value of a key, if there is one."""
        value = self._kept.pop(key, None)
        if value is not None:
            self.weight -= self._weigh(value)

    def clear(self) -> None:
        """Forget everything."""
        self._kept.clear()
        self.weight = 0
