"""The lease of a scheduler: held, expired, unreadable."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.cluster.scheduler_health.monitored import DOWN, WALL, guarded, lease
from webhook.facts import SchedulerHealth
from webhook.k8s.client.api import Forbidden
from webhook.k8s.types.meta import Lease


class TestLease:
    def test_nothing_is_known_before_the_first_answer(self, golden: Callable[[str], None]) -> None:
        state = guarded()
        assert state.health(0.0).state == "unknown"
        golden(state.health(0.0).why)
        assert not state.has_answered

    def test_no_lease_means_dead(self, golden: Callable[[str], None]) -> None:
        state = guarded()
        state.lease.observe(None, 0.0, WALL)
        assert state.has_answered
        assert state.health(0.0).state == "unavailable"
        golden(state.health(0.0).why)

    @pytest.mark.parametrize("holder", [None, ""])
    def test_a_released_lease_means_dead_at_once(self, holder: str | None) -> None:
        state = guarded()
        state.lease.observe(lease(WALL), 0.0, WALL)
        state.lease.observe(lease(WALL + 1, holder, 1), 1.0, WALL + 1)
        assert state.health(1.0).state == "unavailable"
        assert "released" in state.health(1.0).why

    def test_the_next_holder_revives_it(self) -> None:
        state = guarded()
        state.lease.observe(lease(WALL, "", 1), 0.0, WALL)
        state.lease.observe(lease(WALL + 2, "host_2"), 2.0, WALL + 2)
        assert state.health(2.0).state == "available"

    def test_a_fresh_lease_at_first_sight_is_believed_for_its_duration(self) -> None:
        state = guarded()
        state.lease.observe(lease(WALL - 10), 0.0, WALL)
        assert state.health(14.9).state == "available"
        state.lease.observe(lease(WALL - 10), 14.0, WALL + 14)
        assert state.health(15.0).state == "unavailable"
        assert "not been renewed for 15 s" in state.health(15.0).why

    @pytest.mark.parametrize("renewed", [WALL - 15, WALL - 3600, WALL + 61, "yesterday", "2026-09-21T12:00:00", None])
    def test_an_implausible_first_sight_proves_nothing(self, renewed: float | str | None) -> None:
        state = guarded()
        state.lease.observe(lease(renewed), 0.0, WALL)
        assert state.has_answered
        assert state.health(0.0).state == "unknown"
        assert state.health(14.9).state == "unknown"
        assert state.health(15.0).state == "unavailable"

    def test_a_skewed_clock_does_not_matter_once_a_change_was_seen(self) -> None:
        state = guarded()
        state.lease.observe(lease(WALL - 3600), 0.0, WALL)
        state.lease.observe(lease(WALL - 3598), 2.0, WALL + 2)
        assert state.health(2.0).state == "available"
        assert state.health(16.9).state == "available"
        assert state.health(17.0).state == "unavailable"

    def test_age_counts_from_the_last_change(self) -> None:
        state = guarded()
        for second in range(0, 60, 2):
            state.lease.observe(lease(WALL + second), float(second), WALL + second)
            assert state.health(float(second)).state == "available"
        assert state.health(72.9).state == "available"
        assert state.health(73.0).state == "unavailable"

    def test_recovery_with_the_first_change(self) -> None:
        state = guarded()
        state.lease.observe(lease(WALL), 0.0, WALL)
        for second in (10.0, 20.0, 30.0):
            state.lease.observe(lease(WALL), second, WALL + second)
        assert state.health(30.0).state == "unavailable"
        state.lease.observe(lease(WALL + 32), 32.0, WALL + 32)
        assert state.health(32.0).state == "available"

    def test_a_lease_that_comes_back_is_seen_for_the_first_time(self) -> None:
        state = guarded()
        state.lease.observe(None, 0.0, WALL)
        state.lease.observe(lease(WALL - 3600), 2.0, WALL + 2)  # out of a backup
        assert state.health(2.0).state == "unknown"
        state.lease.observe(None, 4.0, WALL + 4)
        state.lease.observe(lease(WALL + 5), 6.0, WALL + 6)
        assert state.health(6.0).state == "available"

    @pytest.mark.parametrize("seconds", [None, 0, -1])
    def test_a_missing_duration_is_kube_schedulers_default(self, seconds: int | None) -> None:
        state = guarded()
        state.lease.observe(lease(WALL, seconds=seconds), 0.0, WALL)
        assert state.health(14.9).state == "available"
        assert state.health(15.0).state == "unavailable"

    def test_a_long_duration_is_kept(self) -> None:
        state = guarded()
        state.lease.observe(lease(WALL, seconds=137), 0.0, WALL)
        assert state.health(136.9).state == "available"
        assert state.health(137.0).state == "unavailable"

    def test_a_lease_without_spec_has_no_holder(self) -> None:
        state = guarded()
        state.lease.observe(Lease(), 0.0, WALL)
        assert state.health(0.0).state == "unavailable"


class TestUnreadableLease:
    def test_from_the_beginning(self) -> None:
        state = guarded()
        state.lease.observe(DOWN, 0.0, WALL)
        assert not state.has_answered
        assert state.health(0.0) == SchedulerHealth("unknown", DOWN.why)

    def test_a_refusal_is_an_answer(self) -> None:
        state = guarded()
        state.lease.observe(Forbidden("403: grant get on leases"), 0.0, WALL)
        assert state.has_answered
        assert state.health(0.0).state == "unknown"
        assert "grant get on leases" in state.health(0.0).why

    def test_alive_stands_until_it_would_have_expired(self, golden: Callable[[str], None]) -> None:
        state = guarded()
        state.lease.observe(lease(WALL), 0.0, WALL)
        state.lease.observe(DOWN, 10.0, WALL + 10)
        assert state.health(14.9).state == "available"
        assert state.health(15.0).state == "unknown"
        golden(state.health(15.0).why)

    def test_dead_stands_for_as_long(self) -> None:
        state = guarded()
        state.lease.observe(None, 0.0, WALL)
        state.lease.observe(DOWN, 2.0, WALL + 2)
        assert state.health(14.9).state == "unavailable"
        assert state.health(15.0).state == "unknown"

    def test_seen_to_be_expired_stands_for_as_long(self) -> None:
        state = guarded()
        state.lease.observe(lease(WALL), 0.0, WALL)
        state.lease.observe(lease(WALL), 14.0, WALL + 14)
        state.lease.observe(lease(WALL), 20.0, WALL + 20)
        state.lease.observe(DOWN, 22.0, WALL + 22)
        assert state.health(34.9).state == "unavailable"
        assert state.health(35.0).state == "unknown"

    def test_a_released_lease_stands_longer_than_its_one_second(self) -> None:
        state = guarded()
        state.lease.observe(lease(WALL, "", 1), 0.0, WALL)
        state.lease.observe(DOWN, 2.0, WALL + 2)
        assert state.health(14.9).state == "unavailable"
        state.lease.observe(lease(WALL - 3600, "host_2"), 4.0, WALL + 4)  # by a clock that is an hour behind
        assert state.health(4.0).state == "available"

    def test_a_change_during_long_blindness_dates_nothing(self) -> None:
        state = guarded()
        state.lease.observe(lease(WALL), 0.0, WALL)
        state.lease.observe(DOWN, 2.0, WALL + 2)
        state.lease.observe(lease(WALL + 100), 3600.0, WALL + 3600)
        assert state.health(3600.0).state == "unknown"
        state.lease.observe(lease(WALL + 3601), 3602.0, WALL + 3602)
        assert state.health(3602.0).state == "available"

    def test_a_short_one_does(self) -> None:
        state = guarded()
        state.lease.observe(lease(WALL - 3600), 0.0, WALL)
        state.lease.observe(DOWN, 2.0, WALL + 2)
        state.lease.observe(lease(WALL - 3596), 4.0, WALL + 4)
        assert state.health(4.0).state == "available"
