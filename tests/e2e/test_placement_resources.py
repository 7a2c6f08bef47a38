"""Whether the nodes that could hold a target pod are those where the real scheduler puts it while they are empty.

Each node is offered alone: one copy of the pod is bound to each by its name, so that the scheduler answers for each.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

import msgspec

from tests.placement.node_by_node import reasons_node_by_node
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
from .support.kube import Json, Kube, KubeObject, eventually
from .support.objects import launcher_pod, make_node, obj
from .support.workloads import PODS

SEED = 1111
VMS = 40
NODES = [f"node-{number}" for number in range(8)]
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
    for node in NODES:
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
    dice = ResourceDice(SEED)
    plane = own_plane()
    for name in NODES:
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
    assert sum(0 < len(names) < len(NODES) for names in ours.values()) >= VMS // 3
    assert lacking >= VMS
