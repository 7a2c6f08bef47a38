"""An informer's store of one resource, kept in step with the API server: list, then watch, indefinitely.

The rules are client-go's (``tools/cache/reflector.go``) and the API concepts' ("Efficient detection of changes").
Reviews share the event loop, so pages are small, and other tasks get their turn.

client-go has no rule for etcd that is restored from an older copy: it asks operators to restart every component. Until
etcd has reached the resourceVersion of a watch again, such a watch brings neither an event nor an error
(k8s.io/apiserver, ``cacheWatcher.process``). The rules here:

* A resourceVersion is a revision of etcd (API concepts, "Resource versions"; KEP-5504 lets clients compare them). Only
  those of one resource are compared, because ``--etcd-servers-overrides`` may put others into another etcd. What is not
  a number is not compared.
* A LIST without a resourceVersion, and a GET, are consistent: they are never older than an answer that was received
  before they were sent, whichever replica of the API server answers. So a LIST that is behind what was seen of its
  resource means that etcd has been restored. An event or a bookmark comes from the watch cache of one API server, which
  may lag behind another's; one that is behind proves nothing and leads to a LIST.
* `Reflector.verify` asks etcd itself whether it has reached the store's resourceVersion, by a list of one name at
  exactly this version, which is never answered from a watch cache (``Cacher.ShouldDelegateExactRV``, "Not Recursive"):
  200 or 410 means that etcd has reached it; etcd's "future revision" (504 with the cause ResourceVersionTooLarge, a
  plain 500 before Kubernetes 1.34) that it has not.
* Bookmarks come each minute, but only when the API server's watch cache knows that etcd has passed the version at which
  a watch began (``cacheWatcher.process``). Of a kind whose objects do not change it learns that from etcd's progress
  notifications, each 5 s where kubeadm has set up etcd and each 10 min by etcd's default, or because it answers a
  consistent list (KEP-2340, since Kubernetes 1.31). So a watch that has brought nothing for `QUIET_SECONDS` has
  `Reflector.verify` send one.
* After that nothing in the store counts, until a list has replaced it that is older than what was seen. An API server
  that was not restarted with its etcd lists from its own watch cache, which is in the lost future, too: its list is
  kept, and is not trusted either.

How old a store is counts from the last moment that is proved to be in it, and nothing else than these proves one:

* A list that came whole shows a moment after its first request was sent. A page of a list proves nothing: the next one
  may fail, and the store is what it was.
* A bookmark comes after all events up to its version, so the store is then up to date; and so it is after each event
  that follows on the same watch. Before the first bookmark an event proves nothing: it may be of an hour ago, with
  others behind it. Nor does a watch that has only been accepted, an ERROR, a part of a line, or what cannot be decoded.
* A kind that is not served (404) has no objects.

A store that is older than `CURRENT_SECONDS` is listed again, whatever a watch says.
"""

from __future__ import annotations

import asyncio
import logging
import math
import random
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import aclosing
from typing import Any, Final, Generic, Literal, TypeVar

import msgspec

from webhook.errors import Unavailable
from webhook.k8s.client import api
from webhook.k8s.client.api import ApiConnectionError, ApiError, TooLargeError, Transport
from webhook.k8s.client.clock import REAL_TIME, Clock
from webhook.k8s.client.freshness import Fresh, Freshness, Stale, Unknown
from webhook.k8s.client.list_pages import decode_items, raw_pages
from webhook.k8s.json_tree import MAX_LEVELS, flatten
from webhook.k8s.resources import Resource
from webhook.k8s.types.meta import ListMeta, Object, View, decode_status

V = TypeVar("V", bound=Object)

ObjectName = tuple[str, str]  # namespace (empty for cluster-wide kinds), name

# Objects that were not kept and whose names are remembered, of a namespace and in all, and namespaces that have such.
# A name has 253 characters at most.
REJECTED_OF_A_NAMESPACE: Final = 100
MOST_REJECTED: Final = 10_000


class ObjectStore(Generic[V]):
    """Where a `Reflector` keeps its objects, up to what they cost, in all and for each namespace: tenants write them.

    Each list begins with a new one. Where each namespace has a part, one counts as incomplete while an object of it
    exists that was not kept; where there are too many of these to be remembered, until the next list.

    Args:
        in_all: the cost of all objects at most.
        a_namespace: that of a namespace's objects at most; cluster-wide objects share one such part.
        cost: what an object costs, for example the bytes that it takes; by default 1, so that their number is bounded.

    Attributes:
        size: the cost of what is kept.
    """

    def __init__(
        self, in_all: int = sys.maxsize, a_namespace: int = sys.maxsize, cost: Callable[[V], int] = lambda _: 1
    ) -> None:
        self._in_all: Final = in_all
        self._a_namespace: Final = a_namespace
        self._cost: Final = cost
        self._inside: Final[dict[str, dict[str, V]]] = {}
        self._sizes: Final[dict[str, int]] = {}
        # By namespace the names of what was not kept; None: too many.
        self._rejected: Final[dict[str, set[str] | None]] = {}
        self._rejected_names = 0
        self._is_incomplete = False
        self.size = 0

    def get(self, name: ObjectName) -> V | None:
        """The object of a name; None where it is not kept."""
        kept = self._inside.get(name[0])
        return kept.get(name[1]) if kept else None

    def all_of(self, namespace: str) -> list[V] | None:
        """The objects of a namespace, by name; None where one was not kept. For stores with ``a_namespace``."""
        if self._is_incomplete or namespace in self._rejected:
            return None
        kept = self._inside.get(namespace) or {}
        return [kept[name] for name in sorted(kept)]

    def put(self, name: ObjectName, view: V) -> bool:
        """Keep an object in the place of another one of its name; False, and neither is kept, where it is too much."""
        namespace, cost = name[0], self._cost(view)
        kept = self._inside.get(namespace) or {}
        former = kept.get(name[1])
        more = cost if former is None else cost - self._cost(former)
        taken = self._sizes.get(namespace, 0) + more
        if taken > self._a_namespace or self.size + more > self._in_all:
            self.reject(name)
            return False
        self._forget_rejection(name)
        kept[name[1]] = view
        self._inside[namespace] = kept
        self._sizes[namespace] = taken
        self.size += more
        return True

    def drop(self, name: ObjectName) -> V | None:
        """Forget an object that the API server has deleted; returns what was kept of it."""
        self._forget_rejection(name)
        namespace = name[0]
        kept = self._inside.get(namespace) or {}
        if (view := kept.pop(name[1], None)) is not None:
            cost = self._cost(view)
            self.size -= cost
            self._sizes[namespace] -= cost
            if not kept:
                del self._inside[namespace], self._sizes[namespace]
        return view

    def reject(self, name: ObjectName) -> None:
        """Forget an object that exists and is not to be kept, for example because it is too large."""
        self.drop(name)
        # Only where each namespace has a part does `all_of` count.
        if self._a_namespace < sys.maxsize:
            self._remember_rejection(*name)

    def _remember_rejection(self, namespace: str, name: str) -> None:
        if self._is_incomplete:
            return
        if namespace not in self._rejected and len(self._rejected) >= MOST_REJECTED:
            self._is_incomplete = True
            self._rejected.clear()
            return
        names = self._rejected.setdefault(namespace, set())
        if names is None:
            return
        if len(names) >= REJECTED_OF_A_NAMESPACE or self._rejected_names >= MOST_REJECTED:
            self._rejected[namespace] = None
            self._rejected_names -= len(names)
            return
        names.add(name)
        self._rejected_names += 1

    def _forget_rejection(self, name: ObjectName) -> None:
        names = self._rejected.get(name[0])
        if names and name[1] in names:
            names.remove(name[1])
            self._rejected_names -= 1
            if not names:
                del self._rejected[name[0]]

    def names(self) -> Iterable[ObjectName]:
        """The names of what is kept, namespace by namespace."""
        return ((namespace, name) for namespace, kept in self._inside.items() for name in kept)

    def __iter__(self) -> Iterator[V]:
        return (view for kept in self._inside.values() for view in kept.values())

    def __len__(self) -> int:
        return sum(map(len, self._inside.values()))


def _changes(former: ObjectStore[V], fresh: ObjectStore[V]) -> Iterator[tuple[V | None, V | None]]:
    """What there was of an object, and what there is; a step for each object, also for those that are the same."""
    for name in former.names():
        yield former.get(name), fresh.get(name)
    for name in fresh.names():
        view = fresh.get(name)
        yield (None if former.get(name) is None else view), view


logger = logging.getLogger(__name__)

# Objects of a list that are in a page, and those that are reduced, reported, or put into an index; each time without a
# turn for other tasks.
PAGE_LIMIT: Final = 100
SLICE: Final = 50
# The timeout of one page.
LIST_SECONDS: Final = 60.0
# The bounds of the ``timeoutSeconds`` that a watch requests, at random: replicas do not return in step.
WATCH_SECONDS: Final = (240.0, 480.0)
# How long a watch may outlast its ``timeoutSeconds``: its connection is broken by then.
WATCH_MARGIN_SECONDS: Final = 30.0
# How long a watch may bring nothing that proves the store up to date. API servers send a bookmark every minute.
SILENCE_SECONDS: Final = 100.0
# The pause before the next LIST of a resource that the API server does not serve.
_ABSENT_RETRY_SECONDS: Final = 30.0
# The pause after the first failure, which is doubled after each further one, and its upper bound.
_BACKOFF_SECONDS: Final = (0.5, 10.0)

# A watch shorter than this that brought nothing is not one (client-go calls it "very short watch").
_SHORTEST_WATCH: Final = 1.0

# Rejections in a row of one resourceVersion until it counts as invalid, and answers in a row that a kind is not served
# until its objects count as gone.
_DOUBT_AFTER: Final = 3

# A store that has not been proved up to date for so long does not count. API servers send a bookmark every minute.
CURRENT_SECONDS: Final = 150.0
_VERIFY_SECONDS: Final = 5.0
# Half the time between two bookmarks.
QUIET_SECONDS: Final = 30.0

# Said by servers that are starting or overloaded, and by load balancers: nothing about the resourceVersion.
_TRANSIENT: Final = frozenset({429, 502, 503})

# Of an event around its object: one more in the object than are read, so that it still counts as too deep.
_EVENT_LEVELS: Final = MAX_LEVELS + 2


class _WatchEvent(View, frozen=True):  # metav1.WatchEvent; the object is decoded later, by its type
    type: str
    object: msgspec.Raw


class _Versioned(View, frozen=True):  # what even the object of a bookmark has
    metadata: ListMeta | None = None


class _NotServedError(Exception):
    """The API server does not serve the kind."""


_EVENTS: Final = frozenset({"ADDED", "MODIFIED", "DELETED", "BOOKMARK"})

_decode_event: Final = msgspec.json.Decoder(_WatchEvent).decode
_decode_versioned: Final = msgspec.json.Decoder(_Versioned).decode


class LineBuffer:
    """Cuts a stream into lines of up to `api.LARGEST_ANSWER_BYTES`, in linear time however small the pieces are.

    aiohttp's ``StreamReader.readline`` copies what it has of a line with each piece that comes, which takes the square
    of the line, and unless told otherwise fails above twice ``read_bufsize``, so above 4 MiB.
    """

    def __init__(self) -> None:
        self._open: list[bytes] = []
        self._size = 0

    def feed(self, chunk: bytes) -> list[bytes]:
        """The lines that ``chunk`` ends, without their newlines; what follows is kept, or a `TooLargeError`."""
        *ended, rest = chunk.split(b"\n")
        if ended and self._open:
            ended[0] = b"".join((*self._open, ended[0]))
            self._open.clear()
            self._size = 0
        if rest:
            self._open.append(rest)
            self._size += len(rest)
        if self._size > api.LARGEST_ANSWER_BYTES:
            raise TooLargeError(api.LARGEST_ANSWER_BYTES)
        return ended


def is_behind(version: str | None, seen: str | None) -> bool:
    """Whether a resourceVersion is older than another one of the same resource; False for what cannot be compared."""
    return bool(version and seen and version.isdecimal() and seen.isdecimal() and int(version) < int(seen))


class Reflector(Generic[V]):
    """Keeps views of all objects of one resource.

    Args:
        transport: the connection to the API server.
        resource: what to keep; ``resource.view`` says which of its fields.
        field_selector: a field selector of the API, for example ``status.phase=Pending``.
        largest: bytes of an object's JSON; a larger object is not kept.
        store: makes an empty store for the objects, which may deny some; these are not kept.
        transform: what to keep of a view; None: nothing.
        on_change: gets the old and the new view, as kept (None: there was, or is, none), after the store has changed;
            for the first list while it is still `Unknown`. Must neither block nor raise.
        on_restore: gets this reflector, and a clause, when etcd turns out to have been restored from an older copy.
            Must neither block nor raise.
        clock: the source of monotonic time, and of sleep.
        jitter: picks a number between two.

    Attributes:
        contents: what is kept now; another list brings another store. What it is worth, `freshness` says.
    """

    def __init__(  # noqa: PLR0913 - what it works with, each with a default
        self,
        transport: Transport,
        resource: Resource[V],
        *,
        field_selector: str = "",
        largest: int = api.LARGEST_ANSWER_BYTES,
        store: Callable[[], ObjectStore[V]] = ObjectStore,
        transform: Callable[[V], V | None] | None = None,
        on_change: Callable[[V | None, V | None], None] | None = None,
        on_restore: OnRestore = lambda _informer, _why: None,
        clock: Clock = REAL_TIME,
        jitter: Callable[[float, float], float] = random.uniform,
    ) -> None:
        self.resource: Final = resource
        self._some_namespace = "default" if resource.namespaced else ""
        self._title = f"{resource.plural} ({field_selector})" if field_selector else resource.plural
        self._transport = transport
        self._query = {"fieldSelector": field_selector} if field_selector else {}
        self._largest = largest
        self._make_store = store
        self._transform = transform
        self._on_change = on_change
        self._on_restore = on_restore
        self._clock = clock
        self._jitter = jitter
        self._decode_view = msgspec.json.Decoder(resource.view).decode

        self.contents = store()
        self._has_synced = False
        self._trouble: Unavailable | None = None
        self._reported: Unavailable | None = None  # the trouble that the log has, until it has the recovery
        self._proved_at: float | None = None
        self._version: str | None = None  # None: to be listed
        self._seen: str | None = None  # the newest version of any answer
        # Which etcd the store is of: the present one; maybe, since etcd was restored, the one that is lost; surely that
        # one, from an API server's watch cache, until a list is older than what was seen.
        self._store_is_of: Literal["present", "maybe lost", "lost"] = "present"
        self._watching: asyncio.Timeout | None = None
        self._failures = self._rejections = self._absences = 0

    def get(self, name: str, namespace: str = "") -> V | None:
        """The view of one object, None if there is no such object in the store."""
        return self.contents.get((namespace, name))

    def __iter__(self) -> Iterator[V]:
        return iter(self.contents)

    def freshness(self, now: float) -> Freshness:
        """What the store is worth at a moment, in monotonic seconds; see `webhook.k8s.client.freshness`."""
        if not self._has_synced:
            return Unknown(self._trouble)
        if self._proved_at is None:
            return Stale("restore", math.inf, self._trouble)
        age = now - self._proved_at
        return Fresh(age, self._trouble) if age < CURRENT_SECONDS else Stale("age", age, self._trouble)

    @property
    def _is_trusted(self) -> bool:
        return self._store_is_of == "present"

    def _prove(self, moment: float) -> None:
        """All that happened before a moment is in the store."""
        if self._is_trusted:
            self._proved_at = moment

    async def run(self) -> None:
        """Keep the store in step until cancelled; returns never, raises only for bugs."""
        while True:
            if pause := await self._attempt():
                await self._clock.sleep(pause)

    async def verify(self) -> Unavailable | None:
        """Ask etcd whether it has reached the store's resourceVersion, else list; `Unavailable` without an answer."""
        version = self._version
        if version is None or not version.isdecimal():
            return None
        reached = await self._has_reached(version)
        if isinstance(reached, Unavailable):
            return reached
        # A list that was made meanwhile has been compared already.
        if not reached and self._is_trusted and self._version is not None and not is_behind(self._version, version):
            self.distrust()
            self._on_restore(self, f"{self._title} were at resourceVersion {version}, which etcd has not reached")
        elif self.freshness(self._clock.now()).age >= QUIET_SECONDS:
            # What it says does not matter: it is consistent, so the API server asks etcd how far it is.
            await self._list_one_name({})
        return None

    async def _has_reached(self, version: str) -> bool | Unavailable:
        answer = await self._list_one_name({"resourceVersionMatch": "Exact", "resourceVersion": version})
        if isinstance(answer, Unavailable):
            return answer
        status, body = answer
        # 404: the kind is not served at present.
        if status in (200, 404, 410):
            return True
        if decode_status(body).is_of_future_version:
            return False
        return api.explain("list", self.resource, self._some_namespace, status, body)

    async def _list_one_name(self, query: dict[str, str]) -> tuple[int, bytes] | Unavailable:
        """A list of an object that need not exist: only what the API server does for it counts."""
        path, one = self.resource.path(self._some_namespace), {"fieldSelector": "metadata.name=kubevirt-webhook"}
        return await api.await_answer(self._transport.get(path, one | query), _VERIFY_SECONDS)

    def distrust(self) -> None:
        """Let nothing in the store count until a list of etcd's present has replaced it, and list now."""
        if self._is_trusted:
            self._store_is_of = "maybe lost"
        self._version = self._proved_at = None
        if self._watching and not self._watching.expired():
            self._watching.reschedule(asyncio.get_running_loop().time())

    async def _attempt(self) -> float:
        """List if need be, then watch as long as it goes; returns the pause before the next attempt."""
        began, verb = self._clock.now(), "list"
        try:
            # What comes back after a failure may be another etcd.
            if self._trouble and self._is_trusted:
                await self.verify()
            if self._version is None or not isinstance(self.freshness(self._clock.now()), Fresh):
                await self._list(began)
            verb = "watch"
            await self._watch()
        except _NotServedError:
            return await self._on_absence(began)
        except ApiError as rejection:
            return self._on_denial(verb, rejection)
        except ApiConnectionError as error:
            return self._on_failure(Unavailable(error.why))
        except TimeoutError:
            return self._on_failure(Unavailable("the API server has gone silent"))
        except (*api.UNDECODABLE, MemoryError):
            self._doubt()
            return self._on_failure(Unavailable(f"the API server's {self.resource.plural} cannot be decoded"))
        return 0.0

    async def _list(self, began: float) -> None:
        """Put a whole list in the place of the store: of a moment after ``began``, when nothing had been asked yet."""
        fresh, version = self._make_store(), ""
        path = self.resource.path()
        pages = raw_pages(self._transport, path, self._query, PAGE_LIMIT, LIST_SECONDS)
        try:
            async with aclosing(pages) as listed:
                async for page in listed:
                    await self._take(fresh, page.items)
                    version = page.meta.resource_version or ""
                    if not version:
                        raise ApiConnectionError(f"the API server's list of {self.resource.plural} is not one")
                    # Before the next one is requested, which needs the memory.
                    del page
        except ApiError as rejection:
            # Once there was a page, the kind is served.
            if rejection.status == 404 and not version:
                raise _NotServedError from rejection
            raise
        await self._replace(fresh)
        self._version = version
        self._absences = 0
        await self._compare(version)
        self._prove(began)

    async def _compare(self, version: str) -> None:
        """Compare the version of a list, which is now the store's, with what was seen before.

        An `ApiConnectionError` where it could not be found out whether the list is of etcd's present.
        """
        before, seen, self._seen = self._store_is_of, self._seen, version
        if is_behind(version, seen):
            self._store_is_of = "present"
            if before == "present":
                self._on_restore(self, f"{self._title} were at resourceVersion {seen}, and are listed at {version}")
        elif before != "present":
            reached = await self._has_reached(version)
            if isinstance(reached, Unavailable):
                raise ApiConnectionError(reached.why)
            if before == "lost":
                # Even if etcd has reached the version meanwhile: the watch cache is a mixture of both then.
                return
            self._store_is_of = "present" if reached else "lost"
            if not reached:
                logger.warning(
                    "%s: the API server still lists what its etcd does not hold: restart it. Until it lists them at a "
                    "resourceVersion before %s, objects are read one by one",
                    *(self._title, seen),
                )

    async def _watch(self) -> None:
        began = self._clock.now()
        seconds = int(self._jitter(*WATCH_SECONDS))
        query = self._query | {"watch": "true", "allowWatchBookmarks": "true", "timeoutSeconds": str(seconds)}
        query["resourceVersion"] = self._version or ""
        buffer, events, has_caught_up = LineBuffer(), 0, False
        loop = asyncio.get_running_loop()
        end = loop.time() + seconds + WATCH_MARGIN_SECONDS
        try:
            async with (
                asyncio.timeout_at(min(end, loop.time() + SILENCE_SECONDS)) as self._watching,
                aclosing(self._transport.watch(self.resource.path(), query)) as chunks,
            ):
                async for chunk in chunks:
                    if self._version is None:
                        return  # because of `distrust`, whose timeout the next lines would put off
                    # It has begun; whether it is up to date, its first bookmark says.
                    self._trouble = None
                    for line in buffer.feed(chunk):
                        if not line.strip() or not (brought := await self._apply(line)):
                            continue
                        if self._version is None:
                            return
                        self._failures = self._rejections = 0
                        events += 1
                        has_caught_up = has_caught_up or brought == "BOOKMARK"
                        if has_caught_up:
                            self._prove(self._clock.now())
                            self._watching.reschedule(min(end, loop.time() + SILENCE_SECONDS))
                            self._report_recovery()
                        # What is already buffered comes without a wait: others want their turn, too.
                        if events % PAGE_LIMIT == 0:
                            await asyncio.sleep(0)
        except TimeoutError:
            if self._version is not None:
                raise
            return  # because of `distrust`
        finally:
            self._watching = None
            lasted = self._clock.now() - began
            if lasted >= _SHORTEST_WATCH:
                self._failures = 0
        if not events and lasted < _SHORTEST_WATCH:
            raise ApiConnectionError("the API server ends watches at once")

    async def _apply(self, line: bytes) -> str | None:
        try:
            return self._apply_event(_decode_event(line))
        except RecursionError:
            # Nothing that is read lies so deep. A long line takes time that reviews must not wait for.
            return self._apply_event(_decode_event(await asyncio.to_thread(flatten, line, _EVENT_LEVELS)))

    def _apply_event(self, event: _WatchEvent) -> str | None:
        """Take an event into the store; returns its type if it brought the store to a resourceVersion, else None."""
        if event.type == "ERROR":
            status = decode_status(event.object)
            expired = status.reason in ("Expired", "Gone")
            raise ApiError(410 if expired else status.code or 500, bytes(event.object))
        if event.type not in _EVENTS:
            return None
        meta = _decode_versioned(event.object).metadata
        version = meta.resource_version if meta else None
        if is_behind(version, self._version):
            self._version = None
            raise ApiConnectionError("the API server's watch has gone back to an earlier resourceVersion")
        if event.type == "DELETED":
            old = self.contents.drop(_name_of(self._decode_view(event.object)))
            if old is not None and self._on_change:
                self._on_change(old, None)
        elif event.type != "BOOKMARK":
            view = self._decode_view(event.object)
            self._put(self.contents, view, len(memoryview(event.object)), self._on_change)
        # `distrust` may have been called while the event was read.
        if version and self._version is not None:
            self._version = self._seen = version
        return event.type if version else None

    async def _take(self, fresh: ObjectStore[V], items: list[msgspec.Raw]) -> None:
        """Decode and reduce objects, slice by slice, with a turn for other tasks after each: a view is large."""
        for start in range(0, len(items), SLICE):
            part = items[start : start + SLICE]
            for item, view in zip(part, await decode_items(part, self._decode_view), strict=True):
                self._put(fresh, view, len(memoryview(item)))
            await asyncio.sleep(0)

    def _put(
        self, store: ObjectStore[V], view: V, size: int, report: Callable[[V | None, V | None], None] | None = None
    ) -> None:
        name = _name_of(view)
        old = self.contents.get(name)
        kept = None if size > self._largest else self._transform(view) if self._transform else view
        if kept == old:
            # As after each heartbeat of a node, and in each list. What `on_change` was given stays the one that is
            # kept: else each object would be in memory twice.
            kept = old
        if kept is None:
            store.reject(name)
        elif not store.put(name, kept):
            kept = None
        if report and kept is not old:
            report(old, kept)

    async def _replace(self, fresh: ObjectStore[V]) -> None:
        """Swap the whole store at once, so that no reader sees a part of a list, and report what has changed.

        Other tasks get their turn after each slice: only this one changes the store, so what is still to be reported
        stays true.
        """
        former, self.contents = self.contents, fresh
        if self._on_change:
            for count, (old, view) in enumerate(_changes(former, fresh), 1):
                if old != view:
                    self._on_change(old, view)
                if count % SLICE == 0:
                    await asyncio.sleep(0)
        self._has_synced = True

    async def _on_absence(self, began: float) -> float:
        """The kind was not served at a moment after ``began``."""
        # One of several API servers behind one address may not serve a kind yet, or any more.
        self._absences += 1
        if len(self.contents) and self._absences < _DOUBT_AFTER:
            return self._on_failure(Unavailable(f"an API server does not serve {self.resource.plural}"))
        # Its CustomResourceDefinition may come later, objects of it there are none.
        await self._replace(self._make_store())
        self._version = self._trouble = None
        self._prove(began)
        self._report_recovery()
        self._failures = self._rejections = 0
        return _ABSENT_RETRY_SECONDS

    def _on_denial(self, verb: str, rejection: ApiError) -> float:
        if rejection.status in (404, 410):
            self._version = None
            # At once, but not in a circle.
            if not self._failures:
                self._failures = 1
                return 0.0
        elif rejection.status not in _TRANSIENT:
            self._doubt()
        return self._on_failure(api.explain(verb, self.resource, "", rejection.status, rejection.body))

    def _doubt(self) -> None:
        self._rejections += 1
        if self._rejections >= _DOUBT_AFTER:
            self._rejections, self._version = 0, None

    def _on_failure(self, trouble: Unavailable) -> float:
        if trouble != self._reported:
            logger.warning("%s: %s", self._title, trouble.why)
        self._trouble = self._reported = trouble
        pause = self._backoff()
        self._failures += 1
        return pause

    def _backoff(self) -> float:
        first, longest = _BACKOFF_SECONDS
        ceiling = min(longest, first * 2.0 ** min(self._failures, 16))
        return self._jitter(ceiling / 2, ceiling)

    def _report_recovery(self) -> None:
        if self._reported:
            logger.info("%s: the watch is up to date again", self._title)
            self._reported = None


OnRestore = Callable[[Reflector[Any], str], None]


def _name_of(view: Object) -> ObjectName:
    meta = view.meta
    return (meta.namespace or "", meta.name or "")
