"""Go's types as JSON sees them: what KubeVirt's structs read of an object, and what they write.

Nearly every part of an object that people write is as KubeVirt would write it. To look at it field by field takes most
of a review, and so does copying it. So a shape says by a type of msgspec's what is left as it is (``exact``), which
checks a whole part in one call. What does not pass is looked at field by field, so that a type may be too narrow, but
never too wide.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partial
from types import GenericAlias
from typing import Annotated, Any, Final, TypeVar, cast

import msgspec
from msgspec import Meta, ValidationError, to_builtins

from webhook.admission.step_budget import StepBudget, spend
from webhook.errors import InputError
from webhook.k8s import quantity

Json = dict[str, Any]

# Where a struct, list or map has no value that is written.
OMITTED: Final = object()
# Instead of a type: no value is left as it is without a closer look. Where such a member is there, the struct around it
# is looked at field by field.
NEVER: Final = object()

MAX_DEPTH: Final = 50
# Longer lists than any VM needs; where KubeVirt's CRDs say `maxItems`, theirs counts.
MAX_ITEMS: Final = 1000
MAX_KEYS: Final = 5000
# Of a whole object: no limit on each of its lists bounds what lists within lists come to. A VM with all the disks,
# volumes, interfaces, networks and data volumes that KubeVirt's CRDs admit, 256 of each, holds half as many.
MAX_VALUES: Final = 25_000

# What uses up a review's work, for the message.
LISTED: Final = "lists and maps, read again for each step of KubeVirt's,"
_NUMBER_STEPS: Final = 20
# msgspec compares with no larger bound.
_MOST_EXACT: Final = 2**63 - 1
# Amounts that are canonical at a glance: too short to be written with a larger suffix.
CANONICAL_QUANTITY: Final = Annotated[str, Meta(pattern=r"^[1-9][0-9]{0,2}([mkMGT]|[KMGT]i)?\Z")]
_KINDS: Final = {dict: "an object", list: "a list", str: "a string", bool: "a boolean"} | dict.fromkeys(
    (int, float), "a number"
)
_NESTED: Final = frozenset({dict, list})


class WrongValue(Exception):  # noqa: N818 - never leaves this package
    """A value of the wrong kind; the path is put together on the way out, so that success costs nothing.

    Args:
        what: what is wrong with it, as a clause without a subject.
    """

    def __init__(self, what: str) -> None:
        super().__init__(what)
        self.what = what
        self.path: list[str] = []


def _kind_of(value: Any) -> str:
    """What JSON calls a value's type, with its article."""
    return _KINDS.get(type(value), "null")


def _check_string(value: Any) -> str:
    if not isinstance(value, str):
        quotes = "; write it in quotes" if isinstance(value, bool | int | float) else ""
        raise WrongValue(f"is {_kind_of(value)}, not a string{quotes}")
    return value


def _check_boolean(value: Any) -> bool:
    if type(value) is not bool:
        raise WrongValue(f"is {_kind_of(value)}, not true or false")
    return value


def _check_integer(least: int, most: int, value: Any) -> int:
    if type(value) is not int:
        raise WrongValue("is not a whole number" if type(value) is float else f"is {_kind_of(value)}, not a number")
    if not least <= value <= most:
        raise WrongValue(f"is not between {least} and {most}")
    return value


def _check_quantity(value: Any) -> str:
    """The value in Kubernetes' canonical form of a quantity."""
    if type(value) is quantity.Computed:
        return str(value)
    try:
        return quantity.canonical(value)
    except InputError as error:
        raise WrongValue(error.what) from None


def check_of(exact: Any) -> Callable[[Any], object] | None:
    """What raises `msgspec.ValidationError` for each value that is not left as it is; None: no value is."""
    if exact is NEVER:
        return None
    if isinstance(exact, type) and issubclass(exact, msgspec.Struct):
        return partial(msgspec.convert, type=exact)
    # Of structs msgspec remembers how they are checked; of other types it finds that out each time.
    holder = msgspec.defstruct("Holder", [("value", exact)], gc=False)
    return lambda value: msgspec.convert({"value": value}, holder)


class Shape(ABC):
    """A Go type as JSON sees it.

    Attributes:
        always: something is written even where there is no value.
        left_out: people leave out what is always written.
    """

    __slots__ = ()
    always: bool = False
    left_out: bool = False

    @property
    @abstractmethod
    def exact(self) -> Any:
        """The type of msgspec's of the values that are written as they stand, or `NEVER`."""

    @abstractmethod
    def take(self, value: Any, live: bool) -> Any:
        """A copy of a value that is not null, or ``OMITTED``.

        Args:
            value: plain JSON.
            live: the value is read, not written.

        Raises:
            WrongValue: the value, or one in it, is of another kind, too large or too deep; the error holds its path.
            TooComplex: the review has no steps left for it.
        """

    def share(self, value: Any, live: bool) -> Any:
        """The same as `take`, which may share with the value whatever is written as it stands."""
        return self.take(value, live)

    def absent(self, live: bool) -> Any:
        """What is written where there is no value, or ``OMITTED``, for Go drops what is nil."""
        return OMITTED


class Scalar(Shape):
    """A string, boolean, number or quantity.

    Args:
        check: the value as it is to be kept; raises `WrongValue`.
        zero: what Go takes for absent; falsy.
        omitted: the zero is not written.
        always: the zero is written even when there is no value.
        kept: the type whose values ``check`` keeps as they are, so that it need not be called.
        exact: the type of the values that are written as they stand; None: ``kept``, but for an omitted zero.
    """

    __slots__ = ("_check", "_omitted", "always", "exact", "kept", "zero")
    exact: Any

    def __init__(
        self,
        check: Callable[[Any], Any],
        zero: Any,
        *,
        omitted: bool = False,
        always: bool = False,
        kept: type | None = None,
        exact: Any = None,
    ) -> None:
        if exact is None:
            exact = kept or NEVER
            if omitted:
                exact = Annotated[str, Meta(min_length=1)] if kept is str else NEVER
        self.exact = exact
        self._check = check
        self.zero: Final = zero
        self._omitted = omitted
        self.always = always
        self.kept: Final = kept

    def take(self, value: Any, live: bool) -> Any:
        """A copy of a value that is not null; ``OMITTED`` for a zero that Go's ``omitempty`` drops."""
        checked = value if type(value) is self.kept else self._check(value)
        return checked if checked or not self._omitted else OMITTED

    def absent(self, live: bool) -> Any:
        """The zero where Go writes it without a value, else ``OMITTED``."""
        return self.zero if self.always else OMITTED


class WholeNumber(Scalar):
    """A whole number between two bounds, both included.

    Args:
        least: the lower bound.
        most: the upper bound.
        omitted: zero is not written.
        always: zero is written even when there is no value.
    """

    __slots__ = ("_least", "_most")

    def __init__(self, least: int, most: int, *, omitted: bool = False, always: bool = False) -> None:
        exact = Annotated[int, Meta(ge=max(least, int(omitted)), le=min(most, _MOST_EXACT))]
        super().__init__(partial(_check_integer, least, most), 0, omitted=omitted, always=always, exact=exact)
        self._least: Final = least
        self._most: Final = most

    def take(self, value: Any, live: bool) -> Any:
        """The number; ``OMITTED`` for a zero that Go's ``omitempty`` drops."""
        if type(value) is int and value and self._least <= value <= self._most:
            return value
        return super().take(value, live)


class Amount(Scalar):
    """A quantity. Read, it stays as it was written, which can decide over its value; written, it is canonical.

    Args:
        always: the zero is written even when there is no value.
        computed: KubeVirt's steps compute it; such a value is always looked at, since it is no plain text yet.
    """

    __slots__ = ()

    def __init__(self, *, always: bool = False, computed: bool = False) -> None:
        super().__init__(_check_quantity, "0", always=always, exact=NEVER if computed else CANONICAL_QUANTITY)

    def take(self, value: Any, live: bool) -> Any:
        """The quantity, as it was written where ``live`` is set, else in its canonical form."""
        # A long one, with a large exponent, takes a hundred microseconds.
        spend(1 + len(value) if isinstance(value, str) else _NUMBER_STEPS, LISTED)
        written = super().take(value, live)
        return quantity.text(value) if live else written


class Recognized(Shape):
    """A type whose values one call of msgspec recognizes, where they are written as they stand."""

    @abstractmethod
    def take(self, value: Any, live: bool, *, shared: bool = False) -> Any:
        """As of `Shape`; if ``shared``, the copy may share with the value what is written as it stands."""

    @cached_property
    def completed(self) -> Sequence[tuple[str, Struct]]:
        """The members that people leave out, and those in which there are such."""
        return ()

    def complete(self, value: Any) -> Any:
        """A value of the type `exact` with what was left out: itself where that is nothing."""
        return value

    @cached_property
    def _check(self) -> Callable[[Any], object] | None:
        return check_of(self.exact)

    def share(self, value: Any, live: bool) -> Any:
        """A value as it is written, as `take` makes it, which shares with the given one whatever stays as it is."""
        if self._check is not None:
            try:
                self._check(value)
            except ValidationError:
                pass
            else:
                return self.complete(value) if self.completed else value
        return self.take(value, live, shared=True)


class Struct(Recognized):
    """An object with known fields; others are dropped.

    Args:
        **fields: the shape of each field by its JSON name.
    """

    def __init__(self, **fields: Shape) -> None:
        self.fields: Final = fields
        # Every object passes here field by field: what can be known of a shape is looked up once.
        kept = {name: shape.kept if isinstance(shape, Scalar) else None for name, shape in fields.items()}
        self._members: Final = {name: (shape.take, kept[name]) for name, shape in fields.items()}
        self._shared: Final = {name: (shape.share, kept[name]) for name, shape in fields.items()}
        self._required: Final = [(name, shape) for name, shape in fields.items() if shape.always]

    @cached_property
    def exact(self) -> Any:
        """The type of the objects that are written as they stand."""
        fields: list[Any] = []
        for name, shape in self.fields.items():
            exact, required = shape.exact, shape.always and not shape.left_out
            if exact is not NEVER:
                fields.append((name, exact) if required else (name, exact | msgspec.UnsetType, msgspec.UNSET))
            elif required:
                return NEVER
        return msgspec.defstruct("Exact", fields, kw_only=True, forbid_unknown_fields=True, gc=False)

    @cached_property
    def completed(self) -> Sequence[tuple[str, Struct]]:
        """The members that people leave out, and those in which there are such."""
        return [
            (name, shape)
            for name, shape in self.fields.items()
            if isinstance(shape, Struct) and (shape.left_out or shape.completed)
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
            elif shape.left_out:
                made[name] = shape.take({}, False)
        return {**value, **made} if made else value

    def take(self, value: Any, live: bool, *, shared: bool = False) -> Json:
        """A copy of an object with the known fields, and with those that Go writes without a value."""
        if type(value) is not dict:
            raise WrongValue(f"is {_kind_of(value)}, not an object")
        members, taken = self._shared if shared else self._members, {}
        for name, item in value.items():
            if item is None or (field := members.get(name)) is None:
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

    def with_fields(self, fields: Mapping[str, Shape]) -> Struct:
        """A struct of the same kind with other fields."""
        return Struct(**fields)


class Value(Struct):
    """A struct that is not a pointer, so that it is always there.

    Args:
        shape: the struct.
        left_out: people leave it out, so that a struct without it is written as it stands but for that.
    """

    always = True

    def __init__(self, shape: Struct, *, left_out: bool = False) -> None:
        super().__init__(**shape.fields)
        self.left_out = left_out

    def absent(self, live: bool) -> Json:
        """The struct as Go writes it without any value."""
        return self.take({}, live)

    def with_fields(self, fields: Mapping[str, Shape]) -> Value:
        """A struct of the same kind with other fields."""
        return Value(Struct(**fields), left_out=self.left_out)


class OrNull(Shape):
    """A pointer, list or time without ``omitempty``: written as null where there is none, and as ``[]`` where empty.

    Args:
        shape: the type of a value that is there.
    """

    always = True

    def __init__(self, shape: Shape) -> None:
        self.shape: Final = shape

    @property
    def exact(self) -> Any:
        """That of the value, or null."""
        exact = self.shape.exact
        return exact if exact is NEVER else exact | None

    def take(self, value: Any, live: bool) -> Any:
        """A copy of the value; an empty list instead of ``OMITTED``."""
        taken = self.shape.take(value, live)
        return [] if taken is OMITTED else taken

    share = take

    def absent(self, live: bool) -> None:
        """None, which is written as null."""
        return None  # noqa: RET501 - a value, not the lack of one


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
        return _collection(list, (self.item.exact if is_complete else NEVER,), self.limit)

    def take(self, value: Any, live: bool, *, shared: bool = False) -> Any:
        """A copy of a list; ``OMITTED`` for an empty one."""
        if type(value) is not list:
            raise WrongValue(f"is {_kind_of(value)}, not a list")
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


class Map(Recognized):
    """An object with free keys. Read, an empty one differs from none; written, it is dropped.

    Args:
        item: the type of the values, which need no copy; a null is its zero.
    """

    def __init__(self, item: Scalar) -> None:
        self.item: Final = item

    @cached_property
    def exact(self) -> Any:
        """The type of the objects that are written as they stand."""
        return _collection(dict, (str, self.item.exact), MAX_KEYS)

    def take(self, value: Any, live: bool, *, shared: bool = False) -> Any:
        """A copy of an object with free keys; ``OMITTED`` for an empty one that is written."""
        if type(value) is not dict:
            raise WrongValue(f"is {_kind_of(value)}, not an object")
        if len(value) > MAX_KEYS:
            raise WrongValue(f"has {len(value)} keys, more than {MAX_KEYS}")
        spend(len(value), LISTED)
        taken = {}
        for key, item in value.items():
            if not isinstance(key, str):
                raise WrongValue("has a key that is not a string")
            try:
                taken[key] = self.item.take(self.item.zero if item is None else item, live)
            except WrongValue as wrong:
                wrong.path.append(f"[{key[:100]!r}]")
                raise
        return taken if taken or live else OMITTED


def _collection(kind: type, arguments: tuple[Any, ...], limit: int) -> Any:
    """The type of the lists or objects that are left as they are, or `NEVER`; what is empty is not written."""
    if NEVER in arguments:
        return NEVER
    return Annotated[cast("Any", GenericAlias(kind, arguments)), Meta(min_length=1, max_length=limit)]


class Free(Shape):
    """A value that no rule here reads: copied, without nulls."""

    exact: Any = NEVER

    def take(self, value: Any, live: bool) -> Any:
        """A copy of the value."""
        return _copy_bounded(value)

    share = take


def _copy_bounded(value: Any, depth: int = MAX_DEPTH) -> Any:
    """A copy, without nulls in objects, of plain JSON of any type that has at most so many levels."""
    if not depth:
        raise WrongValue(f"is nested more than {MAX_DEPTH} levels deep")
    if type(value) in _NESTED and len(value) > MAX_KEYS:
        raise WrongValue(f"has {len(value)} items, more than {MAX_KEYS}")
    if type(value) is dict:
        return {key: _copy_bounded(item, depth - 1) for key, item in value.items() if item is not None}
    return [_copy_bounded(item, depth - 1) for item in value] if type(value) is list else value


class Status(Value):
    """A status: its own fields by their shapes, everything else copied, but for zeros and what is empty."""

    exact: Any = NEVER

    def __init__(self, **fields: Shape) -> None:
        super().__init__(Struct(**fields))

    def with_fields(self, fields: Mapping[str, Shape]) -> Status:
        """A status with other fields of its own."""
        return Status(**fields)

    def share(self, value: Any, live: bool) -> Json:
        """The same as `take`."""
        return self.take(value, live)

    def take(self, value: Any, live: bool, *, shared: bool = False) -> Json:
        """A copy of a status."""
        taken = super().take(value, live, shared=shared)
        if not value:
            return taken
        rest: Json = _copy_bounded({key: item for key, item in value.items() if key not in self.fields})
        return {key: item for key, item in rest.items() if item not in ("", 0, [], {})} | taken


_ShapeT = TypeVar("_ShapeT", bound=Shape | None)
_INT32: Final = (-(2**31), 2**31 - 1)
_INT64: Final = (-(2**63), 2**63 - 1)
_UINT32: Final = (0, 2**32 - 1)
_UINT64: Final = (0, 2**64 - 1)
STRING: Final = Scalar(_check_string, "", omitted=True, kept=str)
STRING_POINTER: Final = Scalar(_check_string, "", kept=str)
STRING_ALWAYS: Final = Scalar(_check_string, "", always=True, kept=str)
BOOL: Final = Scalar(_check_boolean, False, omitted=True, kept=bool)
BOOL_POINTER: Final = Scalar(_check_boolean, False, kept=bool)
BOOL_ALWAYS: Final = Scalar(_check_boolean, False, always=True, kept=bool)
UINT32: Final = WholeNumber(*_UINT32, omitted=True)
UINT32_POINTER: Final = WholeNumber(*_UINT32)
UINT32_ALWAYS: Final = WholeNumber(*_UINT32, always=True)
INT32: Final = WholeNumber(*_INT32, omitted=True)
INT32_POINTER: Final = WholeNumber(*_INT32)
INT32_ALWAYS: Final = WholeNumber(*_INT32, always=True)
INT64: Final = WholeNumber(*_INT64, omitted=True)
INT64_POINTER: Final = WholeNumber(*_INT64)
INT64_ALWAYS: Final = WholeNumber(*_INT64, always=True)
UINT64: Final = WholeNumber(*_UINT64, omitted=True)
UINT64_POINTER: Final = WholeNumber(*_UINT64)
UINT64_ALWAYS: Final = WholeNumber(*_UINT64, always=True)
QUANTITY: Final = Amount()
QUANTITY_ALWAYS: Final = Amount(always=True)
QUANTITY_COMPUTED: Final = Amount(computed=True)
INT_OR_STRING_ALWAYS: Final = Scalar(
    lambda value: value if type(value) is str else _check_integer(*_INT32, value),
    zero=0,
    always=True,
    exact=Annotated[int, Meta(ge=_INT32[0], le=_INT32[1])] | str,
)
EMPTY: Final = Struct()
FREE: Final = Free()


def members(shape: _ShapeT, names: str) -> dict[str, _ShapeT]:
    """Members of one shape by their JSON names, which are written in a row; None: there are no such members."""
    return dict.fromkeys(names.split(), shape)


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
    """A JSON object, or one that `decode` returned, as KubeVirt writes it; an `InputError` for an invalid value."""
    return _take(shape.take, value, where, live=False)


def share(shape: Struct, value: Any, where: str = "") -> Json:
    """What `encode` returns, which shares with the given object whatever stays as it is: neither is to be changed.

    `check_size` bounds what tenants send.

    Raises:
        InputError: a value is of the wrong kind or absurdly large.
    """
    return _take(shape.share, value, where, live=False)


def share_changes(shape: Struct, value: Json, before: Json, where: str = "") -> Json:
    """What `share` returns of an object that was made of one which it returned before, ``before``.

    The object has every member that is always written; a member that is the same object as before was written then.

    Raises:
        InputError: a value is of the wrong kind or absurdly large.
    """
    changed = {name: item for name, item in value.items() if before.get(name) is not item}
    written = _take(partial(shape.take, shared=True), changed, where, live=False)
    return {
        name: written[name] if name in changed else item
        for name, item in value.items()
        if name not in changed or name in written
    }


def _take(take: Callable[[Any, bool], Any], value: Any, where: str, *, live: bool, quoting: bool = True) -> Json:
    try:
        taken: Json = take(value, live)
    except WrongValue as wrong:
        # The key of a `Map` is in quotes, which a field or an index is not.
        path = [part if quoting or not part.startswith(("['", '["')) else "[...]" for part in reversed(wrong.path)]
        raise InputError(wrong.what, f"{where}{''.join(path)}".removeprefix(".")) from None
    return taken


_to_json: Final = msgspec.json.Encoder().encode
# The same in fewer bytes, at least one for each value; it tells a number from its text where that is a key.
_to_msgpack: Final = msgspec.msgpack.Encoder().encode


def is_too_large(value: Any) -> bool:
    """Whether plain JSON has more than `MAX_VALUES` values; counts no further."""
    try:
        if len(_to_msgpack(value)) <= MAX_VALUES:
            return False
        text = _to_json(value)
        # Each value but the first of a list or object follows a comma; texts may hold such characters too.
        if text.count(b",") + text.count(b"[") + text.count(b"{") <= MAX_VALUES:
            return False
    except (TypeError, ValueError, OverflowError, RecursionError):
        # What is no JSON, or is nested too deeply to be written at once, is counted all the same.
        pass
    count, pending = 0, [value]
    while pending and count <= MAX_VALUES:
        item = pending.pop()
        if type(item) in _NESTED:
            count += len(item)
            if count <= MAX_VALUES:
                pending.extend(item.values() if type(item) is dict else item)
    return count > MAX_VALUES


def check_size(value: Any, where: str = "") -> None:
    """Make sure that plain JSON is not too large to be looked at; an `InputError` where it is."""
    if is_too_large(value):
        raise InputError(f"holds more than {MAX_VALUES} values", where)


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


def replace_fields(shape: Struct, changes: Mapping[str, Shape | None]) -> Struct:
    """A shape with some fields replaced or removed; the given one stays as it is.

    The changes are the new shape by the field's path, with dots and through lists; None removes the field. A path that
    leads nowhere changes nothing, nor does one below a field that is replaced or removed.
    """
    tree: Json = {}
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


def _replace_field(shape: Shape, tree: Json) -> Shape:
    """A shape after changes: by field, its new shape, None, or the changes below it."""
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
    return shape.with_fields(fields)


def is_known(shape: Shape, value: Any) -> bool:
    """Whether all members of a JSON value are fields of a shape, as strict decoding demands."""
    if isinstance(shape, OrNull):
        return is_known(shape.shape, value)
    if isinstance(shape, List) and isinstance(value, list):
        return all(is_known(shape.item, item) for item in value)
    if isinstance(shape, Struct) and isinstance(value, dict):
        return all(name in shape.fields and is_known(shape.fields[name], item) for name, item in value.items())
    return True


# Larger ones are rare, and decoded each time: tenants write instancetypes too, and all that is kept stays below 10 MB.
MAX_BYTES: Final = 4 * 1024
MAX_OBJECTS: Final = 128
_kept: Final[dict[tuple[Struct, bytes], Json]] = {}


def decode_remembered(shape: Struct, value: Any, where: str) -> Json:
    """What `decode` returns, shared by all who read an object of the same content, so that it must not be changed.

    Messages show no keys that people chose: the object was read on behalf of someone who may not be allowed to read it.

    Raises:
        InputError: a value is of the wrong kind or absurdly large.
    """
    try:
        content = _to_msgpack(value)
    except (TypeError, ValueError, OverflowError, RecursionError):
        content = None
    if content is None or len(content) > MAX_BYTES:
        return decode(shape, value, where, quoting=False)
    key = shape, content
    cached = _kept.get(key)
    if cached is None:
        # On a budget of its own: what a review may take must not depend on what others have read before it.
        cached = StepBudget().run(decode, shape, value, where, quoting=False)
        if len(_kept) >= MAX_OBJECTS:
            del _kept[next(iter(_kept))]
        _kept[key] = cached
    return cached
