from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tests.definitions import definitions
from tests.doctor.world import DoctorWorld, codes
from webhook.doctor.checks.kubevirt import check
from webhook.kubevirt.definitions import DEFINITIONS, NAMES
from webhook.kubevirt.releases import fields
from webhook.kubevirt.resources import KUBEVIRTS

SUBJECT = "KubeVirt kubevirt/kubevirt"


async def test_all_is_well(world: DoctorWorld) -> None:
    world.kubevirt(evictionStrategy="LiveMigrate", developerConfiguration={"featureGates": ["Sidecar"]})

    findings = await world.run(check)

    assert codes(findings, "ok") == [f"{SUBJECT}: version-supported", f"{SUBJECT}: configuration"]
    assert findings[1].found.endswith(": Sidecar")


@pytest.mark.parametrize(
    ("version", "verdict", "code"),
    [
        ("v1.6.0", "ok", "version-supported"),
        ("v1.9.3", "ok", "version-supported"),
        ("v1.10.2", "warning", "version-new"),
        ("v1.5.9", "warning", "version-old"),
        ("", "unknown", "version-unknown"),
        ("main", "unknown", "version-unknown"),
    ],
)
async def test_versions(world: DoctorWorld, version: str, verdict: str, code: str) -> None:
    world.kubevirt(version=version)

    finding = (await world.run(check))[0]

    assert (finding.verdict, finding.code) == (verdict, code)


async def test_an_update(world: DoctorWorld) -> None:
    status = {"phase": "Deploying", "observedKubeVirtVersion": "v1.8.4", "targetKubeVirtVersion": "v1.9.0"}
    world.server.put(KUBEVIRTS, "kubevirt", "kubevirt", spec={}, status=status)

    (finding,) = [one for one in await world.run(check) if one.code == "updating"]

    assert finding.verdict == "ok"
    assert "1.8.4" in finding.found


@pytest.mark.parametrize(
    ("version", "verdict", "code"), [("v1.8.1", "ok", "version-declared"), ("1.9", "warning", "version-differs")]
)
async def test_a_version_in_the_settings(world: DoctorWorld, version: str, verdict: str, code: str) -> None:
    world.kubevirt(version="v1.8.1")
    world.settings = msgspec.structs.replace(world.settings, kubevirt_version=version)

    findings = await world.run(check)

    assert (verdict, code) in [(one.verdict, one.code) for one in findings]


@pytest.mark.parametrize(("said_to_be", "verdict"), [("", "ok"), ("kubevirt", "ok"), ("openshift-cnv", "failure")])
async def test_where_the_settings_say_that_it_runs(world: DoctorWorld, said_to_be: str, verdict: str) -> None:
    scheduling = msgspec.structs.replace(world.settings.scheduling, kubevirt_namespace=said_to_be)
    world.settings = msgspec.structs.replace(world.settings, scheduling=scheduling)

    assert (await world.run(check))[0].verdict == verdict


@pytest.mark.parametrize(("mode", "told"), [("enforce", True), ("audit", True), ("off", False)])
async def test_evictions_that_shut_vms_down(world: DoctorWorld, mode: str, told: bool) -> None:
    world.namespace("demo", labels={"kubevirt-webhook.github.io/eviction": mode})

    assert (f"{SUBJECT}: evictions-shut-down" in codes(await world.run(check), "warning")) is told


async def test_the_object_that_the_operator_has_taken_up_counts(world: DoctorWorld) -> None:
    world.server.put(KUBEVIRTS, "another", "elsewhere", spec={})

    assert {one.subject for one in await world.run(check)} == {SUBJECT}


async def test_a_malformed_configuration(world: DoctorWorld) -> None:
    world.kubevirt(cpuModel=7)

    assert f"{SUBJECT}: configuration-invalid" in codes(await world.run(check), "warning")


@pytest.mark.parametrize("fields", [{"spec": {"configuration": 7}}, {"status": {"phase": 7}}])
async def test_malformed_objects(world: DoctorWorld, fields: dict[str, Any]) -> None:
    """The CRD's schema excludes them; the server cannot read them either."""
    world.server.put(KUBEVIRTS, "kubevirt", "kubevirt", **fields)

    assert codes(await world.run(check), "warning") == ["KubeVirt: configuration-invalid"]


async def test_a_cluster_without(world: DoctorWorld) -> None:
    world.server.remove(KUBEVIRTS, "kubevirt", "kubevirt")

    assert codes(await world.run(check), "failure") == ["KubeVirt: missing"]


async def test_who_may_not_list_them(world: DoctorWorld) -> None:
    world.forbid(KUBEVIRTS)

    assert [one.verdict for one in await world.run(check)] == ["unknown"]


class TestFields:
    """What says which fields KubeVirt knows: its definitions, or tables where they cannot be read."""

    def put(self, world: DoctorWorld, *without: str) -> None:
        world.server.serve(DEFINITIONS)
        for each in definitions({fields.PREFERENCE: without}):
            world.server.put(DEFINITIONS, each["metadata"]["name"], spec=each["spec"])

    async def codes(self, world: DoctorWorld) -> list[tuple[str, str]]:
        return [(one.verdict, one.code) for one in await world.run(check) if one.code.startswith("fields")]

    async def test_nothing_is_said_where_both_agree(self, world: DoctorWorld) -> None:
        world.kubevirt(version="v1.9.0")
        self.put(world)

        assert await self.codes(world) == []

    async def test_what_differs_is_named(self, world: DoctorWorld) -> None:
        world.kubevirt(version="v1.8.4")
        self.put(world, "preferredSubdomain")

        (finding,) = [one for one in await world.run(check) if one.code.startswith("fields")]

        assert (finding.verdict, finding.code) == ("ok", "fields-differ")
        assert "preferredVideoType" in finding.found
        assert finding.found.endswith("lack preferredSubdomain")

    async def test_of_an_unknown_release_nothing_can_differ(self, world: DoctorWorld) -> None:
        world.kubevirt(version="devel")
        world.server.serve(DEFINITIONS)

        assert await self.codes(world) == []

    async def test_without_the_permission_the_tables_count(self, world: DoctorWorld) -> None:
        world.kubevirt(version="v1.8.4")
        world.server.fail(DEFINITIONS.path(name=NAMES[fields.MACHINE]), 403, "Forbidden")

        assert await self.codes(world) == [("warning", "fields-unreadable")]
