"""A small cluster for the tests of this policy: a VM on node-a1, and nodes in the zones a and b."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from tests.builders import Json, changed, known, read_node, review
from tests.placement.samples import expression, expressions
from tests.policies.decisions import evaluate, patched
from webhook.admission.decision import Decision
from webhook.facts import AccessKey, Facts, Key, ListKey, NodesKey, ObjectKey, from_memory
from webhook.kubevirt.resources import UNSTRUCTURED_VMS
from webhook.placement import machines
from webhook.placement.index import NodeIndex
from webhook.placement.quota import QUOTAS
from webhook.placement.target_pods import DEVICE_CLASSES
from webhook.policies.migration.explanation import MigrationExplanation, Question, explain
from webhook.policies.migration.settings import MigrationSettings

UID = "8b15c68e-e875-446e-8cf5-eb0bdd952f09"
POLICY = "5dc3b9cf-57fe-4d02-bc6c-b6341e6d6b46"
USER = "alice"
OWNER: Json = {"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance", "name": "web01", "uid": UID}
OWNED: list[Json] = [OWNER | {"controller": True}]
VM, VMI = ObjectKey(UNSTRUCTURED_VMS, "demo", "web01"), ObjectKey(machines.PLACED_VMIS, "demo", "web01")
PODS = ListKey(machines.LAUNCHER_PODS, "demo", f"kubevirt.io/created-by={UID}")
INTEL, AMD = "cpu-vendor.node.kubevirt.io/Intel", "cpu-vendor.node.kubevirt.io/AMD"


def node(name: str, zone: str, vendor: str = INTEL, *, cordoned: bool = False, **labels: str) -> Json:
    base = {"kubernetes.io/hostname": name, "zone": zone, "kubevirt.io/schedulable": "true", vendor: "true"}
    base |= {"kubernetes.io/arch": "amd64", "machine-type.node.kubevirt.io/q35": "true"}
    return {"metadata": {"name": name, "labels": base | labels}, "spec": {"unschedulable": True} if cordoned else {}}


FOO = "example.com/foo"


def offering(name: str, zone: str = "a", **allocatable: str) -> Json:
    """A node that says what pods could request of it."""
    amounts = {"cpu": "16", "memory": "64Gi", "devices.kubevirt.io/kvm": "1k"}
    return node(name, zone) | {"status": {"allocatable": amounts | allocatable}}


# Only the VM's own node has the device.
ONE_DEVICE = [offering("node-a1", **{FOO: "1"}), offering("node-a2"), offering("node-b1", "b", **{FOO: "0"})]


def requesting(**requests: str) -> dict[Key[Any], object]:
    """The VM with a device, and its pod, which requests it, and more."""
    domain = {"cpu": {"model": "host-passthrough"}, "devices": {"gpus": [{"name": "gpu", "deviceName": FOO}]}}
    amounts = {FOO: "1", "devices.kubevirt.io/kvm": "1"} | requests
    container = {"name": "compute", "resources": {"requests": amounts}}
    return {VMI: msgspec.convert(vmi(domain=domain), machines.Vmi), PODS: (launcher(containers=[container]),)}


def launcher(**spec: Any) -> machines.LauncherPod:
    """The pod that the VM runs in."""
    metadata = {"name": "p", "ownerReferences": OWNED}
    made = {"metadata": metadata, "spec": {"nodeName": "node-a1"} | spec, "status": {"phase": "Running"}}
    return msgspec.convert(made, machines.LauncherPod)


NODES = [node("node-a1", "a"), node("node-a2", "a"), node("node-b1", "b"), node("node-b2", "b", AMD)]


def vmi(selector: Mapping[str, str] | None = None, **spec: Any) -> Json:
    inner: Json = {
        "architecture": "amd64",
        "domain": {"cpu": {"model": "host-passthrough"}, "machine": {"type": "q35"}},
    }
    if selector is not None:
        inner["nodeSelector"] = dict(selector)
    return {
        "metadata": {"name": "web01", "namespace": "demo", "uid": UID},
        "spec": inner | spec,
        "status": {"nodeName": "node-a1"},
    }


def migration(added: Mapping[str, str] | None = None, **spec: Any) -> Json:
    inner: Json = {"vmiName": "web01"} | spec
    if added is not None:
        inner["addedNodeSelector"] = dict(added)
    return {
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachineInstanceMigration",
        "metadata": {"name": "m1", "namespace": "demo", "uid": POLICY},
        "spec": inner,
    }


def facts(
    found: Json | None = None,
    nodes: Iterable[Json] = NODES,
    *,
    may: Iterable[tuple[str, str]] = (),
    migrations: Iterable[Json] = (),
) -> dict[Key[Any], object]:
    """The facts of a review; ``may`` are the verbs and resources that `USER` has."""
    result: dict[Key[Any], object] = {
        **known(),
        VMI: msgspec.convert(vmi() if found is None else found, machines.Vmi),
        PODS: (launcher(nodeSelector={}),),
        ListKey(QUOTAS, "demo"): (),
        ListKey(DEVICE_CLASSES, ""): (),
        ListKey(machines.MIGRATIONS, "demo", "kubevirt.io/vmi-name=web01"): (),
        ListKey(machines.UNFINISHED, "demo"): tuple(msgspec.convert(one, machines.Migration) for one in migrations),
        NodesKey(): NodeIndex(read_node(one) for one in nodes),
    }
    chosen = ("use", "kubevirt-webhook.github.io", "migrationtargets", "demo")
    for verb, group, resource, namespace in (("list", "", "nodes", ""), chosen):
        key = AccessKey(USER, ("devs",), "", (), verb, group, resource, namespace)
        result[key] = (verb, resource) in set(may)
    return result


def decide(
    obj: Json,
    world: Mapping[Key[Any], object],
    place: str = "validate/migration/virtualmachineinstancemigrations",
    user: str = USER,
    *,
    verified: bool = True,
    **settings: Any,
) -> Decision:
    facts = Facts.of(world, verified=verified)
    return evaluate(f"/{place}/enforce", asking(obj, user), facts, changed(MigrationSettings(), **settings))


def asking(obj: Json, user: str = USER) -> Json:
    """The review of a new object."""
    return review(obj, userInfo={"username": user, "groups": ["devs"]})


def explained(
    added: Mapping[str, str] | None = None,
    found: Json | None = None,
    nodes: Iterable[Json] = NODES,
    more: Mapping[Key[Any], object] | None = None,
    **options: Any,
) -> MigrationExplanation:
    world = {**facts(found, nodes), **(more or {})}
    return from_memory(explain(Question("demo", "web01", added or {}, **options), Facts.of(world)))


CLAIMED: list[Json] = [
    {"name": "data", "persistentVolumeClaim": {"claimName": "web01-data"}},
    {"name": "root", "dataVolume": {"name": "web01-root"}},
    {"name": "gone", "persistentVolumeClaim": {"claimName": "gone"}},
    {"name": "cloud-init"},
]


def stored(zone: str) -> dict[Key[Any], object]:
    terms = {"nodeAffinity": {"required": {"nodeSelectorTerms": [expressions(expression("zone", "In", zone))]}}}
    bound = msgspec.convert({"spec": {"volumeName": "pv-1"}}, machines.Claim)
    return {
        ObjectKey(machines.CLAIMS, "demo", "web01-data"): bound,
        ObjectKey(machines.CLAIMS, "demo", "web01-root"): machines.Claim(),
        ObjectKey(machines.CLAIMS, "demo", "gone"): None,
        ObjectKey(machines.VOLUMES, "", "pv-1"): msgspec.convert({"spec": terms}, machines.PersistentVolume),
    }


def target_pod(terms: Any = ..., selector: dict[str, str] | None = None, uid: str = POLICY) -> Json:
    spec: Json = {"nodeSelector": selector or {}}
    if terms is not ...:
        required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
        spec["affinity"] = {"nodeAffinity": required}
    metadata = {
        "generateName": "virt-launcher-web01-",
        "labels": {"kubevirt.io": "virt-launcher", "kubevirt.io/migrationJobUID": uid},
        "annotations": {"kubevirt.io/migrationJobName": "m1"},
        "ownerReferences": OWNED,
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def terms(obj: Json, decision: Decision) -> Any:
    required = patched(obj, decision)["spec"]["affinity"]["nodeAffinity"]
    return required["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
