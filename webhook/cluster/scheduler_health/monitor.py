"""Whether a declared scheduler is available. A pod that names one that does not run waits without condition or event.

The evidence is the scheduler's leader election Lease, which shows that a process runs, and its pods, which show whether
that process serves the scheduler's name (`webhook.cluster.scheduler_health.waiting_pods`).
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from webhook.cluster.scheduler_health.lease import LeaseState
from webhook.cluster.scheduler_health.waiting_pods import LARGEST_POD_BYTES, MOST, Waiting, WaitingPods, is_listed
from webhook.errors import Unavailable
from webhook.facts import SchedulerHealth
from webhook.k8s.client.api import Transport, fetch
from webhook.k8s.client.clock import REAL_TIME, Clock
from webhook.k8s.client.object_store import CountLimitedStore
from webhook.k8s.client.reflector import DEFAULT_TIMING, Reflector, Timing, is_behind
from webhook.k8s.client.resources import LEASES, PODS
from webhook.k8s.pods import PendingPod
from webhook.k8s.timestamps import unix_time
from webhook.k8s.views import Lease, Object
from webhook.kubevirt.resources import ACTIVE_VMIS
from webhook.settings.snapshot import SchedulerHealthSettings as GuardSettings

# Name of the scheduler, the health so far, the health from now on.
HealthChange = Callable[[str, SchedulerHealth, SchedulerHealth], None]

POLL_SECONDS: Final = 2.0
_GET_SECONDS: Final = 5.0

# VMIs that are read for their pods between two polls.
_CHECKS: Final = 16
_WITNESSES_LOGGED: Final = 10

# How long a copy of the pods that is no longer kept in step may still testify.
_BLIND_SECONDS: Final = 60.0

logger = logging.getLogger(__name__)


class HealthEvidence:
    """The health of one scheduler, from what was observed. No clock, no I/O.

    Args:
        settings: what counts as evidence.
        opted_in: whether a namespace has opted in to scheduling.

    Attributes:
        pods: those that wait for the scheduler.
    """

    def __init__(self, settings: GuardSettings, opted_in: Callable[[str], bool]) -> None:
        self._kind = settings.kind
        self._lease = LeaseState(f"{settings.namespace}/{settings.name}")
        self.pods: Final = WaitingPods(opted_in)
        self._pods_answered = False
        self._pods_watched = False
        self._pods_trouble: str | None = None

    @property
    def has_answered(self) -> bool:
        """Whether everything that is watched has answered once; a 403 is an answer."""
        return self._kind == "off" or (self._pods_answered and (self._kind == "pods" or self._lease.has_answered))

    def observe_lease(self, lease: Lease | Unavailable | None, now: float, wall: float) -> None:
        """One read of the Lease; see `LeaseState.observe`."""
        self._lease.observe(lease, now, wall)

    def start_over(self) -> None:
        """Count the Lease from its next read; see `LeaseState.start_over`."""
        self._lease.start_over()

    def observe_watch(self, *, synced: bool, problem: str | None, forbidden: bool, staleness: float) -> None:
        """How the watch of pods is doing; see the attributes of `Reflector`."""
        self._pods_answered = synced or forbidden
        self._pods_watched = synced and not forbidden and (problem is None or staleness < _BLIND_SECONDS)
        self._pods_trouble = problem

    def health(self, now: float, namespace: str = "") -> SchedulerHealth:
        """The scheduler's health; cheap, since every review reads it.

        Args:
            now: monotonic seconds.
            namespace: the namespace of the pods to be placed; its own waiting pods count more there. Empty: the cluster
                as a whole.
        """
        if self._kind == "off":
            return SchedulerHealth("available", "its health is not checked")
        if self._pods_watched:
            evidence = self.pods.evidence(now, namespace)
            if evidence:
                return SchedulerHealth("unavailable", evidence)
            if self._kind == "pods":
                return SchedulerHealth("available", "no pod waits unnoticed")
            return self._lease.health(now)
        blindness = f"its pods are not watched: {self._pods_trouble or 'not listed yet'}"
        if self._kind == "pods":
            return SchedulerHealth("unknown", blindness)
        health = self._lease.health(now)
        return SchedulerHealth(health.state, f"{health.why}; {blindness}")


class SchedulerMonitor:
    """Watches one scheduler and has its health at any moment.

    Args:
        transport: the connection to the API server.
        scheduler: the profile name that pods name.
        settings: what to watch.
        opted_in: whether a namespace has opted in to scheduling: only the pods of such namespaces are evidence.
        on_change: runs for every change of the scheduler's state in the cluster; must neither block nor raise.
        on_restore: as that of `Reflector`.
        on_doubt: runs when the Lease is older than it was: etcd may have been restored from an older copy.
        clock: the source of time, and of sleep.
        poll_seconds: pause between two reads of the Lease.
        timing: pauses, timeouts and page sizes of the watch of pods.
        jitter: picks a random number between two bounds.
    """

    def __init__(  # noqa: PLR0913 - what it works with, each with a default
        self,
        transport: Transport,
        scheduler: str,
        settings: GuardSettings,
        *,
        opted_in: Callable[[str], bool],
        on_change: HealthChange | None = None,
        on_restore: Callable[[Reflector[Any], str], None] | None = None,
        on_doubt: Callable[[], None] = lambda: None,
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
        self._state = HealthEvidence(settings, opted_in)
        self.pods: Final[Reflector[Any]] = Reflector(
            transport,
            PODS,
            field_selector=f"spec.schedulerName={scheduler},status.phase=Pending",
            largest=LARGEST_POD_BYTES,
            transform=self._reduce_pod,
            store=partial(CountLimitedStore, MOST),
            on_change=self._pod_changed,
            on_restore=on_restore,
            clock=clock,
            timing=timing,
            jitter=jitter,
        )
        self._on_doubt = on_doubt
        self._lease_version: str | None = None
        self._reported = self.health()

    def health(self, namespace: str = "") -> SchedulerHealth:
        """The scheduler's health at this moment, from memory; see `GuardState.health`."""
        now, pods = self._clock.now(), self.pods
        self._state.observe_watch(
            synced=pods.has_synced, problem=pods.problem, forbidden=pods.is_forbidden, staleness=pods.staleness(now)
        )
        return self._state.health(now, namespace)

    def waiting_for(self) -> str | None:
        """What has not answered yet, as a clause; None after the first answer."""
        health = self.health()
        if self._state.has_answered:
            return None
        return f"no answer from its guard yet: {health.why}"

    def start_over(self) -> None:
        """Remember nothing of the Lease: etcd has been restored from an older copy."""
        self._state.start_over()

    async def run(self) -> None:
        """Keep watching until cancelled; returns only where there is nothing to watch."""
        if self.settings.kind == "off":
            return
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.pods.run())
            tasks.create_task(self._poll())

    async def _poll(self) -> None:
        while True:
            await asyncio.gather(self._read_lease(), self._check_pods())
            self._report()
            await self._clock.sleep(self._poll_seconds)

    async def _read_lease(self) -> None:
        settings = self.settings
        if settings.kind == "lease":
            lease = await fetch(self._transport, LEASES, settings.namespace, settings.name, _GET_SECONDS)
            if isinstance(lease, Lease):
                version = lease.metadata.resource_version if lease.metadata else None
                # A GET is consistent, so it is older than one before it only after a restore.
                if is_behind(version, self._lease_version):
                    self._state.start_over()
                    self._on_doubt()
                self._lease_version = version
            self._state.observe_lease(lease, self._clock.now(), self._clock.wall())

    async def _check_pods(self) -> None:
        """Check whether the VMIs of the pods that have waited too long list them."""
        unchecked = self._state.pods.unchecked_pods(self._clock.now(), _CHECKS)
        await asyncio.gather(*(self._check_pod(pod) for pod in unchecked))

    async def _check_pod(self, pod: Waiting) -> None:
        vmi = await fetch(self._transport, ACTIVE_VMIS, pod.namespace, pod.vmi, _GET_SECONDS)
        if not isinstance(vmi, Unavailable):
            self._state.pods.record_check(pod.uid, listed=is_listed(pod, vmi))

    def _reduce_pod(self, pod: Object) -> Waiting | None:
        """What is kept of a pod; the watch brings every pod that names the scheduler, of any user."""
        assert isinstance(pod, PendingPod)
        now = self._clock.now()
        if not pod.is_unnoticed:
            if pod.meta.deletion_timestamp is None:
                self._state.pods.observe_attempt(pod.meta.uid or "", now)
            return None
        if pod.spec and pod.spec.is_gated:
            return None
        # Pods of the first list may have been waiting since long before this process started.
        created = None if self.pods.has_synced else unix_time(pod.meta.creation_timestamp)
        return Waiting.of(pod, now - (0.0 if created is None else max(0.0, self._clock.wall() - created)))

    def _pod_changed(self, old: Waiting | None, new: Waiting | None) -> None:
        if old and (new is None or new.uid != old.uid):
            self._state.pods.forget(old.uid)
        if new:
            self._state.pods.observe_waiting(new)
        self._report()

    def _report(self) -> None:
        old, new = self._reported, self.health()
        self._reported = new
        if new.state == old.state:
            return
        if new.state == "unavailable" and (witnesses := self._state.pods.witnesses()):
            shown = ", ".join(witnesses[:_WITNESSES_LOGGED])
            logger.warning("scheduler %s has not tried to schedule %d pods: %s", self.scheduler, len(witnesses), shown)
        if self._on_change:
            self._on_change(self.scheduler, old, new)
