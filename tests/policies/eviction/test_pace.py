"""Blackouts, cool-downs and caps."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.policies.eviction.world import NOW, migration, read, stamp
from webhook.admission.decision import Reason
from webhook.admission.reasons import eviction as reasons
from webhook.placement.machines import Migration, MigrationState, MigrationStatus
from webhook.policies.eviction.pods import blackout, cool_down, too_many
from webhook.settings.model import DAYS, Blackout, Day, EvictionSettings

SETTINGS = EvictionSettings(cool_down_seconds=300, max_cool_down_seconds=3600)
MINUTES = st.integers(0, 24 * 60 - 1)


def clock(minutes: int) -> str:
    return f"{minutes // 60:02}:{minutes % 60:02}"


@given(
    days=st.sets(st.sampled_from(DAYS), min_size=1),
    begin=MINUTES,
    end=st.integers(0, 24 * 60),
    offset=st.integers(-14 * 60, 14 * 60),
    now=st.integers(1_700_000_000, 1_900_000_000),
)
def test_blackouts_are_those_of_a_calendar(days: set[Day], begin: int, end: int, offset: int, now: int) -> None:
    if begin == end:
        return
    zone = f"{'-' if offset < 0 else '+'}{clock(abs(offset))}"
    made = Blackout(days=tuple(days), begin=clock(begin), end=clock(end), time_zone=zone)

    local = datetime.fromtimestamp(now, timezone(timedelta(minutes=offset)))
    lasts = timedelta(minutes=end - begin if end > begin else end - begin + 24 * 60)
    expected = False
    for ago in (0, 1):
        day = local.replace(hour=0, minute=0, second=0) - timedelta(days=ago)
        start = day + timedelta(minutes=begin)
        expected |= DAYS[day.weekday()] in days and start <= local < start + lasts
    assert (blackout([made], now) is not None) == expected


@pytest.mark.parametrize(
    "fields",
    [
        {"begin": "08:00", "end": "18:00"},
        {"begin": "22:00", "end": "12:01", "days": ("Sat", "Fri")},
        {"begin": "00:00", "end": "24:00", "time_zone": "-11:00", "days": ("Sat",)},
    ],
    ids=["every day", "two days", "time zone"],
)
def test_a_blackout_is_told_as_it_was_written(fields: dict[str, Any], golden: Callable[[str], None]) -> None:
    other = Blackout(begin="00:00", end="00:01")

    found = blackout([other, Blackout(**fields)], NOW)

    assert found
    golden(found.text)
    assert blackout([other], NOW) is None


def test_a_blackout_holds_from_its_first_minute_to_before_its_last() -> None:
    ends, begins = (Blackout(begin=at, end=to) for at, to in (("11:00", "12:00"), ("12:00", "13:00")))

    assert blackout([ends], NOW) is None
    assert blackout([ends], NOW - 0.1)
    assert blackout([begins], NOW)
    assert blackout([begins], NOW - 0.1) is None


def ended(*seconds_ago: float) -> tuple[Migration, ...]:
    """Finished migrations of one VM."""
    times = [datetime.fromtimestamp(NOW - ago, UTC).isoformat().replace("+00:00", "Z") for ago in seconds_ago]
    return tuple(
        Migration(status=MigrationStatus(phase="Succeeded", migration_state=MigrationState(end_timestamp=time)))
        for time in times
    )


def _numbers(reason: Reason | None) -> dict[str, int]:
    """The arguments of the message, found where the catalogue puts them."""
    if reason is None:
        return {}
    assert reason.code == reasons.COOL_DOWN
    seconds, *_, ago, rest = map(int, re.findall(r"\d+", reason.text))
    return {"seconds": seconds, "ago": ago, "left": rest}


def seconds(reason: Reason | None) -> int:
    """How long the VM is held in all."""
    return _numbers(reason).get("seconds", 0)


def left(reason: Reason | None) -> int:
    return _numbers(reason).get("left", 0)


class TestCoolDown:
    @pytest.mark.parametrize(
        ("ends", "lasts", "rest"),
        [
            ([0], 300, 300),
            ([299.5], 300, 1),
            ([300], 0, 0),
            ([60, 500], 600, 540),
            ([60, 500, 1500], 1200, 1140),
            ([60, 500, 1500, 2500, 3500], 3600, 3540),
            # Migrations that ended before two of the longest pauses are forgotten, with all before them.
            ([60, 7260], 600, 540),
            ([60, 7261, 7262], 300, 240),
            # KubeVirt's clock is ahead of the webhook's.
            ([-5], 300, 305),
        ],
    )
    def test_doubles_with_each_that_follows_soon(self, ends: list[float], lasts: int, rest: int) -> None:
        for given_ in (ends, ends[::-1]):
            text = cool_down(ended(*given_), NOW, SETTINGS)
            assert (seconds(text), left(text)) == (lasts, rest)

    def test_says_how_many_there_were(self) -> None:
        assert cool_down(ended(60, 500), NOW, SETTINGS) == reasons.cool_down(600, 2, 60, 540)

    def test_no_migration_ended_in_the_future(self) -> None:
        assert cool_down(ended(-5), NOW, SETTINGS) == reasons.cool_down(300, 1, 0, 305)

    def test_none_where_there_is_nothing_to_wait_for(self) -> None:
        assert cool_down((), NOW, SETTINGS) is None
        assert cool_down(ended(1), NOW, EvictionSettings(cool_down_seconds=0)) is None
        assert cool_down(read(migration("Running", 60), migration("Failed", None)), NOW, SETTINGS) is None

    @given(st.lists(st.integers(0, 20_000), min_size=1, max_size=6), st.integers(0, 20_000))
    def test_more_history_never_makes_it_shorter_nor_longer_than_the_longest(self, ends: list[int], more: int) -> None:
        fewer, all_of_them = (left(cool_down(ended(*some), NOW, SETTINGS)) for some in (ends, [*ends, more]))

        assert fewer <= 3600
        assert all_of_them <= 3600
        # A younger migration restarts the time; an older one can only lengthen it.
        if more >= min(ends):
            assert all_of_them >= fewer

    @given(st.lists(st.integers(0, 20_000), min_size=1, max_size=6))
    def test_it_ends(self, ends: list[int]) -> None:
        rest = left(cool_down(ended(*ends), NOW, SETTINGS))

        assert cool_down(ended(*ends), NOW + rest, SETTINGS) is None


class TestEnd:
    def test_of_a_migration_that_never_began(self) -> None:
        phases = [
            None,
            {"phase": "Pending", "phaseTransitionTimestamp": stamp(600)},
            {"phase": "Failed", "phaseTransitionTimestamp": stamp(120)},
        ]
        obj = migration("Failed", None)
        obj["status"]["phaseTransitionTimestamps"] = phases
        assert left(cool_down(read(obj), NOW, SETTINGS)) == 180

    def test_is_its_creation_at_least(self) -> None:
        obj = migration("Failed", None)
        obj["metadata"]["creationTimestamp"] = stamp(60)
        assert left(cool_down(read(obj), NOW, SETTINGS)) == 240

    def test_is_unknown_of_one_without_status(self) -> None:
        assert Migration().ended_at is None


class TestTooMany:
    BUSY: Mapping[str, int] = {"demo": 2, "elsewhere": 1}

    @pytest.mark.parametrize(
        ("namespace", "cluster", "said"),
        [
            (0, 0, None),
            (3, 4, None),
            (2, 0, reasons.too_many(2, 2, "namespace demo")),
            (1, 3, reasons.too_many(2, 1, "namespace demo")),
            (0, 3, reasons.too_many(3, 3, "the cluster")),
        ],
    )
    def test_counts_unfinished_evacuations(self, namespace: int, cluster: int, said: Reason | None) -> None:
        settings = EvictionSettings(max_per_namespace=namespace, max_per_cluster=cluster)

        assert too_many(self.BUSY, "demo", settings) == said

    def test_a_namespace_beyond_its_own_cap_does_not_fill_that_of_all(self) -> None:
        settings = EvictionSettings(max_per_namespace=2, max_per_cluster=4)

        assert too_many({"greedy": 50, "elsewhere": 1}, "demo", settings) is None
        assert too_many({"greedy": 50, "elsewhere": 2}, "demo", settings)

    def test_one(self) -> None:
        settings = EvictionSettings(max_per_namespace=1)

        assert too_many(self.BUSY, "elsewhere", settings) == reasons.too_many(1, 1, "namespace elsewhere")
