"""The labels of a node, in a third of the memory that a dictionary takes.

Nodes of one kind have the same hundred keys, so the table of keys is one for all of them, and a node has its values
alone.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, KeysView, Mapping
from typing import Final, TypeVar
from weakref import WeakValueDictionary

T = TypeVar("T")


class LabelKeys:
    """The keys of some nodes' labels, each with its place; equal ones are one object for as long as any is in use.

    Args:
        keys: the keys, in their order.
    """

    __slots__ = ("__weakref__", "places")

    def __init__(self, keys: tuple[str, ...]) -> None:
        self.places: Final = {sys.intern(key): place for place, key in enumerate(keys)}


_KNOWN: Final[WeakValueDictionary[tuple[str, ...], LabelKeys]] = WeakValueDictionary()


class Labels(Mapping[str, str]):
    """The labels of one node, which never change.

    Args:
        labels: values by key; they are interned, because thousands of nodes share them.
    """

    __slots__ = ("_keys", "_values")

    def __init__(self, labels: Mapping[str, str]) -> None:
        keys = tuple(labels)
        known = _KNOWN.get(keys)
        if known is None:
            known = _KNOWN[keys] = LabelKeys(keys)
        self._keys: Final = known
        self._values: Final = tuple(map(sys.intern, labels.values()))

    def __getitem__(self, key: str) -> str:
        return self._values[self._keys.places[key]]

    def get(self, key: str, default: T | None = None) -> str | T | None:  # type: ignore[override] # one of two forms
        """The value of a label; ``default`` where there is none."""
        place = self._keys.places.get(key)
        return default if place is None else self._values[place]

    def __contains__(self, key: object) -> bool:
        return key in self._keys.places

    def __iter__(self) -> Iterator[str]:
        return iter(self._keys.places)

    def __len__(self) -> int:
        return len(self._values)

    def keys(self) -> KeysView[str]:
        """The keys."""
        return self._keys.places.keys()

    def as_dict(self) -> dict[str, str]:
        """The same as a dictionary."""
        return dict(zip(self._keys.places, self._values, strict=True))

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Labels) and other._keys is self._keys:
            return self._values == other._values
        return isinstance(other, Mapping) and self.as_dict() == dict(other)

    __hash__ = None  # type: ignore[assignment] # as of a dictionary

    def __repr__(self) -> str:
        return f"Labels({self.as_dict()!r})"


def plain(labels: Mapping[str, str]) -> Mapping[str, str]:
    """Labels as a dictionary, whose sets of entries are compared without a call for each of them."""
    return labels.as_dict() if isinstance(labels, Labels) else labels
