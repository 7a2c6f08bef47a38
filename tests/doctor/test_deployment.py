from __future__ import annotations

import asyncio
from typing import Any
from unittest.mock import AsyncMock, Mock

import pytest
from aiohttp import web

from tests.doctor.world import NS, Change, DoctorWorld, both, lost, remove, sets
from tests.waiting import PATIENCE
from webhook.doctor.deployment import BUDGETS, FLOW, check_deployment, check_reach
from webhook.doctor.installation import DEPLOYMENTS
from webhook.install import shortage
from webhook.k8s.resources import PODS

SUBJECT = f"Deployment {NS}/{NS}"
SUBJECT_PODS = f"Pods of {NS}/{NS}"
AWAY = sets(url="https://localhost:8443")
READY, SPREAD = f"ok {SUBJECT}: ready", f"ok {SUBJECT_PODS}: spread"
ASKED = f"/api/v1/namespaces/{NS}/services/https:{NS}:webhooks/proxy/healthz"
UNKNOWN_REACH = f"unknown Service {NS}/{NS}: reach-unknown"
REACHABLE, UNREACHABLE = f"ok Service {NS}/{NS}: reachable", f"failure Service {NS}/{NS}: unreachable"


def deployed(replicas: int, ready: int, **fields: Any) -> Change:
    return lambda world: world.deployment(replicas=replicas, ready=ready, **fields)


def missing(*kinds: str) -> str:
    return "; ".join((READY, SPREAD, *(f"warning {kind}: missing" for kind in kinds)))


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda _: None, f"{READY}; {SPREAD}"),
        (deployed(2, 0), f"failure {SUBJECT}: none-ready; {SPREAD}"),
        (deployed(2, 1), f"warning {SUBJECT}: some-not-ready; {SPREAD}"),
        (deployed(1, 1), f"warning {SUBJECT}: single-replica; {SPREAD}"),
        (deployed(3, 3), f"{READY}; {SPREAD}"),
        (deployed(3, 2, progress="ProgressDeadlineExceeded"), f"failure {SUBJECT}: rollout-stuck; {SPREAD}"),
        (deployed(3, 2, progress="ReplicaSetUpdated"), f"warning {SUBJECT}: some-not-ready; {SPREAD}"),
        (deployed(2, 2, scheduler="kubevirt"), f"{READY}; failure {SUBJECT}: placed-by-declared-scheduler; {SPREAD}"),
        (lambda it: it.replica("b", "node-b", "kubevirt-webhook:2"), f"{READY}; warning {SUBJECT_PODS}: images-differ"),
        (lambda it: it.replica("b", "node-a"), f"{READY}; warning {SUBJECT_PODS}: same-node"),
        (lambda it: it.replica("c", "node-a", image="old", phase="Failed"), f"{READY}; {SPREAD}"),
        (remove(BUDGETS, NS, NS), missing(f"PodDisruptionBudget {NS}/{NS}")),
        (both(*(remove(each, NS) for each in FLOW)), missing(f"PriorityLevelConfiguration {NS}", f"FlowSchema {NS}")),
        (
            both(remove(DEPLOYMENTS, NS, NS), *(remove(PODS, f"{NS}-{name}", NS) for name in ("a", "b"))),
            f"failure {SUBJECT}: missing",
        ),
        (
            both(AWAY, *(remove(each, NS, NS) for each in (DEPLOYMENTS, BUDGETS))),
            f"ok {SUBJECT}: not-needed; {SPREAD}",
        ),
    ],
)
async def test_what_replicas_there_are(world: DoctorWorld, change: Change, expected: str) -> None:
    assert "; ".join(await world.told(check_deployment, change)) == expected


def fail_to_pull(world: DoctorWorld) -> None:
    waiting = {"reason": "ImagePullBackOff", "message": 'Back-off pulling image "kubevirt-webhook:2"'}
    containers = [{"ready": False, "state": {"waiting": waiting}}]
    world.replica("c", "node-a", phase="Pending", containerStatuses=containers)


def exceed_quota(world: DoctorWorld) -> None:
    quota = {"type": "ReplicaFailure", "status": "True", "reason": "FailedCreate", "message": "exceeded quota: q"}
    world.server.held(DEPLOYMENTS)[NS, NS]["status"]["conditions"] = [quota]


@pytest.mark.parametrize(("ready", "code"), [(0, "none-ready"), (2, "rollout-stuck")])
@pytest.mark.parametrize(
    ("change", "why", "object_"),
    [
        (fail_to_pull, f"Pod {NS}-c: ImagePullBackOff", f"pod {NS}-c"),
        (exceed_quota, "FailedCreate: exceeded quota: q", f"deployment {NS}"),
    ],
)
async def test_the_reason_is_named(
    world: DoctorWorld, ready: int, code: str, change: Change, why: str, object_: str
) -> None:
    findings = await world.run(check_deployment, deployed(3, ready), change)
    (finding,) = [one for one in findings if one.verdict == "failure"]
    assert (finding.subject, finding.code) == (SUBJECT, code)
    assert why in finding.found
    assert f"kubectl -n {NS} describe {object_}" in finding.todo


def denial(message: str) -> dict[str, Any]:
    return {"kind": "Status", "status": "Failure", "reason": "ServiceUnavailable", "message": message}


def reply(status: int, body: dict[str, Any] | str) -> Any:
    if isinstance(body, str):
        return lambda _: web.Response(text=body, status=status)
    return lambda _: web.json_response(body, status=status)


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (reply(404, "Not Found"), [REACHABLE]),
        (reply(503, denial("remote error: tls: alert")), [REACHABLE]),
        (reply(503, denial("dial tcp 10.1.2.3:8443: timeout")), [UNREACHABLE]),
        (reply(503, denial("dial tcp 10.1.2.3:8443: refused")), [UNREACHABLE]),
        # What says nothing about connections is not known; other checks say what is missing.
        (reply(503, denial("no endpoints available")), [UNKNOWN_REACH]),
        (reply(503, "no healthy upstream"), [UNKNOWN_REACH]),
        *((reply(403, denial("services is forbidden")), []), (lost, [])),
    ],
    ids=["answer", "TLS alert", "drops", "rejects", "no endpoints", "load balancer", "forbidden", "no answer"],
)
async def test_whether_there_is_a_connection(
    world: DoctorWorld, answer: Any, expected: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shortage, "PAUSE", 0.0)
    world.server.answer(ASKED, answer, times=9 if answer is lost else 1)
    assert await world.told(check_reach) == expected


async def test_a_rejected_connection_is_tried_again(world: DoctorWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    # On a busy machine, too, the first answer comes before the pause would be over; the pause itself takes no time.
    monkeypatch.setattr(shortage, "PAUSE", PATIENCE)
    monkeypatch.setattr(shortage, "asyncio", Mock(wraps=asyncio, sleep=AsyncMock()))
    for answer in (reply(503, denial("dial tcp 10.1.2.3:8443: refused")), reply(200, "ok")):
        world.server.answer(ASKED, answer)
    assert await world.told(check_reach) == [REACHABLE]


async def test_no_answer_in_time_is_a_failure_for_the_api_server_answers_all_else(
    world: DoctorWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert shortage.PATIENCE > 30
    monkeypatch.setattr(shortage, "PATIENCE", 0.2)
    monkeypatch.setattr(shortage, "PAUSE", 0.1)
    never = world.server.hang(ASKED)
    try:
        assert await world.told(check_reach) == [UNREACHABLE]
    finally:
        never.set()


async def test_a_server_elsewhere_is_not_behind_the_service(world: DoctorWorld) -> None:
    assert await world.told(check_reach, AWAY) == []
    assert world.server.requests(ASKED) == []


PROXY = {"name": "https_proxy", "value": "http://proxy.example:3128"}


@pytest.mark.parametrize(
    ("no_proxy", "told"),
    [
        *(("localhost,10.96.0.0/12,172.16.0.0/16", True), ("", True)),
        *(("10.96.0.0/12,.svc", False), ("*.svc", False), ("*", False)),
    ],
)
async def test_an_api_server_behind_a_proxy(world: DoctorWorld, no_proxy: str, told: bool) -> None:
    env = [PROXY, {"name": "no_proxy", "value": no_proxy}]
    world.server.put(
        PODS, "kube-apiserver-a", "kube-system", spec={"containers": [{"name": "kube-apiserver", "env": env}]}
    )
    # The attempt through the Service succeeds all the same: it goes to a pod's address.
    world.server.answer(ASKED, reply(200, "ok"))
    proxied = ["warning Pod kube-system/kube-apiserver-a: proxied"] if told else []
    assert await world.told(check_reach) == [*proxied, REACHABLE]
