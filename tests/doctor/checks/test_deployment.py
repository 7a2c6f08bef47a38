from __future__ import annotations

import pytest

from tests.doctor.world import NS, DoctorWorld, codes
from webhook.doctor.checks.deployment import check
from webhook.doctor.support import views
from webhook.k8s.client.resources import PODS

SUBJECT = f"Deployment {NS}/{NS}"
SUBJECT_PODS = f"Pods of {NS}/{NS}"


async def test_all_is_well(world: DoctorWorld) -> None:
    findings = await world.run(check)

    assert codes(findings, "ok") == [f"{SUBJECT}: ready", f"{SUBJECT_PODS}: spread"]
    assert len(findings) == 2


@pytest.mark.parametrize(
    ("replicas", "ready", "verdict", "code"),
    [
        (2, 0, "failure", "none-ready"),
        (2, 1, "warning", "some-not-ready"),
        (1, 1, "warning", "single-replica"),
        (3, 3, "ok", "ready"),
    ],
)
async def test_how_many_are_ready(world: DoctorWorld, replicas: int, ready: int, verdict: str, code: str) -> None:
    world.deployment(replicas=replicas, ready=ready)

    finding = (await world.run(check))[0]

    assert (finding.subject, finding.verdict, finding.code) == (SUBJECT, verdict, code)


async def test_a_roll_out_that_is_stuck_is_a_failure(world: DoctorWorld) -> None:
    world.deployment(replicas=3, ready=2, progress="ProgressDeadlineExceeded")

    assert codes(await world.run(check), "failure") == [f"{SUBJECT}: rollout-stuck"]


@pytest.mark.parametrize(("ready", "code"), [(0, "none-ready"), (2, "rollout-stuck")])
async def test_a_pod_that_does_not_start_is_named(world: DoctorWorld, ready: int, code: str) -> None:
    world.deployment(replicas=3, ready=ready)
    world.replica("c", "node-a")
    waiting = {"reason": "ImagePullBackOff", "message": 'Back-off pulling image "kubevirt-webhook:2"'}
    status = {"phase": "Pending", "containerStatuses": [{"ready": False, "state": {"waiting": waiting}}]}
    world.server.held(PODS)[NS, f"{NS}-c"]["status"] = status

    (finding,) = [one for one in await world.run(check) if one.verdict == "failure"]

    assert (finding.subject, finding.code) == (SUBJECT, code)
    assert f"Pod {NS}-c: ImagePullBackOff" in finding.found
    assert f"kubectl -n {NS} describe pod {NS}-c" in finding.todo


@pytest.mark.parametrize(("ready", "code"), [(0, "none-ready"), (2, "rollout-stuck")])
async def test_pods_that_cannot_be_created_are_told_with_the_reason(world: DoctorWorld, ready: int, code: str) -> None:
    world.deployment(replicas=3, ready=ready)
    quota = {"type": "ReplicaFailure", "status": "True", "reason": "FailedCreate", "message": "exceeded quota: q"}
    world.server.held(views.DEPLOYMENTS)[NS, NS]["status"]["conditions"] = [quota]

    (finding,) = [one for one in await world.run(check) if one.verdict == "failure"]

    assert (finding.subject, finding.code) == (SUBJECT, code)
    assert "FailedCreate: exceeded quota: q" in finding.found
    assert f"kubectl -n {NS} describe deployment {NS}" in finding.todo


async def test_a_roll_out_under_way_is_no_failure(world: DoctorWorld) -> None:
    world.deployment(replicas=3, ready=2, progress="ReplicaSetUpdated")

    assert codes(await world.run(check), "failure") == []


async def test_pods_on_the_scheduler_that_we_hand_vms_to(world: DoctorWorld) -> None:
    world.deployment(scheduler="kubevirt")

    assert codes(await world.run(check), "failure") == [f"{SUBJECT}: placed-by-declared-scheduler"]


async def test_pods_that_differ(world: DoctorWorld) -> None:
    world.replica("b", "node-b", image="kubevirt-webhook:2")

    assert codes(await world.run(check), "warning") == [f"{SUBJECT_PODS}: images-differ"]


async def test_pods_on_one_node(world: DoctorWorld) -> None:
    world.replica("b", "node-a")

    assert codes(await world.run(check), "warning") == [f"{SUBJECT_PODS}: same-node"]


async def test_pods_that_have_ended_don_t_count(world: DoctorWorld) -> None:
    world.replica("c", "node-a", image="old")
    world.server.held(PODS)[NS, f"{NS}-c"]["status"]["phase"] = "Failed"

    assert codes(await world.run(check), "warning") == []


async def test_what_protects_them_is_missing(world: DoctorWorld) -> None:
    world.server.remove(views.BUDGETS, NS, NS)
    for resource in views.FLOW:
        world.server.remove(resource, NS)

    assert codes(await world.run(check), "warning") == [
        f"PodDisruptionBudget {NS}/{NS}: missing",
        f"PriorityLevelConfiguration {NS}: missing",
        f"FlowSchema {NS}: missing",
    ]


async def test_there_is_none(world: DoctorWorld) -> None:
    world.server.remove(views.DEPLOYMENTS, NS, NS)
    for name in ("a", "b"):
        world.server.remove(PODS, f"{NS}-{name}", NS)

    assert codes(await world.run(check), "failure") == [f"{SUBJECT}: missing"]


async def test_there_needs_to_be_none_for_a_server_elsewhere(world: DoctorWorld) -> None:
    world.url = "https://localhost:8443"
    world.server.remove(views.DEPLOYMENTS, NS, NS)
    world.server.remove(views.BUDGETS, NS, NS)

    findings = await world.run(check)

    assert {one.verdict for one in findings} == {"ok"}
