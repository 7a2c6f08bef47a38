from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tests.definitions import definitions
from tests.doctor.world import DoctorWorld, codes
from webhook import names
from webhook.doctor.kubevirt import POOLS, VMS, Pool, check_kubevirt, check_nodes, check_pools
from webhook.k8s.resources import NAMESPACES, NODES_WITH_IMAGES
from webhook.kubevirt.definitions import DEFINITIONS, NAMES
from webhook.kubevirt.releases import fields
from webhook.kubevirt.resources import KUBEVIRTS

SUBJECT = "KubeVirt kubevirt/kubevirt"
NEWEST, OLDER = POOLS
MARKED = {names.INJECTED_INSTANCETYPE_ANNOTATION: "VirtualMachineClusterInstancetype/u1.small"}


async def test_all_is_well(world: DoctorWorld) -> None:
    world.kubevirt(evictionStrategy="LiveMigrate", developerConfiguration={"featureGates": ["Sidecar"]})

    findings = await world.run(check_kubevirt)

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

    finding = (await world.run(check_kubevirt))[0]

    assert (finding.verdict, finding.code) == (verdict, code)


async def test_an_update(world: DoctorWorld) -> None:
    status = {"phase": "Deploying", "observedKubeVirtVersion": "v1.8.4", "targetKubeVirtVersion": "v1.9.0"}
    world.server.put(KUBEVIRTS, "kubevirt", "kubevirt", spec={}, status=status)

    (finding,) = [one for one in await world.run(check_kubevirt) if one.code == "updating"]

    assert finding.verdict == "ok"
    assert "1.8.4" in finding.found


@pytest.mark.parametrize(
    ("version", "verdict", "code"), [("v1.8.1", "ok", "version-declared"), ("1.9", "warning", "version-differs")]
)
async def test_a_version_in_the_settings(world: DoctorWorld, version: str, verdict: str, code: str) -> None:
    world.kubevirt(version="v1.8.1")
    world.settings = world.settings.with_kubevirt_version(version)

    findings = await world.run(check_kubevirt)

    assert (verdict, code) in [(one.verdict, one.code) for one in findings]


@pytest.mark.parametrize(("said_to_be", "verdict"), [("", "ok"), ("kubevirt", "ok"), ("openshift-cnv", "failure")])
async def test_where_the_settings_say_that_it_runs(world: DoctorWorld, said_to_be: str, verdict: str) -> None:
    scheduling = msgspec.structs.replace(world.settings.scheduling, kubevirt_namespace=said_to_be)
    world.settings = msgspec.structs.replace(world.settings, scheduling=scheduling)

    assert (await world.run(check_kubevirt))[0].verdict == verdict


@pytest.mark.parametrize(("mode", "told"), [("enforce", True), ("audit", True), ("off", False)])
async def test_evictions_that_shut_vms_down(world: DoctorWorld, mode: str, told: bool) -> None:
    world.namespace("demo", labels={"kubevirt-webhook.github.io/eviction": mode})

    assert (f"{SUBJECT}: evictions-shut-down" in codes(await world.run(check_kubevirt), "warning")) is told


async def test_the_object_that_the_operator_has_taken_up_counts(world: DoctorWorld) -> None:
    world.server.put(KUBEVIRTS, "another", "elsewhere", spec={})

    assert {one.subject for one in await world.run(check_kubevirt)} == {SUBJECT}


async def test_a_malformed_configuration(world: DoctorWorld) -> None:
    world.kubevirt(cpuModel=7)

    assert f"{SUBJECT}: configuration-invalid" in codes(await world.run(check_kubevirt), "warning")


@pytest.mark.parametrize("fields", [{"spec": {"configuration": 7}}, {"status": {"phase": 7}}])
async def test_malformed_objects(world: DoctorWorld, fields: dict[str, Any]) -> None:
    """The CRD's schema excludes them; the server cannot read them either."""
    world.server.put(KUBEVIRTS, "kubevirt", "kubevirt", **fields)

    assert codes(await world.run(check_kubevirt), "warning") == ["KubeVirt: configuration-invalid"]


async def test_a_cluster_without(world: DoctorWorld) -> None:
    world.server.remove(KUBEVIRTS, "kubevirt", "kubevirt")

    assert codes(await world.run(check_kubevirt), "failure") == ["KubeVirt: missing"]


async def test_who_may_not_list_them(world: DoctorWorld) -> None:
    world.forbid(KUBEVIRTS)

    assert [one.verdict for one in await world.run(check_kubevirt)] == ["unknown"]


class TestFields:
    """What says which fields KubeVirt knows: its definitions, or tables where they cannot be read."""

    def put(self, world: DoctorWorld, *without: str) -> None:
        world.server.serve(DEFINITIONS)
        for each in definitions({fields.PREFERENCE: without}):
            world.server.put(DEFINITIONS, each["metadata"]["name"], spec=each["spec"])

    async def codes(self, world: DoctorWorld) -> list[tuple[str, str]]:
        return [(one.verdict, one.code) for one in await world.run(check_kubevirt) if one.code.startswith("fields")]

    async def test_nothing_is_said_where_both_agree(self, world: DoctorWorld) -> None:
        world.kubevirt(version="v1.9.0")
        self.put(world)

        assert await self.codes(world) == []

    async def test_what_differs_is_named(self, world: DoctorWorld) -> None:
        world.kubevirt(version="v1.8.4")
        self.put(world, "preferredSubdomain")

        (finding,) = [one for one in await world.run(check_kubevirt) if one.code.startswith("fields")]

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


def put_pool(
    world: DoctorWorld, name: str = "web", resource: Any = NEWEST, *, marked: bool = True, **spec: Any
) -> None:
    world.server.put(resource, name, "shop", spec={"virtualMachineTemplate": {"spec": spec}})
    owner = {"apiVersion": "pool.kubevirt.io/v1beta1", "kind": "VirtualMachinePool", "name": name, "controller": True}
    metadata = {"ownerReferences": [owner], "annotations": MARKED if marked else {}}
    world.server.put(VMS, f"{name}-0", "shop", metadata=metadata)


def put_namespace(world: DoctorWorld, mode: str) -> None:
    world.server.put(NAMESPACES, "shop", metadata={"labels": {names.policy_label(names.INSTANCETYPES): mode}})


async def test_without_pools_all_is_well(world: DoctorWorld) -> None:
    (finding,) = await world.run(check_pools)

    assert (finding.check, finding.code, finding.verdict, finding.todo) == ("pools", "no-pools", "ok", "")


@pytest.mark.parametrize("resource", POOLS)
@pytest.mark.parametrize(("mode", "verdict"), [("enforce", "ok"), ("warn", "warning"), ("off", "warning")])
async def test_a_pool_that_lives_by_a_default(world: DoctorWorld, resource: Any, mode: str, verdict: str) -> None:
    put_namespace(world, mode)
    put_pool(world, resource=resource)

    (finding,) = await world.run(check_pools)

    assert (finding.verdict, finding.code) == (verdict, "size-by-default" if verdict == "ok" else "size-at-risk")
    assert finding.found.endswith(": shop/web")
    assert finding.todo


@pytest.mark.parametrize(
    ("marked", "spec"),
    [
        (True, {"instancetype": {"name": "u1.small"}}),
        (True, {"template": {"spec": {"domain": {"memory": {"guest": "1Gi"}}}}}),
        (True, {"template": {"spec": {"domain": {"resources": {"requests": {"memory": "1Gi"}}}}}}),
        # Its VMs got nothing from kubevirt-webhook; one that did is of no pool.
        (False, {}),
    ],
)
async def test_a_pool_that_needs_no_default(world: DoctorWorld, marked: bool, spec: dict[str, Any]) -> None:
    put_namespace(world, "off")
    put_pool(world, marked=marked, **spec)
    world.server.put(VMS, "alone", "shop", metadata={"annotations": MARKED})

    (finding,) = await world.run(check_pools)

    assert (finding.verdict, finding.todo) == ("ok", "")


@pytest.mark.parametrize("resource", [NEWEST, VMS])
async def test_what_may_not_be_read_is_said(world: DoctorWorld, resource: Any) -> None:
    put_pool(world)
    world.forbid(resource)

    (finding,) = await world.run(check_pools)

    assert finding.verdict == "unknown"


def test_odd_pools_say_no_size() -> None:
    assert not Pool().is_sized


async def test_nodes_that_tell_of_all_images(world: DoctorWorld) -> None:
    assert codes(await world.run(check_nodes), "ok") == ["images: all-reported"]


async def test_nodes_that_don_t_are_what_the_policy_is_for(world: DoctorWorld) -> None:
    world.node("full", 50)

    findings = await world.run(check_nodes)

    assert codes(findings, "ok") == ["images: policy-applies"]
    assert findings[0].found.startswith("1/4 nodes ")


async def test_where_nobody_opted_in_they_are_told(world: DoctorWorld) -> None:
    world.node("full", 60)
    world.server.remove(NAMESPACES, "demo")

    (finding,) = await world.run(check_nodes)

    assert (finding.verdict, finding.code) == ("warning", "not-all-reported")
    assert "kubevirt-webhook.github.io/scheduling=enforce" in finding.todo


async def test_who_may_not_list_nodes(world: DoctorWorld) -> None:
    world.forbid(NODES_WITH_IMAGES)

    (finding,) = await world.run(check_nodes)

    assert (finding.verdict, finding.code) == ("unknown", "unreadable")
    assert finding.found.endswith("grant list on nodes")
