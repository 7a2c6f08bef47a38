from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tests.install.memory import Json, planned
from webhook.install import shortage
from webhook.install.shortage import PodWarning, explain_by_events, worst_problem
from webhook.k8s.types.core import Pod
from webhook.k8s.types.meta import Condition


def live(counts: tuple[int, int, int] = (3, 1, 2), **more: Any) -> Json:
    status = dict(zip(("replicas", "updatedReplicas", "availableReplicas"), counts, strict=True))
    return {
        "metadata": {"generation": 2},
        "spec": {"replicas": 2},
        "status": {"observedGeneration": 2, **status, **more},
    }


def condition(kind: str, status: str, reason: str, message: str = "") -> Json:
    return {"conditions": [{"type": kind, "status": status, "reason": reason, "message": message}]}


DENIED = 'pods "kubevirt-webhook-" is forbidden: violates PodSecurity'
REPLICA_FAILURE = condition("ReplicaFailure", "True", "FailedCreate", DENIED)
FEW = "2/2 replicas are ready"


@pytest.mark.parametrize(
    ("found", "what", "late"),
    [
        (live((2, 2, 2)), None, False),
        # Others have scaled it down.
        ({**live((0, 0, 0)), "spec": {"replicas": 0}}, None, False),
        (None, "does not exist", False),
        # Counts of an older generation say nothing.
        (live((2, 2, 2), observedGeneration=1), "has not started", False),
        (live((0, 0, 0), **REPLICA_FAILURE), f"FailedCreate: {DENIED}", False),
        (live(**condition("Progressing", "True", "ReplicaSetUpdated")), FEW, False),
        # The Deployment controller has given up.
        (live(**condition("Progressing", "False", "ProgressDeadlineExceeded")), FEW, True),
    ],
)
def test_what_a_roll_out_lacks(found: Any, what: str | None, late: bool) -> None:
    lacking = shortage.replica_shortage(planned().deployment, found, None)
    assert (lacking is None) is (what is None)
    if lacking and what:
        assert what in lacking.what
        assert (lacking.late, lacking.failed) == (late, False)
        assert found is None or "describe deployment kubevirt-webhook" in lacking.fix


@pytest.mark.parametrize(("metadata", "scope"), [({"name": "s", "namespace": "n"}, "-n n "), ({"name": "s"}, "")])
def test_deletion_names_finalizers_and_the_command_that_shows_more(metadata: Json, scope: str) -> None:
    manifest = {"apiVersion": "v1", "kind": "Secret", "metadata": metadata}
    found = shortage.deletion_shortage(
        manifest, {**manifest, "metadata": {**metadata, "finalizers": ["example.org/hold"]}}
    )

    assert found
    assert "finalizers example.org/hold" in found.what
    assert f"kubectl {scope}get secret s -o yaml" in found.fix
    assert shortage.deletion_shortage(manifest, None) is None


def test_callers_without_bundle() -> None:
    (first, *_) = planned().configurations
    found = shortage.caller_shortage(first, first)
    assert found
    assert first["webhooks"][0]["name"] in found.what


# -- why pods do not start ---------------------------------------------------------------------------------------------


def pod(name: str = "p", created: str = "2026-01-01T00:00:00Z", **status: Any) -> Pod:
    metadata = {"namespace": "n", "name": name, "creationTimestamp": created}
    return msgspec.convert({"metadata": metadata, "status": status}, Pod)


def container(state: Json, **more: Any) -> Json:
    not_ready = {"type": "Ready", "status": "False"}
    return {"containerStatuses": [{"ready": False, "state": state, **more}], "conditions": [not_ready]}


def waiting(reason: str, message: str = "") -> Json:
    return container({"waiting": {"reason": reason, "message": message}})


UNSCHEDULABLE = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/2"}
NEVER_RAN = {"terminated": {"reason": "StartError", "exitCode": 128, "message": "exec: /nope: no such file"}}
CRASHED = {"terminated": {"reason": "OOMKilled", "exitCode": 137}}
BACK_OFF = {"waiting": {"reason": "CrashLoopBackOff"}}
NO_FILE = "StartError: exec: /nope: no such file"


@pytest.mark.parametrize(
    ("status", "reason", "failed", "command"),
    [
        ({"conditions": [UNSCHEDULABLE]}, "Unschedulable", True, "describe pod p"),
        (waiting("ImagePullBackOff"), "ImagePullBackOff", True, "describe pod p"),
        (waiting("CreateContainerConfigError"), "CreateContainerConfigError", True, "describe pod p"),
        (waiting("ContainerCreating"), "ContainerCreating", False, "describe pod p"),
        (container({"running": {}}), "Running", False, "logs p --tail=20"),
        (container(CRASHED), "OOMKilled", True, "logs p --previous"),
        (container(BACK_OFF, lastState=CRASHED), "CrashLoopBackOff", True, "logs p --previous"),
        (container(NEVER_RAN), NO_FILE, True, "describe pod p"),
        (container(BACK_OFF, lastState=NEVER_RAN), NO_FILE, True, "describe pod p"),
        ({"phase": "Pending"}, "Pending", False, "describe pod p"),
    ],
)
def test_the_reason_is_the_kubelets_or_the_schedulers(status: Json, reason: str, failed: bool, command: str) -> None:
    problem = worst_problem([pod(**status)])
    assert problem
    assert (problem.failed, problem.command) == (failed, f"kubectl -n n {command}")
    assert problem.text.startswith(f"Pod p: {reason}")
    assert ("137 (OOMKilled)" in problem.message) is ("OOMKilled" in str(status))


def test_pods_that_are_ready_being_deleted_or_over_have_no_problem() -> None:
    ready = pod(conditions=[{"type": "Ready", "status": "True"}])
    deleted = msgspec.convert({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}, Pod)
    assert worst_problem([ready, pod(phase="Failed"), deleted]) is worst_problem([]) is None


def test_a_failed_start_is_told_before_a_slow_one_and_the_newest_pod_first() -> None:
    slow = pod("slow", "2026-01-03T00:00:00Z", **waiting("ContainerCreating"))
    old = pod("old", "2026-01-01T00:00:00Z", **waiting("ErrImagePull"))
    new = pod("new", "2026-01-02T00:00:00Z", **waiting("ErrImagePull"))
    final = pod("final", "2026-01-01T00:00:00Z", **waiting("InvalidImageName"))

    for pods, name in (([slow, old, new], "new"), ([slow], "slow"), ([slow, new, final], "final")):
        problem = worst_problem(pods)
        assert problem
        assert (problem.pod, problem.final) == (name, name == "final")


def test_messages_are_one_line_of_a_bounded_length() -> None:
    problem = worst_problem([pod(**waiting("ErrImagePull", "a\n b" + "x" * 100_000 + ": 401 Unauthorized"))])
    assert problem
    assert "\n" not in problem.text
    assert len(problem.text) < 400
    # An error of a kubelet quotes its causes, the last of them at the end.
    assert problem.text.endswith(": 401 Unauthorized")


def test_pods_that_cannot_be_created_are_told_with_the_reason() -> None:
    quota, over = (
        Condition("ReplicaFailure", each, "FailedCreate", "exceeded quota: q.") for each in ("True", "False")
    )
    progress = Condition("Progressing", "True", "ReplicaSetUpdated", "it progresses")
    assert shortage.denied_pods([progress, quota]) == "FailedCreate: exceeded quota: q"
    assert shortage.denied_pods([progress, over]) == ""


def test_events_tell_why_a_container_is_not_created() -> None:
    creating, crashing = (worst_problem([pod(**each)]) for each in (waiting("ContainerCreating"), container(CRASHED)))
    warnings = [
        PodWarning("FailedMount", "secret not found", "2026-01-02T00:00:00Z"),
        PodWarning("FailedCreatePodSandBox", "no network", "2026-01-01T00:00:00Z"),
        PodWarning("MissingClusterDNS", "no DNS", "2026-01-03T00:00:00Z"),
        PodWarning("FailedScheduling", "no node", "2026-01-03T00:00:00Z"),
    ]

    assert creating
    assert crashing
    explained = explain_by_events(creating, warnings)
    assert (explained.text, explained.failed) == ("Pod p: ContainerCreating: FailedMount: secret not found", True)
    assert explain_by_events(creating, warnings[2:]) == creating
    assert explain_by_events(crashing, warnings) == crashing
