"""The real descheduler, beside a real KubeVirt: the shipped policy, on a node that is crowded."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from tests.e2e.support.audited import AuditLog
from tests.e2e.support.kube import Json, eventually
from tests.e2e.support.manifests import MANIFESTS
from tests.e2e.support.pki import service_account
from tests.e2e.support.processes import Process, free_port
from tests.e2e.support.workloads import VMIS

from .place import Place

ACCOUNT = service_account("kube-system", "descheduler")
USER = ACCOUNT.user
POLICY = MANIFESTS / "descheduler" / "upstream" / "policy.yaml"
# As upstream's own manifests have it (kubernetes/base/rbac.yaml), less what this policy does not need.
RULES: Sequence[Json] = (
    {"apiGroups": ["events.k8s.io"], "resources": ["events"], "verbs": ["create", "update", "patch"]},
    {"apiGroups": [""], "resources": ["nodes", "namespaces", "pods"], "verbs": ["get", "list", "watch"]},
    {"apiGroups": [""], "resources": ["pods/eviction"], "verbs": ["create"]},
    {"apiGroups": [""], "resources": ["persistentvolumeclaims"], "verbs": ["get", "list", "watch"]},
    {"apiGroups": ["scheduling.k8s.io"], "resources": ["priorityclasses"], "verbs": ["get", "list", "watch"]},
    {"apiGroups": ["policy"], "resources": ["poddisruptionbudgets"], "verbs": ["get", "list", "watch"]},
)
ROUND = re.compile("Number of evictions/requests")
RBAC = "rbac.authorization.k8s.io"


class Descheduler:
    """A descheduler that looks at one namespace's VMs only.

    Args:
        place: the namespace.
        directory: for its files.
        binary: of the descheduler.
        background: whether it runs with the feature gate that VMs need.
    """

    def __init__(self, place: Place, directory: Path, binary: Path, *, background: bool) -> None:
        self._place = place
        plane = place.real.plane
        self._grant()
        policy = yaml.safe_load(POLICY.read_text())
        evictor = policy["profiles"][0]["pluginConfig"][0]
        assert evictor["name"] == "DefaultEvictor"
        own = {"matchLabels": {"kubernetes.io/metadata.name": place.namespace}}
        evictor["args"]["namespaceLabelSelector"] = own
        config = directory / "policy.yaml"
        config.write_text(yaml.safe_dump(policy))
        command = [
            str(binary),
            f"--policy-config-file={config}",
            f"--kubeconfig={plane.kubeconfig_for(*ACCOUNT)}",
            "--descheduling-interval=3s",
            f"--secure-port={free_port()}",
            "--bind-address=127.0.0.1",
            f"--cert-dir={directory}",
            "--v=3",
            *(["--feature-gates=EvictionsInBackground=true"] if background else []),
        ]
        self.process = Process("descheduler", command, directory / "descheduler.log")

    def rounds(self) -> int:
        """How often it has looked at the nodes."""
        return len(ROUND.findall(self.process.log.read_text()))

    def run(self, rounds: int) -> None:
        """Has it look so often, and ends it."""
        self.process.start()
        try:
            eventually(lambda: self.rounds() >= rounds, what=f"{rounds} rounds of the descheduler", timeout=120)
        finally:
            self.process.stop()

    def _grant(self) -> None:
        admin = self._place.admin
        metadata = {"name": "descheduler"}
        role = {"apiVersion": f"{RBAC}/v1", "kind": "ClusterRole", "metadata": metadata, "rules": list(RULES)}
        admin.apply(role)
        admin.apply(
            {
                "apiVersion": f"{RBAC}/v1",
                "kind": "ClusterRoleBinding",
                "metadata": metadata,
                "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": "descheduler"},
                "subjects": [{"apiGroup": RBAC, "kind": "User", "name": USER}],
            }
        )


def answers(log: AuditLog, place: Place) -> dict[str, list[str]]:
    """The answers to the descheduler's evictions in a namespace, by the VM's name.

    KubeVirt cuts the names of pods whose VMs have long names; those VMs are found under the empty name.
    """
    found: dict[str, list[str]] = {}
    for line in log.requests(USER):
        about = line["objectRef"]
        if about.get("subresource") == "eviction" and about["namespace"] == place.namespace:
            name = about["name"].removeprefix("virt-launcher-").rpartition("-")[0]
            found.setdefault(name, []).append(line["responseStatus"].get("message", ""))
    return found


def crowd(place: Place, node: str, templates: Mapping[str, Json]) -> None:
    """Starts VMs, all on one node, for no other takes any."""
    admin = place.admin
    others = [one["metadata"]["name"] for one in admin.list("v1/nodes") if one["metadata"]["name"] != node]
    for other in others:
        admin.patch("v1/nodes", other, {"spec": {"unschedulable": True}})
    try:
        for name, template in templates.items():
            place.vm(name, template=template)
        for name in templates:
            assert place.running(name)["status"]["nodeName"] == node
    finally:
        for other in others:
            admin.patch("v1/nodes", other, {"spec": {"unschedulable": None}})


def nodes_of(place: Place) -> dict[str, Any]:
    """The node of each VM."""
    return {vmi["metadata"]["name"]: vmi["status"].get("nodeName") for vmi in place.admin.list(VMIS, place.namespace)}


def marked(place: Place) -> set[str]:
    """The VMs that KubeVirt is to move, and that are where they were."""
    found = place.admin.list(VMIS, place.namespace)
    return {vmi["metadata"]["name"] for vmi in found if vmi["status"].get("evacuationNodeName")}
