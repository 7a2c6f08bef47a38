""""""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.placement.node_by_node import reasons_by_node, reasons_node_by_node
from tests.placement.samples import (
    HOST,
    NAMES,
    VALUES,
    affinity,
    expression,
    expressions,
    node,
    selectors,
    untimed,
    vmi,
    vmis,
)
from webhook.k8s.types.scheduling import Taint, Toleration
from webhook.k8s.types.selectors import Expression, Term
from webhook.placement.index import NodeIndex
from webhook.placement.machines import Migration, Vmi
from webhook.placement.nodes import CORDON, Node
from webhook.placement.requirements import (
    Allocatable,
    Contradiction,
    Elsewhere,
    Kvm,
    Label,
    OneOf,
    Origin,
    Reachable,
    Requirement,
    Requirements,
    Uncordoned,
    Untainted,
    are_compatible,
    are_satisfiable,
    contradictions,
    kept_by_kubevirt,
)
from webhook.placement.target_pods import own_requirements, target_pod_requirements

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


FOO = "example.com/foo"
TWO = Allocatable(Origin.RESOURCES, FOO, 2)


def node_with(name: str = "n1", labels: dict[str, str] | None = None, **status: Any) -> Node:
    return Node.read({"metadata": {"name": name, "labels": labels}, "status": status})


@pytest.mark.parametrize(
    ("allocatable", "has"), [({FOO: "1"}, "1"), ({FOO: "0"}, "0"), ({"cpu": "4"}, None), ({}, None)]
)
def test_a_node_with_less_than_is_requested(allocatable: dict[str, str], has: str | None) -> None:
    (reason,) = TWO.reasons(node_with(allocatable=allocatable))

    assert reason.requirement is TWO
    assert re.findall("[0-9]+", reason.has) == ([] if has is None else [has])
    assert f"2 {FOO}" in str(reason)


@pytest.mark.parametrize("status", [{}, {"allocatable": {FOO: "2"}}, {"allocatable": {FOO: "1k"}}])
def test_a_node_that_could_hold_it_or_has_not_said(status: Any) -> None:
    assert TWO.reasons(node_with(**status)) == ()


def test_amounts_in_units() -> None:
    memory = Allocatable(Origin.RESOURCES, "memory", 2299 * 2**20)

    assert "memory" in memory.lacking
    assert "2299Mi" in memory.lacking
    assert Allocatable(Origin.KVM, "devices.kubevirt.io/kvm", 1).clause == Kvm(Origin.KVM).clause


def test_nodes_on_which_a_volume_cannot_be_used() -> None:
    zone_a = Term.of((Expression.equals("zone", "a"),), (), "terms[0]")
    local = Reachable(Origin.VOLUMES, (zone_a,), "root")
    nodes = [node_with("n1", {"zone": "a"}), node_with("n2", {"zone": "b"}), node_with("n3")]

    eligibility = NodeIndex(nodes).review((local,))
    assert eligibility.names() == ["n1"]
    assert reasons_by_node(eligibility, nodes) == {each.name: local.reasons(each) for each in nodes}
    assert '"root"' in local.clause
    assert "zone=b" in local.reasons(nodes[1])[0].has
    assert "root" in local.lacking


NAMED = {"cpu": {"model": "Westmere"}}


def parties_to(spec: Any, added: dict[str, str] | None = None, source: Node | None = None) -> list[list[str]]:
    """The parties to each contradiction, each as ``ORIGIN: CONDITION``."""
    running = {"nodeName": source.name} if source else {}
    migration = Migration.adding(added or {})
    found = contradictions(target_pod_requirements(vmi(spec, NAMED, **running), migration, source_node=source))
    for each in found:
        clauses = [requirement.clause for requirement in each.requirements]
        assert str(each) == ", but ".join(clauses)
    return [[party(requirement) for requirement in each.requirements] for each in found]


def party(requirement: Requirement) -> str:
    condition: object = ""
    if isinstance(requirement, Label):
        condition = requirement.expression
    elif isinstance(requirement, OneOf):
        condition = " or ".join(map(str, requirement.terms))
    return f"{requirement.origin}: {condition}".removesuffix(": ")


# -- expressions over one label ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("possible", "asked"),
    [
        (True, [("In", "a", "b"), ("In", "b", "c")]),
        (False, [("In", "a"), ("In", "b")]),
        (False, [("In", "a"), ("NotIn", "a")]),
        (True, [("In", "a", "b"), ("NotIn", "a")]),
        (False, [("In", "a", "b"), ("NotIn", "a"), ("NotIn", "b")]),
        (False, [("In", "a"), ("DoesNotExist",)]),
        (False, [("Exists",), ("DoesNotExist",)]),
        (False, [("Gt", "1"), ("DoesNotExist",)]),
        (True, [("NotIn", "a"), ("DoesNotExist",)]),
        (True, [("Exists",), ("NotIn", "a")]),
        (True, [("Gt", "1"), ("Lt", "3")]),
        (False, [("Gt", "1"), ("Lt", "2")]),
        (False, [("Gt", "5"), ("Lt", "3")]),
        (False, [("Gt", "9223372036854775807")]),
        (False, [("Lt", "-9223372036854775808")]),
        (True, [("Gt", "1"), ("NotIn", "2"), ("Lt", "3")]),  # 02 and 002 are numbers as well
        (True, [("In", "5", "x"), ("Gt", "4")]),
        (False, [("In", "x"), ("Gt", "4")]),
        (False, [("In",)]),
        (True, []),
    ],
)
def test_one_label(possible: bool, asked: list[tuple[str, ...]]) -> None:
    assert are_compatible([Expression("key", operator, tuple(values)) for operator, *values in asked]) is possible


def test_what_every_node_has_can_not_be_absent() -> None:
    assert not are_satisfiable([Expression("metadata.name", "DoesNotExist")])
    assert are_satisfiable([Expression("metadata.name", "NotIn", ("n1",))])
    assert are_satisfiable([])


valid = st.one_of(
    st.builds(
        lambda operator, values: Expression("key", operator, tuple(values)),
        st.sampled_from(["In", "NotIn"]),
        st.sets(st.sampled_from(VALUES), min_size=1),
    ),
    st.builds(lambda operator: Expression("key", operator), st.sampled_from(["Exists", "DoesNotExist"])),
    st.builds(
        lambda operator, bound: Expression("key", operator, (bound,)),
        st.sampled_from(["Gt", "Lt"]),
        st.sampled_from(["0", "1", "2", "7"]),
    ),
)


@untimed
@given(st.lists(valid, max_size=4))
def test_no_value_means_no_value(asked: list[Expression]) -> None:
    candidates = [None, *VALUES, "00", "01", "02", "03", "05", "08", "-9", "other"]
    found = any(all(expression.accepts(value) for expression in asked) for value in candidates)

    assert are_compatible(asked) is found


# -- requirements ------------------------------------------------------------------------------------------------------


def test_both_sides_are_named_what_is_added_first() -> None:
    assert parties_to({"nodeSelector": {"zone": "a"}}, {"zone": "b"}) == [["added: zone=b", "vm: zone=a"]]


def test_agreement_is_none() -> None:
    assert parties_to({"nodeSelector": {"zone": "a"}}, {"zone": "a", "disk": "ssd"}) == []
    assert parties_to({"affinity": affinity(expressions(expression("zone", "In", "a", "b")))}, {"zone": "b"}) == []


def test_generated_labels_are_contradicted_too() -> None:
    assert parties_to(
        {"architecture": "amd64"}, {"kubevirt.io/schedulable": "false", "kubernetes.io/arch": "arm64"}
    ) == [
        ["added: kubevirt.io/schedulable=false", "schedulable: kubevirt.io/schedulable=true"],
        ["added: kubernetes.io/arch=arm64", "kubevirt: kubernetes.io/arch=amd64"],
    ]


def test_an_added_feature_that_the_vm_forbids() -> None:
    domain = {"cpu": {"model": "Westmere", "features": [{"name": "svm", "policy": "forbid"}]}}
    key = "cpu-feature.node.kubevirt.io/svm"

    (found,) = contradictions(target_pod_requirements(vmi(None, domain), Migration.adding({key: "true"})))

    assert list(map(party, found.requirements)) == [f"added: {key}=true", f"kubevirt: no {key}"]


def test_what_kubevirt_drops_without_a_word() -> None:
    vendor = "cpu-vendor.node.kubevirt.io/Intel"
    forbidden = [{"name": "svm", "policy": "forbid"}]
    vm = vmi(
        {"nodeSelector": {"zone": "a"}, "affinity": affinity(expressions(expression("disk", "In", "ssd")))},
        {"cpu": {"model": "Westmere", "features": forbidden}},
        nodeName="n1",
    )
    source = node("n1", {vendor: "true"})
    feature = "cpu-feature.node.kubevirt.io/svm"
    wishes = {
        "zone": "b",
        "kubevirt.io/schedulable": "false",
        "disk": "hdd",
        feature: "true",
        vendor: "false",
        HOST: "n1",
    }

    found = contradictions(target_pod_requirements(vm, Migration.adding(wishes), source_node=source))

    assert {key: each.is_dropped for key, each in zip(wishes, sorted_by(wishes, found), strict=True)} == {
        "zone": True,
        "kubevirt.io/schedulable": True,
        "disk": False,  # the pod has both, and stays unschedulable
        feature: False,
        vendor: False,  # worse: it replaces KubeVirt's own requirement
        HOST: False,
    }
    assert not contradictions(target_pod_requirements(vmi({"affinity": affinity({})}, NAMED)))[0].is_dropped


def test_a_key_of_its_own_is_never_dropped() -> None:
    """The affinity leaves zone a or hdd; neither wish nor VM is in the other's way by itself."""
    spec = {
        "nodeSelector": {"disk": "ssd"},
        "affinity": affinity(expressions(expression("zone", "In", "a")), expressions(expression("disk", "In", "hdd"))),
    }
    (found,) = contradictions(target_pod_requirements(vmi(spec, NAMED), Migration.adding({"zone": "b"})))

    assert len(found.requirements) == 3
    assert not found.is_dropped


def test_what_kubevirt_holds_a_pod_to() -> None:
    vendor = "cpu-vendor.node.kubevirt.io"
    source = node("n1", {f"{vendor}/Intel": "true"})
    vm = vmi({"nodeSelector": {"zone": "a"}}, NAMED, nodeName="n1")

    def without(added: dict[str, str]) -> list[str]:
        asked = target_pod_requirements(vm, Migration.adding(added), source_node=source)
        kept = kept_by_kubevirt(asked)
        assert set(kept) <= set(asked)
        return [party(each) for each in asked if each not in kept]

    assert without({}) == without({"zone": "a"}) == without({"disk": "ssd"}) == []
    assert without({"zone": "b", "disk": "ssd"}) == ["added: zone=b"]
    # The wish takes the place of the guard, whatever it says.
    guard = f"vendor: {vendor}/Intel=true"
    assert without({f"{vendor}/AMD": "true"}) == without({f"{vendor}/Intel": "false"}) == [guard]


def sorted_by(wishes: dict[str, str], found: tuple[Contradiction, ...]) -> list[Contradiction]:
    by_key = {each.requirements[0].expression.key: each for each in found if isinstance(each.requirements[0], Label)}
    return [by_key[key] for key in wishes]


def test_the_present_node_as_a_wish() -> None:
    source = node("n1", {HOST: "host-1"})

    assert parties_to(None, {HOST: "host-1"}, source) == [[f"added: {HOST}=host-1", "source node"]]
    assert parties_to({"nodeSelector": {HOST: "host-1"}}, None, source) == [[f"vm: {HOST}=host-1", "source node"]]
    pinned = affinity({"matchFields": [expression("metadata.name", "In", "n1")]})
    assert parties_to({"affinity": pinned}, None, source) == [["affinity: metadata.name=n1", "source node"]]
    assert parties_to({"affinity": pinned}) == []


def test_an_affinity_of_which_every_term_is_excluded() -> None:
    terms = affinity(
        expressions(expression("zone", "In", "a")),
        expressions(expression("disk", "DoesNotExist"), expression("rank", "Exists")),
        {},
    )

    assert parties_to({"affinity": terms}, {"zone": "b", "disk": "ssd"}) == [
        ["added: zone=b", "added: disk=ssd", "affinity: zone=a or no disk and rank or an empty term"]
    ]
    assert parties_to({"affinity": terms}, {"zone": "b"}) == []


@pytest.mark.parametrize(
    ("terms", "condition"),
    [
        ([], ""),
        ([{}, None], "an empty term"),
        ([expressions(expression("zone", "In"))], "nodeSelectorTerms[0].matchExpressions[0]"),
        ([expressions(expression("zone", "Exists"), expression("zone", "DoesNotExist"))], "zone and no zone"),
        ([{"matchFields": [expression("metadata.uid", "In", "x")]}], "metadata.uid=x"),
        (
            [{"matchFields": [expression("metadata.name", "In", "a"), expression("metadata.name", "In", "b")]}],
            "metadata.name=a and metadata.name=b",
        ),
    ],
)
def test_an_affinity_that_excludes_itself(terms: list[Any], condition: str) -> None:
    ((found,),) = parties_to({"affinity": affinity(*terms)})

    assert found.startswith("affinity")
    assert condition in found


def test_three_that_only_together_exclude_each_other() -> None:
    def label(origin: str, operator: str, *values: str) -> Label:
        return Label(origin, Expression("zone", operator, values))

    three: Requirements = (label("vm", "In", "a", "b"), label("kubevirt", "NotIn", "a"), label("cluster", "NotIn", "b"))
    terms = vmi({"affinity": affinity(expressions(expression("zone", "In", "a", "b")))}, NAMED)
    (inside,) = (each for each in target_pod_requirements(terms) if isinstance(each, OneOf))

    assert [each.requirements for each in contradictions(three)] == [three]
    assert [each.requirements for each in contradictions((*three[1:], inside))] == [(inside, *three[1:])]
    assert contradictions(three[:2]) == contradictions((three[1], inside)) == ()


@untimed
@given(vm=vmis, added=selectors)
def test_a_contradiction_leaves_no_node(vm: Vmi, added: dict[str, str]) -> None:
    source = node(vm.status.node_name) if vm.status and vm.status.node_name else None
    requirements = target_pod_requirements(vm, Migration.adding(added), source_node=source)
    anywhere = [
        Node(name, {"zone": zone, "disk": disk, HOST: name, "kubevirt.io/schedulable": "true"})
        for name, zone, disk in product(NAMES, ["a", "b", "7"], ["", "1"])
    ]
    for contradiction in contradictions(requirements):
        assert set(contradiction.requirements) <= set(requirements)
        answer = [reasons_node_by_node(contradiction.requirements, [each]) for each in anywhere]
        assert all(reasons for each in answer for reasons in each.values())


@untimed
@given(vm=vmis)
def test_what_a_vm_asks_for_itself_is_judged_too(vm: Vmi) -> None:
    assert vm.spec
    assert all(str(each) for each in contradictions(tuple(own_requirements(vm.spec))))
