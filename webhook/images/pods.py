"""What kube-scheduler sends to a scheduler extender, as far as the score depends on it.

The types are ``ExtenderArgs`` and ``HostPriorityList`` of ``k8s.io/kube-scheduler/extender/v1``, whose keys are the
names of Go's fields.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

import msgspec

from webhook.k8s.views import Object, View

# A launcher pod has a container for each containerDisk, and a few of its own.
MAX_IMAGES: Final = 64
MAX_PULL_SECRETS: Final = 8
_LAUNCHER_CONTAINER: Final = "compute"
_LAUNCHER_LABEL: Final = "kubevirt.io"
_ARCHITECTURE: Final = "kubernetes.io/arch"
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


class PullSecret(View, frozen=True):
    """One of the ``imagePullSecrets`` of a pod."""

    name: str | None = None


class ScoredPodSpec(View, frozen=True):
    """``spec`` of a pod that is to be placed."""

    scheduler_name: str | None = None
    containers: list[ContainerWithImage] | None = None
    init_containers: list[ContainerWithImage] | None = None
    volumes: list[ImageVolume] | None = None
    image_pull_secrets: list[PullSecret] | None = None
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
        return selector.get(_ARCHITECTURE, "")

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
        launcher = self._launcher_image()
        found = dict.fromkeys(image for image in self._references() if image and image != launcher)
        return list(found)[:MAX_IMAGES]

    def _references(self) -> Iterator[str | None]:
        spec = self.spec or _NO_SPEC
        for container in (*(spec.containers or ()), *(spec.init_containers or ())):
            yield container.image
        for volume in spec.volumes or ():
            yield volume.image.reference if volume.image else None

    def _launcher_image(self) -> str | None:
        if self.meta.label(_LAUNCHER_LABEL) != "virt-launcher":
            return None
        containers = (self.spec.containers if self.spec else None) or []
        return next((container.image for container in containers if container.name == _LAUNCHER_CONTAINER), None)


_NO_SPEC: Final = ScoredPodSpec()


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
        """The names.

        Raises:
            msgspec.DecodeError: it is another list.
        """
        return iter(_decode_names(self._text))


class ExtenderArguments(msgspec.Struct, rename={"pod": "Pod", "sent": "NodeNames"}, gc=False):
    """A request to prioritize nodes.

    Attributes:
        pod: the pod.
        sent: ``NodeNames`` as it was sent.
    """

    pod: ScoredPod
    sent: msgspec.Raw = msgspec.Raw(b"null")

    @property
    def node_names(self) -> NodeNames | None:
        """The names of nodes that fit; None where kube-scheduler sends whole nodes, as without ``nodeCacheCapable``."""
        text = bytes(self.sent)
        return NodeNames(text) if text.startswith(b"[") else None


decode_arguments: Final = msgspec.json.Decoder(ExtenderArguments).decode
_decode_names: Final = msgspec.json.Decoder(list[str]).decode
