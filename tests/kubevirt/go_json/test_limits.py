from __future__ import annotations

from typing import Any

import pytest

from webhook.kubevirt.go_json.scalars import MAX_VALUES, is_too_large

HALF = MAX_VALUES // 2


@pytest.mark.parametrize(
    ("value", "large"),
    [
        ({}, False),
        ([0] * MAX_VALUES, False),
        ([0] * (MAX_VALUES + 1), True),
        ([[]] * MAX_VALUES, False),
        ([[]] * (MAX_VALUES + 1), True),
        ([[0]] * HALF, False),
        ([[0]] * (HALF + 1), True),
        ([{"": 0}] * HALF, False),
        ([{"": 0}] * (HALF + 1), True),
        (dict.fromkeys(map(str, range(MAX_VALUES)), ""), False),
        (dict.fromkeys(map(str, range(MAX_VALUES + 1)), ""), True),
        # A text may be long, and hold whatever it likes.
        ({"a": "[{," * MAX_VALUES}, False),
        ({"a": "[{," * MAX_VALUES, "b": [0] * MAX_VALUES}, True),
        # What cannot be written as JSON is counted all the same.
        ({"a": 2**70, "b": [0] * MAX_VALUES}, True),
        ({"a": "\ud800", "b": [0] * 10}, False),
        ({"a": object(), "b": [0] * MAX_VALUES}, True),
    ],
    ids=range(16),
)
def test_so_many_values_and_no_more(value: Any, large: bool) -> None:
    assert is_too_large(value) is large


def test_what_is_nested_deeply_is_counted() -> None:
    deep: list[Any] = []
    for _ in range(MAX_VALUES):
        deep = [deep]

    assert not is_too_large(deep)
    assert is_too_large([deep])
