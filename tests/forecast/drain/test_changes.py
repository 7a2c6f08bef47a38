from __future__ import annotations

import re
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings

from tests.forecast.drain import clusters
from tests.forecast.drain.clusters import apart, budget, node, snapshot, vm
from webhook.forecast.drain.planner import plan
from webhook.k8s.nodes import NodeView

DRAINED = clusters.NAMES[0]
thorough = settings(deadline=None, max_examples=50, suppress_health_check=[HealthCheck.too_slow])


def changes(*vms: Any, nodes: Any = None, **options: Any) -> list[str]:
    found = plan(snapshot(nodes or [node("a"), node("b")], vms, **options), ["a"])
    return [change.change for change in found.changes]


def stuck(name: str, reason: str) -> Any:
    return vm(name, "a", condition={"type": "LiveMigratable", "status": "False", "reason": reason})


def test_a_node_can_be_uncordoned() -> None:
    nodes = [node("a"), node("b", cordoned=True)]

    assert changes(vm("web", "a"), nodes=nodes) == ['uncordon "b"']
    (any_node,) = changes(vm("web", "a"), nodes=[*nodes, node("c", cordoned=True)])
    assert any_node.startswith("uncordon a node")
    assert changes(vm("web", "a", "9Gi"), nodes=[node("a", memory="10Gi"), *nodes[1:]]) == [], "it has no room"


def test_selectors_and_taints_can_be_given_up() -> None:
    tainted = node("b")
    tainted["spec"]["taints"] = [{"key": "gpu", "effect": "NoSchedule"}]

    assert "zone=x" in changes(vm("web", "a", nodeSelector={"zone": "x"}), nodes=[node("a", zone="x"), node("b")])[0]
    assert "gpu:NoSchedule" in changes(vm("web", "a"), nodes=[node("a"), tainted])[0]


def test_what_frees_most_comes_first() -> None:
    disks = [stuck(name, "DisksNotLiveMigratable") for name in ("1", "2")]
    found = plan(snapshot([node("a"), node("b")], [*disks, stuck("3", "HostDeviceNotLiveMigratable")]), ["a"])

    assert [len(change.vms) for change in found.changes] == [3, 2, 1]


@pytest.mark.parametrize(
    ("own", "options"),
    [
        ({"evictionStrategy": "External"}, {}),
        ({"evictionStrategy": "Whatever"}, {}),
        ({}, {"limits": {"parallelMigrationsPerCluster": 0}}),
        ({"evictionStrategy": "None", "labels": {"app": "x"}}, {"budgets": [budget(0, app="x")]}),
    ],
)
def test_every_kind_of_block_has_a_change(own: Any, options: Any) -> None:
    assert len(changes(vm("web", "a", **own), **options)) == 1


def test_pods_that_keep_apart_have_a_change() -> None:
    other = vm("db", "b", labels={"app": "x"})

    assert len(changes(vm("web", "a", affinity=apart(app="x")), other)) == 1


@thorough
@given(clusters.random_clusters())
def test_a_node_that_is_uncordoned_takes_each_vm_that_is_named(world: Any) -> None:
    for change in plan(world, [DRAINED]).changes:
        uncordoned = re.fullmatch('uncordon "(.*)"', change.change)
        if uncordoned:
            nodes = tuple(
                msgspec.structs.replace(each, spec=None) if each.meta.name == uncordoned[1] else each
                for each in world.nodes
            )
            after = plan(msgspec.structs.replace(world, nodes=nodes), [DRAINED])
            named = [each for each in after.steps[0].vms if f"{each.namespace}/{each.name}" in change.vms]
            assert all(uncordoned[1] in each.candidates for each in named), change


@thorough
@given(clusters.random_clusters())
def test_a_node_that_is_added_takes_the_vms_that_are_named(world: Any) -> None:
    for change in plan(world, [DRAINED]).changes:
        if change.change.startswith("add an empty node"):
            (like,) = (each for each in world.nodes if each.meta.name == DRAINED)
            labels = {**like.meta.labels, clusters.HOST: "new"}
            meta = msgspec.structs.replace(like.meta, name="new", labels=labels)
            more = NodeView(metadata=meta, status=like.status)
            after = plan(msgspec.structs.replace(world, nodes=(*world.nodes, more)), [DRAINED])
            named = [each for each in after.steps[0].vms if f"{each.namespace}/{each.name}" in change.vms]
            assert all("new" in each.candidates for each in named), change
