"""The edge: every listener, every connection, and every byte that comes in.

A connection takes one request after the other, and no byte that has not been counted: those of a head have a limit,
those of a body another, and those of all connections together a third one, beyond which the client that makes the
server keep most of them loses what it has begun. Nothing is read behind a bad head, behind the last answer, and before
there is room for a large body: it waits in the kernel's buffers. What can be answered from memory is answered where its
last byte arrives; a task is made only for what has to wait.
"""

from __future__ import annotations

import asyncio
import errno
import random
import socket
import ssl
import time
from collections import Counter
from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any, Final, cast

import msgspec

from webhook.errors import InputError
from webhook.policies.common.required_facts import Unreadable
from webhook.server.fair_queue import FairQueue
from webhook.server.request import (
    END,
    MAX_HEAD_BYTES,
    Answer,
    BadRequestError,
    CachedRequestHead,
    Chunks,
    Head,
    HttpRequest,
    Overload,
    parse_head,
)
from webhook.server.tls import client_name

# Bodies up to this are the everyday ones: a pod is 20 KB, a VM's update with both its states seldom 100 KB.
EVERYDAY_BYTES: Final = 256 * 1024
# How long a head may take from its first byte on, and a handshake.
HEAD_SECONDS: Final = 10.0
# The API server sends a body at once. What is slower holds memory meanwhile.
ARRIVAL_SECONDS: Final = 3.0
GRACE_SECONDS: Final = 0.5
MIN_BYTES_PER_SECOND: Final = 512 * 1024
# How often connections are looked at that have something due.
CHECK_SECONDS: Final = 0.1
# How long a client may leave answers lying before it gets no more of them.
STALLED_SECONDS: Final = 10.0
# How long to read on where the answer came before the end of the body: a client that still writes reads it only then.
LINGER_SECONDS: Final = 3.0
# How long the end of a connection may take.
CLOSE_SECONDS: Final = 1.0
# Of a body that is not read, to find out which request it belongs to.
PREFIX_BYTES: Final = 4096
# So that connections that began together don't end together.
JITTER: Final = 0.2
# Clients whose pace is remembered.
_MAX_CLIENTS: Final = 1024
# Requests that cost something, of each client and of all together: so many at once, and then so many a second.
BURST: Final = 20
PER_SECOND: Final = 10.0
BURST_OF_ALL: Final = 100
PER_SECOND_OF_ALL: Final = 200.0
# A request that would wait for longer is answered with 429.
PATIENCE_SECONDS: Final = 2.0
# What waits in the kernel's buffers, and is read at once.
_RECEIVED_BYTES: Final = 64 * 1024

_CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"
_OUT_OF_FILES: Final = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


class RequestDenied(Exception):  # noqa: N818 - an answer
    """A request that gets nothing.

    Args:
        status: the HTTP status.
        sentence: why, and what to do.
        headers: of the answer.
    """

    def __init__(self, status: int, sentence: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(status)
        self.status: Final = status
        self.sentence: Final = sentence
        self.headers: Final = headers or {}


class TrafficObserver:
    """Gets what a listener answers, and how it fails."""

    def on_crash(self, path: str, error: BaseException) -> None:
        """An exception reached the edge of the server: a bug."""

    def on_served(self, path: str, status: int, seconds: float) -> None:
        """An HTTP request at an endpoint was answered."""

    def on_explained(self, status: int) -> None:
        """A request for an explanation was answered."""


def problem_of(error: Exception, path: str, traffic: TrafficObserver) -> tuple[int, str, Mapping[str, str]]:
    """Status, sentence and headers of the answer to a request that ends with an exception, at whatever listener."""
    if isinstance(error, RequestDenied):
        return error.status, error.sentence, error.headers
    if isinstance(error, InputError):
        return 400, str(error), {}
    if isinstance(error, Unreadable):
        return 503, f"the answer is not known now: {error.why}", {"Retry-After": "5"}
    traffic.on_crash(path, error)
    return 500, "internal error; see the kubevirt-webhook log", {}


class Application:
    """Answers the requests of one listener; what no listener says of its own is said here."""

    def answer_from_head(self, request: HttpRequest) -> Answer | None:
        """The answer that follows from the head alone; None: the body is wanted."""

    def answer_at_once(self, request: HttpRequest) -> Answer | None:
        """The answer to a whole request, from memory; None: it takes `answer`."""

    def verify(self, head: Head) -> float | None:
        """Until when the head's token proves who sends, on the clock of `time.monotonic`; None: it is not known now."""
        return 0.0

    async def answer(self, request: HttpRequest) -> Answer:
        """The answer to a whole request; no exception but a cancellation leaves."""
        raise NotImplementedError

    def overloaded(self, request: HttpRequest, overload: Overload, prefix: bytes) -> Answer:
        """The answer to a request of whose body no more than a prefix is taken: an HTTP error."""
        return overload.answer()

    def patience(self, request: HttpRequest) -> float:
        """How long the client waits for an answer, in seconds: no longer than the listener's own maximum."""
        return PATIENCE_SECONDS


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """What one listener takes.

    Attributes:
        per_client: connections of a client.
        connections: connections in all.
        keep_alive_seconds: an idle connection is closed after them.
        lifetime_seconds: an answer after them is the connection's last one, give or take `JITTER`.
        abort_seconds: a connection ends after them, whatever it does.
        body_bytes: of one body.
        kept_bytes: heads and everyday bodies in memory.
        room_bytes: larger bodies in memory.
    """

    per_client: int = 16
    connections: int = 128
    keep_alive_seconds: float = 15.0
    lifetime_seconds: float = 60.0
    abort_seconds: float = 60.0
    body_bytes: int = 0
    kept_bytes: int = 4 * 1024 * 1024
    room_bytes: int = 0


class Client(msgspec.Struct):
    """One address, and a leaky bucket of its requests that cost something.

    Attributes:
        burst: requests that need not wait.
        per_second: requests a second after that.
        due: when all requests so far have had their time, on the running loop's clock.
        connections: its own, the oldest first.
    """

    burst: int
    per_second: float
    due: float = 0.0
    connections: dict[Any, None] = {}

    def delay(self, now: float) -> float | None:
        """The seconds that the next one must wait, which counts from now on; None: too many, and it does not count."""
        due = max(self.due, now) + 1 / self.per_second
        delay = max(0.0, due - now - self.burst / self.per_second)
        if delay > PATIENCE_SECONDS:
            return None
        self.due = due
        return delay


class ConnectionLimiter:
    """Bounds the connections and requests of clients, so that none can keep out the others.

    Where there are too many connections, one of the client with the most of them ends: its oldest one without a
    request, else its oldest.

    Args:
        per_client: connections of a client.
        total: connections in all.

    Attributes:
        count: connections now.
    """

    def __init__(self, per_client: int, total: int) -> None:
        self._per_client: Final = per_client
        self._total: Final = total
        self._clients: Final[dict[str, Client]] = {}
        self._all: Final = Client(BURST_OF_ALL, PER_SECOND_OF_ALL)
        self.count = 0

    def add(self, connection: Connection) -> None:
        """Count a connection; where that is one too many, another ends."""
        client = self._client(connection.client)
        client.connections[connection] = None
        self.count += 1
        if len(client.connections) <= self._per_client:
            if self.count <= self._total:
                return
            client = max(self._clients.values(), key=lambda each: len(each.connections))
        victim = next((each for each in client.connections if each.is_idle), next(iter(client.connections)))
        # Now, not when the loop comes to it: more may come before.
        self.remove(victim)
        victim.abort()

    def remove(self, connection: Connection) -> None:
        """Forget a connection, if it is counted."""
        client = self._clients.get(connection.client)
        if client and connection in client.connections:
            del client.connections[connection]
            self.count -= 1

    def connections(self) -> list[Connection]:
        """All connections that are counted, also those in their handshake."""
        return [connection for client in self._clients.values() for connection in client.connections]

    async def wait(self, client: str) -> bool:
        """Wait until a request that costs something is due; False: it comes too soon to be answered."""
        now = asyncio.get_running_loop().time()
        mine = self._client(client).delay(now)
        # One client that comes too often takes nothing of what is there for all.
        shared = None if mine is None else self._all.delay(now)
        if mine is None or shared is None:
            # An answer at once would be the next request at once.
            await asyncio.sleep(PATIENCE_SECONDS)
            return False
        if delay := max(mine, shared):
            await asyncio.sleep(delay)
        return True

    def _client(self, address: str) -> Client:
        client = self._clients.get(address)
        if client is None:
            if len(self._clients) >= _MAX_CLIENTS:
                for other in [other for other, each in self._clients.items() if not each.connections]:
                    del self._clients[other]
            client = self._clients[address] = Client(BURST, PER_SECOND)
        return client


class Connection(asyncio.BufferedProtocol):
    """One connection: HTTP/1.1, one request and one answer after the other, until one side ends it.

    Args:
        server: the server that it belongs to.
        client: the client's IP address; empty: it is not known.

    Attributes:
        opening: makes the connection, by a handshake where there is TLS.
        transport: None: before the handshake's end, and after the connection's.
        task: what answers a request, if one does.
        rejection: the answer to every request; empty: the client may send requests.
        verified: whether the client has proved by a certificate that it may send requests. Without that, and without a
            token that proves it, a review's claims about its sender prove nothing.
        verified_until: when the token of the last head ceases to prove it, on the clock of `time.monotonic`.
        closes_at: an answer after this time is the last one; as `due`, on the clock of `time.monotonic`, in seconds.
        due: when `check` has something to do.
        kept: bytes of heads and everyday bodies that the server keeps for it.
        settled: when the last request was answered that may come only so often, on the loop's clock.
        writing_paused: the client reads more slowly than it is answered; it ends when that does.
    """

    __slots__ = (
        *("_ahead", "_began", "_body", "_cached", "_chunks", "_clock", "_discarding", "_ends_at"),
        *("_idle_until", "_is_last", "_loop", "_missing", "_readable", "_request", "_room", "_takes_body", "_ticks"),
        *("client", "closes_at", "due", "kept", "opening", "rejection", "server", "settled", "task"),
        *("_whole", "transport", "verified", "verified_until", "writing_paused"),
    )

    def __init__(self, server: Server, client: str = "") -> None:
        self.server = server
        self.client = client
        self._loop = asyncio.get_running_loop()
        # uvloop's own clock stands still within a turn of the loop, and knows milliseconds alone.
        self._clock = time.monotonic
        self.closes_at = self._clock() + server.lifetime_seconds * random.uniform(1 - JITTER, 1 + JITTER)  # noqa: S311
        self.opening: asyncio.Task[Any] | None = None
        self.transport: asyncio.Transport | None = None
        self.task: asyncio.Task[None] | None = None
        self._idle_until = self.due = 0.0
        self._ends_at = float("inf")
        self._request: HttpRequest | None = None
        # Of a body that has not come whole: what has, and how many bytes have not. One array, if it comes in more than
        # two pieces: each of many small ones would take a multiple of its size.
        self._body: bytes | bytearray = b""
        self._missing = 0
        self._chunks: Chunks | None = None
        # When the time of the body began, and how often it was looked at since.
        self._began, self._ticks = 0.0, 0
        # Bytes of the room for large bodies, and whether one of them has come.
        self._room = 0
        self._whole: asyncio.Future[bool] | None = None
        # What comes behind a request, or the beginning of a head.
        self._ahead = b""
        self._cached: CachedRequestHead | None = None
        self._takes_body = False
        self._is_last = self._discarding = self.verified = False
        self._readable = True
        self.writing_paused: asyncio.Future[bool] | None = None
        self.kept = 0
        self.settled = float("-inf")
        self.verified_until = 0.0
        self.rejection = ""

    @property
    def is_idle(self) -> bool:
        """Whether no request is being read or answered."""
        return self._request is None

    # -- its life ------------------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Read the certificate of the client, which is one for all requests of a connection."""
        # uvloop's transports have its methods, but are none of its kind.
        self.transport = cast("asyncio.Transport", transport)
        server = self.server
        if server.clients:
            name = client_name(transport)
            self.verified = name in server.clients
            if not self.verified:
                got = f"{name[:100]} is none of those" if name else "the client has none"
                self.rejection = (
                    f"this webhook answers only clients with a certificate of {' or '.join(sorted(server.clients))},"
                    f" and {got}; give the API server one with --admission-control-config-file"
                )
        # An API server's connections begin with the same head.
        self._cached = server.head
        now = self._clock()
        self._idle_until = self.due = now + server.limits.keep_alive_seconds
        self._ends_at = now + server.limits.abort_seconds
        server.watch(self)

    def connection_lost(self, exc: BaseException | None) -> None:
        """Let go of everything; a request whose evaluation has begun goes on, and its answer goes nowhere."""
        self.transport = None
        _settle(self.writing_paused, value=False)
        _settle(self._whole, value=False)
        self._cached = None
        self._drop_ahead()
        if not self.task:
            self._release()
            self._request = None
            self.server.forget(self)

    def pause_writing(self) -> None:
        """The client reads more slowly than it is answered."""
        self.writing_paused = self._loop.create_future()

    def resume_writing(self) -> None:
        """The client has read most of its answers."""
        _settle(self.writing_paused, value=True)
        self.writing_paused = None

    def abort(self) -> None:
        """End the connection, whatever it is doing."""
        if self.transport:
            self.transport.abort()
        elif self.opening:
            self.opening.cancel()

    def close(self) -> None:
        """End the connection once what was written has been sent, within a bounded time; nothing more is read."""
        self._is_last = self._discarding = True
        if self.transport and not self.transport.is_closing():
            self._pause_reading()
            self._end_in(CLOSE_SECONDS)
            self.transport.close()

    def retire(self) -> None:
        """End as soon as no request is being read or answered."""
        self._is_last = True
        if self._request is None:
            self.close()

    def check(self, now: float) -> None:
        """End the connection if its time is over or no request comes; give up a body that comes too slowly.

        The rate is measured in the time in which the loop could have read: where the process itself gets no processor,
        no client is to blame. It counts from the body's first byte on, for Go writes head and body apart, and a head
        alone takes no memory. Half a head does not count as a request.
        """
        request = self._request
        if now >= self._ends_at:
            self.abort()
        elif request is None:
            if now >= self._idle_until:
                self.close()
        elif self._missing and self._readable:
            self._ticks += bool(self._body)
            until = self._began + min(ARRIVAL_SECONDS, self.server.application.patience(request))
            minimum = (self._ticks * CHECK_SECONDS - GRACE_SECONDS) * MIN_BYTES_PER_SECOND
            if now >= until or len(self._body) < minimum:
                self.give_up(Overload.LATE)

    def _end_in(self, seconds: float) -> None:
        self._ends_at = min(self._ends_at, self._clock() + seconds)
        self.due = 0.0

    def _pause_reading(self) -> None:
        if self._readable and self.transport:
            self._readable = False
            self.transport.pause_reading()

    def _resume_reading(self) -> None:
        if not self._readable and self.transport and not self.transport.is_closing():
            self._readable = True
            self.transport.resume_reading()

    # -- bytes ---------------------------------------------------------------------------------------------------------

    def get_buffer(self, sizehint: int) -> memoryview:
        """Where the transport puts the next bytes; it also slices it, which of a bytearray would be a copy."""
        return self.server.view

    def buffer_updated(self, nbytes: int) -> None:
        """Take the bytes that the transport has put into the buffer."""
        cached = self._cached
        if cached and self._request is None and not (self._ahead or self._is_last):
            # The usual: one whole request, of which only the body is copied.
            match = cached.match(self.server.received)
            if match and match[0] + match[1] == nbytes:
                self._is_last = cached.head.is_last
                self._request = request = HttpRequest(cached.head, match[1], self, self._clock())
                request.body = self.server.view[match[0] : nbytes].tobytes()
                self._take_request(request, at_once=True)
                return
        self.data_received(self.server.view[:nbytes].tobytes())

    def data_received(self, data: bytes, *, at_once: bool = True) -> None:
        """Take bytes; at most one request comes of them, which may be answered without a task if ``at_once``."""
        request = self._request
        if request is None:
            if self._discarding:
                self._missing -= len(data)
                if self._missing <= 0:
                    self.close()
            elif not self._is_last:
                self._take_head(self._ahead + data if self._ahead else data, at_once=at_once)
        elif self._missing:
            self._take_piece(request, data)
        elif data:
            self._keep_ahead(self._ahead + data)

    def _take_head(self, data: bytes, *, at_once: bool) -> None:
        """Begin the request whose head is in the bytes, if all of it is."""
        cached = self._cached
        match = cached and cached.match(data)
        length: int | None
        if cached and match:
            head, (begin, length) = cached.head, match
        else:
            begin = data.find(END, 0, MAX_HEAD_BYTES) + len(END)
            if begin < len(END):
                self._keep_head(data)
                return
            try:
                head, chunks = parse_head(data[:begin])
            except BadRequestError as error:
                self._reject(str(error))
                return
            length = head.length
            self._chunks = chunks if length is None else None
            self._cached = CachedRequestHead(data[:begin], head)
            self._takes_body = False
            if "authorization" in head.headers:
                until = self.server.application.verify(head)
                self.verified_until = until or 0.0
                if until is None:
                    # The next head, though it is the same, may be verified.
                    self._cached = None
            else:
                self.server.head = self._cached
                self.verified_until = 0.0
        if self.kept:
            self._drop_ahead()
        self._is_last = head.is_last
        self._request = request = HttpRequest(head, length, self, self._clock())
        if length is None:
            # A body in chunks is the connection's last one; what is around the chunks counts too.
            self._is_last = True
            self._begin_body(request, data[begin:], 2 * self.server.limits.body_bytes + MAX_HEAD_BYTES)
            return
        end = begin + length
        if end > len(data):
            self._begin_body(request, data[begin:], length)
            return
        if len(data) > end:
            self._keep_ahead(data[end:])
        request.body = data[begin:end]
        self._take_request(request, at_once=at_once)

    def _take_request(self, request: HttpRequest, *, at_once: bool) -> None:
        """Answer a whole request from memory, or let a task do it."""
        if at_once and not self.writing_paused:
            answer = self.server.application.answer_at_once(request)
            if answer is not None:
                self._request = None
                if self.kept:
                    self._keep(len(self._ahead) - self.kept)
                self._write(answer, request)
                if self._is_last or not self._readable:
                    self._go_on()
                return
        self._start(request)

    def _keep_head(self, data: bytes) -> None:
        if len(data) > MAX_HEAD_BYTES:
            self._reject(f"its head is longer than {MAX_HEAD_BYTES} bytes")
            return
        if data:
            # Its first piece may have come behind a request; the earliest of these times counts.
            self._idle_until = self.due = min(self._idle_until, self._clock() + HEAD_SECONDS)
        self._keep_ahead(data)

    def _keep_ahead(self, data: bytes) -> None:
        """Keep the beginning of a head, or what comes behind a request, of which no more is read."""
        added = len(data) - len(self._ahead)
        self._ahead = data
        if self._request:
            self._pause_reading()
        self._keep(added)

    def _drop_ahead(self) -> None:
        self._keep(-len(self._ahead))
        self._ahead = b""

    def _keep(self, count: int) -> None:
        """Count bytes that are kept from now on; where there are too many, a client loses some."""
        self.kept += count
        self.server.kept += count
        if count > 0 and self.server.kept > self.server.limits.kept_bytes:
            self.server.make_room(self)

    def _reject(self, why: str) -> None:
        """Answer bytes that are not HTTP, and read nothing more."""
        self._request = None
        self._release()
        self._drop_ahead()
        if self.transport:
            answer = Answer.text(400, f"the request is not valid HTTP/1.1: {why[:200]}")
            self.transport.write(answer.head(is_last=True) + answer.body)
            if self.transport.can_write_eof():
                # Closed with bytes unread, the kernel would take the answer back.
                self.transport.write_eof()
                self._pause_reading()
                self._discarding = self._is_last = True
                self._end_in(CLOSE_SECONDS)
            else:
                self.close()

    # -- bodies --------------------------------------------------------------------------------------------------------

    def _begin_body(self, request: HttpRequest, data: bytes, missing: int) -> None:
        """Begin to take a body that has not come whole, of which so many bytes may come, with these."""
        self._missing = missing
        self._begin_time(request.start)
        if not self._takes_body:
            if answer := self.server.application.answer_from_head(request):
                self._missing -= len(data)
                self._answer_early(answer, request)
                return
            if "expect" not in request.head.headers:
                # It depends on nothing but the connection and the head, which is the same next time.
                self._takes_body = True
            elif self.transport:
                self.transport.write(_CONTINUE)
        self._take_piece(request, data)

    def _begin_time(self, now: float) -> None:
        self._began = now
        # The first look may come at once.
        self._ticks = -1
        self.due = 0.0

    def _take_piece(self, request: HttpRequest, data: bytes) -> None:
        """Take more of a body, and keep what is behind it."""
        if self._chunks:
            data = self._take_chunks(self._chunks, data)
        elif len(data) > self._missing:
            self._keep_ahead(data[self._missing :])
            data = data[: self._missing]
            self._missing = 0
        else:
            self._missing -= len(data)
        if self._request is not request:
            return
        if not self._body:
            self._body = data
        elif self._missing:
            if isinstance(self._body, bytes):
                self._body = bytearray(self._body)
            self._body += data
        else:
            self._body = self._body + data
        if not self._missing:
            self._complete(request)
            return
        if not self._room:
            self._keep(len(data))
        most = self.server.limits.body_bytes
        if request.length is not None and request.length <= min(EVERYDAY_BYTES, most):
            return
        # Room is sought once as much has come as an answer without the rest takes.
        if not self._whole and self._request is request and len(self._body) >= min(PREFIX_BYTES, most):
            self._seek_room(request, most)

    def _complete(self, request: HttpRequest) -> None:
        request.body = bytes(self._body)
        self._body = b""
        self._chunks = None
        if self._whole:
            _settle(self._whole, value=True)
        else:
            self._take_request(request, at_once=True)

    def _take_chunks(self, chunks: Chunks, data: bytes) -> bytes:
        """What bytes have of a body in chunks; what is behind it is not read."""
        try:
            body = chunks.take(data)
        except BadRequestError as error:
            self._cancel_task()
            self._reject(str(error))
            return b""
        self._missing = 0 if chunks.message.is_complete else max(self._missing - len(data), 1)
        if self._missing == 1 or len(self._body) + len(body) > self.server.limits.body_bytes:
            self._missing = max(self._missing, 1)
            self.give_up(Overload.TOO_LARGE)
        return body

    def _seek_room(self, request: HttpRequest, most: int) -> None:
        """Let a large body wait for room."""
        if (request.length or 0) > most:
            self.give_up(Overload.TOO_LARGE)
            return
        # It takes all of its room before: two of them, half read, could wait for each other.
        self._whole = self._loop.create_future()
        self._pause_reading()
        self._start(request)

    def _release(self) -> None:
        """Keep nothing of a body, and return its room."""
        self._body = b""
        self._missing = 0
        self._chunks = None
        self._keep(len(self._ahead) - self.kept)
        if self._room:
            self.server.room.give(self.client, self._room)
            self._room = 0

    # -- answers -------------------------------------------------------------------------------------------------------

    def _cancel_task(self) -> None:
        if self.task:
            self.task.cancel()
            # One that has not begun would never say that it has ended.
            self.task = None

    def give_up(self, overload: Overload) -> None:
        """Answer a request that has no answer yet as `Overload` says, and take no more of the client's requests."""
        request = self._request
        if request and (self._missing or self.task):
            _settle(self._whole, value=False)
            if not self._missing:
                self._cancel_task()
            self._whole = None
            if (request.length or 0) > self.server.limits.body_bytes:
                overload = Overload.TOO_LARGE
            prefix = bytes(self._body[:PREFIX_BYTES]) or request.body[:PREFIX_BYTES]
            self._answer_early(self.server.application.overloaded(request, overload, prefix), request)
            return
        self._is_last = True
        self._drop_ahead()
        if request is None:
            self.abort()

    def _answer_early(self, answer: Answer, request: HttpRequest) -> None:
        """Answer before the end of the body, and read on for a while, without keeping anything."""
        # The end of what is longer than any body may be is not read.
        left = min(self._missing, 2 * self.server.limits.body_bytes + MAX_HEAD_BYTES)
        self._release()
        self._drop_ahead()
        self._request = None
        self._is_last = self._discarding = True
        self._write(answer, request)
        self._missing = left
        self._end_in(LINGER_SECONDS)
        self._resume_reading()

    def _start(self, request: HttpRequest) -> None:
        if not self._whole:
            self._keep(len(self._ahead) + len(request.body) - self.kept)
        self.due = 0.0
        self.task = self._loop.create_task(self._answer(request))

    async def _answer(self, request: HttpRequest) -> None:
        try:
            if self.writing_paused:
                # A client that sends requests and never reads would fill the memory with answers.
                with suppress(TimeoutError):
                    async with asyncio.timeout(STALLED_SECONDS):
                        await self.writing_paused
                if self.writing_paused:
                    self.abort()
                    return
            if self._request is not request:
                # It was answered early, before this task had its turn of the loop, or while its client did not read.
                return
            if self._whole and not await self._read_large(request, self._whole):
                return
            answer = await self.server.application.answer(request)
        finally:
            self.task = self._whole = None
            if self._request is request:
                self._release()
                self._request = None
            if self.transport is None:
                self.server.forget(self)
        self._write(answer, request)
        self._go_on()

    async def _read_large(self, request: HttpRequest, whole: asyncio.Future[bool]) -> bool:
        """Read a large body once there is room for it; False: it has been answered, or its client has gone."""
        count = self.server.limits.body_bytes if request.length is None else request.length
        until = self._loop.time() + self.server.application.patience(request)
        has_room = await self.server.room.take(self.client, until, count)
        if self.transport is None or self._request is not request:
            if has_room:
                self.server.room.give(self.client, count)
            return False
        if not has_room:
            self.give_up(Overload.NO_ROOM)
            return False
        self._room = count
        self._keep(len(self._ahead) - self.kept)
        if self._missing:
            self._begin_time(self._clock())
            self._resume_reading()
        return await whole

    def _go_on(self) -> None:
        if self._is_last:
            self.close()
            return
        if self._ahead:
            # In a task: a client that sends ahead must not keep the others waiting for all of it.
            self.data_received(b"", at_once=False)
        # Not before all of it is answered, or a client could fill the memory with requests.
        if not self._readable and (self._request is None or (self._missing and not self._whole)):
            self._resume_reading()

    def _write(self, answer: Answer, request: HttpRequest) -> None:
        if self.transport is None:
            return
        now = request.end or self._clock()
        self._is_last = self._is_last or now >= self.closes_at
        self._idle_until = self.due = now + self.server.limits.keep_alive_seconds
        head = answer.head(is_last=self._is_last)
        self.transport.write(head if request.head.method == "HEAD" else head + answer.body)


def _settle(waiter: asyncio.Future[bool] | None, *, value: bool) -> None:
    if waiter and not waiter.done():
        waiter.set_result(value)


class Server:
    """One listener, and all of its connections.

    Args:
        application: answers its requests.
        limits: what it takes.
        clients: names that a client's certificate may have; empty: no certificate is needed.

    Attributes:
        open: connections that are open, or on which a request is still evaluated.
        head: the last one that was parsed, and is no secret: the next connection's may have the same bytes.
        received: what comes on any connection, until it is taken.
        lifetime_seconds: of connections that are made from now on, as in `Limits`.
        kept: bytes of heads and everyday bodies in memory.
        room: the room for larger ones, shared by clients.
        address: ``HOST:PORT`` once it listens.
    """

    def __init__(self, application: Application, limits: Limits, *, clients: Collection[str] = ()) -> None:
        self.application: Final = application
        self.limits: Final = limits
        self.clients: Final = clients
        self.lifetime_seconds = limits.lifetime_seconds
        self.open: Final[dict[Connection, None]] = {}
        self.head: CachedRequestHead | None = None
        # One for all connections: a transport asks for it, fills it, and says so, in one turn of the loop. Without it,
        # uvloop makes a block of 256 KiB for each read.
        self.received: Final = bytearray(_RECEIVED_BYTES)
        self.view: Final = memoryview(self.received)
        self.kept = 0
        self.room: Final = FairQueue(limits.room_bytes)
        self.limiter: Final = ConnectionLimiter(limits.per_client, limits.connections)
        self.address = ""
        self._is_looking = False
        self._listening: list[socket.socket] = []

    @property
    def in_flight(self) -> int:
        """Requests that are being read or answered."""
        return sum(not connection.is_idle for connection in self.open)

    @property
    def taken_bytes(self) -> int:
        """Bytes of heads and bodies in memory, and the room that large bodies on their way have taken."""
        return self.kept + self.room.taken

    def watch(self, connection: Connection) -> None:
        """Look at an open connection whenever it has something due."""
        self.open[connection] = None
        if not self._is_looking:
            self._look()

    def _look(self) -> None:
        self._is_looking = bool(self.open)
        if self._is_looking:
            asyncio.get_running_loop().call_later(CHECK_SECONDS, self._look)
        now = time.monotonic()
        for connection in [each for each in self.open if each.due <= now]:
            connection.check(now)

    def forget(self, connection: Connection) -> None:
        """A connection is gone, and its last request too."""
        self.open.pop(connection, None)
        self.limiter.remove(connection)

    def make_room(self, newcomer: Connection) -> None:
        """Let the client for which most bytes are kept lose some: of its connections that with the most unread.

        Where nothing of it is unread, it loses the largest of those that wait for their answers.
        """
        totals: Counter[str] = Counter()
        for connection in self.open:
            totals[connection.client] += connection.kept
        client = max(totals, key=totals.__getitem__, default=newcomer.client)
        mine = [each for each in self.open if each.client == client and each.kept]
        max(mine, key=lambda each: (each.task is None, each.kept), default=newcomer).give_up(Overload.NO_ROOM)

    def recycle(self) -> None:
        """Let every connection that is open, or in its handshake, end with its next answer."""
        for connection in (*self.open, *self.limiter.connections()):
            connection.closes_at = 0.0

    async def begin_shutdown(self, seconds: float) -> None:
        """Serve on for so long while clients learn that the server ends: every answer closes its connection.

        A Service's endpoints are removed some time after SIGTERM, and open connections outlive them.
        """
        self.lifetime_seconds = 0.0
        self.recycle()
        await asyncio.sleep(seconds)

    async def listen(self, address: str, tls: ssl.SSLContext | None, what: str) -> None:
        """Begin to listen on ``HOST:PORT``, with port 0 on a free one; without a context plain HTTP.

        Raises:
            InputError: nothing can listen there; ``what`` is the setting or option that it names.
        """
        host, port = split_address(address)
        try:
            sockets = await _bind(host, port)
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                raise InputError(f"{address} is in use", what, "end the other program or choose another port") from None
            cause = error.strerror or str(error)
            fix = "choose an address of this host"
            raise InputError(f"nothing can listen on {address}: {cause}", what, fix) from None
        bound = sockets[0].getsockname()[1]
        self.address = f"[{host}]:{bound}" if ":" in host else f"{host}:{bound}"
        self._listening = sockets
        for each in sockets:
            self._accept_from(each, tls)

    async def shutdown(self, seconds: float) -> None:
        """Take no new connections, let requests that have begun end within so many seconds, then close."""
        for each in self._listening:
            asyncio.get_running_loop().remove_reader(each)
            each.close()
        self._listening = []
        for connection in [*self.open]:
            connection.retire()
        deadline = time.monotonic() + seconds
        while self.in_flight and time.monotonic() < deadline:  # noqa: ASYNC110 - an event would be a cost for each request
            await asyncio.sleep(0.02)
        # Those in their handshake, too: nothing else would end them.
        left = dict.fromkeys((*self.open, *self.limiter.connections()))
        tasks = [task for connection in left for task in (connection.opening, connection.task) if task]
        for connection in left:
            if connection.task:
                connection.task.cancel()
            connection.abort()
        if tasks:
            await asyncio.wait(tasks)
        # Transports end in the next turn of the loop.
        await asyncio.sleep(0)
        self.open.clear()

    def _accept_from(self, listening: socket.socket, tls: ssl.SSLContext | None) -> None:
        if listening in self._listening:
            asyncio.get_running_loop().add_reader(listening, self._accept, listening, tls)

    def _accept(self, listening: socket.socket, tls: ssl.SSLContext | None) -> None:
        """Accept one connection, in each turn of the loop in which there is one."""
        loop = asyncio.get_running_loop()
        try:
            accepted, peer = listening.accept()
        except OSError as error:
            if error.errno in _OUT_OF_FILES:
                loop.remove_reader(listening)
                loop.call_later(1.0, self._accept_from, listening, tls)
            return
        accepted.setblocking(False)
        connection = Connection(self, str(peer[0]))
        timeouts = {"ssl_handshake_timeout": HEAD_SECONDS, "ssl_shutdown_timeout": CLOSE_SECONDS} if tls else {}
        opening = loop.connect_accepted_socket(lambda: connection, accepted, ssl=tls, **timeouts)
        connection.opening = loop.create_task(opening)
        connection.opening.add_done_callback(partial(self._opened, connection, accepted))
        self.limiter.add(connection)

    def _opened(self, connection: Connection, accepted: socket.socket, opening: asyncio.Task[Any]) -> None:
        """A handshake has ended; one that failed, took too long, or was cancelled by the limiter, makes no connection.

        Raises:
            Exception: a bug, which the loop reports.
        """
        connection.opening = None
        if connection.transport is None:
            accepted.close()
            # A request may have come with the handshake's last bytes, and is evaluated though its client has gone.
            if not connection.task:
                self.forget(connection)
        elif opening.cancelled():
            # In the turn of the loop in which the connection was made: uvloop then closes it without a word.
            connection.transport.abort()
            connection.connection_lost(None)
        error = None if opening.cancelled() else opening.exception()
        if error and not isinstance(error, OSError):
            raise error


@asynccontextmanager
async def serving(
    server: Server, address: str, tls: ssl.SSLContext | None, what: str, seconds: float
) -> AsyncIterator[str]:
    """A listener, as `Server.listen` has it, for as long as the context lasts; gives its ``HOST:PORT``.

    Requests that have begun at the end have so many seconds to end.
    """
    await server.listen(address, tls, what)
    try:
        yield server.address
    finally:
        await server.shutdown(seconds)


def split_address(address: str) -> tuple[str, int]:
    """Host and port of ``HOST:PORT``; an IPv6 address stands in brackets. The settings have checked the form."""
    host, _, port = address.rpartition(":")
    return host.strip("[]"), int(port)


async def _bind(host: str, port: int) -> list[socket.socket]:
    """Listening sockets of all addresses of a host; an `OSError` where there is none, or one is in use."""
    places = await asyncio.get_running_loop().getaddrinfo(
        host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )
    sockets: list[socket.socket] = []
    try:
        for family, kind, protocol, _, place in dict.fromkeys(places):
            try:
                each = socket.socket(family, kind, protocol)
            except OSError:
                # The kernel has no IPv6.
                continue
            sockets.append(each)
            each.setblocking(False)
            each.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            # Accepted sockets have the options of the listening one (tcp(7), and Linux's sk_clone_lock).
            each.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            # TLS keeps a buffer as large as what was ever read at once, for as long as a connection is open.
            each.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _RECEIVED_BYTES)
            # The loopback's segments of 64 KiB fit that buffer only where it is empty: the sender would wait
            # seconds for a window that does not open (RFC 9293, 3.8.6.2: silly windows are avoided).
            with suppress(OSError):
                each.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, _RECEIVED_BYTES // 4)
            if family == socket.AF_INET6:
                each.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            each.bind(place)
            each.listen(1024)
    except OSError:
        for each in sockets:
            each.close()
        raise
    if not sockets:
        raise OSError(errno.EADDRNOTAVAIL, "no address")
    return sockets
