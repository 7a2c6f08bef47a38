"""Views of KubeVirt's kinds read fields that KubeVirt has, under their names and with their types."""

from __future__ import annotations

import pkgutil
from collections.abc import Iterable, Iterator
from importlib import import_module
from typing import Any

from msgspec import inspect

import webhook
from webhook.k8s.resources import Resource
from webhook.k8s.types.meta import Unstructured
from webhook.kubevirt.releases.capabilities import SUPPORTED_VERSIONS
from webhook.kubevirt.releases.schemas import kinds_of
from webhook.kubevirt.types import views

TYPES: dict[type[inspect.Type], str] = {
    inspect.StrType: "string",
    inspect.BoolType: "boolean",
    inspect.IntType: "integer",
    inspect.ListType: "array",
    inspect.DictType: "object",
    inspect.StructType: "object",
}
# What a reference has that other APIs have in common with it.
OF_OTHERS = {f"Plugin.spec.mutatingAdmissionWebhooks.{name}" for name in ("kind", "namespace")}
# Where it reads a field: the class of the view and the name, the path, and whether a release has it there.
Reads = Iterator[tuple[tuple[type[Any], str], str, bool]]


def resources() -> set[tuple[str, type[Any]]]:
    """All views of kinds in groups of KubeVirt's, by kind."""
    names = [each.name for each in pkgutil.walk_packages(webhook.__path__, "webhook.")]
    modules = [import_module(name) for name in names if not name.endswith("__main__")]
    values = [value for module in modules for value in vars(module).values() if isinstance(value, Resource)]
    found = {(each.kind, each.view) for each in values if each.group.endswith("kubevirt.io")}
    return {(kind, view) for kind, view in found if not issubclass(view, Unstructured)}


def plain(view: inspect.Type) -> inspect.Type:
    """The type of a value that is there."""
    if isinstance(view, inspect.UnionType):
        return next(each for each in view.types if not isinstance(each, inspect.NoneType))
    return view


def reads_of(view: inspect.Type, schemas: list[Any], path: str) -> Reads:
    """What a view reads where the schemas say which fields there are."""
    view = plain(view)
    if isinstance(view, inspect.ListType):
        yield from reads_of(view.item_type, [each["items"] for each in schemas if "items" in each], path)
    elif isinstance(view, inspect.StructType):
        listed = [each["properties"] for each in schemas if "properties" in each]
        for field in view.fields if listed else ():
            having = [each[field.encode_name] for each in listed if field.encode_name in each]
            expected, below = TYPES.get(type(plain(field.type))), f"{path}.{field.encode_name}"
            is_right = not expected or any(each.get("type", expected) == expected for each in having)
            yield (view.cls, field.encode_name), below, bool(having) and is_right
            yield from reads_of(field.type, having, below)


def nowhere(reads: Iterable[tuple[tuple[type[Any], str], str, bool]]) -> set[str]:
    """The paths of fields that are there in none of the places of their view, which can be that of several kinds."""
    by_field: dict[tuple[type[Any], str], list[tuple[str, bool]]] = {}
    for field, path, is_there in reads:
        by_field.setdefault(field, []).append((path, is_there))
    return {places[0][0] for places in by_field.values() if not any(is_there for _, is_there in places)}


def test_what_a_view_reads_is_there() -> None:
    known = resources()
    assert {kind for kind, _ in known} >= {"KubeVirt", "MigrationPolicy", "VirtualMachine", "VirtualMachineInstance"}
    reads = []
    for kind, view in known:
        schemas = [each.schema for version in SUPPORTED_VERSIONS for each in kinds_of(version) if each.kind == kind]
        reads += [*reads_of(inspect.type_info(view), schemas, kind)]

    assert len(reads) > 200
    assert nowhere(reads) == OF_OTHERS


def test_a_name_that_is_misspelt_and_a_type_that_is_another_are_found() -> None:
    for spec in ({"schedulername": {"type": "string"}}, {"schedulerName": {"type": "integer"}}):
        schema = {"type": "object", "properties": {"spec": {"type": "object", "properties": spec}, "metadata": {}}}
        assert nowhere(reads_of(inspect.type_info(views.Instancetype), [schema], "A")) == {"A.spec.schedulerName"}
