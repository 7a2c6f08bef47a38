"""A real server on loopback: TLS, real sockets, the cluster in memory; its clients, and what they get."""

from __future__ import annotations

import asyncio
import io
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import aiohttp
import pytest
from aiohttp import web
from aiohttp.typedefs import Middleware

from certs.pem import Pair
from certs.source import self_signed
from tests import builders
from tests.builders import known, vmi
from tests.review.memory import KeptInMemory, MemoryCluster
from tests.server.raw_requests import BODY, PODS, head
from tests.waiting import PATIENCE, break_off, until
from webhook.facts import Key
from webhook.review.endpoints import BY_PATH
from webhook.review.reviewer import Observer, Reviewer
from webhook.server import tls
from webhook.server.answers import TrafficObserver
from webhook.server.app import ReviewApp
from webhook.server.listener import Listener, split_address
from webhook.server.runtime.serve import admin_listener

REQUEST = head(len(BODY)) + BODY
LAST = head(len(BODY), extra="Connection: close\r\n") + BODY
Stream = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@asynccontextmanager
async def working(work: Coroutine[Any, Any, None]) -> AsyncIterator[asyncio.Task[None]]:
    """A task for as long as the context lasts."""
    task = asyncio.create_task(work)
    try:
        yield task
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


@dataclass
class CountedServer(TrafficObserver):
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

    app: ReviewApp
    reviewer: Reviewer
    counted: CountedServer
    address: str
    pair: Pair
    trust: ssl.SSLContext
    client: aiohttp.ClientSession
    kept: KeptInMemory
    server: Listener

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
        middlewares: Sequence[Middleware] = (),
    ) -> ServedApp:
        kept = KeptInMemory()
        reviewer = Reviewer(cluster or MemoryCluster(known(vmi())), builders.settings, kept, observer or kept)
        counted = CountedServer()
        app = ReviewApp(reviewer, BY_PATH, counted, max_in_flight, clients, middlewares)
        pair = self_signed(["localhost", "127.0.0.1"])
        server = app.listener
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


class RawAnswer(NamedTuple):
    """An answer: its head as text, and its body."""

    head: str
    body: bytes

    @property
    def status(self) -> int:
        return int(self.head.split()[1])

    @property
    def is_last(self) -> bool:
        return "connection: close" in self.head.lower()


async def connect(server: ServedApp, trust: ssl.SSLContext | None = None, source: str = "127.0.0.1") -> Stream:
    host, port = split_address(server.address)
    at: dict[str, Any] = {"ssl": trust or server.trust, "server_hostname": "localhost", "local_addr": (source, 0)}
    return await asyncio.open_connection(host, port, **at)


async def ask(stream: Stream, request: bytes = REQUEST) -> RawAnswer:
    """The answer to a request on a connection that stays open."""
    stream[1].write(request)
    text = (await stream[0].readuntil(b"\r\n\r\n")).decode()
    length = next(line for line in text.splitlines() if line.startswith("Content-Length"))
    return RawAnswer(text, await stream[0].readexactly(int(length.partition(":")[2])))


async def everything(server: ServedApp, data: bytes, trust: ssl.SSLContext | None = None) -> bytes:
    """All that the server sends until it closes the connection."""
    reader, writer = await connect(server, trust)
    writer.write(data)
    try:
        return await asyncio.wait_for(reader.read(), PATIENCE)
    finally:
        writer.close()


async def status(stream: Stream) -> int:
    """Of the next answer; 0: there is none. The connection is ended."""
    reader, writer = stream
    try:
        return int((await asyncio.wait_for(reader.readuntil(b"\r\n"), PATIENCE)).split()[1])
    except (asyncio.IncompleteReadError, ConnectionError, ssl.SSLError):
        return 0
    finally:
        writer.transport.abort()


async def sent(server: ServedApp, data: bytes) -> int:
    stream = await connect(server)
    stream[1].write(data)
    return await status(stream)


async def unharmed(server: ServedApp) -> None:
    """The server serves the next client, holds nothing for those before, and had no internal error."""
    assert (await server.post(PODS, BODY))[0] == 200
    await until(lambda: server.app.in_flight == 0, "requests to end")
    assert (server.app.taken_bytes, server.counted.crashes) == (0, [])


class Visitor:
    """A client of one listener; keeps the headers of the last answer."""

    def __init__(self, url: str, client: aiohttp.ClientSession) -> None:
        self.url = url
        self.client = client

    async def get(self, path: str, method: str = "GET", token: str = "", **headers: str) -> tuple[int, str]:
        bearer = {"Authorization": f"Bearer {token}"} if token else {}
        options: Any = {"headers": headers | bearer, "allow_redirects": False}
        async with self.client.request(method, self.url + path, **options) as answer:
            self.headers = answer.headers
            return answer.status, await answer.text()


@asynccontextmanager
async def visited(application: web.Application, address: str = "127.0.0.1:0") -> AsyncIterator[Visitor]:
    pair = self_signed(["localhost", "127.0.0.1"])
    trust = ssl.create_default_context(cadata=pair.authority.decode())
    context = tls.context(pair.certificate, pair.key)
    async with (
        admin_listener(application, address, context) as url,
        aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=trust)) as client,
    ):
        yield Visitor(url.replace("0.0.0.0", "127.0.0.1"), client)
