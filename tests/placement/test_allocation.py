from __future__ import annotations

import re
from typing import Any

import pytest

from tests.placement.node_by_node import reasons_by_node
from webhook.placement import requirement
from webhook.placement.allocation import Allocatable, Reachable
from webhook.placement.expression import Expression, Term
from webhook.placement.index import NodeIndex
from webhook.placement.node import Node

FOO = "example.com/foo"
TWO = Allocatable(requirement.RESOURCES, FOO, 2)


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
    memory = Allocatable(requirement.RESOURCES, "memory", 2299 * 2**20)

    assert "memory" in memory.lacking
    assert "2299Mi" in memory.lacking
    assert Allocatable(requirement.KVM, "devices.kubevirt.io/kvm", 1).clause == requirement.Kvm(requirement.KVM).clause


def test_nodes_on_which_a_volume_cannot_be_used() -> None:
    zone_a = Term.of((Expression.equals("zone", "a"),), (), "terms[0]")
    local = Reachable(requirement.VOLUMES, (zone_a,), "root")
    nodes = [node("n1", {"zone": "a"}), node("n2", {"zone": "b"}), node("n3")]

    verdict = NodeIndex(nodes).review((local,))
    assert verdict.names() == ["n1"]
    assert reasons_by_node(verdict, nodes) == {each.name: local.reasons(each) for each in nodes}
    assert '"root"' in local.clause
    assert "zone=b" in local.reasons(nodes[1])[0].has
    assert "root" in local.lacking
