"""Finding a node for each of several VMs at once, so that no node gets more than it has room for.

There are two ways to fill nodes. As kube-scheduler's scores do it, each VM goes where most memory is free. Tightly, the
VMs that have least choice and are largest go first, each to the node that it fills best: where only that finds room for
all, kube-scheduler may leave a VM without a node.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

from webhook.forecast.drain.movers import Mover, scopes
from webhook.forecast.drain.neighbours import Neighbours
from webhook.forecast.drain.room import Room
from webhook.forecast.drain.snapshot import Place
from webhook.placement.index import NodeIndex
from webhook.placement.verdict import Verdict

# A VM can be kept from a node by pods that move away themselves, so those that found none try again.
_MOST_ROUNDS: Final = 8


class Candidates(msgspec.Struct, frozen=True):
    """The nodes for one VM at one moment.

    Attributes:
        verdict: which nodes meet its requirements, and what the others fail.
        room: the nodes that have enough free, as `bits`.
        apart: what other pods keep it from, each with the nodes, as `bits`.
    """

    verdict: Verdict
    room: int
    apart: tuple[tuple[str, int], ...]

    @property
    def nodes(self) -> int:
        """The nodes that it can go to now, as `bits`."""
        return self.verdict.bits & self.room & ~self.forbidden

    @property
    def forbidden(self) -> int:
        """The nodes that other pods keep it from, as `bits`."""
        nodes = 0
        for _, excluded in self.apart:
            nodes |= excluded
        return nodes


class Packer:
    """Places VMs on nodes and takes them off again.

    Args:
        index: the nodes.
        room: what is free on them.
        neighbours: the pods on them.
    """

    def __init__(self, index: NodeIndex, room: Room, neighbours: Neighbours) -> None:
        self._index: Final = index
        self._room: Final = room
        self._neighbours: Final = neighbours

    def candidates(self, mover: Mover, verdict: Verdict) -> Candidates:
        """Where a VM can go now.

        Args:
            mover: the VM.
            verdict: the nodes by its requirements.
        """
        matching, tolerated = scopes(verdict)
        apart = tuple(self._neighbours.excluded_nodes(mover.pod, matching, tolerated))
        return Candidates(verdict, self._room.holding(mover.requests), apart)

    def pack(self, movers: Iterable[tuple[Mover, Verdict]], *, tightly: bool) -> dict[Place, int]:
        """Place VMs on nodes.

        Args:
            movers: the VMs, in the order in which they are evicted.
            tightly: the way to fill nodes.

        Returns:
            The positions of the nodes by the VMs' places, without the VMs that found none.
        """
        waiting = list(movers)
        if tightly:
            waiting.sort(key=lambda each: (each[1].count, -each[0].memory, each[0].place))
        placed: dict[Place, int] = {}
        for _ in range(_MOST_ROUNDS):
            left = []
            for mover, verdict in waiting:
                nodes = self.candidates(mover, verdict).nodes
                if not nodes:
                    left.append((mover, verdict))
                    continue
                position = self._room.tightest(nodes, mover.requests) if tightly else self._room.widest(nodes)
                placed[mover.place] = position
                self.place(mover, position)
            if not left or len(left) == len(waiting):
                break
            waiting = left
        return placed

    def undo(self, movers: Iterable[tuple[Mover, Verdict]], placed: dict[Place, int]) -> None:
        """Take VMs off the nodes that they have been placed on."""
        for mover, _ in movers:
            if mover.place in placed:
                self.place(mover, placed[mover.place], -1)

    def place(self, mover: Mover, position: int, number: int = 1) -> None:
        """Move a VM to a node, or with -1 back."""
        source = self._index.position(mover.vmi.node_name)
        if number > 0:
            self._room.take(position, mover.requests)
        else:
            self._room.give_back(position, mover.requests)
        self._neighbours.add(mover.pod, position, number)
        if source is not None and mover.source is not None:
            self._neighbours.add(mover.source, source, -number)
