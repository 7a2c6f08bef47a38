"""Objects that a KubeVirt cluster has and a bare control plane lacks: KubeVirt's kinds, nodes, launcher pods."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from .kube import Json, Kube, KubeError, KubeObject, eventually
from .processes import StartError

HERE = Path(__file__).parent
CRDS = "apiextensions.k8s.io/v1/customresourcedefinitions"
CONFLICT = 409
ZONE = "topology.kubernetes.io/zone"

_GROUPS = {
    "admissionregistration.k8s.io/v1": "MutatingWebhookConfiguration ValidatingWebhookConfiguration",
    "apiextensions.k8s.io/v1": "CustomResourceDefinition",
    "apiregistration.k8s.io/v1": "APIService",
    "apps/v1": "ControllerRevision DaemonSet Deployment",
    "authentication.k8s.io/v1": "TokenRequest",
    "authorization.k8s.io/v1": "SelfSubjectAccessReview SubjectAccessReview",
    "clone.kubevirt.io/v1beta1": "VirtualMachineClone",
    "discovery.k8s.io/v1": "EndpointSlice",
    "instancetype.kubevirt.io/v1beta1": "VirtualMachineInstancetype VirtualMachineClusterInstancetype "
    "VirtualMachinePreference VirtualMachineClusterPreference",
    "kubevirt.io/v1": "KubeVirt VirtualMachine VirtualMachineInstance VirtualMachineInstanceMigration "
    "VirtualMachineInstancePreset VirtualMachineInstanceReplicaSet",
    "kustomize.config.k8s.io/v1beta1": "Kustomization",
    "policy/v1": "Eviction",
    "rbac.authorization.k8s.io/v1": "ClusterRole ClusterRoleBinding Role RoleBinding",
    "scheduling.k8s.io/v1": "PriorityClass",
    "snapshot.kubevirt.io/v1beta1": "VirtualMachineRestore VirtualMachineSnapshot",
    "storage.k8s.io/v1": "StorageClass",
}
# Of kinds that are not of the core group.
VERSIONS = {kind: version for version, kinds in _GROUPS.items() for kind in kinds.split()}
_OF_METADATA = {"annotations", "finalizers", "generateName", "labels", "name", "namespace", "ownerReferences"}

NODE_LABELS: Mapping[str, str] = {
    "kubernetes.io/arch": "amd64",
    "kubernetes.io/os": "linux",
    "kubevirt.io/schedulable": "true",
    "machine-type.node.kubevirt.io/q35": "true",
    "cpu-model.node.kubevirt.io/Skylake-Server": "true",
    "cpu-model-migration.node.kubevirt.io/Skylake-Server": "true",
    "cpu-vendor.node.kubevirt.io/Intel": "true",
    "cpu-feature.node.kubevirt.io/vmx": "true",
    "host-model-cpu.node.kubevirt.io/Skylake-Server": "true",
    "host-model-required-features.node.kubevirt.io/vmx": "true",
}
NODE_ALLOCATABLE: Mapping[str, str] = {
    "cpu": "16",
    "memory": "64Gi",
    "ephemeral-storage": "200Gi",
    "pods": "110",
    "devices.kubevirt.io/kvm": "1k",
    "devices.kubevirt.io/tun": "1k",
    "devices.kubevirt.io/vhost-net": "1k",
}


def make_node(
    kube: Kube,
    name: str,
    labels: Mapping[str, str] | None = None,
    images: Iterable[Mapping[str, Any]] = (),
    allocatable: Mapping[str, str] | None = None,
) -> KubeObject:
    """A Ready node as KubeVirt's labeller and device plugins leave it; ``labels`` and ``allocatable`` add to those.

    ``images`` are as in a node's status: ``{"names": [...], "sizeBytes": 600_000_000}``.
    """
    kube.create("v1/nodes", node(name, labels))
    resources = {**NODE_ALLOCATABLE, **(allocatable or {})}
    status = {
        "capacity": resources,
        "allocatable": resources,
        "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "as a test says"}],
        "images": list(images),
    }
    kube.patch("v1/nodes", name, {"status": status}, subresource="status")  # a status is dropped at creation
    # Last, since it lets the schedulers in: the API server itself taints every new node as not ready.
    return kube.patch("v1/nodes", name, {"spec": {"taints": None}})


def node(name: str, labels: Mapping[str, str] | None = None) -> Json:
    return obj("Node", name, labels={**NODE_LABELS, "kubernetes.io/hostname": name, **(labels or {})})


def obj(kind: str, name: str = "", version: str = "", /, **fields: Any) -> Json:
    """An object of a kind; ``labels``, ``annotations`` and the like go into its metadata, other fields beside it."""
    named = {"name": name} if name else {}
    metadata = named | {field: fields.pop(field) for field in _OF_METADATA & fields.keys()}
    head = {"apiVersion": version or VERSIONS.get(kind, "v1"), "kind": kind}
    return {**head, **({"metadata": metadata} if metadata else {}), **fields}


def launcher_pod(name: str, *, vmi: Mapping[str, Any] | None = None, scheduler: str | None = None) -> Json:
    """A pod with what KubeVirt's controller gives to every launcher, owned by ``vmi`` where there is one."""
    pod = obj(
        "Pod", name, labels={"kubevirt.io": "virt-launcher"}, annotations={"kubevirt.io/domain": name}, spec=_spec()
    )
    if vmi is not None:
        pod["metadata"]["labels"]["kubevirt.io/created-by"] = vmi["metadata"]["uid"]
        pod["metadata"]["annotations"]["kubevirt.io/domain"] = vmi["metadata"]["name"]
        pod["metadata"]["ownerReferences"] = [owner_reference(vmi)]
    if scheduler is not None:
        pod["spec"]["schedulerName"] = scheduler
    return pod


def _spec() -> Json:
    return {
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
        "terminationGracePeriodSeconds": 60,
        "nodeSelector": {
            "kubernetes.io/arch": "amd64",
            "kubevirt.io/schedulable": "true",
            "machine-type.node.kubevirt.io/q35": "true",
        },
        "readinessGates": [{"conditionType": "kubevirt.io/virtual-machine-unpaused"}],
        "containers": [
            {
                "name": "compute",
                "image": "registry.example/kubevirt/virt-launcher:v1",
                "resources": {
                    "requests": {"cpu": "100m", "memory": "300Mi", "devices.kubevirt.io/kvm": "1"},
                    "limits": {"devices.kubevirt.io/kvm": "1"},
                },
            }
        ],
    }


def owner_reference(owner: Mapping[str, Any]) -> Json:
    head = {key: owner[key] for key in ("apiVersion", "kind")} | {
        key: owner["metadata"][key] for key in ("name", "uid")
    }
    return {**head, "controller": True, "blockOwnerDeletion": True}


def ensure_namespace(kube: Kube, name: str) -> None:
    create_once(kube, "v1/namespaces", obj("Namespace", name))


def install_rbac(kube: Kube) -> None:
    for document in yaml.safe_load_all((HERE / "rbac.yaml").read_text()):
        create_once(kube, kube.resource_of(document), document)


def install_crds(kube: Kube, definitions: Sequence[Json]) -> None:
    for definition in definitions:
        create_once(kube, CRDS, definition)
    names = {definition["metadata"]["name"] for definition in definitions}
    eventually(lambda: names <= established(kube), what="custom resource definitions to be established")
    # The API server serves an established definition, and lists it in discovery, a moment later.
    for spec in (definition["spec"] for definition in definitions):
        plural = spec["names"]["plural"]
        version = next(f"{spec['group']}/{each['name']}" for each in spec["versions"] if each["served"])
        eventually(lambda: [kube.list(f"{version}/{plural}")], what=f"{plural} to be served")  # noqa: B023
    wait_told(kube, definitions)


def wait_told(kube: Kube, definitions: Sequence[Json]) -> None:
    """Waits until the API server lists what definitions define in discovery."""
    told: dict[str, set[str]] = {}
    for spec in (definition["spec"] for definition in definitions):
        for version in (each["name"] for each in spec["versions"] if each["served"]):
            told.setdefault(f"{spec['group']}/{version}", set()).add(spec["names"]["plural"])
    for version, plurals in told.items():
        eventually(lambda: plurals <= _resources(kube, version), what=f"{version} to be told")  # noqa: B023


def _resources(kube: Kube, version: str) -> set[str]:
    return {each["name"] for each in kube.request("GET", f"/apis/{version}")["resources"]}


def kubevirt_crds() -> list[Json]:
    """KubeVirt's definitions: those of the file that ``KUBEVIRT_CRDS`` names, or else the minimal ones."""
    bundle = os.environ.get("KUBEVIRT_CRDS")
    try:
        return crds(json.loads(Path(bundle).read_text())["items"] if bundle else ())
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise StartError(f"{bundle}: not a List of custom resource definitions ({error}); fix KUBEVIRT_CRDS") from error


def crds(exported: Iterable[Json] = ()) -> list[Json]:
    """The definitions, less what a cluster adds to its objects: an export can be installed as it is.

    Of kinds that it lacks, such as presets, the tests' own.
    """
    listed = [_as_written(item) for item in exported]
    there = {item["metadata"]["name"] for item in listed}
    own = [_as_written(item) for item in yaml.safe_load((HERE / "crds.yaml").read_text())["items"]]
    return [*listed, *(item for item in own if item["metadata"]["name"] not in there)]


def _as_written(item: Json) -> Json:
    kept = {name: item["metadata"][name] for name in ("name", "labels", "annotations") if name in item["metadata"]}
    return obj("CustomResourceDefinition", **kept, spec=item["spec"])


def established(kube: Kube) -> set[str]:
    return {item["metadata"]["name"] for item in kube.list(CRDS) if has_condition(item, "Established")}


def open_crd(plural: str, group: str, kind: str, version: str, scope: str = "Namespaced", **metadata: Any) -> Json:
    """The definition of another project's kind, whose objects may hold anything."""
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    versions = [{"name": version, "served": True, "storage": True, "schema": schema}]
    names = {"plural": plural, "singular": kind.lower(), "kind": kind, "listKind": f"{kind}List"}
    spec = {"group": group, "scope": scope, "names": names, "versions": versions}
    return obj("CustomResourceDefinition", f"{plural}.{group}", spec=spec, **metadata)


def has_condition(found: Mapping[str, Any], kind: str, status: str = "True", reason: str = "") -> bool:
    """Whether a condition of an object has this status, and this reason if one is named."""
    conditions = found.get("status", {}).get("conditions") or []  # null until the first controller has seen it
    return any(
        (each["type"], each["status"]) == (kind, status) and reason in ("", each.get("reason")) for each in conditions
    )


def is_unschedulable(pod: Mapping[str, Any]) -> bool:
    return has_condition(pod, "PodScheduled", "False", "Unschedulable")


def create_once(kube: Kube, resource: str, written: Mapping[str, Any]) -> None:
    try:
        kube.create(resource, written)
    except KubeError as error:
        if error.status != CONFLICT:
            raise
