from __future__ import annotations

from typing import Any

import pytest

from tests.forecast.clusters import apart, filler, node, snapshot, vm
from webhook.errors import InputError
from webhook.forecast.placement import PlacementReport, explain_placement
from webhook.placement.simulate import nodes_to_score

NODES = [node("a"), node("b"), node("c")]


def explained(nodes: Any, vms: Any, **more: Any) -> PlacementReport:
    return explain_placement(snapshot(nodes, vms, **more), "shop", "web")


def test_its_own_pod_takes_nothing_and_its_own_node_counts_as_the_others_do() -> None:
    found = explained(NODES, [vm("web", "a", "6Gi")])

    assert (found.node, found.chosen) == ("a", ("a", "b", "c"))
    assert {each.name: each.reasons for each in found.nodes} == {"a": (), "b": (), "c": ()}
    assert [each.name for each in found.nodes if each.runs_here] == ["a"]
    assert len({each.total for each in found.nodes}) == 1


def test_pods_that_came_since_make_another_node_the_best_one() -> None:
    found = explained(NODES[:2], [vm("web", "a"), vm("db", "a", "4Gi")], pods=[filler("f", "a", "2Gi")])

    assert found.chosen == ("b",)
    first, second = found.nodes
    assert (first.name, second.name) == ("b", "a")
    assert first.total > second.total
    assert first.scores["NodeResourcesFit"] > second.scores["NodeResourcesFit"]
    assert all(sum(each.scores.values()) == each.total for each in found.nodes)


def test_each_filter_names_its_reason() -> None:
    nodes = [node("a"), node("b", cordoned=True), node("c"), node("d", disk="hdd")]
    web = vm("web", "a", "4Gi", labels={"app": "web"}, affinity=apart(app="db"), nodeSelector={"disk": "ssd"})
    db = vm("db", "c", labels={"app": "db"})
    for each in nodes[:3]:
        each["metadata"]["labels"]["disk"] = "ssd"

    found = explained(nodes, [web, db, vm("large", "a", "6Gi")])

    reasons = {each.name: each.reasons for each in found.nodes}
    assert found.chosen == ()
    assert reasons["a"] == ("too little memory is free: the pod requests 4Gi, 2Gi is left",)
    assert reasons["b"] == ("cordoned",)
    assert len(reasons["c"]) == 1
    assert "disk=ssd" in reasons["d"][0]
    assert all(each.scores == {} for each in found.nodes)


def test_where_most_nodes_are_not_scored_a_note_says_so() -> None:
    nodes = [node(f"n{number:03}") for number in range(120)]

    (note,) = explained(nodes, [vm("web", "n000")]).notes

    assert note.startswith(f"by default kube-scheduler scores only {nodes_to_score(120)} of 120 nodes ")


def test_a_vm_that_does_not_run_has_no_place() -> None:
    with pytest.raises(InputError, match="VirtualMachineInstance shop/web does not exist"):
        explained(NODES, [])
    with pytest.raises(InputError, match="shop/web is not on a node yet"):
        explained(NODES, [vm("web", "")])
