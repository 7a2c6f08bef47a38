"""Shapes that differ from others in single fields, as the types of KubeVirt's releases do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from webhook.kubevirt.go_json.containers import List
from webhook.kubevirt.go_json.structs import OrNull, Shape, Struct, Value

# By field, what becomes of it or of fields below it: None removes it.
_Tree = dict[str, Any]


def replace_fields(shape: Struct, changes: Mapping[str, Shape | None]) -> Struct:
    """A shape with some fields replaced or removed; the given one stays as it is.

    Args:
        shape: the shape to start from.
        changes: the new shape by the field's path, with dots and through lists; None removes the field. A path that
            leads nowhere changes nothing, nor does one below a field that is replaced or removed.
    """
    tree: _Tree = {}
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


def _replace_field(shape: Shape, tree: _Tree) -> Shape:
    if isinstance(shape, Value):
        return Value(cast("Struct", _replace_field(shape.shape, tree)), left_out=shape.left_out)
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
    return type(shape)(**fields)


def is_known(shape: Shape, value: Any) -> bool:
    """Whether all members of a JSON value are fields of a shape, as strict decoding demands."""
    if isinstance(shape, Value | OrNull):
        return is_known(shape.shape, value)
    if isinstance(shape, List) and isinstance(value, list):
        return all(is_known(shape.item, item) for item in value)
    if isinstance(shape, Struct) and isinstance(value, dict):
        return all(name in shape.fields and is_known(shape.fields[name], item) for name, item in value.items())
    return True
