"""A cluster in which VMs start and stop, pools scale, and nodes are lost and come back, all at random.

What kube-scheduler does is the simulation's, with chance among the nodes that tie; VMs of a lost node start again in
any order. Headroom sees it all as a server does: starts are asked about and reserved, pods appear, and are bound later.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from msgspec.structs import replace

from tests.forecast.clusters import Json, apart, node
from tests.placement.headroom.fleets import Clock, node_view, starting
from webhook.k8s.types.core import NodeWithoutImages
from webhook.placement.headroom.headroom import MAX_STEPS, Headroom
from webhook.placement.headroom.pods import KnownVm, PlacedPod
from webhook.placement.index import NodeIndex
from webhook.placement.nodes import Node, bitset_positions
from webhook.placement.simulate import Simulation

SIZES: Final = ("1Gi", "2Gi", "4Gi", "8Gi", "12Gi")
_MOST_OF_A_POOL: Final = 4


class Outcome(NamedTuple):
    """What has happened.

    Attributes:
        unproven: how many of the starts were admitted although nothing was shown.
        down: how many VMs found no place when their node was lost, of all that started again.
    """

    starts: int
    admitted: int
    unproven: int
    losses: int
    restarts: int
    down: int
    most_used: float


class Operations:
    """Operations on one cluster.

    Args:
        seed: of all chance.
        enforced: whether starts that headroom denies do not happen.
        nodes: how many there are.
        alike: whether all nodes have the same size.
        memory: what nodes have that are alike.
        cpu: what each node has.
        rules: whether some VMs keep off others of their group.
        steps: those that each start may take.
    """

    def __init__(
        self,
        seed: int,
        *,
        enforced: bool,
        nodes: int = 4,
        alike: bool = True,
        memory: str = "32Gi",
        cpu: str = "16",
        rules: bool = False,
        steps: int = MAX_STEPS,
    ) -> None:
        self.chance: Final = random.Random(seed)
        self.enforced: Final = enforced
        self._rules: Final = rules
        self._steps: Final = steps
        sizes = [memory] if alike else ["16Gi", "32Gi", "48Gi"]
        self.nodes: Final[dict[str, Json]] = {
            name: node(name, memory=self.chance.choice(sizes), cpu=cpu) for name in map("n{}".format, range(nodes))
        }
        for each in self.nodes.values():
            each["status"]["allocatable"]["pods"] = "110"
        self.clock: Final = Clock()
        self.headroom: Final = Headroom(self.clock)
        for each in self.nodes.values():
            self.headroom.put_node(node_view(each))
        self.headroom.begin()
        self.lost = ""
        self.waiting: Final[list[str]] = []
        self.on: Final[dict[str, str]] = {}
        self.pods: Final[dict[str, PlacedPod]] = {}
        self.always: Final[dict[str, bool]] = {}
        self._number = 0
        self.starts = self.admitted = self.unproven = self.losses = self.restarts = self.down = 0
        self.most_used = 0.0

    def run(self, operations: int) -> Outcome:
        """So many operations."""
        for _ in range(operations):
            self.clock.now += self.chance.uniform(1, 120)
            self._one()
            self._schedule()
            self.most_used = max(self.most_used, self._used())
        found = self.starts, self.admitted, self.unproven, self.losses, self.restarts, self.down
        return Outcome(*found, round(self.most_used, 3))

    def fill(self, share: float) -> None:
        """Start VMs, until so much of the memory is used or a start is denied."""
        while self._used() < share and self.admitted == self.starts:
            self._start(1)
            self._schedule()

    def _one(self) -> None:
        what = self.chance.random()
        if what < 0.55:
            self._start(1)
        elif what < 0.65:
            self._start(self.chance.randint(2, _MOST_OF_A_POOL))
        elif what < 0.85:
            running = [name for name in self.on if name not in self.waiting]
            for name in self.chance.sample(running, min(len(running), self.chance.randint(1, 2))):
                self._stop(name)
        elif self.lost:
            self.headroom.put_node(node_view(self.nodes[self.lost]))
            self.lost = ""
        elif not self.waiting:
            self._lose(self.chance.choice(sorted(self.nodes)))

    def _start(self, number: int) -> None:
        """Start so many VMs of one size, all of which are asked about before any has a node."""
        size, is_always = self.chance.choice(SIZES), self.chance.random() < 0.85
        is_apart = self._rules and self.chance.random() < 0.1
        group: Any = {"labels": {"app": "db"}, "affinity": apart(app="db")} if is_apart else {}
        created = []
        for _ in range(number):
            self._number += 1
            name = f"vm-{self._number}"
            pod = starting(name, size, cpu="500m", **group)
            self.starts += 1
            self.headroom.put_vm(pod.of_vm, KnownVm("Always" if is_always else "Manual"))
            verdict = self.headroom.judge(pod, self._steps)
            self.unproven += verdict.kind == "not-proven"
            if self.enforced and verdict.kind in ("broken", "no-room"):
                self.headroom.remove_vm(pod.of_vm)
                continue
            self.admitted += 1
            self.headroom.reserve(pod)
            self.always[name] = is_always
            created.append(pod)
        for pod in created:
            self.headroom.put_pod(pod)
            self._wait(pod)

    def _wait(self, pod: PlacedPod) -> None:
        self.pods[pod.vm] = pod
        self.waiting.append(pod.vm)

    def _stop(self, name: str) -> None:
        pod = self.pods.pop(name)
        self.headroom.put_vm(pod.of_vm, KnownVm("Halted", is_stopped=True))
        self.headroom.remove_pod(pod.name)
        self.headroom.remove_vm(pod.of_vm)
        self.on.pop(name, None)

    def _lose(self, name: str) -> None:
        self.lost = name
        self.losses += 1
        gone = [vm for vm, on in self.on.items() if on == name]
        self.headroom.remove_node(name)
        self.chance.shuffle(gone)
        again = []
        for vm in gone:
            pod = self.pods.pop(vm)
            del self.on[vm]
            self.headroom.remove_pod(pod.name)
            if self.always[vm]:
                again.append(replace(pod, node=""))
            else:
                self.headroom.remove_vm(pod.of_vm)
        for pod in again:
            self.restarts += 1
            assert self.headroom.has_run(pod)
            self.headroom.reserve(pod, has_run=True)
            self.headroom.put_pod(pod)
            self._wait(pod)
        before = set(self.waiting)
        self._schedule()
        self.down += len(before & set(self.waiting))

    def _schedule(self) -> None:
        """Have kube-scheduler take all pods from its queue, of which those stay that find no node."""
        views: Mapping[str, NodeWithoutImages] = {
            name: node_view(each) for name, each in self.nodes.items() if name != self.lost
        }
        index = NodeIndex(map(Node.of, views.values()))
        simulation = Simulation(index, views)
        for pod in self.pods.values():
            simulation.rules.track(pod.simulated.info)
        for vm, on in self.on.items():
            position = index.position(on)
            assert position is not None
            simulation.bind(self.pods[vm].simulated, position)
        for vm in self.waiting[:]:
            pod = self.pods[vm]
            found = simulation.schedule(
                pod.simulated,
                index.review(pod.requirements),
                lambda ties: self.chance.choice(list(bitset_positions(ties))),
            )
            if found is None:
                continue
            simulation.bind(pod.simulated, found.position)
            name = next(each for each in views if index.position(each) == found.position)
            self.waiting.remove(vm)
            self.on[vm] = name
            self.pods[vm] = replace(pod, node=name)
            self.headroom.put_pod(self.pods[vm])

    def _used(self) -> float:
        total = sum(int(each["status"]["allocatable"]["memory"][:-2]) for each in self.nodes.values())
        memory = sum(self.pods[vm].simulated.requests["memory"] for vm in self.on)
        return memory / 2**30 / total
