"""Health over time: spans of states, bounded."""

from __future__ import annotations

from typing import Any

from tests import builders
from tests.review.memory import MemoryCluster
from webhook.facts import Key, SchedulerHealth, SchedulerKey
from webhook.server.page.health import (
    MAX_SPANS,
    HealthCondition,
    HealthHistory,
    HealthSubject,
    certificates,
    schedulers,
)

SCHEDULER = HealthSubject("scheduler", "kubevirt")
UP, DOWN = HealthCondition("good", "available", "it runs"), HealthCondition("bad", "unavailable", "it does not")


class WatchedHealth:
    """A history whose time and state the test sets."""

    def __init__(self) -> None:
        self.now = 0.0
        self.found = {SCHEDULER: UP}
        self.history = HealthHistory(lambda: self.found, lambda: self.now)

    def at(self, now: float, condition: HealthCondition) -> None:
        self.now, self.found = now, {SCHEDULER: condition}
        self.history.sample()


def test_a_state_lasts_until_the_next_one() -> None:
    watched = WatchedHealth()
    for now, condition in ((0, UP), (5, HealthCondition("good", "available", "it still runs")), (10, DOWN), (15, UP)):
        watched.at(now, condition)

    spans = watched.history.spans()[SCHEDULER]
    assert [(span.begin, span.end, span.condition.word) for span in spans] == [
        (0, 10, "available"),
        (10, 15, "unavailable"),
        (15, None, "available"),
    ]
    # The evidence is the latest of its span.
    assert spans[0].condition.why == "it still runs"


def test_one_that_flaps_does_not_fill_the_memory() -> None:
    watched = WatchedHealth()
    for now in range(10 * MAX_SPANS):
        watched.at(now, UP if now % 2 else HealthCondition("bad", "unavailable", "x" * 100_000))

    spans = watched.history.spans()[SCHEDULER]
    assert len(spans) == MAX_SPANS
    assert all(len(span.condition.why) <= 500 for span in spans)


def test_schedulers_that_are_not_declared_any_more_go() -> None:
    watched = WatchedHealth()
    watched.at(0, UP)
    watched.found = {}
    watched.history.sample()

    assert watched.history.spans() == {}


def test_the_declared_schedulers_are_looked_at() -> None:
    settings = builders.settings()
    name, *others = settings.scheduling.schedulers
    known: dict[Key[Any], object] = {SchedulerKey(name): SchedulerHealth("unavailable", "its Lease expired")}
    found = schedulers(MemoryCluster({**known, **{SchedulerKey(other): None for other in others}}), settings)

    assert found[HealthSubject("scheduler", name)] == HealthCondition("bad", "unavailable", "its Lease expired")
    assert {found[HealthSubject("scheduler", other)].state for other in others} == {"unknown"}


def test_certificates_and_bundles() -> None:
    expiry = {"serving": 10.0, "ca": 1_000_000.0, "soon": 1000.0}
    found = certificates(expiry, {"kubevirt-webhook": 1.0, "zz-kubevirt-webhook": 0.0}, now=100.0)

    assert {(subject.kind, subject.name): condition.state for subject, condition in found.items()} == {
        ("certificate", "serving"): "bad",
        ("certificate", "ca"): "good",
        ("certificate", "soon"): "unknown",
        ("caBundle", "kubevirt-webhook"): "good",
        ("caBundle", "zz-kubevirt-webhook"): "bad",
    }
