"""The nodes of a row: their sizes, what runs on them besides VMs, and whether they list the launcher's image."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

from bench.placement.sizes import GIB, MIB
from tests.e2e.support import objects

LAUNCHER_IMAGE: Final = "registry.example/kubevirt/virt-launcher:v1"
LAUNCHER_BYTES: Final = 600_000_000
# A kubelet reports that many, the largest first (its nodeStatusMaxImages).
REPORTED_IMAGES: Final = 50
# The smallest of the others: larger than the launcher's, so that they come before it.
_OTHER_BYTES: Final = 700_000_000
LOAD_NAMESPACE: Final = "load"
# Of each node, the share that ordinary pods request where the nodes are loaded unevenly.
UNEVEN_SHARES: Final = (0.0, 0.2, 0.4, 0.6)


class NodeLoad(Enum):
    """What runs on the nodes before the first VM comes."""

    EMPTY = "empty"
    DAEMON_SETS = "with DaemonSets"
    HALF = "half full"
    UNEVEN = "unevenly full"


class NodeImageList(Enum):
    """Which nodes list the launcher's image."""

    HALF = "half of the nodes list the image"
    ALL = "all nodes list the image"


@dataclass(frozen=True, slots=True)
class NodeSize:
    """A size of node, with 4 GiB of memory for each CPU."""

    cpus: int
    pods: int

    @property
    def memory_bytes(self) -> int:
        """The allocatable memory."""
        return 4 * self.cpus * GIB

    @property
    def title(self) -> str:
        """For people."""
        return f"{self.cpus} CPUs"


# A kubelet's own limit is 110 pods; clusters with larger nodes raise it.
SMALL_NODE: Final = NodeSize(16, 110)
MIDDLE_NODE: Final = NodeSize(64, 250)
LARGE_NODE: Final = NodeSize(192, 250)


@dataclass(frozen=True, slots=True)
class PlacedNode:
    """One node as it is before the first VM comes.

    Attributes:
        load_millis: what the pods on it request of the CPU, in thousandths.
        load_bytes: what they request of memory.
        zone: its zone; empty for none.
    """

    name: str
    size: NodeSize
    lists_image: bool
    load_millis: int = 0
    load_bytes: int = 0
    zone: str = ""

    def object(self, devices: int) -> dict[str, Any]:
        """The node as it is created; its status has to be written once more, for a creation drops it."""
        node = objects.node(self.name, {"topology.kubernetes.io/zone": self.zone} if self.zone else None)
        resources = {
            "cpu": str(self.size.cpus),
            "memory": f"{self.size.memory_bytes // MIB}Mi",
            "ephemeral-storage": "200Gi",
            "pods": str(self.size.pods),
            **{f"devices.kubevirt.io/{device}": str(devices) for device in ("kvm", "tun", "vhost-net")},
        }
        node["status"] = {
            "capacity": resources,
            "allocatable": resources,
            "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "as the row says"}],
            "images": [_image(LAUNCHER_IMAGE, LAUNCHER_BYTES)] if self.lists_image else list(other_images()),
        }
        return node

    def load_pod(self) -> dict[str, Any] | None:
        """One pod that requests all of the load, bound already; None where there is none."""
        if not self.load_millis:
            return None
        requests = {"cpu": f"{self.load_millis}m", "memory": str(self.load_bytes)}
        container = {"name": "load", "image": "registry.example/load:v1", "resources": {"requests": requests}}
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": f"load-{self.name}"},
            "spec": {"nodeName": self.name, "automountServiceAccountToken": False, "containers": [container]},
        }


def make_nodes(
    sizes: tuple[tuple[int, NodeSize], ...], load: NodeLoad, images: NodeImageList, zones: tuple[int, ...] = ()
) -> tuple[PlacedNode, ...]:
    """The nodes of a row.

    Args:
        sizes: how many of which size.
        zones: how many nodes are in each zone; empty for no zones.
    """
    expanded = [size for count, size in sizes for _ in range(count)]
    zone_names = [f"zone-{index}" for index, count in enumerate(zones, 1) for _ in range(count)] or [""] * len(expanded)
    digits = len(str(len(expanded)))
    return tuple(
        PlacedNode(
            f"node-{number + 1:0{digits}}",
            size,
            lists_image=images is NodeImageList.ALL or number % 2 == 0,
            load_millis=int(_load_share(load, size, number)[0] * 1000 * size.cpus),
            load_bytes=int(_load_share(load, size, number)[1] * size.memory_bytes),
            zone=zone_names[number],
        )
        for number, size in enumerate(expanded)
    )


def other_images() -> Iterator[dict[str, Any]]:
    """As many as a node reports, each larger than the launcher's."""
    for number in range(1, REPORTED_IMAGES + 1):
        yield _image(f"registry.example/other/image-{number:02}:v1", _OTHER_BYTES + number * 10_000_000)


def _load_share(load: NodeLoad, size: NodeSize, number: int) -> tuple[float, float]:
    """The shares of a node's CPU and memory that its load requests."""
    if load is NodeLoad.DAEMON_SETS:
        return 1.5 / size.cpus, 2 * GIB / size.memory_bytes
    if load is NodeLoad.HALF:
        return 0.5, 0.5
    if load is NodeLoad.UNEVEN:
        # Both halves of the nodes, those that list the image and those that don't, have all shares.
        share = UNEVEN_SHARES[number // 2 % len(UNEVEN_SHARES)]
        return share, share
    return 0.0, 0.0


def _image(name: str, size: int) -> dict[str, Any]:
    return {"names": [name], "sizeBytes": size}
