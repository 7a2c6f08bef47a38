"""The layers on nodes, kept up to date: what nodes list, joined with the manifests of these images."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from typing import Final

from webhook.images.index import LayerIndex, PlatformImage
from webhook.images.manifests import ImageReference
from webhook.images.objects import NodeImages, images_of
from webhook.images.registry.addresses import OwnAddresses
from webhook.images.registry.images import Images
from webhook.k8s.resources import NODES
from webhook.k8s.types.core import Node

# Between two looks at images whose layers are still unknown: fetches fail, and may succeed later.
SWEEP_SECONDS: Final = 30.0
# Images that are looked up without a turn for other tasks.
_TURN: Final = 200


class NodeLayers:
    """Fills an index of layers from the watch of nodes of `webhook.cluster.live.LiveCluster`.

    Args:
        registries: the registries whose images are of interest.

    Attributes:
        resource: nodes with their images.
        index: the layers on nodes.
        own: the addresses of nodes and pods.
        cut: nodes that probably have more images than they list.
    """

    def __init__(self, registries: Collection[str]) -> None:
        self._registries: Final = registries
        # By digest: how many nodes list each reference to it. The first one is asked for it.
        self._references: Final[dict[str, dict[ImageReference, int]]] = {}
        self._listed: Final[dict[str, tuple[ImageReference, ...]]] = {}
        self._waiting: Final[dict[str, set[PlatformImage]]] = {}
        self._images: Images | None = None
        self.resource: Final = NODES.decoded_as(Node)
        self.index: Final = LayerIndex()
        self.own: Final = OwnAddresses()
        self.cut: Final[set[str]] = set()

    def use(self, images: Images) -> None:
        """Take layers from these images; call it before the watch begins."""
        self._images = images

    def reduce(self, node: Node) -> NodeImages:
        """What is kept of a node."""
        return images_of(node, self._registries)

    def put(self, name: str, node: NodeImages) -> None:
        """A node is there, or what is kept of it has changed."""
        self.own.put(name, node.addresses)
        (self.cut.add if node.is_cut else self.cut.discard)(name)
        self._refer(name, node.references)
        digests = dict.fromkeys(reference.digest for reference in node.references)
        for image in self.index.put(name, node.platform, digests.keys()):
            self._learn(image)

    def remove(self, name: str) -> None:
        """A node is gone."""
        self.index.remove(name)
        self._refer(name, ())
        self.own.remove(name)
        self.cut.discard(name)

    def on_manifest(self, digest: str) -> None:
        """A manifest or an index has become known, perhaps one that images on nodes were waiting for."""
        for image in self._waiting.pop(digest, ()):
            if self.index.is_on_nodes(image):
                self._learn(image)

    async def run(self) -> None:
        """Ask again for layers that are still unknown, until cancelled."""
        while True:
            await asyncio.sleep(SWEEP_SECONDS)
            await self.sweep()

    async def sweep(self) -> None:
        """Ask once more for all layers that are unknown, by another reference to each image if there is one."""
        waiting = [image for images in self._waiting.values() for image in images]
        self._waiting.clear()
        for digest in {image.digest for image in waiting}:
            if references := self._references.get(digest):
                # Nodes have pulled it from one of them; the first may be of a registry that has gone, or that refuses.
                first = next(iter(references))
                references[first] = references.pop(first)
        for number, image in enumerate(waiting, 1):
            if self.index.is_on_nodes(image):
                self._learn(image)
            if number % _TURN == 0:
                # Reviews want their turn, too.
                await asyncio.sleep(0)

    def _refer(self, name: str, references: tuple[ImageReference, ...]) -> None:
        """Count the references that a node lists in the place of those that it listed before."""
        for reference in references:
            counts = self._references.setdefault(reference.digest, {})
            counts[reference] = counts.get(reference, 0) + 1
        for reference in self._listed.pop(name, ()):
            counts = self._references[reference.digest]
            counts[reference] -= 1
            if not counts[reference]:
                del counts[reference]
            if not counts:
                del self._references[reference.digest]
        if references:
            self._listed[name] = references

    def _learn(self, image: PlatformImage) -> None:
        references = self._references.get(image.digest)
        if self._images is None or not references:
            return
        layers = self._images.layers(next(iter(references)), image.platform)
        if layers is not None:
            self.index.learn(image, layers)
        else:
            self._waiting.setdefault(self._images.lacking(image.digest, image.platform), set()).add(image)
