"""Connections of clients that send reviews: HTTP/1.1, one POST and one answer after the other, until one side ends it.

aiohttp's parser, which is C, and its flow control, without its server: that makes a task, a request and a response with
their headers for each review, which together cost more than the review. What can be answered from memory is answered
at once, where its bytes arrive; a task is made only for what has to wait. Requests that come before the last answer
has been given wait in the parser and in the kernel's buffers.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Collection
from contextlib import suppress
from typing import Any, Final

from aiohttp import StreamReader, web
from aiohttp.base_protocol import BaseProtocol
from aiohttp.http import HttpProcessingError, HttpRequestParser
from aiohttp.tcp_helpers import tcp_keepalive

from webhook.server.budget import EVERYDAY
from webhook.server.exchange import Answer, HttpRequest
from webhook.server.tls import client_name

# A client keeps its connections to the replicas that were there when it made them: recycled by age, they spread over
# those that are there now. A handshake in five minutes costs no client much.
LIFETIME: Final = 300.0
# So that connections that began together don't end together.
JITTER: Final = 0.2
# How long a client may leave answers lying before it gets no more of them.
STALLED: Final = 10.0
# How long to read on where the answer came before the end of the body: a client that still writes reads it only then.
LINGER: Final = 10.0
# How long the rest of an everyday body may take before a task waits for it: Go sends the first 4 KB and then the rest,
# which arrives within a fraction of a millisecond.
_PATIENCE: Final = 0.005
# Of a body, before the rest waits in the kernel's buffers.
_BUFFER_BYTES: Final = 256 * 1024


class Connection(BaseProtocol):
    """One connection.

    Args:
        server: the server that it belongs to.
        closes_at: on the clock of `time.monotonic`, in seconds; an answer after this time is the last one.
        generation: how often the server had recycled its connections when the handshake began; see
            `Connections.recycle`.

    Attributes:
        rejection: the answer to every request; empty: the client may send reviews.
        verified: whether the client has proved by a certificate that it may send reviews. Without that, a review's
            claims about its sender prove nothing.
    """

    __slots__ = (
        *("_ahead", "_clock", "_idle_until", "_is_last", "_patience", "_request", "_server", "_task", "_timer"),
        *("closes_at", "generation", "rejection", "verified"),
    )

    def __init__(self, server: Connections, closes_at: float, generation: int) -> None:
        loop = asyncio.get_running_loop()
        # One message at a time: what a client sends ahead stays in the parser.
        parser = HttpRequestParser(
            self,
            loop,
            _BUFFER_BYTES,
            payload_exception=web.RequestPayloadError,
            auto_decompress=False,
            max_msg_queue_size=1,
        )
        super().__init__(loop, parser)
        self._server = server
        # uvloop's own clock stands still within a turn of the loop, and knows milliseconds alone.
        self._clock = time.monotonic
        self._idle_until = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._request: HttpRequest | None = None
        self._task: asyncio.Task[None] | None = None
        self._patience: asyncio.TimerHandle | None = None
        self._ahead = b""
        self._is_last = False
        self.closes_at = closes_at
        self.generation = generation
        self.rejection = ""
        self.verified = False

    @property
    def task(self) -> asyncio.Task[None] | None:
        """What answers a request, if one does."""
        return self._task

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Read the certificate of the client, which is one for all requests of a connection."""
        clients = self._server.clients
        if clients:
            name = client_name(transport)
            self.verified = name in clients
            if not self.verified:
                got = f"{name[:100]} is none of those" if name else "the client has none"
                self.rejection = (
                    f"this webhook answers only clients with a certificate of {' or '.join(sorted(clients))}, and"
                    f" {got}; give the API server one with --admission-control-config-file"
                )
        super().connection_made(transport)
        assert self.transport
        tcp_keepalive(self.transport)
        self._server.add(self)
        self._idle_until = self._clock() + self._server.keep_alive
        self._timer = self._loop.call_at(self._idle_until, self._check_idle)

    def connection_lost(self, exc: BaseException | None) -> None:
        """Let go of everything; a review that has begun goes on, and its answer goes nowhere."""
        super().connection_lost(exc)
        for timer in (self._timer, self._patience):
            if timer:
                timer.cancel()
        if self._request:
            self._request.payload.set_exception(ConnectionResetError("the client has gone"))
        if not self._task:
            self._server.remove(self)

    def eof_received(self) -> None:
        """Who writes no more gets no more either: TLS has no half of a connection."""

    def resume_reading(self, resume_parser: bool = True) -> None:
        """Called for every piece of a body; seldom is there anything to resume."""
        if self._reading_paused:
            super().resume_reading(resume_parser)

    def data_received(self, data: bytes, *, at_once: bool = True) -> None:
        """Take bytes; at most one request comes of them.

        Args:
            data: bytes from the client.
            at_once: whether the request may be answered without a task.
        """
        request = self._request
        if request and request.payload.is_eof():
            if data:
                self._ahead += data
                self._pause_reading_for_buffer()
            return
        if self._parser is None or (self._is_last and not request):
            # The last answer has been given.
            return
        try:
            messages, _, _ = self._parser.feed_data(data)
        except HttpProcessingError as error:
            self._reject(error)
            return
        for message, payload in messages:
            self._begin(HttpRequest(message, payload, self, self._clock()), at_once=at_once)
            return
        if self._patience and request and request.payload.is_eof():
            self._patience.cancel()
            self._answer_at_once(request)

    def _reject(self, error: HttpProcessingError) -> None:
        """Answer bytes that are not HTTP."""
        self._is_last = True
        if self._request:
            self._request.payload.set_exception(web.RequestPayloadError(error.message))
            return
        said = error.message.partition("\n")[0][:200].rstrip(": ")
        if self.transport:
            answer = Answer.text(400, f"the request is not valid HTTP/1.1: {said}")
            self.transport.write(answer.head(is_last=True) + answer.body)
            self.transport.close()

    def _begin(self, request: HttpRequest, *, at_once: bool) -> None:
        message = request.message
        if message.should_close or message.upgrade or message.method == "CONNECT":
            # No protocol that a client may want to upgrade to is supported.
            self._is_last = True
        self._request = request
        if not at_once or self._paused:
            self._start()
        elif request.payload.is_eof():
            self._answer_at_once(request)
        elif (request.announced or EVERYDAY) < EVERYDAY:
            self._patience = self._loop.call_later(_PATIENCE, self._start)
        else:
            self._start()

    def _answer_at_once(self, request: HttpRequest) -> None:
        """Answer without a task, if that can be."""
        self._patience = None
        answer = self._server.at_once(request)
        if answer is None:
            self._start()
            return
        self._request = None
        self._write(answer, request)
        self._go_on()

    def _start(self) -> None:
        """Let a task answer the request."""
        self._patience = None
        if self._request:
            self._task = self._loop.create_task(self._answer(self._request))

    async def _answer(self, request: HttpRequest) -> None:
        """Answer a request that has to wait for something."""
        try:
            if self._paused and not await self._drain_output():
                return
            answer = await self._server.handler(request)
            # What is left of a body that was denied would be read as the next request.
            self._is_last = self._is_last or not request.payload.is_eof()
            self._write(answer, request)
            if not request.payload.is_eof():
                await _read_on(request.payload)
        finally:
            self._request = self._task = None
            if self.transport is None:
                self._server.remove(self)
        self._go_on()

    def _go_on(self) -> None:
        """Look at what the client has sent ahead."""
        if self._is_last or self._parser is None:
            self._close_if_last()
            return
        self._parser.message_consumed()
        ahead, self._ahead = self._ahead, b""
        # In a task: a client that sends ahead must not keep the others waiting for all of it.
        self.data_received(ahead, at_once=False)
        # Not before the parser has done with what it had, or a client could fill the memory with requests.
        if self._buffer_paused and not (self._request and self._request.payload.is_eof()):
            self._resume_reading_for_buffer()

    def _write(self, answer: Answer, request: HttpRequest) -> None:
        """Write head and body in one piece."""
        if self.transport is None:
            return
        now = request.end or self._clock()
        self._is_last = self._is_last or now >= self.closes_at
        self._idle_until = now + self._server.keep_alive
        head = answer.head(is_last=self._is_last)
        self.transport.write(head if request.message.method == "HEAD" else head + answer.body)

    def _close_if_last(self) -> None:
        if self._is_last and self.transport is not None:
            self.transport.close()

    async def _drain_output(self) -> bool:
        """Wait until the client has read most of what was written; False: it did not in time, and is cut off.

        Without this, a client that sends requests and never reads would fill the memory with answers.
        """
        try:
            async with asyncio.timeout(STALLED):
                await self._drain_helper()
        except (TimeoutError, ConnectionError):
            if self.transport:
                self.transport.abort()
            return False
        return True

    def _check_idle(self) -> None:
        """Close a connection that has brought no request for too long; half a head does not count."""
        now = self._clock()
        if self._request is None and now >= self._idle_until:
            if self.transport:
                self.transport.close()
            return
        self._timer = self._loop.call_at(max(self._idle_until, now + 1.0), self._check_idle)

    def retire(self) -> None:
        """End as soon as no request is being answered."""
        self._is_last = True
        if self._patience:
            self._patience.cancel()
            self._start()
        if not self._request:
            self._close_if_last()

    def cancel(self) -> None:
        """Cancel the connection's task, and close it."""
        if self._task:
            self._task.cancel()
        if self.transport:
            self.transport.close()


async def _read_on(payload: StreamReader) -> None:
    """Read, and forget, what is left of a body."""
    with suppress(TimeoutError, ConnectionError, web.RequestPayloadError, RuntimeError):
        async with asyncio.timeout(LINGER):
            while not payload.is_eof():
                await payload.readany()


class Connections(web.Server):
    """All connections of a listener, as an aiohttp server that runners can start and stop.

    Args:
        handler: answers a request that may have to wait.
        at_once: answers a request whose body has arrived, without waiting; None: it has to wait.
        clients: names that a client's certificate may have; empty: no certificate is needed.
        lifetime: life of a connection, in seconds, give or take `JITTER`.
        jitter: picks a random number between two bounds.
        keep_alive: seconds after which an idle connection is closed.
    """

    def __init__(
        self,
        handler: Callable[[Any], Awaitable[Any]],
        at_once: Callable[[HttpRequest], Answer | None] = lambda _: None,
        *,
        clients: Collection[str] = (),
        lifetime: float = LIFETIME,
        jitter: Callable[[float, float], float] = random.uniform,
        keep_alive: float = 120.0,
    ) -> None:
        super().__init__(handler)
        self.handler: Final = handler
        self.at_once: Final = at_once
        self.clients: Final = clients
        self.keep_alive: Final = keep_alive
        self._lifetime = lifetime
        self._generation = 0
        self._jitter: Final = jitter
        self._open: Final[dict[Connection, None]] = {}

    def __call__(self) -> Connection:  # type: ignore[override] # it is the transport's protocol all the same
        """The protocol of a new connection."""
        age = self._lifetime * self._jitter(1 - JITTER, 1 + JITTER)
        return Connection(self, time.monotonic() + age, self._generation)

    @property
    def connections(self) -> list[Connection]:  # type: ignore[override] # the same
        """Those that are open, or on which a review still goes on."""
        return list(self._open)

    def add(self, connection: Connection) -> None:
        """A connection has been made."""
        self._open[connection] = None
        if connection.generation != self._generation:
            connection.closes_at = 0.0

    def remove(self, connection: Connection) -> None:
        """A connection is gone, and its last review too."""
        self._open.pop(connection, None)

    def recycle(self) -> None:
        """Let every connection that is open, or in its handshake, end with its next answer."""
        self._generation += 1
        for connection in self.connections:
            connection.closes_at = 0.0

    def drain(self) -> None:
        """Let every connection, also those to come, end with its next answer."""
        self._lifetime = 0.0
        self.recycle()

    def pre_shutdown(self) -> None:
        """Close the idle connections at once, and the others after their answer."""
        for connection in self.connections:
            connection.retire()

    async def shutdown(self, timeout: float | None = None) -> None:  # noqa: ASYNC109 - aiohttp's name
        """Give requests their time, and end those that take longer."""
        self.pre_shutdown()
        tasks = [connection.task for connection in self.connections if connection.task]
        if tasks:
            await asyncio.wait(tasks, timeout=timeout)
        for connection in self.connections:
            connection.cancel()
        self._open.clear()
