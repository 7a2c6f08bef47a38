"""An API server in a few hundred lines: lists in pages, watches, bookmarks, selectors, and every way of failing.

It keeps what the real one promises and clients rely on: one resourceVersion for everything, growing; a watch from a
version brings what happened since; versions older than the last compaction are 410 Gone; an object that leaves a field
selector is DELETED for those who watch it.
"""

from __future__ import annotations

import asyncio
import json
import ssl
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from email.utils import formatdate
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest
import trustme
from aiohttp import web
from aiohttp.test_utils import BaseTestServer, TestServer
from multidict import CIMultiDictProxy
from pytest_aiohttp import AiohttpServer

from tests.waiting import break_off
from webhook.errors import Unavailable
from webhook.k8s.client.clock import Clock
from webhook.k8s.client.transport import KubernetesTransport, connect
from webhook.k8s.resources import Resource

Json = dict[str, Any]


class OpenWatch:
    """One watch request: the lines that are still to be sent; None ends it, nothing at all breaks its connection."""

    def __init__(self, collection: str, selector: str, since: int) -> None:
        self.collection = collection
        self.since = since
        self.selector = selector
        self.lines: asyncio.Queue[bytes | None] = asyncio.Queue()

    def tell(self, version: int, collection: str, old: Json | None, new: Json | None) -> None:
        # As a watch cache: nothing up to the watch's own version, even if that is in the future.
        if collection != self.collection or version <= self.since:
            return
        was = old is not None and selected(old, self.selector)
        if new is not None and selected(new, self.selector):
            event = {"type": "MODIFIED" if was else "ADDED", "object": new}
        elif was:
            gone = {**(old or {})}
            if new is not None:
                gone["metadata"] = {**gone["metadata"], "resourceVersion": new["metadata"]["resourceVersion"]}
            event = {"type": "DELETED", "object": gone}
        else:
            return
        self.lines.put_nowait(json.dumps(event).encode() + b"\n")


def selected(item: Json, selector: str) -> bool:
    """Whether an object matches a fieldSelector of equalities."""
    for term in filter(None, selector.split(",")):
        path, _, wanted = term.partition("=")
        value: Any = item
        for segment in path.split("."):
            value = value.get(segment) if isinstance(value, dict) else None
        if (value or "") != wanted:
            return False
    return True


def why(answer: object) -> str:
    """Why something could not be read."""
    assert isinstance(answer, Unavailable)
    return answer.why


class Asked(NamedTuple):
    """A request, as it came in."""

    method: str
    path: str
    query: Mapping[str, str]
    headers: CIMultiDictProxy[str]
    body: bytes

    @property
    def verb(self) -> str:
        if self.method != "GET":
            return self.method.lower()
        if self.query.get("resourceVersionMatch") == "Exact":
            return "verify"
        if self.query.get("fieldSelector", "").startswith("metadata.name=kubevirt-webhook"):
            return "progress"
        return "watch" if self.query.get("watch") == "true" else "get"


class FakeClock(Clock):
    """A clock that advances only when a task sleeps, or when a test says so."""

    def __init__(self) -> None:
        self.time = 1000.0
        self.wall_offset = 1_790_000_000.0
        self.slept: list[float] = []

    def now(self) -> float:
        return self.time

    def wall(self) -> float:
        return self.time + self.wall_offset

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.time += seconds
        await asyncio.sleep(0.001)


class HeldClock(FakeClock):
    """A clock that only a test moves: a task that sleeps stays asleep until `advance` passes the end of its sleep."""

    def __init__(self) -> None:
        super().__init__()
        self._moved = asyncio.Event()

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        until = self.time + seconds
        while self.time < until:
            await self._moved.wait()

    def advance(self, seconds: float) -> None:
        self.time += seconds
        moved, self._moved = self._moved, asyncio.Event()
        moved.set()


def status(code: int, reason: str = "", message: str = "") -> Json:
    head = {"kind": "Status", "apiVersion": "v1", "status": "Failure"}
    return head | {"code": code, "reason": reason, "message": message}


# In lists, stands for what no encoder writes that recurses: far more levels than any decoder does.
DEEP = "@deep@"


def dumps(value: Any) -> bytes:
    # Pages of large clusters are encoded as fast as they are read.
    return msgspec.json.encode(value).replace(b'"%s"' % DEEP.encode(), b"[" * 5000 + b"]" * 5000)


class EtcdCopy(NamedTuple):
    """What etcd holds at a time."""

    version: int
    kinds: dict[str, tuple[Resource[Any], dict[tuple[str, str], Json]]]
    log: list[tuple[int, str, Json | None, Json | None]]


Answer = Callable[[web.Request], Any]


class FakeApiServer:
    """State, and the switches of its failures."""

    def __init__(self) -> None:
        self.version = 100
        self.compacted = 0
        self.asked: list[Asked] = []
        self.token: str | None = None  # the only one that is accepted
        self.url = ""
        self.page_hook: Callable[[], object] = lambda: None  # after every page of a list that has more
        self.connected: Callable[[], int] = lambda: 0  # how many connections there are
        self.wall: Callable[[], float] = time.time  # Unix time, which each answer has in its header Date
        self.cache: EtcdCopy | None = None  # of the watch cache, where that is not of etcd's present
        self._kinds: dict[str, tuple[Resource[Any], dict[tuple[str, str], Json]]] = {}
        self._log: list[tuple[int, str, Json | None, Json | None]] = []  # version, kind, old, new
        self._faults: list[tuple[str, str, int, Answer]] = []
        self._watches: set[OpenWatch] = set()
        self._snapshots: dict[tuple[int, str], list[Json]] = {}

    # The objects of the cluster.

    def serve(self, resource: Resource[Any]) -> None:
        self._kinds.setdefault(resource.path(), (resource, {}))

    def unserve(self, resource: Resource[Any]) -> None:
        del self._kinds[resource.path()]

    def put(self, resource: Resource[Any], name: str, namespace: str = "", **fields: Any) -> Json:
        """Create or replace; ``metadata`` is filled up."""
        self.serve(resource)
        self.version += 1
        uid = f"uid-of-{namespace}-{name}"
        meta = {"name": name, "uid": uid, "resourceVersion": str(self.version)}
        if namespace:
            meta["namespace"] = namespace
        new = {"apiVersion": resource.api_version, "kind": resource.kind, **fields}
        new["metadata"] = meta | fields.get("metadata", {})
        objects = self._kinds[resource.path()][1]
        self._log_change(resource, objects.get((namespace, name)), new)
        objects[namespace, name] = new
        return new

    def remove(self, resource: Resource[Any], name: str, namespace: str = "") -> None:
        self.version += 1
        self._log_change(resource, self._kinds[resource.path()][1].pop((namespace, name)), None)

    def held(self, resource: Resource[Any]) -> Mapping[tuple[str, str], Json]:
        """The stored objects, by namespace and name."""
        return self._kinds[resource.path()][1]

    def compact(self) -> None:
        """Forget what happened: a watch from an older version, or a list begun before, is 410 Gone."""
        self.version += 1
        self.compacted = self.version

    def save(self) -> EtcdCopy:
        """A copy of what etcd holds."""
        kinds = {path: (resource, dict(objects)) for path, (resource, objects) in self._kinds.items()}
        return EtcdCopy(self.version, kinds, list(self._log))

    def restore(self, saved: EtcdCopy, *, cached: bool = False) -> None:
        """Put the copy in the place of what etcd holds; watches stay open.

        Args:
            saved: from `save`.
            cached: the API server goes on: it answers lists from its watch cache, as before the restore.
        """
        self.cache = self.save() if cached else None
        for watch in self._watches:
            watch.since = max(watch.since, self.version)
        self.version, self._log = saved.version, list(saved.log)
        self._kinds = {path: (resource, dict(objects)) for path, (resource, objects) in saved.kinds.items()}

    # How it fails.

    def answer(self, path: str, answer: Answer, *, times: int = 1, verb: str = "") -> None:
        """Answer the next requests for a path otherwise; ``verb`` limits it to get or watch."""
        self._faults.append((path, verb, times, answer))

    def fail(self, path: str, code: int, reason: str = "", *, times: int = 1, verb: str = "") -> None:
        body = status(code, reason, "a message with SECRET content")
        self.answer(path, lambda _: web.json_response(body, status=code), times=times, verb=verb)

    def hang(self, path: str, release: asyncio.Event | None = None, *, times: int = 1, verb: str = "") -> asyncio.Event:
        """Answer only when released by the event that is returned, with what is then true."""
        released = release or asyncio.Event()

        async def wait(request: web.Request) -> web.StreamResponse:
            await released.wait()
            return await self._truth(request)

        self.answer(path, wait, times=times, verb=verb)
        return released

    def heal(self) -> None:
        self._faults.clear()

    @property
    def watching(self) -> int:
        return len(self._watches)

    def send(self, line: bytes | Json) -> None:
        """Say something on all open watches."""
        for watch in self._watches:
            watch.lines.put_nowait(line if isinstance(line, bytes) else json.dumps(line).encode() + b"\n")

    def bookmark(self) -> None:
        self.version += 1
        self.send({"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": str(self.version)}}})

    def end_watches(self) -> None:
        """As at the end of timeoutSeconds."""
        for watch in self._watches:
            watch.lines.put_nowait(None)

    def cut(self) -> None:
        """Break the connections of all open watches in the middle of a line."""
        for watch in self._watches:
            watch.lines.put_nowait(b'{"type":"MODIFIED","obj')
            watch.lines.put_nowait(b"")

    def requests(self, path: str, verb: str = "") -> list[Asked]:
        return [asked for asked in self.asked if asked.path == path and verb in ("", asked.verb)]

    # HTTP.

    def kubeconfig(self, file: Path, **user: Any) -> str:
        """Write a kubeconfig that leads here."""
        document = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "fake",
            "contexts": [{"name": "fake", "context": {"cluster": "fake", "user": "us"}}],
            "clusters": [{"name": "fake", "cluster": {"server": self.url}}],
            "users": [{"name": "us", "user": user or {"token": "t0"}}],
        }
        file.write_text(json.dumps(document, sort_keys=True))
        return str(file)

    def application(self) -> web.Application:
        """Aiohttp's application, which answers everything."""
        application = web.Application(client_max_size=16 << 20)
        application.router.add_route("*", "/{path:.*}", self.handle)
        application.on_response_prepare.append(self.write_date)
        application.on_shutdown.append(self._shut_down)
        return application

    def serve_at(self, served: BaseTestServer) -> None:
        """Know where the application is served."""
        self.connected = lambda: len(served.handler.connections)
        # The name, which certificates have.
        url = served.make_url("/")
        self.url = str(url.with_host("localhost") if url.scheme == "https" else url).rstrip("/")

    async def handle(self, request: web.Request) -> web.StreamResponse:
        asked = Asked(request.method, request.path, dict(request.query), request.headers, await request.read())
        self.asked.append(asked)
        if self.token is not None and request.headers.get("Authorization") != f"Bearer {self.token}":
            return web.json_response(status(401, "Unauthorized"), status=401)
        for index, (path, verb, times, answer) in enumerate(self._faults):
            if path == asked.path and verb in ("", asked.verb):
                self._faults[index : index + 1] = [(path, verb, times - 1, answer)] if times > 1 else []
                result = answer(request)
                response: web.StreamResponse = await result if asyncio.iscoroutine(result) else result
                return response
        return await self._truth(request)

    async def _shut_down(self, _application: web.Application) -> None:
        self.end_watches()

    async def write_date(self, _request: web.Request, response: web.StreamResponse) -> None:
        """Answer with the server's own clock."""
        response.headers.setdefault("Date", formatdate(self.wall(), usegmt=True))

    async def _truth(self, request: web.Request) -> web.StreamResponse:
        if request.path == "/version":
            return web.json_response({"gitVersion": "v1.36.3"})
        if request.method != "GET" and (written := await self._written(request)):
            return written
        # Before the search among all objects, which takes a large cluster's lists longer than their pages.
        if request.path in self._kinds:
            resource, objects = self._kinds[request.path]
            watch = request.query.get("watch") == "true"
            return await self._watch(request, request.path) if watch else self._list(request, resource, objects)
        for resource, objects in self._kinds.values():
            if request.query.get("resourceVersionMatch") == "Exact" and request.path == resource.path("default"):
                return self._list(request, resource, {})
            for (namespace, name), held in objects.items():
                if request.path == resource.path(namespace, name):
                    return web.json_response(held)
                if request.path == resource.path(namespace):
                    inside = {key: item for key, item in objects.items() if key[0] == namespace}
                    return self._list(request, resource, inside)
        return web.json_response(status(404, "NotFound"), status=404)

    async def _written(self, request: web.Request) -> web.Response | None:
        """Creations, merges of top-level members, applies (which replace what is there), deletions; None for others."""
        body = json.loads(await request.read() or b"{}")
        collection, _, name = request.path.rpartition("/")
        for resource, objects in self._kinds.values():
            namespace = next(iter(_namespaces(request.path)), "")
            if request.method == "POST" and request.path == resource.path(namespace):
                made = self.put(resource, body["metadata"].get("name", ""), namespace, **body)
                return web.json_response(made, status=201)
            if collection != resource.path(namespace):
                continue
            there = objects.get((namespace, name))
            applied = request.method == "PATCH" and "apply" in request.headers["Content-Type"]
            if there is None and not applied:
                break
            if request.method == "DELETE":
                wanted = body.get("preconditions", {}).get("uid", there and there["metadata"]["uid"])
                if there and there["metadata"]["uid"] != wanted:
                    return web.json_response(status(409, "Conflict"), status=409)
                self.remove(resource, name, namespace)
                return web.json_response(status(200))
            return web.json_response(self.put(resource, name, namespace, **(body if applied else (there or {}) | body)))
        return None

    def _list(
        self, request: web.Request, resource: Resource[Any], objects: dict[tuple[str, str], Json]
    ) -> web.Response:
        selector = request.query.get("fieldSelector", "")
        if request.query.get("resourceVersionMatch") == "Exact":
            return self._list_exactly(int(request.query["resourceVersion"]))
        if self.cache:
            objects = self.cache.kinds[resource.path()][1]
        now = self.cache.version if self.cache else self.version
        limit = int(request.query.get("limit", "0")) or len(objects) + 1
        at, start = (int(part) for part in request.query.get("continue", f"{now}.0").split("."))
        if at < self.compacted:
            return web.json_response(status(410, "Expired") | {"metadata": {"continue": f"{now}.{start}"}}, status=410)
        # All pages show the moment of the first.
        if (at, request.path) not in self._snapshots or start == 0:
            self._snapshots[at, request.path] = [item for _, item in sorted(objects.items())]
        items = self._snapshots[at, request.path]
        if selector:
            items = [item for item in items if selected(item, selector)]
        label, equals, value = request.query.get("labelSelector", "").partition("=")
        if equals:  # this fake supports only equality in label selectors
            items = [item for item in items if item["metadata"].get("labels", {}).get(label) == value]
        page = items[start : start + limit]
        more = start + limit < len(items)
        meta = {"resourceVersion": str(at)} | ({"continue": f"{at}.{start + limit}"} if more else {})
        body = dumps({"kind": f"{resource.kind}List", "metadata": meta, "items": page})
        answer = web.Response(body=body, content_type="application/json")
        if more:
            self.page_hook()
        return answer

    def _list_exactly(self, version: int) -> web.Response:
        """A list of one name at a version, which is always answered by etcd."""
        if version > self.version:
            future = status(504, "Timeout", f"Timeout: Too large resource version: {version}, current: {self.version}")
            causes = {"causes": [{"reason": "ResourceVersionTooLarge"}]}
            return web.json_response(future | {"details": causes}, status=504)
        if version < self.compacted:
            return web.json_response(status(410, "Expired"), status=410)
        return web.json_response({"metadata": {"resourceVersion": str(version)}, "items": []})

    async def _watch(self, request: web.Request, collection: str) -> web.StreamResponse:
        selector = request.query.get("fieldSelector", "")
        since = int(request.query.get("resourceVersion") or self.version)
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)
        if since < self.compacted:
            gone = {"type": "ERROR", "object": status(410, "Expired")}
            await response.write(json.dumps(gone).encode() + b"\n")
            return response
        watch = OpenWatch(collection, selector, since)
        for version, kind, old, new in self._log:
            watch.tell(version, kind, old, new)
        self._watches.add(watch)
        try:
            while (line := await watch.lines.get()) is not None:
                if not line:
                    assert request.transport
                    request.transport.abort()
                    break
                await response.write(line)
        except ConnectionResetError:
            pass
        finally:
            self._watches.remove(watch)
        return response

    def _log_change(self, resource: Resource[Any], old: Json | None, new: Json | None) -> None:
        if old and new is None:
            old = {**old, "metadata": old["metadata"] | {"resourceVersion": str(self.version)}}
        self._log.append((self.version, resource.path(), old, new))
        for watch in self._watches:
            watch.tell(self.version, resource.path(), old, new)


def _namespaces(path: str) -> list[str]:
    parts = path.split("/")
    return [parts[index + 1] for index, part in enumerate(parts[:-1]) if part == "namespaces"]


# Of aiohttp's runner.
OPTIONS: Any = {"access_log": None, "shutdown_timeout": 0.05}


class ApiServers:
    """Starts API servers, which end with the test.

    Args:
        serve: the fixture of pytest-aiohttp.
        directory: where kubeconfigs are written.
    """

    def __init__(self, serve: AiohttpServer, directory: Path) -> None:
        self._serve = serve
        self._directory = directory

    async def start(self, server: FakeApiServer | None = None, tls: ssl.SSLContext | None = None) -> FakeApiServer:
        """Serve on a free port of the loopback interface."""
        server = server or FakeApiServer()
        server.serve_at(await self._serve(server.application(), ssl=tls, **OPTIONS))
        return server

    async def connect(self, server: FakeApiServer) -> KubernetesTransport:
        """A connection, which the caller closes."""
        return await connect(server.kubeconfig(self._directory / "config"))


@asynccontextmanager
async def running(server: FakeApiServer, tls: ssl.SSLContext | None = None) -> AsyncIterator[FakeApiServer]:
    """A server on a loop that is none of pytest-aiohttp's: commands run in the test's own thread."""
    served = TestServer(server.application())
    await served.start_server(ssl=tls, **OPTIONS)
    server.serve_at(served)
    try:
        yield server
    finally:
        await served.close()


@pytest.fixture
async def apiservers(aiohttp_server: AiohttpServer, tmp_path: Path) -> AsyncIterator[ApiServers]:
    yield ApiServers(aiohttp_server, tmp_path)
    await break_off()


@pytest.fixture
async def server(apiservers: ApiServers) -> FakeApiServer:
    """An API server without objects; modules that use it import it."""
    return await apiservers.start()


@pytest.fixture
async def transport(server: FakeApiServer, apiservers: ApiServers) -> AsyncIterator[KubernetesTransport]:
    """A connection to `server`."""
    transport = await apiservers.connect(server)
    yield transport
    await transport.close()


def tls_of(authority: trustme.CA, host: str = "localhost") -> ssl.SSLContext:
    """The TLS context of a server whose certificate an authority has issued."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert(host).configure_cert(context)
    return context


def broken(request: web.Request) -> web.Response:
    """An answer that breaks the connection."""
    assert request.transport
    request.transport.abort()
    return web.Response()
