"""Strings, booleans, numbers and quantities, as Go's structs read and write them, and how large an object may be.

Nearly every part of an object that people write is as KubeVirt would write it. To look at it field by field takes most
of a review, and so does copying it. So a shape says by a type of msgspec's what is left as it is (``exact``), which
checks a whole part in one call. What does not pass is looked at field by field, so that a type may be too narrow, but
never too wide.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from types import GenericAlias
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta

from webhook.admission.step_budget import spend
from webhook.errors import InputError
from webhook.k8s import quantity


class WrongValue(Exception):  # noqa: N818 - never leaves this package
    """A value of the wrong kind; the path is put together on the way out, so that success costs nothing.

    Args:
        what: what is wrong with it, as a clause without a subject.
    """

    def __init__(self, what: str) -> None:
        super().__init__(what)
        self.what = what
        self.path: list[str] = []


def kind_of(value: Any) -> str:
    """What JSON calls a value's type, with its article."""
    kinds = {dict: "an object", list: "a list", str: "a string", bool: "a boolean", int: "a number", float: "a number"}
    return kinds.get(type(value), "null")


def check_string(value: Any) -> str:
    """The value, which must be a string."""
    if not isinstance(value, str):
        raise WrongValue(f"is {kind_of(value)}, not a string")
    return value


def check_boolean(value: Any) -> bool:
    """The value, which must be true or false."""
    if type(value) is not bool:
        raise WrongValue(f"is {kind_of(value)}, not true or false")
    return value


def integer_check(least: int, most: int) -> Callable[[Any], int]:
    """A check for whole numbers between two bounds, both included.

    Args:
        least: the lower bound.
        most: the upper bound.
    """

    def check(value: Any) -> int:
        if type(value) is not int:
            raise WrongValue("is not a whole number" if type(value) is float else f"is {kind_of(value)}, not a number")
        if not least <= value <= most:
            raise WrongValue(f"is not between {least} and {most}")
        return value

    return check


def check_quantity(value: Any) -> str:
    """The value in Kubernetes' canonical form of a quantity."""
    if type(value) is quantity.Computed:
        return str(value)
    try:
        return quantity.canonical(value)
    except InputError as error:
        raise WrongValue(error.what) from None


def check_int_or_string(value: Any) -> int | str:
    """The value, which must be a string or an int32."""
    return value if type(value) is str else integer_check(-(2**31), 2**31 - 1)(value)


# Instead of a type: no value is left as it is without a closer look. Where such a member is there, the struct around it
# is looked at field by field.
NEVER: Final = object()

# Amounts that are canonical at a glance: too short to be written with a larger suffix.
QUANTITY: Final = Annotated[str, msgspec.Meta(pattern=r"^[1-9][0-9]{0,2}([mkMGT]|[KMGT]i)?\Z")]

Check = Callable[[Any], object]


def struct_type(members: Mapping[str, tuple[Any, bool]]) -> Any:
    """The type of the objects with these members, each left as it is, and no other; or `NEVER`.

    Args:
        members: by name the type of the values that are left as they are, and whether there has to be one.
    """
    fields: list[Any] = []
    for name, (exact, required) in members.items():
        if exact is not NEVER:
            fields.append((name, exact) if required else (name, exact | msgspec.UnsetType, msgspec.UNSET))
        elif required:
            return NEVER
    return msgspec.defstruct("Exact", fields, kw_only=True, forbid_unknown_fields=True, gc=False)


def list_type(item: Any, limit: int) -> Any:
    """The type of the lists of such items that are left as they are, or `NEVER`.

    Args:
        item: the type of the items that are left as they are.
        limit: the number of items that a list may have.
    """
    return _bounded(GenericAlias(list, (item,)), limit) if item is not NEVER else item


def map_type(item: Any, limit: int) -> Any:
    """The type of the objects with free keys and such values that are left as they are, or `NEVER`.

    Args:
        item: the type of the values that are left as they are.
        limit: the number of keys that an object may have.
    """
    return _bounded(GenericAlias(dict, (str, item)), limit) if item is not NEVER else item


def _bounded(alias: Any, limit: int) -> Any:
    # What is empty is not written.
    return Annotated[alias, msgspec.Meta(min_length=1, max_length=limit)]


def check_of(exact: Any) -> Check | None:
    """What raises `msgspec.ValidationError` for each value that is not left as it is; None: no value is."""
    if exact is NEVER:
        return None
    if isinstance(exact, type) and issubclass(exact, msgspec.Struct):
        return partial(msgspec.convert, type=exact)
    # Of structs msgspec remembers how they are checked; of other types it finds that out each time.
    holder = msgspec.defstruct("Holder", [("value", exact)], gc=False)
    return lambda value: msgspec.convert({"value": value}, holder)


MAX_DEPTH: Final = 50
# Longer lists than any VM needs; where KubeVirt's CRDs say `maxItems`, theirs counts.
MAX_ITEMS: Final = 1000
MAX_KEYS: Final = 5000
# Of a whole object: no limit on each of its lists bounds what lists within lists come to. A VM with all the disks,
# volumes, interfaces, networks and data volumes that KubeVirt's CRDs admit, 256 of each, holds half as many.
MAX_VALUES: Final = 25_000


def copy_bounded(value: Any, depth: int = MAX_DEPTH) -> Any:
    """A copy without nulls in objects.

    Args:
        value: plain JSON of any type.
        depth: levels that it may have.

    Raises:
        WrongValue: it has more levels, or a list or object with more than `MAX_KEYS` items.
    """
    if not depth:
        raise WrongValue(f"is nested more than {MAX_DEPTH} levels deep")
    if type(value) in (dict, list) and len(value) > MAX_KEYS:
        raise WrongValue(f"has {len(value)} items, more than {MAX_KEYS}")
    if type(value) is dict:
        return {key: copy_bounded(item, depth - 1) for key, item in value.items() if item is not None}
    return [copy_bounded(item, depth - 1) for item in value] if type(value) is list else value


_encode: Final = msgspec.json.Encoder().encode
# The same in fewer bytes, and at least one for each value.
_pack: Final = msgspec.msgpack.Encoder().encode


def is_too_large(value: Any) -> bool:
    """Whether plain JSON has more than `MAX_VALUES` values; counts no further."""
    try:
        if len(_pack(value)) <= MAX_VALUES:
            return False
        text = _encode(value)
        # Each value but the first of a list or object follows a comma; texts may hold such characters too.
        if text.count(b",") + text.count(b"[") + text.count(b"{") <= MAX_VALUES:
            return False
    except (TypeError, ValueError, OverflowError, RecursionError):
        # What is no JSON, or is nested too deeply to be written at once, is counted all the same.
        pass
    count, pending = 0, [value]
    while pending and count <= MAX_VALUES:
        item = pending.pop()
        if type(item) is dict or type(item) is list:
            count += len(item)
            if count <= MAX_VALUES:
                pending.extend(item.values() if type(item) is dict else item)
    return count > MAX_VALUES


OMITTED: Final = object()
# What uses up a review's work, for the message.
LISTED: Final = "lists and maps, read again for each step of KubeVirt's,"
_NUMBER_STEPS: Final = 20
# msgspec compares with no larger bound.
_MOST_EXACT: Final = 2**63 - 1


def _exact(kept: type | None, *, omitted: bool) -> Any:
    """The type of the values of a Python type that are written as they stand."""
    if not omitted:
        return kept or NEVER
    return Annotated[str, Meta(min_length=1)] if kept is str else NEVER


class Scalar:
    """A string, boolean, number or quantity.

    Args:
        check: the value as it is to be kept; raises `WrongValue`.
        zero: what Go takes for absent; falsy.
        omitted: the zero is not written.
        always: the zero is written even when there is no value.
        kept: the type whose values `check` keeps as they are, so that it need not be called.
        exact: the type of the values that are written as they stand; None: ``kept``, but for an omitted zero.

    Attributes:
        exact: that type, for `webhook.kubevirt.go_json.scalars`.
    """

    __slots__ = ("_check", "_omitted", "always", "exact", "kept", "zero")

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
        self.exact: Final = exact or _exact(kept, omitted=omitted)
        self._check = check
        self.zero: Final = zero
        self._omitted = omitted
        self.always: Final = always
        self.kept: Final = kept

    def take(self, value: Any, live: bool) -> Any:
        """A copy of a value that is not null; ``OMITTED`` for a zero that Go's ``omitempty`` drops.

        Raises:
            WrongValue: the value is of another kind.
        """
        checked = value if type(value) is self.kept else self._check(value)
        return checked if checked or not self._omitted else OMITTED

    def share(self, value: Any, live: bool) -> Any:
        """The same as `take`: a scalar has no parts."""
        return self.take(value, live)

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
        bounds = Meta(ge=max(least, int(omitted)), le=min(most, _MOST_EXACT))
        super().__init__(integer_check(least, most), 0, omitted=omitted, always=always, exact=Annotated[int, bounds])
        self._least: Final = least
        self._most: Final = most

    def take(self, value: Any, live: bool) -> Any:
        """The number; ``OMITTED`` for a zero that Go's ``omitempty`` drops.

        Raises:
            WrongValue: the value is another one.
        """
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
        super().__init__(check_quantity, "0", always=always, exact=NEVER if computed else QUANTITY)

    def take(self, value: Any, live: bool) -> Any:
        """The quantity, as it was written where ``live`` is set, else in its canonical form.

        Raises:
            WrongValue: the value is not a quantity.
            TooComplex: the review has no steps left for it.
        """
        # A long one, with a large exponent, takes a hundred microseconds.
        spend(1 + len(value) if isinstance(value, str) else _NUMBER_STEPS, LISTED)
        written = super().take(value, live)
        return quantity.text(value) if live else written
