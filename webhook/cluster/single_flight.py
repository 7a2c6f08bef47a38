"""Reads of the API server that reviews share: each request is sent once, and what was read a moment ago is kept.

The reviews of one request of a user come several in a row. The data of a ControllerRevision cannot change, but it may
be deleted and created again under its name, and its labels may change. So answers are shared for a second only, and a
caller that must not be deceived reads a fresh one.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Hashable
from typing import Any, Final, NamedTuple

import msgspec

from webhook.errors import Unavailable
from webhook.facts import NOT_READ, ListKey, ObjectKey
from webhook.k8s.client.api import Transport, decode, describe_timeout, fetch_body
from webhook.k8s.client.clock import REAL_TIME, Clock
from webhook.k8s.client.list_pages import fetch_list
from webhook.k8s.client.reflector import ObjectName
from webhook.k8s.types.meta import Object
from webhook.kubevirt.resources import REVISIONS
from webhook.lru import LruCache

# From the first review of a request to its last; the API server waits 3 s for each at most.
SHARED_SECONDS: Final = 1.0
SHARED_BYTES: Final = 1024 * 1024


class RecentAnswers:
    """Answers to GETs of a moment ago, with the time at which each came, on a monotonic clock."""

    def __init__(self) -> None:
        self._answers: Final = LruCache[ObjectName, tuple[float, bytes]](SHARED_BYTES, lambda answer: len(answer[1]))

    def get(self, name: ObjectName, now: float) -> bytes | None:
        """The answer; None where there is none that is young enough."""
        answer = self._answers.get(name)
        if answer and now - answer[0] >= SHARED_SECONDS:
            self._answers.drop(name)
            return None
        return answer[1] if answer else None

    def put(self, name: ObjectName, body: bytes, now: float) -> None:
        """Keep an answer for a moment."""
        self._answers.put(name, (now, body))

    def clear(self) -> None:
        """Keep nothing."""
        self._answers.clear()


# Lists that are read at the same time: each may have a page of several MiB in memory.
_LISTS: Final = 4


class _InFlightGet(NamedTuple):
    started: int
    task: asyncio.Task[Any]


class SingleFlight:
    """Sends each request once, however many reviews wait for its answer.

    Args:
        transport: the connection to the API server.
        seconds: timeout of one request, however long the reviews wait.
        clock: the source of monotonic time.

    Attributes:
        recent: the ControllerRevisions that were read a moment ago.
    """

    def __init__(self, transport: Transport, seconds: float, clock: Clock = REAL_TIME) -> None:
        self._transport: Final = transport
        self._seconds: Final = seconds
        self._clock: Final = clock
        self.recent: Final = RecentAnswers()
        self._flights: Final[dict[Hashable, _InFlightGet]] = {}
        self._order: Final = itertools.count()  # of arrivals and starts of requests
        self._listing: Final = asyncio.Semaphore(_LISTS)

    @property
    def tasks(self) -> list[asyncio.Task[Any]]:
        """The requests that are on their way."""
        return [flight.task for flight in self._flights.values()]

    def peek(self, key: ObjectKey[Any]) -> object:
        """A ControllerRevision that was read a moment ago, else `webhook.facts.NOT_READ`."""
        if key.fresh or key.resource.kind != REVISIONS.kind:
            return NOT_READ
        body = self.recent.get((key.namespace, key.name), self._clock.now())
        return NOT_READ if body is None else decode(body, key.resource.view, key.resource.kind)

    async def get(self, key: ObjectKey[Any], deadline: float, uid: str | None = None) -> Object | Unavailable | None:
        """One object, by GET, before a deadline on the running loop's clock; past it the answer is `Unavailable`.

        A GET that began before this call may have missed what was created since. So its 404, its failure and, where the
        UID of the expected object is given, another UID do not count as an answer.
        """
        found: Object | Unavailable | None = await self._join(
            key, deadline, lambda answer: isinstance(answer, Object) and (uid is None or answer.meta.uid == uid)
        )
        return found

    async def list(self, key: ListKey[Any], deadline: float) -> tuple[Object, ...] | Unavailable:
        """All objects of a list, from a request that began after this call: an earlier one may lack what is new."""
        listed: tuple[Object, ...] | Unavailable = await self._join(key, deadline, lambda _: False)
        return listed

    async def _join(self, key: ObjectKey[Any] | ListKey[Any], deadline: float, counts: Callable[[object], bool]) -> Any:
        """Join the request for ``key`` that is on its way, or start one; two suffice, since the next begins after this.

        An answer whose request began before this call is used if it ``counts``.
        """
        # Every request is as fresh as can be.
        key = msgspec.structs.replace(key, fresh=True)
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
                return await fetch_list(self._transport, resource, key.namespace, key.label, self._seconds)
        body = await fetch_body(self._transport, resource, key.namespace, key.name, self._seconds)
        if not isinstance(body, bytes):
            return body
        if resource.kind == REVISIONS.kind:
            self.recent.put((key.namespace, key.name), body, self._clock.now())
        return decode(body, resource.view, resource.kind)
