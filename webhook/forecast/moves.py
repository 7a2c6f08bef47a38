"""Moving VMs in a simulation: each to the node that kube-scheduler chooses, or all as tightly as they fit.

They move in the order in which they are given. Tightly, whoever asks has the VMs first that have least choice and are
largest, and each goes to the node that it fills best: where only that finds room for all, kube-scheduler may leave a VM
without a node.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Final

from webhook.forecast.inbound import InboundLimit, in_slots
from webhook.forecast.movers import Mover
from webhook.k8s.resources import NamespacedName
from webhook.placement.eligibility import Eligibility
from webhook.placement.index import NodeIndex
from webhook.placement.simulate import Simulation

_NOTHING: Final[Counter[int]] = Counter()


class Moves:
    """Moves VMs to nodes, and back.

    Args:
        simulation: the cluster, which is changed.
        index: its nodes.
        inbound: how many migrations a node may receive at the same time; None: any number.
    """

    def __init__(self, simulation: Simulation, index: NodeIndex, inbound: InboundLimit | None = None) -> None:
        self._simulation: Final = simulation
        self._index: Final = index
        self._inbound: Final = inbound

    def make(self, mover: Mover, position: int) -> None:
        """Move a VM to a node, where it no longer takes anything of the one that it leaves."""
        self._simulation.bind(mover.pod, position)
        source = self._index.position(mover.vmi.node_name)
        if source is not None and mover.source is not None:
            self._simulation.unbind(mover.source, source)

    def undo(self, mover: Mover, position: int) -> None:
        """Move a VM back from a node to the one that it has left."""
        self._simulation.unbind(mover.pod, position)
        source = self._index.position(mover.vmi.node_name)
        if source is not None and mover.source is not None:
            self._simulation.bind(mover.source, source)

    def make_all(self, vms: Iterable[tuple[Mover, Eligibility]], placed: dict[NamespacedName, int]) -> None:
        """Move VMs again to the nodes that they have been on."""
        for mover, _ in vms:
            if (position := placed.get(mover.key)) is not None:
                self.make(mover, position)

    def undo_all(self, vms: Iterable[tuple[Mover, Eligibility]], placed: dict[NamespacedName, int]) -> None:
        """Move VMs back from these nodes."""
        for mover, _ in vms:
            if (position := placed.get(mover.key)) is not None:
                self.undo(mover, position)

    def move_all(
        self, movers: Iterable[tuple[Mover, Eligibility]], rounds: int, *, tightly: bool
    ) -> dict[NamespacedName, int]:
        """The positions of nodes by the VMs' namespaced names, for VMs in their order; some find none.

        Those that find none try again after the others, at most so many rounds.
        """
        waiting = list(movers)
        placed: dict[NamespacedName, int] = {}
        for _ in range(rounds):
            left: list[tuple[Mover, Eligibility]] = []

            def begin(
                mover: Mover,
                eligibility: Eligibility,
                receiving: Counter[int],
                left: list[tuple[Mover, Eligibility]] = left,
            ) -> int | None:
                nodes = self._inbound.left(mover, eligibility, receiving) if self._inbound else eligibility
                position = self.choose(mover, nodes, tightly=tightly)
                if position is None:
                    left.append((mover, eligibility))
                else:
                    placed[mover.key] = position
                    self.make(mover, position)
                return position

            if self._inbound:
                in_slots(waiting, self._inbound.limits, begin)
            else:
                for mover, eligibility in waiting:
                    begin(mover, eligibility, _NOTHING)
            if not left or len(left) == len(waiting):
                break
            waiting = left
        return placed

    def choose(self, mover: Mover, eligibility: Eligibility, *, tightly: bool = False) -> int | None:
        """The position of the node that a VM goes to now; None: it fits on none."""
        if not eligibility.bitset:
            return None
        if tightly:
            nodes = self._simulation.filter(mover.pod, eligibility).feasible
            return self._simulation.least_free(nodes, mover.pod) if nodes else None
        result = self._simulation.schedule(mover.pod, eligibility)
        return result.position if result else None
