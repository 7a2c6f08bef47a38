from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from webhook.doctor.support.histogram import histogram


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ([5, 5, 5], "5 on 3 nodes"),
        ([0, 0, 10, 9], "0 on 2 nodes, 9 on 1, 10 on 1"),
        ([*range(9)], "0 to 1 on 2 nodes, 2 to 3 on 2, 4 to 5 on 2, 6 to 7 on 2, 8 to 9 on 1"),
        ([0, 99.9, 1000], "0 on 1 node, 99 on 1, 1000 on 1"),
    ],
)
def test_values_in_order(values: list[float], text: str) -> None:
    assert histogram(values) == text


def test_units() -> None:
    assert histogram([1.5, 1.9], "%") == "1% on 2 nodes"


@given(st.lists(st.floats(0, 1e6) | st.integers(0, 10), min_size=1))
def test_it_is_bounded_and_counts_every_node(values: list[float]) -> None:
    bars = histogram(values).split(", ")

    assert len(bars) <= 8
    assert sum(int(bar.rpartition(" on ")[2].split()[0]) for bar in bars) == len(values)
