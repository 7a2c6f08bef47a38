from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
import trustme
from aiohttp import web

from tests.cluster.fake_apiserver import FakeApiServer, running, why
from tests.waiting import until
from webhook import __version__
from webhook.errors import InputError, Unavailable
from webhook.k8s.client import credentials
from webhook.k8s.client import transport as module
from webhook.k8s.client.api import ApiConnectionError, ApiError, TooLargeError
from webhook.k8s.client.transport import KubernetesTransport, connect
from webhook.k8s.resources import NAMESPACES

PATH = NAMESPACES.path()


@asynccontextmanager
async def connected(tmp_path: Path, **user: Any) -> AsyncIterator[tuple[FakeApiServer, KubernetesTransport]]:
    server = FakeApiServer()
    server.serve(NAMESPACES)
    async with running(server):
        transport = await connect(server.kubeconfig(tmp_path / "config", **user))
        try:
            yield server, transport
        finally:
            await transport.close()


async def failure(request: Awaitable[object]) -> str:
    """Why there is no answer to a request."""
    with pytest.raises(ApiConnectionError) as caught:
        await request
    return caught.value.why


class TestRequests:
    async def test_say_who_we_are(self, tmp_path: Path) -> None:
        async with connected(tmp_path) as (server, transport):
            code, body = await transport.get(PATH, {"labelSelector": "a in (b, c)"})
            assert (code, msgspec.json.decode(body)["kind"]) == (200, "NamespaceList")
            asked = server.asked[0]
            assert asked.headers["User-Agent"] == f"kubevirt-webhook/{__version__}"
            assert asked.headers["Authorization"] == "Bearer t0"
            assert asked.headers["Accept"] == "application/json"
            assert asked.query == {"labelSelector": "a in (b, c)"}

    async def test_answers_have_room_for_so_many_bytes(self, tmp_path: Path) -> None:
        async with connected(tmp_path) as (server, transport):
            server.answer(PATH, lambda _: web.Response(body=b"x" * 1000), times=3)
            assert await transport.get(PATH, most=1000) == (200, b"x" * 1000)
            with pytest.raises(TooLargeError):
                await transport.get(PATH, most=999)
            # The interrupted connection does not block the next request.
            assert (await transport.get(PATH))[0] == 200

    async def test_few_bodies_are_taken_in_at_a_time(self, tmp_path: Path) -> None:
        async with connected(tmp_path) as (server, transport):
            begun: list[web.StreamResponse] = []
            release = asyncio.Event()

            async def slow(request: web.Request) -> web.StreamResponse:
                response = web.StreamResponse()
                await response.prepare(request)
                await response.write(b"x")
                begun.append(response)
                await release.wait()
                return response

            server.answer(PATH, slow, times=30)
            asking = [asyncio.create_task(transport.get(PATH)) for _ in range(30)]
            await until(lambda: len(begun) == 30 and transport._readers.locked())
            release.set()
            assert await asyncio.gather(*asking) == [(200, b"x")] * 30

    @pytest.mark.parametrize("body", [{"a": [1]}, b'{"a":[1]}'])
    async def test_with_a_body(self, tmp_path: Path, body: Any) -> None:
        async with connected(tmp_path) as (server, transport):
            code, _ = await transport.request(
                "PATCH", f"{PATH}/shop", {"fieldManager": "us"}, body, content_type="application/apply-patch+yaml"
            )
            assert code == 200
            asked = server.asked[0]
            assert (asked.method, asked.query) == ("PATCH", {"fieldManager": "us"})
            assert asked.headers["Content-Type"] == "application/apply-patch+yaml"
            assert msgspec.json.decode(asked.body) == {"a": [1]}

    async def test_with_an_empty_body(self, tmp_path: Path) -> None:
        async with connected(tmp_path) as (server, transport):
            await transport.request("POST", PATH, body={})
            assert server.asked[0].body == b"{}"

    async def test_any_status_is_an_answer(self, tmp_path: Path) -> None:
        async with connected(tmp_path) as (_, transport):
            assert (await transport.request("DELETE", "/apis/nothing"))[0] == 404

    async def test_in_time_or_never(self, tmp_path: Path, golden: Callable[[str], None]) -> None:
        async with connected(tmp_path) as (server, transport):
            server.hang(PATH, asyncio.Event())
            golden(await failure(transport.request("GET", PATH, seconds=0.05)))

    async def test_without_a_server(self, tmp_path: Path, golden: Callable[[str], None]) -> None:
        async with connected(tmp_path) as (server, _):
            kubeconfig = server.kubeconfig(tmp_path / "config")
        transport = await connect(kubeconfig)
        golden(await failure(transport.get(PATH)))
        with pytest.raises(ApiConnectionError):
            await anext(transport.watch(PATH, {}))
        await transport.close()

    async def test_after_the_end(self, tmp_path: Path, golden: Callable[[str], None]) -> None:
        async with connected(tmp_path) as (_, transport):
            await transport.close()
            golden(await failure(transport.get(PATH)))


class TestWatchOverTheWire:
    async def test_begins_with_an_empty_piece(self, tmp_path: Path) -> None:
        async with (
            connected(tmp_path) as (server, transport),
            aclosing(transport.watch(PATH, {"watch": "true"})) as pieces,
        ):
            assert await anext(pieces) == b""
            await until(lambda: server.watching)
            server.send(b"one\n")
            assert await anext(pieces) == b"one\n"

    async def test_refused(self, tmp_path: Path) -> None:
        async with connected(tmp_path) as (server, transport):
            server.fail(PATH, 403, "Forbidden")
            with pytest.raises(ApiError) as caught:
                await anext(transport.watch(PATH, {"watch": "true"}))
            assert caught.value.status == 403

    async def test_broken(self, tmp_path: Path, golden: Callable[[str], None]) -> None:
        async with (
            connected(tmp_path) as (server, transport),
            aclosing(transport.watch(PATH, {"watch": "true"})) as pieces,
        ):
            await anext(pieces)
            await until(lambda: server.watching)
            server.cut()
            with pytest.raises(ApiConnectionError) as caught:
                while True:
                    await anext(pieces)
            golden(caught.value.why.partition(" (")[0])

    async def test_that_never_begins(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, golden: Callable[[str], None]
    ) -> None:
        monkeypatch.setattr(module, "_WATCH_HEADERS_SECONDS", 0.05)
        async with connected(tmp_path) as (server, transport):
            server.hang(PATH, asyncio.Event())
            golden(await failure(anext(transport.watch(PATH, {"watch": "true"}))))


class TestClock:
    async def test_its_clock(self, tmp_path: Path, golden: Callable[[str], None]) -> None:
        async with connected(tmp_path) as (server, transport):
            told = {"Date": "Sat, 21 Nov 2026 16:00:00 GMT"}
            server.answer("/version", lambda _: web.Response(status=403, headers=told))
            assert await transport.date() == 1_795_276_800
            server.answer("/version", lambda _: web.Response(headers={"Date": "today"}))
            golden(why(await transport.date()))
            await transport.close()
            assert isinstance(await transport.date(), Unavailable)

    async def test_of_nobody(self, tmp_path: Path, golden: Callable[[str], None]) -> None:
        async with connected(tmp_path) as (server, _):
            server.url = "http://127.0.0.1:1"
            other = await connect(server.kubeconfig(tmp_path / "nobody"))
            golden(why(await other.date()))
            await other.close()


class TestTokens:
    async def test_a_refused_token_is_read_again(self, tmp_path: Path) -> None:
        token = tmp_path / "token"
        token.write_text("t0")
        async with connected(tmp_path, tokenFile=str(token)) as (server, transport):
            server.token = "t0"
            assert (await transport.get(PATH))[0] == 200
            server.token = "t1"
            token.write_text("t1")
            answers = await asyncio.gather(*(transport.get(PATH) for _ in range(5)))
            assert [code for code, _ in answers] == [200] * 5
            server.token = "t2"
            token.write_text("t2")
            assert (await transport.get(PATH))[0] == 401  # too soon after the last time

    async def test_a_watch_does_the_same(self, tmp_path: Path) -> None:
        token = tmp_path / "token"
        token.write_text("t0")
        async with connected(tmp_path, tokenFile=str(token)) as (server, transport):
            server.token = "t1"
            token.write_text("t1")
            async with aclosing(transport.watch(PATH, {"watch": "true"})) as pieces:
                assert await anext(pieces) == b""

    async def test_there_may_be_no_other(self, tmp_path: Path) -> None:
        async with connected(tmp_path) as (server, transport):
            server.token = "t1"
            assert (await transport.get(PATH))[0] == 401

    async def test_nor_a_kubeconfig_any_more(self, tmp_path: Path) -> None:
        async with connected(tmp_path) as (server, transport):
            server.token = "t1"
            (tmp_path / "config").write_text("{}")
            assert (await transport.get(PATH))[0] == 401


class TestInAPod:
    @pytest.fixture
    def account(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "localhost")
        monkeypatch.setattr(credentials, "SERVICE_ACCOUNT", tmp_path)
        return tmp_path

    async def test_over_tls_with_our_service_account(
        self, account: Path, monkeypatch: pytest.MonkeyPatch, golden: Callable[[str], None]
    ) -> None:
        authority = trustme.CA()
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        authority.issue_cert("localhost").configure_cert(context)
        authority.cert_pem.write_to_path(account / "ca.crt")
        (account / "token").write_text("t0")
        server = FakeApiServer()
        async with running(server, context):
            monkeypatch.setenv("KUBERNETES_SERVICE_PORT", server.url.rpartition(":")[2])
            transport = await connect()
            server.token = "t0"
            assert (await transport.get("/version"))[0] == 200
            server.token = "t1"
            assert (await transport.get("/version"))[0] == 401
            trustme.CA().cert_pem.write_to_path(account / "ca.crt")
            foreign = await connect()
            golden(await failure(foreign.get("/version")))
            await foreign.close()
            authority.cert_pem.write_to_path(account / "ca.crt")
            monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
            renamed = await connect()
            assert "of this pod, https://127.0.0.1:" in renamed.cluster
            golden(await failure(renamed.get("/version")))
            await renamed.close()
            monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "localhost")
            (account / "token").write_text("t0\nt1")
            authority.cert_pem.write_to_path(account / "ca.crt")
            confused = await connect()
            golden(await failure(confused.get("/version")))
            await confused.close()
            await transport.close()

    @pytest.mark.parametrize(
        "files",
        [{}, {"token": " \n", "ca.crt": "garbage"}, {"token": "t0"}, {"token": "t0", "ca.crt": "garbage"}],
        ids=["nothing", "empty token", "no CA", "no PEM"],
    )
    async def test_that_can_not_be_used(
        self, account: Path, monkeypatch: pytest.MonkeyPatch, files: dict[str, str], golden: Callable[[str], None]
    ) -> None:
        monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
        for name, content in files.items():
            (account / name).write_text(content)
        with pytest.raises(InputError) as caught:
            await connect()
        golden(caught.value.what.partition(" (")[0].replace(str(account), "ACCOUNT"))
        assert "automountServiceAccountToken" in caught.value.fix
