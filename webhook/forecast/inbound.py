"""Which migrations run at the same time, so that a plan honours a limit of migrations that a node receives.

With the setting ``migration.maxInboundPerNode`` a target pod leaves out the nodes that receive as many migrations when
it is created (`webhook.policies.migration.inbound`). Which ones those are follows from KubeVirt's own limits: it begins
migrations as soon as there is a slot, of the cluster and of the node that they leave.
"""

from __future__ import annotations

import heapq
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from typing import Final, TypeVar

from webhook.forecast.movers import Mover
from webhook.forecast.report import Limits
from webhook.k8s.resources import NamespacedName
from webhook.k8s.types.selectors import NOT_IN, Expression
from webhook.placement.eligibility import Eligibility, Failure
from webhook.placement.nodes import HOSTNAME, bitset_positions, bitset_union
from webhook.placement.requirements import Label, Origin
from webhook.text import pluralize

T = TypeVar("T")


class InboundLimit:
    """A limit of migrations that a node receives, and what it has done in a plan.

    Args:
        most: how many migrations a node may receive.
        applies: whether it counts for the VMs of a namespace.
        limits: KubeVirt's.

    Attributes:
        elsewhere: the VMs whose target pods left nodes out.
        exceeded: those for which no other node is eligible, so that one may receive more.
    """

    def __init__(self, most: int, applies: Callable[[str], bool], limits: Limits) -> None:
        self.most: Final = most
        self.limits: Final = limits
        self.elsewhere: Final[set[NamespacedName]] = set()
        self.exceeded: Final[set[NamespacedName]] = set()
        self._applies: Final = applies
        self._by_hostname: Final[dict[str, int]] = {}

    def left(self, mover: Mover, eligibility: Eligibility, receiving: Counter[int]) -> Eligibility:
        """The nodes for a VM whose target pod is created now, by how many migrations nodes receive, by position."""
        if not receiving or not self._applies(mover.key[0]):
            return eligibility
        if not self._by_hostname:
            self._index(eligibility)
        # Where no node would be left, the next higher limit counts.
        for allowed in range(self.most, max(receiving.values()) + 1):
            busy = [position for position, count in receiving.items() if count >= allowed]
            hostnames = {self._hostname(eligibility, position) for position in busy} - {""}
            nodes = bitset_union(self._by_hostname[each] for each in hostnames) & eligibility.bitset
            if not nodes:
                break
            if nodes != eligibility.bitset:
                self.elsewhere.add(mover.key)
                required = Label(Origin.AFFINITY, Expression(HOSTNAME, NOT_IN, tuple(sorted(hostnames))))
                return eligibility.failing([Failure(required, None, nodes)])
            self.exceeded.add(mover.key)
        return eligibility

    def _index(self, eligibility: Eligibility) -> None:
        """The nodes by their hostnames; a plan changes no label, and no position."""
        for position in bitset_positions(eligibility.everyone):
            if hostname := self._hostname(eligibility, position):
                self._by_hostname[hostname] = self._by_hostname.get(hostname, 0) | 1 << position

    @staticmethod
    def _hostname(eligibility: Eligibility, position: int) -> str:
        node = eligibility.nodes[position]
        return node.labels.get(HOSTNAME, "") if node else ""

    def notes(self) -> Iterator[str]:
        """What it has done, sentences."""
        if self.elsewhere:
            several = pluralize(len(self.elsewhere), "target pod")
            most = pluralize(self.most, "migration")
            yield f"migration.maxInboundPerNode: {several} leave out nodes that receive {most} when their turn comes."
        if self.exceeded:
            several = pluralize(len(self.exceeded), "target pod")
            yield f"migration.maxInboundPerNode is exceeded for {several}, because no other node is eligible."


def in_slots(
    movers: Iterable[tuple[Mover, T]], limits: Limits, begin: Callable[[Mover, T, Counter[int]], int | None]
) -> None:
    """Have migrations begin in the order in which KubeVirt has slots for them.

    Args:
        movers: the VMs, each with what goes with it.
        limits: KubeVirt's, and how fast a migration is.
        begin: has one begin, with how many migrations each node receives now, by its position; returns that of the
            node to which it goes, None: it does not begin, and takes no slot.
    """
    waiting: dict[str, deque[tuple[Mover, T]]] = {}
    for mover, more in movers:
        waiting.setdefault(mover.vmi.node_name, deque()).append((mover, more))
    leaving, receiving = Counter[str](), Counter[int]()
    running: list[tuple[int, int, str, int]] = []
    now = number = 0
    while waiting:
        has_begun = True
        while has_begun and waiting and len(running) < max(1, limits.per_cluster):
            has_begun = False
            for source in [*waiting]:
                if leaving[source] >= max(1, limits.per_node) or len(running) >= max(1, limits.per_cluster):
                    continue
                mover, more = waiting[source].popleft()
                if not waiting[source]:
                    del waiting[source]
                has_begun = True
                if (position := begin(mover, more, receiving)) is None:
                    continue
                number += 1
                seconds = limits.start_seconds + -(-mover.memory // limits.bandwidth)
                heapq.heappush(running, (now + seconds, number, source, position))
                leaving[source] += 1
                receiving[position] += 1
        if running:
            now, _, source, position = heapq.heappop(running)
            leaving[source] -= 1
            receiving[position] -= 1
