"""Values at paths of JSON names, in views and in plain JSON alike."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Final

import msgspec

ABSENT: Final = object()


@cache
def _attributes(view: type[msgspec.Struct]) -> dict[str, str]:
    return {field.encode_name: field.name for field in msgspec.structs.fields(view)}


def _other(value: object, segment: str, path: Sequence[str]) -> object:
    """The child of what is neither a view nor a dict."""
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
    value = root
    for segment in path:
        if isinstance(value, msgspec.Struct):
            value = getattr(value, _attributes(type(value))[segment])
        elif value is None:
            return ABSENT
        else:
            value = value.get(segment) if type(value) is dict else _other(value, segment, path)
    return ABSENT if value is None else value


def count_present(root: object, path: Sequence[str]) -> int:
    """How many leading segments of a path lead to a value; all of them if the whole path does.

    Args:
        root: a view or plain JSON.
        path: JSON names, from the root.

    Raises:
        TypeError: the path leads through a value that is neither an object nor null.
    """
    value = root
    for depth, segment in enumerate(path):
        if isinstance(value, msgspec.Struct):
            value = getattr(value, _attributes(type(value))[segment])
        else:
            value = value.get(segment) if type(value) is dict else _other(value, segment, path)
        if value is None:
            return depth
    return len(path)
