"""Connections of clients that send reviews: HTTP/1.1, one POST and one answer after the other, until one side ends it.

aiohttp's parser, which is C, and its flow control, without its server: that makes a task, a request and a response with
their headers for each review, which together cost more than the review. The parser gets heads, and bodies in chunks; a
body whose length the head says is the next so many bytes. What can be answered from memory is answered at once, where
its bytes arrive; a task is made only for what has to wait. What comes before the last answer has been given waits, and
soon in the kernel's buffers.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from aiohttp import StreamReader, web
from aiohttp.base_protocol import BaseProtocol
from aiohttp.http import HttpProcessingError, HttpRequestParser
from aiohttp.tcp_helpers import tcp_keepalive

from webhook.server.budget import EVERYDAY
from webhook.server.exchange import Answer, HttpRequest
from webhook.server.heads import END, MAX_HEAD, KnownHead, parse_head
from webhook.server.tls import client_name

if TYPE_CHECKING:
    from webhook.server.connections import Connections

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
            `webhook.server.connections.Connections.recycle`.

    Attributes:
        rejection: the answer to every request; empty: the client may send reviews.
        verified: whether the client has proved by a certificate that it may send reviews. Without that, a review's
            claims about its sender prove nothing.
    """

    __slots__ = (
        *("_ahead", "_clock", "_idle_until", "_is_last", "_known", "_missing", "_patience", "_pieces", "_request"),
        *("_server", "_task", "_timer", "closes_at", "generation", "rejection", "verified"),
    )

    def __init__(self, server: Connections, closes_at: float, generation: int) -> None:
        super().__init__(asyncio.get_running_loop())
        self._server = server
        # uvloop's own clock stands still within a turn of the loop, and knows milliseconds alone.
        self._clock = time.monotonic
        self._idle_until = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._request: HttpRequest | None = None
        # Of its body: what has come, as long as no task reads it, and how many bytes have not.
        self._pieces: list[bytes] = []
        self._missing = 0
        self._task: asyncio.Task[None] | None = None
        self._patience: asyncio.TimerHandle | None = None
        # What comes behind a request, or the beginning of a head.
        self._ahead = b""
        self._known: KnownHead | None = None
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
        if self._request and self._request.payload:
            self._request.payload.set_exception(ConnectionResetError("the client has gone"))
        if not self._task:
            self._server.remove(self)

    def eof_received(self) -> None:
        """Who writes no more gets no more either: TLS has no half of a connection."""

    def pause_reading(self) -> None:
        """Called where a task reads a body more slowly than it comes."""
        if self._parser:
            super().pause_reading()
        else:
            self._reading_paused = True
            self._pause_transport_reading()

    def resume_reading(self, resume_parser: bool = True) -> None:
        """Called for every piece of a body; seldom is there anything to resume."""
        if self._reading_paused:
            super().resume_reading(resume_parser and self._parser is not None)

    def data_received(self, data: bytes, *, at_once: bool = True) -> None:
        """Take bytes; at most one request comes of them.

        Args:
            data: bytes from the client.
            at_once: whether the request may be answered without a task.
        """
        request = self._request
        if request is None:
            if not self._is_last:
                self._take_head(self._ahead + data if self._ahead else data, at_once=at_once)
        elif self._missing:
            self._take_piece(request, data)
        elif self._parser:
            self._take_chunks(request, data)
        elif data:
            self._keep_ahead(self._ahead + data)

    def _take_head(self, data: bytes, *, at_once: bool) -> None:
        """Begin the request whose head is in the bytes, if all of it is."""
        known = self._known
        found = known and known.body(data)
        if known and found:
            head, (begin, length) = known.head, found
        else:
            begin = data.find(END, 0, MAX_HEAD) + len(END)
            if begin < len(END):
                self._ahead = data
                if len(data) > MAX_HEAD:
                    self._reject(HttpProcessingError(message=f"its head is longer than {MAX_HEAD} bytes"))
                return
            try:
                head = parse_head(data[:begin], self, self._loop)
                if head.length is None:
                    self._begin_chunks(data, HttpRequest(head, None, self, self._clock()))
                    return
            except HttpProcessingError as error:
                self._reject(error)
                return
            length = head.length
            self._known = KnownHead(data[:begin], head)
        end = begin + length
        self._ahead = b""
        if len(data) > end:
            self._keep_ahead(data[end:])
        self._is_last = head.is_last
        self._request = request = HttpRequest(head, length, self, self._clock())
        self._missing = max(end - len(data), 0)
        if self._missing:
            self._pieces = [data[begin:]]
            if at_once and length < EVERYDAY and not self._paused:
                self._patience = self._loop.call_later(_PATIENCE, self._start)
                return
        else:
            request.body = data[begin:end]
            if at_once and not self._paused:
                self._answer_at_once(request)
                return
        self._start()

    def _take_piece(self, request: HttpRequest, data: bytes) -> None:
        """Take more of a body, and keep what is behind it."""
        missing = self._missing
        if len(data) > missing:
            self._keep_ahead(data[missing:])
            data = data[:missing]
        self._missing = missing = missing - len(data)
        if request.payload:
            request.payload.feed_data(data)
            if not missing:
                request.payload.feed_eof()
            return
        self._pieces.append(data)
        if not missing:
            request.body = b"".join(self._pieces)
            if self._patience:
                self._patience.cancel()
            self._answer_at_once(request)

    def _begin_chunks(self, data: bytes, request: HttpRequest) -> None:
        """Begin a request with a body in chunks, which the parser takes apart; it is the connection's last one.

        Raises:
            HttpProcessingError: the chunks are not HTTP.
        """
        # One message at a time, and no other one, so that nothing gathers in the parser.
        parser = HttpRequestParser(
            *(self, self._loop, _BUFFER_BYTES),
            payload_exception=web.RequestPayloadError,
            auto_decompress=False,
            max_msg_queue_size=1,
        )
        self._is_last = True
        self._ahead = b""
        self._request, self._parser = request, parser
        ((_, request.payload),) = parser.feed_data(data)[0]
        self._start()

    def _take_chunks(self, request: HttpRequest, data: bytes) -> None:
        """Take more of a body in chunks; what is behind it is not read."""
        if request.is_complete or self._parser is None:
            return
        try:
            self._parser.feed_data(data)
        except HttpProcessingError as error:
            self._reject(error)

    def _keep_ahead(self, data: bytes) -> None:
        """Keep what comes behind a request, and read no more of it."""
        self._ahead = data
        self._pause_reading_for_buffer()

    def _reject(self, error: HttpProcessingError) -> None:
        """Answer bytes that are not HTTP."""
        self._is_last = True
        if self._request and self._request.payload:
            self._request.payload.set_exception(web.RequestPayloadError(error.message))
            return
        self._request = None
        said = error.message.partition("\n")[0][:200].rstrip(": ")
        if self.transport:
            answer = Answer.text(400, f"the request is not valid HTTP/1.1: {said}")
            self.transport.write(answer.head(is_last=True) + answer.body)
            self.transport.close()

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
        request = self._request
        if request is None:
            return
        if self._missing:
            request.payload = StreamReader(self, _BUFFER_BYTES, loop=self._loop)
            for piece in self._pieces:
                request.payload.feed_data(piece)
        self._pieces = []
        self._task = self._loop.create_task(self._answer(request))

    async def _answer(self, request: HttpRequest) -> None:
        """Answer a request that has to wait for something."""
        try:
            if self._paused and not await self._drain_output():
                return
            answer = await self._server.handler(request)
            # What is left of a body that was denied would be read as the next request.
            self._is_last = self._is_last or not request.is_complete
            self._write(answer, request)
            if request.payload and not request.is_complete:
                await _read_on(request.payload)
        finally:
            self._request = self._task = None
            if self.transport is None:
                self._server.remove(self)
        self._go_on()

    def _go_on(self) -> None:
        """Look at what the client has sent ahead."""
        if self._is_last:
            self._close_if_last()
            return
        # Of a body that was not read.
        if self._reading_paused:
            self.resume_reading()
        if self._ahead:
            # In a task: a client that sends ahead must not keep the others waiting for all of it.
            self.data_received(b"", at_once=False)
        # Not before all of it is answered, or a client could fill the memory with requests.
        if self._buffer_paused and (self._request is None or self._missing):
            self._resume_reading_for_buffer()

    def _write(self, answer: Answer, request: HttpRequest) -> None:
        """Write head and body in one piece."""
        if self.transport is None:
            return
        now = request.end or self._clock()
        self._is_last = self._is_last or now >= self.closes_at
        self._idle_until = now + self._server.keep_alive
        head = answer.head(is_last=self._is_last)
        self.transport.write(head if request.head.method == "HEAD" else head + answer.body)

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
