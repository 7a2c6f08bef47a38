"""Values at paths of JSON names, in views and in plain JSON alike."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

ABSENT: Final = object()


# For each class of views that a path has led through: how its attributes are called, by their JSON names.
_ATTRIBUTES: Final[dict[type, dict[str, str]]] = {}


def _child(value: object, segment: str, path: Sequence[str]) -> object:
    """The child of what is neither a dict nor of a known class of views."""
    if isinstance(value, msgspec.Struct):
        names = {field.encode_name: field.name for field in msgspec.structs.fields(value)}
        _ATTRIBUTES[type(value)] = names
        return getattr(value, names[segment])
    if isinstance(value, Mapping):
        return value.get(segment)
    raise TypeError(f"{'/'.join(path)}: a {type(value).__name__} stands where an object should")


# Both loops take a step themselves: three changes of a VM take two dozen of them.


def lookup(root: object, path: Sequence[str]) -> object:
    """The value at a path of JSON names in a view or in plain JSON; `ABSENT` where there is none (null counts).

    Raises:
        KeyError: a view does not know a field of this name: a bug.
        TypeError: the path leads through a value that is not an object.
    """
    value: Any = root
    for segment in path:
        kind = type(value)
        if kind is dict:
            value = value.get(segment)
        elif kind in _ATTRIBUTES:
            value = getattr(value, _ATTRIBUTES[kind][segment])
        elif value is None:
            return ABSENT
        else:
            value = _child(value, segment, path)
    return ABSENT if value is None else value


def count_present(root: object, path: Sequence[str]) -> int:
    """How many leading segments of a path lead to a value; all of them if the whole path does.

    Args:
        root: a view or plain JSON.
        path: JSON names, from the root.

    Raises:
        TypeError: the path leads through a value that is neither an object nor null.
    """
    value: Any = root
    depth = 0
    for segment in path:
        kind = type(value)
        if kind is dict:
            value = value.get(segment)
        elif kind in _ATTRIBUTES:
            value = getattr(value, _ATTRIBUTES[kind][segment])
        else:
            value = _child(value, segment, path)
        if value is None:
            return depth
        depth += 1
    return depth
