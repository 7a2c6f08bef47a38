"""What a scheduler's Lease says about its life. Pure: the times come in with the observations.

The Lease is that of leader election (client-go's ``tools/leaderelection``): renewed every few seconds, taken over once
``leaseDurationSeconds`` have passed without a renewal, emptied on a graceful end.
"""

from __future__ import annotations

from typing import Final

from webhook.errors import Unavailable
from webhook.facts import SchedulerHealth
from webhook.k8s.client.api import Forbidden
from webhook.k8s.timestamps import unix_time
from webhook.k8s.views import Lease

DEFAULT_LEASE_SECONDS: Final = 15  # kube-scheduler's own default

# How far ahead of the local clock that of a scheduler's node may be before its renewTime proves nothing.
_CLOCK_SKEW: Final = 60.0


class LeaseState:
    """The health of a scheduler by its Lease.

    Its age is counted on the monotonic clock since ``renewTime`` last changed.

    The writer's clock decides only at the first read, when there is no change yet to count from.

    Args:
        lease: the Lease as ``NAMESPACE/NAME``.
    """

    def __init__(self, lease: str) -> None:
        self._lease = lease
        self._checked_at: float | None = None  # last successful read, 404 included
        self._trouble: Unavailable | None = None  # of the last read
        self._present = False
        self._held = False
        self._renewed: str | None = None
        self._duration = float(DEFAULT_LEASE_SECONDS)
        self._changed_at = 0.0
        self._proven = False  # a change was seen, or the first sight was plausible

    @property
    def has_answered(self) -> bool:
        """Whether the API server has said anything definite: a Lease, 404, or 403."""
        return self._checked_at is not None or isinstance(self._trouble, Forbidden)

    def observe(self, lease: Lease | Unavailable | None, now: float, wall: float) -> None:
        """Record one read of the Lease.

        Args:
            lease: the Lease; None: it does not exist; `Unavailable`: it could not be read.
            now: monotonic seconds after the read.
            wall: Unix time in seconds at the same moment.
        """
        if isinstance(lease, Unavailable):
            self._trouble = lease
            return
        # A change that happened at some time of a long blindness dates nothing.
        blind = self._checked_at is not None and now - self._checked_at > self._memory
        first_sight = blind or not self._present
        self._trouble = None
        self._checked_at = now
        self._present = lease is not None
        if lease is None:
            return
        spec = lease.spec
        seconds = (spec.lease_duration_seconds if spec else None) or 0
        renewed = spec.renew_time if spec else None
        self._held = bool(spec and spec.holder_identity)
        self._duration = float(seconds if seconds > 0 else DEFAULT_LEASE_SECONDS)
        if first_sight:
            self._proven = self._is_plausible(renewed, wall)
            self._changed_at = now
        elif renewed != self._renewed:
            self._proven = True
            self._changed_at = now
        self._renewed = renewed

    def start_over(self) -> None:
        """Count from the next read as from the first: etcd has been restored, so that change proves nothing."""
        self._present = False
        self._checked_at = None

    def health(self, now: float) -> SchedulerHealth:
        """The scheduler's health at ``now``, in monotonic seconds."""
        trouble, checked_at, lease = self._trouble, self._checked_at, self._lease
        if checked_at is None:
            return SchedulerHealth("unknown", trouble.why if trouble else f"Lease {lease} has not been read yet")
        expiry = self._changed_at + self._duration
        gone = not self._present or not self._held
        if trouble:
            # One failed read does not make an unavailable scheduler available; evidence expires only with time.
            stands = checked_at + self._memory if gone or checked_at >= expiry else expiry
            if now >= stands:
                return SchedulerHealth("unknown", f"Lease {lease} can no longer be read: {trouble.why}")
        if not self._present:
            return SchedulerHealth("unavailable", f"Lease {lease} does not exist")
        if not self._held:
            return SchedulerHealth("unavailable", f"Lease {lease} has been released by its holder")
        age = now - self._changed_at
        if now >= expiry:
            return SchedulerHealth("unavailable", f"Lease {lease} has not been renewed for {age:.0f} s")
        if not self._proven:
            return SchedulerHealth("unknown", f"Lease {lease} is old; waiting to see whether it is still renewed")
        return SchedulerHealth("available", f"Lease {lease} was renewed {age:.0f} s ago")

    @property
    def _memory(self) -> float:
        """Seconds for which what was read last still counts. A released Lease has a duration of one second."""
        return max(self._duration, float(DEFAULT_LEASE_SECONDS))

    def _is_plausible(self, renewed: str | None, wall: float) -> bool:
        moment = unix_time(renewed)
        return moment is not None and 0 < moment + self._duration - wall <= self._duration + _CLOCK_SKEW
