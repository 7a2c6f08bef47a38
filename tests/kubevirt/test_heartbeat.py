from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from webhook.kubevirt.heartbeat import ALIVE, HEARTBEAT, SCHEDULABLE, Heartbeat

NOW = datetime(2026, 11, 28, 12, 0, tzinfo=UTC)


def at(minutes: float) -> dict[str, str]:
    return {HEARTBEAT: (NOW - timedelta(minutes=minutes)).isoformat().replace("+00:00", "Z")}


@pytest.mark.parametrize(
    ("label", "annotations", "is_gone"),
    [
        ("true", at(1), False),
        ("true", at(60), False),  # virt-controller has not given it up; in a file every heartbeat is old
        ("true", {}, False),
        (None, {}, False),
        ("false", at(1), False),  # it starts, or its device plugins do
        ("false", at(5), False),
        ("false", at(5.1), True),
        ("false", at(600), True),
        ("false", {}, True),
        ("false", {HEARTBEAT: "yesterday"}, True),
    ],
)
def test_when_virt_handler_is_gone(label: str | None, annotations: dict[str, str], is_gone: bool) -> None:
    labels = {} if label is None else {SCHEDULABLE: label}
    assert bool(Heartbeat.of(labels, annotations).problem(NOW.timestamp())) == is_gone


@pytest.mark.parametrize("annotations", [at(1), at(2), {}])
def test_a_node_that_is_well_does_not_change_with_each_heartbeat(annotations: Any) -> None:
    assert Heartbeat.of({SCHEDULABLE: "true"}, annotations) == ALIVE
