"""ControllerRevisions: how virt-controller stores the instancetypes and preferences that VMs were started with.

A VM keeps the state of its instancetype from the day on which it was captured (KubeVirt, pkg/instancetype/revision).
"""

from __future__ import annotations

import re
from typing import Any, Final

from webhook.k8s import quantity
from webhook.kubevirt.go_json.containers import FREE
from webhook.kubevirt.go_json.structs import (
    STRING,
    Json,
    Struct,
    Value,
    copy_json,
    decode,
    encode,
)
from webhook.kubevirt.instancetype.conflict import Rejection
from webhook.kubevirt.releases.capabilities import READS_ALPHA_REVISIONS
from webhook.kubevirt.rules import NEWEST, Rules
from webhook.kubevirt.types import alpha
from webhook.kubevirt.types.core import METADATA

PREFIX: Final = "instancetype.kubevirt.io/"
OBJECT_NAME_LABEL: Final = f"{PREFIX}object-name"
API_VERSION: Final = "instancetype.kubevirt.io/v1beta1"
_VERSION: Final = "v1beta1"
_VERSION_LABEL: Final = f"{PREFIX}object-version"
_UNREADABLE: Final = "failed to decode object in ControllerRevision: "
# Where KubeVirt's client makes its scheme, which is the name that users see.
_SCHEME: Final = '"pkg/runtime/scheme.go:110"'
# What a stored object doesn't keep of its metadata.
_DROPPED: Final = ("labels", "annotations", "finalizers", "ownerReferences", "managedFields")
_REVISION: Final = Struct(metadata=Value(METADATA), data=FREE)
_TYPED: Final = Struct(apiVersion=STRING, kind=STRING)
_KNOWN_VERSION: Final = re.compile(rf"{re.escape(PREFIX)}v[0-9]{{1,3}}((alpha|beta)[0-9]{{1,3}})?")


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


def name(vm: Json, captured: Json) -> str:
    """The name of the revision that captures an instancetype or preference for a VM."""
    metadata = captured["metadata"]
    parts = (vm["metadata"].get("name"), metadata.get("name"), _VERSION, metadata.get("uid"))
    return "-".join([*(part or "" for part in parts), str(metadata.get("generation", 0))])


def capture(vm: Json, captured: Json, rules: Rules = NEWEST) -> Json:
    """The revision that virt-controller stores.

    Args:
        vm: the VM that owns the revision, decoded.
        captured: the live instancetype or preference, decoded, with its kind.
        rules: the rules of the release that stores it.
    """
    metadata, kind = captured["metadata"], captured["kind"]
    labels = {
        "object-generation": str(metadata.get("generation", 0)),
        "object-kind": kind,
        "object-name": metadata.get("name", ""),
        "object-uid": metadata.get("uid", ""),
        "object-version": _VERSION,
    }
    kept = {key: value for key, value in metadata.items() if key not in _DROPPED}
    return {
        "metadata": {
            "name": name(vm, captured),
            "namespace": vm["metadata"].get("namespace", ""),
            "labels": {f"{PREFIX}{key}": value for key, value in labels.items()},
            "ownerReferences": [owner_reference(vm)],
        },
        "data": encode(rules.types.by_kind[kind], {**captured, "apiVersion": API_VERSION, "metadata": kept}),
        "revision": 0,
    }


def label(revision: Any) -> str | None:
    """The name of the object that a revision says it captured; None where it does not say.

    Raises:
        InputError: the revision is malformed.
    """
    labels: dict[str, str] = decode(_REVISION, revision)["metadata"].get("labels", {})
    return labels.get(OBJECT_NAME_LABEL)


def latest(revision: Any) -> bool:
    """Whether a revision is labeled with the API version v1beta1, the newest one.

    Args:
        revision: plain JSON.

    Raises:
        InputError: the revision is malformed.
    """
    labels = decode(_REVISION, revision)["metadata"].get("labels", {})
    return bool(labels.get(_VERSION_LABEL) == _VERSION)


def payload(revision: Any, shape: Struct, rules: Rules = NEWEST) -> Json:
    """The instancetype or preference in a revision, decoded.

    Args:
        revision: plain JSON.
        shape: the expected type, one of the rules'.
        rules: the rules of the release that reads the revision.

    Raises:
        Rejection: it holds something else.
        InputError: it is malformed.
    """
    read = content(revision, rules)
    if read is None or rules.types.by_kind[read["kind"]] is not shape:
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
    older = _older(data, where, rules)
    if older is not None:
        return older
    typed = decode(_TYPED, data, where)
    kind, version = typed.get("kind", ""), typed.get("apiVersion", "")
    missing = "" if kind and version else "apiVersion" if kind else "Kind"
    if missing:
        raise Rejection(f"{_UNREADABLE}Object '{missing}' is missing")
    if kind not in rules.types.by_kind or (version != API_VERSION and not _KNOWN_VERSION.fullmatch(version)):
        raise Rejection(f"{_UNREADABLE}it is not an instancetype or preference")
    if version != API_VERSION:
        raise Rejection(f'{_UNREADABLE}no kind "{kind}" is registered for version "{version}" in scheme {_SCHEME}')
    return decode(rules.types.by_kind[kind], data, where, quoting=False)


def _older(data: Any, where: str, rules: Rules) -> Json | None:
    """What a revision holds of an API version before v1beta1, converted; None: nothing that the release could read."""
    if not rules.has(READS_ALPHA_REVISIONS) or not isinstance(data, dict):
        return None
    kind, version = data.get("kind"), data.get("apiVersion")
    if version in alpha.VERSIONS and isinstance(kind, str) and kind in rules.types.by_kind:
        return decode(alpha.shape_of(kind, version, rules.types), data, where, quoting=False)
    return alpha.read_spec_revision(data, rules.types)


def holds(revision: Any, made: Json, rules: Rules = NEWEST) -> bool:
    """Whether a stored revision holds the same spec as one that would be created.

    Quantities are compared by value, as in KubeVirt.

    Args:
        revision: the stored revision, plain JSON.
        made: the revision that `capture` returned.
        rules: the rules of the release that reads the revision.

    Raises:
        Rejection: it holds nothing, or something that KubeVirt cannot decode.
        InputError: it is malformed.
    """
    read = content(revision, rules)
    if read is None:
        raise Rejection("unexpected type: <nil>")
    # Both scopes have the same type of spec.
    shape, expected = rules.types.by_kind[read["kind"]], made["data"]
    if rules.types.by_kind[expected["kind"]] is not shape:
        return False
    return _by_value(encode(shape, read)["spec"]) == _by_value(expected["spec"])


def _by_value(spec: Json) -> Json:
    """A spec with amounts of memory as numbers."""
    compared: Json = copy_json(spec)
    for memory in (compared.get("memory", {}), compared.get("requirements", {}).get("memory", {})):
        memory.update({name: quantity.parse(memory[name]).nanos for name in ("guest", "maxGuest") if name in memory})
    return compared
