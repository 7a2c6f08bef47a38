"""Which images a node lists, and on which addresses it and its pods are.

The kubelet lists the largest images first, and 50 at most unless ``nodeStatusMaxImages`` says otherwise. A node whose
runtime reports the rest itself does so in an annotation.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterator
from functools import lru_cache
from typing import Final

import msgspec

from webhook import names
from webhook.images.references import MAX_CHARACTERS, ImageReference, parse_reference
from webhook.k8s.nodes import NodeSpec, NodeStatus, NodeView
from webhook.k8s.views import View

# nodeStatusMaxImages of a kubelet that does not say anything else.
KUBELET_LIMIT: Final = 50
# Of one node; with nodeStatusMaxImages: -1 it may list any number.
MAX_IMAGES: Final = 2000
IMAGES_ANNOTATION: Final = f"{names.DOMAIN}/images"


class ContainerImage(View, frozen=True):
    """One of the images that a node lists (core/v1 ContainerImage)."""

    names: list[str] | None = None


class NodeSystemInfo(View, frozen=True):
    """``status.nodeInfo`` of a Node."""

    architecture: str | None = None
    operating_system: str | None = None


class NodeAddress(View, frozen=True):
    """One of the addresses of a Node."""

    address: str | None = None


class ReportedSpec(NodeSpec, frozen=True):
    """``spec`` of a Node, with the ranges of its pods' addresses."""

    pod_cidrs: list[str] | None = msgspec.field(default=None, name="podCIDRs")


class ReportedStatus(NodeStatus, frozen=True):
    """``status`` of a Node, with its images."""

    images: list[ContainerImage] | None = None
    node_info: NodeSystemInfo | None = None
    addresses: list[NodeAddress] | None = None


class ReportedNode(NodeView, frozen=True):
    """A Node with its images and addresses; nodes are read so only where layers are scored."""

    spec: ReportedSpec | None = None
    status: ReportedStatus | None = None


class NodeImages(msgspec.Struct, frozen=True):
    """What is kept of a node.

    Attributes:
        platform: ``OS/ARCHITECTURE``.
        references: to its images, from registries that are on the list; nodes with the same images share them.
        addresses: its own, and the ranges of its pods.
        is_cut: whether it probably has more images than it lists.
    """

    platform: str
    references: tuple[ImageReference, ...]
    addresses: tuple[str, ...]
    is_cut: bool


def references_of(node: ReportedNode, registries: Collection[str]) -> Iterator[ImageReference]:
    """The references with a digest to a node's images, those of its annotation first.

    Args:
        node: the node.
        registries: the registries whose images are of interest.
    """
    prefixes = tuple(f"{registry}/" for registry in registries)
    found = 0
    for name in _names(node):
        # Most names are of other registries, or tags.
        if name.startswith(prefixes) and "@" in name and len(name) <= MAX_CHARACTERS:
            reference = _parse(name)
            if reference:
                found += 1
                yield reference
        if found >= MAX_IMAGES:
            return


def images_of(node: ReportedNode, references: Collection[ImageReference]) -> NodeImages:
    """What is kept of a node.

    Args:
        node: the node.
        references: its images, as `references_of` returned them.
    """
    status = node.status or _NO_STATUS
    info = status.node_info or _NO_INFO
    platform = f"{info.operating_system or 'linux'}/{info.architecture or 'amd64'}"
    addresses = [address.address for address in status.addresses or () if address.address]
    ranges = (node.spec.pod_cidrs if node.spec else None) or ()
    is_cut = len(status.images or ()) == KUBELET_LIMIT and not node.meta.annotation(IMAGES_ANNOTATION)
    return NodeImages(sys.intern(platform), tuple(references), (*addresses, *ranges), is_cut)


def _names(node: ReportedNode) -> Iterator[str]:
    yield from (node.meta.annotation(IMAGES_ANNOTATION) or "").split()
    for image in (node.status.images if node.status else None) or ():
        yield from image.names or ()


# Nodes list the same images.
@lru_cache(maxsize=16_384)
def _parse(name: str) -> ImageReference | None:
    reference = parse_reference(name)
    return reference if reference and reference.digest else None


_NO_STATUS: Final = ReportedStatus()
_NO_INFO: Final = NodeSystemInfo()
