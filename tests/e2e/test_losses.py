"""What `explain loss` says of random fleets is what the scheduler does once the nodes are deleted.

The nodes go with their pods. What their controllers create anew is created anew here as they would: the pods of VMs as
KubeVirt renders them for a VMI that it makes of the VM, with nothing of the host where it has run. The pods that stay
pending, or that the API server denies, are those of which the plan says so, and each of the others is where the plan
has it. Of nodes that tie, kube-scheduler takes any: the plan is then made again with what it has taken.

``LOST_FLEETS=100`` takes so many fleets, and ``LOST_FLEETS=60:80`` those.
"""

from __future__ import annotations

import asyncio
import heapq
import json
import os
import time
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from webhook.cli.explain import WITH_VMS, from_cluster
from webhook.forecast import loss, report
from webhook.forecast.loss_report import LossPlan
from webhook.forecast.snapshot import ClusterObjects
from webhook.forecast.starts import POD, VM, Key
from webhook.k8s.client.identity import Kubeconfig

from .conftest import OwnPlane
from .support.kube import Json, KubeError, KubeObject, eventually
from .support.migrations import CPU_MODEL, HOST_MODEL, HOSTNAME, OBSOLETE, REQUIRED, guest, source_of
from .support.objects import ZONE, ensure_namespace, make_node, obj
from .support.plane import ControlPlane
from .support.workloads import PODS, VMIS, VMS, vmi_of
from .test_placement import DrainDice

SPACE = "vms"
NODES = [f"node-{number}" for number in range(7)]
APPS = ["web", "db", "cache"]
NODE, CLASSES = "v1/nodes", "scheduling.k8s.io/v1/priorityclasses"
CLAIMS, VOLUMES, QUOTAS = "v1/persistentvolumeclaims", "v1/persistentvolumes", "v1/resourcequotas"
VALUES = {"low": 10, "high": 1000}
MODEL = "Skylake-Server"
# How the names of pods end that run before the loss.
BEFORE = "-before"
# So long after the plan agrees it still has to.
LATE = 0.5


def _fleets() -> range:
    first, _, last = os.environ.get("LOST_FLEETS", "5").rpartition(":")
    return range(int(first or 0), int(last))


class Dice(DrainDice):
    """A fleet in which every third one has priorities, and pods are preempted."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.has_priorities = seed % 3 == 2

    def host(self, plane: ControlPlane, name: str) -> None:
        cpus = self.choice(["2", "3"])
        labels = {ZONE: self.choice("abc"), **({"disk": "ssd"} if self.happens(0.6) else {})}
        labels |= {CPU_MODEL + MODEL: "true"} if self.happens(0.7) else {}
        labels |= {OBSOLETE: "true"} if self.happens(0.15) else {}
        # Which no start takes over.
        labels |= {f"host-model-cpu.node.kubevirt.io/{name}": "true", f"cpu-vendor.node.kubevirt.io/{name}": "true"}
        amounts = {"cpu": cpus, "memory": self.choice(["3Gi", "4Gi", "6Gi"]), "pods": self.choice(["8", "12"])}
        make_node(plane.admin, name, labels, allocatable=amounts)
        spec: Json = {}
        if self.happens(0.15):
            spec["taints"] = [{"key": "dedicated", "value": "gpu", "effect": "NoSchedule"}]
        if self.happens(0.1):
            spec["unschedulable"] = True
        if spec:
            plane.admin.patch(NODE, name, {"spec": spec})

    def machine(self, name: str) -> Json:
        """A VM, as its owner writes it."""
        app, memory = self.choice(APPS), self.choice(["256Mi", "512Mi", "900Mi", "1200Mi", "2Gi"])
        spec: Json = {}
        if self.happens(0.25):
            spec["nodeSelector"] = self.choice([{"disk": "ssd"}, {ZONE: "a"}])
        if self.happens(0.3):
            spec["tolerations"] = [{"key": "dedicated", "operator": "Exists"}]
        if self.happens(0.4):
            spec["affinity"] = self.apart() if self.has_priorities else self.affinity()
        elif self.happens(0.3) and not self.has_priorities:
            spec["topologySpreadConstraints"] = [self.spread(app)]
        if self.has_priorities and self.happens(0.6):
            spec["priorityClassName"] = self.choice([*VALUES])
        if self.happens(0.2):
            spec["volumes"] = [{"name": "disk", "persistentVolumeClaim": {"claimName": name}}]
        made = guest(name, model=self.choice(["host-passthrough", "host-passthrough", HOST_MODEL, MODEL]), **spec)
        made["spec"]["domain"]["memory"] = {"guest": memory}
        requests = {"cpu": self.choice(["100m", "300m", "700m"]), "memory": memory}
        made["spec"]["domain"]["resources"] = {"requests": requests}
        strategy = self.choice(["Always", "Always", "Always", "RerunOnFailure", "Manual"])
        template = {"metadata": {"labels": {"app": app}}, "spec": made["spec"]}
        return obj("VirtualMachine", name, "kubevirt.io/v1", spec={"runStrategy": strategy, "template": template})

    def apart(self) -> Json:
        term = {"topologyKey": HOSTNAME, "labelSelector": {"matchLabels": {"app": self.choice(APPS)}}}
        return {"podAntiAffinity": {REQUIRED: [term]}}

    def other(self, name: str) -> Json:
        """A pod of a ReplicaSet."""
        owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "other", "uid": "other", "controller": True}
        requests = {"cpu": self.choice(["100m", "500m"]), "memory": self.choice(["300Mi", "700Mi", "1500Mi"])}
        container = {"name": "main", "image": "registry.example/main:v1", "resources": {"requests": requests}}
        spec: Json = {"containers": [container], "automountServiceAccountToken": False}
        if self.happens(0.3):
            spec["nodeSelector"] = {"disk": "ssd"}
        if self.has_priorities and self.happens(0.5):
            spec["priorityClassName"] = self.choice([*VALUES])
        pod = obj("Pod", name, labels={"app": self.choice(APPS)}, spec=spec)
        pod["metadata"]["ownerReferences"] = [owner]
        return pod


class Fleet:
    """VMs and other pods on nodes of a control plane, of which some are lost."""

    def __init__(self, plane: ControlPlane, seed: int) -> None:
        dice = self.dice = Dice(seed)
        self.plane, self.kube = plane, plane.admin
        ensure_namespace(self.kube, SPACE)
        for name, value in VALUES.items() if dice.has_priorities else ():
            self.kube.create(CLASSES, obj("PriorityClass", name, "scheduling.k8s.io/v1", value=value))
        self.kube.make(obj("KubeVirt", "kubevirt", spec={"configuration": {}}), "kubevirt")
        deployed = {"status": {"phase": "Deployed", "defaultArchitecture": "amd64"}}
        self.kube.patch("kubevirt.io/v1/kubevirts", "kubevirt", deployed, "kubevirt", subresource="status")
        for name in NODES:
            dice.host(plane, name)
        self.lost = dice.sample(NODES, dice.choice([1, 1, 2]))
        self.vms: dict[str, KubeObject] = {}
        self.others: dict[str, Json] = {}
        self.on: dict[Key, str] = {}
        self.created: set[Key] = set()
        self._minutes = iter(dice.sample(range(1440), 60))
        for number in range(dice.choice([14, 18, 22])):
            self._start_vm(dice.machine(f"vm-{number:02}"), self._node())
        for number in range(dice.choice([2, 4, 6])):
            pod = dice.other(f"other-{number}")
            name, node = pod["metadata"]["name"], self._node()
            self.others[name], self.on[POD, SPACE, name] = pod, node
            self._run(pod | {"metadata": pod["metadata"] | {"name": name + BEFORE}}, node)
        self._limit()

    def _node(self) -> str:
        return self.dice.choice(self.lost if self.dice.happens(0.4) else NODES)

    def _start_vm(self, manifest: Json, node: str) -> None:
        name = manifest["metadata"]["name"]
        vm = self.vms[name] = self.plane.admin.create(VMS, manifest, SPACE)
        self.on[VM, SPACE, name] = node
        if manifest["spec"]["template"]["spec"].get("volumes"):
            self._disk(name, node)
        status = {"phase": "Running", "nodeName": node}
        vmi = self.plane.kubevirt_controller.create(VMIS, vmi_of(vm) | {"status": status}, SPACE)
        self._run(self.launcher(name, vmi) | {}, node, BEFORE)

    def _run(self, pod: Json, node: str, suffix: str = "") -> None:
        meta, spec = pod["metadata"], pod["spec"]
        name = meta["name"] + suffix
        self.kube.create(PODS, pod | {"metadata": meta | {"name": name}, "spec": spec | {"nodeName": node}}, SPACE)
        # By this kube-scheduler chooses whom to preempt, of pods of the same priority.
        hours, minutes = divmod(next(self._minutes), 60)
        status = {"phase": "Running", "startTime": f"2026-01-01T{hours:02}:{minutes:02}:00Z"}
        self.kube.patch(PODS, name, {"status": status}, SPACE, subresource="status")

    def launcher(self, name: str, vmi: Mapping[str, Any]) -> Json:
        """The pod of a VMI, as KubeVirt renders it when the VMI starts."""
        spec = vmi["spec"]
        pod = source_of(vmi, "")
        del pod["spec"]["nodeName"], pod["metadata"]["generateName"]
        pod["metadata"]["name"] = f"virt-launcher-{name}"
        kvm = {"devices.kubevirt.io/kvm": "1"}
        requests = spec["domain"]["resources"]["requests"] | kvm
        pod["spec"]["containers"][0]["resources"] = {"requests": requests, "limits": kvm}
        affinity: Json = json.loads(json.dumps(spec.get("affinity", {})))
        if spec["domain"]["cpu"]["model"] == HOST_MODEL:
            absent = {"matchExpressions": [{"key": OBSOLETE, "operator": "DoesNotExist"}]}
            affinity["nodeAffinity"] = {REQUIRED: {"nodeSelectorTerms": [absent]}}
        pod["spec"]["affinity"] = affinity
        for field in ("topologySpreadConstraints", "priorityClassName", "volumes"):
            if field in spec:
                pod["spec"][field] = spec[field]
        return pod

    def _disk(self, name: str, node: str) -> None:
        """A volume that only the node reaches, or its zone, or every node."""
        labels = self.kube.get(NODE, node)["metadata"]["labels"]
        spec: Json = {"accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"}, "hostPath": {"path": "/disk"}}
        key = self.dice.choice([HOSTNAME, ZONE, ""])
        if key:
            terms = [{"matchExpressions": [{"key": key, "operator": "In", "values": [labels[key]]}]}]
            spec["nodeAffinity"] = {"required": {"nodeSelectorTerms": terms}}
        wanted = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}, "volumeName": name}
        bound = {"pv.kubernetes.io/bind-completed": "yes", "pv.kubernetes.io/bound-by-controller": "yes"}
        claim = obj("PersistentVolumeClaim", name, annotations=bound, spec=wanted | {"storageClassName": ""})
        made = self.kube.create(CLAIMS, claim, SPACE)
        spec["claimRef"] = {"kind": "PersistentVolumeClaim", "namespace": SPACE, "name": name}
        spec["claimRef"]["uid"] = made["metadata"]["uid"]
        self.kube.create(VOLUMES, obj("PersistentVolume", name, spec=spec))
        self.kube.patch(VOLUMES, name, {"status": {"phase": "Bound"}}, subresource="status")
        status = {"phase": "Bound", "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"}}
        self.kube.patch(CLAIMS, name, {"status": status}, SPACE, subresource="status")

    def _limit(self) -> None:
        """Sometimes a quota that has been lowered since."""
        self.quota = 0
        if self.dice.happens(0.2) and not self.dice.has_priorities:
            every = len(self.kube.list(PODS, SPACE))
            self.quota = every - self.dice.choice([1, 2])
            self.kube.create(QUOTAS, obj("ResourceQuota", "pods", spec={"hard": {"pods": str(self.quota)}}), SPACE)
            self._count(every)

    def _count(self, used: int) -> None:
        """What the quota controller writes."""
        status = {"status": {"hard": {"pods": str(self.quota)}, "used": {"pods": str(used)}}}
        self.kube.patch(QUOTAS, "pods", status, SPACE, subresource="status")

    def read(self) -> ClusterObjects:
        kubeconfig = Kubeconfig(str(self.plane.kubeconfig_for("admin", ["system:masters"])))
        return asyncio.run(from_cluster(kubeconfig, lists=WITH_VMS))

    def lose(self) -> None:
        for pod in self.kube.list(PODS, SPACE):
            if pod["spec"]["nodeName"] in self.lost:
                self.kube.delete(PODS, pod["metadata"]["name"], SPACE, gracePeriodSeconds="0")
        for node in self.lost:
            self.kube.delete(NODE, node)
        for name in [name for name in self.vms if self.on[VM, SPACE, name] in self.lost]:
            self.kube.delete(VMIS, name, SPACE)
        if self.quota:
            self._count(len(self.kube.list(PODS, SPACE)))

    def starting(self) -> list[Key]:
        """What is created anew, by what has run on the nodes, in no order."""
        gone = [key for key, node in self.on.items() if node in self.lost]
        return [key for key in gone if key[0] == POD or self.vms[key[2]]["spec"]["runStrategy"] != "Manual"]

    def create(self, key: Key) -> bool:
        """Create a pod anew as its controller does; whether the API server admits it."""
        name = key[2]
        self.created.add(key)
        pod = self.others[name] if key[0] == POD else self.launcher(name, self._vmi(name))
        try:
            self.kube.create(PODS, pod, SPACE)
        except KubeError as error:
            assert "exceeded quota" in str(error)
            return False
        return True

    def _vmi(self, name: str) -> KubeObject:
        return self.plane.kubevirt_controller.create(VMIS, vmi_of(self.vms[name]), SPACE)

    def pods(self) -> dict[Key, KubeObject]:
        """The pods that have been created anew."""
        found = {each["metadata"]["name"]: each for each in self.kube.list(PODS, SPACE)}
        new = {name: each for name, each in found.items() if not name.endswith(BEFORE)}
        return {
            (VM, SPACE, name.removeprefix("virt-launcher-")) if name.startswith("virt-") else (POD, SPACE, name): each
            for name, each in new.items()
        }

    def priority(self, key: Key) -> int:
        spec = self.others[key[2]]["spec"] if key[0] == POD else self.vms[key[2]]["spec"]["template"]["spec"]
        return VALUES.get(spec.get("priorityClassName", ""), 0)

    def turn(self, key: Key) -> tuple[int, bool, Key]:
        return -self.priority(key), key[0] == VM, key


def _is_settled(pod: Mapping[str, Any]) -> bool:
    """Whether the scheduler has looked at a pod, and waits for no preemption."""
    has_node = bool(pod["spec"].get("nodeName"))
    return has_node or bool(pod["status"].get("conditions") and not pod["status"].get("nominatedNodeName"))


def _create_all(fleet: Fleet) -> None:
    """In the plan's order: the scheduler has looked at each pod before the next one comes, and it preempts."""
    fleet.plane.start_scheduler("default")
    queue = [(fleet.turn(key), key) for key in fleet.starting()]
    heapq.heapify(queue)
    while queue:
        _, key = heapq.heappop(queue)
        if not fleet.create(key):
            continue

        def is_over(key: Key = key) -> bool:
            for victim in fleet.kube.list(PODS, SPACE):
                if victim["metadata"].get("deletionTimestamp") and (again := _end(fleet, victim)):
                    heapq.heappush(queue, (fleet.turn(again), again))
            return _is_settled(fleet.pods()[key])

        eventually(is_over, what=f"the scheduler to look at {key}")


def _end(fleet: Fleet, victim: Mapping[str, Any]) -> Key | None:
    """Do as the kubelet does with a pod that is deleted, and then as its controller; what is created anew."""
    name = victim["metadata"]["name"]
    fleet.kube.delete(PODS, name, SPACE, gracePeriodSeconds="0")
    own = name.removesuffix(BEFORE).removeprefix("virt-launcher-")
    if own in fleet.others:
        return (POD, SPACE, own)
    fleet.kube.delete(VMIS, own, SPACE)
    # The guest shuts down, which ends all but those that always run.
    return (VM, SPACE, own) if fleet.vms[own]["spec"]["runStrategy"] == "Always" else None


def _follow(fleet: Fleet, objects: ClusterObjects) -> LossPlan:
    """The plan, with what the scheduler has taken of nodes that tie."""
    taken = {key: pod["spec"].get("nodeName", "") for key, pod in fleet.pods().items()}
    views = sorted(each.meta.name or "" for each in objects.nodes if each.meta.name not in fleet.lost)

    def choose(key: Key, ties: int) -> int | None:
        node = taken.get((*key[:2], key[2].removesuffix(BEFORE)))
        return views.index(node) if node and ties >> views.index(node) & 1 else None

    return loss.plan(objects, fleet.lost, choose)


def _said(plan: LossPlan) -> tuple[dict[str, str], set[str]]:
    """Where the VMs are that have a pod, and the other pods without a node."""
    vms = {vm.name: vm.to for vm in plan.vms if vm.outcome != report.DOWN and vm.code != report.QUOTA}
    return vms, {each.name.removesuffix(BEFORE) for each in plan.waiting_pods}


def _done(fleet: Fleet) -> tuple[dict[str, str], set[str]]:
    """What the scheduler has done, as the plan says it."""
    on = {key: pod["spec"].get("nodeName", "") for key, pod in fleet.pods().items()}
    others = {key[2] for key in fleet.created if key[0] == POD and not on.get(key)}
    return {key[2]: node for key, node in on.items() if key[0] == VM}, others


def _waiting(plan: LossPlan) -> set[str]:
    return {vm.name for vm in plan.vms if vm.outcome == report.WAITS}


@pytest.mark.parametrize("seed", _fleets())
def test_what_stays_pending_is_what_explain_loss_said(
    own_plane: OwnPlane, seed: int, record_property: Callable[[str, object], None]
) -> None:
    fleet = Fleet(own_plane(), seed)
    objects = fleet.read()
    before = plan = loss.plan(objects, fleet.lost)
    assert not plan.gaps
    fleet.lose()
    _create_all(fleet)

    def agrees() -> bool:
        nonlocal plan
        plan = _follow(fleet, objects)
        return _said(plan) == _done(fleet)

    try:
        # A pod that finds a node once others are there has been looked at before.
        eventually(agrees, what="the scheduler to do what the plan says", timeout=25)
    except AssertionError:
        assert _said(plan) == _done(fleet), (fleet.lost, plan.vms)
    time.sleep(LATE)
    assert agrees()
    values = {"VMs": before.starts + before.waits, "waiting": len(_waiting(before)), "preempted": before.preempted}
    values |= {"other pods": before.other_pods, "down": before.stays_down, "lost": len(fleet.lost)}
    values |= {code: sum(vm.code == code for vm in plan.vms) for code in sorted({vm.code for vm in plan.vms})}
    values["ties decided"] = _waiting(before) != _waiting(plan)
    for name, value in values.items():
        record_property(name, value)
