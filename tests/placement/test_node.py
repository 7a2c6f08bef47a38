from __future__ import annotations

from typing import Any

import pytest

from tests.placement.samples import node
from webhook.errors import InputError
from webhook.placement.nodes import CORDON, KVM_DEVICE, Node, Taint


def test_what_is_kept_of_a_node() -> None:
    taints = [
        {"key": "b", "effect": "NoSchedule"},
        {"key": "a", "value": "x", "effect": "NoExecute", "timeAdded": "2026-01-01T00:00:00Z"},
        {"key": "b", "value": "", "effect": "NoSchedule"},
        {"key": "soft", "effect": "PreferNoSchedule"},
        {"key": "other", "effect": None},
    ]

    kept = node("n1", {"zone": "a"}, taints=taints)

    assert kept.name == "n1"
    assert kept.labels == {"kubernetes.io/hostname": "n1", "zone": "a"}
    assert kept.taints == (Taint("a", "x", "NoExecute"), Taint("b", "", "NoSchedule"))
    assert [str(taint) for taint in kept.taints] == ["a=x:NoExecute", "b:NoSchedule"]
    assert not kept.unschedulable


def test_a_cordoned_node_has_no_second_reason_in_its_taint() -> None:
    taint = {"key": CORDON.key, "effect": CORDON.effect}

    assert node("n1", taints=[taint], cordoned=True).taints == ()
    assert node("n1", taints=[taint]).taints == (CORDON,)
    assert node("n1", taints=[{**taint, "value": "x"}], cordoned=True).taints != ()


@pytest.mark.parametrize(("kvm", "none"), [("0", True), (0, True), ("1k", False), ("110", False), (None, False)])
def test_kvm(kvm: Any, none: bool) -> None:
    assert node(kvm=kvm).no_kvm is none


@pytest.mark.parametrize("resource", ["cpu", "memory", "ephemeral-storage"])
def test_what_a_kubelet_has_yet_to_report_is_not_lacking_for_good(resource: str) -> None:
    reported = Node.read({"metadata": {"name": "n"}, "status": {"allocatable": {KVM_DEVICE: "110"}}})

    assert not reported.lacks(resource, 1)
    assert reported.lacks("hugepages-2Mi", 1)
    assert reported.lacks("example.com/foo", 1)


def test_little_is_needed() -> None:
    assert Node.read({"metadata": {"name": "n"}}) == Node("n", {})
    assert Node.read({"metadata": {"name": "n", "labels": None}, "spec": None, "status": {}}) == Node("n", {})


@pytest.mark.parametrize(
    ("json", "sentence"),
    [
        ({}, "a node's metadata: has no name"),
        ({"metadata": {"name": ""}}, "a node's metadata: has no name"),
        ([], "node: expected `object`, got `array`"),
        ({"metadata": {"name": "n", "labels": {"a": 1}}}, "node.metadata.labels[...]: expected `str`, got `int`"),
        ({"metadata": {"name": "n"}, "spec": {"taints": "x"}}, "node.spec.taints: expected `array | null`, got `str`"),
    ],
)
def test_no_nodes(json: Any, sentence: str) -> None:
    with pytest.raises(InputError) as caught:
        Node.read(json)
    assert str(caught.value) == sentence
