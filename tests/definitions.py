"""CustomResourceDefinitions of KubeVirt's kinds, made of the shapes that the rules have of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from webhook.kubevirt.definitions import DEFINITIONS, NAMES
from webhook.kubevirt.go_json.structs import List, Map, OrNull, Shape, Struct
from webhook.kubevirt.releases import fields
from webhook.kubevirt.types import core

Json = dict[str, Any]

ANYTHING: Json = {"x-kubernetes-preserve-unknown-fields": True}
SHAPES: Mapping[str, Struct] = {
    fields.VIRTUAL_MACHINE: core.VM,
    fields.VMI: core.VMI,
    fields.INSTANCETYPE: core.INSTANCETYPE,
    fields.CLUSTER_INSTANCETYPE: core.INSTANCETYPE,
    fields.PREFERENCE: core.PREFERENCE,
    fields.CLUSTER_PREFERENCE: core.PREFERENCE,
}


def definition(kind: str, without: Iterable[str] = (), spec: Json | None = None) -> Json:
    """The definition of a kind.

    Args:
        kind: the name of the kind.
        without: the paths below ``spec`` that it lacks.
        spec: the schema of ``spec`` instead.
    """
    plural, _, group = NAMES[kind].partition(".")
    schema = spec if spec is not None else schema_of(SHAPES[kind].fields["spec"], frozenset(without))
    stored = {
        "name": "v1" if kind in (fields.VIRTUAL_MACHINE, fields.VMI) else "v1beta1",
        "storage": True,
        "served": True,
        "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": schema}}},
    }
    older = {**stored, "name": "v0", "storage": False, "schema": {"openAPIV3Schema": {"type": "object"}}}
    names = {"kind": kind, "plural": plural}
    return {
        "apiVersion": DEFINITIONS.api_version,
        "kind": DEFINITIONS.kind,
        "metadata": {"name": NAMES[kind]},
        "spec": {
            "group": group,
            "names": names,
            "scope": "Cluster" if "Cluster" in kind else "Namespaced",
            "versions": [older, stored],
        },
    }


def definitions(without: Mapping[str, Iterable[str]] | None = None) -> list[Json]:
    """Those of all kinds, by kind without some fields."""
    return [definition(kind, (without or {}).get(kind, ())) for kind in NAMES]


def schema_of(shape: Shape, without: frozenset[str], path: str = "") -> Json:
    """A structural schema with the fields of a shape."""
    if isinstance(shape, OrNull):
        return schema_of(shape.shape, without, path)
    if isinstance(shape, List):
        return {"type": "array", "items": schema_of(shape.item, without, path)}
    if isinstance(shape, Map):
        return {"type": "object", "additionalProperties": dict(ANYTHING)}
    if not isinstance(shape, Struct):
        return dict(ANYTHING)
    properties = {}
    for name, field in shape.fields.items():
        below = f"{path}.{name}" if path else name
        if below not in without:
            properties[name] = schema_of(field, without, below)
    return {"type": "object", "properties": properties}
