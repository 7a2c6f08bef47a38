"""Which fields of a VM the manifests of its owner declare, and which only this server wrote.

A VM changes in many ways, and only some of them say what its owner wants as a whole. Server-side apply lists in
``metadata.managedFields`` every field that a manifest declares, and client-side apply keeps the manifest in an
annotation. Both are complete before admission begins, and neither names what a webhook writes: the API server computes
the owners of fields before it calls mutating webhooks.

Fields that another user merely updated are listed too, but prove nothing here. A clone, a restore or a backup lists
whatever it copied, and for a change under review the old object says more. That is why a manifest counts and a mere
writer does not.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, TypeAlias

import msgspec

from webhook.k8s.json_tree import ABSENT
from webhook.k8s.types.meta import Object, OwnedMeta

LAST_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"


class _ManagedFieldsEntry(msgspec.Struct, frozen=True, rename="camel"):
    """One entry of ``metadata.managedFields``."""

    manager: str = ""
    operation: str = ""
    subresource: str = ""
    fields_v1: msgspec.Raw = msgspec.field(default=msgspec.Raw(b"{}"), name="fieldsV1")


_entries: Final = msgspec.json.Decoder(list[_ManagedFieldsEntry] | None)
_tree: Final = msgspec.json.Decoder(dict[str, Any])
_UNREADABLE: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


# The fields of each server-side apply, as trees, and the manifest of the latest client-side apply.
_Records: TypeAlias = tuple[list[dict[str, Any]], dict[str, Any] | None]


class Manifests:
    """What the manifests declare that were applied to an object, among them the one of the present request.

    A record that cannot be read declares nothing. Nothing is decoded before the first question.

    Args:
        obj: the object, with its ``managedFields`` and its last-applied annotation.
    """

    def __init__(self, obj: Object) -> None:
        self._object: Final = obj
        self._records: _Records | None = None

    def _read(self) -> _Records:
        text = self._object.meta.annotation(LAST_APPLIED)
        declared = [tree for entry, tree in _trees(self._object) if entry.operation == "Apply"]
        self._records = declared, _decode(text) if text else None
        return self._records

    def declare(self, path: Sequence[str], value: object) -> bool:
        """Whether a manifest declares the field at a path of JSON names from the object's root, unescaped.

        The value is what stands there now: a manifest of client-side apply that says something else is an old one.
        """
        declared, last_applied = self._records or self._read()
        if any(_lists(tree, path) for tree in declared):
            return True
        return last_applied is not None and _value_at(last_applied, path) == value

    def declared_items(self, path: Sequence[str], *fields: str) -> dict[tuple[object, ...], Mapping[str, Any]]:
        """What server-side applies declare of a list that is merged by keys, item by item.

        Client-side apply never merges lists of custom resources, so there an item is never partly its owner's.

        Returns:
            The items' trees in ``fieldsV1``, by the values of the fields that distinguish the items.
        """
        listed = [f"f:{segment}" for segment in path]
        items_by_key: dict[tuple[object, ...], Mapping[str, Any]] = {}
        for tree in (self._records or self._read())[0]:
            items = _value_at(tree, listed)
            for name, item in items.items() if isinstance(items, dict) else ():
                # The fields that an item is distinguished by are named as ``k:{...}``.
                key = _decode(name[2:]) if name.startswith("k:") else None
                values = tuple(key.get(field) for field in fields) if key else ()
                # A user may write records too, and then a value may be of any type; a key's are scalars.
                if values and isinstance(item, dict) and not any(isinstance(value, dict | list) for value in values):
                    items_by_key.setdefault(values, item)
        return items_by_key


def writers(obj: Object, path: Sequence[str]) -> set[str]:
    """Who has written the field at a path, in any way: the names of field managers. A webhook is never among them."""
    return {entry.manager for entry, tree in _trees(obj) if _lists(tree, path)}


def is_written(obj: Object, paths: Iterable[Sequence[str]]) -> bool:
    """Whether anybody but a webhook has written one of the fields at some paths of an object.

    So it is taken to be where there is no record, or none that can be read: the API server keeps one of every object.
    """
    trees = [tree for _, tree in _trees(obj)]
    return not trees or any(_covers(tree, path) for path in paths for tree in trees)


def _trees(obj: Object) -> list[tuple[_ManagedFieldsEntry, dict[str, Any]]]:
    """The entries about the object itself, with their fields; none where they cannot be read."""
    meta = obj.metadata
    raw = meta.managed_fields if isinstance(meta, OwnedMeta) else msgspec.UNSET
    if raw is msgspec.UNSET:
        return []
    try:
        entries = _entries.decode(raw) or []
        return [(entry, _tree.decode(entry.fields_v1)) for entry in entries if not entry.subresource]
    except _UNREADABLE:
        return []


def _lists(tree: dict[str, Any], path: Sequence[str]) -> bool:
    return _value_at(tree, [f"f:{segment}" for segment in path]) is not ABSENT


def _covers(tree: object, path: Sequence[str]) -> bool:
    """Whether a tree lists a field, or one above it as a whole."""
    for segment in path:
        tree = tree.get(f"f:{segment}") if isinstance(tree, dict) else None
        if tree == {}:
            return True
    return tree is not None


def _decode(text: str) -> dict[str, Any] | None:
    try:
        return _tree.decode(text)
    except _UNREADABLE:
        return None


def _value_at(tree: object, path: Sequence[str]) -> object:
    """What stands at a path of plain JSON; `ABSENT` where there is nothing, or null."""
    for segment in path:
        tree = tree.get(segment) if isinstance(tree, dict) else None
    return ABSENT if tree is None else tree
