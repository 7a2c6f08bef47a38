"""By what nodes are compared: what pods request of them, or what they use."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from webhook.forecast.balance_report import Counted, Move
from webhook.forecast.balance_search import Share
from webhook.forecast.drain import Planner
from webhook.forecast.movers import Mover
from webhook.forecast.snapshot import ClusterObjects, PlannedCluster, namespaced_name
from webhook.forecast.usage import RESOURCES, Amounts, Usage
from webhook.k8s.resources import NamespacedName
from webhook.placement.simulate import SimulatedPod
from webhook.text import abbreviate, pluralize

METRICS: Final = "metrics.k8s.io"


def measured(objects: ClusterObjects, source: str = METRICS) -> Usage:
    """What nodes and VMs use, by the metrics of a cluster; where those of nodes are missing, the sums of their pods."""
    cluster = PlannedCluster(objects)
    pods = {namespaced_name(each): amounts for each in objects.pod_metrics if (amounts := each.amounts)}
    nodes = {each.meta.name or "": amounts for each in objects.node_metrics if (amounts := each.amounts)}
    sums: dict[str, Amounts] = {}
    for pod in objects.pods if not nodes else ():
        if amounts := pods.get(namespaced_name(pod)):
            cpu, memory = sums.get(pod.node_name, (0, 0))
            sums[pod.node_name] = cpu + amounts[0], memory + amounts[1]
    carriers = ((key, cluster.pod_of(vmi)) for key, vmi in cluster.vmis.items())
    vms = {key: amounts for key, pod in carriers if pod and (amounts := pods.get(namespaced_name(pod)))}
    return Usage(source, nodes or sums, vms)


class NodeLoads:
    """How much of nodes is used, and requested, as VMs move.

    Args:
        planner: where the VMs are, and what is free.
        names: the nodes.
        usage: what they used before VMs moved; None: they are compared by what pods request.
        made: these moves.
    """

    def __init__(self, planner: Planner, names: Sequence[str], usage: Usage | None, made: Iterable[Move] = ()) -> None:
        self._planner: Final = planner
        self._names: Final = names
        self._usage: Final = usage
        # The nodes and the VMs of which it is not known what they use.
        self._unknown: Final = [name for name in names if usage and name not in usage.nodes]
        self._unknown_vms: Final[set[NamespacedName]] = set()
        self._amounts: Final = {name: self._at_first(name) for name in names}
        self._sums: Final = [sum(each[at] for each in self._amounts.values()) for at in range(len(RESOURCES))]
        self._whole: Final = [
            sum(planner.resources(name).allocatable.get(resource, 0) for name in names) for resource in RESOURCES
        ]
        for move in made if usage else ():
            self._count(move)

    def of(self, name: str) -> Share:
        """What is used of a node, and what is requested of it, in percent: CPU and memory of both."""
        return (*self._percent(name, self._amounts[name]), *self._percent(name, self._requested(name)))

    def means(self) -> tuple[float, float]:
        """What is used of all nodes together, in percent: CPU and memory."""
        cpu, memory = (100 * used / all_ if all_ else 0.0 for used, all_ in zip(self._sums, self._whole, strict=True))
        return cpu, memory

    def leaves(self, mover: Mover, name: str) -> Share:
        """What a VM leaves free of its node."""
        return self._share(name, self._counted(mover, mover.source or mover.pod))

    def takes(self, mover: Mover, name: str) -> Share:
        """What a VM takes of a node."""
        return self._share(name, self._counted(mover, mover.pod))

    def move(self, mover: Mover, source: str, to: str) -> tuple[Counted, Counted]:
        """Have a VM be on another node, where the planner has it already; what it counted for, and counts for there."""
        leaves, takes = self._counted(mover, mover.source or mover.pod), self._counted(mover, mover.pod)
        self._add(source, (leaves.cpu, leaves.memory), -1)
        self._add(to, (takes.cpu, takes.memory), 1)
        return leaves, takes

    def _count(self, move: Move) -> None:
        """Count a move that has been made as the plan counted it that it is of, whatever is known by now."""
        for name, counted, sign in ((move.source, move.leaves, -1), (move.to, move.takes, 1)):
            if name not in self._amounts:
                continue
            self._add(name, (counted.cpu, counted.memory), sign)
            if name in self._unknown:
                # What is requested there now says so already.
                self._add(name, (counted.requested_cpu, counted.requested_memory), -sign)
        if self._usage and (move.namespace, move.name) not in self._usage.vms:
            self._unknown_vms.add((move.namespace, move.name))

    def notes(self) -> Iterator[str]:
        """For what requests stand, sentences."""
        if self._unknown:
            what = f"The usage of {pluralize(len(self._unknown), 'node')} is not known ({abbreviate(self._unknown)})"
            yield f"{what}: what pods request there counts."
        if self._unknown_vms:
            names = ["/".join(key) for key in sorted(self._unknown_vms)]
            what = f"The usage of {pluralize(len(names), 'VM')} is not known ({abbreviate(names)})"
            yield f"{what}: what they request counts."

    def _at_first(self, name: str) -> Amounts:
        known = self._usage.nodes.get(name) if self._usage else None
        return self._requested(name) if known is None else known

    def _requested(self, name: str) -> Amounts:
        resources = self._planner.resources(name)
        cpu, memory = (resources.allocatable.get(each, 0) - resources.free.get(each, 0) for each in RESOURCES)
        return cpu, memory

    def _counted(self, mover: Mover, pod: SimulatedPod) -> Counted:
        """What a VM counts for as one of its pods."""
        cpu, memory = (pod.requests.get(resource, 0) for resource in RESOURCES)
        known = self._usage.vms.get(mover.key) if self._usage else None
        if self._usage and known is None:
            self._unknown_vms.add(mover.key)
        return Counted(*(known or (cpu, memory)), cpu, memory)

    def _share(self, name: str, counted: Counted) -> Share:
        requested = counted.requested_cpu, counted.requested_memory
        return (*self._percent(name, (counted.cpu, counted.memory)), *self._percent(name, requested))

    def _add(self, name: str, amounts: Amounts, sign: int) -> None:
        cpu, memory = self._amounts[name]
        self._amounts[name] = cpu + sign * amounts[0], memory + sign * amounts[1]
        for at, amount in enumerate(amounts):
            self._sums[at] += sign * amount

    def _percent(self, name: str, amounts: Amounts) -> tuple[float, float]:
        allocatable = self._planner.resources(name).allocatable
        whole = [allocatable.get(resource, 0) for resource in RESOURCES]
        cpu, memory = (100 * amount / all_ if all_ else 0.0 for amount, all_ in zip(amounts, whole, strict=True))
        return cpu, memory
