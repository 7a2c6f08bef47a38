"""What was done today: counted by namespace and policy, from midnight on, with an end to namespaces."""

from __future__ import annotations

import pytest

from tests.server.page.samples import record
from webhook.server.page import counts
from webhook.server.page.counts import OTHERS, DayCounts
from webhook.server.page.decisions import MAX_NAME


def test_decisions_are_counted_by_what_was_decided() -> None:
    found = DayCounts()
    for decision in ("patched", "denied", "patched", "skipped"):
        found.add(record(decision=decision))

    assert found.of("demo", "scheduling") == {"patched": 2, "denied": 1, "skipped": 1}
    assert found.of("demo", "migration") == found.of("other", "scheduling") == {}
    assert found.total == {"patched": 2, "denied": 1, "skipped": 1}


def test_dry_runs_are_not_counted() -> None:
    found = DayCounts()
    found.add(record(dry_run=True))

    assert not found.total


def test_a_new_day_begins_at_zero() -> None:
    found = DayCounts()
    found.add(record(time="2026-01-31T23:59:59.999999Z"))
    found.add(record(time="2026-02-01T00:00:00.000000Z", name="b"))

    assert (found.day, found.total) == ("2026-02-01", {"patched": 1})


def test_invented_namespaces_are_counted_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counts, "MAX_NAMESPACES", 3)
    found = DayCounts()
    for number in range(10):
        found.add(record(namespace=f"n{number}"))

    assert sorted(found.namespaces()) == [OTHERS, "n0", "n1", "n2"]
    assert found.of(OTHERS, "scheduling")["patched"] == 7


def test_invented_names_are_short(monkeypatch: pytest.MonkeyPatch) -> None:
    found = DayCounts()
    found.add(record(namespace="x" * 2_000_000))

    assert [len(name) for name in found.namespaces()] == [MAX_NAME]


def test_namespaces_where_all_was_skipped_are_not_worth_a_row() -> None:
    found = DayCounts()
    found.add(record(decision="skipped"))

    assert list(found.namespaces()) == []
