"""The nodes that the webhook finds eligible are those where the real scheduler puts a migration's target pods.

A target pod keeps off every host that has a pod of the same VM. So as many target pods as there are hosts of eligible
nodes, and one more, must take just these and leave one pod over: that asks the scheduler about every VM and every host.
"""

from __future__ import annotations

import random
import re
from collections.abc import Mapping
from typing import Any

import msgspec

from tests.placement.node_by_node import reasons_node_by_node
from webhook.placement.machines import LauncherPod, Migration, Vmi
from webhook.placement.nodes import Node
from webhook.placement.target_pods import target_pod_requirements

from .conftest import NewWebhook, OwnPlane
from .support.kube import Json, Kube, KubeObject, Objects, eventually
from .support.migrations import (
    AMD,
    CPU_FEATURE,
    CREATED_BY,
    HOST_MODEL,
    HOSTNAME,
    INTEL,
    OBSOLETE,
    REQUIRED,
    MigrationMover,
    guest,
    migration,
    target_of,
)
from .support.objects import ZONE, make_node
from .support.tenant import Tenant
from .support.webhook_server import MIGRATION
from .support.workloads import MIGRATIONS, PODS

SEED = 2020
VMS = 40
NODES = [f"node-{number:02}" for number in range(12)]
ZONES = ["a", "b", "c"]
AVX2 = "avx2"
LENIENT = {"migration": {"collision": "warn", "noEligibleNode": "warn", "reservedKeys": "allow"}}
TAINTS = [
    {"key": "dedicated", "value": "gpu", "effect": "NoSchedule"},
    {"key": "dedicated", "value": "db", "effect": "NoExecute"},
    {"key": "maintenance", "effect": "NoSchedule"},
    {"key": "busy", "effect": "PreferNoSchedule"},
]
TOLERATIONS = [
    {"operator": "Exists"},
    {"key": "dedicated", "operator": "Exists"},
    {"key": "dedicated", "value": "gpu"},
    {"key": "dedicated", "operator": "Equal", "value": "db", "effect": "NoExecute"},
    {"key": "dedicated", "value": "db", "effect": "NoSchedule"},
    {"key": "maintenance", "operator": "Exists", "effect": "NoSchedule"},
    {"key": "node.kubernetes.io/unschedulable", "operator": "Exists"},
]


def hostname(node: str | None) -> str:
    """A node's label, which is neither its name nor, for the last two, its alone."""
    return f"{NODES[-2] if node == NODES[-1] else node}.example.com"


class SchedulerDice(random.Random):
    """Of the nodes and the VMs."""

    def happens(self, chance: float) -> bool:
        return self.random() < chance

    # -- nodes ---------------------------------------------------------------------------------------------------------

    def node(self, kube: Kube, name: str) -> None:
        kvm = "0" if self.happens(0.1) else "1k"
        labels: dict[str, str | None] = {HOSTNAME: hostname(name), ZONE: self.choice(ZONES)}
        if self.happens(0.7):
            labels["disk"] = self.choice(["ssd", "hdd", ""])
        if self.happens(0.8):
            labels["rank"] = self.choice(["0", "1", "05", "9", "tall"])
        if self.happens(0.5):
            labels[f"{CPU_FEATURE}{AVX2}"] = "true"
        if self.happens(0.2):
            labels[f"host-model-required-features.node.kubevirt.io/{AVX2}"] = "true"
        if self.happens(0.1):
            labels[OBSOLETE] = "true"
        if self.happens(0.1):
            labels["kubevirt.io/schedulable"] = "false"
        if self.happens(0.25):
            labels |= {AMD: "true", INTEL: None}
        taints = [taint for taint in TAINTS if self.happens(0.12)]
        make_node(kube, name, allocatable={"devices.kubevirt.io/kvm": kvm})
        spec = {"taints": taints, "unschedulable": self.happens(0.15)}
        kube.patch("v1/nodes", name, {"metadata": {"labels": labels}, "spec": spec})

    # -- VMs -----------------------------------------------------------------------------------------------------------

    def vm(self, name: str) -> Json:
        spec: Json = {"tolerations": [each for each in TOLERATIONS if self.happens(0.2)]}
        if self.happens(0.3):
            spec["nodeSelector"] = dict([self.choice([(ZONE, "a"), (ZONE, "b"), ("disk", "ssd"), ("disk", "")])])
        if self.happens(0.6):
            terms = [self.term() for _ in range(self.choice([1, 2, 2, 3]))]
            spec["affinity"] = {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": terms}}}
        return guest(name, model=self.choice([HOST_MODEL, "host-passthrough", "Skylake-Server"]), **spec)

    def term(self) -> Json:
        if self.happens(0.1):
            return {}
        term: Json = {"matchExpressions": [self.expression() for _ in range(self.choice([1, 1, 2]))]}
        if self.happens(0.2):
            operator, name = self.choice(["In", "NotIn"]), self.choice(NODES)
            term["matchFields"] = [{"key": "metadata.name", "operator": operator, "values": [name]}]
            if self.happens(0.5):
                del term["matchExpressions"]
        return term

    def expression(self) -> Json:
        operator = self.choice(["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"])
        if operator in {"Gt", "Lt"}:
            return {"key": "rank", "operator": operator, "values": [self.choice(["0", "1", "4", "010"])]}
        if operator in {"Exists", "DoesNotExist"}:
            return {"key": self.choice(["disk", "rank", "gpu"]), "operator": operator}
        key, values = self.choice([(ZONE, ZONES), ("disk", ["ssd", "hdd", ""]), ("rank", ["1", "05", "tall"])])
        return {"key": key, "operator": operator, "values": self.sample(values, self.choice([1, 2]))}

    def added(self) -> dict[str, str]:
        choices = [
            {ZONE: self.choice(ZONES)},
            {"disk": "ssd"},
            {HOSTNAME: hostname(self.choice(NODES))},
            {self.choice([AMD, INTEL]): "true"},
            {f"{CPU_FEATURE}{AVX2}": "true"},
        ]
        return self.choice(choices) if self.happens(0.5) else {}


def eligible(vm: MigrationMover, policy: Mapping[str, Any], nodes: Mapping[str, KubeObject]) -> set[str]:
    """Where the webhook finds that a target pod may run."""
    requirements = target_pod_requirements(
        msgspec.convert(vm.vmi, Vmi),
        msgspec.convert(policy, Migration),
        source_pod=msgspec.convert(vm.source, LauncherPod),
        source_node=Node.read(nodes[vm.vmi["status"]["nodeName"]]),
    )
    found = reasons_node_by_node(requirements, map(Node.read, nodes.values()))
    return {name for name, reasons in found.items() if not reasons}


def counted(line: Mapping[str, Any]) -> int:
    """How many nodes the server called eligible when it was asked about a migration; none where it saw why none is."""
    reason = line["reasons"][0]
    if reason["code"] in {"selector-conflict", "no-eligible-node", "vm-pinned-to-its-node"}:
        return 0
    count = re.match(r"(\d+)/12 nodes", reason["text"])
    assert count, line
    return int(count[1])


def settled(tenant: Tenant, expected: int) -> dict[str, Objects]:
    """The target pods by the UIDs of their VMIs, once the scheduler has looked at all."""

    def look() -> Objects:
        pods = tenant.owner.list(PODS, tenant.namespace, labelSelector="kubevirt.io/migrationJobUID")
        looked_at = [pod for pod in pods if pod["spec"].get("nodeName") or pod["status"].get("conditions")]
        return looked_at if len(looked_at) == expected else []

    by_vm: dict[str, Objects] = {}
    for pod in eventually(look, what=f"the scheduler to look at {expected} pods"):
        by_vm.setdefault(pod["metadata"]["labels"][CREATED_BY], []).append(pod)
    return by_vm


def test_the_scheduler_agrees_on_every_node(own_plane: OwnPlane, new_webhook: NewWebhook) -> None:
    dice = SchedulerDice(SEED)
    plane = own_plane()
    for name in NODES:
        dice.node(plane.admin, name)
    plane.start_scheduler("default")
    server = new_webhook(LENIENT, access=plane)
    tenant = Tenant.new(server, policies=[MIGRATION])
    nodes = {found["metadata"]["name"]: found for found in plane.admin.list("v1/nodes")}

    ours, specs = {}, {}
    for number in range(VMS):
        vm = MigrationMover(tenant, dice.vm(f"vm-{number}"), dice.choice(NODES))
        manifest = {**migration(vm.name, dice.added()), "metadata": {"name": vm.name}}
        policy = plane.admin.create(MIGRATIONS, manifest, tenant.namespace)
        ours[vm.name] = eligible(vm, policy, nodes)
        specs[vm.name] = (vm, policy)
    told = {line["object"]["name"]: counted(line) for line in tenant.audit("VirtualMachineInstanceMigration")}
    hosts = {name: {hostname(node) for node in names} for name, names in ours.items()}
    for name, (vm, policy) in specs.items():
        for _ in range(len(hosts[name]) + 1):
            tenant.pod(target_of(vm.vmi, policy, vm.source, nodes[vm.vmi["status"]["nodeName"]]))
    pods = settled(tenant, sum(len(names) + 1 for names in hosts.values()))

    assert told == {name: len(names) for name, names in ours.items()}
    for name, (vm, policy) in specs.items():
        chosen = [pod["spec"].get("nodeName") for pod in pods[vm.vmi["metadata"]["uid"]]]
        theirs = set(filter(None, chosen))
        about = (vm.vmi["spec"], vm.vmi["status"], policy["spec"])
        assert theirs <= ours[name], about
        assert set(map(hostname, theirs)) == hosts[name], about
        assert chosen.count(None) == 1, about
    # Not to be content with VMs that fit nowhere, or everywhere.
    assert sum(not names for names in ours.values()) >= VMS // 5
    assert sum(1 < len(names) < len(NODES) - 1 for names in ours.values()) >= VMS // 4
