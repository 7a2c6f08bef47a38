"""The lease of a scheduler: held, expired, unreadable."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.cluster.scheduler_health.monitored import DOWN, WALL, guarded, lease
from webhook.cluster.scheduler_health import HealthEvidence
from webhook.errors import Unavailable
from webhook.facts import SchedulerHealth
from webhook.k8s.client.api import Forbidden
from webhook.k8s.types.meta import Lease

# At monotonic seconds, what is read, or the state that is expected. The wall clock goes along.
Step = tuple[float, Lease | Unavailable | str | None]

HELD = lease(WALL)


def evolve(*steps: Step) -> HealthEvidence:
    state = guarded()
    for now, step in steps:
        if isinstance(step, str):
            assert state.health(now).state == step, now
        else:
            state.lease.observe(step, now, WALL + now)
    return state


def test_nothing_is_known_before_the_first_answer(golden: Callable[[str], None]) -> None:
    state = evolve((0.0, "unknown"))
    golden(state.health(0.0).why)
    assert not state.has_answered


def test_no_lease_means_dead(golden: Callable[[str], None]) -> None:
    state = evolve((0.0, None), (0.0, "unavailable"))
    assert state.has_answered
    golden(state.health(0.0).why)


@pytest.mark.parametrize("holder", [None, ""])
def test_a_released_lease_means_dead_at_once(holder: str | None) -> None:
    state = evolve((0.0, HELD), (1.0, lease(WALL + 1, holder, 1)), (1.0, "unavailable"))
    assert "released" in state.health(1.0).why


def test_a_fresh_lease_at_first_sight_is_believed_for_its_duration() -> None:
    old = lease(WALL - 10)
    state = evolve((0.0, old), (14.9, "available"), (14.0, old), (15.0, "unavailable"))
    assert "not been renewed for 15 s" in state.health(15.0).why


@pytest.mark.parametrize("renewed", [WALL - 15, WALL - 3600, WALL + 61, "yesterday", "2026-09-21T12:00:00", None])
def test_an_implausible_first_sight_proves_nothing(renewed: float | str | None) -> None:
    state = evolve((0.0, lease(renewed)), (0.0, "unknown"), (14.9, "unknown"), (15.0, "unavailable"))
    assert state.has_answered


def test_a_skewed_clock_does_not_matter_once_a_change_was_seen() -> None:
    changed = lease(WALL - 3600), lease(WALL - 3598)
    evolve((0.0, changed[0]), (2.0, changed[1]), (2.0, "available"), (16.9, "available"), (17.0, "unavailable"))


def test_age_counts_from_the_last_change() -> None:
    renewals: list[Step] = [step for now in range(0, 60, 2) for step in ((now, lease(WALL + now)), (now, "available"))]
    evolve(*renewals, (72.9, "available"), (73.0, "unavailable"))


@pytest.mark.parametrize("seconds", [None, 0, -1, 15, 137])
def test_a_missing_duration_is_kube_schedulers_default(seconds: int | None) -> None:
    end = 137.0 if seconds == 137 else 15.0
    evolve((0.0, lease(WALL, seconds=seconds)), (end - 0.1, "available"), (end, "unavailable"))


CHANGES: dict[str, tuple[Step, ...]] = {
    "the next holder revives it": ((0.0, lease(WALL, "", 1)), (2.0, lease(WALL + 2, "host_2")), (2.0, "available")),
    "recovery with the first change": (
        *((now, HELD) for now in (0.0, 10.0, 20.0, 30.0)),
        (30.0, "unavailable"),
        (32.0, lease(WALL + 32)),
        (32.0, "available"),
    ),
    # Out of a backup.
    "one that comes back is seen for the first time": (
        (0.0, None),
        *((2.0, lease(WALL - 3600)), (2.0, "unknown")),
        (4.0, None),
        *((6.0, lease(WALL + 5)), (6.0, "available")),
    ),
    "without spec it has no holder": ((0.0, Lease()), (0.0, "unavailable")),
    "unavailable stands for as long": ((0.0, None), (2.0, DOWN), (14.9, "unavailable"), (15.0, "unknown")),
    "seen to be expired stands for as long": (
        *((now, HELD) for now in (0.0, 14.0, 20.0)),
        (22.0, DOWN),
        *((34.9, "unavailable"), (35.0, "unknown")),
    ),
    # The next holder's clock is an hour behind.
    "a released one stands longer than its one second": (
        (0.0, lease(WALL, "", 1)),
        (2.0, DOWN),
        (14.9, "unavailable"),
        *((4.0, lease(WALL - 3600, "host_2")), (4.0, "available")),
    ),
    "a change during long blindness dates nothing": (
        (0.0, HELD),
        (2.0, DOWN),
        *((3600.0, lease(WALL + 100)), (3600.0, "unknown")),
        *((3602.0, lease(WALL + 3601)), (3602.0, "available")),
    ),
    "a change during a short one does": (
        (0.0, lease(WALL - 3600)),
        (2.0, DOWN),
        *((4.0, lease(WALL - 3596)), (4.0, "available")),
    ),
}


@pytest.mark.parametrize("steps", CHANGES.values(), ids=CHANGES)
def test_states_follow_what_is_read(steps: tuple[Step, ...]) -> None:
    evolve(*steps)


class TestUnreadableLease:
    def test_from_the_beginning(self) -> None:
        state = evolve((0.0, DOWN))
        assert not state.has_answered
        assert state.health(0.0) == SchedulerHealth("unknown", DOWN.why)

    def test_a_refusal_is_an_answer(self) -> None:
        state = evolve((0.0, Forbidden("403: grant get on leases")), (0.0, "unknown"))
        assert state.has_answered
        assert "grant get on leases" in state.health(0.0).why

    def test_alive_stands_until_it_would_have_expired(self, golden: Callable[[str], None]) -> None:
        state = evolve((0.0, HELD), (10.0, DOWN), (14.9, "available"), (15.0, "unknown"))
        golden(state.health(15.0).why)
