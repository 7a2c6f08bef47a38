from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tests.placement.samples import thorough
from webhook.k8s.types.selectors import Expression
from webhook.placement.index import Thresholds

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
    having = {value: 1 << position for position, value in enumerate(values)}
    expression = Expression("rank", operator, (str(bound),))

    expected = sum(nodes for value, nodes in having.items() if expression.accepts(value))

    assert Thresholds(having).beyond(operator, bound) == expected
