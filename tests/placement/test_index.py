"""The index of nodes answers as looking at each node does, in few steps; and the selectors that it suggests."""

from __future__ import annotations

import tracemalloc
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from tests.placement import samples
from tests.placement.samples import NAMES, node, nodes, reasons_by_node, requests, selectors, thorough, vmi, vmis
from webhook.admission.step_budget import MAX_STEPS, StepBudget, TooComplex
from webhook.k8s.types.selectors import Expression, Term
from webhook.placement.eligibility import unmet_requirements
from webhook.placement.index import NodeIndex, NumberIndex
from webhook.placement.machines import Migration, Vmi
from webhook.placement.nodes import ZONE, Node, bitset_union
from webhook.placement.requirements import Allocatable, OneOf, Origin, Requirement, Requirements, Staying
from webhook.placement.target_pods import own_requirements, target_pod_requirements

# Many amounts, so that several unions are kept, and few, so that nodes share them.
amounts = st.one_of(st.integers(0, 5), st.integers(0, 10**4))
changes = st.lists(st.tuples(st.integers(0, 300), st.none() | amounts), max_size=400)


@given(changes=changes, asked=st.lists(amounts, max_size=8))
def test_which_nodes_have_less(changes: list[tuple[int, int | None]], asked: list[int]) -> None:
    amounts = NumberIndex()
    has: dict[int, int] = {}
    for turn, (position, amount) in enumerate(changes):
        if position in has:
            amounts.flip(has.pop(position), 1 << position)
        if amount is not None:
            amounts.flip(amount, 1 << position)
            has[position] = amount
        if turn % 50 == 0 and asked:
            amounts.below(asked[0])

    assert amounts.nodes == sum(1 << position for position in has)
    for amount in asked:
        assert amounts.below(amount) == sum(1 << position for position, its in has.items() if its < amount)


@pytest.mark.control("thousands-of-requests")
def test_a_question_costs_few_unions_where_every_node_has_an_amount_of_its_own() -> None:
    amounts = NumberIndex()
    for position in range(5000):
        amounts.flip(position * 7, 1 << position)
    amounts.below(10**6)
    unions: list[int] = []
    original = amounts._union
    amounts._union = lambda start, end: unions.append(end - start) or original(start, end)  # type: ignore[method-assign,func-returns-value]
    for amount in range(0, 35_000, 500):
        amounts.below(amount)
    assert max(unions) < 64
    assert len(unions) == 69  # below the least there is nothing


def test_a_heartbeat_discards_only_the_unions_behind_it() -> None:
    amounts = NumberIndex()
    for position in range(1000):
        amounts.flip(position, 1 << position)
    amounts.below(10**6)
    kept = len(amounts._unions)
    amounts.flip(950, 1 << 950)
    assert kept - len(amounts._unions) == 1


def test_amounts_are_indexed_for_each_resource_and_not_for_each_node() -> None:
    amounts = {"cpu": 1, "memory": 2, "example.com/gpu": 3}
    with patch("webhook.placement.index.NumberIndex", wraps=NumberIndex) as made:
        NodeIndex([Node(f"n{number}", {}, allocatable=amounts) for number in range(20)])
    assert made.call_count == len(amounts)


# Numbers in several spellings, at both ends of 64 bits, beyond them, and invalid ones.
_values = st.one_of(
    st.integers(-40, 40).map(str),
    st.sampled_from(["", "a", "+7", "007", "-0", "1e3", " 5", str(2**63 - 1), str(-(2**63)), str(2**63)]),
)


@thorough
@given(
    st.lists(_values, unique=True, max_size=60),
    st.sampled_from(["Gt", "Lt"]),
    st.integers(-41, 41) | st.sampled_from([2**63 - 1, -(2**63)]),
)
def test_halving_finds_what_looking_at_each_value_finds(values: list[str], operator: str, bound: int) -> None:
    index = NodeIndex(Node(f"n{position}", {"rank": value}) for position, value in enumerate(values))
    expression = Expression("rank", operator, (str(bound),))
    expected = sum(1 << position for position, value in enumerate(values) if expression.accepts(value))
    assert index._nodes_accepting(expression) == expected


ZONE_B = target_pod_requirements(vmi(), Migration.adding({"zone": "b"}))[:1]


def agree(index: NodeIndex, requirements: Requirements, cluster: list[Node]) -> None:
    """The index gives what looking at each node gives, in all its forms."""
    plain = samples.reasons_node_by_node(requirements, cluster)
    eligibility = index.review(requirements)
    assert reasons_by_node(eligibility, cluster) == plain
    assert eligibility.names() == sorted(name for name, reasons in plain.items() if not reasons)
    assert (eligibility.total, eligibility.count) == (len(cluster), len(eligibility.names()))
    by_class: dict[tuple[Requirement, str], list[str]] = {}
    for name, reasons in sorted(plain.items()):
        for reason in reasons:
            text = reason.has.removeprefix("has the taint ") if "taint" in reason.has else ""
            by_class.setdefault((reason.requirement, text), []).append(name)
    found = {(each.requirement, str(each.taint or "")): eligibility.names(each) for each in eligibility.failures}
    assert found == by_class
    assert all(each.count == len(eligibility.names(each)) for each in eligibility.failures)


@thorough
@given(
    vm=vmis, added=selectors, asked=requests, cluster=samples.clusters, source=st.none() | nodes(st.sampled_from(NAMES))
)
def test_the_index_agrees_with_the_plain_way(
    vm: Vmi, added: Any, asked: dict[str, int], cluster: list[Node], source: Node | None
) -> None:
    index = NodeIndex(cluster)
    agree(index, target_pod_requirements(vm, Migration.adding(added), source_node=source, requests=asked), cluster)
    assert vm.spec
    agree(index, tuple(own_requirements(vm.spec)), cluster)


class Updates(RuleBasedStateMachine):
    """Nodes come, change and go; the index is at every moment what a new one would be."""

    def __init__(self) -> None:
        super().__init__()
        self.index = NodeIndex()
        self.nodes: dict[str, Node] = {}

    @rule(node=nodes(st.sampled_from(NAMES)))
    def put(self, node: Node) -> None:
        self.index.put(node)
        self.nodes[node.name] = node

    @rule(name=st.sampled_from(NAMES))
    def remove(self, name: str) -> None:
        self.index.remove(name)
        self.nodes.pop(name, None)

    @rule(vm=vmis, added=selectors, asked=requests)
    def review(self, vm: Vmi, added: Any, asked: dict[str, int]) -> None:
        cluster = [self.nodes[each.name] for each in self.index]
        required = target_pod_requirements(vm, Migration.adding(added), requests=asked)
        agree(self.index, (*required, Staying(Origin.DEPARTURE)), cluster)

    @invariant()
    def is_like_a_new_one(self) -> None:
        assert (len(self.index), {each.name: each for each in self.index}) == (len(self.nodes), self.nodes)
        assert all(self.index.get(name) == self.nodes.get(name) for name in NAMES)
        fresh = NodeIndex(self.nodes.values())
        for kept, new in ((self.index._taints, fresh._taints), (self.index._resource_indexes, fresh._resource_indexes)):
            assert kept.keys() == new.keys()
        values, others = self.index._values, fresh._values
        assert self.index._labeled == {key: bitset_union(values[key].values()) for key in self.index._labeled}
        assert {key: values[key].keys() for key in values} == {key: others[key].keys() for key in others}


TestUpdates = Updates.TestCase
TestUpdates.settings = settings(max_examples=40, stateful_step_count=30)


def test_positions_are_used_again_and_removing_twice_is_no_mistake() -> None:
    index = NodeIndex([node("n1"), node("n2"), node("n3")])
    index.remove("n2")
    index.remove("n2")
    index.put(node("n4", {"zone": "b"}))
    assert len(index._nodes) == 3
    before = index.review(ZONE_B)
    assert before.names() == ["n4"]
    # A heartbeat changes nothing.
    index.put(node("n4", {"zone": "b"}))
    assert index.review(ZONE_B).nodes is before.nodes


def test_a_heartbeat_touches_only_the_amounts_that_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    def reporting(name: str, storage: int) -> Node:
        same = {f"example.com/r{number}": "1" for number in range(12)}
        return node(name, allocatable=same | {"ephemeral-storage": str(storage)})

    index = NodeIndex(reporting(f"n{number}", number) for number in range(100))
    flips: list[int] = []
    flip = NumberIndex.flip

    def counted(amounts: NumberIndex, amount: int, bit: int) -> None:
        flips.append(amount)
        flip(amounts, amount, bit)

    monkeypatch.setattr(NumberIndex, "flip", counted)

    index.put(reporting("n7", 7))
    assert flips == []
    index.put(reporting("n7", 1000))
    assert sorted(flips) == [7, 1000]


def test_a_verdict_stays_as_it_was() -> None:
    before = [node("n1", {"zone": "b"}), node("n2", {"zone": "a"})]
    index = NodeIndex(before)
    eligibility = index.review(ZONE_B)
    index.put(node("n1", {"zone": "a"}))
    index.remove("n2")
    index.put(node("n3", {"zone": "b"}))
    assert (eligibility.names(), eligibility.total) == (["n1"], 2)
    (reason,) = reasons_by_node(eligibility, before)["n2"]
    assert reason.requirement == ZONE_B[0]
    assert "zone=a" in reason.has


def test_an_unknown_requirement_is_a_bug() -> None:
    bare = Requirement("vm")
    with pytest.raises(TypeError, match="the index knows no Requirement"):
        NodeIndex([node()]).review((bare,))
    for ask in (lambda: bare.clause, lambda: bare.lacking, lambda: bare.reasons(node())):
        with pytest.raises(NotImplementedError):
            ask()


def _above(index: NodeIndex, key: str, bound: int) -> list[str]:
    return index.review((OneOf(Origin.AFFINITY, (Term((Expression(key, "Gt", (str(bound),)),)),)),)).names()


def test_sorted_values_follow_the_nodes_and_no_more_labels_are_kept_sorted_than_some() -> None:
    index = NodeIndex([node("n1", {"rank": "1"}), node("n2", {"rank": "5"})])
    assert _above(index, "rank", 3) == ["n2"]
    index.put(node("n1", {"rank": "7"}))
    assert _above(index, "rank", 3) == ["n1", "n2"]
    index.remove("n2")
    assert _above(index, "rank", 3) == ["n1"]
    # However many are asked for.
    index = NodeIndex([node("n1", {f"rank-{number}": str(number) for number in range(100)})])
    for number in range(100):
        assert (_above(index, f"rank-{number}", number - 1), _above(index, "rank-0", 0)) == (["n1"], [])
    assert len(index._thresholds) == 32
    assert "rank-0" in index._thresholds, "what is asked for again and again stays"


def test_a_label_that_is_kept_sorted_shares_the_sets_of_its_values() -> None:
    index = NodeIndex(Node(f"n{number}", {"rank": str(number)}) for number in range(5000))
    tracemalloc.start()
    try:
        above = _above(index, "rank", 4998)
        taken = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert above == ["n4999"]
    assert taken < 750_000


def suggested(nodes: NodeIndex, eligible: int) -> list[tuple[str, str, int]]:
    return [(each.key, each.value, each.count) for each in nodes.suggest_selectors(eligible)]


def test_labels_of_some_eligible_nodes_that_are_for_people_and_name_more_than_one() -> None:
    parts = [("ssd", "a"), ("hdd", "b"), ("ssd", "b"), ("tape", "c")]
    nodes = NodeIndex(
        node(f"n{at}", {"disk": disk, ZONE: zone, "os": "linux"}) for at, (disk, zone) in enumerate(parts, 1)
    )
    # n4 is not eligible, and all have the same os.
    assert suggested(nodes, 0b0111) == [(ZONE, "b", 2), (ZONE, "a", 1), ("disk", "ssd", 2), ("disk", "hdd", 1)]
    assert suggested(nodes, 0b0001) == suggested(nodes, 0) == []
    # Labels that are not for people, or that name one node, are passed over.
    labels = {"cpu-feature.node.kubevirt.io/avx", "kubernetes.io/hostname", "beta.kubernetes.io/arch"}
    assert suggested(NodeIndex([node("n1", dict.fromkeys(labels, "x")), node("n2", {})]), 0b11) == []
    serial = NodeIndex(node(f"n{number}", {"serial": str(number)}) for number in range(100))
    assert suggested(serial, (1 << 100) - 1) == []


@pytest.mark.control("page-takes-the-processor")
def test_the_work_does_not_grow_with_the_nodes() -> None:
    steps = []
    for count in (50, 5000):
        nodes = NodeIndex(node(f"n{number}", {ZONE: "abc"[number % 3]}) for number in range(count))
        budget = StepBudget()
        assert len(budget.run(nodes.suggest_selectors, (1 << count) - 1)) == 3
        steps.append(budget.spent)
    assert steps[0] == steps[1] < 100


def test_thousands_of_labels_end_somewhere() -> None:
    nodes = NodeIndex([node("n1", {f"l{number:05}": "x" for number in range(20_000)})])
    budget = StepBudget()
    assert budget.run(nodes.suggest_selectors, 1) == ()
    assert budget.spent <= MAX_STEPS // 10
    with pytest.raises(TooComplex):
        StepBudget(10).run(nodes.suggest_selectors, 1)


def test_a_request_of_nothing_is_met_by_every_node() -> None:
    """By the index as by a single node, which compares it with what it does not have."""
    alone = Node("a", {}, allocatable={"cpu": 1000})
    nothing = Allocatable(Origin.RESOURCES, "x.example/y", 0)
    assert NodeIndex([alone]).review((nothing,)).count == 1
    assert unmet_requirements((nothing,), alone) == ()


def test_which_resources_any_node_reports() -> None:
    nodes = NodeIndex([Node("a", {}, allocatable={"x.example/y": 0}), Node("b", {})])
    assert (nodes.reports("x.example/y"), nodes.reports("x.example/z")) == (True, False)
    nodes.remove("a")
    assert nodes.reports("x.example/y") is False
