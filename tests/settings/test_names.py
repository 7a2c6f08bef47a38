"""Names of namespaces, Services and other objects."""

from __future__ import annotations

from typing import Any

import pytest

from tests.settings.parsing import mistakes, snapshot

NAMES = [
    ("a", True),
    ("a-1", True),
    ("1a", True),
    ("a" * 63, True),
    ("a" * 64, False),
    ("", False),
    ("-a", False),
    ("a-", False),
    ("A", False),
    ("a_b", False),
    ("a.b", False),
    ("a\n", False),
]


@pytest.mark.parametrize(("name", "good"), NAMES)
def test_namespaces(name: str, good: bool) -> None:
    values: list[dict[str, Any]] = [{"excludedNamespaces": [name]}, {"webhooks": {"service": {"namespace": name}}}]
    for value in values:
        if good:
            assert name in snapshot(value).excluded_namespaces
        else:
            assert len(mistakes(value)) == 1


@pytest.mark.parametrize(("name", "good"), [*NAMES, ("", True)][6:])
def test_kubevirt_s_namespace_may_be_empty(name: str, good: bool) -> None:
    value = {"kubevirt": {"namespace": name}}
    if good:
        assert (name or "kubevirt") in snapshot(value).excluded_namespaces
    else:
        assert [loc for _, loc in mistakes(value)] == [("kubevirt", "namespace")]


def test_a_service_s_name_starts_with_a_letter() -> None:
    assert mistakes({"webhooks": {"service": {"name": "1a"}}}) == [("syntax", ("webhooks", "service", "name"))]


def test_what_is_too_long_is_told_shortly() -> None:
    assert mistakes({"excludedNamespaces": ["x" * 64]}) == [("too-long", ("excludedNamespaces", 0))]
