"""How evenly VMs lie on nodes: by their number, and by what they request."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from bench.placement.nodes import PlacedNode
from bench.placement.sizes import PlacementSize


@dataclass(frozen=True, slots=True)
class PlacementFigures:
    """One placement, counted on every node, in the nodes' order; empty nodes count too.

    Attributes:
        counts: the VMs on each node.
        cpu: what all pods of a node request, VMs or not, in percent of its allocatable CPU.
        memory: the same for its memory.
    """

    counts: tuple[int, ...]
    cpu: tuple[float, ...]
    memory: tuple[float, ...]

    @property
    def deviation(self) -> float:
        """The standard deviation of the VMs per node; of all nodes, for there are no others."""
        return statistics.pstdev(self.counts)

    @property
    def cpu_deviation(self) -> float:
        """The standard deviation of the requested CPU, in percentage points."""
        return statistics.pstdev(self.cpu)

    @property
    def memory_deviation(self) -> float:
        """The standard deviation of the requested memory, in percentage points."""
        return statistics.pstdev(self.memory)

    @property
    def fewest(self) -> int:
        """The VMs on the node with the fewest."""
        return min(self.counts)

    @property
    def most(self) -> int:
        """The VMs on the node with the most."""
        return max(self.counts)

    @property
    def empty(self) -> int:
        """The nodes without a VM."""
        return self.counts.count(0)

    @property
    def summary(self) -> str:
        """For people."""
        empty = {0: "no node empty", 1: "one node empty"}.get(self.empty, f"{self.empty} nodes empty")
        even = self.fewest == self.most
        vms = f"{self.most} VMs on every node" if even else f"{self.fewest} to {self.most} VMs on a node"
        return f"{vms}, standard deviation {self.deviation:.1f}, {empty}"

    @property
    def shares_summary(self) -> str:
        """How evenly CPU and memory are requested, for people."""
        fullest = f"{max(self.memory):.0f}% on the fullest node"
        return f"CPU {self.cpu_deviation:.1f} pp, memory {self.memory_deviation:.1f} pp, {fullest}"


def count_figures(
    nodes: Sequence[PlacedNode], placed: Mapping[str, str], sizes: Mapping[str, PlacementSize]
) -> PlacementFigures:
    """The figures of a placement.

    Args:
        nodes: all that there are.
        placed: the node of each VM.
        sizes: what each VM requests.

    Raises:
        ValueError: a VM is on a node that is not one of them.
    """
    on_node: dict[str, list[PlacementSize]] = {node.name: [] for node in nodes}
    for vm, node in placed.items():
        if node not in on_node:
            raise ValueError(f"{vm} is on {node}, which is none of the {len(nodes)} nodes")
        on_node[node].append(sizes[vm])
    return PlacementFigures(
        tuple(len(on_node[node.name]) for node in nodes),
        tuple(
            100 * (node.load_millis + _total(size.cpu_millis for size in on_node[node.name])) / (1000 * node.size.cpus)
            for node in nodes
        ),
        tuple(
            100 * (node.load_bytes + _total(size.memory_bytes for size in on_node[node.name])) / node.size.memory_bytes
            for node in nodes
        ),
    )


def _total(values: Iterable[int]) -> int:
    return sum(values)


def middle(rounds: Sequence[PlacementFigures]) -> int:
    """The index of the round whose standard deviation is the median: of an even number, the lower of the two.

    A round, not the median of each figure: all figures and the chart then show what happened at one time.
    """
    return sorted(range(len(rounds)), key=lambda index: rounds[index].deviation)[(len(rounds) - 1) // 2]
