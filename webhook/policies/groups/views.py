"""VMs and launcher pods, as the groups policy reads them."""

from __future__ import annotations

from typing import Any

import msgspec

from webhook.k8s.types.meta import Object, ObjectMeta, View
from webhook.k8s.types.scheduling import PREFERRED, REQUIRED
from webhook.placement.groups import GROUP_LABEL


class _Template(View, frozen=True):
    metadata: ObjectMeta | None = None


class _VmSpec(View, frozen=True):
    template: _Template | None = None


class GroupedVm(Object, frozen=True):
    """A VirtualMachine, as far as it says which group it is in."""

    spec: _VmSpec | None = None

    @property
    def group(self) -> str | None:
        """The group that its template names; None: none."""
        metadata = self.spec.template.metadata if self.spec and self.spec.template else None
        return metadata.label(GROUP_LABEL) if metadata else None


class RequiredTerms(View, frozen=True):
    """Required node affinity."""

    node_selector_terms: list[dict[str, Any]] | None = None


class GroupedNodeAffinity(View, frozen=True):
    """``nodeAffinity`` of a launcher pod."""

    required: RequiredTerms | None = msgspec.field(default=None, name=REQUIRED)
    preferred: list[dict[str, Any]] | None = msgspec.field(default=None, name=PREFERRED)


class GroupedPodAffinity(View, frozen=True):
    """``podAffinity`` or ``podAntiAffinity`` of a launcher pod."""

    required: list[dict[str, Any]] | None = msgspec.field(default=None, name=REQUIRED)
    preferred: list[dict[str, Any]] | None = msgspec.field(default=None, name=PREFERRED)


class GroupedAffinity(View, frozen=True):
    """``spec.affinity`` of a launcher pod."""

    node_affinity: GroupedNodeAffinity | None = None
    pod_affinity: GroupedPodAffinity | None = None
    pod_anti_affinity: GroupedPodAffinity | None = None


class GroupedPodSpec(View, frozen=True):
    """``spec`` of a launcher pod, whose affinity stays plain JSON: it is written back as it was."""

    node_name: str | None = None
    affinity: GroupedAffinity | None = None


class GroupedPod(Object, frozen=True):
    """A launcher pod."""

    spec: GroupedPodSpec | None = None
