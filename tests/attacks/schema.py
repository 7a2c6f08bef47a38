"""The possible content of an object, walked down to its last list and map, so that each can be made long.

There are two sources, and neither can be forgotten: the views that reviews and facts are decoded into, and the shapes
of `webhook.kubevirt` for objects that are read as plain JSON. What a view calls anything has its content here, by the
field's name; a field that has none is an error.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple, TypeAlias

from msgspec import inspect

from webhook.k8s.types.meta import Unstructured
from webhook.kubevirt.go_json import structs
from webhook.kubevirt.types import core


class SchemaScalar(NamedTuple):
    kind: str  # text, number, truth or amount


class Items(NamedTuple):
    item: Node


class SchemaEntries(NamedTuple):
    """A map with keys that people make up."""

    value: Node


class Fields(NamedTuple):
    """An object with known fields."""

    fields: Mapping[str, Node]


Node: TypeAlias = SchemaScalar | Items | SchemaEntries | Fields

TEXT: Final = SchemaScalar("text")
_SCALARS: Final[dict[type, SchemaScalar]] = {
    inspect.StrType: TEXT,
    inspect.IntType: SchemaScalar("number"),
    inspect.FloatType: SchemaScalar("number"),
    inspect.BoolType: SchemaScalar("truth"),
}


class UnknownTypeError(Exception):
    """A view has a list or map of which nothing here knows what it holds."""


# The content of fields that the views leave open, by their names. `TEXT` is for what is only kept or passed on: an
# attack puts a large value there, and looks for nothing below it.
_REQUIREMENT: Final = Fields({"key": TEXT, "operator": TEXT, "values": Items(TEXT)})
_NODE_SELECTOR: Final = Fields({"nodeSelectorTerms": Items(Fields({"matchExpressions": Items(_REQUIREMENT)}))})
_OPEN: Final[dict[str, Node]] = {
    **dict.fromkeys(("annotations", "configuration", "numa", "realtime", "utilityVolumes", "snp", "tdx"), TEXT),
    **dict.fromkeys(("sendTo", "receive", "multus", "resourceClaims", "schedulingGates", "data"), TEXT),
    "hotplugVolume": SchemaEntries(TEXT),
    "experimental": SchemaEntries(TEXT),
    "nodeSelector": SchemaEntries(TEXT),
    "affinity": Fields({"nodeAffinity": Fields({"requiredDuringSchedulingIgnoredDuringExecution": _NODE_SELECTOR})}),
    "tolerations": Items(Fields({"key": TEXT, "operator": TEXT, "value": TEXT, "effect": TEXT})),
    "managedFields": Items(Fields({"manager": TEXT, "operation": TEXT, "fieldsV1": SchemaEntries(TEXT)})),
    "topologySpreadConstraints": Fields({"whenUnsatisfiable": TEXT, "topologyKey": TEXT}),
    "requiredDuringSchedulingIgnoredDuringExecution": Fields({"topologyKey": TEXT}),
    "preferredDuringSchedulingIgnoredDuringExecution": Fields({"podAffinityTerm": Fields({"topologyKey": TEXT})}),
}


def of_view(view: Any, where: str = "", whole: Node | None = None, owner: type | None = None) -> Node:
    """A field that a view reads.

    Args:
        view: the type of the field, or of a whole object.
        where: the field's name; empty: it is a whole object.
        whole: of an `Unstructured` object what ``spec``, ``status`` and ``data`` hold.
        owner: the view that has the field.

    Raises:
        UnknownTypeError: nothing says what the field holds.
        TypeError: there is a ``whole`` for a view whose own fields say what it holds.
    """
    known = inspect.type_info(view) if not isinstance(view, inspect.Type) else view
    if isinstance(known, inspect.UnionType):
        kinds = [each for each in known.types if not isinstance(each, inspect.NoneType)]
        return of_view(kinds[0], where, whole, owner)
    if type(known) in _SCALARS:
        return _SCALARS[type(known)]
    if isinstance(known, inspect.ListType):
        return Items(of_view(known.item_type, where, owner=owner))
    if isinstance(known, inspect.DictType):
        if where == "nodeSelectorTerms":
            return of_shape(core.NODE_SELECTOR_TERM)
        return SchemaEntries(of_view(known.value_type, where, owner=owner))
    if isinstance(known, inspect.StructType):
        fields = {each.encode_name: each.type for each in known.fields}
        if whole is not None:
            if not issubclass(known.cls, Unstructured):
                raise TypeError(f"{known.cls.__name__} is not Unstructured: its own fields say what it holds")
            assert isinstance(whole, Fields)
            return Fields({**whole.fields, "metadata": of_view(fields["metadata"])})
        return Fields({name: of_view(each, name, owner=known.cls) for name, each in fields.items()})
    if isinstance(known, inspect.AnyType | inspect.RawType) and where in _OPEN:
        return _OPEN[where]
    field = f"{owner.__module__}.{owner.__qualname__}.{where}" if owner else str(view)
    raise UnknownTypeError(f"nothing says what {field} holds; add it to _OPEN of tests/attacks/schema.py")


def of_shape(given: Any) -> Node:
    """The fields that a shape reads."""
    if isinstance(given, structs.Amount):
        return SchemaScalar("amount")
    if isinstance(given, structs.Scalar):
        return SchemaScalar({str: "text", bool: "truth", int: "number"}[type(given.zero)])
    if isinstance(given, structs.Struct):
        return Fields({name: of_shape(each) for name, each in given.fields.items()})
    if isinstance(given, structs.OrNull):
        return of_shape(given.shape)
    if isinstance(given, structs.List):
        return Items(of_shape(given.item))
    if isinstance(given, structs.Map):
        return SchemaEntries(of_shape(given.item))
    assert isinstance(given, structs.Free), given
    return Items(SchemaEntries(TEXT))


Path: TypeAlias = tuple[str, ...]
# In a path, the first item of a list.
FIRST: Final = "[]"


def places(node: Node, path: Path = ()) -> Iterator[tuple[Path, Items | SchemaEntries]]:
    """Every list and map, those within the first item of another one too."""
    if isinstance(node, Fields):
        for name, each in node.fields.items():
            yield from places(each, (*path, name))
    elif isinstance(node, Items):
        yield path, node
        yield from places(node.item, (*path, FIRST))
    elif isinstance(node, SchemaEntries):
        yield path, node


# -- made up -----------------------------------------------------------------------------------------------------------

# Values that lead a rule somewhere, by field; an item takes them in turn.
_WORDS: Final[dict[str, tuple[str, ...]]] = {
    "policy": ("forbid", "require", "", "force"),
    "effect": ("NoSchedule", "NoExecute", ""),
    "whenUnsatisfiable": ("DoNotSchedule",),
    "phase": ("Running", "Succeeded"),
    "apiVersion": ("kubevirt.io/v1",),
    "operation": ("CREATE",),
    "image": ("registry.example/fedora:40",),
    "protocol": ("TCP",),
    "pageSize": ("2Mi",),
    "inferFromVolumeFailurePolicy": ("Ignore",),
}
_TOLERATION: Final = ("Exists", "Equal")
_EXPRESSION: Final = {"key", "operator", "values"}


def made(node: Node, name: str, index: int, *, alike: bool) -> Any:
    """One item of a field, with a value in each of its own and one item in each of its lists; equal to all if alike."""
    number = 0 if alike else index
    if isinstance(node, SchemaScalar):
        return _leaf(node.kind, name, number)
    if isinstance(node, Items):
        return [made(node.item, name, number, alike=alike)]
    if isinstance(node, SchemaEntries):
        return {f"example.com/{name}-{number:04}": made(node.value, name, number, alike=alike)}
    if node.fields.keys() >= _EXPRESSION:
        return expression(number)
    return {each: made(inner, each, number, alike=alike) for each, inner in node.fields.items()}


def _leaf(kind: str, name: str, number: int) -> Any:
    if kind == "text":
        if name == "operator":
            return _TOLERATION[number % 2]
        words = _WORDS.get(name)
        return words[number % len(words)] if words else f"{name}-{number:04}"
    return {"number": number % 100, "truth": True, "amount": f"{number + 1}Mi"}[kind]


def expression(number: int) -> dict[str, Any]:
    """An expression over labels; all operators in turn."""
    operator = ("In", "NotIn", "Gt", "Lt", "Exists", "DoesNotExist")[number % 6]
    values = [f"v{number}"] if number % 6 < 2 else [str(number)] if number % 6 < 4 else []
    key = "serial" if number % 6 in (2, 3) else f"label-{number:04}"
    return {"key": key, "operator": operator, "values": values}


def grown(base: Any, node: Node, path: Path, count: int, *, alike: bool, name: str = "item") -> Any:
    """A copy of an object with so many more items in the list or map at a path; what leads there is made."""
    if path and path[0] == FIRST:
        assert isinstance(node, Items)
        head, *tail = base or [made(node.item, name, 0, alike=alike)]
        return [grown(head, node.item, path[1:], count, alike=alike, name=name), *tail]
    if path:
        assert isinstance(node, Fields)
        field = path[0]
        below = (base or {}).get(field)
        return {**(base or {}), field: grown(below, node.fields[field], path[1:], count, alike=alike, name=field)}
    if isinstance(node, Items):
        return [*(base or ()), *(made(node.item, name, index, alike=alike) for index in range(count))]
    assert isinstance(node, SchemaEntries)
    more = {f"example.com/{name}-{index:04}": made(node.value, name, index, alike=alike) for index in range(count)}
    return {**(base or {}), **more}
