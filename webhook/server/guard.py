"""Before aiohttp: what a connection may cost until somebody has read a request of it.

aiohttp parses whatever comes, and keeps it until a handler reads it. This protocol stands between the transport and
aiohttp's `RequestHandler`. It passes everything on, and holds back what no handler has asked for:

    idle ── first byte ──▶ head ── empty line ──▶ request ── answer ──▶ idle
                                                     └── answer that closes ──▶ closing

* A head is held here until it is whole, for `HEAD_SECONDS` and `MAX_HEAD_BYTES` at most. aiohttp gets one at a time.
* Behind a head nothing goes on until its handler has begun and says how much it takes (`Guard.allow`); meanwhile the
  rest waits in the socket's buffer. Behind a bad head no handler begins, so nothing more is read. (aiohttp 3.14.5
  alone grows to 400 MB in three rounds of twelve connections that send a zero byte and go on sending.)
* Connections are counted by client, bytes too: where all connections together have too many, some of the client with
  most of them are dropped.

A handler finds its guard by `guard_of`.
"""

from __future__ import annotations

import asyncio
import ipaddress
import random
import time
from collections import Counter
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, cast

import msgspec
from aiohttp import web

from webhook.server.tls import client_name

if TYPE_CHECKING:
    from webhook.server.listener import Listener
    from webhook.server.senders import VerifiedToken

# What ends a head.
_END: Final = b"\r\n\r\n"
_EMPTY_LINES: Final = b"\r\n"
# The API server's has 300 bytes, and 1,500 with a token.
MAX_HEAD_BYTES: Final = 32 * 1024
# What may come before it is asked for. With less, nearly every request would pause its transport; and TLS ends with an
# error, which may cost the client its answer, where a transport is closed while it is paused.
_AHEAD_BYTES: Final = MAX_HEAD_BYTES
# What TLS decrypts and keeps of a connection whose reading is paused.
_TLS_BYTES: Final = 64 * 1024
# How long a head may take from its first byte on, and a handshake.
HEAD_SECONDS: Final = 10.0
# How long a client may leave answers lying before it gets no more of them.
STALLED_SECONDS: Final = 10.0
# How long to read on where the answer came before the end of the body: a client that still writes reads it only then.
LINGER_SECONDS: Final = 3.0
# How long the end of a connection may take.
CLOSE_SECONDS: Final = 1.0
# How often connections are looked at.
CHECK_SECONDS: Final = 0.25
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


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """What one listener takes.

    Attributes:
        per_client: connections of a client.
        connections: connections in all.
        keep_alive_seconds: an idle connection is closed after them.
        lifetime_seconds: an answer after them is the connection's last one, give or take `JITTER`.
        abort_seconds: a connection ends after them, whatever it does.
        body_bytes: of one body.
        counted_bytes: heads and everyday bodies in memory, which are counted as they come.
        reserved_bytes: larger bodies, whose memory is reserved before they come.
    """

    per_client: int = 16
    connections: int = 128
    keep_alive_seconds: float = 15.0
    lifetime_seconds: float = 45.0
    abort_seconds: float = 60.0
    body_bytes: int = 0
    counted_bytes: int = 4 * 1024 * 1024
    reserved_bytes: int = 0


class Phase(Enum):
    """Where a connection is in its present request.

    It is closing from its last answer on, or once its client has gone: what still comes is dropped, but for the rest of
    a body that aiohttp reads on.
    """

    IDLE = "idle"
    HEAD = "head"
    REQUEST = "request"
    CLOSING = "closing"


class Guard(asyncio.BufferedProtocol):
    """One connection, before aiohttp.

    Args:
        listener: the listener that accepted it.
        address: the client's IP address.

    Attributes:
        client: who it counts for, as `client_of` has it.
        opening: makes the connection, by a handshake where there is TLS; None: it is made.
        transport: None: before the handshake's end, and after the connection's.
        phase: where it is in its present request.
        started: when the head of the present request was whole, on the clock of `time.monotonic`.
        closes_at: an answer after this time is the connection's last one, on the same clock.
        counted_bytes: of heads and everyday bodies that it has in memory.
        length: of the present request's body, as its head says; None: it comes in chunks, which are denied unread.
        client_name: the common name in the client's verified certificate; empty: it has none.
        has_lost_bytes: whether the bytes of the present request were dropped, because all connections had too many.
        answering: the timeout that ends the handler's work when bytes are dropped, so that it can answer so; None: the
            connection ends then.
        settled_at: when its latest question about health is answered, on the running loop's clock.
        verified_token: what was found out about the token of its latest request.
    """

    def __init__(self, listener: Listener, address: str) -> None:
        self.listener: Final = listener
        self.client: Final = client_of(address)
        self.opening: asyncio.Task[Any] | None = None
        self.transport: asyncio.Transport | None = None
        self.phase = Phase.IDLE
        self.started = 0.0
        lifetime = listener.lifetime_seconds * random.uniform(1 - JITTER, 1 + JITTER)  # noqa: S311 - no secret
        self.closes_at = time.monotonic() + lifetime
        self.counted_bytes = 0
        self.length: int | None = 0
        self.client_name = ""
        self.has_lost_bytes = False
        self.answering: asyncio.Timeout | None = None
        self.settled_at = float("-inf")
        self.verified_token: VerifiedToken | None = None
        self._http: web.RequestHandler | None = None
        # What came, and is not passed on.
        self._held = bytearray()
        # Bytes of the present body that may be passed on, and those that have not come yet.
        self._allowance = self._missing = 0
        self._counts_body = True
        self._has_begun = self._is_last = False
        # Whether the transport reads, and whether aiohttp lets it.
        self._is_reading = self._is_let = True
        self._head_until = self._stalled_until = self._ends_at = float("inf")

    @property
    def is_idle(self) -> bool:
        """Whether no request is being read or answered."""
        return self.phase in (Phase.IDLE, Phase.HEAD)

    @property
    def is_stalled(self) -> bool:
        """Whether the client reads more slowly than it is answered."""
        return self._stalled_until < float("inf")

    @property
    def is_unread(self) -> bool:
        """Whether a head or body is still being read."""
        return self._missing != 0 or self.phase is Phase.HEAD

    # -- the transport's side ------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin, once the handshake is over."""
        # uvloop's transports have its methods, but are none of its kind.
        self.transport = cast("asyncio.Transport", transport)
        if transport.get_extra_info("ssl_object"):
            # Else TLS reads on while reading is paused, up to 256 KiB for each connection, which nothing counts. The
            # transports of asyncio and of uvloop have this method, and typeshed doesn't.
            transport.set_read_buffer_limits(high=_TLS_BYTES)  # type: ignore[attr-defined]
        self.client_name = client_name(transport)
        self._ends_at = time.monotonic() + self.listener.limits.abort_seconds
        # Before the first byte, too: it is 4 of a connection's 29 KiB, and closes the ones that never send anything.
        self._http = self.listener.request_handler()
        self._http.connection_made(cast("asyncio.Transport", _HttpTransport(self, self.transport)))

    def connection_lost(self, exc: BaseException | None) -> None:
        """Let go of everything; aiohttp cancels the handler, which gives back what it holds by `end`."""
        self.transport = None
        self._held.clear()
        if self._http:
            # Its handler gets it where it reads. Of TLS and of the network, too, it is no error of the server's own.
            gone = exc is None or isinstance(exc, ConnectionError)
            self._http.connection_lost(exc if gone else ConnectionResetError(str(exc)))
            self._http = None
        if not self._has_begun:
            self._release()
            self.phase = Phase.CLOSING
        self.listener.forget(self)

    def get_buffer(self, sizehint: int) -> memoryview:
        """Where the transport puts the next bytes, until it says so in the same turn of the loop."""
        return self.listener.received

    def buffer_updated(self, nbytes: int) -> None:
        """Hold what came, and pass on what may go on."""
        if self.phase is Phase.CLOSING and not self._allowance:
            return
        self._held += self.listener.received[:nbytes]
        if self.is_idle or self._counts_body:
            self._count(nbytes)
        self._pass_on()

    def eof_received(self) -> None:
        """The client sends no more, and the transport closes itself."""
        if self._http:
            self._http.eof_received()

    def pause_writing(self) -> None:
        """The client reads more slowly than it is answered."""
        self._stalled_until = time.monotonic() + STALLED_SECONDS
        if self._http:
            self._http.pause_writing()

    def resume_writing(self) -> None:
        """The client has read most of its answers."""
        self._stalled_until = float("inf")
        if self._http:
            self._http.resume_writing()

    # -- the handler's side --------------------------------------------------------------------------------------------

    def begin(self, request: web.BaseRequest) -> None:
        """A handler has begun to answer a request, of whose body it takes nothing yet."""
        self._has_begun = True
        self._head_until = float("inf")
        is_chunked = "Transfer-Encoding" in request.headers
        self._missing = request.content_length or 0
        self.length = None if is_chunked else self._missing
        self._is_last = is_chunked or "Upgrade" in request.headers or request.method == "CONNECT"
        self.listener.in_flight += 1

    def allow(self, count: int, *, counted: bool = True) -> None:
        """Let so many more bytes of the body go on to aiohttp.

        Args:
            count: bytes.
            counted: whether they are counted as they come; False: memory was reserved for them.
        """
        if not counted:
            self._release()
        self._counts_body = counted
        self._allowance += count
        self._pass_on()

    def let_read(self, let: bool) -> None:
        """Whether aiohttp lets the transport read: it does not where a handler is slow to take a body."""
        self._is_let = let
        self._read()

    def end(self) -> bool:
        """The answer to the present request is known; whether it is the connection's last one.

        It is, too, where the body has not come whole, or comes in chunks.
        """
        self.answering = None
        self._has_begun = False
        self._counts_body = True
        self._release()
        self.listener.in_flight -= 1
        now = time.monotonic()
        is_last = self._is_last or self.has_lost_bytes or self._missing != 0 or now >= self.closes_at
        if not is_last and self.transport:
            self.phase = Phase.IDLE
            self._allowance = 0
            self._count(len(self._held))
            self._pass_on()
            return False
        self.phase = Phase.CLOSING
        # aiohttp reads on for a while, and so the client can read its answer; not without an end. It keeps none of it.
        self._counts_body = False
        self._allowance = min(self._missing, 2 * self.listener.limits.body_bytes + MAX_HEAD_BYTES)
        self._ends_at = min(self._ends_at, now + LINGER_SECONDS + CLOSE_SECONDS)
        self._pass_on()
        return True

    # -- the listener's side -------------------------------------------------------------------------------------------

    def check(self, now: float) -> None:
        """End the connection where its time is over; ``now`` is on the clock of `time.monotonic`."""
        if now >= min(self._head_until, self._stalled_until, self._ends_at):
            self.abort()
        elif self.transport and self.transport.is_closing():
            # What was written may lie there for ever.
            self._ends_at = min(self._ends_at, now + CLOSE_SECONDS)

    def abort(self) -> None:
        """End the connection, whatever it is doing."""
        if self.transport:
            self.transport.abort()
        elif self.opening:
            self.opening.cancel()

    def retire(self) -> None:
        """End as soon as no request is being read or answered."""
        self.closes_at = 0.0
        if self.is_idle and self.transport:
            self._ends_at = min(self._ends_at, time.monotonic() + CLOSE_SECONDS)
            self.transport.close()

    def drop_bytes(self) -> None:
        """Drop the bytes of its present request: its handler answers so, and without one the connection ends."""
        self._release()
        self._held.clear()
        if self.answering is None:
            self.abort()
            return
        self.has_lost_bytes = True
        self._counts_body = False
        self.answering.reschedule(asyncio.get_running_loop().time())

    # -- within --------------------------------------------------------------------------------------------------------

    def _pass_on(self) -> None:
        if self.is_idle and self._held:
            self._pass_head_on()
        if self.phase is Phase.CLOSING and not self._allowance:
            self._held.clear()
        self._read()
        http = self._http
        if self._allowance and self._held and http:
            piece = bytes(memoryview(self._held)[: self._allowance])
            del self._held[: len(piece)]
            self._allowance -= len(piece)
            self._missing -= len(piece)
            http.data_received(piece)

    def _pass_head_on(self) -> None:
        if self._held[0] in _EMPTY_LINES:
            # Before a request they say nothing (RFC 9112, 2.2), and two of them are no end of a head.
            before = len(self._held)
            self._held = self._held.lstrip(_EMPTY_LINES)
            self._count(len(self._held) - before)
        end = self._held.find(_END, 0, MAX_HEAD_BYTES) + len(_END)
        if end < len(_END):
            if len(self._held) >= MAX_HEAD_BYTES:
                self._reject()
            elif self.phase is Phase.IDLE:
                self.phase = Phase.HEAD
                self._head_until = time.monotonic() + HEAD_SECONDS
            return
        head = bytes(self._held[:end])
        del self._held[:end]
        self.phase = Phase.REQUEST
        self.started = time.monotonic()
        # Until its handler begins. If it is a bad head, aiohttp says so, and none does.
        self._head_until = self.started + HEAD_SECONDS
        self._missing = self._allowance = 0
        if self._http:
            self._http.data_received(head)

    def _reject(self) -> None:
        """Answer a head that does not end, which aiohttp never sees."""
        self._held.clear()
        self._release()
        self.phase = Phase.CLOSING
        self._ends_at = time.monotonic() + CLOSE_SECONDS
        if self.transport:
            body = f"the request is not valid HTTP/1.1: its head is longer than {MAX_HEAD_BYTES} bytes\n".encode()
            head = "HTTP/1.1 431 Request Header Fields Too Large\r\nContent-Type: text/plain; charset=utf-8\r\n"
            self.transport.write(f"{head}Connection: close\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)
            self.transport.close()

    def _read(self) -> None:
        """Read on, or let what comes wait in the socket's buffer."""
        wanted = self._is_let and (self.is_idle or len(self._held) <= self._allowance + _AHEAD_BYTES)
        if wanted == self._is_reading or self.transport is None or self.transport.is_closing():
            return
        self._is_reading = wanted
        if wanted:
            self.transport.resume_reading()
        else:
            self.transport.pause_reading()

    def _count(self, count: int) -> None:
        """Count bytes; where there are too many in all, some of one client are dropped."""
        self.counted_bytes += count
        self.listener.counted_bytes += count
        if count > 0 and self.listener.counted_bytes > self.listener.limits.counted_bytes:
            self.listener.drop_bytes(self)

    def _release(self) -> None:
        self._count(-self.counted_bytes)


class _HttpTransport:
    """The transport as aiohttp has it, which resumes reading at every end of a body, also what the guard has paused."""

    def __init__(self, guard: Guard, transport: asyncio.Transport) -> None:
        self._guard: Final = guard
        self._transport: Final = transport

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def pause_reading(self) -> None:
        self._guard.let_read(False)

    def resume_reading(self) -> None:
        self._guard.let_read(True)


def guard_of(request: web.BaseRequest) -> Guard:
    """The guard of the connection that a request came on.

    Raises:
        ConnectionResetError: the client has gone.
    """
    # aiohttp has the guard's `_HttpTransport`, which answers for the real transport, whose protocol is the guard.
    transport = request.transport
    guard = transport.get_protocol() if transport else None
    if not isinstance(guard, Guard):
        raise ConnectionResetError("the client has gone")
    return guard


def client_of(address: str) -> str:
    """Who an IP address counts for: itself, or the 64 bits of an IPv6 one whose rest a machine chooses as it likes."""
    if ":" not in address:
        return address
    return str(ipaddress.IPv6Network((address.partition("%")[0], 64), strict=False))


class Client(msgspec.Struct):
    """One client, and a leaky bucket of its requests that cost something.

    Attributes:
        burst: requests that need not wait.
        per_second: requests a second after that.
        due: when all requests so far have had their time, on the running loop's clock.
        connections: its own, the oldest first.
    """

    burst: int
    per_second: float
    due: float = 0.0
    connections: dict[Guard, None] = {}

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

    def add(self, guard: Guard) -> None:
        """Count a connection; where that is one too many, another ends."""
        client = self._client(guard.client)
        client.connections[guard] = None
        self.count += 1
        if len(client.connections) <= self._per_client:
            if self.count <= self._total:
                return
            client = max(self._clients.values(), key=lambda each: len(each.connections))
        victim = next((each for each in client.connections if each.is_idle), next(iter(client.connections)))
        # Now, not when the loop comes to it: more may come before.
        self.remove(victim)
        victim.abort()

    def remove(self, guard: Guard) -> None:
        """Forget a connection, if it is counted."""
        client = self._clients.get(guard.client)
        if client and guard in client.connections:
            del client.connections[guard]
            self.count -= 1

    def connections(self) -> list[Guard]:
        """All connections that are counted, also those in their handshake."""
        return [guard for client in self._clients.values() for guard in client.connections]

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


def most_burdened(guards: list[Guard]) -> Guard | None:
    """Of the client for which most bytes are kept, the connection that loses them: one that is still read, the largest.

    Where nothing of it is unread, it loses the largest of those that wait for their answers.
    """
    totals: Counter[str] = Counter()
    for guard in guards:
        totals[guard.client] += guard.counted_bytes
    client = max(totals, key=totals.__getitem__, default="")
    mine = [guard for guard in guards if guard.client == client and guard.counted_bytes]
    return max(mine, key=lambda guard: (guard.is_unread, guard.counted_bytes), default=None)
