from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tests.doctor.world import DoctorWorld, codes
from webhook.cluster.reader import RESOURCES
from webhook.doctor.optin import check_opt_in
from webhook.k8s.resources import NAMESPACES

DOMAIN = "kubevirt-webhook.github.io"
CLUSTER = RESOURCES["VirtualMachineClusterInstancetype"]
NAMESPACED = RESOURCES["VirtualMachineInstancetype"]


async def test_how_far_the_policies_reach(world: DoctorWorld) -> None:
    world.namespace("a", labels={f"{DOMAIN}/scheduling": "warn", f"{DOMAIN}/migration": "off"})
    eviction = msgspec.structs.replace(world.settings.eviction, cluster_wide=True)
    world.settings = msgspec.structs.replace(world.settings, eviction=eviction)

    (finding,) = await world.run(check_opt_in)

    assert (finding.verdict, finding.code) == ("ok", "opted-in")
    assert finding.found.split("; ") == [
        "5 namespaces",
        "scheduling: 1 enforce, 1 warn",
        "migration: 1 off",
        "instancetypes: none",
        "eviction (cluster-wide): 2 enforce",
    ]


async def test_where_nobody_opted_in(world: DoctorWorld) -> None:
    world.server.remove(NAMESPACES, "demo")

    (finding,) = await world.run(check_opt_in)

    assert (finding.verdict, finding.code) == ("warning", "none-opted-in")
    assert finding.found.startswith("0 of 3 namespaces")


@pytest.mark.parametrize(
    ("key", "value", "code", "advice"),
    [
        ("scheduling", "enforced", "mode-invalid", "did you mean enforce?"),
        ("scheduling", "yes", "mode-invalid", "warn, audit or off"),
        ("schedulling", "enforce", "label-unknown", f"did you mean {DOMAIN}/scheduling?"),
        ("xyz", "enforce", "label-unknown", "scheduling, migration,"),
        ("scheduler-name", "kubevirt", "label-is-annotation", "annotation"),
    ],
)
async def test_labels_that_do_nothing(world: DoctorWorld, key: str, value: str, code: str, advice: str) -> None:
    world.namespace("a", labels={f"{DOMAIN}/{key}": value, "unrelated": "x"})

    (finding,) = [one for one in await world.run(check_opt_in) if one.subject == "Namespace a"]

    assert (finding.verdict, finding.code) == ("warning", code)
    assert f"{DOMAIN}/{key}" in finding.found
    assert advice in finding.todo


@pytest.mark.parametrize(("mode", "told"), [("enforce", True), ("off", False)])
async def test_a_label_on_a_namespace_that_is_never_judged(world: DoctorWorld, mode: str, told: bool) -> None:
    world.namespace("kube-system", labels={f"{DOMAIN}/scheduling": mode})

    warnings = codes(await world.run(check_opt_in), "warning")

    assert ("Namespace kube-system: namespace-excluded" in warnings) is told


@pytest.mark.parametrize(
    ("key", "value", "code", "advice"),
    [
        ("scheduling", "enforce", "annotation-is-label", "label"),
        ("scheduler", "kubevirt", "annotation-unknown", f"did you mean {DOMAIN}/scheduler-name?"),
        ("scheduler-name", "volcano", "scheduler-undeclared", "kubevirt"),
        ("default-preference-scope", "some", "annotation-invalid", "unsized or all"),
        ("expand-instancetypes", "yes", "annotation-invalid", "true or false"),
        ("spread", "node", "annotation-invalid", "hostname, zone or both"),
        ("default-instancetype", "a b", "default-invalid", ""),
        ("default-instancetype", "small", "default-missing", ""),
        ("default-preference", "virtualmachinepreference/linux", "default-missing", ""),
    ],
)
async def test_annotations_that_do_nothing(world: DoctorWorld, key: str, value: str, code: str, advice: str) -> None:
    world.namespace("a", annotations={f"{DOMAIN}/{key}": value, "unrelated": "x"})

    (finding,) = [one for one in await world.run(check_opt_in) if one.subject == "Namespace a"]

    assert (finding.verdict, finding.code) == ("warning", code)
    assert f"{DOMAIN}/{key}" in finding.found
    assert advice in finding.todo


@pytest.mark.parametrize(
    "annotations",
    [
        {"scheduler-name": "kubevirt"},
        {"default-preference-scope": "all", "expand-instancetypes": "true"},
        {"default-instancetype": "small"},
        {"default-instancetype": "VirtualMachineInstancetype/own"},
        {"allowed-instancetypes": "*"},
    ],
)
async def test_annotations_that_mean_something(world: DoctorWorld, annotations: dict[str, str]) -> None:
    world.server.put(CLUSTER, "small")
    world.server.put(NAMESPACED, "own", "a")
    world.namespace("a", annotations={f"{DOMAIN}/{key}": value for key, value in annotations.items()})

    assert [one.subject for one in await world.run(check_opt_in)] == ["coverage"]


@pytest.mark.parametrize(
    ("field", "given", "told"),
    [
        ("default_instancetype", "small", True),
        ("default_preference", "linux", True),
        ("default_instancetype", "VirtualMachineInstancetype/own", False),
        ("default_instancetype", "", False),
    ],
)
async def test_defaults_of_the_settings(world: DoctorWorld, field: str, given: Any, told: bool) -> None:
    instancetypes = msgspec.structs.replace(world.settings.instancetypes, **{field: given})
    world.settings = msgspec.structs.replace(world.settings, instancetypes=instancetypes)

    assert ("settings: default-missing" in codes(await world.run(check_opt_in), "warning")) is told


async def test_a_default_that_may_not_be_read(world: DoctorWorld) -> None:
    world.namespace("a", annotations={f"{DOMAIN}/default-instancetype": "small"})
    world.forbid(CLUSTER, name="small")

    findings = await world.run(check_opt_in)

    assert codes(findings, "unknown") == ["Namespace a: unreadable"]
    assert any("grant get on virtualmachineclusterinstancetypes" in finding.found for finding in findings)


async def test_who_may_not_list_namespaces(world: DoctorWorld) -> None:
    world.forbid(NAMESPACES)

    assert [one.verdict for one in await world.run(check_opt_in)] == ["unknown"]
