"""Connections of clients that are not the API server: few at the same time, for a short while, at a measured pace.

Health, metrics and explanations share a processor with reviews. A client that may open a connection there, or a
hundred, gets a bounded part of it, and none can keep out the others: where there are too many, the oldest connection of
the client with the most of them ends. A kubelet's probe, which is over in a moment, always gets through.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Final

from aiohttp import web

# A scraper or a probe needs one connection at a time; several replicas of a scraper behind one address need a few.
MAX_CONNECTIONS_PER_CLIENT: Final = 16
MAX_CONNECTIONS: Final = 128
# Idle connections end after this; one that never asks, or never reads, after its lifetime.
KEEP_ALIVE_SECONDS: Final = 15.0
LIFETIME_SECONDS: Final = 60.0

# Requests that cost something: this many at once, and then at that pace, for each client and for all together.
_BURST: Final = 20
_PER_SECOND: Final = 10
_BURST_OF_ALL: Final = 100
_PER_SECOND_OF_ALL: Final = 200
# A request that would wait for longer is answered with 429: turns that are booked but never taken must not keep others
# out.
_PATIENCE_SECONDS: Final = 2.0
# Clients that are remembered for their pace.
_MAX_CLIENTS: Final = 1024


class TooManyRequests(Exception):  # noqa: N818 - an answer
    """A client that is to come again later."""

    sentence: Final = "this client asks more often than it is answered; try again"


@dataclass(slots=True)
class Pace:
    """A leaky bucket: ``burst`` requests at once, then ``per_second`` requests a second.

    Attributes:
        burst: requests that need not wait.
        per_second: requests a second after that.
        due: when all requests so far have had their time, on the running loop's clock.
    """

    burst: int
    per_second: float
    due: float = 0.0

    def delay(self, now: float) -> float | None:
        """The seconds that the next one must wait, which counts from now on; None: too many, and it does not count."""
        due = max(self.due, now) + 1 / self.per_second
        delay = max(0.0, due - now - self.burst / self.per_second)
        if delay > _PATIENCE_SECONDS:
            return None
        self.due = due
        return delay


@dataclass(slots=True)
class _Guest:
    """One address.

    Attributes:
        guests: its connections, the oldest first.
    """

    pace: Pace = field(default_factory=lambda: Pace(_BURST, _PER_SECOND))
    guests: dict[Guest, None] = field(default_factory=dict)


class Guest(web.RequestHandler):
    """One connection.

    Args:
        guests: the server that it belongs to.
        *arguments: as for aiohttp's ``RequestHandler``.
        **options: as for aiohttp's ``RequestHandler``.

    Attributes:
        client: the client's IP address; empty: it is not known.
    """

    __slots__ = ("_end", "_guests", "asked_at", "client")

    def __init__(self, guests: Guests, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._guests = guests
        self._end: asyncio.TimerHandle | None = None
        self.asked_at = float("-inf")
        self.client = ""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take one of the places, if need be that of another connection."""
        super().connection_made(transport)
        peer = transport.get_extra_info("peername")
        self.client = str(peer[0]) if peer else ""
        self._end = asyncio.get_running_loop().call_later(LIFETIME_SECONDS, self.cut)
        self._guests.add(self)

    def connection_lost(self, exc: BaseException | None) -> None:
        """Return the connection's place."""
        if self._end:
            self._end.cancel()
        self._guests.remove(self)
        super().connection_lost(exc)

    def cut(self) -> None:
        """End the connection, whatever it is doing."""
        if self.transport:
            self.transport.abort()


class Guests(web.Server):
    """aiohttp's low-level server, for connections of clients that are not the API server.

    Args:
        handler: answers a request.

    Attributes:
        ended: connections that were ended to make room.
    """

    def __init__(self, handler: Callable[[Any], Awaitable[web.StreamResponse]]) -> None:
        self._options: Final = {"access_log": None, "keepalive_timeout": KEEP_ALIVE_SECONDS}
        super().__init__(handler, **self._options)  # type: ignore[arg-type]
        self._clients: Final[dict[str, _Guest]] = {}
        self._pace: Final = Pace(_BURST_OF_ALL, _PER_SECOND_OF_ALL)
        self._count = 0
        self.ended = 0

    def __call__(self) -> Guest:
        """The handler of a new connection."""
        return Guest(self, self, loop=asyncio.get_running_loop(), **self._options)

    def add(self, guest: Guest) -> None:
        """A connection is there; where that is one too many, another ends."""
        self._client(guest.client).guests[guest] = None
        self._count += 1
        mine = self._clients[guest.client]
        if len(mine.guests) > MAX_CONNECTIONS_PER_CLIENT:
            self._end_oldest(mine)
        elif self._count > MAX_CONNECTIONS:
            self._end_oldest(max(self._clients.values(), key=lambda client: len(client.guests)))

    def remove(self, guest: Guest) -> None:
        """A connection has ended."""
        client = self._clients.get(guest.client)
        if client and client.guests.pop(guest, self) is None:
            self._count -= 1

    async def turn(self, guest: Guest) -> bool:
        """Wait until a request that costs something has its turn; False: it has none."""
        now = asyncio.get_running_loop().time()
        mine = self._client(guest.client).pace.delay(now)
        # One client that asks too often takes nothing of what is there for all.
        shared = None if mine is None else self._pace.delay(now)
        if mine is None or shared is None:
            # An answer at once would be the next request at once.
            await asyncio.sleep(_PATIENCE_SECONDS)
            return False
        if delay := max(mine, shared):
            await asyncio.sleep(delay)
        return True

    def _end_oldest(self, client: _Guest) -> None:
        oldest = next(iter(client.guests))
        self.ended += 1
        # Now, not when the loop comes to it: more may come before.
        self.remove(oldest)
        oldest.cut()

    def _client(self, address: str) -> _Guest:
        found = self._clients.get(address)
        if found is None:
            if len(self._clients) >= _MAX_CLIENTS:
                self._forget()
            found = self._clients[address] = _Guest()
        return found

    def _forget(self) -> None:
        """Forget clients without a connection; at most `MAX_CONNECTIONS` remain."""
        for address in [address for address, client in self._clients.items() if not client.guests]:
            del self._clients[address]


async def turn(request: web.BaseRequest) -> None:
    """Wait until a request that costs something has its turn.

    Raises:
        TooManyRequests: it has none.
    """
    guest = request.protocol
    if isinstance(guest, Guest) and not await guest._guests.turn(guest):  # noqa: SLF001 - of this module
        raise TooManyRequests


async def settle(request: web.BaseRequest, seconds: float) -> None:
    """Wait until so many seconds have passed since this connection's last request: the first is answered at once."""
    guest = request.protocol
    if isinstance(guest, Guest):
        loop = asyncio.get_running_loop()
        delay = guest.asked_at + seconds - loop.time()
        guest.asked_at = loop.time() + max(0.0, delay)
        if delay > 0:
            await asyncio.sleep(delay)
