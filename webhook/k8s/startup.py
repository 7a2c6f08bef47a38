"""Why a pod of a Deployment is not ready or cannot be created, in the words of Kubernetes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from webhook.k8s.types.core import ContainerState, ContainerStatus, Pod
from webhook.k8s.views import Condition, View
from webhook.text import shorten_middle

_MESSAGE_CHARACTERS: Final = 300
# Waiting reasons of a container whose start has not failed.
_STARTING: Final = ("ContainerCreating", "PodInitializing")
# Waiting reasons that no retry of the kubelet mends.
_FINAL: Final = ("InvalidImageName", "ErrImageNeverPull")
# Why a container ended that has not run: it has no log.
_NEVER_RAN: Final = ("StartError", "ContainerCannotRun")
# An Event from before the pod had a node.
_UNSCHEDULED: Final = "FailedScheduling"
_OVER: Final = ("Succeeded", "Failed")


class PodWarning(View, frozen=True):
    """An Event (core/v1) of type Warning about a pod.

    Attributes:
        last_timestamp: when it happened last; RFC 3339.
    """

    reason: str | None = None
    message: str | None = None
    last_timestamp: str | None = None


class StartProblem(msgspec.Struct, frozen=True):
    """Why a pod is not ready.

    Attributes:
        namespace: the namespace of the pod.
        pod: the name of the pod.
        reason: the reason of the scheduler or kubelet, for example ``ImagePullBackOff``.
        message: more about it; may be empty.
        failed: the start has failed at least once; False: it may only need more time.
        final: no retry mends it.
        command: the kubectl command that shows more.
    """

    namespace: str
    pod: str
    reason: str
    message: str
    failed: bool
    final: bool
    command: str

    @property
    def text(self) -> str:
        """The problem as a clause: ``Pod NAME: REASON: MESSAGE``."""
        return ": ".join(filter(None, (f"Pod {self.pod}", self.reason, self.message)))


def worst_problem(pods: Iterable[Pod]) -> StartProblem | None:
    """The problem to report of a Deployment's pods: a failed start before a slow one, the newest pod first.

    Args:
        pods: the pods of one Deployment.

    Returns:
        None where every pod is ready, is being deleted, or has ended.
    """
    newest_first = sorted(pods, key=lambda pod: pod.meta.creation_timestamp or "", reverse=True)
    problems = [problem for pod in newest_first if (problem := _problem(pod))]
    return min(problems, key=lambda problem: (not problem.final, not problem.failed), default=None)


def explain_by_events(problem: StartProblem, warnings: Iterable[PodWarning]) -> StartProblem:
    """A problem with what its pod's Events say, where no container has a reason yet: a missing Secret, or no network.

    Args:
        problem: the problem of a pod.
        warnings: the Events about that pod.
    """
    failures = [one for one in warnings if (one.reason or "").startswith("Failed") and one.reason != _UNSCHEDULED]
    if problem.failed or problem.reason not in _STARTING or not failures:
        return problem
    last = max(failures, key=lambda one: one.last_timestamp or "")
    message = _short(f"{last.reason}: {last.message or ''}")
    return msgspec.structs.replace(problem, message=message, failed=True)


def denied_pods(conditions: Iterable[Condition]) -> str:
    """Why pods of a Deployment cannot be created, such as a quota, as ``REASON: MESSAGE``; empty: they can.

    Args:
        conditions: the conditions of the Deployment.
    """
    found = (one for one in conditions if one.type == "ReplicaFailure" and one.status == "True")
    return "; ".join(f"{one.reason or ''}: {_short(one.message)}" for one in found)


def _problem(pod: Pod) -> StartProblem | None:
    status = pod.status
    if pod.meta.deletion_timestamp or status.phase in _OVER:
        return None
    conditions = {condition.type: condition for condition in status.conditions or ()}
    scheduled, ready = conditions.get("PodScheduled"), conditions.get("Ready")
    if scheduled and scheduled.status == "False":
        return _describe_problem(pod, scheduled.reason, scheduled.message, failed=True)
    if ready and ready.status == "True":
        return None
    return _container_problem(pod, status.container_statuses or ())


def _container_problem(pod: Pod, containers: Sequence[ContainerStatus]) -> StartProblem:
    for container in containers:
        state, before = container.state or ContainerState(), container.last_state or ContainerState()
        ended = state.terminated or before.terminated
        if ended:
            reason = state.waiting.reason if state.waiting else ended.reason
            if ended.reason in _NEVER_RAN:
                return _describe_problem(pod, ended.reason, ended.message, failed=True)
            message = f"the container ended with status {ended.exit_code} ({ended.reason})"
            return _describe_problem(pod, reason, message, failed=True, log="--previous")
        if state.waiting and state.waiting.reason not in _STARTING:
            return _describe_problem(pod, state.waiting.reason, state.waiting.message, failed=True)
        if not state.waiting and not container.ready:
            return _describe_problem(pod, "Running", "its readiness probe does not succeed", log="--tail=20")
    return _describe_problem(pod, "ContainerCreating" if containers else "Pending", "")


def _describe_problem(
    pod: Pod, reason: str | None, message: str | None, *, failed: bool = False, log: str = ""
) -> StartProblem:
    namespace, name = pod.meta.namespace or "", pod.meta.name or ""
    verb = f"logs {name} {log}" if log else f"describe pod {name}"
    return StartProblem(
        namespace=namespace,
        pod=name,
        reason=reason or "",
        message=_short(message),
        failed=failed,
        final=reason in _FINAL,
        command=f"kubectl -n {namespace} {verb}",
    )


def _short(message: str | None) -> str:
    return shorten_middle(" ".join((message or "").split()).rstrip("."), _MESSAGE_CHARACTERS)
