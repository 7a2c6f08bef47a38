from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tests.placement.samples import untimed
from webhook.placement.nodes import bitset_items, bitset_positions


@untimed
@given(st.sets(st.integers(0, 200)))
def test_the_items_of_the_set_are_chosen_in_order(members: set[int]) -> None:
    bits = sum(1 << member for member in members)

    assert list(bitset_items(bits, range(201))) == list(bitset_positions(bits)) == sorted(members)
