"""The bars of the timelines: within their width, and an outage is seen however short it was."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from webhook.server.page.health import HealthCondition, HealthSpan, HealthSubject
from webhook.server.page.health_rows import WIDTH, health_rows, moment, window

SUBJECT = HealthSubject("scheduler", "kubevirt")
UP, DOWN = HealthCondition("good", "available"), HealthCondition("bad", "unavailable", "no Lease")
DAY = 86_400.0


def test_a_short_outage_is_seen() -> None:
    spans = (HealthSpan(0, 40_000, UP), HealthSpan(40_000, 40_005, DOWN), HealthSpan(40_005, None, UP))
    (row,) = health_rows({SUBJECT: spans}, 0, DAY)

    assert [bar.state for bar in row.bars] == ["good", "bad", "good"]
    assert all(bar.width >= 2 for bar in row.bars)
    assert [word for _, word, _ in row.changes] == ["available", "unavailable", "available"]
    assert (row.state, row.word) == ("good", "available")


def test_what_was_before_the_window_is_not_drawn() -> None:
    (row,) = health_rows({SUBJECT: (HealthSpan(0, 10, DOWN), HealthSpan(10, None, UP))}, 0, 5 * DAY)

    assert [(bar.state, bar.x, bar.width) for bar in row.bars] == [("good", 0, WIDTH)]


@given(st.lists(st.floats(0, 3 * DAY), min_size=1, max_size=30, unique=True), st.floats(3 * DAY, 4 * DAY))
def test_bars_stay_in_their_place(begins: list[float], now: float) -> None:
    begins.sort()
    ends: list[float | None] = [*begins[1:], None]
    spans = tuple(HealthSpan(begin, end, UP) for begin, end in zip(begins, ends, strict=True))
    (row,) = health_rows({SUBJECT: spans}, begins[0], now)

    assert all(0 <= bar.x < WIDTH and bar.width >= 2 and bar.x + bar.width <= WIDTH + 1 for bar in row.bars)


def test_the_window_grows_to_a_day() -> None:
    assert window(0, 10) == 600
    assert window(0, 2 * DAY) == DAY


def test_another_day_is_named() -> None:
    assert moment(3600, 7200) == "01:00:00"
    assert moment(3600, 2 * DAY) == "Jan 01 01:00:00"
