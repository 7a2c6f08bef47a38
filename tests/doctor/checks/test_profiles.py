from __future__ import annotations

from typing import Any

import pytest
import yaml

from tests.doctor.world import PROFILE, DoctorWorld, codes
from tests.install.schedulers.configurations import configuration
from webhook.doctor.checks.profiles import check
from webhook.doctor.support import views
from webhook.doctor.support.finding import Finding
from webhook.doctor.support.installation import Installation
from webhook.settings.snapshot import SchedulerHealthSettings, SchedulerSettings

GUARD = SchedulerHealthSettings("lease", "kubevirt-scheduler", "kubevirt-scheduler")
MOUNTING = {"template": {"spec": {"volumes": [{"configMap": {"name": "scheduler"}}]}}}
WHERE = "ConfigMap kubevirt-scheduler/scheduler"


async def looked(world: DoctorWorld, guard: SchedulerHealthSettings = GUARD) -> list[Finding]:
    async def one(installation: Installation) -> list[Finding]:
        return await check(installation, SchedulerSettings("kubevirt", guard))

    return await world.run(one)


def profile(**plugins: Any) -> dict[str, Any]:
    return {"schedulerName": "kubevirt", "plugins": plugins}


def off(*names: str) -> dict[str, Any]:
    return {"disabled": [{"name": name} for name in names]}


async def test_one_that_does_what_vms_need(world: DoctorWorld) -> None:
    (finding,) = await looked(world)

    assert (finding.verdict, finding.code) == ("ok", "profile-correct")
    assert finding.found.startswith(f"{WHERE} ")


@pytest.mark.parametrize(
    ("given", "failures", "warnings"),
    [
        ({}, [], ["image-locality-on"]),
        ({"score": off("ImageLocality")}, [], []),
        ({"score": off("ImageLocality"), "filter": off("TaintToleration")}, ["filter-off"], []),
        ({"score": off("ImageLocality", "InterPodAffinity")}, [], []),
        ({"score": "none", "filter": [], "multiPoint": {"disabled": "x"}}, [], ["image-locality-on"]),
    ],
)
async def test_mistakes_of_a_configuration_are_those_that_lint_finds(
    world: DoctorWorld, given: dict[str, Any], failures: list[str], warnings: list[str]
) -> None:
    world.scheduler(profile(**given))

    findings = await looked(world)

    assert codes(findings, "failure") == [f"profile kubevirt: {code}" for code in failures]
    assert codes(findings, "warning") == [f"profile kubevirt: {code}" for code in warnings]
    assert all(finding.found.startswith(f"{WHERE}") and finding.todo for finding in findings if finding.verdict != "ok")


async def test_a_second_profile_of_the_default_name(world: DoctorWorld) -> None:
    world.scheduler({"schedulerName": "default-scheduler"}, PROFILE)

    assert codes(await looked(world), "failure") == ["profile kubevirt: default-profile-twice"]


async def test_the_clusters_own_scheduler_needs_the_default_profile(world: DoctorWorld) -> None:
    world.server.put(views.DEPLOYMENTS, "scheduler", "kube-system", spec=MOUNTING)
    world.server.put(views.CONFIG_MAPS, "scheduler", "kube-system", data={"c": yaml.safe_dump(configuration(PROFILE))})

    findings = await looked(world, SchedulerHealthSettings("lease", "kube-system", "kube-scheduler"))

    assert codes(findings, "failure") == ["profile kubevirt: default-profile-missing"]


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
async def test_config_maps_that_hold_something_else(world: DoctorWorld, text: str) -> None:
    world.scheduler(text=text)

    assert codes(await looked(world), "unknown") == ["profile kubevirt: profile-not-found"]


async def test_a_config_map_that_isn_t_there(world: DoctorWorld) -> None:
    world.server.remove(views.CONFIG_MAPS, "scheduler", "kubevirt-scheduler")

    assert codes(await looked(world), "unknown") == ["profile kubevirt: profile-not-found"]


async def test_one_whose_place_nobody_knows(world: DoctorWorld) -> None:
    findings = await looked(world, SchedulerHealthSettings("pods"))

    assert codes(findings, "unknown") == ["profile kubevirt: profile-not-located"]


@pytest.mark.parametrize(("resource", "name"), [(views.DEPLOYMENTS, ""), (views.CONFIG_MAPS, "scheduler")])
async def test_rights_that_are_missing(world: DoctorWorld, resource: Any, name: str) -> None:
    world.forbid(resource, "kubevirt-scheduler", name)

    (finding,) = await looked(world)

    assert (finding.verdict, finding.code) == ("unknown", "unreadable")
    assert f"on {resource.plural}" in finding.found
