"""The nodes that the webhook finds eligible are those where the real scheduler puts a migration's target pods.

A target pod keeps off every host that has a pod of the same VM. So as many target pods as there are hosts of eligible
nodes, and one more, must take just these and leave one pod over: that asks the scheduler about every VM and every host.

And the nodes that could hold a target pod are those where the scheduler puts it while they are empty. Each node is
offered alone: one copy of the pod is bound to each by its name, so that the scheduler answers for each.
"""

from __future__ import annotations

import random
import re
from collections.abc import Mapping
from typing import Any

import msgspec

from tests.placement.node_by_node import reasons_node_by_node
from webhook.kubevirt.config import DEFAULTS
from webhook.placement.demand import target_pod_demand
from webhook.placement.index import NodeIndex
from webhook.placement.machines import LauncherPod, Migration, Vmi
from webhook.placement.nodes import Node
from webhook.placement.target_pods import (
    NODE_SELECTOR_ANNOTATION,
    RuntimeClass,
    namespace_labels,
    target_pod_requirements,
    unexplained_labels,
)

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
from .support.objects import ZONE, launcher_pod, make_node, obj
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


RESOURCES_SEED = 1111
SMALL_NODES = [f"node-{number}" for number in range(8)]
FOO, GPU, PAGES = "example.com/foo", "example.com/gpu", "hugepages-2Mi"
RUNTIME = "kata"
RUNTIME_CLASS = obj(
    "RuntimeClass",
    RUNTIME,
    "node.k8s.io/v1",
    handler=RUNTIME,
    overhead={"podFixed": {"cpu": "250m", "memory": "120Mi"}},
    scheduling={"nodeSelector": {"runtime": RUNTIME}, "tolerations": [{"key": RUNTIME, "operator": "Exists"}]},
)
POOL = {"pool": "vms"}


class ResourceDice(random.Random):
    """Of the nodes and the pods."""

    def happens(self, chance: float) -> bool:
        return self.random() < chance

    def node(self, kube: Kube, name: str) -> None:
        amounts = {
            "cpu": self.choice(["1", "2", "2500m", "4"]),
            "memory": self.choice(["1Gi", "1500M", "2Gi", "4Gi"]),
            "ephemeral-storage": self.choice(["1Gi", "200Gi"]),
            PAGES: self.choice(["0", "512Mi", "1Gi"]),
            "devices.kubevirt.io/kvm": self.choice(["0", "1k", "1k", "1k"]),
        }
        if self.happens(0.6):
            amounts[FOO] = self.choice(["0", "1", "2", "3"])
        if self.happens(0.4):
            amounts[GPU] = self.choice(["1", "4"])
        labels: dict[str, str] = {"runtime": RUNTIME} if self.happens(0.6) else {}
        make_node(kube, name, {**labels, **(POOL if self.happens(0.8) else {})}, allocatable=amounts)
        if self.happens(0.3):
            taint = {"key": RUNTIME, "value": "only", "effect": "NoSchedule"}
            kube.patch("v1/nodes", name, {"spec": {"taints": [taint]}})

    def pod(self, name: str) -> Json:
        made = launcher_pod(name)
        compute = self.requests(devices=True)
        spec = made["spec"]
        spec["containers"][0]["resources"] = _resources(compute)
        if self.happens(0.4):
            beside = {"name": "hook-sidecar-0", "image": "registry.example/hook:v1"}
            spec["containers"].append({**beside, "resources": _resources(self.requests())})
        spec["initContainers"] = [
            {
                "name": f"init-{number}",
                "image": "registry.example/init:v1",
                "resources": _resources(self.requests()),
                **({"restartPolicy": "Always"} if self.happens(0.5) else {}),
            }
            for number in range(self.choice([0, 0, 1, 2, 3]))
        ]
        if self.happens(0.15):
            spec["resources"] = {"requests": {"cpu": "8", "memory": "16Gi"}} if self.happens(0.3) else {}
        if self.happens(0.4):
            spec["runtimeClassName"] = RUNTIME
        return made

    def requests(self, *, devices: bool = False) -> dict[str, str]:
        found = {"cpu": self.choice(["100m", "500m", "1"]), "memory": self.choice(["64Mi", "500M", "800Mi"])}
        if self.happens(0.2):
            found["ephemeral-storage"] = self.choice(["50M", "2Gi"])
        if devices:
            found["devices.kubevirt.io/kvm"] = "1"
            if self.happens(0.3):
                found[PAGES] = self.choice(["256Mi", "1Gi"])
            if self.happens(0.35):
                found[FOO] = self.choice(["1", "2"])
            if self.happens(0.2):
                found[GPU] = self.choice(["1", "2"])
        return found


def _resources(requests: Mapping[str, str]) -> Json:
    """Devices and huge pages can't be overcommitted: their limits are the requests."""
    return {
        "requests": dict(requests),
        "limits": {name: amount for name, amount in requests.items() if "/" in name or "huge" in name},
    }


def evaluated(pod: KubeObject, nodes: list[Node]) -> set[str]:
    """Where the webhook finds that a target pod may run whose source is this pod."""
    launcher = msgspec.convert(pod, LauncherPod)
    requests = pod["spec"]["containers"][0]["resources"]["requests"]
    vmi = msgspec.convert({"spec": {"architecture": "amd64", "domain": {"resources": {"requests": requests}}}}, Vmi)
    runtime_class = RuntimeClass()
    if pod["spec"].get("runtimeClassName"):
        runtime_class = msgspec.convert(RUNTIME_CLASS, RuntimeClass)
    left = unexplained_labels(launcher, vmi, DEFAULTS, {}, runtime_class.labels)
    asked = target_pod_demand(vmi, launcher)
    requirements = target_pod_requirements(
        vmi,
        requests=asked.requests,
        admitted=(*runtime_class.labels, *namespace_labels("pool=vms", left)),
        tolerations=runtime_class.tolerations,
    )
    assert (left, asked.gaps) == (POOL, ())
    found = {name for name, reasons in reasons_node_by_node(requirements, nodes).items() if not reasons}
    assert NodeIndex(nodes).review(requirements).names() == sorted(found)
    return found


def scheduled(kube: Kube, pod: Json, namespace: str) -> set[str]:
    """The nodes that the scheduler takes, each asked alone."""
    for node in SMALL_NODES:
        term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}
        required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
        metadata = {**pod["metadata"], "name": f"{pod['metadata']['name']}-{node}"}
        spec = {**pod["spec"], "affinity": {"nodeAffinity": required}}
        kube.create(PODS, {**pod, "metadata": metadata, "spec": spec}, namespace)

    def looked_at() -> list[Any] | None:
        pods = kube.list(PODS, namespace)
        return pods if all(one["spec"].get("nodeName") or one["status"].get("conditions") for one in pods) else None

    pods = eventually(looked_at, what="the scheduler to look at all pods")
    for one in pods:
        kube.delete(PODS, one["metadata"]["name"], namespace, gracePeriodSeconds="0")
    return {one["spec"]["nodeName"] for one in pods if one["spec"].get("nodeName")}


def test_the_scheduler_agrees_on_what_can_never_fit(own_plane: OwnPlane) -> None:
    dice = ResourceDice(RESOURCES_SEED)
    plane = own_plane()
    for name in SMALL_NODES:
        dice.node(plane.admin, name)
    plane.admin.make(RUNTIME_CLASS)
    plane.admin.make(obj("Namespace", "vms", annotations={NODE_SELECTOR_ANNOTATION: "pool=vms"}))
    plane.start_scheduler("default")
    nodes = [Node.read(found) for found in plane.admin.list("v1/nodes")]

    ours, lacking = {}, 0
    for number in range(VMS):
        manifest = dice.pod(f"vm-{number}")
        # As the API server's admission leaves it, which is what the VM's present pod shows.
        shown = plane.admin.create(PODS, manifest, "vms", dryRun="All")
        ours[number] = evaluated(shown, nodes)
        assert ours[number] == scheduled(plane.admin, manifest, "vms"), manifest["spec"]
        wanted = target_pod_demand(Vmi(), msgspec.convert(shown, LauncherPod)).requests
        lacking += sum(any(node.lacks(name, amount) for name, amount in wanted.items()) for node in nodes)

    # Not to be content with pods that fit nowhere, or everywhere.
    assert sum(not names for names in ours.values()) >= VMS // 10
    assert sum(0 < len(names) < len(SMALL_NODES) for names in ours.values()) >= VMS // 3
    assert lacking >= VMS
