"""Why no node is eligible, for users and for the audit record."""

from __future__ import annotations

import pytest

from tests import golden_files, wording
from tests.placement.samples import node, vmi
from webhook.admission.reasons import common
from webhook.placement.eligibility import Eligibility
from webhook.placement.index import NodeIndex
from webhook.placement.machines import Migration
from webhook.placement.target_pods import target_pod_requirements
from webhook.policies.common.migration_targets import availability, details, no_node

ASKED = target_pod_requirements(vmi(None, {"cpu": {"model": "x"}}), Migration.adding({"zone": "b"}))
LABELS = {"kubevirt.io/schedulable": "true", "cpu-model.node.kubevirt.io/x": "true"}


def eligibility(count: int) -> Eligibility:
    """The eligibility on nodes that each have a taint of their own, and lack the added label."""
    taints = [{"key": "dedicated", "value": f"n{i:04}", "effect": "NoSchedule"} for i in range(count)]
    return NodeIndex(node(f"n{i:04}", LABELS, taints=[taint]) for i, taint in enumerate(taints)).review(ASKED)


def test_few_classes_are_all_named() -> None:
    found = eligibility(9)
    reason = no_node(found)
    assert (reason.code, len(found.failures)) == (common.NO_ELIGIBLE_NODE, 10)
    assert reason.text.startswith(availability(found))
    assert all(str(failure) in reason.text for failure in found.failures)


def test_of_many_classes_the_largest_are_named() -> None:
    found = eligibility(2000)
    text = no_node(found).text
    assert text.startswith(f"{availability(found)}: {found.failures[0]}, ")
    assert found.failures[0].count == found.total == 2000
    named = [failure for failure in found.failures if str(failure) in text]
    assert len(named) == 10
    assert str(len(found.failures) - 10) in text.rpartition(str(named[-1]))[2]


@pytest.mark.golden
def test_messages() -> None:
    cordoned = NodeIndex([node("n1", LABELS, cordoned=True), node("n2", LABELS | {"zone": "b"}, cordoned=True)])
    found = (eligibility(2), eligibility(20), cordoned.review(ASKED), eligibility(0))
    texts = [no_node(each).text for each in found]
    assert [wording.mistakes(text) for text in texts] == [[]] * 4
    golden_files.check("no-eligible-node.txt", "\n".join(texts))


def test_every_node_is_in_the_audit_record() -> None:
    groups = details(eligibility(2000))["nodes"]
    assert len(groups) == 101
    assert (groups[-1]["fails"], groups[-1]["count"]) == (["other reasons, in 1900 combinations"], 1900)
    assert sorted(name for group in groups for name in group["nodes"]) == [f"n{i:04}" for i in range(2000)]
