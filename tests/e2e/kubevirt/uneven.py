"""Fleets of VMs that are unevenly spread over nodes, and where they are at each moment.

VMs of many sizes and kinds are on the nodes: some may not be moved by their owner's word, some cannot be migrated, some
have rules about others; beside them are pods of others, and the namespace may have a quota. `History` has every state
that the pods were in, and says which rules were broken in it.
"""

from __future__ import annotations

import random
import threading
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple, Self

from tests.e2e.support.kube import Json, eventually
from tests.e2e.support.workloads import PODS
from webhook.k8s.quantity import parse

from .control_plane import ZONES
from .fleets import make_pod, make_quota, starts
from .nodes import LOCAL
from .place import HOSTNAME, Place, cordoned, domain, vm_run_once

NODES = sorted(ZONES)
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERS_NO_EVICTION = "descheduler.alpha.kubernetes.io/prefer-no-eviction"
GI = 2**30
KINDS = ["none", "external", "stays", "local", "zone", "apart", "near", "spread", *["free"] * 12]
RESOURCES = ("cpu", "memory")
# The annotation of the pod that changes last.
LAST = "tests.example/last"
# How long the longest history may be.
SECONDS = 900


class Fleet(NamedTuple):
    """VMs by the node on which they start, pods of others, and what a quota leaves of memory, in bytes."""

    vms: Mapping[str, Sequence[Json]]
    fillers: Mapping[str, str]
    spare: int | None

    @property
    def fixed(self) -> set[str]:
        """The VMs that nobody may move, or can."""
        return {
            vm["metadata"]["name"]
            for vms in self.vms.values()
            for vm in vms
            if vm["spec"]["template"]["spec"].get("evictionStrategy") in ("None", "External")
            or {LOCAL, PREFERS_NO_EVICTION} & vm["spec"]["template"]["metadata"]["annotations"].keys()
        }

    def rules(self, name: str) -> Json:
        """The template of a VM's spec."""
        every = (vm for vms in self.vms.values() for vm in vms)
        spec: Json = next(vm["spec"]["template"]["spec"] for vm in every if vm["metadata"]["name"] == name)
        return spec

    def app(self, name: str) -> str:
        every = (vm for vms in self.vms.values() for vm in vms)
        metadata = next(vm["spec"]["template"]["metadata"] for vm in every if vm["metadata"]["name"] == name)
        return str(metadata["labels"]["app"])


def fleet(seed: int, *, evictable: bool = False) -> Fleet:
    """A random fleet, most of whose VMs are on one or two nodes.

    ``evictable``: without VMs that an eviction shuts down, or hands over to a controller that is not there.
    """
    dice = random.Random(seed)
    vms: dict[str, list[Json]] = {name: [] for name in NODES}
    crowded = dice.sample(NODES, dice.choice([1, 1, 2]))
    for number in range(dice.randint(10, 16)):
        node = dice.choice(crowded if dice.random() < 0.75 else NODES)
        vms[node].append(vm_run_once(f"vm-{number:02}", _template(dice, node, KINDS[2:] if evictable else KINDS)))
    fillers = {name: dice.choice(["2Gi", "8Gi", "14Gi"]) for name in NODES if dice.random() < 0.3}
    return Fleet(vms, fillers, int(dice.choice([5, 20]) * GI) if dice.random() < 0.25 else None)


def _template(dice: random.Random, node: str, kinds: Sequence[str]) -> Json:
    app = dice.choice(["web", "db", "cache"])
    metadata: Json = {"labels": {"app": app}, "annotations": {}}
    memory = dice.choice(["512Mi", "1Gi", "2Gi", "4Gi", "8Gi"])
    requests = {"cpu": dice.choice(["100m", "500m", "1", "2"]), "memory": memory}
    spec: Json = {"domain": {"devices": {}, "resources": {"requests": requests}}}
    own = {"matchLabels": {"app": app}}
    match dice.choice(kinds):
        case "none":
            spec["evictionStrategy"] = "None"
        case "external":
            spec["evictionStrategy"] = "External"
        case "stays":
            metadata["annotations"][PREFERS_NO_EVICTION] = ""
        case "local":
            metadata["annotations"][LOCAL] = ""
        case "zone":
            spec["nodeSelector"] = {"zone": ZONES[node]}
        case "apart":
            metadata["labels"]["app"] = "apart"
            term = {"topologyKey": HOSTNAME, "labelSelector": {"matchLabels": {"app": "apart"}}}
            spec["affinity"] = {"podAntiAffinity": {REQUIRED: [term]}}
        case "near":
            term = {"topologyKey": "zone", "labelSelector": own}
            spec["affinity"] = {"podAffinity": {REQUIRED: [term]}}
        case "spread":
            metadata["labels"]["app"] = "spread"
            selector = {"matchLabels": {"app": "spread"}}
            rule = {"topologyKey": "zone", "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"}
            spec["topologySpreadConstraints"] = [rule | {"labelSelector": selector}]
    return {"metadata": metadata, "spec": spec}


def populate(place: Place, made: Fleet) -> dict[str, str]:
    """Has a fleet run, each VM on its node; the VMs with their nodes, without those that got none."""
    for name, memory in made.fillers.items():
        make_pod(place, f"filler-{name}", name, resources={"requests": {"memory": memory}})
    found: dict[str, str] = {}
    for node, vms in made.vms.items():
        with cordoned(place, [name for name in NODES if name != node]):
            for vm in vms:
                place.make(vm)
            for name in (vm["metadata"]["name"] for vm in vms):
                if starts(place, name):
                    assert place.running(name)["status"]["nodeName"] == node
                    found[name] = node
    if made.spare is not None:
        make_quota(place, {"requests.memory": made.spare})
    return found


def positions(pods: Iterable[Json]) -> dict[str, list[str]]:
    """The nodes on which the pods of each VM are: two while it migrates."""
    found: dict[str, list[str]] = defaultdict(list)
    for pod in pods:
        if (name := domain(pod)) and _is_bound(pod):
            found[name].append(pod["spec"]["nodeName"])
    return dict(found)


def settled(place: Place) -> dict[str, str]:
    """The node of each VM, once each has one pod alone."""

    def look() -> dict[str, list[str]] | None:
        found = positions(place.admin.list(PODS, place.namespace))
        return found if all(len(nodes) == 1 for nodes in found.values()) else None

    return {name: node for name, (node,) in eventually(look, what="every VM to have one pod").items()}


def _is_bound(pod: Json) -> bool:
    return bool(pod["spec"].get("nodeName")) and pod["status"].get("phase") not in ("Succeeded", "Failed")


def requests(place: Place) -> tuple[dict[str, dict[str, int]], dict[str, dict[str, int]]]:
    """What the pod of each VM requests, and what the other pods of each node do, in billionths."""
    vms: dict[str, dict[str, int]] = {}
    others = {name: dict.fromkeys(RESOURCES, 0) for name in NODES}
    for pod in filter(_is_bound, place.admin.list(PODS)):
        # No other init container of a launcher requests more than the containers after it.
        sidecars = [each for each in pod["spec"].get("initContainers", ()) if each.get("restartPolicy") == "Always"]
        listed = [each["resources"].get("requests", {}) for each in (*pod["spec"]["containers"], *sidecars)]
        amounts = {name: sum(parse(str(each.get(name, "0"))).nanos for each in listed) for name in RESOURCES}
        if (vm := domain(pod)) and pod["metadata"]["namespace"] == place.namespace:
            vms[vm] = amounts
        else:
            for name in RESOURCES:
                others[pod["spec"]["nodeName"]][name] += amounts[name]
    return vms, others


class Loads:
    """How far nodes stand out, by what pods request, wherever the VMs are."""

    def __init__(self, place: Place) -> None:
        self._vms, self._others = requests(place)
        found = {each["metadata"]["name"]: each["status"]["allocatable"] for each in place.admin.list("v1/nodes")}
        self._whole: Final = {
            node: {resource: parse(amounts[resource]).nanos for resource in RESOURCES}
            for node, amounts in found.items()
        }

    def used(self, on: Mapping[str, str]) -> dict[str, dict[str, int]]:
        used = {node: dict(amounts) for node, amounts in self._others.items()}
        for vm, node in on.items():
            for resource, amount in self._vms[vm].items():
                used[node][resource] += amount
        return used

    def deviation(self, on: Mapping[str, str]) -> float:
        """How far the node that stands out most is above the mean, in percentage points."""
        used, highest = self.used(on), 0.0
        for resource in RESOURCES:
            whole = sum(self._whole[node][resource] for node in NODES)
            mean = 100 * sum(used[node][resource] for node in NODES) / whole
            highest = max(highest, *(100 * used[node][resource] / self._whole[node][resource] - mean for node in NODES))
        return highest

    def overcommitted(self, on: Mapping[str, Sequence[str]]) -> Iterator[str]:
        """What takes more of a node than it has, with all pods of VMs that migrate."""
        for node in NODES:
            here = [vm for vm, nodes in on.items() for each in nodes if each == node]
            for resource in RESOURCES:
                used = self._others[node][resource] + sum(self._vms[vm][resource] for vm in here)
                if used > self._whole[node][resource]:
                    yield f"{resource} of {node}"


class History:
    """Every state of the pods of a place while it is entered, by a watch: where the VMs were."""

    def __init__(self, place: Place) -> None:
        self.states: list[dict[str, list[str]]] = []
        self._place = place
        self._pods: dict[str, Json] = {}
        self._version = ""
        self._thread = threading.Thread(target=self._follow, name="history", daemon=True)

    def __enter__(self) -> Self:
        listed = self._place.admin.request("GET", f"/api/v1/namespaces/{self._place.namespace}/pods")
        self._pods = {pod["metadata"]["name"]: pod for pod in listed["items"]}
        self._version = listed["metadata"]["resourceVersion"]
        self.states.append(positions(self._pods.values()))
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        # After it the watch has all that was before.
        name = self._place.admin.list(PODS, self._place.namespace)[0]["metadata"]["name"]
        self._place.patch(PODS, name, {"metadata": {"annotations": {LAST: ""}}})
        self._thread.join(SECONDS)
        assert not self._thread.is_alive()

    def _follow(self) -> None:
        for event in self._place.admin.watch(PODS, self._place.namespace, self._version, SECONDS):
            pod, name = event["object"], event["object"]["metadata"]["name"]
            if LAST in pod["metadata"].get("annotations", {}):
                return
            self._pods = {key: each for key, each in self._pods.items() if key != name}
            if event["type"] != "DELETED":
                self._pods[name] = pod
            if (state := positions(self._pods.values())) != self.states[-1]:
                self.states.append(state)


def broken(made: Fleet, on: Mapping[str, Sequence[str]]) -> set[str]:
    """The rules between VMs that do not hold in a state; those that are about VMs at rest, if no VM migrates."""
    found = set()
    is_at_rest = all(len(nodes) == 1 for nodes in on.values())
    for vm, nodes in on.items():
        spec = made.rules(vm)
        affinity = spec.get("affinity", {})
        if "podAntiAffinity" in affinity:
            others = {
                node for other, there in on.items() if other != vm and made.app(other) == "apart" for node in there
            }
            found |= {f"{vm} apart"} if others & {*nodes} else set()
        if "podAffinity" in affinity and is_at_rest:
            others = {ZONES[there[0]] for other, there in on.items() if other != vm and made.app(other) == made.app(vm)}
            # The only one of its kind may be anywhere.
            found |= {f"{vm} near"} if others and ZONES[nodes[0]] not in others else set()
        if "topologySpreadConstraints" in spec and is_at_rest:
            counts = dict.fromkeys(ZONES.values(), 0)
            for other, there in on.items():
                counts[ZONES[there[0]]] += made.app(other) == "spread"
            found |= {f"{vm} spread"} if max(counts.values()) - min(counts.values()) > 1 else set()
    return found
