"""Pods as the preemption policy reads them: victims, those that wait for their room, and migrations' target pods."""

from __future__ import annotations

from typing import Final

from webhook.k8s.resources import PODS
from webhook.k8s.types.meta import Condition, Object, ObjectMeta, View, unix_time
from webhook.placement.machines import ENDED_PHASES

_TRUE: Final = "True"


class TimedCondition(Condition, frozen=True):
    """A condition with the time of its last change."""

    last_transition_time: str | None = None


class _Spec(View, frozen=True):
    node_name: str | None = None
    priority: int | None = None


class _Status(View, frozen=True):
    phase: str | None = None
    nominated_node_name: str | None = None
    conditions: list[TimedCondition | None] | None = None


class DisruptedPod(Object, frozen=True):
    """A Pod (core/v1), as far as it shows that it is to make room, or waits for some."""

    spec: _Spec | None = None
    status: _Status | None = None

    @property
    def node_name(self) -> str:
        """The node to which it is bound; empty: none yet."""
        return (self.spec.node_name if self.spec else None) or ""

    @property
    def priority(self) -> int:
        """Its priority, by which schedulers compare pods."""
        return (self.spec.priority if self.spec else None) or 0

    @property
    def phase(self) -> str:
        """Its phase; empty: none is written."""
        return (self.status.phase if self.status else None) or ""

    @property
    def is_over(self) -> bool:
        """Whether all of its containers have ended."""
        return self.phase in ENDED_PHASES

    @property
    def nominated_node(self) -> str:
        """The node where a scheduler makes room for it; empty: none."""
        return (self.status.nominated_node_name if self.status else None) or ""

    def disrupted_since(self, reason: str) -> float | None:
        """Since when its condition ``DisruptionTarget`` has this reason, in Unix seconds; None: it has not."""
        condition = self._condition("DisruptionTarget")
        if condition is None or (condition.status, condition.reason) != (_TRUE, reason):
            return None
        return unix_time(condition.last_transition_time)

    @property
    def unschedulable_since(self) -> float | None:
        """Since when no node has room for it, as a scheduler has found, in Unix seconds; None: it has not."""
        condition = self._condition("PodScheduled")
        if condition is None or (condition.status, condition.reason) != ("False", "Unschedulable"):
            return None
        return unix_time(condition.last_transition_time)

    def _condition(self, kind: str) -> TimedCondition | None:
        conditions = (self.status.conditions if self.status else None) or ()
        return next((each for each in conditions if each and each.type == kind), None)


def _reduce(pod: DisruptedPod) -> DisruptedPod | None:
    """What lists keep of pods that have not ended."""
    meta = pod.meta
    kept = ObjectMeta(name=meta.name, namespace=meta.namespace, uid=meta.uid, owner_references=meta.owner_references)
    return None if pod.is_over else DisruptedPod(kept, pod.spec, pod.status)


DISRUPTED_PODS: Final = PODS.decoded_as(DisruptedPod, _reduce)
