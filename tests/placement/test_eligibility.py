from __future__ import annotations

from tests.placement.node_by_node import reasons_node_by_node
from tests.placement.samples import affinity, expression, expressions, node, vmi
from webhook.placement.eligibility import unmet_requirements
from webhook.placement.machines import Migration
from webhook.placement.target_pods import target_pod_requirements

SCHEDULABLE = {"kubevirt.io/schedulable": "true", "cpu-model.node.kubevirt.io/Westmere": "true"}
VM = vmi(
    {"affinity": affinity(expressions(expression("disk", "In", "ssd")))}, {"cpu": {"model": "Westmere"}}, nodeName="n1"
)


def test_all_reasons_are_told_not_the_first() -> None:
    taints = [{"key": "dedicated", "effect": "NoSchedule"}, {"key": "maint", "effect": "NoExecute"}]
    worst = node("n1", {"disk": "hdd"}, taints=taints, cordoned=True, kvm="0")

    told = unmet_requirements(target_pod_requirements(VM, Migration.adding({"zone": "b"})), worst)

    assert [(reason.requirement.origin, reason.has) for reason in told] == [
        ("added", "has no label zone"),
        ("schedulable", "has no label kubevirt.io/schedulable"),
        ("kubevirt", "has no label cpu-model.node.kubevirt.io/Westmere"),
        ("affinity", "has disk=hdd"),
        ("source node", "is the current node"),
        ("taints", "has the taint dedicated:NoSchedule"),
        ("taints", "has the taint maint:NoExecute"),
        ("cordon", "is cordoned"),
        ("kvm", "does not offer it"),
    ]


def test_by_node() -> None:
    right, wrong = node("n2", {**SCHEDULABLE, "disk": "ssd"}), node("n3", {**SCHEDULABLE, "disk": "hdd"})

    answer = reasons_node_by_node(target_pod_requirements(VM), [right, wrong])

    assert answer["n2"] == ()
    assert [reason.has for reason in answer["n3"]] == ["has disk=hdd"]
    assert list(answer) == ["n2", "n3"]
