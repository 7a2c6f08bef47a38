"""What was used last, kept up to a size, whatever others make up: cachetools' LRUCache for values, and texts."""

from __future__ import annotations

from functools import lru_cache
from typing import Final, TypeVar

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


# As long as the longest name that Kubernetes has.
_LONGEST: Final = 253
_TEXTS: Final = 8192


def shared_text(text: str) -> str:
    """The text, as the object that an equal one was before: thousands of objects have the same short texts.

    In place of `sys.intern`, which frees no text from CPython 3.12.0 to 3.12.6: tenants could make up any number.
    """
    return _first_equal(text) if len(text) <= _LONGEST else text


@lru_cache(maxsize=_TEXTS)
def _first_equal(text: str) -> str:
    return text
