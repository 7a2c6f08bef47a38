"""Health as the page draws it: a bar of the latest hours for each subject, and its latest states in words."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Final

import msgspec

from webhook.server.page.health import DAY_SECONDS, HealthSpan, HealthState, HealthSubject, Kind

TITLES: Final[Mapping[Kind, str]] = {
    "scheduler": "Scheduler",
    "certificate": "Certificate",
    "caBundle": "caBundles of",
}
# The bars have so many units of width.
WIDTH: Final = 1000
_MIN_WINDOW_SECONDS: Final = 600.0
_SHOWN_CHANGES: Final = 20


class Bar(msgspec.Struct, frozen=True):
    """A part of a timeline, in units of `WIDTH`."""

    state: HealthState
    x: int
    width: int


class HealthRow(msgspec.Struct, frozen=True):
    """One subject.

    Attributes:
        title: what kind of thing it is.
        word: the state now.
        since: when that began.
        summary: the timeline in words.
        changes: the latest states, the latest first: when, which, and why.
    """

    kind: Kind
    title: str
    name: str
    state: HealthState
    word: str
    since: str
    why: str
    summary: str
    bars: tuple[Bar, ...]
    changes: tuple[tuple[str, str, str], ...]


def window(since: float, now: float) -> float:
    """How many seconds the timelines show, up to now."""
    return min(DAY_SECONDS, max(_MIN_WINDOW_SECONDS, now - since))


def health_rows(history: Mapping[HealthSubject, tuple[HealthSpan, ...]], since: float, now: float) -> list[HealthRow]:
    """The rows of all subjects.

    Args:
        history: the spans of each subject, the oldest first.
        since: Unix time in seconds from which on there are spans.
        now: Unix time in seconds.
    """
    seconds = window(since, now)
    return [_row(subject, spans, now, seconds) for subject, spans in history.items()]


def moment(wall: float, now: float) -> str:
    """Unix time in seconds for people: the time of the day, with the date where it was another day."""
    then, today = time.gmtime(wall), time.gmtime(now)
    return time.strftime("%H:%M:%S" if then[:3] == today[:3] else "%b %d %H:%M:%S", then)


def _row(subject: HealthSubject, spans: tuple[HealthSpan, ...], now: float, seconds: float) -> HealthRow:
    last = spans[-1]
    bars = [_bar(span, now, seconds) for span in spans if (span.end or now) > now - seconds]
    good = sum(bar.width for bar in bars if bar.state == "good")
    covered = sum(bar.width for bar in bars) or 1
    changes = (
        (moment(span.begin, now), span.condition.word, span.condition.why) for span in reversed(spans[-_SHOWN_CHANGES:])
    )
    return HealthRow(
        kind=subject.kind,
        title=TITLES[subject.kind],
        name=subject.name,
        state=last.condition.state,
        word=last.condition.word,
        since=moment(last.begin, now),
        why=last.condition.why,
        summary=f"{last.condition.word} now; good for {100 * good // covered} % of the time shown",
        bars=tuple(bars),
        changes=tuple(changes),
    )


def _bar(span: HealthSpan, now: float, seconds: float) -> Bar:
    begin = max(0.0, 1 - (now - span.begin) / seconds)
    end = 1 - (now - (span.end or now)) / seconds
    x = int(begin * WIDTH)
    # A short outage must be seen, too.
    return Bar(span.condition.state, min(x, WIDTH - 2), max(2, round(end * WIDTH) - x))
