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

    __slots__ = ("__weakref__", "places", "starting", "usual")

    def __init__(self, keys: tuple[str, ...], usual: tuple[str, ...]) -> None:
        self.places: Final = {sys.intern(key): place for place, key in enumerate(keys)}
        self.usual: Final = usual
        # By prefix, and by what stands in its place; see `find_starting`.
        self.starting: Final[dict[tuple[str, str], tuple[tuple[str, str, int], ...]]] = {}

    def find_starting(self, prefix: str, instead: str) -> tuple[tuple[str, str, int], ...]:
        """The keys with a prefix, sorted: with another prefix, as they are, and their places; remembered."""
        found = sorted(key for key in self.places if key.startswith(prefix))
        known = tuple((instead + key.removeprefix(prefix), key, self.places[key]) for key in found)
        self.starting[prefix, instead] = known
        return known


_NO_VALUES: Final[dict[str, str]] = {}
# A node of which more than one value in so many differs has a tuple of its own, which then takes less.
_OWN_SHARE: Final = 8

_KNOWN: Final[WeakValueDictionary[tuple[str, ...], LabelKeys]] = WeakValueDictionary()


class Labels(Mapping[str, str]):
    """The labels of one node, which never change.

    Args:
        labels: values by key; they are interned, because thousands of nodes share them.

    Attributes:
        table: the keys.
        usual: the values by place.
        own: those that differ, by key.
    """

    __slots__ = ("own", "table", "usual")

    def __init__(self, labels: Mapping[str, str]) -> None:
        keys, values = tuple(labels), tuple(map(sys.intern, labels.values()))
        known = _KNOWN.get(keys)
        if known is None:
            known = _KNOWN[keys] = LabelKeys(keys, values)
        own = dict(compress(zip(known.places, values, strict=True), map(is_not, values, known.usual)))
        self.table: Final = known
        self.usual: Final = values if len(own) * _OWN_SHARE > len(values) else known.usual
        self.own: Final = own if own and self.usual is not values else _NO_VALUES

    def __getitem__(self, key: str) -> str:
        return self.own.get(key, self.usual[self.table.places[key]])

    def get(self, key: str, default: T | None = None) -> str | T | None:  # type: ignore[override] # one of two forms
        """The value of a label; ``default`` where there is none."""
        place = self.table.places.get(key)
        return default if place is None else self.own.get(key, self.usual[place])

    def __contains__(self, key: object) -> bool:
        return key in self.table.places

    def __iter__(self) -> Iterator[str]:
        return iter(self.table.places)

    def __len__(self) -> int:
        return len(self.usual)

    def keys(self) -> KeysView[str]:
        """The keys."""
        return self.table.places.keys()

    def as_dict(self) -> dict[str, str]:
        """The same as a dictionary."""
        return dict(zip(self.table.places, self.usual, strict=True)) | self.own

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Labels) and other.usual is self.usual and other.table is self.table:
            return self.own == other.own
        return isinstance(other, Mapping) and self.as_dict() == dict(other)

    __hash__ = None  # type: ignore[assignment] # as of a dictionary

    def __repr__(self) -> str:
        return f"Labels({self.as_dict()!r})"


def plain(labels: Mapping[str, str]) -> Mapping[str, str]:
    """Labels as a dictionary, whose sets of entries are compared without a call for each of them."""
    return labels.as_dict() if isinstance(labels, Labels) else labels


def starting_with(labels: Mapping[str, str], prefix: str, instead: str) -> dict[str, str]:
    """The labels with a prefix, sorted.

    Args:
        labels: a node's, or those of a selector.
        prefix: one of those that KubeVirt's rules name.
        instead: what stands in its place in the answer.
    """
    if isinstance(labels, Labels):
        # The keys are the same for all nodes of one kind.
        known = labels.table.starting.get((prefix, instead))
        if known is None:
            known = labels.table.find_starting(prefix, instead)
        own, usual = labels.own, labels.usual
        return {key: own.get(written, usual[place]) for key, written, place in known}
    return {instead + key.removeprefix(prefix): labels[key] for key in sorted(labels) if key.startswith(prefix)}
