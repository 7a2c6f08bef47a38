from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tests.doctor.world import World, said
from webhook.doctor.checks.kubevirt import check
from webhook.doctor.support.views import KUBEVIRTS

SUBJECT = "KubeVirt kubevirt/kubevirt"


async def test_all_is_well(world: World) -> None:
    world.kubevirt(evictionStrategy="LiveMigrate", developerConfiguration={"featureGates": ["Sidecar"]})

    assert said(await world.run(check), "ok") == [
        f"{SUBJECT}: version 1.8, which knows addedNodeSelector",
        (
            f"{SUBJECT}: evictionStrategy LiveMigrate, vmRolloutStrategy LiveUpdate, "
            "instancetype.referencePolicy reference, feature gates: Sidecar"
        ),
    ]


@pytest.mark.parametrize(
    ("version", "verdict"),
    [
        ("v1.6.0", "ok"),
        ("v1.9.3", "ok"),
        ("v1.10.2", "warning"),
        ("v1.5.9", "warning"),
        ("", "unknown"),
        ("main", "unknown"),
    ],
)
async def test_versions(world: World, version: str, verdict: str) -> None:
    world.kubevirt(version=version)

    assert (await world.run(check))[0].verdict == verdict


async def test_an_update(world: World) -> None:
    status = {"phase": "Deploying", "observedKubeVirtVersion": "v1.8.4", "targetKubeVirtVersion": "v1.9.0"}
    world.server.put(KUBEVIRTS, "kubevirt", "kubevirt", spec={}, status=status)

    texts = said(await world.run(check), "ok")
    assert any("the rules of 1.8.4 count" in text for text in texts)


@pytest.mark.parametrize(("version", "verdict"), [("v1.8.1", "ok"), ("1.9", "warning")])
async def test_a_version_in_the_settings(world: World, version: str, verdict: str) -> None:
    world.kubevirt(version="v1.8.1")
    world.settings = msgspec.structs.replace(world.settings, kubevirt_version=version)

    findings = await world.run(check)

    assert [one.verdict for one in findings if "settings say version" in one.found] == [verdict]


@pytest.mark.parametrize(("said_to_be", "verdict"), [("", "ok"), ("kubevirt", "ok"), ("openshift-cnv", "failure")])
async def test_where_the_settings_say_that_it_runs(world: World, said_to_be: str, verdict: str) -> None:
    scheduling = msgspec.structs.replace(world.settings.scheduling, kubevirt_namespace=said_to_be)
    world.settings = msgspec.structs.replace(world.settings, scheduling=scheduling)

    assert (await world.run(check))[0].verdict == verdict


@pytest.mark.parametrize(("mode", "told"), [("enforce", True), ("audit", True), ("off", False)])
async def test_evictions_that_shut_vms_down(world: World, mode: str, told: bool) -> None:
    world.namespace("demo", labels={"kubevirt-webhook.github.io/eviction": mode})

    assert any("evictionStrategy is None" in text for text in said(await world.run(check), "warning")) is told


async def test_the_object_that_the_operator_has_taken_up_counts(world: World) -> None:
    world.server.put(KUBEVIRTS, "another", "elsewhere", spec={})

    assert {one.subject for one in await world.run(check)} == {SUBJECT}


@pytest.mark.parametrize("fields", [{"spec": {"configuration": 7}}, {"status": {"phase": 7}}])
async def test_malformed_ones(world: World, fields: dict[str, Any]) -> None:
    state = {"phase": "Deployed", "observedKubeVirtVersion": "v1.8.1"}
    world.server.put(KUBEVIRTS, "kubevirt", "kubevirt", **{"spec": {}, "status": state, **fields})

    assert any("its configuration can't be read: " in text for text in said(await world.run(check), "warning"))


async def test_a_cluster_without(world: World) -> None:
    world.server.remove(KUBEVIRTS, "kubevirt", "kubevirt")

    assert said(await world.run(check), "failure") == ["KubeVirt: there is no KubeVirt object"]


async def test_who_may_not_list_them(world: World) -> None:
    world.forbid(KUBEVIRTS)

    assert [one.verdict for one in await world.run(check)] == ["unknown"]
