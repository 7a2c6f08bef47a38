"""Selectors to try: labels that distinguish the eligible nodes, counted in steps."""

from __future__ import annotations

import pytest

from tests.placement.samples import node
from webhook.admission.step_budget import MAX_STEPS, StepBudget, TooComplex
from webhook.placement.index import NodeIndex, suggest_selectors

ZONE = "topology.kubernetes.io/zone"


def suggested(nodes: NodeIndex, eligible: int) -> list[tuple[str, str, int]]:
    return [(each.key, each.value, each.count) for each in suggest_selectors(nodes, eligible)]


def test_labels_that_some_eligible_nodes_have() -> None:
    nodes = NodeIndex(
        [
            node("n1", {"disk": "ssd", ZONE: "a", "os": "linux"}),
            node("n2", {"disk": "hdd", ZONE: "b", "os": "linux"}),
            node("n3", {"disk": "ssd", ZONE: "b", "os": "linux"}),
            node("n4", {"disk": "tape", ZONE: "c", "os": "linux"}),
        ]
    )

    # n4 is not eligible, and all have the same os.
    assert suggested(nodes, 0b0111) == [(ZONE, "b", 2), (ZONE, "a", 1), ("disk", "ssd", 2), ("disk", "hdd", 1)]
    assert suggested(nodes, 0b0001) == suggested(nodes, 0) == []


def test_labels_that_are_not_for_people() -> None:
    labels = {"cpu-feature.node.kubevirt.io/avx", "kubernetes.io/hostname", "beta.kubernetes.io/arch"}
    nodes = NodeIndex([node("n1", dict.fromkeys(labels, "x")), node("n2", {})])

    assert suggested(nodes, 0b11) == []


def test_labels_with_a_value_of_its_own_on_each_node_are_passed_over() -> None:
    nodes = NodeIndex(node(f"n{number}", {"serial": str(number)}) for number in range(100))

    assert suggested(nodes, (1 << 100) - 1) == []


def test_the_work_does_not_grow_with_the_nodes() -> None:
    steps = []
    for count in (50, 5000):
        nodes = NodeIndex(node(f"n{number}", {ZONE: "abc"[number % 3]}) for number in range(count))
        budget = StepBudget()
        assert len(budget.run(suggest_selectors, nodes, (1 << count) - 1)) == 3
        steps.append(budget.spent)

    assert steps[0] == steps[1] < 100


def test_thousands_of_labels_end_somewhere() -> None:
    nodes = NodeIndex([node("n1", {f"l{number:05}": "x" for number in range(20_000)})])
    budget = StepBudget()
    assert budget.run(suggest_selectors, nodes, 1) == ()
    assert budget.spent <= MAX_STEPS // 10
    with pytest.raises(TooComplex):
        StepBudget(10).run(suggest_selectors, nodes, 1)
