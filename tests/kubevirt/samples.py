"""Objects as users write them, for the tests of KubeVirt's rules."""

from __future__ import annotations

from collections.abc import Iterable
from copy import deepcopy
from typing import Any

from hypothesis import strategies as st

from webhook.kubevirt.go_json.structs import Json, decode, encode
from webhook.kubevirt.instancetype.apply import apply_instancetype
from webhook.kubevirt.rejection import TEMPLATE_BASE, Cause, Conflicts, Get
from webhook.kubevirt.types.core import INSTANCETYPE, PREFERENCE, VMI_SPEC

GROUP = "instancetype.kubevirt.io/v1beta1"


def vm(template: Json | None = None, **spec: Any) -> Json:
    return {
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachine",
        "metadata": {"name": "vm", "namespace": "demo", "uid": "vm-uid"},
        "spec": {"template": {"spec": {"domain": {}, **(template or {})}}, **spec},
    }


def instancetype(kind: str = "VirtualMachineClusterInstancetype", name: str = "u1", **spec: Any) -> Json:
    metadata = {"name": name, "uid": "u", "generation": 1}
    if "Cluster" not in kind:
        metadata["namespace"] = "demo"
    wanted = {"cpu": {"guest": 2}, "memory": {"guest": "4Gi"}, **spec}
    return {"apiVersion": GROUP, "kind": kind, "metadata": metadata, "spec": wanted}


def preference(kind: str = "VirtualMachineClusterPreference", name: str = "linux", **spec: Any) -> Json:
    return {**instancetype(kind, name), "spec": spec}


def revision(name: str, captured: Any, label: str | None = None) -> Json:
    labels = {"instancetype.kubevirt.io/object-version": "v1beta1"}
    if label is not None:
        labels["instancetype.kubevirt.io/object-name"] = label
    metadata = {"name": name, "namespace": "demo", "labels": labels}
    return {"apiVersion": "apps/v1", "kind": "ControllerRevision", "metadata": metadata, "data": captured}


def applied(
    template: Json, wanted: Json | None = None, preferred: Json | None = None, annotations: dict[str, str] | None = None
) -> tuple[Json, list[Cause]]:
    """A template's spec after an instancetype's and a preference's specs were applied, and the conflicts."""
    spec = decode(VMI_SPEC, deepcopy(template))
    size = None if wanted is None else decode(INSTANCETYPE, instancetype(**wanted))["spec"]
    wishes = None if preferred is None else decode(PREFERENCE, preference(**preferred))["spec"]
    conflicts: list[Cause] = []
    try:
        apply_instancetype(size, wishes, spec, {} if annotations is None else annotations, TEMPLATE_BASE)
    except Conflicts as rejection:
        conflicts += rejection.conflicts
    return encode(VMI_SPEC, spec), conflicts


def among(objects: Iterable[Any]) -> Get:
    """Look-ups in a collection of plain objects; among several with one name, the last counts.

    Args:
        objects: plain JSON, each with its ``kind``.
    """
    known = {}
    for item in objects:
        metadata = item.get("metadata") or {}
        known[item.get("kind"), metadata.get("namespace") or "", metadata.get("name")] = item

    def get(kind: str, namespace: str, name: str) -> Json | None:
        return known.get((kind, namespace, name))

    return get


# -- objects that no API server would store ----------------------------------------------------------------------------

NAMES = ["name", "kind", "spec", "cpu", "guest", "memory", "disks", "devices", "annotations", "bus", "x"]
scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    # JSON knows neither NaN nor infinity.
    st.floats(allow_nan=False, allow_infinity=False),
    st.sampled_from([-1, 2**32, 2**63, 10**400, "1Gi", "-5", "1e5", ""]),
    st.text(max_size=5),
)
flat = scalars | st.lists(scalars, max_size=2) | st.dictionaries(st.sampled_from(NAMES), scalars, max_size=2)
anything = flat | st.lists(flat, max_size=2) | st.dictionaries(st.sampled_from(NAMES), flat, max_size=2)
WHOLE = vm(
    {
        "architecture": "amd64",
        "volumes": [{"name": "v", "dataVolume": {"name": "d"}}],
        "networks": [{"name": "n", "pod": {}}],
        "domain": {
            "cpu": {"features": [{"name": "f"}]},
            "features": {"hyperv": {"evmcs": {}}},
            "devices": {"disks": [{"name": "d"}], "interfaces": [{"name": "n"}], "inputs": [{"name": "i"}]},
            "clock": {"timer": {"hpet": {}}},
            "resources": {"requests": {"x": "1"}},
        },
        "livenessProbe": {"exec": {"command": ["a"]}},
    },
    instancetype={"name": "u1"},
    preference={"name": "linux"},
    dataVolumeTemplates=[{"metadata": {"name": "d"}, "spec": {"sourceRef": {"kind": "DataSource", "name": "s"}}}],
)


def replaced(value: Any, data: st.DataObject, new: Any) -> Any:
    """A copy of a value with one of its parts replaced."""
    if not isinstance(value, dict | list) or not value or data.draw(st.integers(0, 6)) == 0:
        return new
    key = data.draw(st.sampled_from(sorted(value) if isinstance(value, dict) else range(len(value))))
    copy: Any = value.copy()
    copy[key] = replaced(value[key], data, new)
    return copy


def deep(levels: int = 10_000) -> list[Any]:
    value: list[Any] = []
    for _ in range(levels):
        value = [value]
    return value
