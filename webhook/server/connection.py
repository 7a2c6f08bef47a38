"""Connections that know how old they may get, and whether the client at their other end may ask anything."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Collection
from typing import Any, Final

from aiohttp import web

from webhook.server.tls import client_name

# A client keeps its connections to the replicas that were there when it made them: recycled by age, they spread over
# those that are there now. A handshake in five minutes costs nobody anything.
LIFETIME: Final = 300.0
# So that connections that began together don't end together.
JITTER: Final = 0.2
# How long a client may leave answers lying before it gets no more of them.
STALLED: Final = 10.0


class Connection(web.RequestHandler):
    """One connection.

    Attributes:
        closes_at: on the loop's clock; an answer given later is the last one.
        refusal: what every request is told; empty: the client may ask.
        verified: the client has proved by a certificate that it is one of those that may ask. Without that, what a
            review says of its sender is anybody's word.
    """

    __slots__ = ("_clients", "closes_at", "refusal", "verified")

    def __init__(self, closes_at: float, clients: Collection[str], *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.closes_at = closes_at
        self.refusal = ""
        self.verified = False
        self._clients = clients

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Look at the client's certificate, which is the same for all requests of a connection."""
        if self._clients:
            name = client_name(transport)
            self.verified = name in self._clients
            if not self.verified:
                got = f"{name[:100]} is none of those" if name else "the client has none"
                self.refusal = (
                    f"this webhook answers only clients with a certificate of {' or '.join(sorted(self._clients))}, and"
                    f" {got}; give the API server one with --admission-control-config-file"
                )
        super().connection_made(transport)

    async def drain_output(self) -> bool:
        """Wait until the client has taken most of what was written; False: it didn't in time, and is cut off.

        Without this, one that sends requests and never reads would fill our memory with answers.
        """
        try:
            async with asyncio.timeout(STALLED):
                await self._drain_helper()
        except (TimeoutError, ConnectionError):
            if self.transport:
                self.transport.abort()
            return False
        return True


class Connections(web.Server):
    """aiohttp's low-level server, with our connections.

    Args:
        clients: names that a client's certificate may have; empty: no certificate is asked for.
        lifetime: of a connection, in seconds, give or take `JITTER`.
    """

    def __init__(
        self,
        handler: Callable[[Any], Awaitable[web.StreamResponse]],
        request_factory: Callable[..., web.BaseRequest] | None = None,
        *,
        clients: Collection[str] = (),
        lifetime: float = LIFETIME,
        jitter: Callable[[float, float], float] = random.uniform,
        **options: Any,
    ) -> None:
        super().__init__(handler, request_factory=request_factory, **options)
        self._options: Final = options
        self._clients: Final = clients
        self._lifetime = lifetime
        self._jitter: Final = jitter

    def __call__(self) -> Connection:
        """The handler of a new connection."""
        loop = asyncio.get_running_loop()
        age = self._lifetime * self._jitter(1 - JITTER, 1 + JITTER)
        return Connection(loop.time() + age, self._clients, self, loop=loop, **self._options)

    def recycle(self) -> None:
        """Let every connection that is open end with its next answer."""
        for connection in self.connections:
            assert isinstance(connection, Connection)
            connection.closes_at = 0.0

    def drain(self) -> None:
        """Let every connection, also those to come, end with its next answer."""
        self._lifetime = 0.0
        self.recycle()
