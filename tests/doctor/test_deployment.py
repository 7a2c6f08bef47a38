from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from aiohttp import web

from tests.doctor.world import NS, DoctorWorld, codes
from webhook.doctor.deployment import BUDGETS, FLOW, check_deployment, check_reach
from webhook.doctor.installation import DEPLOYMENTS
from webhook.install import shortage
from webhook.k8s.resources import PODS

SUBJECT = f"Deployment {NS}/{NS}"
SUBJECT_PODS = f"Pods of {NS}/{NS}"
ASKED = f"/api/v1/namespaces/{NS}/services/https:{NS}:webhooks/proxy/healthz"
SERVICE = f"Service {NS}/{NS}"


async def test_all_is_well(world: DoctorWorld) -> None:
    findings = await world.run(check_deployment)

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

    finding = (await world.run(check_deployment))[0]

    assert (finding.subject, finding.verdict, finding.code) == (SUBJECT, verdict, code)


@pytest.mark.parametrize(("ready", "code"), [(0, "none-ready"), (2, "rollout-stuck")])
async def test_a_pod_that_does_not_start_is_named(world: DoctorWorld, ready: int, code: str) -> None:
    world.deployment(replicas=3, ready=ready)
    world.replica("c", "node-a")
    waiting = {"reason": "ImagePullBackOff", "message": 'Back-off pulling image "kubevirt-webhook:2"'}
    status = {"phase": "Pending", "containerStatuses": [{"ready": False, "state": {"waiting": waiting}}]}
    world.server.held(PODS)[NS, f"{NS}-c"]["status"] = status

    (finding,) = [one for one in await world.run(check_deployment) if one.verdict == "failure"]

    assert (finding.subject, finding.code) == (SUBJECT, code)
    assert f"Pod {NS}-c: ImagePullBackOff" in finding.found
    assert f"kubectl -n {NS} describe pod {NS}-c" in finding.todo


@pytest.mark.parametrize(("ready", "code"), [(0, "none-ready"), (2, "rollout-stuck")])
async def test_pods_that_cannot_be_created_are_told_with_the_reason(world: DoctorWorld, ready: int, code: str) -> None:
    world.deployment(replicas=3, ready=ready)
    quota = {"type": "ReplicaFailure", "status": "True", "reason": "FailedCreate", "message": "exceeded quota: q"}
    world.server.held(DEPLOYMENTS)[NS, NS]["status"]["conditions"] = [quota]

    (finding,) = [one for one in await world.run(check_deployment) if one.verdict == "failure"]

    assert (finding.subject, finding.code) == (SUBJECT, code)
    assert "FailedCreate: exceeded quota: q" in finding.found
    assert f"kubectl -n {NS} describe deployment {NS}" in finding.todo


def end_a_pod(world: DoctorWorld) -> None:
    world.replica("c", "node-a", image="old")
    world.server.held(PODS)[NS, f"{NS}-c"]["status"]["phase"] = "Failed"


def remove_protection(world: DoctorWorld) -> None:
    world.server.remove(BUDGETS, NS, NS)
    for resource in FLOW:
        world.server.remove(resource, NS)


def remove_all(world: DoctorWorld) -> None:
    world.server.remove(DEPLOYMENTS, NS, NS)
    for name in ("a", "b"):
        world.server.remove(PODS, f"{NS}-{name}", NS)


def deployed(**fields: Any) -> Callable[[DoctorWorld], None]:
    return lambda world: world.deployment(**fields)


@pytest.mark.parametrize(
    ("change", "verdict", "expected"),
    [
        (deployed(replicas=3, ready=2, progress="ProgressDeadlineExceeded"), "failure", [f"{SUBJECT}: rollout-stuck"]),
        (deployed(replicas=3, ready=2, progress="ReplicaSetUpdated"), "failure", []),
        (deployed(scheduler="kubevirt"), "failure", [f"{SUBJECT}: placed-by-declared-scheduler"]),
        (lambda it: it.replica("b", "node-b", "kubevirt-webhook:2"), "warning", [f"{SUBJECT_PODS}: images-differ"]),
        (lambda it: it.replica("b", "node-a"), "warning", [f"{SUBJECT_PODS}: same-node"]),
        (end_a_pod, "warning", []),
        (
            remove_protection,
            "warning",
            [
                f"PodDisruptionBudget {NS}/{NS}: missing",
                *(f"{kind} {NS}: missing" for kind in ("PriorityLevelConfiguration", "FlowSchema")),
            ],
        ),
        (remove_all, "failure", [f"{SUBJECT}: missing"]),
    ],
    ids=["stuck", "under way", "placed by a declared scheduler", "images", "node", "ended", "protection", "nothing"],
)
async def test_what_is_wrong(
    world: DoctorWorld, change: Callable[[DoctorWorld], None], verdict: str, expected: list[str]
) -> None:
    change(world)

    assert codes(await world.run(check_deployment), verdict) == expected


async def test_there_needs_to_be_none_for_a_server_elsewhere(world: DoctorWorld) -> None:
    world.url = "https://localhost:8443"
    world.server.remove(DEPLOYMENTS, NS, NS)
    world.server.remove(BUDGETS, NS, NS)

    findings = await world.run(check_deployment)

    assert {one.verdict for one in findings} == {"ok"}


def denial(message: str, reason: str = "ServiceUnavailable") -> dict[str, Any]:
    return {"kind": "Status", "status": "Failure", "reason": reason, "message": message}


@pytest.mark.parametrize(
    ("status", "body", "verdict", "code"),
    [
        (404, None, "ok", "reachable"),
        (503, denial("remote error: tls: alert"), "ok", "reachable"),
        (503, denial("dial tcp 10.1.2.3:8443: timeout"), "failure", "unreachable"),
        (503, denial("dial tcp 10.1.2.3:8443: refused"), "failure", "unreachable"),
    ],
    ids=["answer", "TLS alert", "policy that drops", "policy that rejects"],
)
async def test_whether_there_is_a_connection(
    world: DoctorWorld,
    status: int,
    body: dict[str, Any] | None,
    verdict: str,
    code: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(shortage, "PAUSE", 0.0)

    def answered(_: Any) -> web.Response:
        return web.json_response(body, status=status) if body else web.Response(text="Not Found", status=status)

    world.server.answer(ASKED, answered)

    (finding,) = await world.run(check_reach)

    assert (finding.subject, finding.verdict, finding.code) == (SERVICE, verdict, code)


@pytest.mark.parametrize("message", ["no endpoints available", "services is forbidden"])
async def test_what_says_nothing_about_connections_is_left_to_other_checks(world: DoctorWorld, message: str) -> None:
    world.server.answer(ASKED, lambda _: web.json_response(denial(message), status=503))

    assert await world.run(check_reach) == []


async def test_an_api_server_that_gives_no_answer(world: DoctorWorld) -> None:
    async def lost(request: Any) -> web.Response:
        request.transport.abort()
        return web.Response()

    world.server.answer(ASKED, lost, times=9)

    assert await world.run(check_reach) == []


async def test_a_rejected_connection_is_tried_again(world: DoctorWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shortage, "PAUSE", 0.1)
    refused = web.json_response(denial("dial tcp 10.1.2.3:8443: refused"), status=503)
    answers = iter([refused, web.Response(text="ok")])
    world.server.answer(ASKED, lambda _: next(answers), times=2)

    (finding,) = await world.run(check_reach)

    assert finding.verdict == "ok"


async def test_a_page_of_a_load_balancer_says_nothing(world: DoctorWorld) -> None:
    world.server.answer(ASKED, lambda _: web.Response(text="no healthy upstream", status=503))

    assert await world.run(check_reach) == []


async def test_no_answer_in_time_is_a_failure_for_the_api_server_answers_all_else(
    world: DoctorWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    never = asyncio.Event()

    async def silent(_: Any) -> web.Response:
        await never.wait()
        return web.Response()

    assert shortage.PATIENCE > 30
    monkeypatch.setattr(shortage, "PATIENCE", 0.2)
    monkeypatch.setattr(shortage, "PAUSE", 0.1)
    world.server.answer(ASKED, silent)

    try:
        (finding,) = await world.run(check_reach)
    finally:
        never.set()

    assert (finding.subject, finding.verdict, finding.code) == (SERVICE, "failure", "unreachable")


async def test_a_server_elsewhere_is_not_behind_the_service(world: DoctorWorld) -> None:
    world.url = "https://localhost:8443"

    assert codes(await world.run(check_reach), "ok") == []
    assert world.server.requests(ASKED) == []
