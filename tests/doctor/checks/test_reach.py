from __future__ import annotations

import asyncio
from typing import Any

import pytest
from aiohttp import web

from tests.doctor.world import NS, DoctorWorld, codes
from webhook.doctor.checks.reach import check
from webhook.install import shortage

ASKED = f"/api/v1/namespaces/{NS}/services/https:{NS}:webhooks/proxy/healthz"
SUBJECT = f"Service {NS}/{NS}"


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

    (finding,) = await world.run(check)

    assert (finding.subject, finding.verdict, finding.code) == (SUBJECT, verdict, code)


@pytest.mark.parametrize("message", ["no endpoints available", "services is forbidden"])
async def test_what_says_nothing_about_connections_is_left_to_other_checks(world: DoctorWorld, message: str) -> None:
    world.server.answer(ASKED, lambda _: web.json_response(denial(message), status=503))

    assert await world.run(check) == []


async def test_an_api_server_that_gives_no_answer(world: DoctorWorld) -> None:
    async def lost(request: Any) -> web.Response:
        request.transport.abort()
        return web.Response()

    world.server.answer(ASKED, lost, times=9)

    assert await world.run(check) == []


async def test_a_rejected_connection_is_tried_again(world: DoctorWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shortage, "PAUSE", 0.1)
    refused = web.json_response(denial("dial tcp 10.1.2.3:8443: refused"), status=503)
    answers = iter([refused, web.Response(text="ok")])
    world.server.answer(ASKED, lambda _: next(answers), times=2)

    (finding,) = await world.run(check)

    assert finding.verdict == "ok"


async def test_a_page_of_a_load_balancer_says_nothing(world: DoctorWorld) -> None:
    world.server.answer(ASKED, lambda _: web.Response(text="no healthy upstream", status=503))

    assert await world.run(check) == []


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
        (finding,) = await world.run(check)
    finally:
        never.set()

    assert (finding.subject, finding.verdict, finding.code) == (SUBJECT, "failure", "unreachable")


async def test_a_server_elsewhere_is_not_behind_the_service(world: DoctorWorld) -> None:
    world.url = "https://localhost:8443"

    assert codes(await world.run(check), "ok") == []
    assert world.server.requests(ASKED) == []
