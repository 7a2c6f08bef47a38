"""The cluster: equal nodes, of which half report the launcher's image and half are too full of others to do so."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from bench.placement.cases import CASES
from tests.e2e.kube import Kube
from tests.e2e.objects import NODE_ALLOCATABLE, make_node

LAUNCHER_IMAGE: Final = "registry.example/kubevirt/virt-launcher:v1"
LAUNCHER_BYTES: Final = 600_000_000
# How large a node is, for people.
NODE_SIZE: Final = f"{NODE_ALLOCATABLE['cpu']} CPUs and {NODE_ALLOCATABLE['memory'].removesuffix('Gi')} GiB"
# A kubelet reports that many, the largest first (its nodeStatusMaxImages).
REPORTED_IMAGES: Final = 50
# The smallest of the others: larger than the launcher's, so that they come before it.
_OTHER_BYTES: Final = 700_000_000


@dataclass(frozen=True, slots=True)
class Layout:
    """The nodes by name; those that list the launcher's image come first."""

    nodes: int

    @property
    def names(self) -> tuple[str, ...]:
        digits = len(str(self.nodes))
        return tuple(f"node-{number:0{digits}}" for number in range(1, self.nodes + 1))

    @property
    def listing(self) -> tuple[str, ...]:
        """Nodes that list the launcher's image."""
        return self.names[: self.nodes // 2]

    @property
    def full(self) -> tuple[str, ...]:
        """Nodes whose list is full of larger images."""
        return self.names[self.nodes // 2 :]

    def build(self, kube: Kube) -> None:
        """Make the nodes, both namespaces, and the object that tells where KubeVirt runs."""
        for name in self.listing:
            make_node(kube, name, images=[_image(LAUNCHER_IMAGE, LAUNCHER_BYTES)])
        for name in self.full:
            make_node(kube, name, images=_others())
        for case in CASES:
            metadata = {"name": case.namespace, "labels": dict(case.labels)}
            kube.create("v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
        kubevirt = {"apiVersion": "kubevirt.io/v1", "kind": "KubeVirt", "metadata": {"name": "kubevirt"}, "spec": {}}
        kube.create("kubevirt.io/v1/kubevirts", kubevirt, "kubevirt")


def _others() -> Iterator[dict[str, Any]]:
    """As many as a node reports, each larger than the launcher's."""
    for number in range(1, REPORTED_IMAGES + 1):
        yield _image(f"registry.example/other/image-{number:02}:v1", _OTHER_BYTES + number * 10_000_000)


def _image(name: str, size: int) -> dict[str, Any]:
    return {"names": [name], "sizeBytes": size}
