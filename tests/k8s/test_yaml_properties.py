"""Any JSON is YAML, every value has its line, and the parser rejects anything else with a clear message."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.k8s.yaml_case import one, parsed
from webhook.errors import InputError
from webhook.k8s.yaml_documents import mistakes_of

pytestmark = pytest.mark.usefixtures("both_loaders")


# Without what only surrogate pairs could escape: YAML has none.
TEXTS = st.text(st.characters(max_codepoint=0xFFFD, exclude_categories=["Cs"]), max_size=20)
NUMBERS = st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False, allow_infinity=False)
VALUES = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXTS,
    lambda below: st.lists(below, max_size=4) | st.dictionaries(TEXTS, below, max_size=4),
    max_leaves=20,
)


def _paths(value: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    yield path
    if isinstance(value, dict | list):
        for key, below in value.items() if isinstance(value, dict) else enumerate(value):
            yield from _paths(below, (*path, key))


@given(VALUES.filter(lambda value: value is not None), st.integers(0, 2).map(lambda indent: indent or None))
def test_json_is_yaml(value: Any, indent: int | None) -> None:
    text = json.dumps(value, indent=indent)
    document = one(text)

    assert document.value == value
    assert msgspec.json.encode(document.value) == msgspec.json.encode(value)


@given(VALUES.filter(lambda value: value is not None))
def test_every_path_has_its_line(value: Any) -> None:
    document = one(json.dumps(value, indent=1))
    lines = [document.line_of(path) for path in _paths(value)]

    # In indented JSON every key and item starts a line.
    assert lines == sorted(lines)
    assert len(lines) == len(set(lines))


@given(st.text(st.sampled_from("ab&*!<:,-?|>%@`'\"[]{}# \t\n\\0.1~xe"), max_size=60) | st.text() | st.binary())
def test_anything_else_is_a_clear_refusal(source: str | bytes) -> None:
    try:
        values = parsed(source)
    except InputError as refused:
        assert all(str(mistake).startswith("f.yaml:") and "\n" not in str(mistake) for mistake in mistakes_of(refused))
    else:
        assert None not in values
        assert msgspec.json.decode(msgspec.json.encode(values)) == values
