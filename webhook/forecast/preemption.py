"""Which pods kube-scheduler deletes so that a pod of higher priority finds room.

The rules are those of its plugin DefaultPreemption (Kubernetes 1.37, pkg/scheduler/framework/plugins/defaultpreemption
and pkg/scheduler/framework/preemption). On each node that fails only by what other pods take, all pods with a lower
priority are taken away; where the pod fits then, they come back one by one, those that a PodDisruptionBudget protects
first and the important ones before others, as long as the pod still fits. Of the nodes, one is chosen whose victims
break fewest budgets, have the lowest priorities, are fewest, and have started last.

kube-scheduler begins at a random node, and ends when it has found enough nodes of which one breaks no budget. The first
node is begun at here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, TypeAlias

import msgspec

from webhook.admission.step_budget import spend
from webhook.forecast.priorities import priority_of
from webhook.forecast.snapshot import PodDisruptionBudget, namespaced_name
from webhook.k8s.resources import NamespacedName
from webhook.placement.eligibility import Eligibility
from webhook.placement.machines import LauncherPod
from webhook.placement.nodes import bitset_positions
from webhook.placement.scores import KubernetesVersion
from webhook.placement.simulate import SimulatedPod, Simulation

# So many nodes with victims are enough: a tenth of those that pods could be taken away from
# (minCandidateNodesPercentage), and at least a hundred (minCandidateNodesAbsolute).
_PERCENT_OF_NODES: Final = 10
_ENOUGH_NODES: Final = 100
# Since this version a pod that breaks one budget does not count for others that select it, too (podIsViolating).
_FIRST_BUDGET_ALONE_SINCE: Final = (1, 37)
# Looking at a pod takes a fraction of a step.
_PODS_A_STEP: Final = 8
# So that two victims with a negative priority are not better than one (minSumPrioritiesScoreFunc).
_PRIORITY_OFFSET: Final = 2**31


class Occupant(msgspec.Struct, frozen=True):
    """A pod on a node; simulated, with those that go with it."""

    pod: LauncherPod
    simulated: SimulatedPod

    @property
    def priority(self) -> int:
        """The pod's priority."""
        return priority_of(self.pod)

    @property
    def importance(self) -> tuple[int, float]:
        """Sorts the most important pod first: by priority, and the older one (MoreImportantPod)."""
        started = self.pod.started_at
        return -self.priority, math.inf if started is None else started


class Victims(msgspec.Struct, frozen=True):
    """The pods that have to go from one node, the most important first, and those of them that a budget protects."""

    position: int
    pods: tuple[Occupant, ...]
    protected: frozenset[NamespacedName]

    @property
    def cost(self) -> tuple[int, int, int, int, float]:
        """By which kube-scheduler chooses the node, the least first (pickOneNodeForPreemption)."""
        highest = max(each.priority for each in self.pods)
        total = sum(each.priority + _PRIORITY_OFFSET for each in self.pods)
        earliest = min(each.importance[1] for each in self.pods if each.priority == highest)
        return len(self.protected), highest, total, len(self.pods), -earliest


Occupants: TypeAlias = Callable[[int, int], Iterable[Occupant]]  # by the node's position, and below a priority
Budgets: TypeAlias = Callable[[LauncherPod], Sequence[PodDisruptionBudget]]


class Preemption:
    """Looks for victims among the pods that are on nodes now.

    Args:
        simulation: the cluster, which is as before after each answer.
        occupants: the pods on a node whose priority is lower than another.
        budgets: the PodDisruptionBudgets that select a pod.
        version: that of kube-scheduler.
    """

    def __init__(
        self, simulation: Simulation, occupants: Occupants, budgets: Budgets, version: KubernetesVersion
    ) -> None:
        self._simulation: Final = simulation
        self._occupants: Final = occupants
        self._budgets: Final = budgets
        self._version: Final = version

    def victims(self, pod: SimulatedPod, eligibility: Eligibility, priority: int) -> Victims | None:
        """The pods that kube-scheduler would delete for one that no eligible node has room for; None: none help."""
        enough = max(_ENOUGH_NODES, eligibility.count * _PERCENT_OF_NODES // 100)
        allowed: list[Victims] = []
        violating: list[Victims] = []
        for position in bitset_positions(eligibility.bitset):
            victims = self._on_node(pod, eligibility, position, priority)
            if victims:
                (violating if victims.protected else allowed).append(victims)
            if allowed and len(allowed) + len(violating) >= enough:
                break
        return min(allowed or violating[:enough], key=lambda each: each.cost, default=None)

    def _on_node(self, pod: SimulatedPod, eligibility: Eligibility, position: int, priority: int) -> Victims | None:
        lower = list(self._occupants(position, priority))
        spend(1 + len(lower) // _PODS_A_STEP, "pods that kube-scheduler could preempt")
        simulation, loads = self._simulation, [each.simulated.load for each in lower]
        if not lower or not simulation.has_free(position, pod.requests, loads):
            return None
        lower.sort(key=lambda each: each.importance)
        for each in lower:
            simulation.unbind(each.simulated, position)
        gone = {namespaced_name(each.pod): each for each in lower}
        protected = _protected([each.pod for each in lower], self._budgets, self._version)
        try:
            if not simulation.fits(pod, eligibility, position):
                return None
            for each in sorted(lower, key=lambda one: namespaced_name(one.pod) not in protected):
                simulation.bind(each.simulated, position)
                if simulation.fits(pod, eligibility, position):
                    del gone[namespaced_name(each.pod)]
                else:
                    simulation.unbind(each.simulated, position)
        finally:
            for each in gone.values():
                simulation.bind(each.simulated, position)
        # Without a victim there would have been room before.
        return Victims(position, tuple(gone.values()), protected & gone.keys()) if gone else None


def _protected(pods: Iterable[LauncherPod], budgets: Budgets, version: KubernetesVersion) -> frozenset[NamespacedName]:
    """The pods that budgets do not allow to go, if all of these go (FilterVictimsWithPDBViolation)."""
    allowed: dict[int, int] = {}
    protected = set()
    for pod in pods:
        if not pod.meta.labels:
            continue
        for budget in budgets(pod):
            if budget.selects_everything or pod.meta.name in budget.disrupted:
                continue
            left = allowed[id(budget)] = allowed.get(id(budget), budget.allowed) - 1
            if left < 0:
                protected.add(namespaced_name(pod))
                if version >= _FIRST_BUDGET_ALONE_SINCE:
                    break
    return frozenset(protected)


def lowest_priority(pods: Mapping[str, Mapping[NamespacedName, LauncherPod]]) -> int:
    """The lowest priority of all pods on nodes, by node; no pod with this one or a lower one preempts any."""
    return min((priority_of(pod) for on_node in pods.values() for pod in on_node.values()), default=0)
