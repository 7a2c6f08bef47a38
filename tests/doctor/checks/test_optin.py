from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tests.doctor.world import World, said
from webhook.cluster.objects import RESOURCES
from webhook.doctor.checks.optin import check
from webhook.k8s.client.resources import NAMESPACES

DOMAIN = "kubevirt-webhook.github.io"
CLUSTER = RESOURCES["VirtualMachineClusterInstancetype"]
NAMESPACED = RESOURCES["VirtualMachineInstancetype"]


async def test_how_far_the_policies_reach(world: World) -> None:
    world.namespace("a", labels={f"{DOMAIN}/scheduling": "warn", f"{DOMAIN}/migration": "off"})
    eviction = msgspec.structs.replace(world.settings.eviction, cluster_wide=True)
    world.settings = msgspec.structs.replace(world.settings, eviction=eviction)

    assert [(one.verdict, one.found) for one in await world.run(check)] == [
        (
            "ok",
            (
                "of 5 namespaces, scheduling: 1 enforce, 1 warn; migration: 1 off; instancetypes: none; "
                "eviction (cluster-wide): 2 enforce"
            ),
        )
    ]


async def test_where_nobody_opted_in(world: World) -> None:
    world.server.remove(NAMESPACES, "demo")

    (finding,) = await world.run(check)

    assert finding.verdict == "warning"
    assert finding.found.startswith("no namespace has opted in: of 3 namespaces")


@pytest.mark.parametrize(
    ("key", "value", "text", "todo"),
    [
        ("scheduling", "enforced", 'the label scheduling is "enforced", which is no mode', "did you mean enforce?"),
        ("scheduling", "yes", 'the label scheduling is "yes"', "use one of enforce, warn, audit, off"),
        ("schedulling", "enforce", 'the label "schedulling" is none of ours', "did you mean scheduling?"),
        ("xyz", "enforce", 'the label "xyz" is none of ours', "known are scheduling, migration,"),
        ("scheduler-name", "kubevirt", "scheduler-name is a label, where it does nothing", "make it an annotation"),
    ],
)
async def test_labels_that_do_nothing(world: World, key: str, value: str, text: str, todo: str) -> None:
    world.namespace("a", labels={f"{DOMAIN}/{key}": value, "unrelated": "x"})

    (finding,) = [one for one in await world.run(check) if one.subject == "Namespace a"]

    assert finding.verdict == "warning"
    assert finding.found.startswith(text)
    assert finding.todo.startswith(todo)


@pytest.mark.parametrize(("mode", "told"), [("enforce", True), ("off", False)])
async def test_a_label_on_a_namespace_that_is_never_judged(world: World, mode: str, told: bool) -> None:
    world.namespace("kube-system", labels={f"{DOMAIN}/scheduling": mode})

    texts = said(await world.run(check), "warning")

    assert any("scheduling=enforce does nothing: this namespace is never judged" in text for text in texts) is told


@pytest.mark.parametrize(
    ("key", "value", "text", "todo"),
    [
        ("scheduling", "enforce", "scheduling is an annotation, where it does nothing", "make it a label"),
        ("scheduler", "kubevirt", 'the annotation "scheduler" is none of ours', "did you mean scheduler-name?"),
        (
            "scheduler-name",
            "volcano",
            'it names the scheduler "volcano", which the settings don\'t declare',
            "declare it under schedulers, or name one of kubevirt",
        ),
        ("default-preference-scope", "some", 'the annotation default-preference-scope is "some"', "use one of unsized"),
        ("expand-instancetypes", "yes", 'the annotation expand-instancetypes is "yes"', 'use "true" or "false"'),
        (
            "default-instancetype",
            "a b",
            'annotation default-instancetype: "a b" is neither NAME nor KIND/NAME',
            "name a VirtualMachineInstancetype so",
        ),
        (
            "default-instancetype",
            "small",
            "annotation default-instancetype names VirtualMachineClusterInstancetype/small, which isn't there",
            "create it, or name another",
        ),
        (
            "default-preference",
            "virtualmachinepreference/linux",
            "annotation default-preference names VirtualMachinePreference/linux, which isn't there",
            "create it",
        ),
    ],
)
async def test_annotations_that_do_nothing(world: World, key: str, value: str, text: str, todo: str) -> None:
    world.namespace("a", annotations={f"{DOMAIN}/{key}": value, "unrelated": "x"})

    (finding,) = [one for one in await world.run(check) if one.subject == "Namespace a"]

    assert finding.verdict == "warning"
    assert finding.found.startswith(text)
    assert finding.todo.startswith(todo)


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
async def test_annotations_that_mean_something(world: World, annotations: dict[str, str]) -> None:
    world.server.put(CLUSTER, "small")
    world.server.put(NAMESPACED, "own", "a")
    world.namespace("a", annotations={f"{DOMAIN}/{key}": value for key, value in annotations.items()})

    assert [one.subject for one in await world.run(check)] == ["coverage"]


@pytest.mark.parametrize(
    ("field", "given", "told"),
    [
        ("default_instancetype", "small", True),
        ("default_preference", "linux", True),
        ("default_instancetype", "VirtualMachineInstancetype/own", False),
        ("default_instancetype", "", False),
    ],
)
async def test_defaults_of_the_settings(world: World, field: str, given: Any, told: bool) -> None:
    instancetypes = msgspec.structs.replace(world.settings.instancetypes, **{field: given})
    world.settings = msgspec.structs.replace(world.settings, instancetypes=instancetypes)

    assert any(text.startswith("settings: ") for text in said(await world.run(check), "warning")) is told


async def test_a_default_that_may_not_be_read(world: World) -> None:
    world.namespace("a", annotations={f"{DOMAIN}/default-instancetype": "small"})
    world.forbid(CLUSTER, name="small")

    assert any(
        "grant get on virtualmachineclusterinstancetypes" in one for one in said(await world.run(check), "unknown")
    )


async def test_who_may_not_list_namespaces(world: World) -> None:
    world.forbid(NAMESPACES)

    assert [one.verdict for one in await world.run(check)] == ["unknown"]
