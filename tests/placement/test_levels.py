from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tests.placement.samples import untimed
from webhook.placement.index import ResourceIndex

# Many amounts, so that several unions are kept, and few, so that nodes share them.
amounts = st.one_of(st.integers(0, 5), st.integers(0, 10**4))
changes = st.lists(st.tuples(st.integers(0, 300), st.none() | amounts), max_size=400)


@untimed
@given(changes=changes, asked=st.lists(amounts, max_size=8))
def test_which_nodes_have_less(changes: list[tuple[int, int | None]], asked: list[int]) -> None:
    levels = ResourceIndex()
    has: dict[int, int] = {}
    for turn, (node, amount) in enumerate(changes):
        if node in has:
            levels.flip(has.pop(node), 1 << node)
        if amount is not None:
            levels.flip(amount, 1 << node)
            has[node] = amount
        if turn % 50 == 0 and asked:
            levels.below(asked[0])

    assert levels.nodes == sum(1 << node for node in has)
    assert bool(levels) is bool(has)
    for amount in asked:
        assert levels.below(amount) == sum(1 << node for node, its in has.items() if its < amount)


def test_a_question_costs_few_unions_where_every_node_has_an_amount_of_its_own() -> None:
    levels = ResourceIndex()
    for node in range(5000):
        levels.flip(node * 7, 1 << node)
    levels.below(10**6)
    unions: list[int] = []
    original = levels._union
    levels._union = lambda start, end: unions.append(end - start) or original(start, end)  # type: ignore[method-assign,func-returns-value]

    for amount in range(0, 35_000, 500):
        levels.below(amount)

    assert max(unions) < 64
    assert len(unions) == 70


def test_a_heartbeat_discards_only_the_unions_behind_it() -> None:
    levels = ResourceIndex()
    for node in range(1000):
        levels.flip(node, 1 << node)
    levels.below(10**6)
    kept = len(levels._unions)
    levels.flip(950, 1 << 950)

    assert kept - len(levels._unions) == 1
