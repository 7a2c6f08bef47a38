"""Whether a declared scheduler is available. A pod that names one that does not run waits without condition or event.

The evidence is the scheduler's leader election Lease, which shows that a process runs, and its pods, which show whether
that process serves the scheduler's name. The Lease (client-go's ``tools/leaderelection``) is renewed every few seconds,
taken over once ``leaseDurationSeconds`` have passed without a renewal, and emptied on a graceful end.

A scheduler that runs writes a ``PodScheduled`` condition into every pod that it tries. A pod without one shows that no
process serves the scheduler's name, even where a Lease is renewed. But any user who may create pods can name any
scheduler in them, so a pod is evidence only where no tenant can make it wait:

* KubeVirt made it: it looks like a virt-launcher pod, and the VMI that owns it lists it in its status. Other users
  cannot have a pod listed without a VMI of their own.
* Nothing keeps an available scheduler from trying it: no gate, claim or group (``PreEnqueue``); where volumes may still
  have to be made (``PreBind``), only after the time that a scheduler waits for them.
* It is small enough for a condition to fit into it: the API server would not store a larger one.
* Its namespace has opted in.

One pod is never enough: a namespace's own scheduling needs two pods of different VMs in it, that of all namespaces
needs pods of two namespaces. So tenants can at most harm themselves. And a scheduler that has tried any pod a moment
ago is available, however many others wait for their turn.
"""

from __future__ import annotations

import asyncio
import heapq
import logging
import math
from collections import Counter
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Final

from webhook import names
from webhook.admission.decision import Reason
from webhook.errors import Unavailable
from webhook.facts import SchedulerHealth
from webhook.k8s.client.api import Forbidden, Transport, fetch
from webhook.k8s.client.clock import REAL_TIME, Clock
from webhook.k8s.client.freshness import Fresh, Freshness, Unknown
from webhook.k8s.client.reflector import ObjectStore, OnRestore, Reflector, is_behind
from webhook.k8s.resources import LEASES, PENDING_PODS
from webhook.k8s.types.core import PendingPod
from webhook.k8s.types.meta import Lease, LeaseSpec, Namespace, Object, ObjectMeta, unix_time
from webhook.kubevirt.launcher import vmi_owner
from webhook.kubevirt.resources import ACTIVE_VMIS
from webhook.kubevirt.types.views import ActiveVmi
from webhook.settings.model import Settings
from webhook.settings.schedulers import HealthCheck

DEFAULT_LEASE_SECONDS: Final = 15  # kube-scheduler's own default


def has_opted_in(namespace: Namespace, settings: Settings) -> bool:
    """Whether a namespace enforces a policy that asks for the health of schedulers."""
    for policy, section in settings.policies.items():
        label = namespace.meta.label(names.policy_label(policy))
        is_enforced = label == names.ENFORCE or (label is None and section.cluster_wide)
        if is_enforced and section.watched_schedulers:
            return True
    return False


# How far ahead of the local clock that of a scheduler's node may be before its renewTime proves nothing.
_CLOCK_SKEW: Final = 60.0
# Of a Lease's duration: what a command waits for the renewal of one that its renewTime calls expired. Schedulers renew
# theirs more often: every 2 s of 15 by default, every 26 s of 137 on OpenShift.
_BRIEF: Final = 0.25


class LeaseState:
    """The health of a scheduler by its Lease, whose age counts on the monotonic clock since ``renewTime`` last changed.

    The writer's clock decides only at the first read, when there is no change yet to count from.

    Args:
        lease: the Lease as ``NAMESPACE/NAME``.
        is_brief: whether nobody watches it for as long as it lasts, as in a command. A Lease that has expired by its
            writer's clock then needs to go without a renewal only for a part of its duration.
    """

    def __init__(self, lease: str, *, is_brief: bool = False) -> None:
        self._lease = lease
        self._is_brief = is_brief
        self._age = 0.0  # since renewTime, by the writer's clock, when it last changed
        self._checked_at: float | None = None  # last successful read, 404 included
        self._trouble: Unavailable | None = None  # of the last read
        self._spec: LeaseSpec | None = None  # None: there is no Lease, or it counts as not seen
        self._duration = float(DEFAULT_LEASE_SECONDS)
        self._changed_at = 0.0
        self._proven = False  # a change was seen, or the first sight was plausible

    @property
    def is_old(self) -> bool:
        """Whether the Lease that was read last may have expired before: only time shows whether it is renewed."""
        return self._spec is not None and bool(self._spec.holder_identity) and not self._proven

    @property
    def has_answered(self) -> bool:
        """Whether the API server has said anything definite: a Lease, 404, or 403."""
        return self._checked_at is not None or isinstance(self._trouble, Forbidden)

    def observe(self, lease: Lease | Unavailable | None, now: float, wall: float) -> None:
        """Record one read of the Lease, None if it does not exist, at monotonic seconds and at a Unix time."""
        if isinstance(lease, Unavailable):
            self._trouble = lease
            return
        spec = (lease.spec or LeaseSpec()) if lease else None
        # A change that happened at some time of a long blindness dates nothing.
        blind = self._checked_at is not None and now - self._checked_at > self._memory
        former = None if blind else self._spec
        self._spec, self._trouble, self._checked_at = spec, None, now
        if spec is None:
            return
        self._duration = float(max(spec.lease_duration_seconds or 0, 0) or DEFAULT_LEASE_SECONDS)
        if former is None or spec.renew_time != former.renew_time:
            renewed = unix_time(spec.renew_time)
            left = -1.0 if renewed is None else renewed + self._duration - wall
            self._proven = former is not None or 0 < left <= self._duration + _CLOCK_SKEW
            self._age = 0.0 if renewed is None else wall - renewed
            self._changed_at = now

    def start_over(self) -> None:
        """Count from the next read as from the first: etcd has been restored, so that change proves nothing."""
        self._spec = None
        self._checked_at = None

    def health(self, now: float) -> SchedulerHealth:
        """The scheduler's health at ``now``, in monotonic seconds."""
        trouble, checked_at, lease = self._trouble, self._checked_at, self._lease
        if checked_at is None:
            return SchedulerHealth("unknown", trouble.why if trouble else f"Lease {lease} has not been read yet")
        expiry = self._changed_at + self._duration
        gone = self._spec is None or not self._spec.holder_identity
        if trouble:
            # One failed read does not make an unavailable scheduler available; evidence expires only with time.
            stands = checked_at + self._memory if gone or checked_at >= expiry else expiry
            if now >= stands:
                return SchedulerHealth("unknown", f"Lease {lease} can no longer be read: {trouble.why}")
        if self._spec is None:
            return SchedulerHealth("unavailable", f"Lease {lease} does not exist")
        if gone:
            return SchedulerHealth("unavailable", f"Lease {lease} has been released by its holder")
        age = now - self._changed_at
        if now >= expiry:
            return SchedulerHealth("unavailable", f"Lease {lease} has not been renewed for {age:.0f} s")
        if self._is_brief and not self._proven and self._age >= self._duration and age >= _BRIEF * self._duration:
            return SchedulerHealth("unavailable", f"Lease {lease} has not been renewed for {self._age + age:.0f} s")
        if not self._proven:
            return SchedulerHealth("unknown", f"Lease {lease} is old; waiting to see whether it is still renewed")
        return SchedulerHealth("available", f"Lease {lease} was renewed {age:.0f} s ago")

    @property
    def _memory(self) -> float:
        """Seconds for which what was read last still counts. A released Lease has a duration of one second."""
        return max(self._duration, float(DEFAULT_LEASE_SECONDS))


UNNOTICED_SECONDS: Final = 30.0

# kube-scheduler's bindTimeoutSeconds: for so long it may wait for volumes before the pod shows a condition.
VOLUME_SECONDS: Final = 600.0

# A virt-launcher pod has 10 to 30 kB. One near etcd's limit of 1.5 MB has no room for a condition.
LARGEST_POD_BYTES: Final = 256 * 1024

# Pods that are remembered of one namespace, and of all. More would say nothing else.
MOST_PER_NAMESPACE: Final = 100
MOST: Final = 5_000

_ENOUGH: Final = 2


class Waiting(Object, frozen=True):
    """What is kept of a pod that no scheduler has tried yet.

    Attributes:
        vmi: the name of the VMI that owns it.
        owner: the UID of that VMI; empty: the pod cannot be evidence.
        since: monotonic seconds from which its wait counts.
        patience: seconds that it may wait before it is evidence.
    """

    vmi: str = ""
    owner: str = ""
    since: float = 0.0
    patience: float = UNNOTICED_SECONDS

    @classmethod
    def of(cls, pod: PendingPod, since: float) -> Waiting:
        """What counts of a pod as evidence."""
        meta, spec = pod.meta, pod.spec
        kept = ObjectMeta(name=meta.name, namespace=meta.namespace, uid=meta.uid)
        owner = vmi_owner(pod)
        if isinstance(owner, Reason) or spec is None or spec.is_gated:
            return cls(metadata=kept, since=since)
        patience = UNNOTICED_SECONDS + (VOLUME_SECONDS if spec.has_claims else 0.0)
        return cls(metadata=kept, vmi=(owner.name or "")[:253], owner=owner.uid or "", since=since, patience=patience)

    @property
    def uid(self) -> str:
        """The pod's UID; empty where it has none."""
        return self.meta.uid or ""

    @property
    def namespace(self) -> str:
        """The pod's namespace; empty where it has none."""
        return self.meta.namespace or ""


class WaitingPods:
    """The pods that name a scheduler and that it has not tried.

    Args:
        opted_in: whether a namespace has opted in.
    """

    def __init__(self, opted_in: Callable[[str], bool]) -> None:
        self._opted_in: Final = opted_in
        self._waiting: Final[dict[str, Waiting]] = {}
        self._per_namespace: Final[Counter[str]] = Counter()
        self._tried_at = -math.inf
        # Those that have waited too long: first to be checked against their VMI, then evidence.
        self._due: Final[list[tuple[float, str]]] = []  # a heap
        self._unchecked: Final[dict[str, Waiting]] = {}
        self._evidence: Final[dict[str, Waiting]] = {}
        self._owners: Final[dict[str, Counter[str]]] = {}  # of the evidence: namespace -> owner -> pods

    def __len__(self) -> int:
        return len(self._waiting)

    def observe_waiting(self, pod: Waiting) -> None:
        """A pod waits; the first sight of it stands."""
        full = len(self._waiting) >= MOST or self._per_namespace[pod.namespace] >= MOST_PER_NAMESPACE
        if full or pod.uid in self._waiting:
            return
        self._waiting[pod.uid] = pod
        self._per_namespace[pod.namespace] += 1
        if pod.owner:
            heapq.heappush(self._due, (pod.since + pod.patience, pod.uid))
            if len(self._due) > 2 * MOST:
                # Pods that came and went would stay here for as long as they might have waited.
                self._due[:] = [entry for entry in self._due if self._is_wait(*entry)]
                heapq.heapify(self._due)

    def observe_attempt(self, uid: str, now: float) -> None:
        """A scheduler has written a condition into a pod, or has bound it; of pods not remembered it proves nothing."""
        if uid in self._waiting:
            self._tried_at = max(self._tried_at, now)
            self.forget(uid)

    def forget(self, uid: str) -> None:
        """A pod has left Pending, has been deleted, or has been tried."""
        pod = self._waiting.pop(uid, None)
        if pod is None:
            return
        self._per_namespace[pod.namespace] -= 1
        if not self._per_namespace[pod.namespace]:
            del self._per_namespace[pod.namespace]
        self._unchecked.pop(uid, None)
        if self._evidence.pop(uid, None):
            owners = self._owners[pod.namespace]
            owners[pod.owner] -= 1
            if not owners[pod.owner]:
                del owners[pod.owner]
            if not owners:
                del self._owners[pod.namespace]

    def unchecked_pods(self, now: float, most: int) -> list[Waiting]:
        """Some pods that have waited too long and whose VMIs have not been read yet, the namespaces in turn."""
        self._take_due(now)
        by_namespace: dict[str, list[Waiting]] = {}
        for pod in self._unchecked.values():
            if pod.namespace in by_namespace or self._opted_in(pod.namespace):
                by_namespace.setdefault(pod.namespace, []).append(pod)
        chosen: list[Waiting] = []
        turn = 0
        while len(chosen) < most and by_namespace:
            by_namespace = {name: pods for name, pods in by_namespace.items() if turn < len(pods)}
            chosen += [pods[turn] for pods in by_namespace.values()]
            turn += 1
        return chosen[:most]

    def record_check(self, waiting: Waiting, vmi: ActiveVmi | None) -> None:
        """The VMI of a pod was read, None if it does not exist: the pod is evidence if its owner lists it."""
        pod = self._unchecked.pop(waiting.uid, None)
        if pod is not None and vmi is not None and vmi.meta.uid == pod.owner and pod.uid in vmi.active_pods:
            self._evidence[pod.uid] = pod
            self._owners.setdefault(pod.namespace, Counter())[pod.owner] += 1

    def evidence(self, now: float, namespace: str = "") -> str | None:
        """Why no process can be serving the scheduler's name, a clause without names; None if nothing says so.

        At monotonic seconds; the own pods of a namespace, if it is given, count too.
        """
        self._take_due(now)
        if now - self._tried_at <= UNNOTICED_SECONDS:
            return None
        if namespace in self._owners and len(self._owners[namespace]) >= _ENOUGH and self._opted_in(namespace):
            return _clause(self._evidence_in(namespace), 1, now)
        agreeing = [each for each in self._owners if self._opted_in(each)]
        if len(agreeing) < _ENOUGH:
            return None
        return _clause((pod for each in agreeing for pod in self._evidence_in(each)), len(agreeing), now)

    def witnesses(self) -> list[str]:
        """The pods that are evidence, as ``NAMESPACE/NAME``: for logs only, since tenants may not see each other's."""
        return sorted(f"{pod.namespace}/{pod.meta.name}" for pod in self._evidence.values())

    def _evidence_in(self, namespace: str) -> Iterable[Waiting]:
        return (pod for pod in self._evidence.values() if pod.namespace == namespace)

    def _take_due(self, now: float) -> None:
        while self._due and self._due[0][0] < now:
            due, uid = heapq.heappop(self._due)
            if self._is_wait(due, uid) and uid not in self._evidence:
                self._unchecked[uid] = self._waiting[uid]

    def _is_wait(self, due: float, uid: str) -> bool:
        """Whether an entry is of a wait that lasts: a pod that left and came again waits from then on."""
        pod = self._waiting.get(uid)
        return pod is not None and due == pod.since + pod.patience


def _clause(pods: Iterable[Waiting], namespaces: int, now: float) -> str:
    waits = [now - pod.since for pod in pods]
    where = "this namespace" if namespaces == 1 else f"{namespaces} namespaces"
    return f"{len(waits)} virt-launcher pods in {where} have not been tried by it, one of them for {max(waits):.0f}s"


# Name of the scheduler, the health so far, the health from now on.
HealthChange = Callable[[str, SchedulerHealth, SchedulerHealth], None]

POLL_SECONDS: Final = 2.0
_GET_SECONDS: Final = 5.0
# VMIs that are read for their pods between two polls.
_CHECKS: Final = 16
_WITNESSES_LOGGED: Final = 10
# How old the store of the pods may be while its watch is interrupted, to be evidence.
_BLIND_SECONDS: Final = 60.0

logger = logging.getLogger(__name__)


class HealthEvidence:
    """The health of one scheduler, from what was observed of its Lease and its pods. No clock, no I/O.

    Args:
        settings: what counts as evidence.
        opted_in: as `has_opted_in`, by the name of a namespace.
        is_brief: as that of `LeaseState`.
    """

    def __init__(self, settings: HealthCheck, opted_in: Callable[[str], bool], *, is_brief: bool = False) -> None:
        self._kind = settings.kind
        self.lease: Final = LeaseState(f"{settings.namespace}/{settings.name}", is_brief=is_brief)
        self.pods: Final = WaitingPods(opted_in)
        self._pods_answered = False
        self._pods_watched = False
        self._pods_trouble = "not listed yet"

    @property
    def has_answered(self) -> bool:
        """Whether everything that is watched has answered once; a 403 is an answer."""
        return self._kind == "off" or (self._pods_answered and (self._kind == "pods" or self.lease.has_answered))

    def observe_watch(self, store: Freshness) -> None:
        """How the watch of pods is doing."""
        is_listed, is_forbidden = not isinstance(store, Unknown), isinstance(store.problem, Forbidden)
        self._pods_answered = is_listed or is_forbidden
        is_kept = store.problem is None or (store.age < _BLIND_SECONDS and not is_forbidden)
        self._pods_watched = isinstance(store, Fresh) and is_kept
        lack = "the list of them is too old" if is_listed else "not listed yet"
        self._pods_trouble = store.problem.why if store.problem else lack

    def health(self, now: float, namespace: str = "") -> SchedulerHealth:
        """The scheduler's health at ``now``, in monotonic seconds; cheap, since every review reads it.

        A namespace's own waiting pods count more for pods to be placed there; without one it is that of the cluster.
        """
        if self._kind == "off":
            return SchedulerHealth("available", "its health is not checked")
        if self._pods_watched:
            if evidence := self.pods.evidence(now, namespace):
                return SchedulerHealth("unavailable", evidence)
            if self._kind == "pods":
                return SchedulerHealth("available", "no pod waits unnoticed")
            return self.lease.health(now)
        blindness = f"its pods are not watched: {self._pods_trouble}"
        if self._kind == "pods":
            return SchedulerHealth("unknown", blindness)
        health = self.lease.health(now)
        return SchedulerHealth(health.state, f"{health.why}; {blindness}")


async def watch_lease(
    transport: Transport, state: HealthEvidence, settings: HealthCheck, seconds: float, clock: Clock = REAL_TIME
) -> Unavailable | None:
    """Read a Lease for a command, until it says something or some seconds have passed; why it could not be read."""
    begin = clock.now()
    while True:
        lease = await fetch(transport, LEASES, settings.namespace, settings.name, _GET_SECONDS)
        state.lease.observe(lease, clock.now(), clock.wall())
        if isinstance(lease, Unavailable):
            return lease
        if state.health(clock.now()).state != "unknown" or clock.now() - begin >= seconds:
            return None
        await clock.sleep(POLL_SECONDS)


class SchedulerMonitor:
    """Watches one scheduler and has its health at any moment.

    Args:
        transport: the connection to the API server.
        scheduler: the profile name that pods name.
        settings: what to watch.
        opted_in: as `has_opted_in`, by the name of a namespace: only the pods of such namespaces are evidence.
        on_change: runs for every change of the scheduler's state in the cluster; must neither block nor raise.
        on_restore: as that of `Reflector`.
        on_doubt: runs when the Lease is older than it was: etcd may have been restored from an older copy.
        is_brief: as that of `LeaseState`.
        clock: the source of time, and of sleep.
    """

    def __init__(  # noqa: PLR0913 - what it works with, each with a default
        self,
        transport: Transport,
        scheduler: str,
        settings: HealthCheck,
        *,
        opted_in: Callable[[str], bool],
        on_change: HealthChange | None = None,
        on_restore: OnRestore = lambda _informer, _why: None,
        on_doubt: Callable[[], None] = lambda: None,
        is_brief: bool = False,
        clock: Clock = REAL_TIME,
    ) -> None:
        self.scheduler: Final = scheduler
        self.settings: Final = settings
        self._transport = transport
        self._on_change = on_change
        self._clock = clock
        self._state = HealthEvidence(settings, opted_in, is_brief=is_brief)
        self.pods: Final[Reflector[Any]] = Reflector(
            transport,
            PENDING_PODS,
            field_selector=f"spec.schedulerName={scheduler},status.phase=Pending",
            largest=LARGEST_POD_BYTES,
            transform=self._reduce_pod,
            store=partial(ObjectStore, MOST),
            on_change=self._pod_changed,
            on_restore=on_restore,
            clock=clock,
        )
        self._on_doubt = on_doubt
        self._lease_version: str | None = None
        self._reported = self.health()

    def health(self, namespace: str = "") -> SchedulerHealth:
        """The scheduler's health at this moment, from memory; see `SchedulerHealth`."""
        now = self._clock.now()
        self._state.observe_watch(self.pods.freshness(now))
        return self._state.health(now, namespace)

    def waiting_for(self) -> str | None:
        """What has not answered yet, as a clause; None after the first answer."""
        health = self.health()
        return None if self._state.has_answered else f"no answer from its health check yet: {health.why}"

    def undecided(self) -> str | None:
        """What only time will show, as a clause: whether an old Lease is still renewed; None: nothing."""
        health = self.health()
        return health.why if health.state == "unknown" and self._state.lease.is_old else None

    def start_over(self) -> None:
        """Remember nothing of the Lease: etcd has been restored from an older copy."""
        self._state.lease.start_over()

    async def run(self) -> None:
        """Keep watching until cancelled; returns only where there is nothing to watch."""
        if self.settings.kind == "off":
            return
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.pods.run())
            tasks.create_task(self._poll())

    async def _poll(self) -> None:
        while True:
            # Beside the Lease, the VMIs of the pods that have waited too long: do they list them?
            unchecked = self._state.pods.unchecked_pods(self._clock.now(), _CHECKS)
            await asyncio.gather(self._read_lease(), *(self._check_pod(pod) for pod in unchecked))
            self._report()
            await self._clock.sleep(POLL_SECONDS)

    async def _read_lease(self) -> None:
        settings = self.settings
        if settings.kind == "lease":
            lease = await fetch(self._transport, LEASES, settings.namespace, settings.name, _GET_SECONDS)
            if isinstance(lease, Lease):
                version = lease.metadata.resource_version if lease.metadata else None
                # A GET is consistent, so it is older than one before it only after a restore.
                if is_behind(version, self._lease_version):
                    self._state.lease.start_over()
                    self._on_doubt()
                self._lease_version = version
            self._state.lease.observe(lease, self._clock.now(), self._clock.wall())

    async def _check_pod(self, pod: Waiting) -> None:
        vmi = await fetch(self._transport, ACTIVE_VMIS, pod.namespace, pod.vmi, _GET_SECONDS)
        if not isinstance(vmi, Unavailable):
            self._state.pods.record_check(pod, vmi)

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
        is_first = isinstance(self.pods.freshness(now), Unknown)
        created = unix_time(pod.meta.creation_timestamp) if is_first else None
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
