"""Requests and watches over HTTP, and why there was no answer: in words that name the cause and no address."""

from __future__ import annotations

import asyncio
import errno
import gc
import json
import socket
import ssl
import warnings
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn, cast

import aiohttp
import msgspec
import pytest
import trustme
from aiohttp import web

from tests.cluster.fake_apiserver import FakeApiServer, tls_of, why
from tests.golden_files import Golden
from tests.waiting import until
from webhook import __version__
from webhook.errors import Unavailable
from webhook.k8s.client import transport as module
from webhook.k8s.client.api import ApiConnectionError, ApiError, TooLargeError
from webhook.k8s.client.identity import Kubeconfig
from webhook.k8s.client.transport import KubernetesTransport, connect, default_namespace
from webhook.k8s.resources import NAMESPACES
from webhook.k8s.yaml_documents import MAX_DEPTH

PATH = NAMESPACES.path()
WATCH = {"watch": "true"}


@pytest.fixture(autouse=True)
def serve(server: FakeApiServer) -> None:
    server.serve(NAMESPACES)


async def failure(request: Awaitable[object]) -> str:
    """Why there is no answer to a request."""
    with pytest.raises(ApiConnectionError) as caught:
        await request
    return caught.value.why


async def code_of(transport: KubernetesTransport, path: str = PATH) -> int:
    return (await transport.get(path))[0]


def begun_until(
    release: asyncio.Event, status: int = 200, begun: list[web.StreamResponse] | None = None
) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
    """An answer whose head and first byte come at once, and its end when a test says so."""

    async def slow(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(status=status)
        await response.prepare(request)
        await response.write(b"x")
        if begun is not None:
            begun.append(response)
        await release.wait()
        return response

    return slow


class TestRequests:
    async def test_say_who_we_are(self, server: FakeApiServer, transport: KubernetesTransport) -> None:
        code, body = await transport.get(PATH, {"labelSelector": "a in (b, c)"})
        assert (code, msgspec.json.decode(body)["kind"]) == (200, "NamespaceList")
        asked = server.asked[0]
        expected = {"User-Agent": f"kubevirt-webhook/{__version__}", "Authorization": "Bearer t0"}
        expected["Accept"] = "application/json, */*"
        assert {name: asked.headers[name] for name in expected} == expected
        assert asked.query == {"labelSelector": "a in (b, c)"}
        assert transport.cluster == f'context "fake", {server.url}'
        # Any status is an answer.
        assert (await transport.request("DELETE", "/apis/nothing"))[0] == 404

    async def test_answers_have_room_for_so_many_bytes(
        self, server: FakeApiServer, transport: KubernetesTransport
    ) -> None:
        server.answer(PATH, lambda _: web.Response(body=b"x" * 1000), times=3)
        assert await transport.get(PATH, most=1000) == (200, b"x" * 1000)
        with pytest.raises(TooLargeError):
            await transport.get(PATH, most=999)
        # The interrupted connection does not block the next request.
        assert await code_of(transport) == 200

    @pytest.mark.control("watches-filled")
    async def test_few_bodies_are_taken_in_at_a_time(
        self, server: FakeApiServer, transport: KubernetesTransport
    ) -> None:
        begun: list[web.StreamResponse] = []
        release = asyncio.Event()
        server.answer(PATH, begun_until(release, begun=begun), times=30)
        asking = [asyncio.create_task(transport.get(PATH)) for _ in range(30)]
        await until(lambda: len(begun) == 30 and transport._readers.locked())
        release.set()
        assert await asyncio.gather(*asking) == [(200, b"x")] * 30

    @pytest.mark.parametrize("body", [{"a": [1]}, {"a": msgspec.Raw(b"[1]")}, {}])
    async def test_with_a_body(self, server: FakeApiServer, transport: KubernetesTransport, body: Any) -> None:
        query, content = {"fieldManager": "us"}, "application/apply-patch+yaml"
        assert (await transport.request("PATCH", f"{PATH}/shop", query, body, content))[0] == 200
        asked = server.asked[0]
        assert (asked.method, asked.query, asked.headers["Content-Type"]) == ("PATCH", query, content)
        assert msgspec.json.decode(asked.body) == msgspec.json.decode(msgspec.json.encode(body))

    async def test_with_a_body_as_deep_as_a_manifest_may_be(
        self, server: FakeApiServer, transport: KubernetesTransport
    ) -> None:
        body: dict[str, Any] = {}
        for _ in range(MAX_DEPTH):
            body = {"a": body}
        await transport.request("PATCH", f"{PATH}/shop", {}, body)
        assert msgspec.json.decode(server.asked[0].body) == body

    async def test_in_time_or_never(
        self, server: FakeApiServer, transport: KubernetesTransport, golden: Golden
    ) -> None:
        server.hang(PATH)
        golden(await failure(transport.request("GET", PATH, seconds=0.05)))

    async def test_in_time_also_while_others_read(self, server: FakeApiServer, transport: KubernetesTransport) -> None:
        release = asyncio.Event()
        server.answer(PATH, begun_until(release), times=module._READERS + 1)
        reading = [asyncio.create_task(transport.get(PATH)) for _ in range(module._READERS)]
        await until(transport._readers.locked)
        async with asyncio.timeout(10):
            assert "in time" in await failure(transport.request("GET", PATH, seconds=0.2))
        release.set()
        assert await asyncio.gather(*reading) == [(200, b"x")] * module._READERS

    async def test_in_time_with_a_new_login(
        self, server: FakeApiServer, transport: KubernetesTransport, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        server.answer(PATH, lambda _: web.Response(status=401))
        logging_in = asyncio.Event()

        async def renew(denied: object) -> bool:
            logging_in.set()
            await asyncio.Event().wait()
            return True

        monkeypatch.setattr(transport._connection, "renew", renew)
        async with asyncio.timeout(10):
            assert "in time" in await failure(transport.request("GET", PATH, seconds=0.2))
        assert logging_in.is_set()

    async def test_without_a_server(
        self, server: FakeApiServer, transport: KubernetesTransport, tmp_path: Path, golden: Golden
    ) -> None:
        server.url = "http://127.0.0.1:1"
        nowhere = await connect(server.kubeconfig(tmp_path / "nowhere"))
        told = await failure(nowhere.get(PATH))
        golden(told)
        assert await failure(anext(nowhere.watch(PATH, {}))) == why(await nowhere.date()) == told
        await nowhere.close()

    async def test_after_the_end(self, transport: KubernetesTransport, golden: Golden) -> None:
        await transport.close()
        golden(await failure(transport.get(PATH)))


class TestWatchOverTheWire:
    async def test_begins_with_an_empty_piece_or_is_refused(
        self, server: FakeApiServer, transport: KubernetesTransport
    ) -> None:
        async with aclosing(transport.watch(PATH, WATCH)) as pieces:
            assert await anext(pieces) == b""
            await until(lambda: server.watching)
            server.send(b"one\n")
            assert await anext(pieces) == b"one\n"
        server.fail(PATH, 403, "Forbidden")
        with pytest.raises(ApiError) as caught:
            await anext(transport.watch(PATH, WATCH))
        assert caught.value.status == 403

    async def test_broken(self, server: FakeApiServer, transport: KubernetesTransport, golden: Golden) -> None:
        async with aclosing(transport.watch(PATH, WATCH)) as pieces:
            await anext(pieces)
            await until(lambda: server.watching)
            server.cut()
            with pytest.raises(ApiConnectionError) as caught:
                while True:
                    await anext(pieces)
            golden(caught.value.why.partition(" (")[0])

    async def test_that_never_begins(
        self, server: FakeApiServer, transport: KubernetesTransport, monkeypatch: pytest.MonkeyPatch, golden: Golden
    ) -> None:
        monkeypatch.setattr(module, "_WATCH_HEADERS_SECONDS", 0.05)
        server.hang(PATH)
        golden(await failure(anext(transport.watch(PATH, WATCH))))

    async def test_that_is_refused_without_end(
        self, server: FakeApiServer, transport: KubernetesTransport, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """It keeps no seat from those that read whole answers."""
        monkeypatch.setattr(module, "_WATCH_HEADERS_SECONDS", 0.2)
        release = asyncio.Event()
        server.answer(PATH, begun_until(release, 503))
        async with asyncio.timeout(10):
            assert "in time" in await failure(anext(transport.watch(PATH, WATCH)))
        assert transport._readers._value == module._READERS
        release.set()


async def test_its_clock(server: FakeApiServer, transport: KubernetesTransport, golden: Golden) -> None:
    told = {"Date": "Sat, 21 Nov 2026 16:00:00 GMT"}
    server.answer("/version", lambda _: web.Response(status=403, headers=told))
    assert await transport.date() == 1_795_276_800
    server.answer("/version", lambda _: web.Response(headers={"Date": "today"}))
    golden(why(await transport.date()))
    await transport.close()
    assert isinstance(await transport.date(), Unavailable)


def test_the_namespace_in_a_pod(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """That of the downward API comes first, as for kubectl."""
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "localhost")
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("POD_NAMESPACE", "KUBECONFIG"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(module, "_POD_NAMESPACE", tmp_path / "namespace")
    assert default_namespace() == "default"
    (tmp_path / "namespace").write_text("mine\n")
    assert default_namespace() == "mine"
    monkeypatch.setenv("POD_NAMESPACE", "told")
    assert default_namespace() == "told"
    server = FakeApiServer()
    server.url = "https://localhost:1"
    kubeconfig = server.kubeconfig(tmp_path / "config")
    assert default_namespace(Kubeconfig(kubeconfig)) == "told", "a context without one says nothing"
    document = json.loads((tmp_path / "config").read_text())
    document["contexts"][0]["context"]["namespace"] = "of-the-context"
    (tmp_path / "config").write_text(json.dumps(document))
    monkeypatch.setenv("KUBECONFIG", kubeconfig)
    assert default_namespace() == "of-the-context"


async def test_what_no_request_can_hold_is_the_caller_s_fault(transport: KubernetesTransport) -> None:
    """And is said as such, instead of being called a failure of the API server's or of the credentials."""
    with pytest.raises(UnicodeEncodeError):
        await transport.request("POST", PATH, body={"half of a pair": "\ud800"})


class TestTokens:
    async def test_a_refused_token_is_read_again(self, server: FakeApiServer, tmp_path: Path) -> None:
        (tmp_path / "token").write_text("t0")
        transport = await connect(server.kubeconfig(tmp_path / "config", tokenFile=str(tmp_path / "token")))
        server.token = "t0"
        assert await code_of(transport) == 200
        server.token = "t1"
        (tmp_path / "token").write_text("t1")
        assert await asyncio.gather(*(code_of(transport) for _ in range(5))) == [200] * 5
        server.token = "t2"
        (tmp_path / "token").write_text("t2")
        assert await code_of(transport) == 401, "too soon after the last time"
        await transport.close()

    async def test_a_watch_does_the_same(self, server: FakeApiServer, tmp_path: Path) -> None:
        (tmp_path / "token").write_text("t0")
        transport = await connect(server.kubeconfig(tmp_path / "config", tokenFile=str(tmp_path / "token")))
        server.token = "t1"
        (tmp_path / "token").write_text("t1")
        async with aclosing(transport.watch(PATH, WATCH)) as pieces:
            assert await anext(pieces) == b""
        await transport.close()

    @pytest.mark.parametrize("kubeconfig", ["as it was", "{}"])
    async def test_there_may_be_no_other(
        self, server: FakeApiServer, transport: KubernetesTransport, tmp_path: Path, kubeconfig: str
    ) -> None:
        server.token = "t1"
        if kubeconfig == "{}":
            (tmp_path / "config").write_text(kubeconfig)
        assert await code_of(transport) == 401


@pytest.mark.parametrize(
    ("error", "cause"),
    [
        (socket.gaierror(socket.EAI_NONAME, "Name or service not known"), "no such host"),
        (socket.gaierror(socket.EAI_AGAIN, "Try again"), "cannot be resolved now"),
        (OSError(errno.EHOSTUNREACH, "10.1.2.3"), "no route to host"),
        (OSError(errno.ENETUNREACH, "10.1.2.3"), "network is unreachable"),
        (OSError(errno.EMFILE, "10.1.2.3"), "EMFILE"),
        (OSError("10.1.2.3"), "unknown error"),
    ],
)
async def test_the_cause_is_told_and_no_address(
    transport: KubernetesTransport, error: OSError, cause: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = cast("Any", SimpleNamespace(host="prod.example", port=6443, ssl=True, is_ssl=True))

    async def send(*args: Any, **options: Any) -> NoReturn:
        raise aiohttp.ClientConnectorError(key, error)

    monkeypatch.setattr(transport._connection, "send", send)
    assert (await failure(transport.get(PATH))).endswith(f"{cause})")


def test_a_watch_that_is_left_leaves_no_socket(tmp_path: Path) -> None:
    """Also where the API server, which is to answer the end of TLS, does nothing any more."""
    held: list[ssl.SSLSocket] = []

    def send_one_piece() -> None:
        connection, _ = listening.accept()
        held.append(tls_of(trustme.CA()).wrap_socket(connection, server_side=True))
        held[0].recv(65_536)
        held[0].sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n")

    async def watch_one_piece() -> None:
        server = FakeApiServer()
        server.url = f"https://localhost:{listening.getsockname()[1]}"
        file = Path(server.kubeconfig(tmp_path / "config"))
        file.write_text(file.read_text().replace('"server":', '"insecure-skip-tls-verify": true, "server":'))
        transport = await connect(str(file))
        async with aclosing(transport.watch(PATH, WATCH)) as pieces:
            assert [await anext(pieces), await anext(pieces)] == [b"", b"{}"]
        await transport.close()

    with socket.create_server(("localhost", 0)) as listening, ThreadPoolExecutor() as threads:
        served = threads.submit(send_one_piece)
        with warnings.catch_warnings(record=True) as left:
            warnings.simplefilter("always")
            asyncio.run(watch_one_piece())
            gc.collect()
        served.result()
        held[0].close()
    assert [str(each.message) for each in left] == []


async def test_a_server_without_tls(server: FakeApiServer, tmp_path: Path, golden: Golden) -> None:
    server.url = server.url.replace("http:", "https:")
    other = await connect(server.kubeconfig(tmp_path / "nobody"))
    golden(await failure(other.get(PATH)))
    await other.close()
