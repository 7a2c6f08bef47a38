"""Pods and PodDisruptionBudgets as far as they decide over where other pods may go, and whether they may be evicted.

Every field may be absent or null, as in `webhook.k8s.views`.
"""

from __future__ import annotations

from typing import Final

from webhook.k8s.client.resources import Resource
from webhook.k8s.views import Object, View
from webhook.placement.launcher_pods import LauncherPod, LauncherPodSpec


class LabelExpression(View, frozen=True):
    """One of the ``matchExpressions`` of a label selector (metav1.LabelSelectorRequirement)."""

    key: str | None = None
    operator: str | None = None
    values: list[str] | None = None


class LabelSelector(View, frozen=True):
    """A label selector (metav1.LabelSelector)."""

    match_labels: dict[str, str] | None = None
    match_expressions: list[LabelExpression | None] | None = None


class PodTerm(View, frozen=True):
    """A required term of pod affinity or anti-affinity (core/v1 PodAffinityTerm)."""

    topology_key: str | None = None
    label_selector: LabelSelector | None = None
    namespaces: list[str] | None = None
    namespace_selector: LabelSelector | None = None
    match_label_keys: list[str] | None = None
    mismatch_label_keys: list[str] | None = None


class SpreadTerm(View, frozen=True):
    """One of the topology spread constraints of a pod (core/v1 TopologySpreadConstraint)."""

    topology_key: str | None = None
    max_skew: int | None = None
    when_unsatisfiable: str | None = None
    label_selector: LabelSelector | None = None
    min_domains: int | None = None
    node_affinity_policy: str | None = None
    node_taints_policy: str | None = None
    match_label_keys: list[str] | None = None


class RunningPodSpec(LauncherPodSpec, frozen=True):
    """``spec`` of any pod, as kube-scheduler's filters read it."""

    topology_spread_constraints: list[SpreadTerm | None] | None = None


class ConstrainedPod(LauncherPod, frozen=True):
    """Any Pod (core/v1): what it requests, and what it requires of pods beside it."""

    spec: RunningPodSpec | None = None


class BudgetSpec(View, frozen=True):
    """``spec`` of a PodDisruptionBudget."""

    selector: LabelSelector | None = None


class BudgetStatus(View, frozen=True):
    """``status`` of a PodDisruptionBudget."""

    disruptions_allowed: int | None = None


class PodDisruptionBudget(Object, frozen=True):
    """A PodDisruptionBudget (policy/v1)."""

    spec: BudgetSpec | None = None
    status: BudgetStatus | None = None

    @property
    def allowed(self) -> int:
        """How many of its pods may be evicted now; none until its controller has written a number."""
        return (self.status.disruptions_allowed if self.status else None) or 0


RUNNING_PODS: Final = Resource("", "v1", "pods", "Pod", True, ConstrainedPod)
BUDGETS: Final = Resource("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget", True, PodDisruptionBudget)
