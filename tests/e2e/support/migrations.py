"""Stands for KubeVirt when a VM migrates, up to the target pod: a VMI that runs, migrations of it, pods for them.

The target pod's node selector is put together as KubeVirt does it (pkg/virt-controller, createTargetPod), its mistakes
included: that of the migration lies under the VM's own, a vendor's key replaces the guard, and the CPU keys of a
host-model VM are copied from one target pod to the next.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

from .kube import Json, KubeObject
from .objects import ZONE, obj
from .placing import looked_at
from .tenant import Tenant
from .workloads import MIGRATIONS, PODS, VMIS, launcher_of

HOSTNAME = "kubernetes.io/hostname"
HOST_MODEL = "host-model"
CPU_FEATURE = "cpu-feature.node.kubevirt.io/"
CPU_MODEL = "cpu-model.node.kubevirt.io/"
CPU_MODEL_MIGRATION = "cpu-model-migration.node.kubevirt.io/"
CPU_VENDOR = "cpu-vendor.node.kubevirt.io/"
OBSOLETE = "node-labeller.kubevirt.io/obsolete-host-model"
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
EAST, WEST = {ZONE: "east"}, {ZONE: "west"}
# KubeVirt's answer to the label that each of these stands for.
HOST_LABELS = {
    "host-model-cpu.node.kubevirt.io/": CPU_MODEL_MIGRATION,
    "host-model-required-features.node.kubevirt.io/": CPU_FEATURE,
}


def guest(name: str = "web", *, model: str = HOST_MODEL, **spec: Any) -> Json:
    """A VMI as KubeVirt's defaults leave it; keywords go into its spec."""
    domain = {"devices": {}, "cpu": {"model": model}, "machine": {"type": "q35"}}
    return obj("VirtualMachineInstance", name, spec={"architecture": "amd64", "domain": domain, **spec})


def migration(vmi: str = "web", added: Mapping[str, str] | None = None, **spec: Any) -> Json:
    """A migration as a user writes it; keywords go into its spec."""
    whole = {"vmiName": vmi, **({} if added is None else {"addedNodeSelector": dict(added)}), **spec}
    return obj("VirtualMachineInstanceMigration", generateName="move-", spec=whole)


def source_of(vmi: Mapping[str, Any], node: str) -> Json:
    pod = launcher_of(vmi)
    pod["spec"] |= {"nodeName": node, "nodeSelector": _template_selector(vmi)}
    pod["spec"]["tolerations"] = vmi["spec"].get("tolerations", [])
    return pod


def target_of(
    vmi: Mapping[str, Any], policy: Mapping[str, Any], source: Mapping[str, Any], host: Mapping[str, Any]
) -> Json:
    """The target pod of a migration (``policy``) of a VM that runs in a source pod on a host."""
    pod = launcher_of(vmi)
    pod["metadata"]["labels"]["kubevirt.io/migrationJobUID"] = policy["metadata"]["uid"]
    pod["metadata"]["annotations"]["kubevirt.io/migrationJobName"] = policy["metadata"]["name"]
    selector = {**(policy["spec"].get("addedNodeSelector") or {}), **_template_selector(vmi)}
    if _model(vmi) == HOST_MODEL:
        selector |= _host_model(source["spec"].get("nodeSelector") or {}, host["metadata"]["labels"])
    if not any(key.startswith(CPU_VENDOR) for key in selector):
        selector |= {key: "true" for key in host["metadata"]["labels"] if key.startswith(CPU_VENDOR)}
    pod["spec"]["nodeSelector"] = selector
    pod["spec"] |= {"affinity": _affinity(vmi), "tolerations": vmi["spec"].get("tolerations", [])}
    return pod


def terms_of(pod: Mapping[str, Any]) -> list[Json]:
    terms: list[Json] = pod["spec"]["affinity"]["nodeAffinity"][REQUIRED]["nodeSelectorTerms"]
    return terms


def _model(vmi: Mapping[str, Any]) -> str:
    return str(vmi["spec"]["domain"].get("cpu", {}).get("model", ""))


def _template_selector(vmi: Mapping[str, Any]) -> dict[str, str]:
    spec = vmi["spec"]
    generated = {f"machine-type.node.kubevirt.io/{spec['domain']['machine']['type']}": "true"}
    if _model(vmi) not in {"", HOST_MODEL, "host-passthrough"}:
        generated[CPU_MODEL + _model(vmi)] = "true"
    base = {"kubevirt.io/schedulable": "true", "kubernetes.io/arch": spec["architecture"]}
    return {**base, **spec.get("nodeSelector", {}), **generated}


def _host_model(source: Mapping[str, str], labels: Mapping[str, str]) -> dict[str, str]:
    copied = {key: value for key, value in source.items() if key.startswith((CPU_FEATURE, CPU_MODEL_MIGRATION))}
    return copied or {
        key.replace(found, wanted): "true"
        for key in labels
        for found, wanted in HOST_LABELS.items()
        if key.startswith(found)
    }


def _affinity(vmi: Mapping[str, Any]) -> Json:
    affinity: Json = copy.deepcopy(vmi["spec"].get("affinity", {}))
    if _model(vmi) in {"", HOST_MODEL}:
        required = affinity.setdefault("nodeAffinity", {}).setdefault(REQUIRED, {"nodeSelectorTerms": [{}]})
        for term in required["nodeSelectorTerms"]:
            term.setdefault("matchExpressions", []).append({"key": OBSOLETE, "operator": "DoesNotExist"})
    own = {"matchLabels": {"kubevirt.io/created-by": vmi["metadata"]["uid"]}}
    others = {"labelSelector": own, "topologyKey": HOSTNAME}
    affinity.setdefault("podAntiAffinity", {}).setdefault(REQUIRED, []).append(others)
    return affinity


class MigrationMover:
    """KubeVirt's controller at work on one VMI, which runs on a node, in a namespace with policies on."""

    def __init__(self, tenant: Tenant, manifest: Mapping[str, Any], node: str = "node-a") -> None:
        self.tenant = tenant
        self._kube = tenant.controller
        running = {**manifest, "status": {"phase": "Running", "nodeName": node}}
        self.vmi: KubeObject = self._kube.create(VMIS, running, tenant.namespace)
        self.source: KubeObject = tenant.pod(source_of(self.vmi, node))

    @property
    def name(self) -> str:
        return str(self.vmi["metadata"]["name"])

    def ask(self, added: Mapping[str, str] | None = None, **spec: Any) -> KubeObject:
        """A migration by an admin."""
        return self.tenant.owner.create(MIGRATIONS, migration(self.name, added, **spec), self.tenant.namespace)

    def evacuate(self) -> KubeObject:
        """A migration as KubeVirt writes it when a VM must leave its node."""
        made = migration(self.name, priority="system-critical")
        annotations = {"kubevirt.io/evacuationMigration": "node-a"}
        made["metadata"] = {"generateName": "kubevirt-evacuation-", "annotations": annotations}
        return self._kube.create(MIGRATIONS, made, self.tenant.namespace)

    def target(self, policy: Mapping[str, Any], **query: str) -> KubeObject:
        """The target pod of a migration, of the VMI as it is now."""
        self.vmi = self._kube.get(VMIS, self.name, self.tenant.namespace)
        host = self._kube.get("v1/nodes", self.vmi["status"]["nodeName"])
        return self.tenant.pod(target_of(self.vmi, policy, self.source, host), **query)

    def finish(self, policy: Mapping[str, Any], target: Mapping[str, Any]) -> None:
        """The VM runs in the target pod, which has a node, from here on."""
        where = {"status": {"phase": "Running", "nodeName": self.node_of(target)}}
        space = self.tenant.namespace
        self.vmi = self._kube.patch(VMIS, self.name, where, space)
        self.enter(policy, "Succeeded")
        self._kube.delete(PODS, self.source["metadata"]["name"], space, gracePeriodSeconds="0")
        self.source = self._kube.get(PODS, target["metadata"]["name"], space)

    def enter(self, policy: Mapping[str, Any], phase: str) -> None:
        """The migration is in a phase."""
        status, space = {"status": {"phase": phase}}, self.tenant.namespace
        self._kube.patch(MIGRATIONS, policy["metadata"]["name"], status, space, subresource="status")

    def node_of(self, pod: Mapping[str, Any]) -> str:
        """The node of a pod, once the scheduler has bound it."""
        found = looked_at(self._kube, pod["metadata"]["name"], self.tenant.namespace)
        assert "nodeName" in found["spec"], found["status"]["conditions"]
        return str(found["spec"]["nodeName"])
