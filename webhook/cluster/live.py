"""The cluster that the API server shows: informers' stores, and GETs for what they lack or must not answer.

How old an answer may be: what decides whether something is allowed (a namespace with its mode and lists, the KubeVirt
object, an instancetype) comes from its store while this is `webhook.k8s.client.freshness.Fresh`. Then a whole list or
the watch has proved the store up to date in the last `webhook.k8s.client.reflector.CURRENT_SECONDS`, and etcd, when it
was last asked, had reached the store's resourceVersion; each store is verified once in `VERIFY_EVERY_SECONDS`. Beyond
that a GET decides, which all reviews share that ask meanwhile or in the next second.
Nodes are then `Unavailable`: no other way to read so many would end in time. Pods that wait for a scheduler say nothing
of its health once their store is too old. `LiveCluster.peek` is where a store's content becomes a fact, or does not.

A replica is ready while namespaces can be read in one of these two ways; once the store is too old, that is what a GET
of a namespace says, which `LiveCluster` sends itself each `PROBE_SECONDS`.

Each request is sent once, and what was read a moment ago is kept: the reviews of one request of a user come several in
a row. The data of a ControllerRevision cannot change, but it may be deleted and created again under its name, and its
labels may change. So answers are shared for a second only, and a caller that must not be deceived reads a fresh one.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Hashable, Iterable, Iterator
from contextlib import suppress
from functools import lru_cache, partial
from typing import Any, Final, NamedTuple, TypeVar, cast, get_args

import msgspec
from cachetools import TTLCache

from webhook import facts, names
from webhook.cluster.access import authenticate, is_allowed
from webhook.cluster.definitions import DefinitionReader
from webhook.cluster.instancetype_cache import InstancetypeCache
from webhook.cluster.scheduler_health import HealthChange, SchedulerMonitor, has_opted_in
from webhook.cluster.source import Cluster, NodeReports, Reader
from webhook.errors import Unavailable, quote
from webhook.facts import NOT_READ, Key, KubeVirtKey, ListKey, NamespaceKey, ObjectKey, SchedulerKey
from webhook.k8s.client.api import Forbidden, Transport, decode, describe_timeout, fetch_body
from webhook.k8s.client.clock import REAL_TIME, Clock
from webhook.k8s.client.freshness import Fresh, Stale, Unknown
from webhook.k8s.client.list_pages import fetch_list
from webhook.k8s.client.reflector import SILENCE_SECONDS, ObjectName, Reflector
from webhook.k8s.resources import NAMESPACES, NODES, Resource
from webhook.k8s.types.meta import Namespace, Object, ObjectMeta
from webhook.kubevirt.config import InstallReader, find_in_use
from webhook.kubevirt.releases.fields import Definitions
from webhook.kubevirt.resources import KUBEVIRTS, REVISIONS, VMIS
from webhook.kubevirt.types.views import VirtualMachineInstance, VmiSpec
from webhook.placement.index import NodeIndex
from webhook.placement.nodes import Node
from webhook.settings.model import Settings
from webhook.text import duration

T = TypeVar("T")

# Of one request, however long the reviews wait.
GET_SECONDS: Final = 5.0
# From the first review of a request to its last; the API server waits 3 s for each at most.
SHARED_SECONDS: Final = 1.0
SHARED_BYTES: Final = 1024 * 1024
# What an answer takes beside its bytes: its names, of 63 and 253 characters at most, and places in three dictionaries.
_ANSWER_BYTES: Final = 1024


class RecentAnswers(TTLCache[ObjectName, bytes]):
    """Answers to GETs of a moment ago, by a clock."""

    def __init__(self, clock: Clock) -> None:
        super().__init__(SHARED_BYTES, SHARED_SECONDS, clock.now, lambda body: len(body) + _ANSWER_BYTES)

    def __setitem__(self, name: ObjectName, body: bytes) -> None:
        # What it was is not what it is, also where that is too large to be kept.
        self.pop(name, None)
        with suppress(ValueError):
            super().__setitem__(name, body)


# Lists that are read at the same time: each may have a page of several MiB in memory.
_LISTS: Final = 4


class _InFlightGet(NamedTuple):
    started: int
    task: asyncio.Task[Any]


class SingleFlight:
    """Sends each request once, however many reviews wait for its answer.

    Args:
        transport: the connection to the API server.
        clock: the source of monotonic time.

    Attributes:
        recent: the ControllerRevisions that were read a moment ago.
    """

    def __init__(self, transport: Transport, clock: Clock) -> None:
        self._transport: Final = transport
        self._clock: Final = clock
        self.recent: Final = RecentAnswers(clock)
        self._flights: Final[dict[Hashable, _InFlightGet]] = {}
        self._order: Final = itertools.count()  # of arrivals and starts of requests
        self._listing: Final = asyncio.Semaphore(_LISTS)

    @property
    def tasks(self) -> list[asyncio.Task[Any]]:
        """The requests that are on their way."""
        return [flight.task for flight in self._flights.values()]

    def peek(self, key: ObjectKey[Any]) -> object:
        """A ControllerRevision that was read a moment ago, else `webhook.facts.NOT_READ`."""
        if key.uncached or key.resource.kind != REVISIONS.kind:
            return NOT_READ
        body = self.recent.get((key.namespace, key.name))
        return NOT_READ if body is None else decode(body, key.resource.view, key.resource.kind)

    async def get(self, key: ObjectKey[Any], deadline: float, uid: str | None = None) -> Object | Unavailable | None:
        """One object, by GET, before a deadline on the running loop's clock; past it the answer is `Unavailable`.

        A GET that began before this call may have missed what was created since. So its 404, its failure and, where the
        UID of the expected object is given, another UID do not count as an answer.
        """
        value: Object | Unavailable | None = await self._join(
            key, deadline, lambda answer: isinstance(answer, Object) and (uid is None or answer.meta.uid == uid)
        )
        return value

    async def list(self, key: ListKey[Any], deadline: float) -> tuple[Object, ...] | Unavailable:
        """All objects of a list, from a request that began after this call: an earlier one may lack what is new."""
        listed: tuple[Object, ...] | Unavailable = await self._join(key, deadline, lambda _: False)
        return listed

    async def _join(self, key: ObjectKey[Any] | ListKey[Any], deadline: float, counts: Callable[[object], bool]) -> Any:
        """Join the request for ``key`` that is on its way, or start one; two suffice, since the next begins after this.

        An answer whose request began before this call is used if it ``counts``.
        """
        # Every request is as fresh as can be.
        key = msgspec.structs.replace(key, uncached=True)
        loop = asyncio.get_running_loop()
        began, arrived = loop.time(), next(self._order)
        late = describe_timeout(deadline - began)
        while True:
            left = deadline - loop.time()
            if left <= 0:
                return late
            flight = self._flights.get(key) or self._launch(key)
            # wait() does not cancel the request when this caller is cancelled or late: others wait for it too.
            await asyncio.wait((flight.task,), timeout=left)
            if not flight.task.done():
                return late
            if flight.task.cancelled():
                return Unavailable("the server is being stopped")
            answer = flight.task.result()
            if flight.started > arrived or counts(answer):
                return answer

    def _launch(self, key: ObjectKey[Any] | ListKey[Any]) -> _InFlightGet:
        async def fly() -> object:
            try:
                return await self._send(key)
            finally:
                # Here and not in a callback, which would run only after others could have joined a finished request.
                self._flights.pop(key, None)

        flight = self._flights[key] = _InFlightGet(next(self._order), asyncio.create_task(fly()))
        return flight

    async def _send(self, key: ObjectKey[Any] | ListKey[Any]) -> object:
        resource = key.resource
        if isinstance(key, ListKey):
            async with self._listing:
                return await fetch_list(self._transport, resource, key.namespace, key.label, GET_SECONDS, key.field)
        body = await fetch_body(self._transport, resource, key.namespace, key.name, GET_SECONDS)
        if not isinstance(body, bytes):
            return body
        if resource.kind == REVISIONS.kind:
            self.recent[key.namespace, key.name] = body
        return decode(body, resource.view, resource.kind)


CACHED_VMIS: Final = 20_000
# A VM's migrations and the retries of its pods come at once; VMIs that are gone are forgotten.
REMEMBERED_SECONDS: Final = 600.0
# The longest name that Kubernetes has. A VMI may ask for a scheduler of any length, and is then not remembered.
_LONGEST_NAME: Final = 253


def shared_text(text: str) -> str:
    """The text, as the object that an equal one was before: thousands of objects have the same short texts.

    In place of `sys.intern`, which frees no text from CPython 3.12.0 to 3.12.6: tenants could make up any number.
    """
    return _first_equal(text) if len(text) <= _LONGEST_NAME else text


@lru_cache(maxsize=8192)
def _first_equal(text: str) -> str:
    return text


class RememberedVmis:
    """Which schedulers VMIs chose that were read in the last `REMEMBERED_SECONDS`: a VMI can't change its choice.

    VMIs aren't watched, and nobody says that one is gone. So nothing else is kept of them: some 500 bytes of each.
    """

    def __init__(self, clock: Clock) -> None:
        self._schedulers: Final = TTLCache[facts.VmiKey, str](CACHED_VMIS, REMEMBERED_SECONDS, clock.now)

    def __len__(self) -> int:
        return len(self._schedulers)

    def get(self, key: facts.VmiKey) -> VirtualMachineInstance | None:
        """The VMI, with its identity and its scheduler alone; None where it is not remembered."""
        scheduler = self._schedulers.get(key)
        return None if scheduler is None else _reduced_vmi(key, scheduler)

    def put(self, vmi: VirtualMachineInstance) -> VirtualMachineInstance:
        """Remember a VMI, unless it has no UID or its scheduler no name; returns it as `get` would."""
        # Labels and the like may change: in the cache they would be wrong one day.
        meta = vmi.meta
        key = facts.VmiKey(meta.namespace or "", meta.name or "", meta.uid or "")
        if key.uid and len(vmi.scheduler_name) <= _LONGEST_NAME:
            # Thousands of VMIs share both.
            key = msgspec.structs.replace(key, namespace=shared_text(key.namespace))
            self._schedulers[key] = shared_text(vmi.scheduler_name)
        return _reduced_vmi(key, vmi.scheduler_name)

    def clear(self) -> None:
        """Forget all of them."""
        self._schedulers.clear()


def _reduced_vmi(key: facts.VmiKey, scheduler: str) -> VirtualMachineInstance:
    meta = ObjectMeta(name=key.name, namespace=key.namespace, uid=key.uid)
    return VirtualMachineInstance(metadata=meta, spec=VmiSpec(scheduler))


# Namespaces that neither the store nor the API server has. The API server asks about none of them (its plugin
# NamespaceLifecycle denies the request before), so many of them mean a foreign client that invents names.
ABSENT_NAMESPACES: Final = 20
ABSENT_SECONDS: Final = 1.0
# While there are too many, how long a namespace that has just been created gets to appear in the store.
_APPEARS_SECONDS: Final = 0.1

# Once in so many seconds etcd is asked for each store whether it has reached its resourceVersion: one small request.
VERIFY_EVERY_SECONDS: Final = 10.0

# While the store of namespaces is too old, or may soon be, a GET of one is tried once in so many seconds.
PROBE_SECONDS: Final = 5.0
# The namespace that each cluster has; that there is none of this name is an answer, too.
_PROBED: Final = ObjectKey(NAMESPACES, "", "default", uncached=True)

# Before a task that raised an unexpected exception is started again.
_RESTART_SECONDS: Final = 10.0

logger = logging.getLogger(__name__)

# The size of the annotations with which a namespace is copied; one with more is read for each review.
_NAMESPACE_BYTES: Final = 16 * 1024
_PREFIX: Final = f"{names.DOMAIN}/"


class LiveCluster(Cluster):
    """Answers from a running cluster.

    Args:
        transport: the connection to the API server; `close` closes it.
        settings: names the schedulers whose health is watched.
        on_health: runs when the state of a scheduler changes; None: nothing does.
        is_brief: as that of `LeaseState`.
        clock: the source of time, and of sleep.
    """

    def __init__(
        self,
        transport: Transport,
        settings: Settings,
        *,
        on_health: HealthChange | None = None,
        is_brief: bool = False,
        clock: Clock = REAL_TIME,
    ) -> None:
        self._transport = transport
        self._on_health = on_health
        self._is_brief = is_brief
        self._clock = clock

        self._namespaces = Reflector(
            transport,
            NAMESPACES,
            transform=_reduce_namespace,
            on_change=partial(_log_invalid_modes, settings.policies),
            on_restore=self._start_over,
            clock=clock,
        )
        self._installs = InstallReader(settings.kubevirt.version, learns=True)
        self._definitions = DefinitionReader(transport, self._kubevirt_versions, self._learn, clock)
        self._kubevirts = Reflector(
            transport,
            KUBEVIRTS,
            on_change=lambda _old, _new: self._definitions.notice(),
            on_restore=self._start_over,
            clock=clock,
        )
        self._reports: NodeReports | None = None
        self._answers: dict[Key[Any], Callable[[], object]] = {}
        self._readers: dict[type[Key[Any]], Reader] = {}
        self._index = NodeIndex()
        self._nodes = self._nodes_as(NODES)
        self._monitors: dict[str, SchedulerMonitor] = {}
        self._vmis = RememberedVmis(clock)
        self._requests = SingleFlight(transport, clock)
        self._instancetypes = InstancetypeCache(transport, self._run, on_restore=self._start_over, clock=clock)
        self._read_namespaces = RecentAnswers(clock)
        self._outdated: set[str] = set()
        self._unreachable: Unavailable | None = None
        self._on_restore: list[Callable[[str], None]] = []
        self.restores = 0
        # When lookups found nothing, which bounds what made-up names cost the API server. No answers are kept: what did
        # not exist may exist now.
        self._absent: deque[float] = deque(maxlen=ABSENT_NAMESPACES)
        self._tasks: set[asyncio.Task[None]] = set()
        self._monitor_tasks: dict[str, asyncio.Task[None]] = {}
        self._started = False
        self._ready = False
        self.use(settings)

    @property
    def _informers(self) -> tuple[Reflector[Any], ...]:
        return self._namespaces, self._kubevirts, self._nodes

    def _nodes_as(self, resource: Resource[Any]) -> Reflector[Any]:
        return Reflector(
            self._transport,
            resource,
            transform=self._trim_node,
            on_change=self._on_node,
            on_restore=self._start_over,
            clock=self._clock,
        )

    def report_nodes(self, reports: NodeReports) -> None:
        """Give these the images of each node, which are not read otherwise; call it before `start`."""
        assert not self._started
        self._reports = reports
        self._nodes = self._nodes_as(reports.resource)

    def answer(self, key: Key[Any], peek: Callable[[], object]) -> None:
        """Have something else answer a key, at once and from memory."""
        self._answers[key] = peek

    def answer_later(self, kind: type[Key[Any]], read: Reader) -> None:
        """Have something else answer all keys of a kind, which takes its time."""
        self._readers[kind] = read

    def start(self) -> None:
        """Begin to watch, in tasks of the running loop. Returns at once: `waiting_for` says what is missing."""
        self._started = True
        for informer in self._informers:
            self._run(informer.resource.plural, informer.run)
        self._run("definitions", self._definitions.run)
        self._run("verification", self._verify)
        self._run("probe of the API server", self._probe)
        for monitor in self._monitors.values():
            self._run_monitor(monitor)

    async def close(self) -> None:
        """End all tasks and connections. Reviews that still wait for an answer get `Unavailable`."""
        self._started = False
        ending = [*self._tasks, *self._requests.tasks]
        for task in ending:
            task.cancel()
        await asyncio.gather(*ending, return_exceptions=True)
        await self._transport.close()

    def use(self, settings: Settings) -> None:
        """Watch the schedulers that these settings declare. Unchanged health checks keep their state."""
        self._settings = settings
        self._installs.use(settings.kubevirt.version)
        # Policies that needed these informers may be off now.
        self._instancetypes.stop()
        checks = {name: scheduler.watched for name, scheduler in settings.watched_schedulers.items()}
        for name in [name for name, monitor in self._monitors.items() if checks.get(name) != monitor.settings]:
            del self._monitors[name]
            if task := self._monitor_tasks.pop(name, None):
                task.cancel()
        for name in [name for name in checks if name not in self._monitors]:
            monitor = self._monitors[name] = SchedulerMonitor(
                self._transport,
                name,
                checks[name],
                opted_in=self._has_opted_in,
                on_change=self._on_health,
                on_restore=self._start_over,
                on_doubt=self._doubt,
                is_brief=self._is_brief,
                clock=self._clock,
            )
            if self._started:
                self._run_monitor(monitor)

    def waiting_for(self) -> tuple[str, ...]:
        """What is missing before answers can be trusted, in words; empty once ready.

        It stays ready while namespaces can be read in one way or the other: from the store, or from the API server.
        """
        if self._ready:
            store = self._namespaces.freshness(self._clock.now())
            if isinstance(store, Fresh) or self._unreachable is None:
                return ()
            since = f" for {duration(store.age)}" if isinstance(store, Stale) and store.why == "age" else ""
            return (f"namespaces: not up to date{since}, and not readable: {self._unreachable.why}",)
        missing = [
            f"{name}: {store.problem.why if store.problem else 'not listed yet'}"
            for name, store in self._unlisted(self._informers)
        ]
        if not missing and not self._definitions.is_current:
            missing.append("customresourcedefinitions: not read yet")
        lacks = ((name, monitor.waiting_for()) for name, monitor in self._monitors.items())
        missing += [f"scheduler {name}: {lack}" for name, lack in lacks if lack]
        self._ready = not missing
        return tuple(missing)

    def denied(self) -> tuple[str, ...]:
        """The lists that the API server denies, each with the missing permission: waiting does not change that.

        Namespaces are read one by one then; questions about the others are answered by `Unavailable`.
        """
        return self._denials(self._informers)

    def gaps(self) -> tuple[str, ...]:
        """What is denied and cannot be read in another way, as clauses."""
        return self._denials((self._kubevirts, self._nodes))

    def undecided(self) -> tuple[str, ...]:
        """The schedulers of which only time will show whether they are available, each with why, as clauses."""
        each = ((name, monitor.undecided()) for name, monitor in self._monitors.items())
        return tuple(f"scheduler {name}: {why}" for name, why in each if why)

    def unanswered(self) -> tuple[str, ...]:
        """As `waiting_for`, without what is denied: what a command still waits for that can do with less."""
        return tuple(missing for missing in self.waiting_for() if missing not in self.denied())

    def staleness(self) -> dict[str, float]:
        """Seconds since the store of each watch was last proved up to date: the age of its `Freshness`."""
        now = self._clock.now()
        return {name: informer.freshness(now).age for name, informer in self._watches().items()}

    def _watches(self) -> dict[str, Reflector[Any]]:
        """All informers, by the name of their watch."""
        informers = (*self._informers, *self._instancetypes.informers.values())
        watches = {informer.resource.plural: informer for informer in informers}
        pods = ((name, self._pods_of(name)) for name in self._monitors)
        return watches | {_pods_of(name): informer for name, informer in pods if informer is not None}

    def _denials(self, informers: Iterable[Reflector[Any]]) -> tuple[str, ...]:
        problems = ((name, store.problem) for name, store in self._unlisted(informers))
        return tuple(f"{name}: {problem.why}" for name, problem in problems if isinstance(problem, Forbidden))

    def _unlisted(self, informers: Iterable[Reflector[Any]]) -> Iterator[tuple[str, Unknown]]:
        """What has not been listed yet, by its plural name."""
        now = self._clock.now()
        for informer in informers:
            store = informer.freshness(now)
            if isinstance(store, Unknown):
                yield informer.resource.plural, store

    def on_restore(self, act: Callable[[str], None]) -> None:
        """Call this, with a clause about it, each time that etcd turns out to have been restored from an older copy."""
        self._on_restore.append(act)

    async def _verify(self) -> None:
        """Have etcd asked for each store whether it has reached its version, one after the other."""
        while True:
            for name, informer in (watches := self._watches()).items():
                await self._clock.sleep(VERIFY_EVERY_SECONDS / len(watches))
                await informer.verify()
                self._log_currency(name, informer)

    async def _probe(self) -> None:
        """Find out whether namespaces can be read by GET, wherever reviews depend on that, or soon may."""
        while True:
            store = self._namespaces.freshness(self._clock.now())
            is_well = store.age < SILENCE_SECONDS and not store.problem
            deadline = asyncio.get_running_loop().time() + GET_SECONDS
            answer = None if is_well else await self._requests.get(_PROBED, deadline)
            self._unreachable = answer if isinstance(answer, Unavailable) else None
            await self._clock.sleep(PROBE_SECONDS)

    def _doubt(self) -> None:
        """Have etcd asked for all stores at once: an answer that was read elsewhere is older than one before."""

        async def verify_all() -> None:
            await asyncio.gather(*(informer.verify() for informer in self._watches().values()))

        self._run("verification at once", verify_all)

    def _log_currency(self, name: str, informer: Reflector[Any]) -> None:
        """Log once that a store has become too old to decide, and once that it is not any more."""
        if not isinstance(informer.freshness(self._clock.now()), Stale):
            if name in self._outdated:
                self._outdated.discard(name)
                logger.info("%s: up to date again; reviews are decided by the watch", name)
        elif name not in self._outdated:
            self._outdated.add(name)
            instead = "each review reads from the API server what it decides by"
            if informer is self._nodes:
                instead = "what depends on nodes is not evaluated"
            logger.warning("%s: the watch is too old; %s", name, instead)

    def _start_over(self, source: Reflector[Any], why: str) -> None:
        """Etcd has been restored from an older copy: nothing that is remembered may be of its present."""
        self.restores += 1
        for informer in self._watches().values():
            if informer is not source:
                informer.distrust()
        self._vmis.clear()
        self._read_namespaces.clear()
        self._requests.recent.clear()
        self._definitions.start_over()
        for monitor in self._monitors.values():
            monitor.start_over()
        if not self._on_restore:
            logger.warning("etcd has been restored from an older copy: %s", why)
        for act in self._on_restore:
            act(why)

    def ages(self, keys: Iterable[Key[Any]]) -> dict[str, float]:
        """Seconds since each store was last proved up to date, for those that answer these keys from memory."""
        now, ages = self._clock.now(), {}
        for key in keys:
            if (informer := self._informer(key)) is not None:
                name = _pods_of(key.name) if isinstance(key, SchedulerKey) else informer.resource.plural
                ages[name] = informer.freshness(now).age
        return ages

    def _informer(self, key: Key[Any]) -> Reflector[Any] | None:
        """The informer that answers a key; None for what is cached because it cannot change."""
        if isinstance(key, SchedulerKey):
            return self._pods_of(key.name)
        if isinstance(key, ObjectKey | ListKey):
            return self._instancetypes.informers.get(key.resource.path())
        return self._own_informer(key)

    def _own_informer(self, key: Key[Any]) -> Reflector[Any] | None:
        """The one of `_informers` that answers a key; None where another one does, or none."""
        # What nearly every review reads comes first.
        if isinstance(key, KubeVirtKey):
            return self._kubevirts
        if isinstance(key, NamespaceKey):
            return self._namespaces
        return self._nodes if isinstance(key, facts.NodesKey) else None

    def _pods_of(self, scheduler: str) -> Reflector[Any] | None:
        """The watch of the pods that wait for a scheduler; None where its health check has none."""
        monitor = self._monitors.get(scheduler)
        return monitor.pods if monitor and monitor.settings.kind != "off" else None

    def namespaces(self) -> tuple[Namespace, ...]:
        """All namespaces of the store, with the labels and annotations that count here."""
        return tuple(self._namespaces)

    def peek(self, key: Key[Any]) -> object:
        """The answer if it can be given at once from memory, else `webhook.facts.NOT_READ`. Never waits.

        What an informer of this class keeps becomes a fact here alone, and only while it is `Fresh`.
        `InstancetypeCache.peek` and `SchedulerMonitor.health` hold those of instancetypes and waiting pods to the same.
        """
        if (informer := self._own_informer(key)) is not None:
            store = informer.freshness(self._clock.now())
            return self._stored(key) if isinstance(store, Fresh) else self._instead(key, store)
        if isinstance(key, SchedulerKey):
            monitor = self._monitors.get(key.name)
            return monitor.health(key.namespace) if monitor else None
        if isinstance(key, facts.VmiKey):
            vmi = self._vmis.get(key)
            return NOT_READ if vmi is None else vmi
        if isinstance(key, ObjectKey | ListKey):
            stored = self._instancetypes.peek(key) if self._started else NOT_READ
            return self._requests.peek(key) if stored is NOT_READ and isinstance(key, ObjectKey) else stored
        if (peek := self._answers.get(key)) is not None:
            return peek()
        return NOT_READ

    def _stored(self, key: Key[Any]) -> object:
        """What the store of a key's informer says, which is `Fresh`."""
        if isinstance(key, KubeVirtKey):
            return self._installs.read(self._kubevirts)
        if isinstance(key, NamespaceKey):
            # One that the store lacks may have been created a moment ago.
            namespace = None if key.uncached else self._namespaces.get(key.name)
            return NOT_READ if namespace is None else namespace
        return self._index

    def _instead(self, key: Key[Any], store: Stale | Unknown) -> object:
        """What there is beside the store of a key's informer."""
        if isinstance(key, NamespaceKey):
            body = None if key.uncached else self._read_namespaces.get(("", key.name))
            return NOT_READ if body is None else decode(body, Namespace, NAMESPACES.kind)
        if isinstance(key, KubeVirtKey):
            return NOT_READ if isinstance(store, Stale) else _unavailable(store, KUBEVIRTS)
        return _unavailable(store, NODES)

    def has_namespace(self, name: str) -> bool:
        """Whether a namespace is in the store, however old that is: its name is not made up."""
        return self._namespaces.get(name) is not None

    async def read(self, key: Key[T], deadline: float) -> T | Unavailable | None:
        """The answer, read if need be. Never raises for what goes wrong on the way.

        A VMI of a `VmiKey` has only what cannot change: its identity and its scheduler.
        """
        answer = self.peek(key)
        if answer is NOT_READ:
            answer = await self._read(key, deadline)
        return cast("T | Unavailable | None", answer)

    async def _read(self, key: Key[Any], deadline: float) -> object:
        if isinstance(key, facts.VmiKey):
            answer = await self._requests.get(ObjectKey(VMIS, key.namespace, key.name), deadline, key.uid)
            return self._vmis.put(answer) if isinstance(answer, VirtualMachineInstance) else answer
        if isinstance(key, NamespaceKey):
            return await self._namespace(key, deadline)
        if isinstance(key, ObjectKey):
            return await self._requests.get(key, deadline)
        if isinstance(key, ListKey):
            return await self._requests.list(key, deadline)
        if isinstance(key, KubeVirtKey):
            listed = await self._requests.list(ListKey(KUBEVIRTS, ""), deadline)
            return listed if isinstance(listed, Unavailable) else self._installs.read(cast("Any", listed))
        if reader := self._readers.get(type(key)):
            return await reader(key, deadline)
        left = max(0.0, deadline - asyncio.get_running_loop().time())
        if isinstance(key, facts.AccessKey):
            return await is_allowed(self._transport, key, left)
        if isinstance(key, facts.TokenKey):
            return await authenticate(self._transport, key, left)
        return Unavailable(f"{type(key).__name__} cannot be read from a cluster")

    async def _namespace(self, key: NamespaceKey, deadline: float) -> object:
        """A namespace from the API server, unless too many reviews named namespaces that do not exist.

        What the store has is read all the same: it exists, and may have opted in a moment ago.
        """
        is_full = len(self._absent) == ABSENT_NAMESPACES
        if not key.uncached and is_full and self._clock.now() - self._absent[0] < ABSENT_SECONDS:
            await self._clock.sleep(_APPEARS_SECONDS)
            cached = self.peek(key)
            return Unavailable("too many lookups of namespaces that do not exist") if cached is NOT_READ else cached
        answer = await self._requests.get(ObjectKey(NAMESPACES, "", key.name), deadline)
        now = self._clock.now()
        if answer is None:
            self._absent.append(now)
        elif isinstance(answer, Namespace) and not isinstance(self._namespaces.freshness(now), Fresh):
            kept = _reduce_namespace(answer) or answer
            self._read_namespaces["", key.name] = msgspec.json.encode(kept)
        return answer

    def _trim_node(self, view: Any) -> _TrimmedNode:
        node, images = Node.of(view), self._reports.reduce(view) if self._reports else None
        return _TrimmedNode(metadata=ObjectMeta(name=node.name), node=node, images=images)

    def _on_node(self, old: _TrimmedNode | None, new: _TrimmedNode | None) -> None:
        name = (new or old or _TrimmedNode()).meta.name or ""
        if new is None:
            self._index.remove(name)
            if self._reports:
                self._reports.remove(name)
            return
        if new.node and (old is None or old.node != new.node):
            self._index.put(new.node)
        if self._reports and (old is None or old.images != new.images):
            self._reports.put(name, new.images)

    def _has_opted_in(self, name: str) -> bool:
        """Whether pods of a namespace, as the store has it, count for the health of schedulers."""
        namespace = self._namespaces.get(name)
        if namespace is None or name in self._settings.every_excluded_namespace:
            return False
        return has_opted_in(namespace, self._settings)

    def _kubevirt_versions(self) -> tuple[str, str, str] | None:
        kubevirt = find_in_use(self._kubevirts)
        return None if kubevirt is None else kubevirt.versions

    def _learn(self, versions: tuple[str, str, str], definitions: Definitions | None) -> None:
        self._installs.learn(versions, definitions)
        # Now, and not by the next review, so that it is there to count while an update's definitions are read.
        self._installs.read(self._kubevirts)

    def _run_monitor(self, monitor: SchedulerMonitor) -> None:
        self._monitor_tasks[monitor.scheduler] = self._run(f"health check of {monitor.scheduler}", monitor.run)

    def _run(self, name: str, work: Callable[[], Awaitable[None]]) -> asyncio.Task[None]:
        task = asyncio.create_task(self._keep_running(name, work), name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _keep_running(self, name: str, work: Callable[[], Awaitable[None]]) -> None:
        """A bug in a watch must not leave a store that silently grows old."""
        while True:
            try:
                await work()
            except Exception:
                logger.exception("%s: internal error; restarting it", name)
                await self._clock.sleep(_RESTART_SECONDS)
            else:
                return


class _TrimmedNode(Object, frozen=True):
    """What is kept of a node: its name, for the watch, what placements need, and its images if they are read."""

    node: Node | None = None
    images: Any = None


def _reduce_namespace(namespace: Namespace) -> Namespace | None:
    """What is kept of a namespace: only this server's labels and annotations, since users may write others.

    Texts are shared, because thousands of namespaces have the same.
    """
    labels, annotations = (
        {shared_text(key): shared_text(value) for key, value in (written or {}).items() if key.startswith(_PREFIX)}
        for written in (namespace.meta.labels, namespace.meta.annotations)
    )
    if sum(len(key) + len(value) for key, value in annotations.items()) > _NAMESPACE_BYTES:
        return None
    meta = ObjectMeta(name=namespace.meta.name, labels=labels or None, annotations=annotations or None)
    return Namespace(metadata=meta)


def _log_invalid_modes(policies: Iterable[names.PolicyName], old: Namespace | None, new: Namespace | None) -> None:
    """Log labels that opt a namespace in to nothing, once for each value.

    An installation's admission policy denies them; a trial has none, and the API server calls it for none of them.
    """
    if new is None:
        return
    modes = get_args(names.Mode)
    for label in map(names.policy_label, policies):
        value = new.meta.label(label)
        if value is None or value in modes or (old and old.meta.label(label) == value):
            continue
        what = "namespace %s: label %s has the invalid value %s, so the policy is off; use one of %s"
        logger.warning(what, new.meta.name, label, quote(value), ", ".join(modes))


def _pods_of(scheduler: str) -> str:
    """The name of the watch of the pods that wait for a scheduler."""
    return f"pods of {scheduler}"


def _unavailable(store: Stale | Unknown, resource: Resource[Any]) -> Unavailable:
    """Why an informer says nothing: not yet, or not any more."""
    if isinstance(store, Unknown):
        return Unavailable(store.problem.why if store.problem else f"{resource.plural} have not been listed yet")
    what = "since etcd was restored from an older copy"
    if store.why == "age":
        what = f"for {duration(round(store.age))}"
    cause = f": {store.problem.why}" if store.problem else ""
    return Unavailable(f"the watch of {resource.plural} has not been up to date {what}{cause}")
