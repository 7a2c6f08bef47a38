"""What KubeVirt writes just as it stands, recognized at once.

Nearly every part of an object that people write is so already. To look at it field by field takes most of a review, and
so does copying it. A shape says by a type of msgspec's what is left as it is, which checks a whole part in one call.
What does not pass is looked at field by field as ever, so that a type may be too narrow, but never too wide.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from types import GenericAlias
from typing import Annotated, Any, Final

import msgspec

# Instead of a type: no value is left as it is without a closer look. Where such a member is there, the struct around it
# is looked at field by field.
NEVER: Final = object()
# The same, for what people leave out and KubeVirt writes. Structs around it are always looked at field by field.
LEFT_OUT: Final = object()

# Amounts that are canonical at a glance: too short to be written with a larger suffix.
QUANTITY: Final = Annotated[str, msgspec.Meta(pattern=r"^[1-9][0-9]{0,2}([mkMGT]|[KMGT]i)?\Z")]

Check = Callable[[Any], object]


def is_type(exact: Any) -> bool:
    """Whether it is a type, and not one of the two markers."""
    return exact is not NEVER and exact is not LEFT_OUT


def struct_type(members: Mapping[str, tuple[Any, bool]]) -> Any:
    """The type of the objects with these members, each left as it is, and no other; or `NEVER`, or `LEFT_OUT`.

    Args:
        members: by name the type of the values that are left as they are, and whether there has to be one.
    """
    if any(exact is LEFT_OUT for exact, _ in members.values()):
        return LEFT_OUT
    fields: list[Any] = []
    for name, (exact, required) in members.items():
        if exact is not NEVER:
            fields.append((name, exact) if required else (name, exact | msgspec.UnsetType, msgspec.UNSET))
        elif required:
            return NEVER
    return msgspec.defstruct("Exact", fields, kw_only=True, forbid_unknown_fields=True, gc=False)


def list_type(item: Any, limit: int) -> Any:
    """The type of the lists of such items that are left as they are, or the items' marker.

    Args:
        item: the type of the items that are left as they are.
        limit: the number of items that a list may have.
    """
    return (
        Annotated[GenericAlias(list, (item,)), msgspec.Meta(min_length=1, max_length=limit)] if is_type(item) else item
    )


def map_type(item: Any, limit: int) -> Any:
    """The type of the objects with free keys and such values that are left as they are, or the values' marker.

    Args:
        item: the type of the values that are left as they are.
        limit: the number of keys that an object may have.
    """
    return _bounded(GenericAlias(dict, (str, item)), limit) if is_type(item) else item


def _bounded(alias: Any, limit: int) -> Any:
    # What is empty is not written.
    return Annotated[alias, msgspec.Meta(min_length=1, max_length=limit)]


def check_of(exact: Any) -> Check | None:
    """What raises `msgspec.ValidationError` for each value that is not left as it is; None: no value is."""
    if not is_type(exact):
        return None
    if isinstance(exact, type) and issubclass(exact, msgspec.Struct):
        return partial(msgspec.convert, type=exact)
    # Of structs msgspec remembers how they are checked; of other types it finds that out each time.
    holder = msgspec.defstruct("Holder", [("value", exact)], gc=False)
    return lambda value: msgspec.convert({"value": value}, holder)
