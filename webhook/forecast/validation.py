"""What the API server says of an object before any webhook of KubeVirt sees it: versions, kinds, names, fields, values.

The API server checks custom resources against the structural schemas of their CustomResourceDefinitions. With strict
field validation it denies fields that no schema has, too (apiextensions-apiserver, pkg/apiserver/schema, validation).
Where no definitions are at hand, those that KubeVirt's release installs count.

The definitions leave some objects open, such as the metadata of templates. There virt-api denies what KubeVirt's API
does not have, in both of its webhooks (pkg/util/openapi, pkg/util/webhooks: ValidateSchema).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from difflib import get_close_matches
from functools import lru_cache
from itertools import islice
from typing import Any, Final, NamedTuple, TypeAlias

import msgspec

from webhook import names
from webhook.admission.credentials import scrub_prose
from webhook.admission.reasons import common
from webhook.errors import InputError, quote
from webhook.forecast.patterns import matches
from webhook.k8s.client.api import ApiConnectionError, Requests
from webhook.k8s.documents import format_path
from webhook.k8s.paths import is_segment, object_path, version_path
from webhook.k8s.types.meta import ApiStatus, decode_status
from webhook.k8s.types.selectors import is_name, key_problem, value_problem
from webhook.k8s.yaml_documents import plain
from webhook.kubevirt.admitters import causes_of
from webhook.kubevirt.go_json import structs
from webhook.kubevirt.go_json.structs import Json
from webhook.kubevirt.pools import POOL, POOL_GROUP
from webhook.kubevirt.releases import fields
from webhook.kubevirt.releases.release import NEWEST, Release
from webhook.kubevirt.releases.schemas import kinds_of
from webhook.kubevirt.rules import Rules, rules_of
from webhook.kubevirt.types.core import METADATA
from webhook.policies.common.ownership import LAST_APPLIED

Path: TypeAlias = tuple[str | int, ...]
# The objects that hold something, the nearest first: where each is, and its fields.
Above: TypeAlias = tuple[tuple[Path, Mapping[str, Any]], ...]

_PRESERVES: Final = "x-kubernetes-preserve-unknown-fields"
_INT_OR_STRING: Final = "x-kubernetes-int-or-string"
_OPEN: Final[Json] = {_PRESERVES: True}
_QUANTITY: Final = (
    r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))"
    r"(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$"
)
_QUANTITIES: Final = re.compile(_QUANTITY.removesuffix("$") + r"\Z")
_FORMATS: Final = {"int32": (-(2**31), 2**31 - 1), "int64": (-(2**63), 2**63 - 1)}
_TYPES: Final[Mapping[str, tuple[type, ...]]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "boolean": (bool,),
    "integer": (int,),
    "number": (int, float),
}
_MOST_ANNOTATIONS_BYTES: Final = 256 * 1024
_MOST_ERRORS: Final = 50
# How near a kind must be to a known one to be taken for it: other operators have kinds in KubeVirt's groups, too.
_NEAR_KIND: Final = 0.9
_NEAR: Final = 0.6
API_SERVER: Final = "the API server"
VIRT_API: Final = "virt-api"
_NEAR_GROUP: Final = 0.8
# How many levels below its place a field is looked for; VMs have their domain three levels below their spec.
_DEEPEST_HINT: Final = 3


class FieldError(NamedTuple):
    """What is denied in an object: one of Kubernetes' field errors (apimachinery, pkg/util/validation/field).

    Attributes:
        path: where.
        text: what is wrong, a sentence without its end.
        code: the reason code.
        by: who denies it.
        dropped: whether an API server that isn't asked to be strict drops the field instead.
    """

    path: Path
    text: str
    code: str = common.INVALID_OBJECT
    by: str = API_SERVER
    dropped: bool = False


class Checked(NamedTuple):
    """What a check of an object has found.

    Attributes:
        errors: what is denied; empty for nothing.
        against: what it was checked against, a sentence.
        unchecked: what of it could not be checked, each a sentence.
    """

    errors: list[FieldError]
    against: str
    unchecked: tuple[str, ...] = ()


class KindSchema(msgspec.Struct, frozen=True):
    """A kind as the API server serves it.

    Attributes:
        versions: the schema of each version, None where the fields are not known.
        against: where the schemas come from, and what they do not show, a sentence.
    """

    versions: Mapping[str, Json | None]
    against: str
    namespaced: bool = True


class Schemas:
    """The kinds of KubeVirt's API groups, by which objects are checked.

    Args:
        kinds: by group and name.
        origin: where the schemas come from, a clause.

    Attributes:
        origin: the same.
    """

    def __init__(self, kinds: Mapping[str, Mapping[str, KindSchema]], origin: str, release: Release = NEWEST) -> None:
        self._kinds: Final = kinds
        self._release: Final = release
        self.origin: Final = origin

    @classmethod
    def of_definitions(cls, definitions: Iterable[Json], origin: str, release: Release = NEWEST) -> Schemas | None:
        """The schemas of those CustomResourceDefinitions that are of KubeVirt, if any.

        Args:
            definitions: plain JSON.
            origin: where they come from, a clause.
            release: whose own definitions count for kinds that the given ones lack.

        Raises:
            InputError: a definition is malformed.
        """
        kinds = {group: dict(of_group) for group, of_group in _kinds_of(release).items()}
        against = f"checked against {origin}; {_UNSEEN}"
        has_schemas = False
        for definition in definitions:
            _require_definition(definition)
            spec = definition.get("spec") or {}
            group, kind = str(spec.get("group") or ""), str((spec.get("names") or {}).get("kind") or "")
            if not is_of_kubevirt(group) or not kind:
                continue
            has_schemas = True
            served = {
                str(each.get("name")): ((each.get("schema") or {}).get("openAPIV3Schema"))
                for each in spec.get("versions") or ()
                if each.get("served")
            }
            kinds.setdefault(group, {})[kind] = KindSchema(served, against, spec.get("scope") != "Cluster")
        return cls(kinds, origin, release) if has_schemas else None

    def is_namespaced(self, obj: Json) -> bool | None:
        """Whether objects of this kind are in namespaces; None for a kind that is not KubeVirt's."""
        group, kind = str(obj.get("apiVersion")).rpartition("/")[0], str(obj.get("kind"))
        known = self._kinds.get(group, {}).get(kind)
        if known is None and is_of_kubevirt(group):
            # Its group is mistaken.
            known = next((kinds[kind] for kinds in self._kinds.values() if kind in kinds), None)
        return known.namespaced if known else None

    def errors(self, obj: Json) -> list[FieldError] | None:
        """What the API server or virt-api denies; None for an object that is not KubeVirt's."""
        checked = self.check(obj)
        return None if checked is None else checked.errors

    def check(self, obj: Json) -> Checked | None:
        """Check an object; None for one that is not KubeVirt's."""
        version, kind = obj.get("apiVersion"), obj.get("kind")
        if not isinstance(version, str) or not isinstance(kind, str):
            return None
        group, _, version = version.rpartition("/")
        schema = self._kinds.get(group, {}).get(kind)
        if schema is None:
            error = self._unknown_kind(group, version, kind)
            return Checked([error], f"checked against the kinds of {self.origin}") if error else None
        if version not in schema.versions:
            served = " or ".join(f"{group}/{each}" for each in schema.versions)
            text = f"{quote(f'{group}/{version}')} is not served for {kind}; use {served}"
            return Checked([FieldError(("apiVersion",), text)], schema.against)
        errors = [*islice(check_metadata(obj, schema.namespaced), _MOST_ERRORS)]
        fields_schema = schema.versions[version]
        if fields_schema is None:
            return Checked(errors, f"{kind}: only version, kind and metadata were checked, its fields are not known")
        root = {**fields_schema, "properties": {**(fields_schema.get("properties") or {}), **_ROOT}}
        unchecked: dict[str, None] = {}
        errors += islice(check_structure(root, obj, (), unchecked), _MOST_ERRORS)
        if not errors and (group, kind) in _CHECKED_BY_VIRT_API:
            errors += _denied_by_virt_api(kind, check_open_objects(fields_schema, obj))
        if not errors:
            errors += _denied_by_admitters(kind, obj, rules_of(self._release))
        errors = [self._with_release(kind, each) for each in errors[:_MOST_ERRORS]]
        errors.sort(key=lambda each: [str(part) for part in each.path])
        return Checked(errors, schema.against, tuple(unchecked))

    def _unknown_kind(self, group: str, version: str, kind: str) -> FieldError | None:
        """A kind that only looks like one of KubeVirt's; None for another operator's."""
        own = self._kinds.get(group)
        for other, kinds in self._kinds.items():
            if own is not None and kind in kinds:
                served = f"{other}/{[*kinds[kind].versions][-1]}"
                what = f"kind {quote(kind)} does not exist in {group}; did you mean"
                return FieldError(("apiVersion",), f"{what} {quote(served)}?")
        if own is not None and (hint := did_you_mean(kind, own, _NEAR_KIND)):
            return FieldError(("kind",), f"kind {quote(kind)} does not exist in {group}{hint}")
        if group == names.KUBEVIRT_GROUP:
            return FieldError(("kind",), f"kind {quote(kind)} does not exist in {group}{did_you_mean(kind, own or ())}")
        near = get_close_matches(group, self._kinds, n=1, cutoff=_NEAR_GROUP)
        # No other operator has a kind of the same name in a group below kubevirt.io.
        for other in self._kinds if is_of_kubevirt(group) else near:
            if kind in self._kinds[other]:
                versions = [*self._kinds[other][kind].versions]
                meant = f"{other}/{version if version in versions else versions[-1]}"
                what = f"{quote(f'{group}/{version}')} is not served for {kind}; did you mean"
                return FieldError(("apiVersion",), f"{what} {quote(meant)}?")
        return None

    def _with_release(self, kind: str, error: FieldError) -> FieldError:
        """The error; of a field that a newer release has with that release."""
        if not error.dropped or error.path[:1] != ("spec",):
            return error
        path = ".".join(each for each in error.path[1:] if isinstance(each, str))
        since = next((field.since for known, field in fields.table(kind) if known == path), None)
        if since is None or since <= self._release.version:
            return error
        text = f"unknown field {quote(format_path(error.path))}: KubeVirt {self._release} does not have it,"
        return error._replace(text=f"{text} KubeVirt {since.major}.{since.minor} does")


_UNSEEN: Final = (
    "validation rules (CEL) are not evaluated, and of KubeVirt's own webhooks only run strategies, selectors, metadata"
    " of templates, instancetypes and preferences"
)
# The kinds whose webhooks in virt-api compare objects with KubeVirt's API: what a VirtualMachinePool holds is compared
# once it is a VM.
_CHECKED_BY_VIRT_API: Final = frozenset(
    {
        *((names.KUBEVIRT_GROUP, kind) for kind in (fields.VIRTUAL_MACHINE, fields.VMI)),
        (names.KUBEVIRT_GROUP, "VirtualMachineInstanceReplicaSet"),
        (POOL_GROUP, POOL),
    }
)


# What the API server itself checks of every object.
_ROOT: Final[Json] = {"apiVersion": {"type": "string"}, "kind": {"type": "string"}, "metadata": _OPEN}


class _SchemaProps(msgspec.Struct, frozen=True, rename="camel"):
    """A structural schema with the types that its parts have (JSONSchemaProps of apiextensions.k8s.io/v1)."""

    type: str | None = None
    format: str | None = None
    pattern: str | None = None
    nullable: bool | None = None
    properties: dict[str, _SchemaProps] | None = None
    items: _SchemaProps | None = None
    additional_properties: bool | _SchemaProps | None = None
    required: list[str] | None = None
    enum: list[Any] | None = None
    minimum: int | float | None = None
    maximum: int | float | None = None
    min_length: int | None = None
    max_length: int | None = None
    min_items: int | None = None
    max_items: int | None = None
    list_map_keys: list[str] | None = msgspec.field(name="x-kubernetes-list-map-keys", default=None)


class _Validation(msgspec.Struct, frozen=True):
    schema: _SchemaProps | None = msgspec.field(name="openAPIV3Schema", default=None)


class _Version(msgspec.Struct, frozen=True):
    name: str
    served: bool = False
    validation: _Validation | None = msgspec.field(name="schema", default=None)


class _Names(msgspec.Struct, frozen=True):
    kind: str


class _Spec(msgspec.Struct, frozen=True):
    group: str
    names: _Names
    versions: list[_Version]
    scope: str = ""


class _Definition(msgspec.Struct, frozen=True):
    spec: _Spec


def _require_definition(definition: Json) -> None:
    try:
        msgspec.convert(definition, _Definition)
    except msgspec.ValidationError as error:
        name = (definition.get("metadata") or {}).get("name") or ""
        raise InputError(f"is not a CustomResourceDefinition: {error}", f"CustomResourceDefinition {name}") from None


def is_of_kubevirt(group: str) -> bool:
    """Whether an API group is one of KubeVirt's."""
    return group == names.KUBEVIRT_GROUP or group.endswith(f".{names.KUBEVIRT_GROUP}")


def did_you_mean(word: str, candidates: Iterable[str], cutoff: float = _NEAR) -> str:
    """A clause with the candidate that a mistyped word may stand for; empty where none is near."""
    by_lower = {each.lower(): each for each in candidates}
    near = get_close_matches(word.lower(), by_lower, n=1, cutoff=cutoff)
    return f"; did you mean {quote(by_lower[near[0]])}?" if near else ""


def check_metadata(obj: Json, namespaced: bool) -> Iterator[FieldError]:
    """What the API server checks of the metadata of every object (apimachinery, pkg/api/validation)."""
    metadata = obj.get("metadata")
    if not isinstance(metadata, dict):
        yield FieldError(("metadata",), "metadata must be an object with a name")
        return
    malformed = [*islice(check_structure(_METADATA, metadata, ("metadata",)), _MOST_ERRORS)]
    yield from malformed
    if malformed:
        return
    name, prefix = metadata.get("name") or "", metadata.get("generateName") or ""
    if name:
        yield from _check_name(name, ("metadata", "name"))
    elif prefix:
        yield from _check_name(prefix.rstrip("-") + "x", ("metadata", "generateName"), shown=prefix)
    else:
        yield FieldError(("metadata", "name"), "metadata.name is missing")
    if namespaced and (namespace := metadata.get("namespace")) and not is_name(namespace):
        yield FieldError(("metadata", "namespace"), f"{quote(namespace)} is not a valid namespace name")
    if not namespaced and metadata.get("namespace"):
        yield FieldError(("metadata", "namespace"), f"{obj['kind']} is cluster-wide: remove metadata.namespace")
    for key, value in (metadata.get("labels") or {}).items():
        problem = key_problem(key) or value_problem(value or "")
        if problem:
            yield FieldError(("metadata", "labels", key), f"label {quote(key)}: {quote(value or '')} {problem}")
    annotations = metadata.get("annotations") or {}
    for key in annotations:
        if problem := key_problem(key.lower()):
            yield FieldError(("metadata", "annotations", key), f"annotation key {quote(key)} {problem}")
    size = sum(len(key.encode()) + len((value or "").encode()) for key, value in annotations.items())
    if size > _MOST_ANNOTATIONS_BYTES:
        yield FieldError(("metadata", "annotations"), "the annotations have more than 256 KiB together")


def _check_name(name: str, path: Path, *, shown: str = "") -> Iterator[FieldError]:
    if not is_name(name):
        what = "lower-case letters, digits, '-' and '.', with a letter or digit first and last, at most 253 characters"
        yield FieldError(path, f"{quote(shown or name)} is not a valid name: use {what}")


def check_structure(
    schema: Json, value: Any, path: Path, unchecked: dict[str, None] | None = None, above: Above = ()
) -> Iterator[FieldError]:
    """What a structural schema denies in a value, with strict field validation.

    Args:
        schema: plain JSON.
        value: plain JSON.
        path: where the value is.
        unchecked: gets a sentence for each restriction that cannot be evaluated.
        above: the objects that hold the value, where misplaced fields may belong.
    """
    unchecked = {} if unchecked is None else unchecked
    if value is None:
        if not schema.get("nullable"):
            yield FieldError(path, f"{_name(path)} must be {_expected(schema)}, not null")
        return
    if not _has_type(schema, value):
        what = f"{_name(path)} is {_typed(value)}, but must be {_expected(schema)}"
        yield FieldError(path, what + _remedy(schema, value))
        return
    yield from _check_value(schema, value, path, unchecked)
    if isinstance(value, dict):
        yield from _check_object(schema, value, path, unchecked, above)
    elif isinstance(value, list) and isinstance(items := schema.get("items"), dict):
        for index, item in enumerate(value):
            yield from check_structure(items, item, (*path, index), unchecked, above)


def _check_object(
    schema: Json, value: Json, path: Path, unchecked: dict[str, None], above: Above
) -> Iterator[FieldError]:
    properties: Json = schema.get("properties") or {}
    here = ((path, properties), *above)
    additional = schema.get("additionalProperties")
    is_open = bool(schema.get(_PRESERVES)) or additional is True
    absent = set()
    for key, item in value.items():
        below = properties.get(key)
        if below is None and isinstance(additional, dict):
            below = additional
        if below is None:
            if not is_open:
                hint = _place_of(key, here) or did_you_mean(key, properties)
                text = f"unknown field {quote(format_path((*path, key)))}{hint}"
                yield FieldError((*path, key), text, dropped=True)
        elif item is None and not below.get("nullable"):
            # The API server drops such a null, and defaults the field where the schema has a default.
            absent.add(key)
        else:
            yield from check_structure(below, item, (*path, key), unchecked, here)
    for key in schema.get("required") or ():
        if (key not in value or key in absent) and "default" not in (properties.get(key) or {}):
            yield FieldError((*path, key), f"{format_path((*path, key))} is required")


def _place_of(key: str, holders: Above) -> str:
    """A clause with the place to which a field that is unknown in the nearest holder belongs; empty: none is known."""
    path, properties = holders[0]
    places = _places_below(key, properties)
    if len(places) > 1:
        # Which of them is meant is not known.
        return ""
    if not places:
        higher = next((each for each, fields in holders[1:] if key in fields), None)
        if higher is not None:
            return f"; did you mean {quote(format_path((*higher, key)))}?"
        places = _places_by_words(key, properties)
    named = " or ".join(quote(format_path((*path, *place))) for place in places)
    return f"; did you mean {named}?" if named else ""


def _places_below(key: str, properties: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """Where fields of this name are deeper in an object, as paths below it, those of the least depth."""
    level: list[tuple[tuple[str, ...], Json]] = [((name,), schema) for name, schema in properties.items()]
    for _ in range(_DEEPEST_HINT):
        level = [((*path, name), each) for path, schema in level for name, each in _fields(schema)]
        if found := [path for path, _ in level if path[-1] == key]:
            return found
    return []


def _places_by_words(key: str, properties: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """The fields that a name stands for which is put together of an object's and the end of a field's in it.

    ``templateFilters`` stands for ``template.annotationFilters`` and ``template.labelFilters``.
    """
    return [
        (name, field)
        for name, schema in properties.items()
        if key.startswith(name) and (rest := key.removeprefix(name)) and rest[0].isupper()
        for field, _ in _fields(schema)
        if field.lower() == rest.lower() or field.endswith(rest)
    ]


def _fields(schema: Json) -> Iterable[tuple[str, Json]]:
    properties: Json = schema.get("properties") or {}
    return properties.items()


def _denied_by_virt_api(kind: str, errors: Iterable[FieldError]) -> Iterator[FieldError]:
    """What virt-api denies of the errors in open objects of a kind."""
    for error in errors:
        text = error.text
        if kind == POOL:
            # Of this metadata virt-controller takes labels and annotations alone.
            if error.dropped and error.path[:3] == ("spec", "virtualMachineTemplate", "metadata"):
                continue
            # virt-api compares the pool's VMs, not the pool.
            text = f"its VMs are denied: {text.replace('spec.virtualMachineTemplate.', '', 1)}"
        yield error._replace(text=text, by=VIRT_API, dropped=False)


def _denied_by_admitters(kind: str, obj: Json, rules: Rules) -> Iterator[FieldError]:
    """What virt-api denies of an object that its schema allows."""
    try:
        causes = causes_of(kind, obj, rules)
    except InputError:
        # A schema of another release allows what cannot be read by this one.
        return
    for cause in causes:
        yield FieldError(tuple(cause.field.split(".")), cause.what.removesuffix("."), by=VIRT_API)


def check_open_objects(schema: Json, value: Any, path: Path = ()) -> Iterator[FieldError]:
    """What KubeVirt's API does not have in those objects that a schema leaves open: metadata of templates, the clock.

    Go drops unknown fields and nulls when it reads them; virt-api denies them before.
    """
    if isinstance(value, list):
        for index, item in enumerate(value):
            yield from check_open_objects(schema.get("items") or {}, item, (*path, index))
        return
    if not isinstance(value, dict):
        return
    properties: Json = schema.get("properties") or {}
    if schema.get(_PRESERVES) and path[-1:] == ("metadata",):
        yield from (_as_forbidden(each) for each in check_structure(_METADATA, value, path))
        yield from _check_nulls(_METADATA, value, path)
    elif schema.get(_PRESERVES) and properties:
        yield from (_as_forbidden(each) for each in check_structure({"properties": properties}, value, path))
    else:
        for key, item in value.items():
            yield from check_open_objects(properties.get(key) or {}, item, (*path, key))


def _check_nulls(schema: Json, value: Any, path: Path) -> Iterator[FieldError]:
    """The nulls that virt-api denies in metadata, of which the API server drops none; Go itself would."""
    if isinstance(value, list):
        for index, item in enumerate(value):
            yield from _check_nulls(schema.get("items") or {}, item, (*path, index))
    for key, item in value.items() if isinstance(value, dict) else ():
        below = (schema.get("properties") or {}).get(key) or schema.get("additionalProperties") or {}
        where = (*path, key)
        if item is None and below and where[-2:] != ("metadata", "creationTimestamp"):
            yield FieldError(where, f'{_in_body(where)} must be of type {below.get("type")}: "null"', dropped=True)
        yield from _check_nulls(below, item, where)


def _as_forbidden(error: FieldError) -> FieldError:
    """An error, an unknown field in the words of virt-api."""
    return error._replace(text=f"{_in_body(error.path)} is a forbidden property") if error.dropped else error


def _in_body(path: Path) -> str:
    """A path as virt-api has it: without the places in lists."""
    return f"{format_path([each for each in path if isinstance(each, str)])} in body"


def _check_value(schema: Json, value: Any, path: Path, unchecked: dict[str, None]) -> Iterator[FieldError]:
    """The restrictions of a value beside its type."""
    name = _name(path)
    if "enum" in schema and value not in schema["enum"]:
        values = ", ".join(str(each) for each in schema["enum"])
        yield FieldError(path, f"{name} has the invalid value {quote(_shown(value))}; use {values}")
    if isinstance(value, str):
        yield from _check_text(schema, value, path, unchecked)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        lowest, highest = _FORMATS.get(schema.get("format", ""), (None, None))
        for bound, sign in ((schema.get("minimum", lowest), -1), (schema.get("maximum", highest), 1)):
            if bound is not None and (value - bound) * sign > 0:
                side = "most" if sign > 0 else "least"
                yield FieldError(path, f"{name} is {_shown(value)}, but must be at {side} {bound}")
    elif isinstance(value, list):
        most = schema.get("maxItems")
        if most is not None and len(value) > most:
            yield FieldError(path, f"{name} has {len(value)} items, more than {most}")
        if len(value) < schema.get("minItems", 0):
            yield FieldError(path, f"{name} has {len(value)} items, fewer than {schema['minItems']}")
        yield from _check_duplicates(schema, value, path)


def _check_text(schema: Json, value: str, path: Path, unchecked: dict[str, None]) -> Iterator[FieldError]:
    name, pattern = _name(path), schema.get("pattern")
    if pattern:
        # That of quantities takes no more steps than the text has characters.
        is_match = _QUANTITIES.match(value) is not None if pattern == _QUANTITY else matches(pattern, value)
        if is_match is None:
            unchecked[f"not checked: whether {name} matches the pattern {pattern}"] = None
        elif not is_match:
            what = "a valid quantity, for example 2Gi" if pattern == _QUANTITY else f"a text that matches {pattern}"
            yield FieldError(path, f"{name} is {quote(value)}, but must be {what}")
    if not schema.get("minLength", 0) <= len(value) <= schema.get("maxLength", len(value)):
        yield FieldError(path, f"{name} has {len(value)} characters, which is too short or too long")
    try:
        is_time = schema.get("format") != "date-time" or datetime.fromisoformat(value).tzinfo is not None
    except ValueError:
        is_time = False
    if not is_time:
        yield FieldError(path, f"{name} is {quote(value)}, but must be a time, for example 2026-01-31T12:00:00Z")


def _check_duplicates(schema: Json, value: list[Any], path: Path) -> Iterator[FieldError]:
    """Items that a list of unique items has more than once."""
    kind, keys = schema.get("x-kubernetes-list-type"), schema.get("x-kubernetes-list-map-keys") or ()
    if kind not in ("set", "map"):
        return
    defaults = {key: each.get("default") for key, each in ((schema.get("items") or {}).get("properties") or {}).items()}
    seen = set()
    for index, item in enumerate(value):
        is_map = kind == "map" and isinstance(item, dict)
        identity = json.dumps([item.get(key, defaults.get(key)) for key in keys] if is_map else item, sort_keys=True)
        if identity in seen:
            yield FieldError((*path, index), f"{_name((*path, index))} is a duplicate")
        seen.add(identity)


def _has_type(schema: Json, value: Any) -> bool:
    if schema.get(_INT_OR_STRING):
        return isinstance(value, int | str) and not isinstance(value, bool)
    kind: str | None = schema.get("type")
    if not kind:
        return True
    if isinstance(value, bool):
        return kind == "boolean"
    if kind == "integer" and isinstance(value, float):
        return value.is_integer()
    return isinstance(value, _TYPES.get(kind, (object,)))


def _expected(schema: Json) -> str:
    if schema.get(_INT_OR_STRING):
        return "a number or a string"
    kind = str(schema.get("type") or "value")
    words = {"object": "an object", "array": "a list", "integer": "a whole number", "boolean": "true or false"}
    return words.get(kind, f"a {kind}")


def _shown(value: Any) -> str:
    """A value in a message; of a nested one only its type, which may hold secrets."""
    if isinstance(value, dict):
        return "an object"
    return "a list" if isinstance(value, list) else str(value).lower() if isinstance(value, bool) else str(value)


def _typed(value: Any) -> str:
    """A value in a message, with its type, which YAML has guessed where there are no quotes."""
    if isinstance(value, dict | list):
        return _shown(value)
    kind = "boolean" if isinstance(value, bool) else "string" if isinstance(value, str) else "number"
    return f"the {kind} {quote(value) if isinstance(value, str) else _shown(value)}"


def _remedy(schema: Json, value: Any) -> str:
    """What to do about a value of another type, where that is a matter of quotes; a clause."""
    kind = schema.get("type")
    if kind == "string" and isinstance(value, bool):
        # What was written is not known.
        others = '"on" or "yes"' if value else '"off" or "no"'
        return f"; write it in quotes: {quote(_shown(value))}, or {others} if you wrote that"
    if kind == "string" and isinstance(value, int | float):
        return f"; write it in quotes: {quote(_shown(value))}"
    if kind in ("boolean", "integer", "number") and isinstance(value, str) and _has_type(schema, plain(value or " ")):
        return "; write it without quotes"
    return ""


def _name(path: Path) -> str:
    return format_path(path) or "the object"


def _kinds_of(release: Release) -> dict[str, dict[str, KindSchema]]:
    """The kinds of a release by group and name, as its own definitions have them."""
    kinds: dict[str, dict[str, KindSchema]] = {}
    against = f"checked against KubeVirt {release}'s own CustomResourceDefinitions; {_UNSEEN}"
    for each in kinds_of(release.rules_version):
        known = kinds.setdefault(each.group, {}).get(each.kind)
        versions = {**(known.versions if known else {}), **dict.fromkeys(each.versions, each.schema)}
        kinds[each.group][each.kind] = KindSchema(versions, against, each.namespaced)
    return kinds


@lru_cache(maxsize=8)
def schemas_of(release: Release) -> Schemas:
    """The schemas of the CustomResourceDefinitions that a release installs."""
    return Schemas(_kinds_of(release), f"KubeVirt {release}'s own CustomResourceDefinitions", release)


def _schema(shape: structs.Shape) -> Json:
    """A Go type of metadata as a structural schema."""
    if isinstance(shape, structs.Struct):
        return {"type": "object", "properties": {name: _schema(each) for name, each in shape.fields.items()}}
    if isinstance(shape, structs.List):
        return {"type": "array", "items": _schema(shape.item)}
    if isinstance(shape, structs.Map):
        return {"type": "object", "additionalProperties": _schema(shape.item)}
    if isinstance(shape, structs.WholeNumber):
        return {"type": "integer"}
    if isinstance(shape, structs.Scalar) and shape.kept in (str, bool):
        return {"type": "string" if shape.kept is str else "boolean"}
    return _OPEN


_METADATA: Final[Json] = {
    "type": "object",
    "properties": {name: _schema(each) for name, each in METADATA.fields.items()},
}
_METADATA["properties"] |= {
    field: {"type": "object", "nullable": True, "additionalProperties": {"type": "string", "nullable": True}}
    for field in ("labels", "annotations")
}
_METADATA["properties"] |= {
    field: {"type": "string", "format": "date-time"} for field in ("creationTimestamp", "deletionTimestamp")
}

# A Status whose causes name no field has the fields in its message (apimachinery, runtime.NewStrictDecodingError).
_STRICT: Final = re.compile(r'((?:unknown|duplicate) field) "([^"]+)"')
_SEGMENT: Final = re.compile(r"\[(\d+)\]|\[\"?([^\]\"]+)\"?\]|([^.\[\]]+)")
_DRY_RUN: Final = {"dryRun": "All", "fieldValidation": "Strict"}
_OPTION: Final = "--server-dry-run"


class DryRunAnswer(NamedTuple):
    """What an API server says of an object.

    Attributes:
        errors: what it denies.
        existing: the object of that name that exists already; None: there is none.
        warnings: what kubectl would print.
    """

    errors: list[FieldError]
    existing: Json | None = None
    warnings: tuple[str, ...] = ()


class DryRun:
    """Asks a running API server to take objects, without storing them.

    All that it does with an object happens: validation, defaults, webhooks, admission policies and quotas. An object
    that exists is patched as ``kubectl apply`` patches it, but for fields that the manifest no longer has.

    Args:
        connection: as the user who would apply the objects.
    """

    def __init__(self, connection: Requests) -> None:
        self._connection: Final = connection
        self._kinds: Final[dict[str, Mapping[str, Json]]] = {}

    async def ask(self, obj: Json, namespace: str) -> DryRunAnswer:
        """What the API server says of an object, in a namespace if it names none.

        Raises:
            InputError: the API server does not answer, or the user may not do what the dry run does.
        """
        version, kind = str(obj["apiVersion"]), str(obj["kind"])
        kinds = await self._served(version)
        if kind not in kinds:
            return DryRunAnswer(
                [FieldError(("apiVersion",), f"the cluster does not serve {quote(kind)} of {quote(version)}")]
            )
        metadata, resource = obj.get("metadata"), kinds[kind]
        metadata = metadata if isinstance(metadata, dict) else {}
        name, inside = metadata.get("name") or "", metadata.get("namespace") or namespace
        if not resource.get("namespaced"):
            inside = ""
        elif not isinstance(inside, str) or not is_segment(inside):
            return DryRunAnswer(
                [FieldError(("metadata", "namespace"), f"{quote(str(inside))} can't be the name of a namespace")]
            )
        existing = None
        # A name that no object can have is left to the API server, whose answer names the rule that it breaks.
        if isinstance(name, str) and is_segment(name):
            status, body = await self._request("GET", object_path(version, resource["name"], inside, name))
            existing = msgspec.json.decode(body) if status == 200 else None
        path, warnings = object_path(version, resource["name"], inside, name if existing else ""), list[str]()
        request: tuple[Any, ...] = ("POST", path, _DRY_RUN, obj)
        if existing:
            request = ("PATCH", path, _DRY_RUN, applied(obj, existing), "application/merge-patch+json")
        status, body = await self._request(*request, warnings=warnings)
        if status == 409 and isinstance(name, str) and not existing:
            # Whoever may not read an object is not told by that answer that it exists; by this one, so.
            what = f"{kind} {quote(name)} exists, and your user may not read it, as a dry run of its update must"
            raise InputError(what, _OPTION, f"grant get and patch on {resource['name']}, or leave the option out")
        errors = [] if status < 300 else self._denials(status, decode_status(body))
        return DryRunAnswer(errors, existing, tuple(map(scrub_prose, warnings)))

    async def _served(self, version: str) -> Mapping[str, Json]:
        """The resources of a version by their kind; empty where the cluster does not serve it."""
        if not all(map(is_segment, version.split("/", 1))):
            return {}
        if version not in self._kinds:
            status, body = await self._request("GET", version_path(version))
            if status not in (200, 404):
                raise _no_answer(status, decode_status(body))
            listed = (msgspec.json.decode(body).get("resources") or ()) if status == 200 else ()
            self._kinds[version] = {each["kind"]: each for each in listed if "/" not in each["name"]}
        return self._kinds[version]

    async def _request(self, *request: Any, warnings: list[str] | None = None) -> tuple[int, bytes]:
        try:
            return await self._connection.request(*request, warnings=warnings)
        except ApiConnectionError as error:
            raise InputError(f"the API server does not answer: {error.why}", _OPTION) from error

    def _denials(self, status: int, answer: ApiStatus) -> list[FieldError]:
        """What an answer other than success says of the object."""
        text = scrub_prose(answer.text)
        if status == 403 and answer.reason == "Forbidden" and not answer.is_of_admission and "cannot" in text:
            what = f"your user may not do what the dry run does, so nothing is known of the object: {text}"
            raise InputError(what, _OPTION, "get the permission, or leave the option out")
        causes = [each for each in (answer.details and answer.details.causes) or () if each.field and each.message]
        if answer.is_of_admission or status == 403:
            return [FieldError(_parse_field(causes[0].field or "") if causes else (), text, common.DRY_RUN_DENIED)]
        if status == 404:
            return [FieldError(("metadata", "namespace"), text)]
        if status not in (400, 422):
            raise _no_answer(status, answer)
        errors = [
            *(
                FieldError(_parse_field(each.field or ""), scrub_prose(f"{each.field}: {each.message}"))
                for each in causes
            ),
            *(FieldError(_parse_field(field), f"{what} {quote(field)}") for what, field in _STRICT.findall(text)),
        ]
        return list(dict.fromkeys(errors)) or [FieldError((), text)]


def _no_answer(status: int, answer: ApiStatus) -> InputError:
    return InputError(f"the API server answers status {status}: {scrub_prose(answer.text)}", _OPTION)


def _parse_field(field: str) -> Path:
    return tuple(int(index) if index else key or word for index, key, word in _SEGMENT.findall(field))


def applied(manifest: Json, existing: Json) -> Json:
    """The JSON merge patch to which ``kubectl apply`` of a manifest comes, for the object that exists.

    What the manifest of the last apply had, and this one has not, is removed. Without a record of one nothing is. The
    patch has the record of this apply, by which what the manifest declares is its owner's.
    """
    text = (existing["metadata"].get("annotations") or {}).get(LAST_APPLIED)
    try:
        last = msgspec.json.decode(text) if isinstance(text, str) else None
    except (msgspec.DecodeError, RecursionError):
        last = None
    patch = _without_removed(last, _with_record(manifest))
    metadata = patch.get("metadata")
    if isinstance(metadata, dict):
        # A manifest need not name what the command line does.
        patch["metadata"] = {key: each for key, each in metadata.items() if key != "namespace" or each is not None}
    return patch


def _with_record(manifest: Json) -> Json:
    """A manifest with the annotation that kubectl writes: the manifest itself, which has annotations, if empty ones."""
    metadata = manifest.get("metadata")
    if not isinstance(metadata, dict) or not isinstance(metadata.get("annotations") or {}, dict):
        return manifest
    own = {key: each for key, each in (metadata.get("annotations") or {}).items() if key != LAST_APPLIED}
    record = json.dumps({**manifest, "metadata": {**metadata, "annotations": own}}, separators=(",", ":"))
    return {**manifest, "metadata": {**metadata, "annotations": {**own, LAST_APPLIED: record}}}


def _without_removed(last: Any, manifest: Json) -> Json:
    """A manifest, with nulls for the fields that the last one had."""
    before = last if isinstance(last, dict) else {}
    removed: Json = {key: None for key in before if key not in manifest}
    kept = {
        key: _without_removed(before.get(key), each) if isinstance(each, dict) else each
        for key, each in manifest.items()
    }
    return removed | kept


def merge_patch(value: Any, patch: Any) -> Any:
    """A value after a JSON merge patch (RFC 7386); the arguments stay as they are."""
    if not isinstance(patch, dict):
        return patch
    merged = dict(value) if isinstance(value, dict) else {}
    for key, item in patch.items():
        if item is None:
            merged.pop(key, None)
        else:
            merged[key] = merge_patch(merged.get(key), item)
    return merged
