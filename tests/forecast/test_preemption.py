"""Which pods kube-scheduler deletes for VMs of higher priority."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.forecast.clusters import (
    BUILT_IN,
    CLUSTERS_WITH_PRIORITIES,
    NAMES,
    Json,
    apart,
    budget,
    filler,
    node,
    priority_class,
    snapshot,
    vm,
)
from tests.forecast.oracle import Simulated, thorough
from tests.forecast.test_present_state import CLUSTERS, of
from webhook.cli.explain import from_files
from webhook.forecast import drain, preemption, update
from webhook.forecast.report import DrainPlan
from webhook.forecast.snapshot import ClusterObjects
from webhook.placement.scores import KubernetesVersion

HIGH = priority_class("high", 1000)
CLASSES = [*BUILT_IN, HIGH]


def pod(
    name: str, on: str, memory: str = "4Gi", priority: int | None = 0, started: str | None = None, **labels: str
) -> Json:
    found = filler(name, on, memory, **labels)
    found["spec"]["priority"] = priority
    if started:
        found["status"]["startTime"] = f"2026-11-28T{started}:00Z"
    return found


def plan(
    *pods: Json, nodes: str = "ab", classes: list[Json] = CLASSES, memory: str = "5Gi", **options: Any
) -> DrainPlan:
    """The drain of node a, from which a VM with the PriorityClass high needs most of a node."""
    own: dict[str, Any] = {
        key: options.pop(key) for key in ("labels", "affinity", "priorityClassName") if key in options
    }
    mover = vm("web", "a", memory, **{"priorityClassName": "high", **own})
    more = options.pop("vms", [])
    return drain.plan(
        snapshot([node(name) for name in nodes], [mover, *more], pods=pods, classes=classes, **options), ["a"]
    )


def victims(found: DrainPlan) -> list[str]:
    return [each.name for each in of(found).preempts]


def test_the_cluster_of_a_report() -> None:
    found = of(drain.plan(from_files(CLUSTERS / "priorities.yaml"), ["node-1"]), "prod")
    assert (found.outcome, found.code, found.to) == ("moves", "preempts", "node-2")
    assert [(each.name, each.priority, each.vm) for each in found.preempts] == [("batch-1", 0, "")]


@pytest.mark.parametrize(
    ("priority", "options", "code"),
    [
        (999, {}, "preempts"),
        (None, {}, "preempts"),
        (1000, {}, "no-room"),
        (2_000_000_000, {}, "no-room"),
        (0, {"priorityClassName": "missing"}, "no-priority-class"),
        (0, {"priorityClassName": None}, "no-room"),
        (-1, {"priorityClassName": None}, "preempts"),
        (0, {"classes": [*BUILT_IN, HIGH | {"preemptionPolicy": "Never"}]}, "no-room"),
        (0, {"classes": [*BUILT_IN, HIGH | {"preemptionPolicy": "PreemptLowerPriority"}]}, "preempts"),
        (0, {"priorityClassName": None, "classes": [*BUILT_IN, HIGH | {"globalDefault": True}]}, "preempts"),
    ],
)
def test_what_has_a_lower_priority(priority: int | None, options: Any, code: str) -> None:
    found = plan(pod("low", "b", "6Gi", priority), **options)
    assert (of(found).code, found.preempted) == (code, int(code == "preempts"))
    assert (found.blocks == 0) == (code == "preempts")


def test_the_priority_that_the_api_server_has_resolved_counts_where_its_class_is_not_known() -> None:
    mover = vm("web", "a", "5Gi", priorityClassName="high")
    mover[1]["spec"] |= {"priorityClassName": "high", "priority": 7}
    for low, code in ((6, "preempts"), (7, "no-room")):
        world = snapshot([node("a"), node("b")], [mover], pods=[pod("low", "b", "6Gi", low)])
        assert of(drain.plan(world, ["a"])).code == code
    mover[1]["spec"]["priorityClassName"] = "another"
    world = snapshot([node("a"), node("b")], [mover], pods=[pod("low", "b", "6Gi", 1)])
    found = of(drain.plan(world, ["a"]))
    assert (found.code, any("PriorityClass high" in gap for gap in found.gaps)) == ("no-room", True)


def test_no_more_pods_go_than_have_to_and_the_least_important_ones() -> None:
    three = [pod("one", "b", "2Gi", 5), pod("two", "b", "2Gi", 3), pod("three", "b", "2Gi", 4)]
    assert victims(plan(*three)) == ["three", "two"]
    # Of equal ones those that have started last.
    two = [pod("older", "b", "4Gi", 5, "10:00"), pod("younger", "b", "4Gi", 5, "11:00")]
    assert victims(plan(*two, memory="4Gi")) == ["younger"]


def test_budgets_are_kept_where_they_can_be_and_broken_where_not() -> None:
    two = [pod("kept", "b", "4Gi", 1, app="kept"), pod("other", "b", "4Gi", 5)]
    closed = [budget(0, app="kept")]
    assert victims(plan(*two, memory="4Gi")) == ["kept"]
    assert victims(plan(*two, memory="4Gi", budgets=closed)) == ["other"]
    found = of(plan(*two, budgets=closed))
    assert [(each.name, each.violates_budget) for each in found.preempts] == [("other", False), ("kept", True)]
    # For preemption a budget that selects everything selects nothing.
    assert victims(plan(*two, memory="4Gi", budgets=[budget(0)])) == ["kept"]


def test_the_node_with_the_least_loss() -> None:
    """Fewest broken budgets, then the lowest priority, then fewest pods."""
    closed = [budget(0, app="kept")]
    both = [pod("low", "b", "6Gi", 1, app="kept"), pod("high", "c", "6Gi", 5)]
    assert victims(plan(*both, nodes="abc")) == ["low"]
    assert victims(plan(*both, nodes="abc", budgets=closed)) == ["high"]
    few = [pod("b-1", "b", "3Gi", 1), pod("b-2", "b", "3Gi", 1), pod("c-1", "c", "6Gi", 1)]
    assert victims(plan(*few, nodes="abc", memory="7Gi")) == ["c-1"]
    assert victims(plan(pod("b-1", "b", "6Gi", 1, "10:00"), pod("c-1", "c", "6Gi", 1, "11:00"), nodes="abc")) == ["c-1"]


def test_a_node_without_a_broken_budget_is_looked_for_until_there_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """A budget is broken only where nothing else helps, however many nodes break one (DryRunPreemption)."""
    monkeypatch.setattr(preemption, "_ENOUGH_NODES", 2)
    names = ("kept-b", "kept-c", "kept-d", "open-e", "open-f")
    pods = [pod(name, name[-1], "6Gi", 1, app=name.partition("-")[0]) for name in names]
    pods[4]["spec"]["priority"] = 0
    closed = [budget(0, app="kept")]
    assert victims(plan(*pods, nodes="abcdef", budgets=closed)) == ["open-e"], "which is enough"
    assert victims(plan(*pods[:3], nodes="abcd", budgets=closed)) == ["kept-b"]
    pods[2]["spec"]["priority"] = 0
    assert victims(plan(*pods[:3], nodes="abcd", budgets=closed)) == ["kept-b"], "more are not compared"


@pytest.mark.parametrize(("version", "violates"), [((1, 36), True), ((1, 37), False)])
def test_a_pod_that_breaks_a_budget_counts_for_others_before_1_37(version: KubernetesVersion, violates: bool) -> None:
    both = [pod("both", "b", "4Gi", 5, app="x", tier="y"), pod("one", "b", "4Gi", 1, tier="y")]
    budgets = [budget(0, app="x"), budget(1, tier="y")]
    world = snapshot(
        [node("a"), node("b")],
        [vm("web", "a", "4Gi", priorityClassName="high")],
        pods=both,
        budgets=budgets,
        classes=CLASSES,
    )
    found = of(drain.plan(msgspec.structs.replace(world, kubernetes=version), ["a"]))
    assert [(each.name, each.violates_budget) for each in found.preempts] == [("one", violates)]


def test_a_vm_that_dies_for_another_is_named() -> None:
    other = vm("db", "b", "6Gi")
    found = plan(vms=[other])
    assert [(each.name, each.vm) for each in of(found).preempts] == [("virt-launcher-db", "db")]
    # It is gone, and nothing else can be done to it.
    rolling = drain.plan(
        snapshot([node("a"), node("b")], [vm("web", "a", "5Gi", priorityClassName="high"), other], classes=CLASSES),
        [],
        rolling=True,
    )
    assert [[(each.name, each.code) for each in step.vms] for step in rolling.steps] == [
        [("web", "preempts")],
        [("web", "migrates")],
    ]


def test_a_vm_that_has_just_moved_there_can_be_the_one() -> None:
    low, high = vm("a-low", "a", "6Gi"), vm("web", "a", "6Gi", priorityClassName="high")
    found = drain.plan(snapshot([node("a", memory="16Gi"), node("b")], [low, high], classes=CLASSES), ["a"])
    assert of(found, "web").code == "preempts"
    assert [each.vm for each in of(found, "web").preempts] == ["a-low"]
    assert any("preempts it there" in note for note in of(found, "a-low").notes)


def test_anti_affinity_to_a_pod_of_lower_priority() -> None:
    found = plan(pod("low", "b", "1Gi", app="x"), affinity=apart(app="x"))
    assert (of(found).code, victims(found)) == ("preempts", ["low"])


def test_an_update_preempts_too() -> None:
    mover = vm("web", "a", "5Gi", priorityClassName="high")
    world = snapshot(
        [node("a"), node("b")],
        [mover],
        pods=[pod("low", "b", "6Gi")],
        classes=CLASSES,
        updates={"workloadUpdateMethods": ["LiveMigrate"]},
    )
    found = update.plan(world)
    assert (found.moves, found.preempted, found.vms[0].code) == (1, 1, "preempts")


@given(CLUSTERS_WITH_PRIORITIES, st.sampled_from(NAMES))
@thorough
def test_every_victim_has_to_go(world: ClusterObjects, drained: str) -> None:
    """Without its victims a VM fits, with any one of them it does not; where a VM blocks, no victims would help."""
    found = drain.plan(world, [drained])
    simulated = Simulated(world, [drained])
    for each in sorted((each for each in found.steps[0].vms if each.turn), key=lambda each: each.turn):
        mine = simulated.priority(each.name)
        gone = [simulated.remove(victim.name) for victim in each.preempts]
        assert all(victim.priority < mine for victim in each.preempts)
        assert simulated.problem(each.name, each.to) == ""
        for one in gone:
            simulated.pods += one
            assert simulated.problem(each.name, each.to) != ""
            simulated.remove(one[0]["metadata"]["name"])
        simulated.move(each.name, each.to)
    for each in found.steps[0].vms:
        if each.code in ("no-room", "pods-apart"):
            assert simulated.preemptable(each.name) == []
