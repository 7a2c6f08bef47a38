"""The real descheduler, beside a real KubeVirt: the shipped policy, on a node that is crowded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.e2e.support.audited import AuditLog
from tests.e2e.support.descheduler import BACKGROUND, policy_of, process
from tests.e2e.support.kube import Json, eventually
from tests.e2e.support.pki import service_account
from tests.e2e.support.rbac import RBAC, grant
from tests.e2e.support.workloads import MIGRATIONS, PODS, VMIS

from .place import Place, domain

ACCOUNT = service_account("kube-system", "descheduler")
USER = ACCOUNT.user
# As upstream's own manifests have it (kubernetes/base/rbac.yaml), less what this policy does not need.
RULES: Sequence[Json] = (
    {"apiGroups": ["events.k8s.io"], "resources": ["events"], "verbs": ["create", "update", "patch"]},
    {"apiGroups": [""], "resources": ["nodes", "namespaces", "pods"], "verbs": ["get", "list", "watch"]},
    {"apiGroups": [""], "resources": ["pods/eviction"], "verbs": ["create"]},
    {"apiGroups": [""], "resources": ["persistentvolumeclaims"], "verbs": ["get", "list", "watch"]},
    {"apiGroups": ["scheduling.k8s.io"], "resources": ["priorityclasses"], "verbs": ["get", "list", "watch"]},
    {"apiGroups": ["policy"], "resources": ["poddisruptionbudgets"], "verbs": ["get", "list", "watch"]},
)
# What it logs at the end of a round.
END = "Number of evictions/requests"
# KubeVirt's, on the pod of a VM that it is to move.
IN_PROGRESS = "descheduler.alpha.kubernetes.io/eviction-in-progress"
# The priority class, and the beginning of the names, of VMs that a quota holds where they are.
HELD = "held"


class Descheduler:
    """A descheduler that looks at one namespace's VMs only, with or without the feature gate that VMs need."""

    def __init__(self, place: Place, directory: Path, binary: Path, *, background: bool) -> None:
        self._place = place
        plane = place.real.plane
        grant(plane.admin, "descheduler", RULES, subject={"apiGroup": RBAC, "kind": "User", "name": USER})
        options = [BACKGROUND] if background else []
        kubeconfig = plane.kubeconfig_for(*ACCOUNT)
        self.process = process(binary, policy_of(place.namespace), kubeconfig, directory, *options)

    def run(self, rounds: int) -> None:
        """Has it look at the nodes so often, each time after what it asked for before has happened.

        It ends after each round, as one does that a CronJob starts. A migration begins while the descheduler looks, and
        has ended when it looks again, as in its usual interval of a minute: how fast the machine is decides nothing.
        """
        for number in range(1, rounds + 1):
            with self._place.real.nodes.holding():
                self._look(number)
            eventually(self._is_settled, what=f"the migrations of round {number} to end")

    def _look(self, number: int) -> None:
        self.process.start()
        try:
            eventually(lambda: not self.process.running, what=f"round {number} of the descheduler")
        finally:
            self.process.stop()
        assert self.process.log.read_text().count(END) == number

    def _is_settled(self) -> bool:
        """Whether each VM that KubeVirt is to move has left, or cannot be moved and is marked on its pod as well."""
        place = self._place
        migrations = [
            one for one in place.admin.list(MIGRATIONS, place.namespace) if not one["spec"]["vmiName"].startswith(HELD)
        ]
        if any(one.get("status", {}).get("phase") not in ("Succeeded", "Failed") for one in migrations):
            return False
        pods = place.admin.list(PODS, place.namespace)
        return all(_is_at_rest(vmi, pods) for vmi in place.admin.list(VMIS, place.namespace))


def _is_at_rest(vmi: Json, pods: Sequence[Json]) -> bool:
    name = vmi["metadata"]["name"]
    own = [pod["metadata"] for pod in pods if domain(pod) == name and pod["status"]["phase"] in ("Pending", "Running")]
    if not vmi["status"].get("evacuationNodeName"):
        return len(own) == 1
    return name.startswith(HELD) and all(IN_PROGRESS in metadata["annotations"] for metadata in own)


def answers_to(log: AuditLog, place: Place) -> dict[str, list[str]]:
    """The answers to the descheduler's evictions in a namespace, by the VM's name."""
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
    return {vmi["metadata"]["name"]: vmi["status"].get("nodeName") for vmi in place.admin.list(VMIS, place.namespace)}


def marked(place: Place) -> set[str]:
    """The VMs that KubeVirt is to move, and that are where they were."""
    found = place.admin.list(VMIS, place.namespace)
    return {vmi["metadata"]["name"] for vmi in found if vmi["status"].get("evacuationNodeName")}
