"""JSON-patch operations (RFC 6902) for the changes of a decision, written directly.

A patch that cannot be applied fails the user's request with 500 whatever the failurePolicy says (apiserver,
plugin/webhook/mutating/dispatcher.go). So there is no ``test`` and nothing that depends on what may be missing: an
``add`` is an upsert on an object's member, and absent parents are made on the way; only what was there is removed.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Final

import msgspec

from webhook.admission.decision import Change, RepeatedChanges
from webhook.k8s.json_tree import count_present

_encode: Final = msgspec.json.Encoder().encode


class Operation(msgspec.Struct, frozen=True):
    """One ``add`` or ``remove``; ``path`` is a JSON pointer."""

    op: str
    path: str
    value: object = msgspec.UNSET


# Paths of the policies themselves are kept, which are few and short; tenants' keys would fill the memory.
_LONGEST_KEPT: Final = 100


def pointer(path: tuple[str, ...]) -> str:
    """The JSON pointer (RFC 6901) of a path: ``~`` and ``/`` in names are escaped."""
    return _kept(path) if len(path[-1]) <= _LONGEST_KEPT else _escape_path(path)


def _escape_path(path: tuple[str, ...]) -> str:
    return "".join("/" + segment.replace("~", "~0").replace("/", "~1") for segment in path)


_kept: Final = lru_cache(maxsize=1024)(_escape_path)


def segments(text: str) -> tuple[str, ...]:
    """The path that a JSON pointer stands for."""
    return tuple(segment.replace("~1", "/").replace("~0", "~") for segment in text.split("/")[1:])


def operations(root: object, changes: Sequence[Change]) -> list[Operation]:
    """The operations that turn ``root`` into the object with all changes.

    Args:
        root: the object as it is: a view that has every field on the changes' paths, or plain JSON.
        changes: with non-empty paths through objects, not lists, and true old values. A change from a value to the
            same makes no operation.

    Raises:
        TypeError: a change leads through a value that is not an object; that is a policy's bug.
    """
    return _operations(changes, _present(root, changes))


def _present(root: object, changes: Sequence[Change]) -> tuple[int, ...]:
    """All that an operation depends on beside its change: how much of the path an object has, where it has no value."""
    return tuple([count_present(root, change.path) if change.old is None else 0 for change in changes])


def _operations(changes: Sequence[Change], present: Sequence[int]) -> list[Operation]:
    """The operations for all objects that have as much of each path."""
    made: set[tuple[str, ...]] = set()
    result: list[Operation] = []
    for change, there in zip(changes, present, strict=True):
        path, value = change.path, change.new
        if change.old == value:
            continue
        if value is None:
            # It is there: the API server applies the patch to the very object that was evaluated.
            result.append(Operation("remove", pointer(path)))
            continue
        depth = len(path) - 1
        if change.old is None:
            # The deepest parent that exists, or that an earlier operation has made, takes the rest as one value.
            while depth > there and path[:depth] not in made:
                value = {path[depth]: value}
                made.add(path[:depth])
                depth -= 1
        result.append(Operation("add", pointer(path[: depth + 1]), value))
    return result


def render(root: object, changes: Sequence[Change]) -> bytes | None:
    """The JSON patch of `operations`, or None if there is nothing to change."""
    if not isinstance(changes, RepeatedChanges):
        result = operations(root, changes)
        return _encode(result) if result else None
    present = _present(root, changes)
    known = changes.patches.get(present)
    if known is None:
        result = _operations(changes, present)
        known = changes.patches[present] = _encode(result) if result else b""
    return known or None
