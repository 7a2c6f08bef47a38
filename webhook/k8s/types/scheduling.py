"""What places pods (core/v1): affinity, taints and tolerations, and topology spread constraints."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from webhook.k8s.types.meta import View
from webhook.k8s.types.selectors import LabelSelector, NodeSelector

EQUAL: Final = "Equal"
EXISTS: Final = "Exists"
# The JSON names of terms of affinity: those that a pod cannot do without, and the others.
REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED: Final = "preferredDuringSchedulingIgnoredDuringExecution"


class NodeAffinity(View, frozen=True):
    """``nodeAffinity`` of a Pod or a VMI (core/v1 NodeAffinity); preferred terms stay as they are."""

    required: NodeSelector | None = msgspec.field(default=None, name=REQUIRED)
    preferred: list[Any] | None = msgspec.field(default=None, name=PREFERRED)


class PodAffinityTerm(View, frozen=True):
    """A required term of pod affinity or anti-affinity (core/v1)."""

    topology_key: str | None = None
    label_selector: LabelSelector | None = None
    namespaces: list[str] | None = None
    namespace_selector: LabelSelector | None = None
    match_label_keys: list[str] | None = None
    mismatch_label_keys: list[str] | None = None


class PodAffinity(View, frozen=True):
    """``podAffinity`` or ``podAntiAffinity`` of a Pod or a VMI (core/v1), whose terms depend on other pods."""

    required: list[Any] | None = msgspec.field(default=None, name=REQUIRED)
    preferred: list[Any] | None = msgspec.field(default=None, name=PREFERRED)


class Affinity(View, frozen=True):
    """``spec.affinity`` of a Pod or a VMI (core/v1 Affinity)."""

    node_affinity: NodeAffinity | None = None
    pod_affinity: PodAffinity | None = None
    pod_anti_affinity: PodAffinity | None = None


class Taint(View, frozen=True, order=True):
    """A taint that keeps pods away from a node (core/v1)."""

    key: str | None = None
    value: str | None = None
    effect: str | None = None

    def __str__(self) -> str:
        return f"{self.key}={self.value}:{self.effect}" if self.value else f"{self.key}:{self.effect}"


class Toleration(View, frozen=True):
    """One of the ``spec.tolerations`` of a Pod or a VMI (core/v1)."""

    key: str | None = None
    operator: str | None = None
    value: str | None = None
    effect: str | None = None


class TopologySpreadConstraint(View, frozen=True):
    """A topology spread constraint (core/v1), with all fields: whether it is the injected one depends on each."""

    max_skew: int | None = None
    topology_key: str | None = None
    when_unsatisfiable: str | None = None
    label_selector: LabelSelector | None = None
    min_domains: int | None = None
    node_affinity_policy: str | None = None
    node_taints_policy: str | None = None
    match_label_keys: list[str] | None = None


class Placed(View, frozen=True):
    """What the specs of pods and of VMIs have in common."""

    node_selector: dict[str, str] | None = None
    affinity: Affinity | None = None
    tolerations: list[Toleration | None] | None = None

    @property
    def required_affinity(self) -> NodeSelector | None:
        """The required node affinity; None where there is none."""
        node = self.affinity.node_affinity if self.affinity else None
        return node.required if node else None
