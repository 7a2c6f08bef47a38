from __future__ import annotations

import pytest

from tests.doctor.world import NS, World, said
from webhook.doctor.checks.deployment import check
from webhook.doctor.support import views

SUBJECT = f"Deployment {NS}/{NS}"
PODS = f"Pods of {NS}/{NS}"


async def test_all_is_well(world: World) -> None:
    assert [(one.verdict, one.subject, one.found) for one in await world.run(check)] == [
        ("ok", SUBJECT, "2 replicas, all ready"),
        ("ok", PODS, "they run kubevirt-webhook:1, not all on one node"),
    ]


@pytest.mark.parametrize(
    ("replicas", "ready", "verdict", "text"),
    [
        (2, 0, "failure", "none of 2 replicas is ready, so that nobody judges"),
        (2, 1, "warning", "1 of 2 replicas are ready, 1 are of the newest template"),
        (1, 1, "warning", "one replica only, so that nobody judges while it moves"),
        (3, 3, "ok", "3 replicas, all ready"),
    ],
)
async def test_how_many_are_ready(world: World, replicas: int, ready: int, verdict: str, text: str) -> None:
    world.deployment(replicas=replicas, ready=ready)

    finding = (await world.run(check))[0]

    assert (finding.subject, finding.verdict, finding.found) == (SUBJECT, verdict, text)


async def test_pods_on_the_scheduler_that_we_hand_vms_to(world: World) -> None:
    world.deployment(scheduler="kubevirt")

    (text,) = said(await world.run(check), "failure")

    assert text.startswith(f"{SUBJECT}: its pods are placed by kubevirt")


async def test_pods_that_differ(world: World) -> None:
    world.replica("b", "node-b", image="kubevirt-webhook:2")

    assert said(await world.run(check), "warning") == [
        f"{PODS}: they run different images: kubevirt-webhook:1, kubevirt-webhook:2"
    ]


async def test_pods_on_one_node(world: World) -> None:
    world.replica("b", "node-a")

    assert said(await world.run(check), "warning") == [f"{PODS}: all run on the node node-a, and end with it"]


async def test_pods_that_have_ended_don_t_count(world: World) -> None:
    world.replica("c", "node-a", image="old")
    world.server.held(views.PODS)[NS, f"{NS}-c"]["status"]["phase"] = "Failed"

    assert said(await world.run(check), "warning") == []


async def test_what_protects_them_is_missing(world: World) -> None:
    world.server.remove(views.BUDGETS, NS, NS)
    for resource in views.FLOW:
        world.server.remove(resource, NS)

    assert [text.partition(":")[0] for text in said(await world.run(check), "warning")] == [
        f"PodDisruptionBudget {NS}/{NS}",
        f"PriorityLevelConfiguration {NS}",
        f"FlowSchema {NS}",
    ]


async def test_there_is_none(world: World) -> None:
    world.server.remove(views.DEPLOYMENTS, NS, NS)
    for name in ("a", "b"):
        world.server.remove(views.PODS, f"{NS}-{name}", NS)

    assert said(await world.run(check), "failure") == [f"{SUBJECT}: it isn't there"]


async def test_there_needs_to_be_none_for_a_server_elsewhere(world: World) -> None:
    world.url = "https://localhost:8443"
    world.server.remove(views.DEPLOYMENTS, NS, NS)
    world.server.remove(views.BUDGETS, NS, NS)

    findings = await world.run(check)

    assert {one.verdict for one in findings} == {"ok"}
