"""PersistentVolumes and their claims: where they can be reached from."""

from __future__ import annotations

from typing import Final

from webhook.k8s.client.resources import Resource
from webhook.k8s.views import Object, View
from webhook.placement.affinity import NodeSelector
from webhook.placement.expression import Term


class VolumeAffinity(View, frozen=True):
    """``spec.nodeAffinity`` of a PersistentVolume."""

    required: NodeSelector | None = None


class VolumeSpec(View, frozen=True):
    """``spec`` of a PersistentVolume."""

    node_affinity: VolumeAffinity | None = None


class PersistentVolume(Object, frozen=True):
    """A PersistentVolume (core/v1), by the nodes from which it can be reached."""

    spec: VolumeSpec | None = None

    @property
    def terms(self) -> tuple[Term, ...]:
        """Where it can be reached from; empty: from everywhere."""
        affinity = self.spec.node_affinity if self.spec else None
        return affinity.required.terms() if affinity and affinity.required else ()


class ClaimSpec(View, frozen=True):
    """``spec`` of a PersistentVolumeClaim."""

    volume_name: str | None = None


class Claim(Object, frozen=True):
    """A PersistentVolumeClaim (core/v1), by the volume to which it is bound."""

    spec: ClaimSpec | None = None

    @property
    def volume(self) -> str:
        """The PersistentVolume that it is bound to; empty: none yet."""
        return (self.spec.volume_name if self.spec else None) or ""


CLAIMS: Final = Resource("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim", True, Claim)
VOLUMES: Final = Resource("", "v1", "persistentvolumes", "PersistentVolume", False, PersistentVolume)
