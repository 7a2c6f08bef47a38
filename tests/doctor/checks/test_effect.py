from __future__ import annotations

from typing import Any

import pytest
from aiohttp import web

from tests.cluster.fake_apiserver import FakeApiServer
from tests.doctor.world import METRICS, World, said
from webhook.doctor.checks.effect import check
from webhook.doctor.support import views
from webhook.k8s.client.resources import NAMESPACES
from webhook.kubevirt.resources import VMIS


def vmi(server: FakeApiServer, name: str, scheduler: str | None = None) -> None:
    server.put(VMIS, name, "demo", spec={"schedulerName": scheduler} if scheduler else {})


async def test_all_is_well(world: World) -> None:
    world.launcher("a", "kubevirt")

    assert said(await world.run(check), "ok") == [
        "metrics: a replica reports no trouble",
        "VMs: 1 launcher pod where scheduling is enforced: none was passed over",
    ]


@pytest.mark.parametrize(
    ("line", "verdict", "text"),
    [
        ('ca_bundle_match{configuration="a"} 0', "failure", "a caBundle refuses what it serves"),
        ('panics_total{webhook="a"} 2', "warning", "requests met a bug"),
        ('scheduler_alive{scheduler="kubevirt"} 0', "warning", "it takes a scheduler for dead"),
        ('staleness_seconds{watch="nodes"} 500', "warning", "a watch has gone silent"),
        ("certificate_failures_total 1", "warning", "rotation had to be tried again"),
    ],
)
async def test_what_a_replica_says_of_itself(world: World, line: str, verdict: str, text: str) -> None:
    world.server.heal()
    world.metrics(f"kubevirt_webhook_{line}\n")

    (told,) = said(await world.run(check), verdict)

    assert told.startswith(f"metrics: a replica says: {text}")


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (lambda _: web.Response(text="a{ b c"), "what the replica answered is no text of metrics"),
        (lambda _: web.Response(status=503), "answered 503"),
        (lambda _: web.Response(status=403), "grant get on services/proxy"),
    ],
)
async def test_a_replica_that_can_t_be_asked(world: World, answer: Any, text: str) -> None:
    world.server.heal()
    world.server.answer(METRICS, answer)

    (told,) = said(await world.run(check), "unknown")

    assert text in told


async def test_a_connection_that_breaks(world: World) -> None:
    async def lost(request: Any) -> web.Response:
        request.transport.abort()
        return web.Response()

    world.server.heal()
    world.server.answer(METRICS, lost, times=9)

    (told,) = said(await world.run(check), "unknown")

    assert told.startswith("metrics: the connection to the API server broke")


async def test_a_server_elsewhere_is_not_asked(world: World) -> None:
    world.url = "https://localhost:8443"

    assert len(said(await world.run(check), "unknown")) == 1
    assert world.server.requests(METRICS) == []


async def test_vms_that_were_passed_over(world: World) -> None:
    for name in ("a", "b", "chosen", "placed"):
        world.launcher(name, "kubevirt" if name == "placed" else "default-scheduler")
        vmi(world.server, name, "default-scheduler" if name == "chosen" else None)
    world.launcher("elsewhere", namespace="other")

    (text,) = said(await world.run(check), "warning")

    assert text.startswith("VMs: 2 VMs of 4 launcher pods where scheduling is enforced run under default-scheduler")
    assert text.endswith("demo/a for one")


async def test_pods_that_have_ended_don_t_count(world: World) -> None:
    world.launcher("a")
    world.server.held(views.PODS)["demo", "virt-launcher-a"]["status"]["phase"] = "Succeeded"

    assert said(await world.run(check), "warning") == []


async def test_where_nothing_is_enforced_nothing_is_looked_for(world: World) -> None:
    world.server.remove(NAMESPACES, "demo")

    assert [one.subject for one in await world.run(check)] == ["metrics"]


@pytest.mark.parametrize(
    ("resource", "namespace", "told"),
    [(NAMESPACES, "", 0), (views.PODS, "", 1), (VMIS, "demo", 1)],
)
async def test_rights_that_are_missing(world: World, resource: Any, namespace: str, told: int) -> None:
    world.launcher("a")
    vmi(world.server, "a")
    world.forbid(resource, namespace)

    assert len(said(await world.run(check), "unknown")) == told
