from __future__ import annotations

from typing import Any

import pytest

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
        ({FOO: "1"}, "has 1 allocatable"),
        ({FOO: "0"}, "has 0 allocatable"),
        ({"cpu": "4"}, "does not offer it"),
        ({}, "does not offer it"),
    ],
)
def test_a_node_with_less_than_is_requested(allocatable: dict[str, str], has: str) -> None:
    (reason,) = TWO.reasons(node(allocatable=allocatable))

    assert reason.has == has
    assert str(reason) == f"the VM's pod requests 2 {FOO}; the node {has}"


@pytest.mark.parametrize("status", [{}, {"allocatable": {FOO: "2"}}, {"allocatable": {FOO: "1k"}}])
def test_a_node_that_could_hold_it_or_has_not_said(status: Any) -> None:
    assert TWO.reasons(node(**status)) == ()


def test_amounts_in_units() -> None:
    memory = Allocatable(requirement.RESOURCES, "memory", 2299 * 2**20)

    assert memory.lacking == "with insufficient allocatable memory (the VM's pod requests 2299Mi)"
    assert Allocatable(requirement.KVM, "devices.kubevirt.io/kvm", 1).clause == (
        "KubeVirt requests devices.kubevirt.io/kvm for every VM"
    )


def test_nodes_on_which_a_volume_cannot_be_used() -> None:
    zone_a = Term.of((Expression.equals("zone", "a"),), (), "terms[0]")
    local = Reachable(requirement.VOLUMES, (zone_a,), "root")
    nodes = [node("n1", {"zone": "a"}), node("n2", {"zone": "b"}), node("n3")]

    verdict = NodeIndex(nodes).review((local,))
    assert verdict.names() == ["n1"]
    assert verdict.matrix() == {each.name: local.reasons(each) for each in nodes}
    assert str(local.reasons(nodes[1])[0]) == (
        'the volume "root" can only be used where its PersistentVolume\'s node affinity allows it; the node has zone=b'
    )
    assert "root" in local.lacking
