"""The images in Kubernetes' objects: which ones a node lists, and which ones a pod needs.

The kubelet lists the largest images first, and 50 at most unless ``nodeStatusMaxImages`` says otherwise. A node whose
runtime reports the rest itself does so in an annotation.

A pod arrives as kube-scheduler sends it to a scheduler extender. These types are ``ExtenderArgs`` and
``HostPriorityList`` of ``k8s.io/kube-scheduler/extender/v1``, whose keys are the names of Go's fields.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Collection, Iterator
from functools import lru_cache
from itertools import chain, islice
from typing import Final

import msgspec

from webhook import names
from webhook.images.manifests import MAX_CHARACTERS, ImageReference, parse_reference
from webhook.k8s.types.core import LocalObjectReference, Node, NodeStatus, NodeSystemInfo
from webhook.k8s.types.meta import Object, View

# nodeStatusMaxImages of a kubelet that does not say anything else.
KUBELET_LIMIT: Final = 50
# Of one node; with nodeStatusMaxImages: -1 it may list any number.
MAX_NODE_IMAGES: Final = 2000
IMAGES_ANNOTATION: Final = f"{names.DOMAIN}/images"


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


def images_of(node: Node, registries: Collection[str]) -> NodeImages:
    """What is kept of a node, with the references that have a digest to its images, those of its annotation first."""
    prefixes, annotation = tuple(f"{registry}/" for registry in registries), node.meta.annotation(IMAGES_ANNOTATION)
    listed = chain((annotation or "").split(), *(image.names or () for image in node.images))
    # Most names are of other registries, or tags.
    likely = (name for name in listed if name.startswith(prefixes) and "@" in name and len(name) <= MAX_CHARACTERS)
    references = islice(filter(None, map(_parse, likely)), MAX_NODE_IMAGES)
    status = node.status or NodeStatus()
    info = status.node_info or NodeSystemInfo()
    platform = f"{info.operating_system or 'linux'}/{info.architecture or 'amd64'}"
    addresses = [address.address for address in status.addresses or () if address.address]
    ranges = (node.spec.pod_cidrs if node.spec else None) or ()
    is_cut = len(status.images or ()) == KUBELET_LIMIT and not annotation
    return NodeImages(sys.intern(platform), tuple(references), (*addresses, *ranges), is_cut)


# Nodes list the same images.
@lru_cache(maxsize=16_384)
def _parse(name: str) -> ImageReference | None:
    reference = parse_reference(name)
    return reference if reference and reference.digest else None


# A launcher pod has a container for each containerDisk, and a few of its own.
MAX_POD_IMAGES: Final = 64
MAX_PULL_SECRETS: Final = 8
# The name of a Secret: a DNS subdomain.
_is_name: Final = re.compile("[a-z0-9][-.a-z0-9]{0,252}").fullmatch


class ContainerWithImage(View, frozen=True):
    """One of the containers of a pod."""

    name: str | None = None
    image: str | None = None


class ImageVolumeSource(View, frozen=True):
    """``image`` of a volume (core/v1 ImageVolumeSource): KubeVirt mounts containerDisks so with ImageVolume."""

    reference: str | None = None


class ImageVolume(View, frozen=True):
    """One of the volumes of a pod."""

    image: ImageVolumeSource | None = None


class ScoredPodSpec(View, frozen=True):
    """``spec`` of a pod that is to be placed."""

    scheduler_name: str | None = None
    containers: list[ContainerWithImage] | None = None
    init_containers: list[ContainerWithImage] | None = None
    volumes: list[ImageVolume] | None = None
    image_pull_secrets: list[LocalObjectReference] | None = None
    node_selector: dict[str, str] | None = None


class ScoredPod(Object, frozen=True):
    """A pod that is to be placed."""

    spec: ScoredPodSpec | None = None

    @property
    def scheduler_name(self) -> str:
        """The scheduler, or its profile, that places the pod."""
        return (self.spec.scheduler_name if self.spec else None) or ""

    @property
    def architecture(self) -> str:
        """The architecture of the nodes that the pod selects; empty: any. KubeVirt selects that of the VM."""
        selector = (self.spec.node_selector if self.spec else None) or {}
        return selector.get("kubernetes.io/arch", "")

    @property
    def pull_secrets(self) -> tuple[str, ...]:
        """The names of the pod's pull secrets, those that its service account brought among them."""
        secrets = (self.spec.image_pull_secrets if self.spec else None) or []
        # The API server takes any name here, also one of a megabyte, which no Secret has.
        return tuple(secret.name for secret in secrets if secret.name and _is_name(secret.name))[:MAX_PULL_SECRETS]

    def images(self) -> list[str]:
        """The references of the images that a node may have to pull, each once.

        The image of virt-launcher is left out: every node that runs VMs has it.
        """
        spec = self.spec or ScoredPodSpec()
        containers, is_launcher = spec.containers or (), self.meta.label("kubevirt.io") == "virt-launcher"
        launcher = next((each.image for each in containers if is_launcher and each.name == "compute"), None)
        references = [each.image for each in (*containers, *(spec.init_containers or ()))]
        references += [each.image.reference for each in spec.volumes or () if each.image]
        return list(dict.fromkeys(image for image in references if image and image != launcher))[:MAX_POD_IMAGES]


class NodeNames:
    """The names of nodes as they were sent, which are decoded only when they are iterated.

    Args:
        text: a list as JSON.
    """

    def __init__(self, text: bytes) -> None:
        self._text: Final = text

    def __len__(self) -> int:
        """How many there are: names of nodes have no commas. Of an empty list it is 1."""
        return self._text.count(b",") + 1

    def __iter__(self) -> Iterator[str]:
        """The names; a `msgspec.DecodeError` where it is another list."""
        return iter(_decode_names(self._text))


class ExtenderArguments(msgspec.Struct, rename={"pod": "Pod", "sent": "NodeNames"}, gc=False):
    """A request to prioritize nodes; ``sent`` is ``NodeNames`` as it was sent."""

    pod: ScoredPod
    sent: msgspec.Raw = msgspec.Raw(b"null")

    @property
    def node_names(self) -> NodeNames | None:
        """The names of nodes that fit; None where kube-scheduler sends whole nodes, as without ``nodeCacheCapable``."""
        text = bytes(self.sent)
        return NodeNames(text) if text.startswith(b"[") else None


decode_arguments: Final = msgspec.json.Decoder(ExtenderArguments).decode
_decode_names: Final = msgspec.json.Decoder(list[str]).decode
