from __future__ import annotations

from typing import Any

import pytest
from aiohttp import web

from tests.cluster.fake_apiserver import FakeApiServer
from tests.doctor.world import METRICS, DoctorWorld, codes
from webhook.doctor.effect import check_effect
from webhook.k8s.resources import NAMESPACES, PODS
from webhook.kubevirt.resources import VMIS


def vmi(server: FakeApiServer, name: str, scheduler: str | None = None) -> None:
    server.put(VMIS, name, "demo", spec={"schedulerName": scheduler} if scheduler else {})


async def test_all_is_well(world: DoctorWorld) -> None:
    world.launcher("a", "kubevirt")

    assert codes(await world.run(check_effect), "ok") == ["metrics: metrics-healthy", "VMs: vms-scheduled"]


@pytest.mark.parametrize(
    ("metric", "labels", "value", "verdict"),
    [
        ("ca_bundle_match", '{configuration="a"}', 0, "failure"),
        ("panics_total", '{webhook="a"}', 2, "warning"),
        ("scheduler_available", '{scheduler="kubevirt"}', 0, "warning"),
        ("staleness_seconds", '{watch="nodes"}', 500, "warning"),
        ("certificate_failures_total", "", 1, "warning"),
    ],
)
async def test_what_a_replica_reports(world: DoctorWorld, metric: str, labels: str, value: int, verdict: str) -> None:
    world.server.heal()
    world.metrics(f"kubevirt_webhook_{metric}{labels} {value}\n")

    assert codes(await world.run(check_effect), verdict) == [f"metrics: metric:kubevirt_webhook_{metric}"]


@pytest.mark.parametrize(
    ("status", "body", "shown"), [(200, "a{ b c", ""), (503, "", "503"), (403, "", "grant get on services/proxy")]
)
async def test_a_replica_that_can_t_be_asked(world: DoctorWorld, status: int, body: str, shown: str) -> None:
    world.server.heal()
    world.server.answer(METRICS, lambda _: web.Response(status=status, text=body))

    findings = await world.run(check_effect)

    assert codes(findings, "unknown") == ["metrics: unreadable"]
    assert shown in findings[0].found


async def test_a_connection_that_breaks(world: DoctorWorld) -> None:
    async def lost(request: Any) -> web.Response:
        request.transport.abort()
        return web.Response()

    world.server.heal()
    world.server.answer(METRICS, lost, times=9)

    assert codes(await world.run(check_effect), "unknown") == ["metrics: unreadable"]


async def test_a_server_elsewhere_is_not_asked(world: DoctorWorld) -> None:
    world.url = "https://localhost:8443"

    assert codes(await world.run(check_effect), "unknown") == ["metrics: metrics-not-read"]
    assert world.server.requests(METRICS) == []


async def test_vms_that_were_passed_over(world: DoctorWorld) -> None:
    for name in ("a", "b", "chosen", "placed"):
        world.launcher(name, "kubevirt" if name == "placed" else "default-scheduler")
        vmi(world.server, name, "default-scheduler" if name == "chosen" else None)
    world.launcher("elsewhere", namespace="other")

    findings = await world.run(check_effect)

    assert codes(findings, "warning") == ["VMs: vms-missed"]
    assert findings[-1].found.startswith("2 VMs ")
    assert findings[-1].found.endswith("demo/a")


async def test_pods_that_have_ended_don_t_count(world: DoctorWorld) -> None:
    world.launcher("a")
    world.server.held(PODS)["demo", "virt-launcher-a"]["status"]["phase"] = "Succeeded"

    assert codes(await world.run(check_effect), "warning") == []


async def test_where_nothing_is_enforced_nothing_is_looked_for(world: DoctorWorld) -> None:
    world.server.remove(NAMESPACES, "demo")

    assert [one.subject for one in await world.run(check_effect)] == ["metrics"]


@pytest.mark.parametrize(("resource", "namespace", "told"), [(NAMESPACES, "", 0), (PODS, "", 1), (VMIS, "demo", 1)])
async def test_rights_that_are_missing(world: DoctorWorld, resource: Any, namespace: str, told: int) -> None:
    world.launcher("a")
    vmi(world.server, "a")
    world.forbid(resource, namespace)

    assert len(codes(await world.run(check_effect), "unknown")) == told
