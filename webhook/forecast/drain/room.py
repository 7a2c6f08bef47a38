"""What is free on each node now: the allocatable resources without the requests of the pods that are bound to it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from webhook.forecast.drain.views import ConstrainedPod
from webhook.k8s.nodes import NodeView
from webhook.placement import podrequests, resources
from webhook.placement.index import NodeIndex
from webhook.placement.levels import Levels

PODS: Final = "pods"
# As elsewhere, what a kubelet has not reported is never a reason against its node.
_PLENTY: Final = 2**63 - 1

# Amounts by resource, in kube-scheduler's unit; with `PODS`, each pod is one.
Amounts = dict[str, int]


def requests_of(pod: ConstrainedPod) -> Amounts:
    """What a pod takes of its node."""
    spec = pod.spec
    if spec is None:
        return {PODS: 1}
    total = podrequests.total(
        [each.requests for each in spec.containers or () if each],
        [(each.requests, podrequests.is_sidecar(each)) for each in spec.init_containers or () if each],
        pod_level=spec.resources.requests if spec.resources else None,
        overhead=spec.overhead,
    )
    counted = {
        name: resources.to_scheduler_units(name, value) for name, value in total.items() if resources.is_counted(name)
    }
    return {PODS: 1, **{name: amount for name, amount in counted.items() if amount > 0}}


def offers_of(node: NodeView) -> Amounts:
    """What pods could request of the whole node."""
    listed = (node.status.allocatable if node.status else None) or {}
    pods = listed.get(PODS)
    nanos = None if pods is None else resources.nanos(pods)
    most = _PLENTY if nanos is None else resources.to_scheduler_units(PODS, nanos)
    return {**resources.NOT_REPORTED, **resources.allocatable(listed), PODS: most}


class Room:
    """The free amounts of all nodes, kept sorted, so that the nodes with enough are found without a look at each.

    Args:
        index: the nodes' positions.
        offers: what each node could give, by its name.
    """

    def __init__(self, index: NodeIndex, offers: Mapping[str, Amounts]) -> None:
        self._free: Final[dict[int, Amounts]] = {}
        self._levels: Final[dict[str, Levels]] = {}
        for name, amounts in offers.items():
            position = index.position(name)
            if position is not None:
                self._free[position] = dict(amounts)
                for resource, amount in amounts.items():
                    self._levels.setdefault(resource, Levels()).flip(amount, 1 << position)

    def free(self, position: int, resource: str) -> int:
        """The free amount of one resource of a node."""
        return self._free.get(position, {}).get(resource, 0)

    def holding(self, requests: Mapping[str, int]) -> int:
        """The nodes with room for a pod, as `bits`."""
        nodes = -1
        for resource, amount in requests.items():
            nodes &= self.with_enough(resource, amount)
        return nodes

    def with_enough(self, resource: str, amount: int) -> int:
        """The nodes that have so much of one resource free, as `bits`."""
        levels = self._levels.get(resource)
        return levels.nodes & ~levels.below(amount) if levels else 0

    def take(self, position: int, requests: Mapping[str, int]) -> None:
        """Bind a pod to a node."""
        self._change(position, requests, -1)

    def give_back(self, position: int, requests: Mapping[str, int]) -> None:
        """Remove a pod from a node."""
        self._change(position, requests, 1)

    def tightest(self, candidates: int, requests: Mapping[str, int]) -> int:
        """The position of the candidate with the least free memory, so that large gaps stay for large VMs."""
        least = requests.get(resources.MEMORY, 0)
        return self._first(candidates, self._levels[resources.MEMORY].ascending(least))

    def widest(self, candidates: int) -> int:
        """The position of the candidate with the most free memory: about what kube-scheduler's scores prefer."""
        return self._first(candidates, self._levels[resources.MEMORY].descending())

    @staticmethod
    def _first(candidates: int, groups: Iterator[int]) -> int:
        for nodes in groups:
            if found := nodes & candidates:
                return (found & -found).bit_length() - 1
        raise ValueError("no candidate has any memory")

    def _change(self, position: int, requests: Mapping[str, int], sign: int) -> None:
        free = self._free.get(position)
        if free is None:
            return
        bit = 1 << position
        for resource, amount in requests.items():
            before = free.get(resource)
            if before is None:
                continue  # a pod that was bound before its device was taken out
            levels = self._levels[resource]
            levels.flip(before, bit)
            free[resource] = before + sign * amount
            levels.flip(free[resource], bit)


def occupy(room: Room, index: NodeIndex, pods: Iterable[ConstrainedPod]) -> None:
    """Take what pods request that are bound to nodes and have not ended."""
    for pod in pods:
        position = index.position(pod.node_name)
        if position is not None and not pod.is_over:
            room.take(position, requests_of(pod))
