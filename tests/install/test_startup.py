from __future__ import annotations

from typing import Any

import msgspec
import pytest

from webhook.install.shortage import PodWarning, denied_pods, explain_by_events, worst_problem
from webhook.k8s.types.core import Pod
from webhook.k8s.types.meta import Condition

NOT_READY = {"type": "Ready", "status": "False"}


def pod(name: str = "p", created: str = "2026-01-01T00:00:00Z", **status: Any) -> Pod:
    metadata = {"namespace": "n", "name": name, "creationTimestamp": created}
    return msgspec.convert({"metadata": metadata, "status": status}, Pod)


def container(state: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"containerStatuses": [{"ready": False, "state": state, **more}], "conditions": [NOT_READY]}


def waiting(reason: str, message: str = "") -> dict[str, Any]:
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
def test_the_reason_is_the_kubelets_or_the_schedulers(
    status: dict[str, Any], reason: str, failed: bool, command: str
) -> None:
    problem = worst_problem([pod(**status)])

    assert problem
    assert (problem.failed, problem.command) == (failed, f"kubectl -n n {command}")
    assert problem.text.startswith(f"Pod p: {reason}")
    assert ("137 (OOMKilled)" in problem.message) is ("OOMKilled" in str(status))


def test_pods_that_are_ready_being_deleted_or_over_have_no_problem() -> None:
    ready = pod(conditions=[{"type": "Ready", "status": "True"}])
    over = pod(phase="Failed")
    deleted = msgspec.convert({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}, Pod)

    assert worst_problem([ready, over, deleted]) is None
    assert worst_problem([]) is None


def test_a_failed_start_is_told_before_a_slow_one_and_the_newest_pod_first() -> None:
    slow = pod("slow", "2026-01-03T00:00:00Z", **waiting("ContainerCreating"))
    old = pod("old", "2026-01-01T00:00:00Z", **waiting("ErrImagePull"))
    new = pod("new", "2026-01-02T00:00:00Z", **waiting("ErrImagePull"))
    final = pod("final", "2026-01-01T00:00:00Z", **waiting("InvalidImageName"))

    for pods, name in (([slow, old, new], "new"), ([slow], "slow"), ([slow, new, final], "final")):
        problem = worst_problem(pods)
        assert problem
        assert problem.pod == name
        assert problem.final is (name == "final")


def test_messages_are_one_line_of_a_bounded_length() -> None:
    problem = worst_problem([pod(**waiting("ErrImagePull", "a\n b" + "x" * 100_000 + ": 401 Unauthorized"))])

    assert problem
    assert "\n" not in problem.text
    assert len(problem.text) < 400
    # An error of a kubelet quotes its causes, the last of them at the end.
    assert problem.text.endswith(": 401 Unauthorized")


def test_pods_that_cannot_be_created_are_told_with_the_reason() -> None:
    quota = Condition("ReplicaFailure", "True", "FailedCreate", "exceeded quota: q.")
    over = Condition("ReplicaFailure", "False", "FailedCreate", "exceeded quota: q")
    progress = Condition("Progressing", "True", "ReplicaSetUpdated", "it progresses")

    assert denied_pods([progress, quota]) == "FailedCreate: exceeded quota: q"
    assert denied_pods([progress, over]) == ""


def test_events_tell_why_a_container_is_not_created() -> None:
    creating = worst_problem([pod(**waiting("ContainerCreating"))])
    crashing = worst_problem([pod(**container(CRASHED))])
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
