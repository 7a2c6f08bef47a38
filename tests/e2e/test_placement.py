"""The nodes that could hold a migration's target pod are those where the real scheduler puts it while they are empty.

Each node is offered alone: one copy of the pod is bound to each by its name, so that the scheduler answers for each.

And what `explain drain` predicts of random clusters is what the scheduler does to the target pods: for each VM alone,
and in the plan's order for all together, after which those that the plan calls blocked find no node.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager

import msgspec
import pytest

from tests.builders import read_node
from tests.placement.samples import reasons_node_by_node
from webhook.cli.explain import from_cluster
from webhook.forecast import balance
from webhook.forecast.balance_report import BalancePlan
from webhook.forecast.drain import plan
from webhook.forecast.report import BLOCKS, MOVES, NO_ELIGIBLE_NODE, NO_ROOM, PODS_APART, DrainPlan, VmPlan
from webhook.k8s.client.identity import Kubeconfig
from webhook.kubevirt.config import DEFAULTS
from webhook.placement.demand import target_pod_demand
from webhook.placement.index import NodeIndex
from webhook.placement.machines import LauncherPod, Vmi
from webhook.placement.nodes import Node
from webhook.placement.target_pods import (
    NODE_SELECTOR_ANNOTATION,
    RuntimeClass,
    namespace_labels,
    target_pod_requirements,
    unexplained_labels,
)

from .conftest import OwnPlane
from .support.kube import Json, Kube, KubeObject
from .support.migrations import HOSTNAME, REQUIRED, guest, source_of, target_of
from .support.objects import ZONE, ensure_namespace, launcher_pod, make_node, obj
from .support.placing import looked_at
from .support.plane import ControlPlane
from .support.program import command
from .support.workloads import PODS, VMIS

VMS = 40


class Dice(random.Random):
    def happens(self, chance: float) -> bool:
        return self.random() < chance


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


class ResourceDice(Dice):
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


def bound_to(node: str) -> Json:
    term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}
    return {REQUIRED: {"nodeSelectorTerms": [term]}}


def scheduled(kube: Kube, pod: Json, namespace: str) -> set[str]:
    """The nodes that the scheduler takes, each asked alone."""
    for node in SMALL_NODES:
        metadata = {**pod["metadata"], "name": f"{pod['metadata']['name']}-{node}"}
        spec = {**pod["spec"], "affinity": {"nodeAffinity": bound_to(node)}}
        kube.create(PODS, {**pod, "metadata": metadata, "spec": spec}, namespace)

    pods = [looked_at(kube, f"{pod['metadata']['name']}-{node}", namespace) for node in SMALL_NODES]
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
    nodes = [read_node(found) for found in plane.admin.list("v1/nodes")]

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


def _balanced_fleets() -> range:
    """``BALANCED_FLEETS=60:80`` takes those."""
    first, _, last = os.environ.get("BALANCED_FLEETS", "3").rpartition(":")
    return range(int(first or 0), int(last))


DRAIN_NODES = [f"node-{number}" for number in range(7)]
SPACE = "vms"
APPS = ["web", "db", "cache"]
KUBEVIRTS = "kubevirt.io/v1/kubevirts"
MIGRATABLE = {"type": "LiveMigratable", "status": "True"}


class DrainDice(Dice):
    def node(self, kube: Kube, name: str) -> None:
        labels = {ZONE: self.choice("ab"), **({"disk": "ssd"} if self.happens(0.6) else {})}
        amounts = {"cpu": self.choice(["2", "3"]), "memory": self.choice(["3Gi", "4Gi", "6Gi"]), "pods": "12"}
        if name == DRAIN_NODES[0] or self.happens(0.4):
            amounts[GPU] = "1"
        make_node(kube, name, labels, allocatable=amounts)
        if self.happens(0.2):
            taint = {"key": "dedicated", "value": "gpu", "effect": "NoSchedule"}
            kube.patch("v1/nodes", name, {"spec": {"taints": [taint]}})

    def vm(self, name: str) -> tuple[Json, Json]:
        app = self.choice(APPS)
        memory = self.choice(["256Mi", "512Mi", "1Gi", "2Gi"])
        spec: Json = {}
        if self.happens(0.3):
            spec["nodeSelector"] = self.choice([{"disk": "ssd"}, {ZONE: "a"}])
        if self.happens(0.3):
            spec["tolerations"] = [{"key": "dedicated", "operator": "Exists"}]
        if self.happens(0.5):
            spec["affinity"] = self.affinity()
        if self.happens(0.25):
            spec["topologySpreadConstraints"] = [self.spread(app)]
        vmi = guest(name, model="host-passthrough", **spec)
        vmi["metadata"]["labels"] = {"app": app}
        vmi["spec"]["domain"]["memory"] = {"guest": memory}
        requests = {"cpu": self.choice(["100m", "300m", "700m"]), "memory": memory, "devices.kubevirt.io/kvm": "1"}
        vmi["spec"]["domain"]["resources"] = {"requests": {"cpu": requests["cpu"], "memory": memory}}
        if self.happens(0.15):
            vmi["spec"]["domain"]["devices"] = {"gpus": [{"name": "gpu", "deviceName": GPU}]}
            requests[GPU] = "1"
        return vmi, requests

    def affinity(self) -> Json:
        term: Json = {"topologyKey": self.choice([HOSTNAME, HOSTNAME, ZONE])}
        if self.happens(0.7):
            term["labelSelector"] = {"matchLabels": {"app": self.choice(APPS)}}
        else:
            expression = {"key": "app", "operator": self.choice(["In", "NotIn"]), "values": self.sample(APPS, 2)}
            term["labelSelector"] = {"matchExpressions": [expression]}
        if self.happens(0.2):
            term["namespaceSelector"] = {}
        return {self.choice(["podAffinity", "podAntiAffinity", "podAntiAffinity"]): {REQUIRED: [term]}}

    def spread(self, app: str) -> Json:
        return {
            "topologyKey": self.choice([HOSTNAME, ZONE]),
            "maxSkew": self.choice([1, 2]),
            "whenUnsatisfiable": self.choice(["DoNotSchedule", "DoNotSchedule", "ScheduleAnyway"]),
            "labelSelector": {"matchLabels": {"app": app}},
            "nodeAffinityPolicy": self.choice(["Honor", "Ignore"]),
            **({"nodeTaintsPolicy": "Honor"} if self.happens(0.3) else {}),
        }


class DrainCluster:
    """So many random VMs on a control plane with KubeVirt's settings."""

    def __init__(self, plane: ControlPlane, seed: int, vms: int) -> None:
        dice = DrainDice(seed)
        self.plane, self.kube = plane, plane.admin
        ensure_namespace(self.kube, SPACE)
        configuration = {"configuration": {"evictionStrategy": "LiveMigrate"}}
        self.kube.make(obj("KubeVirt", "kubevirt", spec=configuration), "kubevirt")
        # Settings count from when the operator has taken them up.
        deployed = {"status": {"phase": "Deployed", "defaultArchitecture": "amd64"}}
        self.kube.patch(KUBEVIRTS, "kubevirt", deployed, "kubevirt", subresource="status")
        self.vmis: dict[str, KubeObject] = {}
        self.sources: dict[str, KubeObject] = {}
        self.requests: dict[str, Json] = {}
        for name in DRAIN_NODES:
            dice.node(self.kube, name)
        self.nodes = {each["metadata"]["name"]: each for each in self.kube.list("v1/nodes")}
        for number in range(vms):
            name = f"vm-{number:02}"
            manifest, requests = dice.vm(name)
            self.requests[name] = requests
            hosts = [
                host for host in DRAIN_NODES if self.nodes[host]["status"]["allocatable"].keys() >= requests.keys()
            ]
            node = dice.choice(hosts[:3] if dice.happens(0.6) else hosts)
            status = {"phase": "Running", "nodeName": node, "conditions": [MIGRATABLE]}
            vmi = plane.kubevirt_controller.create(VMIS, {**manifest, "status": status}, SPACE)
            self.vmis[name] = vmi
            pod = source_of(vmi, node)
            pod["spec"]["affinity"] = vmi["spec"].get("affinity", {})
            made = self.kube.create(PODS, self._dressed(pod, name), SPACE)
            running = {"status": {"phase": "Running"}}
            self.kube.patch(PODS, made["metadata"]["name"], running, SPACE, subresource="status")
            self.sources[name] = made

    def _dressed(self, pod: Json, name: str) -> Json:
        """A launcher pod with what KubeVirt takes over from its VMI beside the affinity."""
        requests = self.requests[name]
        limits = {resource: amount for resource, amount in requests.items() if "/" in resource}
        pod["spec"]["containers"][0]["resources"] = {"requests": requests, "limits": limits}
        spread = self.vmis[name]["spec"].get("topologySpreadConstraints", [])
        pod["spec"]["topologySpreadConstraints"] = spread
        return pod

    def plan(self, nodes: Sequence[str], *, rolling: bool = False) -> DrainPlan:
        snapshot = asyncio.run(from_cluster(Kubeconfig(str(self.plane.kubeconfig_for("admin", ["system:masters"])))))
        found = plan(snapshot, nodes, rolling=rolling)
        assert not found.gaps
        assert not any(vm.gaps for step in found.steps for vm in step.vms)
        return found

    def balance(self) -> BalancePlan:
        """The migrations after which no node is more than 5 percentage points above the mean."""
        kubeconfig = Kubeconfig(str(self.plane.kubeconfig_for("admin", ["system:masters"])))
        found = balance.plan(asyncio.run(from_cluster(kubeconfig)), balance.Wanted(5))
        assert not found.gaps
        return found

    def on(self, nodes: Sequence[str]) -> set[str]:
        return {name for name, vmi in self.vmis.items() if vmi["status"]["nodeName"] in nodes}

    def move(self, name: str, node: str, added: Mapping[str, str] | None = None) -> None:
        """Migrate a VM as KubeVirt does: a target pod that the scheduler puts there, then the source pod ends.

        The pod requires the node, or what a migration has ``added`` to its selector.
        """
        pod = self._created_target(name, "" if added else node, added)
        # It may learn of a node that has come back after it has looked at the pod; then it looks again.
        what = f"{name} to get {node}: {self.vmis[name]['spec']}"
        self.kube.wait(PODS, pod, SPACE, until=lambda found: found["spec"].get("nodeName") == node, what=what)
        self.leave(name)
        self.kube.patch(PODS, pod, {"status": {"phase": "Running"}}, SPACE, subresource="status")
        status = {"status": {"nodeName": node}}
        self.vmis[name] = self.plane.kubevirt_controller.patch(VMIS, name, status, SPACE)
        self.sources[name] = self.kube.get(PODS, pod, SPACE)

    @contextmanager
    def target(self, name: str, node: str = "") -> Iterator[str]:
        """The target pod of a VM, and where the scheduler puts it; with a node, the pod requires that node."""
        made = self._created_target(name, node)
        yield str(looked_at(self.kube, made, SPACE)["spec"].get("nodeName", ""))
        self.kube.delete(PODS, made, SPACE, gracePeriodSeconds="0")

    def _created_target(self, name: str, node: str, added: Mapping[str, str] | None = None) -> str:
        vmi, source = self.vmis[name], self.sources[name]
        migration = {"metadata": {"uid": f"job-{name}", "name": f"job-{name}"}, "spec": {"addedNodeSelector": added}}
        pod = self._dressed(target_of(vmi, migration, source, self.nodes[vmi["status"]["nodeName"]]), name)
        if node:
            pod["spec"]["affinity"]["nodeAffinity"] = bound_to(node)
        made: str = self.kube.create(PODS, pod, SPACE)["metadata"]["name"]
        return made

    def can_be_pinned(self, name: str) -> bool:
        """Whether a VM that is sent to one node by affinity is spread over the same nodes as before."""
        spread = self.vmis[name]["spec"].get("topologySpreadConstraints", [])
        return all(each["nodeAffinityPolicy"] == "Ignore" for each in spread)

    def leave(self, name: str) -> None:
        self.kube.delete(PODS, self.sources[name]["metadata"]["name"], SPACE, gracePeriodSeconds="0")

    def cordon(self, nodes: Sequence[str], *, unschedulable: bool | None = True) -> None:
        """Closes nodes to new pods; with None, opens them again."""
        for node in nodes:
            self.kube.patch("v1/nodes", node, {"spec": {"unschedulable": unschedulable}})

    def stays(self, vm: VmPlan) -> None:
        """Asserts that the scheduler finds no node for the target pod of a VM."""
        with self.target(vm.name) as chosen:
            assert not chosen, vm


@pytest.mark.parametrize("seed", [1, 5])
def test_what_is_predicted_is_what_the_scheduler_does(own_plane: OwnPlane, seed: int) -> None:
    cluster, drained = DrainCluster(own_plane(), seed, vms=18), DRAIN_NODES[:2]
    found = cluster.plan(drained)
    cluster.cordon(drained)
    cluster.plane.start_scheduler("default")
    vms = found.steps[0].vms

    assert {vm.code for vm in vms if vm.outcome == BLOCKS} <= {NO_ELIGIBLE_NODE, NO_ROOM, PODS_APART}
    for vm in vms:
        ours = set(vm.candidates)
        about = (vm, cluster.vmis[vm.name]["spec"])
        with cluster.target(vm.name) as chosen:
            assert chosen in (ours or {""}), about
        if cluster.can_be_pinned(vm.name):
            assert {node for node in DRAIN_NODES if _goes_to(cluster, vm, node)} == ours, about
    with ExitStack() as moved:
        # All that move are where the plan says, put there by the scheduler one after the other, as the plan has it.
        for vm in sorted((vm for vm in vms if vm.outcome == MOVES), key=lambda vm: vm.turn):
            chosen = moved.enter_context(cluster.target(vm.name, vm.to))
            assert chosen == vm.to, (vm, cluster.vmis[vm.name]["spec"])
            cluster.leave(vm.name)
        for vm in (vm for vm in vms if vm.outcome == BLOCKS):
            cluster.stays(vm)
    # The command itself reads the same cluster.
    result = command(cluster.plane, "explain", "drain", *drained, "-o", "json", check=False)
    assert json.loads(result.output)["schema"].endswith("explain-drain/v1alpha1")
    assert result.exit_code == (1 if found.blocks else 0)
    # Not to be content with VMs that fit nowhere, or everywhere.
    assert any(0 < len(vm.candidates) < len(DRAIN_NODES) - len(drained) for vm in vms)
    assert 0 < found.blocks < len(vms)


@pytest.mark.parametrize("seed", [7])
def test_a_rolling_upgrade_goes_as_predicted(own_plane: OwnPlane, seed: int) -> None:
    """Node after node: every VM that moves goes where the plan has it, and the scheduler finds none for the others."""
    cluster = DrainCluster(own_plane(), seed, vms=12)
    found = cluster.plan(DRAIN_NODES, rolling=True)
    cluster.plane.start_scheduler("default")

    assert [step.nodes for step in found.steps] == [(node,) for node in sorted(DRAIN_NODES)]
    moved: list[str] = []
    for step in found.steps:
        cluster.cordon(step.nodes)
        assert {vm.name for vm in step.vms} == cluster.on(step.nodes), "the plan follows the VMs that have moved"
        for vm in sorted(step.vms, key=lambda vm: vm.turn):
            if vm.outcome == MOVES:
                cluster.move(vm.name, vm.to)
                moved.append(vm.name)
        for vm in (vm for vm in step.vms if vm.outcome == BLOCKS):
            cluster.stays(vm)
        cluster.cordon(step.nodes, unschedulable=None)
    # Not to be content with VMs that move once, or never.
    assert len(moved) == found.moves > len(set(moved))


@pytest.mark.parametrize("seed", _balanced_fleets())
def test_a_plan_that_balances_nodes_ends_where_it_says(
    own_plane: OwnPlane, seed: int, record_property: Callable[[str, object], None]
) -> None:
    """Its migrations are made one after the other, with what each adds: every VM gets the node that the plan names."""
    cluster = DrainCluster(own_plane(), seed, vms=18)
    found = cluster.balance()
    cluster.plane.start_scheduler("default")
    for each in found.moves:
        cluster.move(each.name, each.to, each.migration["spec"]["addedNodeSelector"])
    left = cluster.balance()
    assert abs(left.deviation - found.deviation_after) < 1
    assert {each.name: (each.cpu, each.memory) for each in left.loads} == {
        each.name: (each.cpu_after, each.memory_after) for each in found.loads
    }
    for name, value in (("moves", len(found.moves)), ("before", found.deviation), ("after", found.deviation_after)):
        record_property(name, value)


def _goes_to(cluster: DrainCluster, vm: VmPlan, node: str) -> bool:
    with cluster.target(vm.name, node) as chosen:
        return chosen == node
