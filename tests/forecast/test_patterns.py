"""Patterns of definitions: evaluated as Go does, or not at all."""

from __future__ import annotations

import pytest

from webhook.forecast.patterns import matches


@pytest.mark.parametrize(
    ("pattern", "text", "expected"),
    [
        *(("^a+$", "aaa", True), ("^a+$", "aaa\n", False), ("b", "abc", True), (r"^\d$", "٣", False)),
        *((r"^0(?:\.\d{1,3})?$", "0.125", True), ("^(a|bb){1,3}$", "abba", True), (r"a\$", "a$", True)),
        # What Python does not have, what Go does not have, and what could take for ever.
        *((r"^\p{L}+$", "a", None), ("(", "a", None), (r"^(a)\1$", "aa", None), ("^(a+)+$", "a", None)),
        *(("^(a|b*)*$", "a", None), ("a*a*a*a*b", "a" * 4000, None), ("a*a*a*a*b", "aab", True)),
    ],
)
def test_a_pattern_matches_does_not_or_is_not_evaluated(pattern: str, text: str, expected: bool | None) -> None:
    assert matches(pattern, text) is expected
