"""Lists and objects with free keys, as Go's slices and maps read and write them."""

from __future__ import annotations

from functools import cached_property
from typing import Any, Final

from webhook.admission.step_budget import spend
from webhook.kubevirt.go_json.exact import NEVER, list_type, map_type
from webhook.kubevirt.go_json.limits import MAX_ITEMS, MAX_KEYS, copy_bounded
from webhook.kubevirt.go_json.recognized import Recognized
from webhook.kubevirt.go_json.scalar import LISTED, OMITTED, Scalar
from webhook.kubevirt.go_json.scalars import WrongValue, kind_of
from webhook.kubevirt.go_json.structs import Shape, Struct


class List(Recognized):
    """A list; an empty one equals an absent one.

    Args:
        item: the type of the items; a null among structs is an empty struct.
        limit: the number of items that a list may have.
    """

    def __init__(self, item: Shape, limit: int = MAX_ITEMS) -> None:
        self.item: Final = item
        self.limit: Final = limit
        self._has_structs: Final = isinstance(item, Struct)

    @cached_property
    def exact(self) -> Any:
        """The type of the lists that are written as they stand."""
        # What is left out of an item is not written by those who look at whole lists.
        is_complete = not (isinstance(self.item, Struct) and self.item.completed)
        return list_type(self.item.exact if is_complete else NEVER, self.limit)

    def take(self, value: Any, live: bool, *, shared: bool = False) -> Any:
        """A copy of a list; ``OMITTED`` for an empty one.

        Args:
            value: plain JSON.
            live: the list is read, not written.
            shared: its items may share with the list what is written as it stands.

        Raises:
            WrongValue: the value is not a list or has too many items, or an item is of another kind.
            TooComplex: the review has no steps left for it.
        """
        if type(value) is not list:
            raise WrongValue(f"is {kind_of(value)}, not a list")
        if len(value) > self.limit:
            raise WrongValue(f"has {len(value)} items, more than {self.limit}")
        spend(len(value), LISTED)
        take, taken = self.item.share if shared else self.item.take, []
        for index, item in enumerate(value):
            try:
                taken.append(take({} if item is None and self._has_structs else item, live))
            except WrongValue as wrong:
                wrong.path.append(f"[{index}]")
                raise
        return taken or OMITTED

    def absent(self, live: bool) -> Any:
        """``OMITTED``: Go drops a list that is nil."""
        return OMITTED


class Map(Recognized):
    """An object with free keys. Read, an empty one differs from none; written, it is dropped.

    Args:
        item: the type of the values; a null is its zero.
    """

    def __init__(self, item: Scalar) -> None:
        self._item = item

    @cached_property
    def exact(self) -> Any:
        """The type of the objects that are written as they stand."""
        return map_type(self._item.exact, MAX_KEYS)

    def take(self, value: Any, live: bool, *, shared: bool = False) -> Any:
        """A copy of an object with free keys; ``OMITTED`` for an empty one that is written.

        Args:
            value: plain JSON.
            live: the object is read, not written.
            shared: its values are scalars, which need no copy either way.

        Raises:
            WrongValue: the value is not an object or has too many keys, or an item is of another kind.
            TooComplex: the review has no steps left for it.
        """
        if type(value) is not dict:
            raise WrongValue(f"is {kind_of(value)}, not an object")
        if len(value) > MAX_KEYS:
            raise WrongValue(f"has {len(value)} keys, more than {MAX_KEYS}")
        spend(len(value), LISTED)
        taken = {}
        for key, item in value.items():
            if not isinstance(key, str):
                raise WrongValue("has a key that is not a string")
            try:
                taken[key] = self._item.take(self._item.zero if item is None else item, live)
            except WrongValue as wrong:
                wrong.path.append(f"[{key[:100]!r}]")
                raise
        return taken if taken or live else OMITTED

    def absent(self, live: bool) -> Any:
        """``OMITTED``: Go drops a map that is nil."""
        return OMITTED


class Free:
    """A value that no rule here reads: copied, without nulls."""

    exact: Any = NEVER

    def take(self, value: Any, live: bool) -> Any:
        """A copy of the value.

        Raises:
            WrongValue: as of `copy_bounded`.
        """
        return copy_bounded(value)

    share = take

    def absent(self, live: bool) -> Any:
        """``OMITTED``: an absent value is dropped."""
        return OMITTED


FREE: Final = Free()
