"""A real server on loopback: TLS, real sockets, the cluster in memory; its clients, and what they get."""

from __future__ import annotations

import asyncio
import io
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import BaseTestServer, TestClient
from aiohttp.typedefs import Middleware, StrOrURL
from pytest_aiohttp import AiohttpClient
from yarl import URL

from certs.pem import Pair
from certs.source import self_signed
from tests import builders
from tests.builders import known, vmi
from tests.cluster.fake_apiserver import ApiServers, FakeApiServer, apiservers  # noqa: F401
from tests.review.memory import KeptInMemory, MemoryCluster
from tests.server.raw_requests import BODY, PODS, head
from tests.waiting import PATIENCE, break_off, until
from webhook.facts import Key
from webhook.policies.registry import BY_PATH
from webhook.review.reviewer import Observer, Reviewer
from webhook.server import tls
from webhook.server.admin import admin_listener
from webhook.server.answers import TrafficObserver
from webhook.server.app import ReviewApp
from webhook.server.guard import MAX_HEAD_BYTES
from webhook.server.listener import Listener, serving, split_address

REQUEST = head(len(BODY)) + BODY
LAST = head(len(BODY), extra="Connection: close\r\n") + BODY
# Of one connection: what may come before it is asked for, one reading, and the request itself.
MOST_AHEAD = MAX_HEAD_BYTES + 64 * 1024 + len(REQUEST)
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


class GuardedServer(BaseTestServer):
    """One of our listeners for the fixture `aiohttp_client`; `aiohttp_server` would serve without the guard.

    Args:
        served: listens as long as it lasts, and gives its URL.
    """

    def __init__(self, served: AbstractAsyncContextManager[str]) -> None:
        super().__init__()
        self._served = served
        self._ends = AsyncExitStack()
        self._url = ""

    async def start_server(self, loop: asyncio.AbstractEventLoop | None = None, **kwargs: Any) -> None:
        if not self._url:
            url = await self._ends.enter_async_context(self._served)
            self._url = url.replace("0.0.0.0", "127.0.0.1")

    def make_url(self, path: StrOrURL) -> URL:
        return URL(f"{self._url}{path}")

    async def close(self) -> None:
        await self._ends.aclose()

    async def _make_runner(self, **kwargs: Any) -> web.BaseRunner:
        raise NotImplementedError


@asynccontextmanager
async def listening_on_loopback(listener: Listener, tls: ssl.SSLContext | None = None) -> AsyncIterator[str]:
    """A listener on any free port; gives its URL."""
    async with serving(listener, "127.0.0.1:0", tls, "--listen", 0.0) as address:
        yield f"{'https' if tls else 'http'}://{address}"


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
    client: TestClient[Any, Any]
    kept: KeptInMemory
    server: Listener

    async def post(self, path: str, body: bytes, **headers: str) -> tuple[int, str]:
        async with self.client.post(
            path,
            data=io.BytesIO(body),
            headers={"Content-Type": "application/json"} | headers,
        ) as answer:
            return answer.status, await answer.text()


ServedApi = tuple[FakeApiServer, Any]


@pytest.fixture
async def api(apiservers: ApiServers) -> AsyncIterator[ServedApi]:  # noqa: F811
    """A fake API server, and a connection to it."""
    server = await apiservers.start()
    transport = await apiservers.connect(server)
    yield server, transport
    await transport.close()


Start = Callable[..., Awaitable[ServedApp]]


@pytest.fixture
async def start(aiohttp_client: AiohttpClient) -> AsyncIterator[Start]:
    """Starts servers that end with the test."""

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
        trust = ssl.create_default_context(cadata=pair.authority.decode())
        served = GuardedServer(listening_on_loopback(server, listener))
        client: TestClient[Any, Any] = await aiohttp_client(served, connector=aiohttp.TCPConnector(ssl=trust))
        return ServedApp(app, reviewer, counted, server.address, pair, trust, client, kept, server)

    yield run
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
    """A connection for what no HTTP client sends, leaves out or leaves unread."""
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
    assert (server.app.request_bytes, server.counted.crashes) == (0, [])


class Visitor:
    """A client of one listener; keeps the headers of the last answer."""

    def __init__(self, client: TestClient[Any, Any]) -> None:
        self.client = client

    @property
    def url(self) -> str:
        return str(self.client.make_url(""))

    async def get(self, path: str, method: str = "GET", token: str = "", **headers: str) -> tuple[int, str]:
        bearer = {"Authorization": f"Bearer {token}"} if token else {}
        options: Any = {"headers": headers | bearer, "allow_redirects": False}
        async with self.client.request(method, path, **options) as answer:
            self.headers = answer.headers
            return answer.status, await answer.text()


Visit = Callable[..., Awaitable[Visitor]]


@pytest.fixture
def visit(aiohttp_client: AiohttpClient) -> Visit:
    """Serves an application at an address of the admin listener until the test ends, and gives a client of it."""

    async def run(application: web.Application, address: str = "127.0.0.1:0") -> Visitor:
        pair = self_signed(["localhost", "127.0.0.1"])
        trust = ssl.create_default_context(cadata=pair.authority.decode())
        served = admin_listener(application, address, tls.context(pair.certificate, pair.key))
        connector = aiohttp.TCPConnector(ssl=trust)
        return Visitor(await aiohttp_client(GuardedServer(served), connector=connector))

    return run
