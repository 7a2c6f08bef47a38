"""What an installation still waits for, and what to do if it waits in vain."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any, Final, TypeVar

import msgspec

from webhook.errors import Unavailable
from webhook.install.plan import path, title
from webhook.install.registration import AGAIN, Manifest, uncallable
from webhook.k8s.client.api import UNDECODABLE, ApiConnectionError, NoAnswerInTimeError, Requests
from webhook.k8s.paths import object_path
from webhook.k8s.types.core import ContainerState, Pod
from webhook.k8s.types.meta import Condition, View, decode_status
from webhook.text import pluralize, shorten, shorten_middle

# Where the API server gives no answer to the first question of a run.
CHECK_SERVER: Final = "check the server in the kubeconfig and its CA, and run the command again once it answers"
_MESSAGE_CHARACTERS: Final = 300
# The conditions of a Namespace by which its deletion is explained.
_REMAINING: Final = (
    *("NamespaceFinalizersRemaining", "NamespaceContentRemaining"),
    *("NamespaceDeletionContentFailure", "NamespaceDeletionDiscoveryFailure"),
)


class Shortage(msgspec.Struct, frozen=True):
    """One thing that is missing.

    Attributes:
        failed: waiting longer does not help.
        late: the Deployment controller has given up; the rollout goes on if the cause is repaired.
    """

    what: str
    fix: str
    failed: bool = False
    late: bool = False


def replica_shortage(manifest: Manifest, live: Manifest | None, problem: StartProblem | None) -> Shortage | None:
    """What a Deployment's roll-out lacks; None: all replicas are new and ready."""
    name = title(manifest)
    if live is None:
        return Shortage(f"{name} does not exist", AGAIN)
    status = live.get("status") or {}
    look = f"kubectl -n {manifest['metadata']['namespace']} describe deployment {manifest['metadata']['name']}"
    if status.get("observedGeneration", 0) < live.get("metadata", {}).get("generation", 0):
        what = f"{name}: the rollout has not started"
        return Shortage(what, f'check the kube-controller-manager with "{look}", and {AGAIN}')
    replicas = live.get("spec", {}).get("replicas", 0)
    counts = [status.get(key, 0) for key in ("replicas", "updatedReplicas", "availableReplicas")]
    if counts == [replicas] * 3:
        return None
    ready = f"{counts[2]}/{replicas} replicas are ready"
    what = f"{name}: {ready}, {counts[1]}/{replicas} are updated, {counts[0]} exist"
    conditions = msgspec.convert(status.get("conditions") or (), tuple[Condition, ...])
    denied, command = denied_pods(conditions), look
    if problem:
        what, command = f"{what}; {problem.text}", problem.command
    elif denied:
        what = f"{what}; {denied}"
    meanwhile = "; the replicas that are ready serve requests meanwhile" if status.get("availableReplicas") else ""
    late = any(condition.reason == "ProgressDeadlineExceeded" for condition in conditions)
    fix = f'"{command}" shows more; repair the cause, and {AGAIN}{meanwhile}'
    return Shortage(what, fix, failed=bool(problem and problem.final), late=late)


def caller_shortage(manifest: Manifest, live: Manifest | None) -> Shortage | None:
    """The entries of a webhook configuration without caBundle; None: all have one."""
    missing = uncallable(manifest, live)
    if not missing:
        return None
    what = f"{title(manifest)}: {pluralize(len(missing), 'entry', 'entries')} without caBundle, first {missing[0]}"
    return Shortage(what, f"check the log of the pods for why they do not write it, and {AGAIN}")


def deletion_shortage(manifest: Manifest, live: Manifest | None) -> Shortage | None:
    """Why an object still exists after its deletion; None: it does not exist."""
    if live is None:
        return None
    conditions = (live.get("status") or {}).get("conditions") or ()
    left = [one.get("message", "") for one in conditions if one.get("type") in _REMAINING and one["status"] == "True"]
    finalizers = live.get("metadata", {}).get("finalizers") or ()
    held = f"finalizers {_short(', '.join(finalizers))}" if finalizers else ""
    why = "; ".join(filter(None, (_short("; ".join(filter(None, left))), held)))
    what = f"{title(manifest)} is still being deleted" + (f": {why}" if why else "")
    return Shortage(what, f'"{_command(manifest)}" shows what it waits for; {AGAIN}')


def describe_termination(namespace: Manifest) -> tuple[str, str]:
    """What is wrong with an installation into a namespace that is being deleted, and what to do."""
    what = "the namespace is being deleted, so nothing can be created in it"
    return what, f'wait until it is gone, and run the command again; "{_command(namespace)}" shows what it waits for'


def _command(manifest: Manifest) -> str:
    metadata = manifest["metadata"]
    scope = f"-n {metadata['namespace']} " if "namespace" in metadata else ""
    return f"kubectl {scope}get {manifest['kind'].lower()} {metadata['name']} -o yaml"


def _short(text: str) -> str:
    return shorten(" ".join(text.split()), _MESSAGE_CHARACTERS)


_SECONDS: Final = 30.0
# Pods of the Deployment, and Events of one of them, that are looked at.
_MOST: Final = "100"
_T = TypeVar("_T")


class _List(msgspec.Struct):
    items: list[Any] | None = None


async def start_problem(api: Requests, manifest: Manifest) -> StartProblem | None:
    """Why a Deployment's pods do not start; None: they have, or it is unknown."""
    namespace, labels = manifest["metadata"]["namespace"], manifest["spec"]["selector"]["matchLabels"]
    selector = ",".join(f"{key}={value}" for key, value in labels.items())
    problem = worst_problem(await _read(api, "Pod", namespace, {"labelSelector": selector}, Pod))
    if problem is None:
        return None
    about = {"fieldSelector": f"involvedObject.kind=Pod,involvedObject.name={problem.pod},type=Warning"}
    return explain_by_events(problem, await _read(api, "Event", namespace, about, PodWarning))


async def _read(api: Requests, kind: str, namespace: str, query: dict[str, str], view: type[_T]) -> list[_T]:
    where = {"apiVersion": "v1", "kind": kind, "metadata": {"namespace": namespace, "name": ""}}
    try:
        limited = {**query, "limit": _MOST}
        status, body = await api.request("GET", path(where, collection=True), limited, seconds=_SECONDS)
        items = (msgspec.json.decode(body, type=_List).items or []) if status == 200 else []
        return msgspec.convert(items, list[view])  # type: ignore[valid-type]
    except (ApiConnectionError, *UNDECODABLE):
        return []


# In seconds. The API server itself waits 30 s for a new connection, and then gives the cause.
PATIENCE: Final = 45.0
# A NetworkPolicy that has just changed takes a moment to count.
PAUSE: Final = 3.0
REMEDY: Final = (
    'run "kubevirt-webhook install --callers auto", and look for other NetworkPolicies and for firewalls between the '
    "API servers and the nodes"
)


class Unproxied(Unavailable, frozen=True):
    """The API server's proxy for Services fails otherwise than by a connection, of which nothing is known then."""


async def why_unreachable(api: Requests, namespace: str, name: str) -> str | Unavailable:
    """Why the API server has no connection to a replica of a Service, as a clause; empty: it has one.

    The API server itself sends a request to one of the replicas, by its proxy for Services. If the connection is
    rejected at first, it sends another one. `Unavailable`: that is not to be known, for example for lack of permission.
    """
    path = object_path("v1", "services", namespace, f"https:{name}:webhooks") + "/proxy/healthz"
    clock = asyncio.get_running_loop().time
    begin = clock()
    why = await _try(api, path)
    # Not after a time limit: that was long enough.
    if why and not isinstance(why, Unavailable) and clock() - begin < PAUSE:
        await asyncio.sleep(PAUSE)
        why = await _try(api, path)
    return why


async def _try(api: Requests, path: str) -> str | Unavailable:
    try:
        status, body = await api.request("GET", path, seconds=PATIENCE)
    except NoAnswerInTimeError:
        # Over a connection that the API server had already: it does not notice that nothing comes back.
        return f"no answer came within {PATIENCE:g} s"
    except ApiConnectionError as error:
        return Unavailable(error.why)
    answer = decode_status(body)
    if (not answer.reason and status < 500) or "remote error: tls" in answer.text:
        # The replica's own answer, or a TLS alert by a replica that asks for a client certificate.
        return ""
    if "dial tcp" in answer.text:
        return answer.text
    return Unproxied(f"status {status}") if status >= 500 else Unavailable(f"status {status}")


# Waiting reasons of a container whose start has not failed.
_STARTING: Final = ("ContainerCreating", "PodInitializing")
# Waiting reasons that no retry of the kubelet mends.
_FINAL: Final = ("InvalidImageName", "ErrImageNeverPull")
# Why a container ended that has not run: it has no log.
_NEVER_RAN: Final = ("StartError", "ContainerCannotRun")
# An Event from before the pod had a node.
_UNSCHEDULED: Final = "FailedScheduling"


class PodWarning(View, frozen=True):
    """An Event (core/v1) of type Warning about a pod."""

    reason: str | None = None
    message: str | None = None
    last_timestamp: str | None = None


class StartProblem(msgspec.Struct, frozen=True):
    """Why a pod is not ready, in the words of the scheduler or kubelet, and the kubectl command that shows more.

    Attributes:
        failed: the start has failed at least once; False: it may only need more time.
        final: no retry mends it.
    """

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
    """The problem of a Deployment's pods: a failed start before a slow one, newest pods first; None: none has any."""
    newest_first = sorted(pods, key=lambda pod: pod.meta.creation_timestamp or "", reverse=True)
    problems = [problem for pod in newest_first if (problem := _problem(pod))]
    return min(problems, key=lambda problem: (not problem.final, not problem.failed), default=None)


def explain_by_events(problem: StartProblem, warnings: Iterable[PodWarning]) -> StartProblem:
    """A problem with what its pod's Events say where no container has a reason yet: a missing Secret, or no network."""
    failures = [one for one in warnings if (one.reason or "").startswith("Failed") and one.reason != _UNSCHEDULED]
    if problem.failed or problem.reason not in _STARTING or not failures:
        return problem
    last = max(failures, key=lambda one: one.last_timestamp or "")
    message = _shorten_message(f"{last.reason}: {last.message or ''}")
    return msgspec.structs.replace(problem, message=message, failed=True)


def denied_pods(conditions: Iterable[Condition]) -> str:
    """Why pods of a Deployment cannot be created, such as a quota, as ``REASON: MESSAGE``; empty: they can."""
    failures = (one for one in conditions if one.type == "ReplicaFailure" and one.status == "True")
    return "; ".join(f"{one.reason or ''}: {_shorten_message(one.message)}" for one in failures)


def _problem(pod: Pod) -> StartProblem | None:
    status = pod.status
    if pod.meta.deletion_timestamp or status.phase in ("Succeeded", "Failed"):
        return None
    conditions = {condition.type: condition for condition in status.conditions or ()}
    scheduled, ready = conditions.get("PodScheduled"), conditions.get("Ready")
    if scheduled and scheduled.status == "False":
        return _describe_problem(pod, scheduled.reason, scheduled.message, failed=True)
    if ready and ready.status == "True":
        return None
    containers = status.container_statuses or ()
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
    command = f"kubectl -n {namespace} " + (f"logs {name} {log}" if log else f"describe pod {name}")
    text = _shorten_message(message)
    return StartProblem(name, reason or "", text, failed=failed, final=reason in _FINAL, command=command)


def _shorten_message(message: str | None) -> str:
    return shorten_middle(" ".join((message or "").split()).rstrip("."), _MESSAGE_CHARACTERS)
