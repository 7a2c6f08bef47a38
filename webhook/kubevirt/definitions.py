"""What the CustomResourceDefinitions of KubeVirt's kinds say of the fields that rules here read or write."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

import msgspec

from webhook import names
from webhook.k8s.resources import Resource
from webhook.k8s.types.meta import Object
from webhook.kubevirt.go_json.structs import List, OrNull, Shape, Struct
from webhook.kubevirt.releases import fields
from webhook.kubevirt.releases.fields import DefinedFields, Definitions
from webhook.kubevirt.types import core

_SHAPES: Final = {
    fields.VIRTUAL_MACHINE: core.VM,
    fields.VMI: core.VMI,
    fields.INSTANCETYPE: core.INSTANCETYPE,
    fields.CLUSTER_INSTANCETYPE: core.INSTANCETYPE,
    fields.PREFERENCE: core.PREFERENCE,
    fields.CLUSTER_PREFERENCE: core.PREFERENCE,
}
_GROUPS: Final = {
    kind: names.KUBEVIRT_GROUP if kind in (fields.VIRTUAL_MACHINE, fields.VMI) else names.INSTANCETYPE_GROUP
    for kind in _SHAPES
}
# By the kinds that they define, the names of the definitions that are read.
NAMES: Final = {kind: f"{kind.lower()}s.{group}" for kind, group in _GROUPS.items()}


class DefinitionSchema(msgspec.Struct, frozen=True):
    """A structural schema, as far as it shows which fields an object has."""

    properties: dict[str, DefinitionSchema] | None = None
    items: DefinitionSchema | None = None
    additional: Any = msgspec.field(name="additionalProperties", default=None)
    preserves: bool | None = msgspec.field(name="x-kubernetes-preserve-unknown-fields", default=None)

    @property
    def is_open(self) -> bool:
        """Whether an object may have other fields than the listed ones."""
        return bool(self.preserves) or self.additional is not None


class _DefinitionValidation(msgspec.Struct, frozen=True):
    schema: DefinitionSchema | None = msgspec.field(name="openAPIV3Schema", default=None)


class _DefinitionVersion(msgspec.Struct, frozen=True):
    name: str = ""
    storage: bool = False
    validation: _DefinitionValidation | None = msgspec.field(name="schema", default=None)


class _DefinitionNames(msgspec.Struct, frozen=True):
    kind: str = ""


class _DefinitionSpec(msgspec.Struct, frozen=True):
    group: str = ""
    names: _DefinitionNames = _DefinitionNames()
    versions: list[_DefinitionVersion] | None = None


class Definition(Object, frozen=True):
    """A CustomResourceDefinition, as far as it shows which fields its kind has."""

    spec: _DefinitionSpec | None = None


DEFINITIONS: Final = Resource(
    "apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition", False, Definition
)


def fields_of(definitions: Iterable[Definition]) -> Definitions | None:
    """What definitions say; those of other kinds are passed over. None where none says anything."""
    by_kind: dict[str, DefinedFields] = {}
    for definition in definitions:
        spec = definition.spec
        if spec is None or _GROUPS.get(spec.names.kind) != spec.group:
            continue
        kind = spec.names.kind
        for version in spec.versions or ():
            # The version that is stored decides what is kept.
            whole = version.validation.schema if version.storage and version.validation else None
            schema = (whole.properties or {}).get("spec") if whole else None
            if schema is not None:
                present = frozenset(path for path, _ in fields.table(kind) if _has(schema, path.split(".")))
                absent = frozenset(_absent(_SHAPES[kind].fields["spec"], schema, ""))
                by_kind[kind] = DefinedFields(present, absent)
    kinds = [(kind, by_kind[kind]) for kind in sorted(by_kind)]
    return Definitions(tuple(kinds)) if any(each.present or each.absent for _, each in kinds) else None


def _has(schema: DefinitionSchema, path: list[str]) -> bool:
    for name in path:
        while schema.items is not None:
            schema = schema.items
        below = (schema.properties or {}).get(name)
        if below is None:
            return False
        schema = below
    return True


def _absent(shape: Shape, schema: DefinitionSchema, path: str) -> Iterator[str]:
    """The fields of a shape that a schema lacks, each without those below it.

    A field that KubeVirt always writes is never among them: no release of it is without, and the rules count on it.
    """
    if isinstance(shape, OrNull):
        yield from _absent(shape.shape, schema, path)
    elif isinstance(shape, List):
        if schema.items is not None:
            yield from _absent(shape.item, schema.items, path)
    elif isinstance(shape, Struct):
        properties = schema.properties or {}
        for name, field in shape.fields.items():
            below = f"{path}.{name}" if path else name
            if name in properties:
                yield from _absent(field, properties[name], below)
            elif not schema.is_open and not field.always:
                yield below
