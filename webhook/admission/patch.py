"""The JSON patch (RFC 6902) for the changes of a decision, whose operations are written directly.

A patch that cannot be applied fails the user's request with 500 whatever the failurePolicy says (apiserver,
plugin/webhook/mutating/dispatcher.go). So there is no ``test`` and nothing that depends on what may be missing: an
``add`` is an upsert on an object's member, and absent parents are made on the way; only what was there is removed.

KubeVirt's rules read an object and write it again: quantities become canonical, empty values and unknown fields vanish.
None of that may reach the owner's object. So the object as it was read (``before``) is compared with what the rule made
of it (``after``), and only the difference is applied to the object as its owner wrote it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, TypeAlias

import msgspec
from jsonpatch import JsonPatch
from jsonpointer import JsonPointer

from webhook.admission.decision import Change, RepeatedChanges
from webhook.k8s.json_tree import locate

# One ``add`` or ``remove``, as JSON.
Operation: TypeAlias = dict[str, Any]

_encode: Final = msgspec.json.Encoder().encode


def pointer(path: Sequence[str]) -> str:
    """The JSON pointer (RFC 6901) of a path: ``~`` and ``/`` in names are escaped."""
    text: str = JsonPointer.from_parts(path).path
    return text


def segments(text: str) -> tuple[str, ...]:
    """The path that a JSON pointer stands for."""
    return tuple(JsonPointer(text).parts)


def make_patch(root: object, changes: Sequence[Change]) -> JsonPatch:
    """The patch that turns ``root`` into the object with all changes.

    Args:
        root: the object as it is: a view that has every field on the changes' paths, or plain JSON.
        changes: with non-empty paths through objects, not lists, and true old values. A change from a value to the
            same makes no operation.

    Raises:
        TypeError: a change leads through a value that is not an object; that is a policy's bug.
    """
    return JsonPatch(_operations(changes, _present(root, changes)))


def _present(root: object, changes: Sequence[Change]) -> tuple[int, ...]:
    """All that an operation depends on beside its change: how much of the path an object has, where it has no value."""
    return tuple([locate(root, change.path)[1] if change.old is None else 0 for change in changes])


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
            result.append({"op": "remove", "path": pointer(path)})
            continue
        depth = len(path) - 1
        if change.old is None:
            # The deepest parent that exists, or that an earlier operation has made, takes the rest as one value.
            while depth > there and path[:depth] not in made:
                value = {path[depth]: value}
                made.add(path[:depth])
                depth -= 1
        result.append({"op": "add", "path": pointer(path[: depth + 1]), "value": value})
    return result


def render(root: object, changes: Sequence[Change]) -> bytes | None:
    """`make_patch`, encoded; None if there is nothing to change."""
    if not isinstance(changes, RepeatedChanges):
        return _rendered(make_patch(root, changes))
    present = _present(root, changes) if changes.present is None else changes.present
    patch = changes.patches.get(present)
    if patch is None:
        patch = changes.patches[present] = _rendered(JsonPatch(_operations(changes, present))) or b""
    return patch or None


def _rendered(patch: JsonPatch) -> bytes | None:
    return _encode(patch.patch) if patch else None


def overlay(original: Any, before: Any, after: Any) -> Any:
    """``original`` with the difference between ``before`` and ``after``; shares what has not changed.

    In lists, items keep their places, and new ones follow.
    """
    if before == after:
        return original
    if original is before:
        # The owner wrote it as it was read.
        return after
    if isinstance(after, dict):
        old = original if isinstance(original, dict) else {}
        read = before if isinstance(before, dict) else {}
        result = {key: value for key, value in old.items() if key in after or key not in read}
        for key, value in after.items():
            if key not in read or read[key] != value:
                # Most values are scalars: no call for those.
                is_scalar = isinstance(value, str | int | float)
                result[key] = value if is_scalar else overlay(old.get(key), read.get(key), value)
        return result
    if isinstance(after, list) and isinstance(before, list) and isinstance(original, list):
        items = zip(original, before, after, strict=False)
        return [overlay(*item) for item in items] + after[len(before) :]
    return after


def changes(
    path: tuple[str, ...], original: Any, before: dict[str, Any], after: dict[str, Any], reason: str
) -> list[Change]:
    """The difference as changes of members of objects, lists as a whole.

    Args:
        path: the path of ``original`` in the object.
        original: plain JSON, as it was sent; None where there is nothing.
        before: what the rule read of it.
        after: what it made of it.
        reason: the code that all changes carry.
    """
    old = original if isinstance(original, dict) else {}
    result = [
        Change((*path, key), old[key], None, reason) for key in before if key not in after and old.get(key) is not None
    ]
    for key, value in after.items():
        if key in before and before[key] == value:
            continue
        there, inner = old.get(key), before.get(key)
        if isinstance(value, dict) and isinstance(there, dict):
            result += changes((*path, key), there, inner if isinstance(inner, dict) else {}, value, reason)
        else:
            result.append(Change((*path, key), there, overlay(there, inner, value), reason))
    return result
