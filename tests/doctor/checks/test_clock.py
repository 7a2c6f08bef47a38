from __future__ import annotations

import time
from datetime import UTC, datetime

import pytest
from aiohttp import web

from tests.doctor.world import DoctorWorld, codes
from webhook.doctor.checks.clock import check
from webhook.k8s.client.clock import Clock
from webhook.k8s.client.resources import LEASES


class Shifted(Clock):
    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def wall(self) -> float:
        return time.time() + self.seconds


@pytest.mark.parametrize(
    ("ours", "verdict", "code"),
    [
        (0, "ok", "clock-correct"),
        (-100, "warning", "clock-skewed"),
        (100, "warning", "clock-skewed"),
        (1000, "failure", "clock-wrong"),
    ],
)
async def test_ours_beside_the_api_servers(world: DoctorWorld, ours: float, verdict: str, code: str) -> None:
    world.clock = Shifted(ours)  # type: ignore[assignment]

    (finding,) = await world.run(check)

    assert (finding.subject, finding.verdict, finding.code) == ("API server", verdict, code)
    assert (" ahead of " in finding.found) is (ours < 0)


@pytest.mark.parametrize(("ahead", "verdict"), [(100, "warning"), (1000, "failure")])
async def test_a_lease_from_the_future(world: DoctorWorld, ahead: float, verdict: str) -> None:
    world.clock = Shifted(0)  # type: ignore[assignment]
    renewed = datetime.fromtimestamp(time.time() + ahead, UTC).isoformat()
    world.server.put(LEASES, "kubevirt-scheduler", "kubevirt-scheduler", spec={"renewTime": renewed})

    code = "clock-wrong" if verdict == "failure" else "clock-skewed"
    assert codes(await world.run(check), verdict) == [f"scheduler kubevirt: {code}"]


@pytest.mark.parametrize("spec", [None, {}, {"renewTime": "yesterday"}])
async def test_a_lease_that_says_no_time(world: DoctorWorld, spec: object) -> None:
    world.clock = Shifted(0)  # type: ignore[assignment]
    world.server.put(LEASES, "kubevirt-scheduler", "kubevirt-scheduler", spec=spec)

    assert [one.subject for one in await world.run(check)] == ["API server"]


async def test_an_api_server_without_a_clock(world: DoctorWorld) -> None:
    world.server.answer("/version", lambda _: web.Response(headers={"Date": "today"}))

    assert codes(await world.run(check), "unknown") == ["API server: unreadable"]
