"""How deeply an object is nested that is held as plain JSON.

Rules walk plain JSON by recursion, and so do Python's own comparisons: what is nested deeply enough ends in a
RecursionError, at a depth that depends on where the walk began. So depth is bounded once, where objects come in.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import msgspec

# Objects that follow their schemas have at most some twenty levels; managedFields and what x-preserve-unknown-fields
# accepts, about as many again. Python allows a thousand frames, of which a rule takes up to four a level.
MAX_LEVELS: Final = 100


def plain_fields(view: type[Any]) -> tuple[str, ...]:
    """The fields of a view, by attribute, that keep parts of which their types do not say what they are."""
    info: Any = msgspec.inspect.type_info(view)
    return tuple(field.name for field in info.fields if _holds_plain_json(field.type))


def _holds_plain_json(info: msgspec.inspect.Type) -> bool:
    seen: set[Any] = set()
    pending: list[Any] = [info]
    while pending:
        info = pending.pop()
        if isinstance(info, msgspec.inspect.AnyType):
            return True
        if isinstance(info, msgspec.inspect.StructType):
            if info.cls not in seen:
                seen.add(info.cls)
                pending += [field.type for field in info.fields]
        else:
            pending += [part for name in _PARTS if (part := getattr(info, name, None)) is not None]
            pending += getattr(info, "types", ())
    return False


# Of msgspec.inspect's descriptions of lists and dictionaries: what they are made of. A union has ``types``.
_PARTS: Final = ("item_type", "key_type", "value_type")


def is_too_deep(value: object) -> bool:
    """Whether a view, or plain JSON, has more levels of containers than `MAX_LEVELS`.

    It runs for every object, so it takes a level at a time and visits no scalar twice.
    """
    level: list[Any] = [value]
    for _ in range(MAX_LEVELS):
        level = [
            inner
            for outer in level
            for inner in (outer.values() if type(outer) is dict else outer if type(outer) is list else _fields(outer))
            if type(inner) not in _SCALARS
        ]
        if not level:
            return False
    return True


def _fields(value: Any) -> Iterable[Any]:
    return [getattr(value, name) for name in value.__struct_fields__] if isinstance(value, msgspec.Struct) else ()


_SCALARS: Final = frozenset((str, int, float, bool, type(None)))


def cut(value: Any, levels: int) -> Any:
    """A copy of plain JSON with None for every container that stands below so many levels of others."""
    if type(value) not in _CONTAINERS:
        return value
    if not levels:
        return None
    if type(value) is dict:
        return {key: cut(item, levels - 1) for key, item in value.items()}
    return [cut(item, levels - 1) for item in value]


_CONTAINERS: Final = frozenset((dict, list))
