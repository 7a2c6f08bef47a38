from __future__ import annotations

from typing import Any

import pytest

from tests.settings.parsing import mistakes, snapshot
from webhook.settings.model import AuditSettings, DriftSettings


def test_the_defaults() -> None:
    made = snapshot({})

    assert made.audit == AuditSettings(output="stdout", max_bytes=100 * 1024 * 1024, keep=5)
    assert made.events is False
    assert made.drift_scan == DriftSettings(every_minutes=0, policy_reports=True)


@pytest.mark.parametrize(("given", "on"), [("on", True), ("off", False), (True, True), (False, False), (None, False)])
def test_on_and_off(given: object, on: bool) -> None:
    assert snapshot({"events": given}).events is on


@pytest.mark.parametrize(
    ("section", "said"),
    [
        ({"audit": {"output": "audit.jsonl"}}, "syntax"),
        ({"audit": {"maxBytes": 1_000_000}}, "greater_than_equal"),
        ({"audit": {"keep": 0}}, "greater_than_equal"),
        ({"audit": {"keep": 101}}, "less_than_equal"),
        ({"events": "yes"}, "literal_error"),
        ({"driftScan": {"everyMinutes": -1}}, "greater_than_equal"),
        ({"driftScan": {"everyMinutes": 1441}}, "less_than_equal"),
        ({"driftScan": {"policyReports": "yes"}}, "bool_type"),
    ],
)
def test_mistakes(section: dict[str, Any], said: str) -> None:
    ((what, place),) = mistakes(section)

    assert what == said
    name, value = next(iter(section.items()))
    assert place == (name, *(value if isinstance(value, dict) else ()))
