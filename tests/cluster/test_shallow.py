from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from webhook.cluster.shallow import prune

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8) | st.sampled_from(['"', "\\", "]}", '\\"[{']),
    lambda below: st.lists(below, max_size=4) | st.dictionaries(st.text(max_size=4), below, max_size=4),
    max_leaves=30,
)


def cut(value: Any, levels: int) -> Any:
    """The same by recursion."""
    if not isinstance(value, dict | list):
        return value
    if levels == 0:
        return None
    if isinstance(value, dict):
        return {key: cut(below, levels - 1) for key, below in value.items()}
    return [cut(below, levels - 1) for below in value]


@given(JSON, st.integers(0, 5))
def test_cuts_off_what_lies_below(value: Any, levels: int) -> None:
    assert json.loads(prune(json.dumps(value).encode(), levels)) == cut(value, levels)


@pytest.mark.parametrize("depth", [1_000, 100_000])
def test_of_any_depth(depth: int) -> None:
    text = b'{"spec":' + b"[" * depth + b"]" * depth + b',"metadata":{"name":"a"}}'

    assert prune(text, 2) == b'{"spec":[null],"metadata":{"name":"a"}}'


@given(st.binary(max_size=60))
def test_of_anything(text: bytes) -> None:
    assert len(prune(text, 1)) <= len(text) + 4 * text.count(b"[") + 4 * text.count(b"{")
