"""The oracle for plans: a cluster in which pods move one by one, and every rule is looked at the plain way."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec
from hypothesis import settings

from tests.forecast.clusters import NAMES, REQUIRED, Json
from webhook.forecast.report import VmPlan
from webhook.forecast.snapshot import ClusterObjects
from webhook.k8s.quantity import parse


class Simulated:
    """Pods on nodes, by name; the pods of VMs have their VMs' names. The drained nodes are cordoned."""

    def __init__(self, snapshot: ClusterObjects, drained: Sequence[str]) -> None:
        self.nodes: dict[str, Json] = {one.meta.name or "": msgspec.to_builtins(one) for one in snapshot.nodes}
        self.closed = {*drained, *(name for name, one in self.nodes.items() if one["spec"].get("unschedulable"))}
        self.specs = {one.meta.name or "": msgspec.to_builtins(one)["spec"] for one in snapshot.vmis}
        self.pods: list[Json] = [msgspec.to_builtins(one) for one in snapshot.pods]
        self.on = {one.meta.name: one.node_name for one in snapshot.vmis}
        # Those that are on no node.
        self.absent: list[Json] = []

    def lose(self, nodes: Sequence[str]) -> None:
        """Have nodes be gone, and their pods on no node."""
        self.absent += [each for each in self.pods if each["spec"]["nodeName"] in nodes]
        self.pods = [each for each in self.pods if each["spec"]["nodeName"] not in nodes]
        self.nodes = {name: one for name, one in self.nodes.items() if name not in nodes}
        self.on = {name: "" if node in nodes else node for name, node in self.on.items()}

    def appear(self, pod: str, node: str) -> None:
        """Have a pod be on a node that was on none, with those that attach the volumes of its VM."""
        new = [each for each in self.absent if each["metadata"]["name"] in (pod, f"hp-volume-{pod}")]
        self.absent = [each for each in self.absent if each not in new]
        for each in new:
            each["spec"]["nodeName"] = node
        self.pods += new

    def move(self, name: str, node: str) -> None:
        for pod in (self._pod(name), *self._attachments(name)):
            pod["spec"]["nodeName"] = node
        self.on[name] = node

    def remove(self, name: str) -> list[Json]:
        """Take a pod away, with those that attach the hotplugged volumes of its VM; what has been taken."""
        gone = [each for each in self.pods if each["metadata"]["name"] in (name, f"hp-volume-{name}")]
        self.pods = [each for each in self.pods if each not in gone]
        return gone

    def priority(self, name: str) -> int:
        """The priority of the pods of a VM, whose class never changes."""
        return _priority(self._pod(name))

    def preemptable(self, name: str) -> list[str]:
        """The nodes that a VM's target pod could be on without all pods of a lower priority."""
        mine, everyone, found = self.priority(name), self.pods, []
        for node in NAMES:
            self.pods = [each for each in everyone if each["spec"]["nodeName"] != node or self._stays(each, mine)]
            found += [] if len(self.pods) == len(everyone) or self.problem(name, node) else [node]
        self.pods = everyone
        return found

    def _stays(self, pod: Json, priority: int) -> bool:
        launcher = pod["metadata"]["name"].removeprefix("hp-volume-")
        return any(_priority(each) >= priority for each in self.pods if each["metadata"]["name"] == launcher)

    def carry_out(self, plans: Iterable[VmPlan]) -> None:
        """Move the VMs of a plan in its order; none of the moves breaks a rule."""
        for each in sorted((each for each in plans if each.turn), key=lambda each: each.turn):
            assert self.problem(each.name, each.to) == ""
            self.move(each.name, each.to)

    def fitting(self, name: str) -> list[str]:
        """The nodes that can take a VM's target pod now."""
        return [node for node in NAMES if not self.problem(name, node)]

    def problem(self, name: str, node: str) -> str:
        """Why a VM's target pod cannot be on a node beside all pods that are there; empty: it can."""
        return next(self._problems(name, node), "")

    def _pod(self, name: str) -> Json:
        return next(pod for pod in (*self.pods, *self.absent) if pod["metadata"]["name"] == f"virt-launcher-{name}")

    def _attachments(self, name: str) -> list[Json]:
        """The pods beside a VM's own one that attach its hotplugged volumes."""
        every = (*self.pods, *self.absent)
        return [pod for pod in every if pod["metadata"]["name"] == f"hp-volume-virt-launcher-{name}"]

    def _problems(self, name: str, node: str) -> Iterator[str]:
        pod, spec = self._pod(name), self.specs[name]
        labels = self.nodes[node]["metadata"]["labels"]
        if node in self.closed:
            yield "closed"
        if node == self.on[name]:
            yield "source"
        if any(labels.get(key) != value for key, value in (spec.get("nodeSelector") or {}).items()):
            yield "selector"
        yield from self._resources([pod, *self._attachments(name)], node)
        if any(labels["zone"] != each["persistentVolumeClaim"]["claimName"] for each in spec.get("volumes") or ()):
            yield "a volume of another zone"
        yield from self._affinities(pod, spec, node)
        for spread in spec.get("topologySpreadConstraints") or ():
            yield from self._spread(spread, pod, spec, node)

    def _affinities(self, pod: Json, spec: Json, node: str) -> Iterator[str]:
        affinity = spec.get("affinity") or {}
        for term in _terms(affinity, "podAntiAffinity"):
            if any(self._same(term, node, other) and _means(term, other) for other in self.pods):
                yield "anti-affinity"
        for other in self.pods:
            for term in _terms(other["spec"].get("affinity") or {}, "podAntiAffinity"):
                if self._same(term, node, other) and _means(term, pod):
                    yield "the other's anti-affinity"
        for term in _terms(affinity, "podAffinity"):
            near = [other for other in self.pods if _means(term, other)]
            first = not near and _means(term, pod)
            if not first and not any(self._same(term, node, other) for other in near):
                yield "affinity"

    def _resources(self, pods: list[Json], node: str) -> Iterator[str]:
        beside = [other for other in self.pods if other["spec"]["nodeName"] == node]
        allocatable = self.nodes[node]["status"]["allocatable"]
        for resource in ("cpu", "memory"):
            used = sum(_request(other, resource) for other in (*beside, *pods))
            if used > parse(allocatable[resource]).nanos:
                yield resource
        if len(beside) + len(pods) > int(allocatable["pods"]):
            yield "pods"

    def _same(self, term: Json, node: str, other: Json) -> bool:
        key = term["topologyKey"]
        there = self.nodes[other["spec"]["nodeName"]]["metadata"]["labels"]
        return bool(self.nodes[node]["metadata"]["labels"][key] == there[key])

    def broken(self) -> dict[tuple[str, str], int]:
        """The required rules of VMs that do not hold now that each is where it is, and by how much."""
        found: dict[tuple[str, str], int] = {}
        for name, spec in self.specs.items():
            pod, node = self._pod(name), self.on[name]
            for at, term in enumerate(_terms(spec.get("affinity") or {}, "podAffinity")):
                near = [other for other in self.pods if other is not pod and _means(term, other)]
                first = not near and _means(term, pod)
                if not first and not any(self._same(term, node, other) for other in near):
                    found[name, f"affinity {at}"] = 1
            for at, spread in enumerate(spec.get("topologySpreadConstraints") or ()):
                counts = self._counts(spread, spec)
                over = max(counts.values(), default=0) - min(counts.values(), default=0) - spread["maxSkew"]
                found |= {(name, f"spread {at}"): over} if over > 0 else {}
        return found

    def _spread(self, spread: Json, pod: Json, spec: Json, node: str) -> Iterator[str]:
        counts = self._counts(spread, spec)
        here = counts.get(self.nodes[node]["metadata"]["labels"][spread["topologyKey"]], 0)
        if here + _means(spread, pod) - min(counts.values(), default=0) > spread["maxSkew"]:
            yield "spread"

    def _counts(self, spread: Json, spec: Json) -> dict[str, int]:
        """The pods that are to be spread, by domain."""
        key = spread["topologyKey"]
        selector = spec.get("nodeSelector") or {}
        scope = [
            name
            for name, one in self.nodes.items()
            if all(one["metadata"]["labels"].get(label) == value for label, value in selector.items())
        ]
        counts = {self.nodes[name]["metadata"]["labels"][key]: 0 for name in scope}
        for other in self.pods:
            if other["spec"]["nodeName"] in scope and _means(spread, other):
                counts[self.nodes[other["spec"]["nodeName"]]["metadata"]["labels"][key]] += 1
        return counts


def _terms(affinity: Json, kind: str) -> list[Any]:
    return (affinity.get(kind) or {}).get(REQUIRED) or []


def _means(term: Json, pod: Json) -> bool:
    labels = pod["metadata"].get("labels") or {}
    return all(labels.get(key) == value for key, value in term["labelSelector"]["matchLabels"].items())


def _priority(pod: Json) -> int:
    return pod["spec"].get("priority") or 0


def _request(pod: Json, resource: str) -> int:
    containers = pod["spec"].get("containers") or ()
    return sum(parse(str((one["resources"]["requests"] or {}).get(resource, "0"))).nanos for one in containers)


thorough = settings(max_examples=150)


def shuffled(world: ClusterObjects, order: Any) -> ClusterObjects:
    found: dict[str, Any] = {field: getattr(world, field) for field in ("nodes", "pods", "vmis")}
    orders = {field: tuple(order.sample(objects, len(objects))) for field, objects in found.items()}
    return msgspec.structs.replace(world, **orders)
