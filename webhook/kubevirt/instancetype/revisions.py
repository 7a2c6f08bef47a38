"""ControllerRevisions, in which virt-controller captures instancetypes and preferences (KubeVirt, pkg/instancetype)."""

from __future__ import annotations

import re
from typing import Any, Final

from webhook import names
from webhook.k8s import quantity
from webhook.k8s.types.meta import ObjectMeta
from webhook.kubevirt.go_json.structs import FREE, STRING, Json, Struct, Value, copy_json, decode, encode
from webhook.kubevirt.instancetype.alpha_revisions import VERSIONS, read_spec_revision, shape_of
from webhook.kubevirt.rejection import Rejection
from webhook.kubevirt.releases.capabilities import READS_ALPHA_REVISIONS
from webhook.kubevirt.rules import NEWEST, Rules
from webhook.kubevirt.types.core import METADATA

PREFIX: Final = "instancetype.kubevirt.io/"
API_VERSION: Final = "instancetype.kubevirt.io/v1beta1"
VERSION: Final = "v1beta1"
_UNREADABLE: Final = "failed to decode object in ControllerRevision: "
# Where KubeVirt's client makes its scheme, which is the name that users see.
_SCHEME: Final = '"pkg/runtime/scheme.go:110"'
# What a stored object doesn't keep of its metadata.
_DROPPED: Final = ("labels", "annotations", "finalizers", "ownerReferences", "managedFields")
_REVISION: Final = Struct(metadata=Value(METADATA), data=FREE)
_TYPED: Final = Struct(apiVersion=STRING, kind=STRING)
_KNOWN_VERSION: Final = re.compile(rf"{re.escape(PREFIX)}v[0-9]{{1,3}}((alpha|beta)[0-9]{{1,3}})?")
KINDS: Final = frozenset(
    f"VirtualMachine{scope}{name}" for scope in ("", "Cluster") for name in ("Instancetype", "Preference")
)
_CONTROLLERS: Final = frozenset(
    {(names.KUBEVIRT_GROUP, "VirtualMachine"), (names.SNAPSHOT_GROUP, "VirtualMachineSnapshot")}
)


def owner_reference(vm: Json) -> Json:
    """The owner reference by which a VM controls what virt-controller makes for it."""
    metadata = vm["metadata"]
    return {
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachine",
        "name": metadata.get("name", ""),
        "uid": metadata.get("uid", ""),
        "controller": True,
        "blockOwnerDeletion": True,
    }


def capture(vm: Json, captured: Json, rules: Rules = NEWEST) -> Json:
    """The revision that virt-controller stores for a VM: the live instancetype or preference with its kind, decoded."""
    metadata, kind = captured["metadata"], captured["kind"]
    parts = (vm["metadata"].get("name"), metadata.get("name"), VERSION, metadata.get("uid"))
    labels = {
        "object-generation": str(metadata.get("generation", 0)),
        "object-kind": kind,
        "object-name": metadata.get("name", ""),
        "object-uid": metadata.get("uid", ""),
        "object-version": VERSION,
    }
    kept = {key: value for key, value in metadata.items() if key not in _DROPPED}
    return {
        "metadata": {
            "name": "-".join([*(part or "" for part in parts), str(metadata.get("generation", 0))]),
            "namespace": vm["metadata"].get("namespace", ""),
            "labels": {f"{PREFIX}{key}": value for key, value in labels.items()},
            "ownerReferences": [owner_reference(vm)],
        },
        "data": encode(rules.by_kind[kind], {**captured, "apiVersion": API_VERSION, "metadata": kept}),
        "revision": 0,
    }


def label(revision: Any, name: str = "object-name") -> str | None:
    """What a revision, plain JSON, says in a label of KubeVirt's, by default what it captured; None: it says nothing.

    Raises:
        InputError: the revision is malformed.
    """
    labels: dict[str, str] = decode(_REVISION, revision)["metadata"].get("labels", {})
    return labels.get(f"{PREFIX}{name}")


def payload(revision: Any, shape: Struct, rules: Rules = NEWEST) -> Json:
    """The instancetype or preference in a revision, plain JSON, decoded: that of the expected type of the rules'.

    Raises:
        Rejection: it holds something else.
        InputError: it is malformed.
    """
    read = content(revision, rules)
    if read is None or rules.by_kind[read["kind"]] is not shape:
        actual = "<nil>" if read is None else f"*v1beta1.{read['kind']}"
        raise Rejection(f"unexpected type in ControllerRevision: {actual}")
    return read


def content(revision: Any, rules: Rules = NEWEST) -> Json | None:
    """The instancetype or preference, whichever it is, in a revision, decoded; None for nothing at all.

    KubeVirt's own message quotes all that a revision holds. A message here quotes none of it: a user who may name a
    revision need not be allowed to read it, nor others who see the message.

    Raises:
        Rejection: it holds something else.
        InputError: it is malformed.
    """
    read = decode(_REVISION, revision)
    where = f"ControllerRevision {read['metadata'].get('name', '')}"
    data = read.get("data")
    if data is None:
        return None
    if rules.has(READS_ALPHA_REVISIONS) and isinstance(data, dict):
        kind, version = data.get("kind"), data.get("apiVersion")
        if version in VERSIONS and isinstance(kind, str) and kind in rules.by_kind:
            return decode(shape_of(kind, version, rules), data, where, quoting=False)
        if (older := read_spec_revision(data, rules)) is not None:
            return older
    typed = decode(_TYPED, data, where)
    kind, version = typed.get("kind", ""), typed.get("apiVersion", "")
    missing = "" if kind and version else "apiVersion" if kind else "Kind"
    if missing:
        raise Rejection(f"{_UNREADABLE}Object '{missing}' is missing")
    if kind not in rules.by_kind or (version != API_VERSION and not _KNOWN_VERSION.fullmatch(version)):
        raise Rejection(f"{_UNREADABLE}it is not an instancetype or preference")
    if version != API_VERSION:
        raise Rejection(f'{_UNREADABLE}no kind "{kind}" is registered for version "{version}" in scheme {_SCHEME}')
    return decode(rules.by_kind[kind], data, where, quoting=False)


def holds(revision: Any, made: Json, rules: Rules = NEWEST) -> bool:
    """Whether a stored revision, plain JSON, holds the same spec as one that `capture` has made.

    Quantities are compared by value, as in KubeVirt.

    Raises:
        Rejection: it holds nothing, or something that KubeVirt cannot decode.
        InputError: it is malformed.
    """
    read = content(revision, rules)
    if read is None:
        raise Rejection("unexpected type: <nil>")
    # Both scopes have the same type of spec.
    shape, expected = rules.by_kind[read["kind"]], made["data"]
    if rules.by_kind[expected["kind"]] is not shape:
        return False
    return _by_value(encode(shape, read)["spec"]) == _by_value(expected["spec"])


def _by_value(spec: Json) -> Json:
    """A spec with amounts of memory as numbers."""
    compared: Json = copy_json(spec)
    for memory in (compared.get("memory", {}), compared.get("requirements", {}).get("memory", {})):
        memory.update({name: quantity.parse(memory[name]).nanos for name in ("guest", "maxGuest") if name in memory})
    return compared


def is_captured(meta: ObjectMeta, kind: object, api_version: object) -> bool:
    """Whether a ControllerRevision holds an instancetype or preference that KubeVirt captured.

    A foreign controller decides against it, whatever the labels say: a DaemonSet's revisions carry the labels of its
    pod template. A VM controls revisions of another content too, which hold its own spec: the data has to say its kind.
    ``kind`` and ``apiVersion`` of the data may be any JSON.
    """
    if not isinstance(kind, str) or kind not in KINDS:
        return False
    if not isinstance(api_version, str) or api_version.partition("/")[0] != names.INSTANCETYPE_GROUP:
        return False
    controller = meta.controller_owner()
    if controller is not None:
        return (controller.group, controller.kind) in _CONTROLLERS
    return bool(meta.label(names.REVISION_OBJECT_NAME_LABEL)) and meta.label(names.REVISION_OBJECT_KIND_LABEL) == kind
