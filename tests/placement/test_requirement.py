from __future__ import annotations

import pytest

from tests.placement.samples import HOST, node
from webhook.placement import requirement
from webhook.placement.affinity import Toleration
from webhook.placement.expression import Expression, Term
from webhook.placement.node import CORDON, Taint
from webhook.placement.requirement import (
    Elsewhere,
    Kvm,
    Label,
    OneOf,
    Requirement,
    Uncordoned,
    Untainted,
)

ZONE = Expression.equals("zone", "b")


def told(asked: Requirement, **labels: str) -> list[str]:
    return [str(reason) for reason in asked.reasons(node("n1", labels))]


@pytest.mark.parametrize(
    ("origin", "clause", "lacking"),
    [
        (requirement.ADDED, "zone=b was added by this migration", "added by this migration"),
        (requirement.VM, "the VM itself requires zone=b", "required by the VM itself"),
        (
            requirement.CLUSTER,
            "KubeVirt's configuration requires zone=b for every VM",
            "required by KubeVirt's configuration",
        ),
        (requirement.KUBEVIRT, "KubeVirt requires zone=b for this VM", "required by KubeVirt for this VM"),
        (
            requirement.SCHEDULABLE,
            "KubeVirt requires zone=b, which says that virt-handler works there",
            "no working virt-handler",
        ),
        (
            requirement.HOST_MODEL,
            "the CPU that the VM took over from its first host requires zone=b",
            "required by the CPU that the VM took over from its first host",
        ),
        (
            requirement.VENDOR,
            "the CPU that the VM runs on now requires zone=b",
            "required by the CPU that the VM runs on now",
        ),
    ],
)
def test_labels(origin: str, clause: str, lacking: str) -> None:
    asked = Label(origin, ZONE)

    assert asked.lacking == f"without zone=b ({lacking})"
    assert told(asked, zone="b") == []
    assert told(asked, zone="a") == [f"{clause}; the node has zone=a"]
    assert told(asked) == [f"{clause}; the node has no label zone"]


def test_where_the_vm_comes_from_is_not_named() -> None:
    asked = Label(requirement.SOURCE_NODE, Expression("kubernetes.io/hostname", "NotIn", ("far-away",)))

    assert (asked.clause, asked.lacking) == (
        "the migration must leave the node that the VM comes from",
        "where the VM comes from",
    )


def test_affinity() -> None:
    terms = (Term((ZONE, Expression("disk", "Exists"))), Term((Expression("rank", "Gt", ("5",)),)))
    asked = OneOf(requirement.AFFINITY, terms)

    assert asked.lacking == "outside the VM's node affinity"
    assert told(asked, zone="b", disk="x") == told(asked, rank="7") == []
    assert told(asked, zone="b", rank="5") == [
        "the VM's node affinity requires zone=b and disk or rank > 5; the node has zone=b, no label disk, rank=5"
    ]


def test_affinity_over_names_alone() -> None:
    asked = OneOf(requirement.AFFINITY, (Term((), (Expression("metadata.name", "In", ("n2",)),)),))

    assert told(asked) == ["the VM's node affinity requires metadata.name=n2; the node has another name"]


@pytest.mark.parametrize("terms", [(), (Term(),)])
def test_affinity_without_hope(terms: tuple[Term, ...]) -> None:
    asked = OneOf(requirement.AFFINITY, terms)

    assert told(asked) == ["the VM's node affinity has no term that a node could match; the node can't fit"]


def test_malformed_affinity_says_why() -> None:
    malformed = Term.of((Expression("zone", "Is"),), (), "nodeSelectorTerms[0]")
    why = 'nodeSelectorTerms[0].matchExpressions[0]: its operator "Is" is none of In'

    assert why in OneOf(requirement.AFFINITY, (malformed,)).clause
    assert why in OneOf(requirement.AFFINITY, (malformed, Term((ZONE,)))).clause
    assert told(OneOf(requirement.AFFINITY, (malformed, Term((ZONE,)))), zone="b") == []


def test_taints() -> None:
    taints = [
        {"key": "b", "value": "x", "effect": "NoSchedule"},
        {"key": "a", "effect": "NoExecute"},
        {"key": "c", "effect": "PreferNoSchedule"},
    ]
    none, some = Untainted(requirement.TAINTS, ()), Untainted(requirement.TAINTS, (Toleration("a", "Exists"),))

    assert none.lacking == "with taints that the VM doesn't tolerate"
    assert [str(reason) for reason in none.reasons(node(taints=taints))] == [
        "the VM tolerates no taints; the node has the taint a:NoExecute",
        "the VM tolerates no taints; the node has the taint b=x:NoSchedule",
    ]
    assert [str(reason) for reason in some.reasons(node(taints=taints))] == [
        "the VM tolerates only some taints; the node has the taint b=x:NoSchedule"
    ]
    assert some.tolerates(Taint("a", "y", "NoSchedule"))


def test_cordon() -> None:
    asked = Uncordoned(requirement.CORDONED, ())
    waived = Uncordoned(requirement.CORDONED, (Toleration(CORDON.key, "Exists"),))

    assert asked.lacking == "cordoned"
    assert [str(reason) for reason in asked.reasons(node(cordoned=True))] == [
        "the VM doesn't tolerate cordoned nodes; the node is cordoned"
    ]
    assert asked.reasons(node()) == waived.reasons(node(cordoned=True)) == ()


def test_the_present_node() -> None:
    asked = Elsewhere(requirement.SOURCE_NODE, "n1", "host-1")

    assert asked.lacking == "where the VM runs now"
    assert told(asked) == ["the migration must leave the VM's present node; the node is this one"]
    assert [str(reason) for reason in asked.reasons(node("n2", {HOST: "host-1"}))] == [
        f"the migration must leave the VM's present node; the node has the same {HOST}=host-1"
    ]
    assert asked.reasons(node("n2", {HOST: "n1"})) == ()
    assert Elsewhere(requirement.SOURCE_NODE, "n1").reasons(node("n2", {HOST: ""})) == ()


def test_kvm() -> None:
    asked = Kvm(requirement.KVM)

    assert asked.lacking == "that offer no devices.kubevirt.io/kvm"
    assert [str(reason) for reason in asked.reasons(node(kvm="0"))] == [
        "KubeVirt requests devices.kubevirt.io/kvm for every VM; the node offers none"
    ]
    assert asked.reasons(node()) == asked.reasons(node(kvm="1k")) == ()


def test_requirements_can_be_counted() -> None:
    assert len({Label(requirement.VM, ZONE), Label(requirement.VM, ZONE), Label(requirement.ADDED, ZONE)}) == 2
    assert len({Untainted(requirement.TAINTS, (Toleration("a"),)), Untainted(requirement.TAINTS, ())}) == 2
