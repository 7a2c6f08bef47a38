"""A real server on loopback: TLS, real sockets, the cluster in memory."""

from __future__ import annotations

import asyncio
import io
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import aiohttp
import pytest

from certs.pem import Pair
from certs.source import self_signed
from tests import builders
from tests.builders import known, vmi
from tests.review.memory import KeptInMemory, MemoryCluster
from tests.server.raw_requests import BODY
from tests.waiting import break_off
from webhook.facts import Key
from webhook.review.endpoints import BY_PATH
from webhook.review.reviewer import Observer, Reviewer
from webhook.server import tls
from webhook.server.app import LIMITS, App
from webhook.server.edge import Application, Connection, Server, TrafficObserver
from webhook.server.request import Answer, HttpRequest


@dataclass
class CountedServer(TrafficObserver):
    """The traffic that the server reported."""

    requests: list[tuple[str, int]] = field(default_factory=list)
    crashes: list[BaseException] = field(default_factory=list)

    def on_served(self, path: str, status: int, seconds: float) -> None:
        assert seconds >= 0
        self.requests.append((path, status))

    def on_crash(self, path: str, error: BaseException) -> None:
        self.crashes.append(error)


class SlowCluster(MemoryCluster):
    """A cluster whose look-ups wait until a test releases them."""

    def __init__(self, facts: dict[Key[Any], object], peeked: set[Key[Any]] | None = None) -> None:
        super().__init__(facts, peeked)
        self.release = asyncio.Event()
        self.waiting = 0

    async def read(self, key: Key[Any], deadline: float) -> Any:
        self.waiting += 1
        await self.release.wait()
        return await super().read(key, deadline)


@dataclass
class ServedApp:
    """A server, and a client that trusts it."""

    app: App
    reviewer: Reviewer
    counted: CountedServer
    address: str
    pair: Pair
    trust: ssl.SSLContext
    client: aiohttp.ClientSession
    kept: KeptInMemory
    server: Server

    async def post(self, path: str, body: bytes, **headers: str) -> tuple[int, str]:
        async with self.client.post(
            f"https://{self.address}{path}",
            data=io.BytesIO(body),
            headers={"Content-Type": "application/json"} | headers,
        ) as answer:
            return answer.status, await answer.text()


Start = Callable[..., Awaitable[ServedApp]]


@pytest.fixture
async def start() -> AsyncIterator[Start]:
    """Starts servers that end with the test."""
    ends: list[Callable[[], Awaitable[None]]] = []

    async def run(
        cluster: MemoryCluster | None = None,
        max_in_flight: int = 64,
        swappable: tls.ReloadableTLSContext | None = None,
        clients: tuple[str, ...] = (),
        observer: Observer | None = None,
        kind: type[App] = App,
    ) -> ServedApp:
        kept = KeptInMemory()
        reviewer = Reviewer(cluster or MemoryCluster(known(vmi())), builders.settings, kept, observer or kept)
        counted = CountedServer()
        app = kind(reviewer, BY_PATH, counted, max_in_flight, clients)
        pair = self_signed(["localhost", "127.0.0.1"])
        server = app.server()
        listener = (swappable or tls.ReloadableTLSContext(pair.certificate, pair.key)).listener
        await server.listen("127.0.0.1:0", listener, "--listen")
        trust = ssl.create_default_context(cadata=pair.authority.decode())
        client = aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=trust))
        ends.extend((client.close, lambda: server.shutdown(0.0)))
        return ServedApp(app, reviewer, counted, server.address, pair, trust, client, kept, server)

    yield run
    for end in ends:
        await end()
    await break_off()


@pytest.fixture
async def server(start: Start) -> ServedApp:
    """A server over a cluster in which one VMI is known."""
    return await start()


class PieceTransport(asyncio.Transport):
    """A transport that keeps all written bytes, and counts the writes."""

    def __init__(self) -> None:
        super().__init__()
        self.written = b""
        self.reads = True
        self.closed = False

    def write(self, data: Any) -> None:
        self.written += data

    def pause_reading(self) -> None:
        self.reads = False

    def resume_reading(self) -> None:
        self.reads = True

    def close(self) -> None:
        self.closed = True

    abort = close

    def is_closing(self) -> bool:
        return self.closed

    def can_write_eof(self) -> bool:
        return False

    @property
    def answers(self) -> int:
        return self.written.count(b"HTTP/1.1 200 OK\r\n")


class PieceCase(Application):
    """A connection, and what answers."""

    def __init__(self) -> None:
        self.release = asyncio.Event()
        self.slow: list[HttpRequest] = []
        self.at_once = True
        self.refusals = 0
        self.server = Server(self, LIMITS)
        self.connection: Connection = Connection(self.server)
        self.transport = PieceTransport()
        self.connection.connection_made(self.transport)

    def receive(self, data: bytes, connection: Connection | None = None) -> None:
        """Bytes come, on a connection or on the one, as a transport brings them."""
        one = connection or self.connection
        while data:
            place = one.get_buffer(-1)
            count = min(len(place), len(data))
            place[:count], data = data[:count], data[count:]
            one.buffer_updated(count)

    def refuse(self, request: HttpRequest) -> Answer | None:
        self.refusals += 1
        return Answer(403, b"{}") if request.head.path == "/refused" else None

    def patience(self, request: HttpRequest) -> float:
        return 10.0

    async def answer(self, request: HttpRequest) -> Answer:
        self.slow.append(request)
        await self.release.wait()
        return Answer(200, b"{}")

    def answer_at_once(self, request: HttpRequest) -> Answer | None:
        assert request.body in (BODY, b"")
        return Answer(200, b"{}") if self.at_once else None


@pytest.fixture
async def case() -> PieceCase:
    return PieceCase()
