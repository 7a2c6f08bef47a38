"""Random pods land where the simulation of the scheduler says, pod after pod, on random nodes beside a real scheduler.

Where several nodes tie, on one of them; a pod without a node has none in the simulation either.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec
import pytest
import yaml

from bench.placement.profiles import SPREAD_FILE
from tests.builders import read_node
from webhook.k8s.types.core import Node
from webhook.placement.index import NodeIndex
from webhook.placement.nodes import bitset_positions
from webhook.placement.profiles import Profile, Profiles
from webhook.placement.running_pods import RunningPod, incoming
from webhook.placement.scores import IMAGE_VOLUMES_SCORED_SINCE
from webhook.placement.simulate import Simulation
from webhook.placement.target_pods import own_requirements

from .conftest import OwnPlane
from .support import versions
from .support.kube import Json, KubeObject
from .support.migrations import HOSTNAME, REQUIRED
from .support.objects import ZONE, ensure_namespace, launcher_pod, make_node, obj
from .support.placing import looked_at
from .support.plane import ControlPlane
from .support.workloads import PODS

PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
NODES = [f"node-{number}" for number in range(9)]
SPACES = ["shop", "lab"]
APPS = ["web", "db", "cache"]
IMAGES = {"registry.example/kubevirt/virt-launcher:v1": 600_000_000, "registry.example/disk:v2": 300_000_000}
OTHER_IMAGE = "registry.example/other:v3"
# Of volumes, and so large that it decides.
DISK_IMAGE = "registry.example/containerdisk:v4"
DISK_SIZE = 5_000_000_000
KVM = "devices.kubevirt.io/kvm"
NAMESPACES: Mapping[str, Mapping[str, str]] = {each: {} for each in SPACES}
# What selects the pods of Services, by namespace; pods with both labels belong to two.
SERVICES: Mapping[str, Sequence[Mapping[str, str]]] = {"shop": [{"app": "web"}, {"kubevirt.io": "virt-launcher"}]}
PODS_OF_A_FLEET = 40
STOCK: Final[Json] = {"schedulerName": "default-scheduler"}
VERSION = (1, int(versions.OLDER.partition(".")[2])) if versions.OLDER else (1, 37)


def _shipped(name: str) -> Json:
    written: Json = yaml.safe_load((SPREAD_FILE.parent / f"{name}.yaml").read_text())["profiles"][0]
    return {**written, "schedulerName": name}


PROFILES = [STOCK, _shipped("spread"), _shipped("pack")]


def _fleets() -> range:
    """``SIMULATED_FLEETS=60:80`` takes those."""
    first, _, last = os.environ.get("SIMULATED_FLEETS", "4").rpartition(":")
    return range(int(first or 0), int(last))


class Dice(random.Random):
    def happens(self, chance: float) -> bool:
        return self.random() < chance

    def node(self, plane: ControlPlane, name: str) -> None:
        cpus = self.choice([4, 8, 64])
        labels = {ZONE: self.choice("abc")} if self.happens(0.9) else {}
        labels |= {"disk": self.choice(["ssd", "hdd"])} if self.happens(0.7) else {}
        amounts = {"cpu": str(cpus), "memory": f"{cpus * self.choice([2, 4])}Gi", "pods": self.choice(["12", "110"])}
        amounts[KVM] = self.choice(["20", "110", "1k"])
        listed = [{"names": [image], "sizeBytes": size} for image, size in IMAGES.items() if self.happens(0.5)]
        listed += [{"names": [DISK_IMAGE], "sizeBytes": DISK_SIZE}] if self.happens(0.4) else []
        make_node(plane.admin, name, labels, listed, amounts)
        taints = [
            {"key": key, "value": "yes", "effect": effect}
            for key, effect, chance in (
                ("busy", "PreferNoSchedule", 0.3),
                ("old", "PreferNoSchedule", 0.2),
                ("dedicated", "NoSchedule", 0.15),
            )
            if self.happens(chance)
        ]
        is_cordoned = self.happens(0.1)
        if is_cordoned:
            # The node lifecycle controller does it, and kube-scheduler then counts no pods there.
            taints.append({"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"})
        plane.admin.patch("v1/nodes", name, {"spec": {"taints": taints, "unschedulable": is_cordoned or None}})

    def pod(self, name: str) -> tuple[str, Json]:
        pod = launcher_pod(name, scheduler=self.choice(PROFILES)["schedulerName"])
        pod["metadata"]["labels"] |= {"app": self.choice(APPS)}
        spec = pod["spec"]
        if self.happens(0.3):
            spec["nodeSelector"] |= {"disk": self.choice(["ssd", "hdd"])}
        spec["containers"] = [self.container("compute", vm=self.happens(0.8))]
        if self.happens(0.4):
            spec["initContainers"] = [self.container("sidecar") | {"restartPolicy": "Always"}]
        spec["tolerations"] = [
            toleration
            for toleration in (
                {"key": "busy", "operator": "Exists", "effect": "PreferNoSchedule"},
                {"key": "old", "operator": "Equal", "value": "yes"},
                {"key": "dedicated", "operator": "Exists"},
            )
            if self.happens(0.2)
        ]
        if VERSION >= IMAGE_VOLUMES_SCORED_SINCE and self.happens(0.4):
            spec["volumes"] = [{"name": "disk", "image": {"reference": self.choice([DISK_IMAGE, OTHER_IMAGE])}}]
        spec["affinity"] = self.affinity()
        if self.happens(0.4):
            spec["topologySpreadConstraints"] = [self.spread(key) for key in self.sample([HOSTNAME, ZONE], 1)]
        elif self.happens(0.3):
            spec["topologySpreadConstraints"] = [self.spread(key, "ScheduleAnyway") for key in (HOSTNAME, ZONE)]
        return self.choice(SPACES), pod

    def container(self, name: str, *, vm: bool = False) -> Json:
        requests: Json = {}
        if self.happens(0.8):
            requests["cpu"] = self.choice(["5m", "105m", "400m", "1300m"])
        if self.happens(0.8):
            requests["memory"] = self.choice(["35M", "450Mi", "1Gi", "2300Mi", "5Gi"])
        devices = {KVM: "1"} if vm else {}
        image = self.choice([*IMAGES, OTHER_IMAGE])
        return {"name": name, "image": image, "resources": {"requests": requests | devices, "limits": devices}}

    def affinity(self) -> Json:
        found: Json = {}
        if self.happens(0.25):
            expression = {"key": "disk", "operator": self.choice(["In", "NotIn"]), "values": ["ssd"]}
            zone = {"key": ZONE, "operator": "In", "values": [self.choice("abc")]}
            terms = [
                {"weight": self.choice([1, 30, 100]), "preference": {"matchExpressions": [each]}}
                for each in (expression, zone)
            ]
            found["nodeAffinity"] = {PREFERRED: terms}
        for kind, required, preferred in (("podAffinity", 0.05, 0.2), ("podAntiAffinity", 0.15, 0.25)):
            rules: Json = {}
            if self.happens(required):
                rules[REQUIRED] = [self.term()]
            if self.happens(preferred):
                rules[PREFERRED] = [{"weight": self.choice([1, 50, 100]), "podAffinityTerm": self.term()}]
            found |= {kind: rules} if rules else {}
        return found

    def term(self) -> Json:
        selector = {"matchLabels": {"app": self.choice(APPS)}}
        term: Json = {"topologyKey": self.choice([HOSTNAME, ZONE]), "labelSelector": selector}
        return term | self.choice([{}, {}, {"namespaceSelector": {}}, {"namespaces": self.sample(SPACES, 1)}])

    def spread(self, key: str, when: str = "") -> Json:
        own = {"matchLabels": {"app": self.choice(APPS)}}
        return {
            "topologyKey": key,
            "maxSkew": self.choice([1, 2, 5]),
            "whenUnsatisfiable": when or self.choice(["DoNotSchedule", "ScheduleAnyway", "ScheduleAnyway"]),
            "labelSelector": self.choice([own, own, {"matchLabels": {"kubevirt.io": "virt-launcher"}}, {}]),
            "nodeAffinityPolicy": self.choice(["Honor", "Ignore"]),
            "nodeTaintsPolicy": self.choice(["Honor", "Ignore"]),
        }


class Simulated:
    """The simulation of a fleet: it learns the rules of all pods first."""

    def __init__(self, nodes: Sequence[KubeObject], pods: Sequence[tuple[str, Json]], profiles: Profiles) -> None:
        views = {each["metadata"]["name"]: msgspec.convert(dict(each), Node) for each in nodes}
        self.index = NodeIndex(map(read_node, nodes))
        self.names = {self.index.position(name): name for name in views}
        self.simulation = Simulation(self.index, views, VERSION)
        self.pods: dict[str, Any] = {}
        for space, pod in pods:
            view = msgspec.convert(pod, RunningPod)
            meta = msgspec.structs.replace(view.meta, namespace=space)
            view = msgspec.structs.replace(view, metadata=meta)
            assert view.spec is not None
            self.pods[view.meta.name or ""] = (incoming(view, NAMESPACES, profiles, SERVICES.get(space, ())), view.spec)
        for each, _ in self.pods.values():
            self.simulation.rules.track(each.info)

    def nodes(self, name: str) -> set[str]:
        """The nodes that tie for a pod now."""
        pod, spec = self.pods[name]
        placement = self.simulation.schedule(pod, self.index.review(tuple(own_requirements(spec))))
        return {self.names[at] for at in bitset_positions(placement.ties)} if placement else set()

    def bind(self, name: str, node: str) -> None:
        position = self.index.position(node)
        assert position is not None
        self.simulation.bind(self.pods[name][0], position)

    def terminate(self, name: str, node: str) -> None:
        """Have a pod be deleted that no kubelet ends."""
        position = self.index.position(node)
        assert position is not None
        pod, _ = self.pods[name]
        self.simulation.unbind(pod, position)
        info = msgspec.structs.replace(pod.info, is_terminating=True)
        self.simulation.bind(msgspec.structs.replace(pod, info=info), position)

    def about(self, name: str) -> Mapping[str, Any]:
        """The scores of a pod, for a message."""
        pod, spec = self.pods[name]
        eligibility = self.index.review(tuple(own_requirements(spec)))
        nodes = self.simulation.filter(pod, eligibility).feasible
        return {
            plugin: {self.names[at]: score for score, nodes in levels.items() for at in bitset_positions(nodes)}
            for plugin, levels in self.simulation.scores(pod, eligibility, nodes).items()
        }


@pytest.mark.parametrize("seed", _fleets())
def test_pods_land_where_the_simulation_says(own_plane: OwnPlane, seed: int) -> None:
    plane, dice = own_plane(), Dice(seed)
    for space in SPACES:
        ensure_namespace(plane.admin, space)
        for number, selector in enumerate(SERVICES.get(space, ())):
            spec = {"selector": dict(selector), "ports": [{"port": 80}]}
            plane.admin.create("v1/services", obj("Service", f"service-{number}", spec=spec), space)
    for name in NODES:
        dice.node(plane, name)
    pods = [dice.pod(f"vm-{number}") for number in range(PODS_OF_A_FLEET)]
    profiles = {each["schedulerName"]: Profile.of(each) for each in PROFILES}
    simulated = Simulated(plane.admin.list("v1/nodes"), pods, profiles)
    plane.start_scheduler("all", {"profiles": PROFILES})
    ties, homeless = [], 0
    # Where a scheduler that has not heard of the last deletion yet would put the pod.
    unheard: set[str] = set()
    for number, (space, pod) in enumerate(pods):
        name = pod["metadata"]["name"]
        expected = simulated.nodes(name)
        allowed, unheard = (expected or {""}) | unheard, set()
        plane.admin.create(PODS, pod, space)
        chosen = str(looked_at(plane.admin, name, space)["spec"].get("nodeName", ""))
        assert chosen in allowed, (name, expected, pod["spec"], simulated.about(name))
        if chosen:
            ties.append(len(expected))
            simulated.bind(name, chosen)
            if dice.happens(0.15):
                following = pods[number + 1 :][:1]
                unheard = {node for _, each in following for node in simulated.nodes(each["metadata"]["name"]) or {""}}
                plane.admin.delete(PODS, name, space)
                simulated.terminate(name, chosen)
                # kube-scheduler hears of it by a watch, and nothing shows when; mostly within this.
                time.sleep(0.3)
        else:
            # It must not come in between later.
            homeless += 1
            plane.admin.delete(PODS, name, space, gracePeriodSeconds="0")
    # Not to be content with pods that fit nowhere, or with nodes that are all alike.
    assert homeless < len(pods) / 2
    assert ties.count(1) > len(ties) / 2
