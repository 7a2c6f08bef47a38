from __future__ import annotations

import re
from typing import Any

import pytest

from tests.placement.node_by_node import reasons_by_node
from webhook.k8s.types.selectors import Expression, Term
from webhook.placement.index import NodeIndex
from webhook.placement.nodes import Node
from webhook.placement.requirements import Allocatable, Kvm, Origin, Reachable

FOO = "example.com/foo"
TWO = Allocatable(Origin.RESOURCES, FOO, 2)


def node(name: str = "n1", labels: dict[str, str] | None = None, **status: Any) -> Node:
    return Node.read({"metadata": {"name": name, "labels": labels}, "status": status})


@pytest.mark.parametrize(
    ("allocatable", "has"),
    [
        ({FOO: "1"}, "1"),
        ({FOO: "0"}, "0"),
        ({"cpu": "4"}, None),
        ({}, None),
    ],
)
def test_a_node_with_less_than_is_requested(allocatable: dict[str, str], has: str | None) -> None:
    (reason,) = TWO.reasons(node(allocatable=allocatable))

    assert reason.requirement is TWO
    assert re.findall("[0-9]+", reason.has) == ([] if has is None else [has])
    assert f"2 {FOO}" in str(reason)


@pytest.mark.parametrize("status", [{}, {"allocatable": {FOO: "2"}}, {"allocatable": {FOO: "1k"}}])
def test_a_node_that_could_hold_it_or_has_not_said(status: Any) -> None:
    assert TWO.reasons(node(**status)) == ()


def test_amounts_in_units() -> None:
    memory = Allocatable(Origin.RESOURCES, "memory", 2299 * 2**20)

    assert "memory" in memory.lacking
    assert "2299Mi" in memory.lacking
    assert Allocatable(Origin.KVM, "devices.kubevirt.io/kvm", 1).clause == Kvm(Origin.KVM).clause


def test_nodes_on_which_a_volume_cannot_be_used() -> None:
    zone_a = Term.of((Expression.equals("zone", "a"),), (), "terms[0]")
    local = Reachable(Origin.VOLUMES, (zone_a,), "root")
    nodes = [node("n1", {"zone": "a"}), node("n2", {"zone": "b"}), node("n3")]

    eligibility = NodeIndex(nodes).review((local,))
    assert eligibility.names() == ["n1"]
    assert reasons_by_node(eligibility, nodes) == {each.name: local.reasons(each) for each in nodes}
    assert '"root"' in local.clause
    assert "zone=b" in local.reasons(nodes[1])[0].has
    assert "root" in local.lacking
