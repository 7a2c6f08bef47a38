"""The depth of JSON, and values at paths in it: as bytes, as plain JSON, and as views.

Rules walk plain JSON by recursion, and so do Python's own comparisons: what is nested deeply enough ends in a
RecursionError, at a depth that depends on where the walk began. So depth is bounded once, where objects come in.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec

# All quantifiers are possessive: there is no backtracking, whatever the bytes are.
STRING: Final = rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"'
# Up to the next brackets of one kind without anything between them.
RUN: Final = re.compile(rb'[^"\[\]{}]*+(?:' + STRING + rb'[^"\[\]{}]*+)*+(?P<run>[\[{]++|[\]}]++)', re.DOTALL)
# Objects that follow their schemas have at most some twenty levels; managedFields and what x-preserve-unknown-fields
# accepts, about as many again. Python allows a thousand frames, of which a rule takes up to four a level.
MAX_LEVELS: Final = 100
# Of msgspec.inspect's descriptions of lists and dictionaries: what they are made of. A union has ``types``.
_PARTS: Final = ("item_type", "key_type", "value_type")
_SCALARS: Final = frozenset((str, int, float, bool, type(None)))
_CONTAINERS: Final = frozenset((dict, list))
ABSENT: Final = object()
# For each class of views that a path has led through: how its attributes are called, by their JSON names.
_ATTRIBUTES: Final[dict[type, dict[str, str]]] = {}


def flatten(body: bytes, levels: int) -> bytes:
    """JSON with ``null`` for every container that stands below so many levels of others.

    What a parser that recurses cannot read, it can read then. Its cost grows with the bytes, at some 0.5 µs a bracket:
    run it in a thread of its own.
    """
    pieces: list[bytes] = []
    depth = position = copied = 0
    while match := RUN.match(body, position):
        position, run = match.end(), match["run"]
        if run[0] in b"{[":
            if depth <= levels < depth + len(run):
                pieces += (body[copied : match.start("run") + levels - depth], b"null")
                copied = len(body)
            depth += len(run)
        else:
            if depth - len(run) <= levels < depth:
                copied = match.start("run") + depth - levels
            depth -= len(run)
    # Without brackets that match, it is no JSON, and is handed on as that.
    return b"".join((*pieces, body[copied:]))


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


def is_too_deep(value: object, levels: int = MAX_LEVELS) -> bool:
    """Whether a view, or plain JSON, has more levels of containers than so many; level by level: it runs for each."""
    level: list[Any] = [value]
    for _ in range(levels):
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


def cut(value: Any, levels: int) -> Any:
    """A copy of plain JSON with None for every container that stands below so many levels of others."""
    if type(value) not in _CONTAINERS:
        return value
    if not levels:
        return None
    if type(value) is dict:
        return {key: cut(item, levels - 1) for key, item in value.items()}
    return [cut(item, levels - 1) for item in value]


def member(value: Any, path: str) -> Any:
    """What plain JSON holds at a path with dots between names; None where there is nothing."""
    for name in path.split("."):
        value = value.get(name) if isinstance(value, dict) else None
    return value


def _child(value: object, segment: str, path: Sequence[str]) -> object:
    """The child of what is neither a dict nor of a known class of views."""
    if isinstance(value, msgspec.Struct):
        names = {field.encode_name: field.name for field in msgspec.structs.fields(value)}
        _ATTRIBUTES[type(value)] = names
        return getattr(value, names[segment])
    if isinstance(value, Mapping):
        return value.get(segment)
    raise TypeError(f"{'/'.join(path)}: a {type(value).__name__} stands where an object should")


def locate(root: object, path: Sequence[str]) -> tuple[object, int]:
    """The value at a path of JSON names in a view or in plain JSON, and how many of its segments lead to a value.

    The value is `ABSENT` where there is none; null counts as none.

    Raises:
        KeyError: a view does not know a field of this name: a bug.
        TypeError: the path leads through a value that is not an object.
    """
    value: Any = root
    depth = 0
    for segment in path:
        kind = type(value)
        # The loop takes a step itself: three changes of a VM take a dozen of them.
        if kind in _ATTRIBUTES:
            value = getattr(value, _ATTRIBUTES[kind][segment])
        elif kind is dict:
            value = value.get(segment)
        else:
            value = _child(value, segment, path)
        if value is None:
            return ABSENT, depth
        depth += 1
    return value, depth


def lookup(root: object, path: Sequence[str]) -> object:
    """The value alone, as `locate` finds it."""
    return locate(root, path)[0]
