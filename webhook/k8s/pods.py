"""Views of pods, and of what is posted to evict them."""

from __future__ import annotations

from typing import Any

from webhook.k8s.types.scheduling import TopologySpreadConstraint
from webhook.k8s.views import Object, View


class PodSpec(View, frozen=True):
    """``spec`` of a Pod, as far as the scheduling policy reads it."""

    scheduler_name: str | None = None
    node_name: str | None = None
    topology_spread_constraints: list[TopologySpreadConstraint] | None = None


class Pod(Object, frozen=True):
    """A Pod (core/v1), as the scheduling policy reads it."""

    spec: PodSpec | None = None


class DeleteOptions(View, frozen=True):
    """``deleteOptions`` of an Eviction (metav1.DeleteOptions)."""

    dry_run: list[str] | None = None


class Eviction(Object, frozen=True):
    """What is posted to ``pods/eviction``; its name is the pod's."""

    delete_options: DeleteOptions | None = None

    @property
    def dry_run(self) -> bool:
        """Whether its own options say that nothing shall happen; the request's may say so instead."""
        return "All" in ((self.delete_options.dry_run if self.delete_options else None) or ())


class NodeAffinityTerms(View, frozen=True):
    """The required node affinity of a pod (core/v1 NodeSelector), its terms as plain JSON."""

    node_selector_terms: list[dict[str, Any]] | None = None


class PodNodeAffinity(View, frozen=True):
    """``spec.affinity.nodeAffinity`` of a Pod; the preferred terms exclude no node and are not read."""

    required_during_scheduling_ignored_during_execution: NodeAffinityTerms | None = None


class TargetPodAffinity(View, frozen=True):
    """``spec.affinity`` of a migration's target pod."""

    node_affinity: PodNodeAffinity | None = None


class TargetPodSpec(View, frozen=True):
    """``spec`` of a migration's target pod, as far as it selects nodes by their labels."""

    node_selector: dict[str, str] | None = None
    affinity: TargetPodAffinity | None = None


class TargetPod(Object, frozen=True):
    """A migration's target pod, with the terms of its required node affinity as plain JSON."""

    spec: TargetPodSpec | None = None

    @property
    def terms(self) -> list[dict[str, Any]] | None:
        """Without any, nothing matches; None: every node does."""
        node = self.spec.affinity.node_affinity if self.spec and self.spec.affinity else None
        required = node.required_during_scheduling_ignored_during_execution if node else None
        return (required.node_selector_terms or []) if required else None


class PodCondition(View, frozen=True):
    """One of the ``status.conditions`` of a Pod, by its type alone."""

    type: str | None = None


class PendingPodStatus(View, frozen=True):
    """``status`` of a Pod that waits for a node: what kube-scheduler has written into it so far."""

    phase: str | None = None
    conditions: list[PodCondition] | None = None
    nominated_node_name: str | None = None


class PodVolume(View, frozen=True):
    """One of the ``spec.volumes`` of a Pod; only whether it is a claim is read, so its source stays plain JSON."""

    persistent_volume_claim: Any = None
    ephemeral: Any = None


class PendingPodSpec(PodSpec, frozen=True):
    """With all that keeps a live scheduler from writing a condition into a pod (kube-scheduler 1.34 to 1.36).

    ``PreEnqueue`` holds pods back for gates, claims and groups: plugins SchedulingGates, DynamicResources,
    GangScheduling, DefaultPreemption. ``PreBind`` waits for the volumes of claims (plugin VolumeBinding).
    """

    scheduling_gates: list[Any] | None = None
    resource_claims: list[Any] | None = None
    scheduling_group: Any = None
    workload_ref: Any = None
    volumes: list[PodVolume] | None = None

    @property
    def is_gated(self) -> bool:
        """Whether a scheduler may leave the pod aside for as long as anything else lasts."""
        held = (self.scheduling_gates, self.resource_claims, self.scheduling_group, self.workload_ref)
        return any(each not in (None, []) for each in held)

    @property
    def has_claims(self) -> bool:
        """Whether a scheduler may wait for volumes before it binds the pod."""
        return any((volume.persistent_volume_claim, volume.ephemeral) != (None, None) for volume in self.volumes or ())


class PendingPod(Object, frozen=True):
    """A pod as the scheduler's health check watches it."""

    spec: PendingPodSpec | None = None
    status: PendingPodStatus | None = None

    @property
    def has_scheduled_condition(self) -> bool:
        """Whether a scheduler, or the API server for a gated pod, has written a ``PodScheduled`` condition."""
        status = self.status
        if status is None:
            return False
        return bool(status.nominated_node_name) or any(
            condition.type == "PodScheduled" for condition in status.conditions or ()
        )

    @property
    def is_unnoticed(self) -> bool:
        """Whether the pod waits for a scheduler that has not looked at it.

        A scheduler passes over a pod that is being deleted; one with a node needs none.
        """
        return not (self.has_scheduled_condition or self.meta.deletion_timestamp or (self.spec and self.spec.node_name))
