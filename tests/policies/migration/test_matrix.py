"""The matrix says of every node what the explanation says, in parts whose cost does not grow with the cluster."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.policies.migration.explaining import CLAIMED, stored
from tests.policies.migration.world import facts, node, vmi
from webhook.facts import Facts, NodesKey
from webhook.placement.index import NodeIndex
from webhook.placement.nodes import Node
from webhook.policies.migration.explanation import MAX_COLUMNS, SERVER, NotThere, PlacementMatrix, explain, matrix


def shown(added: dict[str, str] | None = None, first: int = 0, count: int = 50, name: str = "") -> PlacementMatrix:
    return matrix("demo", "web01", added or {}, Facts.of(facts()), first=first, count=count, node=name)


def test_eligible_nodes_come_first_and_cells_say_what_a_node_has() -> None:
    found = shown({"zone": "b"})

    unmet = [(row.node, row.unmet) for row in found.rows]
    assert unmet == [("node-b1", 0), ("node-a2", 1), ("node-b2", 1), ("node-a1", 2)]
    assert [column.origin for column in found.columns] == ["added", "vendor", "source node"]
    assert [bool(cell) for cell in found.rows[-1].cells] == [True, False, True]
    assert not any(found.rows[0].cells)


@pytest.mark.parametrize("added", [{}, {"zone": "b"}, {"zone": "nowhere"}, {"kubernetes.io/arch": "arm64"}])
def test_the_matrix_and_the_explanation_agree(added: dict[str, str]) -> None:
    found = shown(added)
    answer = explain("demo", "web01", added, Facts.of(facts()), reader=SERVER)

    assert found.explanation == answer
    assert sorted(row.node for row in found.rows if not row.unmet) == answer.eligible.names
    lacking = {reason.text: set(reason.nodes.names) for reason in answer.reasons}
    for place, column in enumerate(found.columns):
        assert {row.node for row in found.rows if row.cells[place]} in lacking.values()
        assert column.count == sum(bool(row.cells[place]) for row in found.rows)


@given(st.integers(0, 10), st.integers(1, 10))
def test_parts_are_parts_of_the_whole(first: int, count: int) -> None:
    whole = shown({"zone": "b"}).rows

    assert shown({"zone": "b"}, first, count).rows == whole[first : first + count]


def test_selectors_are_those_of_the_vm_without_what_is_added() -> None:
    assert shown({"zone": "nowhere"}).selectors == shown().selectors != ()


def test_volumes_are_requirements_as_in_the_explanation() -> None:
    """Those of the command: both say of every node the same, and no selector leads away from the disks."""
    world = facts(vmi(volumes=CLAIMED)) | stored("a")
    found = matrix("demo", "web01", {"zone": "b"}, Facts.of(world))

    assert found.explanation == explain("demo", "web01", {"zone": "b"}, Facts.of(world), reader=SERVER)
    place = [column.origin for column in found.columns].index("volumes")
    assert {row.node for row in found.rows if row.cells[place]} == {"node-b1", "node-b2"}
    assert not any(row.unmet == 0 for row in found.rows)
    assert not any((each.key, each.value) == ("zone", "b") for each in found.selectors)


def test_a_vm_or_node_that_is_not_there() -> None:
    with pytest.raises(NotThere):
        shown(name="nobody")


def big(count: int) -> Facts:
    """A cluster of so many nodes."""
    nodes = (Node.read(node(f"n{number:05}", "abc"[number % 3])) for number in range(count))
    return Facts.of(facts() | {NodesKey(): NodeIndex(nodes)})


def test_the_work_of_one_part_does_not_grow_with_the_cluster() -> None:
    steps = []
    for count in (100, 5000):
        known = big(count)
        found = known.budget.run(matrix, "demo", "web01", {"zone": "b"}, known, first=50)
        assert len(found.rows) == 50
        steps.append(known.budget.spent)

    assert steps[0] == steps[1] < 1000


def test_five_thousand_nodes_with_a_taint_each_have_a_few_columns() -> None:
    nodes = []
    for number in range(5000):
        plain = node(f"n{number:05}", "a")
        plain["spec"]["taints"] = [{"key": f"t{number}", "effect": "NoSchedule"}]
        nodes.append(Node.read(plain))
    known = Facts.of(facts() | {NodesKey(): NodeIndex(nodes)})
    found = matrix("demo", "web01", {}, known)

    assert (len(found.columns), len(found.rows)) == (MAX_COLUMNS, 50)
    assert found.more_columns == 5000 - MAX_COLUMNS
    assert all(row.unmet == 1 for row in found.rows)
