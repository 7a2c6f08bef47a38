from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.placement.samples import HOST, node
from webhook.k8s.types.scheduling import Toleration
from webhook.k8s.types.selectors import Expression, Term
from webhook.placement.nodes import CORDON, Node, Taint
from webhook.placement.requirements import Elsewhere, Kvm, Label, OneOf, Origin, Requirement, Uncordoned, Untainted

ZONE = Expression.equals("zone", "b")


ORIGINS = (
    Origin.ADDED,
    Origin.VM,
    Origin.CLUSTER,
    Origin.KUBEVIRT,
    Origin.SCHEDULABLE,
    Origin.HOST_MODEL,
    Origin.VENDOR,
    Origin.RUNTIME_CLASS,
    Origin.NAMESPACE,
)


def told(asked: Requirement, **labels: str) -> list[str]:
    """The value of a node that does not meet a requirement."""
    return _instead(asked, node("n1", labels))


def _instead(asked: Requirement, on: Node) -> list[str]:
    found = asked.reasons(on)
    assert all(reason.requirement is asked for reason in found)
    assert [str(reason) for reason in found] == [f"{asked.clause}; the node {reason.has}" for reason in found]
    return [reason.has for reason in found]


@pytest.mark.parametrize("origin", ORIGINS)
def test_labels(origin: str) -> None:
    asked = Label(origin, ZONE)

    assert "zone=b" in asked.clause
    assert asked.lacking.startswith("without zone=b (")
    assert told(asked, zone="b") == []
    assert told(asked, zone="a") == ["has zone=a"]
    assert told(asked) == ["has no label zone"]


def test_every_origin_has_its_own_words() -> None:
    labels = [Label(origin, ZONE) for origin in ORIGINS]

    assert len({label.clause for label in labels}) == len({label.lacking for label in labels}) == len(ORIGINS)


def test_where_the_vm_comes_from_is_not_named() -> None:
    asked = Label(Origin.SOURCE_NODE, Expression("kubernetes.io/hostname", "NotIn", ("far-away",)))

    assert "far-away" not in asked.clause + asked.lacking


def test_affinity(golden: Callable[[str], None]) -> None:
    terms = (Term((ZONE, Expression("disk", "Exists"))), Term((Expression("rank", "Gt", ("5",)),)))
    asked = OneOf(Origin.AFFINITY, terms)

    assert "zone=b and disk or rank > 5" in asked.clause
    assert told(asked, zone="b", disk="x") == told(asked, rank="7") == []
    golden("\n".join(told(asked, zone="b", rank="5")))


def test_affinity_over_names_alone() -> None:
    asked = OneOf(Origin.AFFINITY, (Term((), (Expression("metadata.name", "In", ("n2",)),)),))

    assert "metadata.name=n2" in asked.clause
    assert told(asked) == ["has another name"]


@pytest.mark.parametrize("terms", [(), (Term(),)])
def test_affinity_without_hope(terms: tuple[Term, ...]) -> None:
    asked = OneOf(Origin.AFFINITY, terms)

    assert len(told(asked)) == 1


def test_malformed_affinity_says_why() -> None:
    malformed = Term.of((Expression("zone", "Is"),), (), "nodeSelectorTerms[0]")
    (why,) = malformed.problems

    assert why in OneOf(Origin.AFFINITY, (malformed,)).clause
    assert why in OneOf(Origin.AFFINITY, (malformed, Term((ZONE,)))).clause
    assert told(OneOf(Origin.AFFINITY, (malformed, Term((ZONE,)))), zone="b") == []


def test_taints() -> None:
    taints = [
        {"key": "b", "value": "x", "effect": "NoSchedule"},
        {"key": "a", "effect": "NoExecute"},
        {"key": "c", "effect": "PreferNoSchedule"},
    ]
    none, some = Untainted(Origin.TAINTS, ()), Untainted(Origin.TAINTS, (Toleration("a", "Exists"),))

    assert none.clause != some.clause
    assert _instead(none, node(taints=taints)) == ["has the taint a:NoExecute", "has the taint b=x:NoSchedule"]
    assert _instead(some, node(taints=taints)) == ["has the taint b=x:NoSchedule"]
    assert some.tolerates(Taint("a", "y", "NoSchedule"))


def test_cordon() -> None:
    asked = Uncordoned(Origin.CORDONED, ())
    waived = Uncordoned(Origin.CORDONED, (Toleration(CORDON.key, "Exists"),))

    assert len(_instead(asked, node(cordoned=True))) == 1
    assert asked.reasons(node()) == waived.reasons(node(cordoned=True)) == ()


def test_the_present_node() -> None:
    asked = Elsewhere(Origin.SOURCE_NODE, "n1", "host-1")

    (same,), (shared,) = told(asked), _instead(asked, node("n2", {HOST: "host-1"}))
    assert HOST not in same
    assert f"{HOST}=host-1" in shared
    assert asked.reasons(node("n2", {HOST: "n1"})) == ()
    assert Elsewhere(Origin.SOURCE_NODE, "n1").reasons(node("n2", {HOST: ""})) == ()


def test_kvm() -> None:
    asked = Kvm(Origin.KVM)

    assert "devices.kubevirt.io/kvm" in asked.lacking
    assert "devices.kubevirt.io/kvm" in asked.clause
    assert len(_instead(asked, node(kvm="0"))) == 1
    assert asked.reasons(node()) == asked.reasons(node(kvm="1k")) == ()


def test_requirements_can_be_counted() -> None:
    assert len({Label(Origin.VM, ZONE), Label(Origin.VM, ZONE), Label(Origin.ADDED, ZONE)}) == 2
    assert len({Untainted(Origin.TAINTS, (Toleration("a"),)), Untainted(Origin.TAINTS, ())}) == 2
