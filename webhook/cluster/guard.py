"""Is a declared scheduler alive? A pod that names one that nobody runs waits for ever, without condition or event.

The evidence is the scheduler's leader election Lease, which says that a process runs, and its pods: a scheduler that
runs writes a ``PodScheduled`` condition into every pod that it can't place, so one without any has not been looked at,
whoever may be renewing the Lease.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Final

from webhook.cluster.api import Transport, fetch
from webhook.cluster.clock import REAL_TIME, Clock
from webhook.cluster.evidence import LeaseState, PodsState
from webhook.cluster.reflector import DEFAULT_TIMING, Reflector, Timing
from webhook.errors import Unavailable
from webhook.facts import SchedulerHealth
from webhook.objects import LEASES, PODS, Lease, PendingPod
from webhook.settings.snapshot import Guard as GuardSettings
from webhook.times import unix_time

# Name of the scheduler, the health so far, the health from now on.
HealthChange = Callable[[str, SchedulerHealth, SchedulerHealth], None]

POLL_SECONDS: Final = 2.0
_LEASE_TIMEOUT: Final = 5.0

# How long a copy of the pods that is no longer kept in step may still testify.
_BLIND_SECONDS: Final = 60.0


class GuardState:
    """The judgement of one scheduler, out of what was observed. No clock, no I/O.

    Args:
        scheduler: the profile name that pods name.
        settings: what counts as evidence.
    """

    def __init__(self, scheduler: str, settings: GuardSettings) -> None:
        self._kind = settings.kind
        self._lease = LeaseState(f"{settings.namespace}/{settings.name}")
        self._pods = PodsState(scheduler)
        self._pods_answered = False
        self._pods_watched = False
        self._pods_trouble: str | None = None

    @property
    def answered(self) -> bool:
        """Whether all that the guard watches has answered once; a 403 is an answer."""
        return self._kind == "off" or (self._pods_answered and (self._kind == "pods" or self._lease.answered))

    def observe_lease(self, lease: Lease | Unavailable | None, now: float, wall: float) -> None:
        """One read of the Lease; see `LeaseState.observe`."""
        self._lease.observe(lease, now, wall)

    def observe_watch(self, *, synced: bool, problem: str | None, forbidden: bool, staleness: float) -> None:
        """How the watch of pods is doing; see the attributes of `Reflector`."""
        self._pods_answered = synced or forbidden
        self._pods_watched = synced and not forbidden and (problem is None or staleness < _BLIND_SECONDS)
        self._pods_trouble = problem

    def pod_seen(self, pod: PendingPod, since: float) -> None:
        """A Pending pod that names the scheduler; see `PodsState.seen`."""
        self._pods.seen(pod, since)

    def pod_gone(self, pod: PendingPod) -> None:
        """A pod that no longer matches, for whatever reason."""
        self._pods.gone(pod.meta.uid or "")

    def health(self, now: float) -> SchedulerHealth:
        """The judgement at ``now``, in monotonic seconds. Cheap: asked in every review."""
        if self._kind == "off":
            return SchedulerHealth("alive", "not guarded")
        if self._pods_watched:
            evidence = self._pods.evidence(now)
            if evidence:
                return SchedulerHealth("dead", evidence)
            if self._kind == "pods":
                return SchedulerHealth("alive", "no pod waits unnoticed")
            return self._lease.health(now)
        blindness = f"its pods are not watched: {self._pods_trouble or 'not listed yet'}"
        if self._kind == "pods":
            return SchedulerHealth("unknown", blindness)
        health = self._lease.health(now)
        return SchedulerHealth(health.state, f"{health.why}; {blindness}")


class Guard:
    """Watches one scheduler and knows its health at any moment.

    Args:
        transport: the way to the API server.
        scheduler: the profile name that pods name.
        settings: what to watch.
        on_change: told about every change of state that the guard comes to see; must neither block nor raise.
        poll_seconds: between two reads of the Lease.
        timing: of the watch of pods.
    """

    def __init__(
        self,
        transport: Transport,
        scheduler: str,
        settings: GuardSettings,
        *,
        on_change: HealthChange | None = None,
        clock: Clock = REAL_TIME,
        poll_seconds: float = POLL_SECONDS,
        timing: Timing = DEFAULT_TIMING,
        jitter: Callable[[float, float], float] = random.uniform,
    ) -> None:
        self.scheduler: Final = scheduler
        self.settings: Final = settings
        self._transport = transport
        self._on_change = on_change
        self._clock = clock
        self._poll_seconds = poll_seconds
        self._state = GuardState(scheduler, settings)
        self.pods: Final = Reflector(
            transport,
            PODS,
            field_selector=f"spec.schedulerName={scheduler},status.phase=Pending",
            on_change=self._pod_changed,
            clock=clock,
            timing=timing,
            jitter=jitter,
        )
        self._reported = self.health()

    def health(self) -> SchedulerHealth:
        """The judgement at this moment, from memory."""
        now, pods = self._clock.now(), self.pods
        self._state.observe_watch(
            synced=pods.synced, problem=pods.problem, forbidden=pods.forbidden, staleness=pods.staleness(now)
        )
        return self._state.health(now)

    def waiting_for(self) -> str | None:
        """What the guard has not heard of yet, as a clause; None after its first answer."""
        health = self.health()
        if self._state.answered:
            return None
        return f"no answer from its guard yet: {health.why}"

    async def run(self) -> None:
        """Keep watching until cancelled; returns only where there is nothing to watch."""
        if self.settings.kind == "off":
            return
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.pods.run())
            tasks.create_task(self._poll())

    async def _poll(self) -> None:
        settings = self.settings
        while True:
            if settings.kind == "lease":
                lease = await fetch(self._transport, LEASES, settings.namespace, settings.name, _LEASE_TIMEOUT)
                self._state.observe_lease(lease, self._clock.now(), self._clock.wall())
            self._report()
            await self._clock.sleep(self._poll_seconds)

    def _pod_changed(self, old: PendingPod | None, new: PendingPod | None) -> None:
        if old and (new is None or new.meta.uid != old.meta.uid):
            self._state.pod_gone(old)
        if new:
            now = self._clock.now()
            # Pods of the first list may have been waiting long before we came.
            created = None if self.pods.synced else unix_time(new.meta.creation_timestamp)
            waited = 0.0 if created is None else max(0.0, self._clock.wall() - created)
            self._state.pod_seen(new, now - waited)
        self._report()

    def _report(self) -> None:
        old, new = self._reported, self.health()
        self._reported = new
        if self._on_change and new.state != old.state:
            self._on_change(self.scheduler, old, new)
