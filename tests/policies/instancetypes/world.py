"""Objects of a small cluster for the tests of this policy, and its decisions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from tests.builders import Json, changed, installed, known, review
from tests.kubevirt import samples
from tests.policies.decisions import evaluate
from webhook.admission.decision import Decision
from webhook.errors import Unavailable
from webhook.facts import Facts, Key, KubeVirtKey, ListKey, ObjectKey
from webhook.k8s.types.meta import Unstructured
from webhook.kubevirt.config import DEFAULTS, ClusterConfig
from webhook.kubevirt.resources import PRESETS, UNSTRUCTURED
from webhook.policies.instancetypes.settings import InstancetypeSettings

IT_MARK = ("metadata", "annotations", "kubevirt-webhook.github.io/injected-instancetype")
PREF_MARK = ("metadata", "annotations", "kubevirt-webhook.github.io/injected-preference")
SMALL = {"name": "u1.small"}
FEDORA = {"name": "fedora"}
SMALL_MARK = "VirtualMachineClusterInstancetype/u1.small"
FEDORA_MARK = "VirtualMachineClusterPreference/fedora"


def instancetype(name: str = "u1.small", kind: str = "VirtualMachineClusterInstancetype", **spec: Any) -> Json:
    """An instancetype of 2 vCPUs and 4Gi; keywords go to its spec."""
    return samples.instancetype(kind, name, **spec)


def preference(name: str = "fedora", kind: str = "VirtualMachineClusterPreference", **spec: Any) -> Json:
    """A preference for virtio disks; keywords go to its spec."""
    return samples.preference(kind, name, **({"devices": {"preferredDiskBus": "virtio"}} | spec))


def revision(name: str, captured: Json, **labels: str) -> Json:
    """A ControllerRevision that has captured an object."""
    metadata = {"name": name, "namespace": "demo"}
    said = {"object-name": captured["metadata"]["name"], "object-kind": captured["kind"]} | labels
    metadata["labels"] = {f"instancetype.kubevirt.io/{key}": value for key, value in said.items()}  # type: ignore[assignment]
    return {"apiVersion": "apps/v1", "kind": "ControllerRevision", "metadata": metadata, "data": captured}


def preset(**domain: Any) -> Json:
    """A preset for what is labelled ``size: large``; keywords are its domain, instead of 8Gi."""
    spec = {"selector": {"matchLabels": {"size": "large"}}, "domain": domain or {"memory": {"guest": "8Gi"}}}
    return {"metadata": {"name": "large", "namespace": "demo"}, "spec": spec}


def vm(
    domain: Json | None = None, *, annotations: Json | None = None, template: Json | None = None, **spec: Any
) -> Json:
    """A VM with one disk; keywords go to its spec, ``template`` to the template's spec."""
    inner = {
        "domain": {"devices": {"disks": [{"name": "root", "disk": {}}]}} | (domain or {}),
        "volumes": [{"name": "root", "containerDisk": {"image": "registry.example/fedora:40"}}],
    }
    metadata: Json = {"name": "web01", "namespace": "demo"}
    if annotations is not None:
        metadata["annotations"] = annotations
    return {
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachine",
        "metadata": metadata,
        "spec": {"runStrategy": "Always", "template": {"spec": inner | (template or {})}} | spec,
    }


def vmi(domain: Json | None = None, *, annotations: Json | None = None, owner: Json | None = None, **spec: Any) -> Json:
    """A VMI with one disk; keywords go to its spec."""
    made = vm(domain, annotations=annotations, template=spec)
    if owner is not None:
        made["metadata"]["ownerReferences"] = [owner]
    return made | {"kind": "VirtualMachineInstance", "spec": made["spec"]["template"]["spec"]}


def facts(
    objects: Iterable[Json] = (),
    missing: Iterable[tuple[str, str]] = (),
    unreadable: Iterable[tuple[str, str]] = (),
    configuration: ClusterConfig | Unavailable | None = DEFAULTS,
    presets: Iterable[Json] | Unavailable = (),
) -> dict[Key[Any], object]:
    """A cluster that has these objects; any other look-up is a `NotInMemory`."""
    result = known() | {KubeVirtKey(): None if configuration is None else installed(configuration)}
    if not isinstance(presets, Unavailable):
        presets = tuple(msgspec.convert(one, Unstructured) for one in presets)
    result[ListKey(PRESETS, "demo")] = presets
    for item in objects:
        metadata = item["metadata"]
        key = ObjectKey(UNSTRUCTURED[item["kind"]], metadata.get("namespace", ""), metadata["name"])
        result[key] = msgspec.convert(item, Unstructured)
    for names, answer in ((missing, None), (unreadable, Unavailable("no answer in time"))):
        for kind, name in names:
            resource = UNSTRUCTURED[kind]
            result[ObjectKey(resource, "demo" if resource.namespaced else "", name)] = answer
    return result


def decide(
    obj: Json, world: Mapping[Key[Any], object], old: Json | None = None, verb: str = "mutate", **settings: Any
) -> Decision:
    """The decision about creating an object, or about updating ``old`` to it."""
    path = f"/{verb}/instancetypes/{obj['kind'].lower()}s/enforce"
    body = review(obj, operation="UPDATE" if old else "CREATE", oldObject=old)
    decision = evaluate(path, body, Facts.of(world), changed(InstancetypeSettings(), **settings))
    assert decision.reasons
    return decision


BOTH: dict[str, Any] = {"default_instancetype": "u1.small", "default_preference": "fedora"}
WORLD = [instancetype(), preference()]
SPREADING = preference(cpu={"preferredCPUTopology": "spread"})
# On both of these KubeVirt's webhook crashes.
CRASHING = preference(cpu={"preferredCPUFeatures": [{"name": "vmx"}]})
NO_DIVISION = preference(cpu={"preferredCPUTopology": "spread", "spreadOptions": {"ratio": 0}})
INJECTED = {
    ("spec", "instancetype"): SMALL,
    IT_MARK: SMALL_MARK,
    ("spec", "preference"): FEDORA,
    PREF_MARK: FEDORA_MARK,
}
