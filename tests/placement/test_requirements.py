"""Requirements on nodes: which nodes meet them, and which of them exclude each other."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.placement import samples
from tests.placement.samples import FOO, HOST, NAMES, VALUES, affinity, expression, expressions, node, vmi, vmis
from webhook.k8s.types.scheduling import Toleration
from webhook.k8s.types.selectors import Expression, Term
from webhook.placement import requirements as module
from webhook.placement.index import NodeIndex
from webhook.placement.machines import Migration, Vmi
from webhook.placement.nodes import CORDON, Node
from webhook.placement.requirements import Allocatable, Label, OneOf, Origin, Requirement, Requirements, contradictions
from webhook.placement.target_pods import own_requirements, target_pod_requirements

ZONE = Expression.equals("zone", "b")
TWO = Allocatable(Origin.RESOURCES, FOO, 2)
ELSEWHERE = module.Elsewhere(Origin.SOURCE_NODE, "n1", "host-1")
TERMS = (Term((ZONE, Expression("disk", "Exists"))), Term((Expression("rank", "Gt", ("5",)),)))
MALFORMED = Term.of((Expression("zone", "Is"),), (), "nodeSelectorTerms[0]")
TAINTS = [
    {"key": "b", "value": "x", "effect": "NoSchedule"},
    {"key": "a", "effect": "NoExecute"},
    {"key": "c", "effect": "PreferNoSchedule"},
]
TAINTED = ["a:NoExecute", "b=x:NoSchedule"]


@pytest.mark.parametrize(
    ("asked", "on", "has"),
    [
        (Label(Origin.VM, ZONE), node(labels={"zone": "b"}), []),
        (Label(Origin.VM, ZONE), node(labels={"zone": "a"}), ["has zone=a"]),
        (OneOf(Origin.AFFINITY, TERMS), node(labels={"zone": "b", "disk": "x"}), []),
        (OneOf(Origin.AFFINITY, TERMS), node(labels={"rank": "7"}), []),
        (OneOf(Origin.AFFINITY, (MALFORMED, Term((ZONE,)))), node(labels={"zone": "b"}), []),
        (OneOf(Origin.AFFINITY, (Term(),)), node(), ["cannot match"]),
        (module.Untainted(Origin.TAINTS, ()), node(taints=TAINTS), [f"has the taint {each}" for each in TAINTED]),
        (
            module.Untainted(Origin.TAINTS, (Toleration("a", "Exists"),)),
            node(taints=TAINTS),
            ["has the taint b=x:NoSchedule"],
        ),
        (module.Uncordoned(Origin.CORDONED, ()), node(), []),
        (module.Uncordoned(Origin.CORDONED, (Toleration(CORDON.key, "Exists"),)), node(cordoned=True), []),
        (module.Staying(Origin.DEPARTURE), node(), []),
        (ELSEWHERE, node("n2", {HOST: "n1"}), []),
        (module.Elsewhere(Origin.SOURCE_NODE, "n1"), node("n2", {HOST: ""}), []),
        (module.Kvm(Origin.KVM), node(), []),
        (module.Kvm(Origin.KVM), node(kvm="1k"), []),
        (module.Kvm(Origin.KVM), node(kvm=0), ["does not offer it"]),
        (TWO, node(), []),
        (TWO, node(allocatable={FOO: "2"}), []),
        (TWO, node(allocatable={FOO: "1k"}), []),
        (TWO, node(allocatable={FOO: "0"}), ["has 0 allocatable"]),
        (TWO, node(allocatable={}), ["does not offer it"]),
        (module.Reachable(Origin.VOLUMES, (Term((ZONE,)),), "root"), node(labels={"zone": "b"}), []),
    ],
)
def test_a_node_has_what_is_required_or_this_instead(asked: Requirement, on: Node, has: list[str]) -> None:
    """`test_wording` holds the words for every requirement that a node does not meet."""
    assert asked.reasons(on) == tuple(module.UnmetRequirement(asked, each) for each in has)
    assert samples.reasons_by_node(NodeIndex([on]).review((asked,)), [on]) == {on.name: asked.reasons(on)}


def test_amounts_in_units_and_requirements_in_sets() -> None:
    assert "2299Mi" in Allocatable(Origin.RESOURCES, "memory", 2299 * 2**20).lacking
    assert Allocatable(Origin.KVM, "devices.kubevirt.io/kvm", 1).clause == module.Kvm(Origin.KVM).clause
    assert len({Label(Origin.VM, ZONE), Label(Origin.VM, ZONE), Label(Origin.ADDED, ZONE)}) == 2
    assert len({module.Untainted(Origin.TAINTS, (Toleration("a"),)), module.Untainted(Origin.TAINTS, ())}) == 2
    # What every node has cannot be absent.
    assert not module.are_satisfiable([Expression("metadata.name", "DoesNotExist")])
    assert module.are_satisfiable([Expression("metadata.name", "NotIn", ("n1",))])
    assert module.are_satisfiable([])


NAMED = {"cpu": {"model": "Westmere"}}


def added_to(spec: Any, added: dict[str, str], domain: Any = None, **options: Any) -> Requirements:
    return target_pod_requirements(vmi(spec, domain or NAMED), Migration.adding(added), **options)


def parties_to(spec: Any, added: dict[str, str] | None = None, source: Node | None = None) -> list[list[str]]:
    """The parties to each contradiction, each as ``ORIGIN: CONDITION``."""
    running = {"nodeName": source.name} if source else {}
    vm, migration = vmi(spec, NAMED, **running), Migration.adding(added or {})
    found = contradictions(target_pod_requirements(vm, migration, source_node=source))
    for each in found:
        assert str(each) == ", but ".join(requirement.clause for requirement in each.requirements)
    return [list(map(party, each.requirements)) for each in found]


def party(requirement: Requirement) -> str:
    condition: object = ""
    if isinstance(requirement, Label):
        condition = requirement.expression
    elif isinstance(requirement, OneOf):
        condition = " or ".join(map(str, requirement.terms))
    return f"{requirement.origin}: {condition}".removesuffix(": ")


@pytest.mark.parametrize(
    ("possible", "asked"),
    [
        (True, [("Gt", "1"), ("Lt", "3")]),
        (False, [("Gt", "1"), ("Lt", "2")]),
        (False, [("Gt", "5"), ("Lt", "3")]),
        (False, [("Gt", "9223372036854775807")]),
        (False, [("Lt", "-9223372036854775808")]),
        (True, [("Gt", "1"), ("NotIn", "2"), ("Lt", "3")]),  # 02 and 002 are numbers as well
        (False, [("In",)]),
        (True, []),
    ],
)
def test_bounds_of_one_label(possible: bool, asked: list[tuple[str, ...]]) -> None:
    asked_of_one = [Expression("key", operator, tuple(values)) for operator, *values in asked]
    assert module.are_compatible(asked_of_one) is possible


valid = st.one_of(
    st.builds(
        lambda operator, values: Expression("key", operator, tuple(values)),
        st.sampled_from(["In", "NotIn"]),
        st.sets(st.sampled_from(VALUES), min_size=1),
    ),
    st.sampled_from([Expression("key", operator) for operator in ("Exists", "DoesNotExist")]),
    st.sampled_from([Expression("key", operator, (bound,)) for operator in ("Gt", "Lt") for bound in "0127"]),
)


@given(st.lists(valid, max_size=4))
def test_no_value_means_no_value(asked: list[Expression]) -> None:
    candidates = [None, *VALUES, "00", "01", "02", "03", "05", "08", "-9", "other"]
    found = any(all(expression.accepts(value) for expression in asked) for value in candidates)
    assert module.are_compatible(asked) is found


ZONE_A = expressions(expression("zone", "In", "a"))
PINNED = affinity({"matchFields": [expression("metadata.name", "In", "n1")]})
THREE_TERMS = affinity(ZONE_A, expressions(expression("disk", "DoesNotExist"), expression("rank", "Exists")), {})
HOST_1 = node("n1", {HOST: "host-1"})
SCHEDULABLE, VENDOR = "kubevirt.io/schedulable", "cpu-vendor.node.kubevirt.io"
SVM = "cpu-feature.node.kubevirt.io/svm"


@pytest.mark.parametrize(
    ("spec", "added", "source", "parties"),
    [
        ({"nodeSelector": {"zone": "a"}}, {"zone": "b"}, None, [["added: zone=b", "vm: zone=a"]]),
        ({"nodeSelector": {"zone": "a"}}, {"zone": "a", "disk": "ssd"}, None, []),
        ({"affinity": affinity(expressions(expression("zone", "In", "a", "b")))}, {"zone": "b"}, None, []),
        (
            {"architecture": "amd64"},
            {SCHEDULABLE: "false", "kubernetes.io/arch": "arm64"},
            None,
            [
                [f"added: {SCHEDULABLE}=false", f"schedulable: {SCHEDULABLE}=true"],
                ["added: kubernetes.io/arch=arm64", "kubevirt: kubernetes.io/arch=amd64"],
            ],
        ),
        (None, {HOST: "host-1"}, HOST_1, [[f"added: {HOST}=host-1", "source node"]]),
        ({"nodeSelector": {HOST: "host-1"}}, None, HOST_1, [[f"vm: {HOST}=host-1", "source node"]]),
        ({"affinity": PINNED}, None, HOST_1, [["affinity: metadata.name=n1", "source node"]]),
        ({"affinity": PINNED}, None, None, []),
        (
            {"affinity": THREE_TERMS},
            {"zone": "b", "disk": "ssd"},
            None,
            [["added: zone=b", "added: disk=ssd", "affinity: zone=a or no disk and rank or an empty term"]],
        ),
        ({"affinity": THREE_TERMS}, {"zone": "b"}, None, []),
    ],
)
def test_who_takes_part_what_is_added_first(spec: Any, added: Any, source: Any, parties: list[list[str]]) -> None:
    assert parties_to(spec, added, source) == parties


def test_what_kubevirt_drops_without_a_word() -> None:
    spec = {"nodeSelector": {"zone": "a"}, "affinity": affinity(expressions(expression("disk", "In", "ssd")))}
    source = node("n1", {f"{VENDOR}/Intel": "true"})
    dropped = {
        "zone": ("b", True),
        SCHEDULABLE: ("false", True),
        "disk": ("hdd", False),  # the pod has both, and stays unschedulable
        SVM: ("true", False),
        f"{VENDOR}/Intel": ("false", False),  # worse: it replaces KubeVirt's own requirement
        HOST: ("n1", False),
    }
    migration = Migration.adding({key: value for key, (value, _) in dropped.items()})

    vm = vmi(spec, {"cpu": {"model": "Westmere", "features": [{"name": "svm", "policy": "forbid"}]}}, nodeName="n1")
    found = contradictions(target_pod_requirements(vm, migration, source_node=source))

    by_key = {each.keys[0]: each for each in found}
    assert {key: each.is_dropped for key, each in by_key.items()} == {key: is_ for key, (_, is_) in dropped.items()}
    assert list(map(party, by_key[SVM].requirements)) == [f"added: {SVM}=true", f"kubevirt: no {SVM}"]
    assert not contradictions(added_to({"affinity": affinity({})}, {}))[0].is_dropped
    # The affinity leaves zone a or hdd; neither wish nor VM is in the other's way by itself.
    near = affinity(ZONE_A, expressions(expression("disk", "In", "hdd")))
    (both,) = contradictions(added_to({"nodeSelector": {"disk": "ssd"}, "affinity": near}, {"zone": "b"}))
    assert (len(both.requirements), both.is_dropped) == (3, False)


def test_what_kubevirt_holds_a_pod_to() -> None:
    source = node("n1", {f"{VENDOR}/Intel": "true"})

    def without(added: dict[str, str]) -> list[str]:
        asked = added_to({"nodeSelector": {"zone": "a"}}, added, source_node=source)
        kept = module.kept_by_kubevirt(asked)
        assert set(kept) <= set(asked)
        return [party(each) for each in asked if each not in kept]

    assert without({}) == without({"zone": "a"}) == without({"disk": "ssd"}) == []
    assert without({"zone": "b", "disk": "ssd"}) == ["added: zone=b"]
    # The wish takes the place of the guard, whatever it says.
    guard = f"vendor: {VENDOR}/Intel=true"
    assert without({f"{VENDOR}/AMD": "true"}) == without({f"{VENDOR}/Intel": "false"}) == [guard]


NAME_A, NAME_B = (expression("metadata.name", "In", name) for name in "ab")


@pytest.mark.parametrize(
    ("terms", "condition"),
    [
        ([], ""),
        ([{}, None], "an empty term"),
        ([expressions(expression("zone", "In"))], "nodeSelectorTerms[0].matchExpressions[0]"),
        ([expressions(expression("zone", "Exists"), expression("zone", "DoesNotExist"))], "zone and no zone"),
        ([{"matchFields": [expression("metadata.uid", "In", "x")]}], "metadata.uid=x"),
        ([{"matchFields": [NAME_A, NAME_B]}], "metadata.name=a and metadata.name=b"),
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


@given(vm=vmis, added=samples.selectors)
def test_a_contradiction_leaves_no_node(vm: Vmi, added: dict[str, str]) -> None:
    source = node(vm.status.node_name) if vm.status and vm.status.node_name else None
    requirements = target_pod_requirements(vm, Migration.adding(added), source_node=source)
    anywhere = [
        Node(name, {"zone": zone, "disk": disk, HOST: name, "kubevirt.io/schedulable": "true"})
        for name, zone, disk in product(NAMES, ["a", "b", "7"], ["", "1"])
    ]
    for contradiction in contradictions(requirements):
        assert set(contradiction.requirements) <= set(requirements)
        answer = [samples.reasons_node_by_node(contradiction.requirements, [each]) for each in anywhere]
        assert all(reasons for each in answer for reasons in each.values())


@given(vm=vmis)
def test_what_a_vm_asks_for_itself_is_evaluated_too(vm: Vmi) -> None:
    assert vm.spec
    assert all(str(each) for each in contradictions(tuple(own_requirements(vm.spec))))
