from __future__ import annotations

from typing import Any

import pytest

from tests.doctor.world import PROFILE, World, said
from webhook.doctor.checks.profiles import check
from webhook.doctor.support import views
from webhook.doctor.support.finding import Finding
from webhook.doctor.support.installation import Installation
from webhook.settings.snapshot import SchedulerHealthSettings, SchedulerSettings

GUARD = SchedulerHealthSettings("lease", "kubevirt-scheduler", "kubevirt-scheduler")
WHERE = "ConfigMap kubevirt-scheduler/scheduler"


async def looked(world: World, guard: SchedulerHealthSettings = GUARD) -> list[Finding]:
    async def one(installation: Installation) -> list[Finding]:
        return await check(installation, SchedulerSettings("kubevirt", guard))

    return await world.run(one)


def profile(**plugins: Any) -> dict[str, Any]:
    return {"schedulerName": "kubevirt", "plugins": plugins}


def off(*names: str) -> dict[str, Any]:
    return {"disabled": [{"name": name} for name in names]}


async def test_one_that_does_what_vms_need(world: World) -> None:
    assert said(await looked(world), "ok") == [
        f"profile kubevirt: {WHERE} disables ImageLocality, and nothing that VMs need"
    ]


@pytest.mark.parametrize(
    ("given", "spreads_badly", "lost"),
    [
        ({}, True, ""),
        ({"score": off("ImageLocality")}, False, ""),
        ({"multiPoint": off("ImageLocality")}, False, ""),
        ({"score": off("*")}, False, ""),
        ({"score": {**off("*"), "enabled": [{"name": "ImageLocality"}]}}, True, ""),
        ({"multiPoint": off("ImageLocality"), "score": {"enabled": [{"name": "ImageLocality"}]}}, True, ""),
        ({"multiPoint": {"enabled": [{"name": "ImageLocality"}]}, "score": off("ImageLocality")}, False, ""),
        ({"score": off("ImageLocality"), "filter": off("TaintToleration")}, False, "TaintToleration"),
        ({"multiPoint": off("ImageLocality", "InterPodAffinity")}, False, "InterPodAffinity"),
        (
            {"multiPoint": off("*")},
            False,
            "TaintToleration, InterPodAffinity, NodeAffinity, NodeResourcesFit and 1 more",
        ),
        ({"score": off("ImageLocality", "InterPodAffinity")}, False, ""),
        ({"score": "none", "filter": [], "multiPoint": {"disabled": "x"}}, True, ""),
    ],
)
async def test_plugins(world: World, given: dict[str, Any], spreads_badly: bool, lost: str) -> None:
    world.scheduler(profile(**given))

    findings = await looked(world)

    assert bool(said(findings, "warning")) is spreads_badly
    failed = said(findings, "failure")
    assert failed == (
        [f"profile kubevirt: {WHERE} disables {lost}, without which VMs are placed where they can't run"]
        if lost
        else []
    )


async def test_a_second_profile_of_the_default_name(world: World) -> None:
    world.scheduler({"schedulerName": "default-scheduler"}, PROFILE)

    (text,) = said(await looked(world), "warning")

    assert text == f"profile kubevirt: {WHERE} has a profile default-scheduler too"


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "[1]",
        "kind: Other",
        "kind: KubeSchedulerConfiguration",
        "kind: KubeSchedulerConfiguration\nprofiles: [1, {}]",
    ],
)
async def test_config_maps_that_hold_something_else(world: World, text: str) -> None:
    world.scheduler(text=text)

    assert said(await looked(world), "unknown") == [
        "profile kubevirt: no Deployment in kubevirt-scheduler mounts a ConfigMap with it"
    ]


async def test_a_config_map_that_isn_t_there(world: World) -> None:
    world.server.remove(views.CONFIG_MAPS, "scheduler", "kubevirt-scheduler")

    assert len(said(await looked(world), "unknown")) == 1


async def test_one_whose_place_nobody_knows(world: World) -> None:
    assert said(await looked(world, SchedulerHealthSettings("pods")), "unknown") == [
        "profile kubevirt: where it runs is not known: its guard names no Lease"
    ]


@pytest.mark.parametrize(("resource", "name"), [(views.DEPLOYMENTS, ""), (views.CONFIG_MAPS, "scheduler")])
async def test_rights_that_are_missing(world: World, resource: Any, name: str) -> None:
    world.forbid(resource, "kubevirt-scheduler", name)

    (text,) = said(await looked(world), "unknown")

    assert f"on {resource.plural}" in text
