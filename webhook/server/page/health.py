"""The health of schedulers and certificates over time, and how the page draws it."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, Literal

import msgspec

from webhook.cluster.source import Cluster
from webhook.facts import SchedulerHealth, SchedulerKey
from webhook.settings.model import Settings
from webhook.text import shorten

SAMPLE_SECONDS: Final = 5.0
# Of one subject. One that flaps at every sample fills this within minutes, and is seen to.
MAX_SPANS: Final = 100
MAX_SUBJECTS: Final = 100
DAY_SECONDS: Final = 86_400.0
_MAX_WHY: Final = 500

HealthState = Literal["good", "bad", "unknown"]
Kind = Literal["scheduler", "certificate", "caBundle"]


class HealthSubject(msgspec.Struct, frozen=True):
    """What has health: a scheduler, a certificate, or the caBundles of a webhook configuration."""

    kind: Kind
    name: str


class HealthCondition(msgspec.Struct, frozen=True):
    """How a subject is.

    Attributes:
        state: the state in general.
        word: the state in a word.
        why: the evidence, as a clause; it may change while the state stays.
    """

    state: HealthState
    word: str
    why: str = ""


class HealthSpan(msgspec.Struct, frozen=True):
    """A time during which a subject had one state, with the latest condition of it.

    Attributes:
        begin: Unix time in seconds.
        end: likewise; None: it lasts.
    """

    begin: float
    end: float | None
    condition: HealthCondition


@dataclass(eq=False, repr=False)
class HealthHistory:
    """Spans by subject.

    Args:
        read: returns how all subjects are now.
        wall: returns Unix time in seconds.

    Attributes:
        since: when it began to look.
    """

    read: Callable[[], Mapping[HealthSubject, HealthCondition]]
    wall: Callable[[], float] = time.time

    def __post_init__(self) -> None:
        self._spans: dict[HealthSubject, deque[HealthSpan]] = {}
        self.since = self.wall()

    async def run(self) -> None:
        """Look every few seconds until cancelled."""
        while True:
            self.sample()
            await asyncio.sleep(SAMPLE_SECONDS)

    def sample(self) -> None:
        """Note how all subjects are now."""
        now, conditions = self.wall(), self.read()
        for gone in self._spans.keys() - conditions.keys():
            del self._spans[gone]
        for subject, condition in list(conditions.items())[:MAX_SUBJECTS]:
            spans = self._spans.setdefault(subject, deque(maxlen=MAX_SPANS))
            last = spans[-1] if spans else None
            shown = msgspec.structs.replace(condition, why=shorten(condition.why, _MAX_WHY))
            if last and (last.condition.state, last.condition.word) == (condition.state, condition.word):
                spans[-1] = HealthSpan(last.begin, None, shown)
                continue
            if last:
                spans[-1] = HealthSpan(last.begin, now, last.condition)
            spans.append(HealthSpan(now, None, shown))

    def spans(self) -> Mapping[HealthSubject, tuple[HealthSpan, ...]]:
        """The spans of all subjects, the oldest first; there is at least one of each."""
        return {subject: tuple(spans) for subject, spans in self._spans.items()}


def schedulers(cluster: Cluster, settings: Settings) -> dict[HealthSubject, HealthCondition]:
    """How the declared schedulers are."""
    states: dict[str, HealthState] = {"available": "good", "unavailable": "bad", "unknown": "unknown"}
    conditions = {}
    for name in settings.watched_schedulers:
        health = cluster.peek(SchedulerKey(name))
        if not isinstance(health, SchedulerHealth):
            health = SchedulerHealth("unknown", "it has not been looked at yet")
        conditions[HealthSubject("scheduler", name)] = HealthCondition(states[health.state], health.state, health.why)
    return conditions


def certificates(
    expiry: Mapping[str, float], matches: Mapping[str, float], now: float
) -> dict[HealthSubject, HealthCondition]:
    """How certificates are that expire at Unix times, by name, and the caBundles of configurations, 1 if they match."""
    conditions = {}
    for name, end in expiry.items():
        day = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(end))
        condition = HealthCondition("good", "valid", f"expires {day}")
        if end <= now:
            condition = HealthCondition("bad", "expired", f"expired {day}")
        elif end - now < DAY_SECONDS:
            condition = HealthCondition("unknown", "expires within a day", f"expires {day}")
        conditions[HealthSubject("certificate", name)] = condition
    good = HealthCondition("good", "matches", "verifies the serving certificate")
    bad = HealthCondition("bad", "does not match", "does not verify the serving certificate")
    return conditions | {HealthSubject("caBundle", name): good if match else bad for name, match in matches.items()}


TITLES: Final[Mapping[Kind, str]] = {"scheduler": "Scheduler", "certificate": "Certificate", "caBundle": "caBundles of"}
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
        condition: how it is now.
        since: when that began.
        summary: the timeline in words.
        changes: the latest states, the latest first: when, which, and why.
    """

    subject: HealthSubject
    title: str
    condition: HealthCondition
    since: str
    summary: str
    bars: tuple[Bar, ...]
    changes: tuple[tuple[str, str, str], ...]


def window(since: float, now: float) -> float:
    """How many seconds the timelines show, up to now."""
    return min(DAY_SECONDS, max(_MIN_WINDOW_SECONDS, now - since))


def health_rows(history: Mapping[HealthSubject, tuple[HealthSpan, ...]], since: float, now: float) -> list[HealthRow]:
    """The rows of all subjects, of which there are spans, the oldest first, since a Unix time in seconds."""
    seconds, rows = window(since, now), []
    for subject, spans in history.items():
        last = spans[-1]
        bars = tuple(_bar(span, now, seconds) for span in spans if (span.end or now) > now - seconds)
        good = sum(bar.width for bar in bars if bar.state == "good")
        covered = sum(bar.width for bar in bars) or 1
        summary = f"{last.condition.word} now; good for {100 * good // covered} % of the time shown"
        latest = ((span.begin, span.condition) for span in reversed(spans[-_SHOWN_CHANGES:]))
        changes = tuple((moment(begin, now), condition.word, condition.why) for begin, condition in latest)
        begun = moment(last.begin, now)
        rows.append(HealthRow(subject, TITLES[subject.kind], last.condition, begun, summary, bars, changes))
    return rows


def moment(wall: float, now: float) -> str:
    """Unix time in seconds for people: the time of the day, with the date where it was another day."""
    then, today = time.gmtime(wall), time.gmtime(now)
    return time.strftime("%H:%M:%S" if then[:3] == today[:3] else "%b %d %H:%M:%S", then)


def _bar(span: HealthSpan, now: float, seconds: float) -> Bar:
    begin = max(0.0, 1 - (now - span.begin) / seconds)
    end = 1 - (now - (span.end or now)) / seconds
    x = int(begin * WIDTH)
    # A short outage must be seen, too.
    return Bar(span.condition.state, min(x, WIDTH - 2), max(2, round(end * WIDTH) - x))
