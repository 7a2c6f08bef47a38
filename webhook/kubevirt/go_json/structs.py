"""Types whose values one call of msgspec recognizes, where KubeVirt would write them as they stand."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Annotated, Any, Final, Protocol, cast

import msgspec
from msgspec import Meta, ValidationError, to_builtins

from webhook.admission.step_budget import StepBudget, spend
from webhook.errors import InputError
from webhook.kubevirt.go_json.scalars import (
    LISTED,
    MAX_ITEMS,
    MAX_KEYS,
    MAX_VALUES,
    NEVER,
    OMITTED,
    Amount,
    Check,
    Scalar,
    WholeNumber,
    WrongValue,
    check_boolean,
    check_int_or_string,
    check_of,
    check_string,
    copy_bounded,
    is_too_large,
    kind_of,
    list_type,
    map_type,
    struct_type,
)


class Recognized(ABC):
    """A type whose values one call of msgspec recognizes, where they are written as they stand."""

    @property
    @abstractmethod
    def exact(self) -> Any:
        """The type of the values that are written as they stand (`webhook.kubevirt.go_json.scalars`)."""

    @abstractmethod
    def take(self, value: Any, live: bool, *, shared: bool = False) -> Any:
        """A copy of a value that is not null, or ``OMITTED``; if ``shared``, with parts of the value itself."""

    @cached_property
    def completed(self) -> Sequence[tuple[str, Any]]:
        """The members that people leave out, and those in which there are such."""
        return ()

    def complete(self, value: Any) -> Any:
        """A value of the type `exact` with what was left out."""
        return value

    @cached_property
    def _check(self) -> Check | None:
        return check_of(self.exact)

    def share(self, value: Any, live: bool) -> Any:
        """A value as it is written, as `take` makes it, which shares with the given one whatever stays as it is.

        Raises:
            WrongValue: as of `take`.
            TooComplex: as of `take`.
        """
        if self._check is not None:
            try:
                self._check(value)
            except ValidationError:
                pass
            else:
                return self.complete(value) if self.completed else value
        return self.take(value, live, shared=True)


Json = dict[str, Any]

_NESTED: Final = frozenset({dict, list})


_Take = Callable[[Any, bool], Any]


class Shape(Protocol):
    """A Go type as JSON sees it."""

    @property
    def exact(self) -> Any:
        """The type of the values that are written as they stand (`webhook.kubevirt.go_json.scalars`)."""

    def take(self, value: Any, live: bool) -> Any:
        """A copy of a value that is not null, or ``OMITTED``."""

    def share(self, value: Any, live: bool) -> Any:
        """The same as `take`, which shares with the value whatever is written as it stands."""

    def absent(self, live: bool) -> Any:
        """What is written where there is no value, or ``OMITTED``."""


class Struct(Recognized):
    """An object with known fields; others are dropped.

    Args:
        **fields: the shape of each field by its JSON name.
    """

    def __init__(self, **fields: Shape) -> None:
        self.fields: Final = fields
        # Every object passes here field by field: what can be known of a shape is looked up once.
        inner = {name: shape.shape if isinstance(shape, Value) else shape for name, shape in fields.items()}
        kept = {name: shape.kept if isinstance(shape, Scalar) else None for name, shape in fields.items()}
        self._known: Final = {name: (shape.take, kept[name]) for name, shape in inner.items()}
        self._shared: Final = {name: (shape.share, kept[name]) for name, shape in inner.items()}
        self._required: Final = [(name, shape) for name, shape in fields.items() if is_required(shape)]

    @cached_property
    def exact(self) -> Any:
        """The type of the objects that are written as they stand."""
        return struct_type(
            {name: (shape.exact, is_required(shape) and not is_left_out(shape)) for name, shape in self.fields.items()}
        )

    def share_changes(self, value: Json, before: Json) -> Json:
        """What `share` returns of an object that was made of one which it returned before.

        Args:
            value: the object, with every member that is always written.
            before: what it was made of; a member that is the same object was written then.

        Raises:
            WrongValue: as of `take`.
            TooComplex: as of `take`.
        """
        changed = {name: item for name, item in value.items() if before.get(name) is not item}
        written = self.take(changed, False, shared=True)
        return {
            name: written[name] if name in changed else item
            for name, item in value.items()
            if name not in changed or name in written
        }

    @cached_property
    def completed(self) -> Sequence[tuple[str, Struct]]:
        """The members that people leave out, and those in which there are such."""
        inner = ((name, shape.shape if isinstance(shape, Value) else shape) for name, shape in self.fields.items())
        return [
            (name, shape)
            for name, shape in inner
            if isinstance(shape, Struct) and (is_left_out(self.fields[name]) or shape.completed)
        ]

    def complete(self, value: Json) -> Json:
        """An object of the type `exact` with what was left out: itself where that is nothing."""
        made = {}
        for name, shape in self.completed:
            item = value.get(name)
            if item is not None:
                whole = shape.complete(item)
                if whole is not item:
                    made[name] = whole
            elif is_left_out(self.fields[name]):
                made[name] = shape.take({}, False)
        return {**value, **made} if made else value

    def take(self, value: Any, live: bool, *, shared: bool = False) -> Json:
        """A copy of an object with the known fields, and with those that Go writes without a value.

        Args:
            value: plain JSON.
            live: the object is read, not written.
            shared: its members may share with the object what is written as it stands.

        Raises:
            WrongValue: the value, or one in it, is of another kind; the error holds its path.
            TooComplex: the review has no steps left for it.
        """
        if type(value) is not dict:
            raise WrongValue(f"is {kind_of(value)}, not an object")
        known, taken = self._shared if shared else self._known, {}
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
        left_out: people leave it out, so that a struct without it is written as it stands but for that.
    """

    def __init__(self, shape: Struct, *, left_out: bool = False) -> None:
        self.shape: Final = shape
        self.left_out: Final = left_out

    @property
    def exact(self) -> Any:
        """That of the struct."""
        return self.shape.exact

    def take(self, value: Any, live: bool) -> Json:
        """A copy of the struct, as `Struct.take` makes it.

        Raises:
            WrongValue: the value, or one in it, is of another kind.
            TooComplex: the review has no steps left for it.
        """
        return self.shape.take(value, live)

    def share(self, value: Any, live: bool) -> Json:
        """The struct, as `Struct.share` makes it."""
        written: Json = self.shape.share(value, live)
        return written

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

    @property
    def exact(self) -> Any:
        """That of the value, or null."""
        exact = self.shape.exact
        return exact if exact is NEVER else exact | None

    def take(self, value: Any, live: bool) -> Any:
        """A copy of the value; an empty list instead of ``OMITTED``.

        Raises:
            WrongValue: the value, or one in it, is of another kind.
            TooComplex: the review has no steps left for it.
        """
        taken = self.shape.take(value, live)
        return [] if taken is OMITTED else taken

    share = take

    def absent(self, live: bool) -> None:
        """None, which is written as null."""
        return None  # noqa: RET501 - a value, not the lack of one


def is_left_out(shape: Shape) -> bool:
    """Whether people leave out what is always written."""
    return isinstance(shape, Value) and shape.left_out


def is_required(shape: Shape) -> bool:
    """Whether something is written even where there is no value."""
    return shape.always if isinstance(shape, Scalar) else isinstance(shape, Value | OrNull)


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
QUANTITY: Final = Amount()
QUANTITY_ALWAYS: Final = Amount(always=True)
QUANTITY_COMPUTED: Final = Amount(computed=True)
INT_OR_STRING_ALWAYS: Final = Scalar(
    check_int_or_string, 0, always=True, exact=Annotated[int, Meta(ge=_int32[0], le=_int32[1])] | str
)
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
    check_size(value, where)
    return _take(shape.take, value, where, live=True, quoting=quoting)


def encode(shape: Struct, value: Any, where: str = "") -> Json:
    """A JSON object as KubeVirt writes it.

    Args:
        shape: the object's type.
        value: an object that `decode` returned, or plain JSON.
        where: the object's place, for messages.

    Raises:
        InputError: a value is of the wrong kind or absurdly large.
    """
    return _take(shape.take, value, where, live=False)


def share(shape: Struct, value: Any, where: str = "") -> Json:
    """What `encode` returns, which shares with the given object whatever stays as it is: neither is to be changed.

    Args:
        shape: the object's type.
        value: plain JSON; `check_size` bounds what tenants send.
        where: the object's place, for messages.

    Raises:
        InputError: a value is of the wrong kind or absurdly large.
    """
    return _take(shape.share, value, where, live=False)


def share_changes(shape: Struct, value: Json, before: Json, where: str = "") -> Json:
    """What `share` returns of an object that was made of one which it returned before.

    Args:
        shape: the object's type.
        value: the object, with every member that is always written.
        before: what it was made of; a member that is the same object was written then.
        where: the object's place, for messages.

    Raises:
        InputError: a value is of the wrong kind or absurdly large.
    """
    return _take(lambda changed, _: shape.share_changes(changed, before), value, where, live=False)


def check_size(value: Any, where: str = "") -> None:
    """Make sure that an object is not too large to be looked at.

    Args:
        value: plain JSON.
        where: the object's place, for messages.

    Raises:
        InputError: it is.
    """
    if is_too_large(value):
        raise InputError(f"holds more than {MAX_VALUES} values", where)


def _take(take: _Take, value: Any, where: str, *, live: bool, quoting: bool = True) -> Json:
    try:
        taken: Json = take(value, live)
    except WrongValue as wrong:
        path = "".join(part if quoting or not _is_key(part) else "[...]" for part in reversed(wrong.path))
        raise InputError(wrong.what, f"{where}{path}".removeprefix(".")) from None
    return taken


def _is_key(part: str) -> bool:
    """Whether a part of a path is the key of a `Map`, in quotes, and not a field or an index."""
    return part.startswith(("['", '["'))


def copy_written(value: Any) -> Any:
    """A copy of a part of what `share` returned: as `copy_json` makes it, and faster."""
    try:
        return to_builtins(value)
    except TypeError:
        # It knows no subclasses of JSON's types.
        return copy_json(value)


def copy_json(value: Any) -> Any:
    """A copy of JSON that has passed a shape, which bounds its depth, or is as shallow."""
    # Most members are scalars: no call for those.
    if type(value) is dict:
        return {key: copy_json(item) if type(item) in _NESTED else item for key, item in value.items()}
    if type(value) is list:
        return [copy_json(item) if type(item) in _NESTED else item for item in value]
    return value


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


# By field, what becomes of it or of fields below it: None removes it.
_Tree = dict[str, Any]


def replace_fields(shape: Struct, changes: Mapping[str, Shape | None]) -> Struct:
    """A shape with some fields replaced or removed; the given one stays as it is.

    Args:
        shape: the shape to start from.
        changes: the new shape by the field's path, with dots and through lists; None removes the field. A path that
            leads nowhere changes nothing, nor does one below a field that is replaced or removed.
    """
    tree: _Tree = {}
    for path in sorted(changes):  # a field before those below it
        *parents, name = path.split(".")
        below = tree
        for parent in parents:
            below = below.setdefault(parent, {})
            if not isinstance(below, dict):
                break
        else:
            below[name] = changes[path]
    return cast("Struct", _replace_field(shape, tree)) if tree else shape


def _replace_field(shape: Shape, tree: _Tree) -> Shape:
    if isinstance(shape, Value):
        return Value(cast("Struct", _replace_field(shape.shape, tree)), left_out=shape.left_out)
    if isinstance(shape, OrNull):
        return OrNull(_replace_field(shape.shape, tree))
    if isinstance(shape, List):
        return List(_replace_field(shape.item, tree), shape.limit)
    if not isinstance(shape, Struct):
        return shape
    fields: dict[str, Shape] = {}
    for name, field in shape.fields.items():
        change = tree.get(name, field)
        if isinstance(change, dict):
            fields[name] = _replace_field(field, change)
        elif change is not None:
            fields[name] = change
    return type(shape)(**fields)


def is_known(shape: Shape, value: Any) -> bool:
    """Whether all members of a JSON value are fields of a shape, as strict decoding demands."""
    if isinstance(shape, Value | OrNull):
        return is_known(shape.shape, value)
    if isinstance(shape, List) and isinstance(value, list):
        return all(is_known(shape.item, item) for item in value)
    if isinstance(shape, Struct) and isinstance(value, dict):
        return all(name in shape.fields and is_known(shape.fields[name], item) for name, item in value.items())
    return True


# Larger ones are rare, and decoded each time: tenants write instancetypes too, and all that is kept stays below 10 MB.
MAX_BYTES: Final = 4 * 1024
MAX_OBJECTS: Final = 128

# MessagePack, and not JSON, tells a number from its text where it is a key.
_encode: Final = msgspec.msgpack.Encoder().encode
_kept: Final[dict[tuple[Struct, bytes], Json]] = {}


def decode_remembered(shape: Struct, value: Any, where: str) -> Json:
    """What `decode` returns, shared by all who read an object of the same content, so that it must not be changed.

    Messages show no keys that people chose: the object was read on behalf of someone who may not be allowed to read it.

    Args:
        shape: the object's type.
        value: plain JSON.
        where: the object's place, for messages.

    Raises:
        InputError: a value is of the wrong kind or absurdly large.
    """
    try:
        content = _encode(value)
    except (TypeError, ValueError, OverflowError, RecursionError):
        return decode(shape, value, where, quoting=False)
    if len(content) > MAX_BYTES:
        return decode(shape, value, where, quoting=False)
    key = shape, content
    known = _kept.get(key)
    if known is None:
        # On a budget of its own: what a review may take must not depend on what others have read before it.
        known = StepBudget().run(decode, shape, value, where, quoting=False)
        if len(_kept) >= MAX_OBJECTS:
            del _kept[next(iter(_kept))]
        _kept[key] = known
    return known
