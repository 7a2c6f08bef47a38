from __future__ import annotations

from typing import Any

import pytest

from tests.doctor.world import PROFILE, World, codes
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
    (finding,) = await looked(world)

    assert (finding.verdict, finding.code) == ("ok", "profile-correct")
    assert finding.found.startswith(f"{WHERE} ")


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

    assert codes(findings, "warning") == ["profile kubevirt: image-locality-enabled"] * spreads_badly
    failures = [finding for finding in findings if finding.verdict == "failure"]
    assert [finding.code for finding in failures] == ["filters-disabled"] * bool(lost)
    assert all(finding.found.endswith(f": {lost}") for finding in failures)


async def test_a_second_profile_of_the_default_name(world: World) -> None:
    world.scheduler({"schedulerName": "default-scheduler"}, PROFILE)

    assert codes(await looked(world), "warning") == ["profile kubevirt: default-profile"]


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

    assert codes(await looked(world), "unknown") == ["profile kubevirt: profile-not-found"]


async def test_a_config_map_that_isn_t_there(world: World) -> None:
    world.server.remove(views.CONFIG_MAPS, "scheduler", "kubevirt-scheduler")

    assert codes(await looked(world), "unknown") == ["profile kubevirt: profile-not-found"]


async def test_one_whose_place_nobody_knows(world: World) -> None:
    findings = await looked(world, SchedulerHealthSettings("pods"))

    assert codes(findings, "unknown") == ["profile kubevirt: profile-not-located"]


@pytest.mark.parametrize(("resource", "name"), [(views.DEPLOYMENTS, ""), (views.CONFIG_MAPS, "scheduler")])
async def test_rights_that_are_missing(world: World, resource: Any, name: str) -> None:
    world.forbid(resource, "kubevirt-scheduler", name)

    (finding,) = await looked(world)

    assert (finding.verdict, finding.code) == ("unknown", "unreadable")
    assert f"on {resource.plural}" in finding.found
