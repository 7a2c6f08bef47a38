from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tests.placement.samples import untimed
from webhook.placement.bits import positions, select


@untimed
@given(st.sets(st.integers(0, 200)))
def test_the_items_of_the_set_are_chosen_in_order(members: set[int]) -> None:
    bits = sum(1 << member for member in members)

    assert list(select(bits, range(201))) == list(positions(bits)) == sorted(members)
