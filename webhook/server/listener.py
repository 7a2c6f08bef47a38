"""A listener: an address, its connections, and the aiohttp application that answers their requests."""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
import ssl
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any, Final

from aiohttp import web

from webhook.errors import InputError
from webhook.server.answers import RequestHandler, end_expectation, name_server, through_guard
from webhook.server.fair_queue import FairQueue
from webhook.server.guard import (
    CHECK_SECONDS,
    CLOSE_SECONDS,
    HEAD_SECONDS,
    LINGER_SECONDS,
    MAX_HEAD_BYTES,
    ConnectionLimiter,
    Guard,
    Limits,
    Phase,
    most_burdened,
)

# What waits in the socket's buffer, and is read at once.
_RECEIVED_BYTES: Final = 64 * 1024
_OUT_OF_FILES: Final = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
# How long requests that have begun may take at the end.
SHUTDOWN_SECONDS: Final = 10.0


_logger: Final = logging.getLogger("webhook.server.http")


class Listener:
    """One listener, and all of its connections.

    Connections are accepted here and not by ``loop.create_server``: a client's connections count from their first
    packet on, and with ``create_server`` nobody knows whose they are before the handshake is over. ``start_tls`` on an
    accepted connection would lose what the client has sent by then: uvloop reads whether or not reading is paused.

    Args:
        application: answers its requests. It is changed: it gets the middleware and the signals that a guard needs, so
            one application is for one listener.
        limits: what it takes.

    Attributes:
        open: the connections that are open.
        lifetime_seconds: of connections that are made from now on, as in `Limits`.
        counted_bytes: of heads and everyday bodies in memory.
        reserved: the bytes that larger bodies may reserve, shared by clients.
        received: what comes on any connection, until it is held. With a buffer of each read's own, uvloop 0.23 asks the
            operating system for 256 KiB each time.
        in_flight: requests whose handlers are at work, also where the client has gone.
        address: ``HOST:PORT`` once it listens.
    """

    def __init__(self, application: web.Application, limits: Limits) -> None:
        application.middlewares.insert(0, through_guard)
        application.on_response_prepare.extend((name_server, end_expectation))
        self.limits: Final = limits
        self.lifetime_seconds = limits.lifetime_seconds
        self.received: Final = memoryview(bytearray(_RECEIVED_BYTES))
        self.counted_bytes = 0
        self.reserved: Final = FairQueue(limits.reserved_bytes)
        self.limiter: Final = ConnectionLimiter(limits.per_client, limits.connections)
        self.in_flight = 0
        self.address = ""
        # It has no site, since those would accept connections: it prepares the application, and ends it.
        self._runner: Final = web.AppRunner(
            application,
            handle_signals=False,
            # Who has gone gets no answer: nothing is read, and no seat or memory held, for one.
            handler_cancellation=True,
            shutdown_timeout=CLOSE_SECONDS,
        )
        self._options: Final[Mapping[str, Any]] = {
            "access_log": None,
            "logger": _logger,
            "keepalive_timeout": limits.keep_alive_seconds,
            "lingering_time": LINGER_SECONDS,
            # The guard bounds a head as a whole.
            "max_line_size": MAX_HEAD_BYTES,
            "max_field_size": MAX_HEAD_BYTES,
            # A compressed body is denied by its head, not unpacked.
            "auto_decompress": False,
        }
        self._listening: list[socket.socket] = []
        self._checking: asyncio.TimerHandle | None = None

    @property
    def open(self) -> list[Guard]:
        """The connections whose handshake is over."""
        return [guard for guard in self.limiter.connections() if guard.transport]

    @property
    def request_bytes(self) -> int:
        """Bytes of heads and bodies in memory, and those that large bodies on their way have reserved."""
        return self.counted_bytes + self.reserved.taken

    def request_handler(self) -> web.RequestHandler:
        """Aiohttp's side of a new connection."""
        assert self._runner.server
        return RequestHandler(self._runner.server, loop=asyncio.get_running_loop(), **self._options)

    def forget(self, guard: Guard) -> None:
        """A connection is gone."""
        self.limiter.remove(guard)

    def drop_bytes(self, newcomer: Guard) -> None:
        """Drop bytes of the client that has most in memory."""
        (most_burdened(self.open) or newcomer).drop_bytes()

    def recycle(self) -> None:
        """Let every connection that is open, or in its handshake, end with its next answer."""
        for guard in self.limiter.connections():
            guard.closes_at = 0.0

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
        await self._runner.setup()
        self._check()
        self._listening = sockets
        for each in sockets:
            self._accept_from(each, tls)

    async def shutdown(self, seconds: float) -> None:
        """Take no new connections, let requests that have begun end within so many seconds, then close."""
        for each in self._listening:
            asyncio.get_running_loop().remove_reader(each)
            each.close()
        self._listening = []
        for guard in self.limiter.connections():
            guard.retire()
        deadline = time.monotonic() + seconds
        while self._is_busy() and time.monotonic() < deadline:  # noqa: ASYNC110 - an event would be one for each request
            await asyncio.sleep(0.02)
        left = self.limiter.connections()
        opening = [guard.opening for guard in left if guard.opening]
        for guard in left:
            guard.abort()
        if opening:
            await asyncio.wait(opening)
        # aiohttp has cancelled handlers whose clients have gone. One that does not end keeps nobody waiting for long.
        await self._runner.cleanup()
        if self._checking:
            self._checking.cancel()

    def _is_busy(self) -> bool:
        # An answer that is the last one is written while its connection ends.
        return self.in_flight > 0 or any(guard.phase in (Phase.REQUEST, Phase.CLOSING) for guard in self.open)

    def _check(self) -> None:
        """End connections whose time is over, now and after every `CHECK_SECONDS`."""
        self._checking = asyncio.get_running_loop().call_later(CHECK_SECONDS, self._check)
        now = time.monotonic()
        for guard in self.open:
            guard.check(now)

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
        guard = Guard(self, str(peer[0]))
        timeouts = {"ssl_handshake_timeout": HEAD_SECONDS, "ssl_shutdown_timeout": CLOSE_SECONDS} if tls else {}
        opening = loop.connect_accepted_socket(lambda: guard, accepted, ssl=tls, **timeouts)
        guard.opening = loop.create_task(opening)
        guard.opening.add_done_callback(partial(self._opened, guard, accepted))
        self.limiter.add(guard)

    def _opened(self, guard: Guard, accepted: socket.socket, opening: asyncio.Task[Any]) -> None:
        """A handshake has ended; one that failed, took too long, or was cancelled by the limiter, makes no connection.

        Raises:
            Exception: a bug, which the loop reports.
        """
        guard.opening = None
        if guard.transport is None:
            accepted.close()
            self.forget(guard)
        elif opening.cancelled():
            # In the turn of the loop in which the connection was made: uvloop then closes it without a word.
            guard.transport.abort()
            guard.connection_lost(None)
        error = None if opening.cancelled() else opening.exception()
        if error and not isinstance(error, OSError):
            raise error


@asynccontextmanager
async def serving(
    listener: Listener, address: str, tls: ssl.SSLContext | None, what: str, seconds: float
) -> AsyncIterator[str]:
    """A listener, as `Listener.listen` has it, for as long as the context lasts; gives its ``HOST:PORT``.

    Requests that have begun at the end have so many seconds to end.
    """
    await listener.listen(address, tls, what)
    try:
        yield listener.address
    finally:
        await listener.shutdown(seconds)


def split_address(address: str) -> tuple[str, int]:
    """Host and port of ``HOST:PORT``; an IPv6 address stands in brackets. The settings have checked the form."""
    host, _, port = address.rpartition(":")
    return host.strip("[]"), int(port)


async def _bind(host: str, port: int) -> list[socket.socket]:
    """Listening sockets of all addresses of a host; an `OSError` where there is none, or one is in use."""
    resolved = await asyncio.get_running_loop().getaddrinfo(
        host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )
    sockets: list[socket.socket] = []
    try:
        for family, kind, protocol, _, address in dict.fromkeys(resolved):
            try:
                each = socket.socket(family, kind, protocol)
            except OSError:
                # This host has no IPv6.
                continue
            sockets.append(each)
            each.setblocking(False)
            each.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            # Accepted sockets have the options of the listening one (tcp(7), and Linux's sk_clone_lock). TLS keeps a
            # buffer as large as what was ever read at once, for as long as a connection is open.
            each.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _RECEIVED_BYTES)
            # The loopback's segments of 64 KiB fit that buffer only where it is empty: the sender would wait
            # seconds for a window that does not open (RFC 9293, 3.8.6.2: silly windows are avoided).
            with suppress(OSError):
                each.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, _RECEIVED_BYTES // 4)
            if family == socket.AF_INET6:
                each.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            each.bind(address)
            each.listen(1024)
    except OSError:
        for each in sockets:
            each.close()
        raise
    if not sockets:
        raise OSError(errno.EADDRNOTAVAIL, "no address")
    return sockets
