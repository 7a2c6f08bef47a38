"""All connections of a listener: how long they live, and how they end."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Collection
from typing import Any, Final

from aiohttp import web

from webhook.server.connection import Connection
from webhook.server.exchange import Answer, HttpRequest

# A client keeps its connections to the replicas that were there when it made them: recycled by age, they spread over
# those that are there now. A handshake in five minutes costs no client much.
LIFETIME: Final = 300.0
# So that connections that began together don't end together.
JITTER: Final = 0.2


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
