"""Why no node is eligible, in words and for the audit record."""

from __future__ import annotations

from tests.placement.samples import node, vmi
from webhook.placement.constraints import of
from webhook.placement.index import NodeIndex
from webhook.placement.migrations import Migration
from webhook.placement.verdict import Verdict
from webhook.policies.common.no_eligible_node import details, no_node

LABELS = {"kubevirt.io/schedulable": "true", "cpu-model.node.kubevirt.io/x": "true"}


def verdict(count: int) -> Verdict:
    """Of nodes that each have a taint of their own, and lack what is added."""
    taints = [{"key": "dedicated", "value": f"n{i:04}", "effect": "NoSchedule"} for i in range(count)]
    nodes = [node(f"n{i:04}", LABELS, taints=[taint]) for i, taint in enumerate(taints)]
    return NodeIndex(nodes).review(of(vmi(None, {"cpu": {"model": "x"}}), Migration.adding({"zone": "b"})))


def test_few_classes_are_all_told() -> None:
    text = no_node(verdict(9))

    assert text.startswith("no eligible node: of 9, 9 without zone=b (added by this migration), 1 with the taint")
    assert text.endswith("dedicated=n0008:NoSchedule")


def test_of_many_classes_the_largest_are_told() -> None:
    text = no_node(verdict(2000))

    assert text.startswith("no eligible node: of 2000, 2000 without zone=b (added by this migration), 1 with the taint")
    assert text.endswith("dedicated=n0008:NoSchedule and 1991 more reasons")


def test_every_node_is_in_the_audit_record() -> None:
    groups = details(verdict(2000))["nodes"]

    assert len(groups) == 101
    assert (groups[-1]["fails"], groups[-1]["count"]) == (["other reasons, in 1900 combinations"], 1900)
    assert sorted(name for group in groups for name in group["nodes"]) == [f"n{i:04}" for i in range(2000)]
