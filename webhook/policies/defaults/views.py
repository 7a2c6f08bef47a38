"""VMIs and launcher pods, as the defaults policy reads them."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from webhook import names
from webhook.k8s.types.meta import Object, View
from webhook.k8s.types.scheduling import PREFERRED, REQUIRED
from webhook.names import OFF

# On a VM's template, from where KubeVirt copies it: its owner wants none of the defaults.
OPT_OUT = names.policy_label("defaults")


# virt-controller writes it into the VMI that another cluster's guest is received by (runStrategy WaitAsReceiver).
_RECEIVED: Final = "kubevirt.io/create-migration-target"


class Cpu(View, frozen=True):
    """``spec.domain.cpu`` of a VMI."""

    model: str | None = None


class Domain(View, frozen=True):
    """``spec.domain`` of a VMI."""

    cpu: Cpu | None = None


class DefaultedVmiSpec(View, frozen=True):
    """``spec`` of a VMI."""

    priority_class_name: str | None = None
    eviction_strategy: str | None = None
    termination_grace_period_seconds: int | None = None
    architecture: str | None = None
    domain: Domain | None = None


class DefaultedVmi(Object, frozen=True):
    """A VirtualMachineInstance."""

    spec: DefaultedVmiSpec | None = None

    @property
    def is_received(self) -> bool:
        """Whether its guest runs already, in another cluster from which it is migrated."""
        return self.meta.annotation(_RECEIVED) == "true"


class RequiredTerms(View, frozen=True):
    """Required node affinity."""

    node_selector_terms: list[dict[str, Any]] | None = None


class PodNodeAffinity(View, frozen=True):
    """``spec.affinity.nodeAffinity`` of a launcher pod."""

    required: RequiredTerms | None = msgspec.field(default=None, name=REQUIRED)
    preferred: list[dict[str, Any]] | None = msgspec.field(default=None, name=PREFERRED)


class PodAffinity(View, frozen=True):
    """``spec.affinity`` of a launcher pod."""

    node_affinity: PodNodeAffinity | None = None


class DefaultedPodSpec(View, frozen=True):
    """``spec`` of a launcher pod, whose placement stays plain JSON: it is written back as it was."""

    node_name: str | None = None
    node_selector: dict[str, Any] | None = None
    affinity: PodAffinity | None = None
    tolerations: list[dict[str, Any]] | None = None


class DefaultedPod(Object, frozen=True):
    """A launcher pod."""

    spec: DefaultedPodSpec | None = None


def has_opted_out(whole: Object) -> bool:
    """Whether the owner declines all defaults, by a label or an annotation named as the namespace's label."""
    return OFF in (whole.meta.label(OPT_OUT), whole.meta.annotation(OPT_OUT))
