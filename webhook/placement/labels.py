"""The labels of a node, in a tenth of the memory that a dictionary takes.

Nodes of one kind have the same hundred keys and, but for their names and zones, the same values. So the table of keys
and the usual values are one for all of them, and a node has alone what differs.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, KeysView, Mapping
from itertools import compress
from operator import is_not
from typing import Final, TypeVar
from weakref import WeakValueDictionary

T = TypeVar("T")


class LabelKeys:
    """The keys of some nodes' labels, each with its place; equal ones are one object for as long as any is in use.

    Args:
        keys: the keys, in their order.
        usual: the values of the first node that has these keys.
    """

    __slots__ = ("__weakref__", "places", "usual")

    def __init__(self, keys: tuple[str, ...], usual: tuple[str, ...]) -> None:
        self.places: Final = {sys.intern(key): place for place, key in enumerate(keys)}
        self.usual: Final = usual


_NO_VALUES: Final[dict[str, str]] = {}
# A node of which more than one value in so many differs has a tuple of its own, which then takes less.
_OWN_SHARE: Final = 8

_KNOWN: Final[WeakValueDictionary[tuple[str, ...], LabelKeys]] = WeakValueDictionary()


class Labels(Mapping[str, str]):
    """The labels of one node, which never change.

    Args:
        labels: values by key; they are interned, because thousands of nodes share them.
    """

    __slots__ = ("_keys", "_own", "_usual")

    def __init__(self, labels: Mapping[str, str]) -> None:
        keys, values = tuple(labels), tuple(map(sys.intern, labels.values()))
        known = _KNOWN.get(keys)
        if known is None:
            known = _KNOWN[keys] = LabelKeys(keys, values)
        own = dict(compress(zip(known.places, values, strict=True), map(is_not, values, known.usual)))
        self._keys: Final = known
        self._usual: Final = values if len(own) * _OWN_SHARE > len(values) else known.usual
        self._own: Final = own if own and self._usual is not values else _NO_VALUES

    def __getitem__(self, key: str) -> str:
        return self._own.get(key, self._usual[self._keys.places[key]])

    def get(self, key: str, default: T | None = None) -> str | T | None:  # type: ignore[override] # one of two forms
        """The value of a label; ``default`` where there is none."""
        place = self._keys.places.get(key)
        return default if place is None else self._own.get(key, self._usual[place])

    def __contains__(self, key: object) -> bool:
        return key in self._keys.places

    def __iter__(self) -> Iterator[str]:
        return iter(self._keys.places)

    def __len__(self) -> int:
        return len(self._usual)

    def keys(self) -> KeysView[str]:
        """The keys."""
        return self._keys.places.keys()

    def as_dict(self) -> dict[str, str]:
        """The same as a dictionary."""
        return dict(zip(self._keys.places, self._usual, strict=True)) | self._own

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Labels) and other._usual is self._usual and other._keys is self._keys:
            return self._own == other._own
        return isinstance(other, Mapping) and self.as_dict() == dict(other)

    __hash__ = None  # type: ignore[assignment] # as of a dictionary

    def __repr__(self) -> str:
        return f"Labels({self.as_dict()!r})"


def plain(labels: Mapping[str, str]) -> Mapping[str, str]:
    """Labels as a dictionary, whose sets of entries are compared without a call for each of them."""
    return labels.as_dict() if isinstance(labels, Labels) else labels
