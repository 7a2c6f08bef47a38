from __future__ import annotations

from typing import Any

import pytest
from aiohttp import web

from tests.doctor.world import METRICS, Change, DoctorWorld, both, forbid, lost, put, remove
from webhook import names
from webhook.doctor.effect import check_effect
from webhook.k8s.resources import NAMESPACES, PODS
from webhook.kubevirt.resources import VMIS

HEALTHY, SCHEDULED = "ok metrics: metrics-healthy", "ok VMs: vms-scheduled"
UNREADABLE = "unknown metrics: unreadable"


def answer(response: Any) -> Change:
    return both(lambda it: it.server.heal(), lambda it: it.server.answer(METRICS, response, times=9))


def reply(text: str, status: int = 200) -> Change:
    return answer(lambda _: web.Response(status=status, text=text))


def launch(name: str, scheduler: str = "default-scheduler", **vmi: str) -> Change:
    return both(lambda it: it.launcher(name, scheduler), put(VMIS, name, "demo", spec=vmi))


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda it: it.launcher("a", "kubevirt"), [HEALTHY, SCHEDULED]),
        (reply("a{ b c"), [UNREADABLE, SCHEDULED]),
        (reply("", 503), [UNREADABLE, SCHEDULED]),
        (reply("", 403), [UNREADABLE, SCHEDULED]),
        (answer(lost), [UNREADABLE, SCHEDULED]),
        (both(launch("a"), lambda it: it.launcher("a", phase="Succeeded")), [HEALTHY, SCHEDULED]),
        # Where nothing is enforced.
        (remove(NAMESPACES, "demo"), [HEALTHY]),
        (both(launch("a"), forbid(NAMESPACES)), [HEALTHY]),
        (both(launch("a"), forbid(PODS)), [HEALTHY, "unknown VMs: unreadable"]),
        (both(launch("a"), forbid(VMIS, "demo")), [HEALTHY, "unknown VMs: unreadable"]),
    ],
)
async def test_outcomes(world: DoctorWorld, change: Change, expected: list[str]) -> None:
    assert await world.told(check_effect, change) == expected


@pytest.mark.parametrize(
    ("metric", "labels", "value", "verdict"),
    [
        *(("ca_bundle_match", '{configuration="a"}', 0, "failure"), ("panics_total", '{webhook="a"}', 2, "warning")),
        ("scheduler_available", '{scheduler="kubevirt"}', 0, "warning"),
        *(("staleness_seconds", '{watch="nodes"}', 500, "warning"), ("certificate_failures_total", "", 1, "warning")),
    ],
)
async def test_what_a_replica_reports(world: DoctorWorld, metric: str, labels: str, value: int, verdict: str) -> None:
    name = f"kubevirt_webhook_{metric}"

    opted_in = 'kubevirt_webhook_namespaces{policy="scheduling",mode="warn"} 1'
    told = await world.told(check_effect, reply(f"{name}{labels} {value}\n{opted_in}\n"))

    assert told == [f"{verdict} metrics: metric:{name}", SCHEDULED]


async def test_a_scheduler_that_no_namespace_has_opted_in_to_is_not_missed(world: DoctorWorld) -> None:
    unavailable = 'kubevirt_webhook_scheduler_available{scheduler="kubevirt"} 0'
    opted_in = 'kubevirt_webhook_namespaces{policy="sizes",mode="warn"} 1'
    assert await world.told(check_effect, reply(f"{unavailable}\n{opted_in}\n")) == [HEALTHY, SCHEDULED]


async def test_a_server_elsewhere_is_not_asked(world: DoctorWorld) -> None:
    world.url = "https://localhost:8443"
    assert await world.problems(check_effect) == ["unknown metrics: metrics-not-read"]
    assert world.server.requests(METRICS) == []


def no_scheduler(it: DoctorWorld) -> None:
    it.set("scheduling", schedulers={}, spread="hostname")


CONSTRAINTS = [{"topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "ScheduleAnyway"}]
SPREAD = "ok VMs: vms-spread"


async def test_without_a_scheduler_the_default_one_is_right_and_constraints_are_looked_for(world: DoctorWorld) -> None:
    def constrained(it: DoctorWorld) -> None:
        it.launcher("a", topologySpreadConstraints=CONSTRAINTS)

    def annotated(it: DoctorWorld) -> None:
        it.launcher("out", annotations={names.SPREAD_ANNOTATION: "off"})
        it.launcher("zones", annotations={names.SPREAD_ANNOTATION: "zone"})
        it.launcher("removed", annotations={names.INJECTED_SPREAD_ANNOTATION: "hostname"})

    assert await world.told(check_effect, no_scheduler, constrained, annotated) == [HEALTHY, SPREAD]

    *_, finding = await world.run(check_effect, launch("b"))
    assert (finding.verdict, finding.code) == ("warning", "vms-not-spread")
    assert finding.found.startswith("1 VM (of 5 launcher pods ")
    assert finding.found.endswith("demo/b")


async def test_an_owner_who_wants_constraints_is_looked_at_where_the_settings_want_none(world: DoctorWorld) -> None:
    world.launcher("a", "kubevirt", annotations={names.SPREAD_ANNOTATION: "hostname"})
    assert await world.told(check_effect) == [HEALTHY, SCHEDULED, "warning VMs: vms-not-spread"]


async def test_a_policy_that_sets_nothing_misses_nothing(world: DoctorWorld) -> None:
    world.set("scheduling", schedulers={})
    assert await world.told(check_effect, launch("a")) == [HEALTHY]


async def test_vms_that_were_passed_over(world: DoctorWorld) -> None:
    world.launcher("elsewhere", namespace="other")
    launched = [launch("a"), launch("b"), launch("chosen", schedulerName="default-scheduler")]

    *_, finding = await world.run(check_effect, *launched, launch("placed", "kubevirt"))

    assert (finding.verdict, finding.code) == ("warning", "vms-missed")
    assert finding.found.startswith("2 VMs ")
    assert finding.found.endswith("demo/a")
