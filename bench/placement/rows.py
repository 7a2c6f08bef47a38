"""The rows of the table: clusters, and the VMs that come to them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final

from bench.placement.nodes import (
    LARGE_NODE,
    MIDDLE_NODE,
    SMALL_NODE,
    NodeImageList,
    NodeLoad,
    NodeSize,
    PlacedNode,
    make_nodes,
)
from bench.placement.sizes import MIXED, SMALL

_KVM_DEVICES: Final = 1000  # KubeVirt's own figure, unless virtualMachineInstancesPerNode says otherwise
_NODES: Final = 20


class Arrival(Enum):
    """How the VMs come."""

    BURST = "in one burst"
    ONE_BY_ONE = "one by one"
    # A third of them, by chance, leave and as many others come, three times.
    CHURN = "with VMs that leave"
    # Two nodes are drained and come back; then a fifth more VMs come.
    DRAIN = "after a drain"


@dataclass(frozen=True, slots=True)
class PlacementRow:
    """One cluster, and what happens to it.

    Attributes:
        key: its name on the command line and in the JSON.
        sizes: the VMs' sizes, as in ``draw_sizes``.
        devices: how many VMs a node takes by KubeVirt's word (virtualMachineInstancesPerNode).
        zones: how many nodes are in each zone; empty for no zones.
        alike: whether the nodes are equal and equally full, so that the same number of VMs on each is what one wants.
        quick: whether it is one of those that run unless others are requested.
    """

    key: str
    vms: int
    sizes: str = SMALL
    nodes: tuple[tuple[int, NodeSize], ...] = ((_NODES, MIDDLE_NODE),)
    load: NodeLoad = NodeLoad.EMPTY
    images: NodeImageList = NodeImageList.HALF
    namespaces: int = 1
    arrival: Arrival = Arrival.BURST
    devices: int = _KVM_DEVICES
    zones: tuple[int, ...] = ()
    alike: bool = True
    quick: bool = False

    def make_nodes(self) -> tuple[PlacedNode, ...]:
        """The nodes as they are before the first VM comes."""
        return make_nodes(self.nodes, self.load, self.images, self.zones)

    @property
    def title(self) -> str:
        """For people: the nodes, what is on them, the VMs, and what is out of the ordinary."""
        vms = {SMALL: "small VMs", MIXED: "VMs of mixed sizes"}.get(self.sizes, f"VMs of {self.sizes}")
        parts = [
            " and ".join(f"{count} nodes of {size.title}" for count, size in self.nodes) + f", {self.load.value}",
            f"{self.vms} {vms}",
            f"{self.namespaces} namespaces" if self.namespaces > 1 else "",
            self.arrival.value if self.arrival is not Arrival.BURST else "",
            f"zones of {', '.join(map(str, self.zones))} nodes" if self.zones else "",
            self.images.value if self.images is not NodeImageList.HALF else "",
            f"virtualMachineInstancesPerNode: {self.devices}" if self.devices != _KVM_DEVICES else "",
        ]
        return "; ".join(filter(None, parts))

    @property
    def namespace_names(self) -> tuple[str, ...]:
        """The namespaces that the VMs are created in, in turns."""
        return tuple(f"tenant-{number:03}" for number in range(1, self.namespaces + 1))


_SMALL = ((_NODES, SMALL_NODE),)
_LARGE = ((_NODES, LARGE_NODE),)
_MIXED_NODES = ((10, SMALL_NODE), (6, MIDDLE_NODE), (4, LARGE_NODE))

ROWS: Final = (
    # -- size of the nodes, number of VMs
    PlacementRow("16cpu-100", 100, nodes=_SMALL),
    PlacementRow("16cpu-daemonsets-100", 100, nodes=_SMALL, load=NodeLoad.DAEMON_SETS, quick=True),
    PlacementRow("64cpu-40", 40),
    PlacementRow("64cpu-100", 100, quick=True),
    PlacementRow("64cpu-300", 300),
    PlacementRow("64cpu-1000", 1000),
    PlacementRow("64cpu-daemonsets-40", 40, load=NodeLoad.DAEMON_SETS),
    PlacementRow("64cpu-daemonsets-100", 100, load=NodeLoad.DAEMON_SETS, quick=True),
    PlacementRow("64cpu-daemonsets-300", 300, load=NodeLoad.DAEMON_SETS),
    PlacementRow("64cpu-daemonsets-1000", 1000, load=NodeLoad.DAEMON_SETS),
    PlacementRow("192cpu-100", 100, nodes=_LARGE),
    PlacementRow("192cpu-daemonsets-100", 100, nodes=_LARGE, load=NodeLoad.DAEMON_SETS),
    PlacementRow("192cpu-daemonsets-1000", 1000, nodes=_LARGE, load=NodeLoad.DAEMON_SETS),
    # -- what else is on the nodes
    PlacementRow("half-full-100", 100, load=NodeLoad.HALF),
    PlacementRow("uneven-load-100", 100, load=NodeLoad.UNEVEN, alike=False),
    PlacementRow("uneven-nodes-200", 200, nodes=_MIXED_NODES, load=NodeLoad.DAEMON_SETS, alike=False),
    PlacementRow("all-images-100", 100, load=NodeLoad.DAEMON_SETS, images=NodeImageList.ALL, quick=True),
    # -- VMs of mixed sizes
    PlacementRow("mixed-100", 100, MIXED, load=NodeLoad.DAEMON_SETS),
    PlacementRow("mixed-300", 300, MIXED, load=NodeLoad.DAEMON_SETS, quick=True),
    PlacementRow("mixed-all-images-300", 300, MIXED, load=NodeLoad.DAEMON_SETS, images=NodeImageList.ALL),
    PlacementRow("mixed-192cpu-600", 600, MIXED, nodes=_LARGE, load=NodeLoad.DAEMON_SETS),
    PlacementRow("mixed-half-full-100", 100, MIXED, nodes=_LARGE, load=NodeLoad.HALF),
    PlacementRow("mixed-uneven-load-150", 150, MIXED, load=NodeLoad.UNEVEN, alike=False),
    PlacementRow("medium-300", 300, "u1.medium", load=NodeLoad.DAEMON_SETS),
    # -- namespaces
    PlacementRow("20-namespaces-300", 300, load=NodeLoad.DAEMON_SETS, namespaces=20, quick=True),
    PlacementRow("300-namespaces-300", 300, load=NodeLoad.DAEMON_SETS, namespaces=300, quick=True),
    PlacementRow("20-namespaces-empty-300", 300, namespaces=20),
    PlacementRow("300-namespaces-empty-300", 300, namespaces=300),
    PlacementRow("mixed-20-namespaces-300", 300, MIXED, load=NodeLoad.DAEMON_SETS, namespaces=20),
    PlacementRow("mixed-300-namespaces-300", 300, MIXED, load=NodeLoad.DAEMON_SETS, namespaces=300),
    PlacementRow("20-namespaces-300-limit-250", 300, load=NodeLoad.DAEMON_SETS, namespaces=20, devices=250),
    PlacementRow("300-namespaces-300-limit-250", 300, load=NodeLoad.DAEMON_SETS, namespaces=300, devices=250),
    PlacementRow("20-namespaces-300-limit-110", 300, load=NodeLoad.DAEMON_SETS, namespaces=20, devices=110),
    PlacementRow("300-namespaces-300-limit-110", 300, load=NodeLoad.DAEMON_SETS, namespaces=300, devices=110),
    PlacementRow(
        "mixed-20-namespaces-300-limit-110", 300, MIXED, load=NodeLoad.DAEMON_SETS, namespaces=20, devices=110
    ),
    # -- how the VMs come and go
    PlacementRow("one-by-one-100", 100, load=NodeLoad.DAEMON_SETS, arrival=Arrival.ONE_BY_ONE),
    PlacementRow("churn-100", 100, load=NodeLoad.DAEMON_SETS, arrival=Arrival.CHURN),
    PlacementRow("churn-20-namespaces-300", 300, load=NodeLoad.DAEMON_SETS, arrival=Arrival.CHURN, namespaces=20),
    PlacementRow("mixed-churn-300", 300, MIXED, load=NodeLoad.DAEMON_SETS, arrival=Arrival.CHURN),
    PlacementRow("drain-100", 100, load=NodeLoad.DAEMON_SETS, arrival=Arrival.DRAIN, quick=True),
    PlacementRow("mixed-drain-300", 300, MIXED, load=NodeLoad.DAEMON_SETS, arrival=Arrival.DRAIN),
    # -- zones
    PlacementRow("zones-100", 100, load=NodeLoad.DAEMON_SETS, zones=(8, 6, 6)),
    PlacementRow("zones-uneven-100", 100, load=NodeLoad.DAEMON_SETS, zones=(10, 7, 3)),
)
