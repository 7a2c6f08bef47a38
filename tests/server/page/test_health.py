"""Health over time: what is kept of it, and how it is drawn."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tests import builders
from tests.review.memory import MemoryCluster
from webhook.facts import Key, SchedulerHealth, SchedulerKey
from webhook.server.page import health
from webhook.server.page.health import HealthCondition, HealthHistory, HealthSpan, HealthSubject, health_rows

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
    for now in range(10 * health.MAX_SPANS):
        watched.at(now, UP if now % 2 else HealthCondition("bad", "unavailable", "x" * 100_000))
    spans = watched.history.spans()[SCHEDULER]
    assert len(spans) == health.MAX_SPANS
    assert all(len(span.condition.why) <= 500 for span in spans)
    watched.found = {}
    watched.history.sample()
    assert watched.history.spans() == {}, "it is not declared any more"


def test_the_declared_schedulers_are_looked_at() -> None:
    settings = builders.settings()
    name, *others = settings.scheduling.schedulers
    known: dict[Key[Any], object] = {SchedulerKey(name): SchedulerHealth("unavailable", "its Lease expired")}
    found = health.schedulers(MemoryCluster({**known, **{SchedulerKey(other): None for other in others}}), settings)
    assert found[HealthSubject("scheduler", name)] == HealthCondition("bad", "unavailable", "its Lease expired")
    assert {found[HealthSubject("scheduler", other)].state for other in others} == {"unknown"}


def test_certificates_and_bundles() -> None:
    expiry = {"serving": 10.0, "ca": 1_000_000.0, "soon": 1000.0}
    found = health.certificates(expiry, {"kubevirt-webhook": 1.0, "zz-kubevirt-webhook": 0.0}, now=100.0)
    assert {(subject.kind, subject.name): condition.state for subject, condition in found.items()} == {
        ("certificate", "serving"): "bad",
        ("certificate", "ca"): "good",
        ("certificate", "soon"): "unknown",
        ("caBundle", "kubevirt-webhook"): "good",
        ("caBundle", "zz-kubevirt-webhook"): "bad",
    }


DAY = 86_400.0


def test_a_short_outage_is_seen() -> None:
    spans = (HealthSpan(0, 40_000, UP), HealthSpan(40_000, 40_005, DOWN), HealthSpan(40_005, None, UP))
    (row,) = health_rows({SCHEDULER: spans}, 0, DAY)
    assert [bar.state for bar in row.bars] == ["good", "bad", "good"]
    assert all(bar.width >= 2 for bar in row.bars)
    assert [word for _, word, _ in row.changes] == ["available", "unavailable", "available"]
    assert (row.condition.state, row.condition.word) == ("good", "available")


def test_what_was_before_the_window_is_not_drawn() -> None:
    (row,) = health_rows({SCHEDULER: (HealthSpan(0, 10, DOWN), HealthSpan(10, None, UP))}, 0, 5 * DAY)
    assert [(bar.state, bar.x, bar.width) for bar in row.bars] == [("good", 0, health.WIDTH)]


@given(st.lists(st.floats(0, 3 * DAY), min_size=1, max_size=30, unique=True), st.floats(3 * DAY, 4 * DAY))
def test_bars_stay_in_their_place(begins: list[float], now: float) -> None:
    begins.sort()
    ends: list[float | None] = [*begins[1:], None]
    spans = tuple(HealthSpan(begin, end, UP) for begin, end in zip(begins, ends, strict=True))
    (row,) = health_rows({SCHEDULER: spans}, begins[0], now)
    assert all(
        0 <= bar.x < health.WIDTH and bar.width >= 2 and bar.x + bar.width <= health.WIDTH + 1 for bar in row.bars
    )


def test_the_window_grows_to_a_day_and_another_day_is_named() -> None:
    assert (health.window(0, 10), health.window(0, 2 * DAY)) == (600, DAY)
    assert (health.moment(3600, 7200), health.moment(3600, 2 * DAY)) == ("01:00:00", "Jan 01 01:00:00")
