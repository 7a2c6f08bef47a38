"""How Go's structs see JSON: what they read, what they drop, and what they write.

KubeVirt reads every object into structs and writes it again. That drops unknown fields, nulls and empty optional
values, makes quantities canonical, and lets structs that are no pointers appear as ``{}``. A shape describes a type as
far as this goes; `decode` and `encode` are the two ways of passing through it. Both return copies.

A scalar is one of three: plain (``omitempty``: its zero is as good as absent), a pointer (zero and absent differ) or
always (no ``omitempty``: written even when it was absent).
"""

from __future__ import annotations

from typing import Any, Final, Protocol

from webhook.errors import InputError
from webhook.kubevirt.go_json.limits import MAX_ITEMS, MAX_KEYS, MAX_VALUES, copy_bounded, is_too_large
from webhook.kubevirt.go_json.scalar import LISTED, OMITTED, Amount, Scalar, WholeNumber
from webhook.kubevirt.go_json.scalars import (
    WrongValue,
    check_boolean,
    check_int_or_string,
    check_quantity,
    check_string,
    kind_of,
)
from webhook.work import spend

Json = dict[str, Any]

_NESTED: Final = frozenset({dict, list})


class Shape(Protocol):
    """A Go type as JSON sees it."""

    def take(self, value: Any, live: bool) -> Any:
        """A copy of a value that is not null, or ``OMITTED``."""

    def absent(self, live: bool) -> Any:
        """What is written where there is no value, or ``OMITTED``."""


class Struct:
    """An object with known fields; others are dropped.

    Args:
        **fields: the shape of each field by its JSON name.
    """

    def __init__(self, **fields: Shape) -> None:
        self.fields: Final = fields
        # Every object passes here field by field: what can be known of a shape is looked up once.
        self._known: Final = {
            name: (
                shape.shape.take if isinstance(shape, Value) else shape.take,
                shape.kept if isinstance(shape, Scalar) else None,
            )
            for name, shape in fields.items()
        }
        self._required: Final = [(name, shape) for name, shape in fields.items() if is_required(shape)]

    def take(self, value: Any, live: bool) -> Json:
        """A copy of an object with the known fields, and with those that Go writes without a value.

        Raises:
            WrongValue: the value, or one in it, is of another kind; the error holds its path.
            TooComplex: the review has no steps left for it.
        """
        if type(value) is not dict:
            raise WrongValue(f"is {kind_of(value)}, not an object")
        known, taken = self._known, {}
        for name, item in value.items():
            if item is None or (field := known.get(name)) is None:
                continue
            take, kept = field
            if type(item) is kept and item:
                taken[name] = item
                continue
            try:
                result = take(item, live)
            except WrongValue as wrong:
                wrong.path.append(f".{name}")
                raise
            if result is not OMITTED:
                taken[name] = result
        for name, shape in self._required:
            if name not in taken and (zero := shape.absent(live)) is not OMITTED:
                taken[name] = zero
        return taken

    def absent(self, live: bool) -> Any:
        """``OMITTED``: a pointer to a struct is dropped where it is nil."""
        return OMITTED


class Value:
    """A struct that is not a pointer, so that it is always there.

    Args:
        shape: the struct.
    """

    def __init__(self, shape: Struct) -> None:
        self.shape: Final = shape

    def take(self, value: Any, live: bool) -> Json:
        """A copy of the struct, as `Struct.take` makes it.

        Raises:
            WrongValue: the value, or one in it, is of another kind.
            TooComplex: the review has no steps left for it.
        """
        return self.shape.take(value, live)

    def absent(self, live: bool) -> Json:
        """The struct as Go writes it without any value."""
        return self.shape.take({}, live)


class OrNull:
    """A pointer, list or time without ``omitempty``: written as null where there is none, and as ``[]`` where empty.

    Args:
        shape: the type of a value that is there.
    """

    def __init__(self, shape: Shape) -> None:
        self.shape: Final = shape

    def take(self, value: Any, live: bool) -> Any:
        """A copy of the value; an empty list instead of ``OMITTED``.

        Raises:
            WrongValue: the value, or one in it, is of another kind.
            TooComplex: the review has no steps left for it.
        """
        taken = self.shape.take(value, live)
        return [] if taken is OMITTED else taken

    def absent(self, live: bool) -> None:
        """None, which is written as null."""
        return None  # noqa: RET501 - a value, not the lack of one


def is_required(shape: Shape) -> bool:
    """Whether something is written even where there is no value."""
    return shape.always if isinstance(shape, Scalar) else isinstance(shape, Value | OrNull)


class List:
    """A list; an empty one equals an absent one.

    Args:
        item: the type of the items; a null among structs is an empty struct.
        limit: the number of items that a list may have.
    """

    def __init__(self, item: Shape, limit: int = MAX_ITEMS) -> None:
        self.item: Final = item
        self.limit: Final = limit

    def take(self, value: Any, live: bool) -> Any:
        """A copy of a list; ``OMITTED`` for an empty one.

        Raises:
            WrongValue: the value is not a list or has too many items, or an item is of another kind.
            TooComplex: the review has no steps left for it.
        """
        if type(value) is not list:
            raise WrongValue(f"is {kind_of(value)}, not a list")
        if len(value) > self.limit:
            raise WrongValue(f"has {len(value)} items, more than {self.limit}")
        spend(len(value), LISTED)
        taken = []
        for index, item in enumerate(value):
            try:
                taken.append(self.item.take({} if item is None and isinstance(self.item, Struct) else item, live))
            except WrongValue as wrong:
                wrong.path.append(f"[{index}]")
                raise
        return taken or OMITTED

    def absent(self, live: bool) -> Any:
        """``OMITTED``: Go drops a list that is nil."""
        return OMITTED


class Map:
    """An object with free keys. Read, an empty one differs from none; written, it is dropped.

    Args:
        item: the type of the values; a null is its zero.
    """

    def __init__(self, item: Scalar) -> None:
        self._item = item

    def take(self, value: Any, live: bool) -> Any:
        """A copy of an object with free keys.

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
                raise WrongValue("has a key that is no string")
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

    def take(self, value: Any, live: bool) -> Any:
        """A copy of the value.

        Raises:
            WrongValue: as of `copy_bounded`.
        """
        return copy_bounded(value)

    def absent(self, live: bool) -> Any:
        """``OMITTED``: an absent value is dropped."""
        return OMITTED


STRING: Final = Scalar(check_string, "", omitted=True, kept=str)
STRING_POINTER: Final = Scalar(check_string, "", kept=str)
STRING_ALWAYS: Final = Scalar(check_string, "", always=True, kept=str)
BOOL: Final = Scalar(check_boolean, False, omitted=True, kept=bool)
BOOL_POINTER: Final = Scalar(check_boolean, False, kept=bool)
BOOL_ALWAYS: Final = Scalar(check_boolean, False, always=True, kept=bool)
_uint32, _int32 = (0, 2**32 - 1), (-(2**31), 2**31 - 1)
_uint64, _int64 = (0, 2**64 - 1), (-(2**63), 2**63 - 1)
UINT32: Final = WholeNumber(*_uint32, omitted=True)
UINT32_POINTER: Final = WholeNumber(*_uint32)
UINT32_ALWAYS: Final = WholeNumber(*_uint32, always=True)
INT32: Final = WholeNumber(*_int32, omitted=True)
INT32_POINTER: Final = WholeNumber(*_int32)
INT32_ALWAYS: Final = WholeNumber(*_int32, always=True)
INT64: Final = WholeNumber(*_int64, omitted=True)
INT64_POINTER: Final = WholeNumber(*_int64)
INT64_ALWAYS: Final = WholeNumber(*_int64, always=True)
UINT64: Final = WholeNumber(*_uint64, omitted=True)
UINT64_POINTER: Final = WholeNumber(*_uint64)
UINT64_ALWAYS: Final = WholeNumber(*_uint64, always=True)
QUANTITY: Final = Amount(check_quantity, "0")
QUANTITY_ALWAYS: Final = Amount(check_quantity, "0", always=True)
INT_OR_STRING_ALWAYS: Final = Scalar(check_int_or_string, 0, always=True)
FREE: Final = Free()
EMPTY: Final = Struct()


def decode(shape: Struct, value: Any, where: str = "", *, quoting: bool = True) -> Json:
    """A JSON object as KubeVirt reads it.

    Args:
        shape: the object's type.
        value: plain JSON.
        where: the object's place, for messages; empty: messages begin with the path in the object.
        quoting: messages may show keys that people chose; False for objects that were read on behalf of someone who may
            not be allowed to read them.

    Raises:
        InputError: a value is of the wrong kind or absurdly large.
    """
    if is_too_large(value):
        raise InputError(f"holds more than {MAX_VALUES} values", where)
    return _through(shape, value, where, live=True, quoting=quoting)


def encode(shape: Struct, value: Any, where: str = "") -> Json:
    """A JSON object as KubeVirt writes it.

    Args:
        shape: the object's type.
        value: an object that `decode` returned, or plain JSON.
        where: the object's place, for messages.

    Raises:
        InputError: a value is of the wrong kind or absurdly large.
    """
    return _through(shape, value, where, live=False)


def _through(shape: Struct, value: Any, where: str, *, live: bool, quoting: bool = True) -> Json:
    try:
        return shape.take(value, live)
    except WrongValue as wrong:
        path = "".join(part if quoting or not _is_key(part) else "[...]" for part in reversed(wrong.path))
        raise InputError(wrong.what, f"{where}{path}".removeprefix(".")) from None


def _is_key(part: str) -> bool:
    """Whether a part of a path is the key of a `Map`, in quotes, and not a field or an index."""
    return part.startswith(("['", '["'))


def copy_json(value: Any) -> Any:
    """A copy of JSON that has passed a shape, which bounds its depth, or is as shallow."""
    # Most members are scalars: no call for those.
    if type(value) is dict:
        return {key: copy_json(item) if type(item) in _NESTED else item for key, item in value.items()}
    if type(value) is list:
        return [copy_json(item) if type(item) in _NESTED else item for item in value]
    return value
