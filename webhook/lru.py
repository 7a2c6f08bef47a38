"""What was used last, kept up to a size: cachetools' LRUCache for values that others make as large as they like."""

from __future__ import annotations

from typing import TypeVar

from cachetools import LRUCache

K = TypeVar("K")
V = TypeVar("V")


class SizedCache(LRUCache[K, V]):
    """An LRUCache that doesn't keep a value larger than all may be, and loses nothing else for its sake."""

    def __setitem__(self, key: K, value: V) -> None:
        if self.getsizeof(value) > self.maxsize:
            # What was there of this key is not its value any more.
            self.pop(key, None)
        else:
            super().__setitem__(key, value)
