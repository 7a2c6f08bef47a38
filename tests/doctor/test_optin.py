from __future__ import annotations

from typing import Any

import pytest

from tests.annotations import MISTAKES
from tests.doctor.world import Change, DoctorWorld, both, forbid, put, remove
from webhook.cluster.reader import RESOURCES
from webhook.doctor.optin import check_opt_in
from webhook.k8s.resources import NAMESPACES
from webhook.names import DOMAIN
from webhook.policies.registry import BY_NAME

CLUSTER = RESOURCES["VirtualMachineClusterInstancetype"]
NAMESPACED = RESOURCES["VirtualMachineInstancetype"]


async def test_how_far_the_policies_reach(world: DoctorWorld) -> None:
    world.opt_in("a", scheduling="warn", migration="off")
    world.set("eviction", cluster_wide=True)

    (finding,) = await world.run(check_opt_in)

    assert (finding.verdict, finding.code) == ("ok", "opted-in")
    count, *reached = finding.found.split("; ")
    expected = ["scheduling: 1 enforce, 1 warn", "migration: 1 off", "eviction (cluster-wide): 2 enforce"]
    assert (count, sorted(reached)) == ("5 namespaces", sorted(expected))


@pytest.mark.parametrize(
    ("kind", "key", "value", "code", "advice"),
    [
        ("labels", "scheduling", "enforced", "mode-invalid", "did you mean enforce?"),
        ("labels", "scheduling", "yes", "mode-invalid", "warn, audit or off"),
        ("labels", "schedulling", "enforce", "label-unknown", f"did you mean {DOMAIN}/scheduling?"),
        ("labels", "xyz", "enforce", "label-unknown", ", ".join(sorted(BY_NAME, reverse=True))),
        ("labels", "scheduler-name", "kubevirt", "label-is-annotation", "annotation"),
        ("annotations", "scheduling", "enforce", "annotation-is-label", "label"),
        ("annotations", "scheduler", "kubevirt", "annotation-unknown", f"did you mean {DOMAIN}/scheduler-name?"),
        ("annotations", "scheduler-name", "volcano", "scheduler-undeclared", "kubevirt"),
        ("annotations", "default-preference-scope", "some", "annotation-invalid", "unsized or all"),
        ("annotations", "expand-instancetypes", "yes", "annotation-invalid", "true or false"),
        ("annotations", "spread", "node", "annotation-invalid", "hostname, zone or both"),
        ("annotations", "default-instancetype", "a b", "default-invalid", ""),
        ("annotations", "default-instancetype", "small", "default-missing", ""),
        ("annotations", "default-preference", "virtualmachinepreference/linux", "default-missing", ""),
    ],
)
async def test_what_does_nothing(world: DoctorWorld, kind: str, key: str, value: str, code: str, advice: str) -> None:
    world.namespace("a", **{kind: {f"{DOMAIN}/{key}": value, "unrelated": "x"}})

    (finding,) = [one for one in await world.run(check_opt_in) if one.subject == "Namespace a"]

    assert (finding.verdict, finding.code) == ("warning", code)
    assert f"{DOMAIN}/{key}" in finding.found
    assert advice in finding.todo


@pytest.mark.parametrize("policy", MISTAKES)
async def test_an_annotation_that_its_policy_cannot_read(world: DoctorWorld, policy: str) -> None:
    mistake = MISTAKES[policy]
    world.namespace("a", annotations={mistake.annotation: mistake.wrong})
    world.namespace("b", annotations={mistake.annotation: mistake.valid})

    (finding,) = [one for one in await world.run(check_opt_in) if one.subject.startswith("Namespace")]

    assert (finding.verdict, finding.code, finding.subject) == ("warning", "annotation-invalid", "Namespace a")
    assert f"annotation {mistake.annotation}" in finding.found
    assert mistake.said in finding.found


@pytest.mark.parametrize(
    ("key", "meant"),
    [
        *(("kubevirt-webhook.github.com/scheduling", "scheduling"), ("kubevirt-webhook.io/migration", "migration")),
        *(("kubevirt-webhook/scheduling", "scheduling"), ("kubevirtwebhook.github.io/spread", "spread")),
        *(("scheduling.kubevirt-webhook.github.io", "scheduling"), ("owner.kubevirt-webhook.github.io", "")),
        *(("kubevirt.io/scheduling", ""), ("scheduling", ""), ("kubevirt-webhook.io/owner", "")),
    ],
)
@pytest.mark.parametrize("kind", ["labels", "annotations"])
async def test_a_prefix_that_is_nearly_right(world: DoctorWorld, kind: str, key: str, meant: str) -> None:
    world.namespace("a", **{kind: {key: "enforce"}})
    found = [one for one in await world.run(check_opt_in) if one.subject == "Namespace a"]
    assert [(one.code, one.todo) for one in found] == ([("prefix-wrong", f"use {DOMAIN}/{meant}")] if meant else [])


@pytest.mark.parametrize(
    ("default", "allowed", "is_told"),
    [("small", "large,m*", True), ("small", "s*", False), ("small", "", True), ("", "large", False)],
)
async def test_a_default_that_is_not_allowed(world: DoctorWorld, default: str, allowed: str, is_told: bool) -> None:
    world.annotate("a", default_instancetype=default, allowed_instancetypes=allowed)
    put(CLUSTER, "small")(world)
    found = [one.code for one in await world.run(check_opt_in) if one.subject == "Namespace a"]
    assert found == (["default-not-allowed"] if is_told else [])


async def test_a_default_of_the_settings_that_the_namespace_does_not_allow(world: DoctorWorld) -> None:
    world.set("instancetypes", default_instancetype="small", allowed=("large",))
    world.annotate("a", allowed_instancetypes="large")
    world.annotate("b", allowed_instancetypes="small")
    put(CLUSTER, "small")(world)
    found = [one.subject for one in await world.run(check_opt_in) if one.code == "default-not-allowed"]
    assert found == ["settings", "Namespace a"]


def setting(field: str, value: str) -> Change:
    return lambda world: world.set("instancetypes", **{field: value})


def excluded(mode: str) -> Change:
    return lambda world: world.opt_in("kube-system", scheduling=mode)


async def test_a_first_policy_that_the_settings_leave_without_effect_is_not_advised(world: DoctorWorld) -> None:
    nothing = [remove(NAMESPACES, "demo"), lambda it: it.set("scheduling", schedulers={})]
    (finding,) = await world.run(check_opt_in, *nothing)
    assert finding.todo.endswith("kubevirt-webhook.github.io/POLICY=warn")

    (finding,) = await world.run(check_opt_in, lambda it: it.set("scheduling", spread="hostname"))
    assert finding.todo.endswith("kubevirt-webhook.github.io/scheduling=warn")


MISSING = ["warning settings: default-missing"]


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (remove(NAMESPACES, "demo"), ["warning coverage: none-opted-in"]),
        (excluded("enforce"), ["warning Namespace kube-system: namespace-excluded"]),
        (excluded("off"), []),
        (setting("default_instancetype", "small"), MISSING),
        (setting("default_preference", "linux"), MISSING),
        (setting("default_instancetype", "VirtualMachineInstancetype/own"), []),
        (setting("default_instancetype", ""), []),
        (
            both(lambda it: it.annotate("a", default_instancetype="small"), forbid(CLUSTER, name="small")),
            ["unknown Namespace a: unreadable"],
        ),
        (forbid(NAMESPACES), ["unknown namespaces: unreadable"]),
    ],
)
async def test_problems(world: DoctorWorld, change: Change, expected: list[str]) -> None:
    assert await world.problems(check_opt_in, change) == expected


@pytest.mark.parametrize(
    "annotations",
    [
        *({"scheduler_name": "kubevirt"}, {"default_preference_scope": "all", "expand_instancetypes": "true"}),
        *({"default_instancetype": "small"}, {"default_instancetype": "VirtualMachineInstancetype/own"}),
        {"allowed_instancetypes": "*"},
    ],
)
async def test_annotations_that_mean_something(world: DoctorWorld, annotations: Any) -> None:
    world.annotate("a", **annotations)
    told = await world.told(check_opt_in, put(CLUSTER, "small"), put(NAMESPACED, "own", "a"))
    assert told == ["ok coverage: opted-in"]
