"""JSON values of all shapes."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

# Strings that look like structure, escapes, and what no UTF-8 has.
_texts = st.text(st.sampled_from('[]{}",:\\ax\u00e9\ud800\x00'), max_size=6)
JSON_VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), _texts),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(_texts, inner, max_size=4)),
    max_leaves=30,
)


def plainly(value: Any, levels: int) -> Any:
    if not isinstance(value, dict | list):
        return value
    if not levels:
        return None
    if isinstance(value, list):
        return [plainly(item, levels - 1) for item in value]
    return {key: plainly(item, levels - 1) for key, item in value.items()}
