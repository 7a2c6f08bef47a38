from __future__ import annotations

from typing import Any

import pytest
from aiohttp import web

from tests.doctor.world import METRICS, Change, DoctorWorld, both, forbid, lost, put, remove
from webhook.doctor.effect import check_effect
from webhook.k8s.resources import NAMESPACES, PODS
from webhook.kubevirt.resources import VMIS

HEALTHY, SCHEDULED = "ok metrics: metrics-healthy", "ok VMs: vms-scheduled"
UNREADABLE = "unknown metrics: unreadable"


def answer(response: Any) -> Change:
    """What the Service of the replicas answers."""
    return both(lambda it: it.server.heal(), lambda it: it.server.answer(METRICS, response, times=9))


def reply(text: str, status: int = 200) -> Change:
    return answer(lambda _: web.Response(status=status, text=text))


def launch(name: str, scheduler: str = "default-scheduler", **vmi: str) -> Change:
    return both(lambda it: it.launcher(name, scheduler), put(VMIS, name, "demo", spec=vmi))


def end(name: str) -> Change:
    return lambda it: it.server.held(PODS)["demo", f"virt-launcher-{name}"]["status"].update(phase="Succeeded")


OUTCOMES: dict[str, tuple[Change, list[str]]] = {
    "all is well": (lambda it: it.launcher("a", "kubevirt"), [HEALTHY, SCHEDULED]),
    "no metrics": (reply("a{ b c"), [UNREADABLE, SCHEDULED]),
    "no replica": (reply("", 503), [UNREADABLE, SCHEDULED]),
    "no permission": (reply("", 403), [UNREADABLE, SCHEDULED]),
    "a connection that breaks": (answer(lost), [UNREADABLE, SCHEDULED]),
    "a pod that has ended": (both(launch("a"), end("a")), [HEALTHY, SCHEDULED]),
    "nothing is enforced": (remove(NAMESPACES, "demo"), [HEALTHY]),
    "namespaces may not be listed": (both(launch("a"), forbid(NAMESPACES)), [HEALTHY]),
    "pods may not be listed": (both(launch("a"), forbid(PODS)), [HEALTHY, "unknown VMs: unreadable"]),
    "VMIs may not be listed": (both(launch("a"), forbid(VMIS, "demo")), [HEALTHY, "unknown VMs: unreadable"]),
    **{
        metric: (reply(f"kubevirt_webhook_{metric}{labels} {value}\n"), [f"{verdict} {metric}", SCHEDULED])
        for metric, labels, value, verdict in (
            ("ca_bundle_match", '{configuration="a"}', 0, "failure"),
            ("panics_total", '{webhook="a"}', 2, "warning"),
            ("scheduler_available", '{scheduler="kubevirt"}', 0, "warning"),
            ("staleness_seconds", '{watch="nodes"}', 500, "warning"),
            ("certificate_failures_total", "", 1, "warning"),
        )
    },
}


@pytest.mark.parametrize(("change", "expected"), OUTCOMES.values(), ids=OUTCOMES)
async def test_outcomes(world: DoctorWorld, change: Change, expected: list[str]) -> None:
    told = await world.told(check_effect, change)

    assert [line.replace("metrics: metric:kubevirt_webhook_", "") for line in told] == expected


async def test_a_server_elsewhere_is_not_asked(world: DoctorWorld) -> None:
    world.url = "https://localhost:8443"

    assert await world.problems(check_effect) == ["unknown metrics: metrics-not-read"]
    assert world.server.requests(METRICS) == []


async def test_vms_that_were_passed_over(world: DoctorWorld) -> None:
    world.launcher("elsewhere", namespace="other")
    launched = [launch("a"), launch("b"), launch("chosen", schedulerName="default-scheduler")]

    *_, finding = await world.run(check_effect, *launched, launch("placed", "kubevirt"))

    assert (finding.verdict, finding.code) == ("warning", "vms-missed")
    assert finding.found.startswith("2 VMs ")
    assert finding.found.endswith("demo/a")
