"""A monitor of schedulers over a fake API server, and leases for it."""

from __future__ import annotations

from datetime import UTC, datetime

import msgspec

from tests.cluster.scheduler_health.pods import pod
from webhook.cluster.scheduler_health import HealthEvidence, Waiting
from webhook.errors import Unavailable
from webhook.k8s.types.core import PendingPod
from webhook.k8s.types.meta import Lease, LeaseSpec
from webhook.settings.model import SchedulerHealthSettings

LEASE = SchedulerHealthSettings("lease", "kubevirt-scheduler", "kubevirt-scheduler")
PODS_ONLY = SchedulerHealthSettings("pods")
WALL = 1_790_000_000.0
DOWN = Unavailable("no connection")


def stamp(unix: float) -> str:
    return datetime.fromtimestamp(unix, UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def lease(renewed: float | str | None, holder: str | None = "host_1", seconds: int | None = 15) -> Lease:
    renew_time = stamp(renewed) if isinstance(renewed, float) else renewed
    return Lease(spec=LeaseSpec(holder_identity=holder, lease_duration_seconds=seconds, renew_time=renew_time))


def guarded(settings: SchedulerHealthSettings = LEASE, *, synced: bool = True) -> HealthEvidence:
    state = HealthEvidence(settings, lambda _: True)
    if synced:
        state.observe_watch(synced=True, problem=None, forbidden=False, staleness=0.0)
    return state


def abandon(state: HealthEvidence, now: float = 31.0) -> None:
    """Two pods of two namespaces wait from 0 on, as their VMIs confirm."""
    for namespace in ("east", "west"):
        state.pods.observe_waiting(Waiting.of(msgspec.convert(pod(namespace), PendingPod), 0.0))
    for waiting in state.pods.unchecked_pods(now, 9):
        state.pods.record_check(waiting.uid, listed=True)
