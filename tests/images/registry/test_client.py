"""Registries that are right, slow, wrong and hostile, and those that require a user and a password, or a token."""

from __future__ import annotations

import asyncio
import gzip
import json
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from typing import Any

import pytest
import trustme
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st

from tests.images.registry.asking import ANN, BASIC, cause_of
from tests.images.registry.fake_registry import FakeRegistry, client_of, manifest
from webhook.images.manifests import MAX_BYTES, ImageReference, digest_of
from webhook.images.registry.client import MAX_REDIRECTS, Challenge, RegistryClient, parse_challenges
from webhook.images.registry.credentials import RegistryCredentials
from webhook.settings.model import RegistrySettings


async def cause(opened: AbstractAsyncContextManager[RegistryClient], *asked: Any) -> str:
    """Why a registry has no manifest."""
    async with opened as client:
        return await cause_of(client, *asked)


REALM = "https://auth.example/token"


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        (
            f'Bearer realm="{REALM}",service="registry.example",scope="repository:a/b:pull"',
            [Challenge("bearer", {"realm": REALM, "service": "registry.example", "scope": "repository:a/b:pull"})],
        ),
        ('Basic realm="x"', [Challenge("basic", {"realm": "x"})]),
        ("Basic", [Challenge("basic", {})]),
        ('Negotiate, Basic realm="x y"', [Challenge("negotiate", {}), Challenge("basic", {"realm": "x y"})]),
        (
            'Basic realm="x", BEARER Realm=plain , service = "q\\"uoted, and comma"',
            [
                Challenge("basic", {"realm": "x"}),
                Challenge("bearer", {"realm": "plain", "service": 'q"uoted, and comma'}),
            ],
        ),
        ('Bearer realm="a",realm="b"', [Challenge("bearer", {"realm": "a"})]),
        ("", []),
        ("=", []),
        ('Bearer realm="open', [Challenge("bearer", {})]),
    ],
)
def test_a_header_has_challenges(header: str, expected: list[Challenge]) -> None:
    found = parse_challenges([header])
    assert found[: len(expected)] == expected


def test_several_headers_add_up() -> None:
    assert [each.scheme for each in parse_challenges(["Basic", 'Bearer realm="x"'])] == ["basic", "bearer"]


@given(st.text(max_size=300) | st.text(alphabet='aB =,"\\\t', max_size=5000))
def test_whatever_the_header_is_it_ends(header: str) -> None:
    for challenge in parse_challenges([header]):
        assert challenge.scheme == challenge.scheme.lower()


TOKENS = st.from_regex(r"[A-Za-z]{1,8}", fullmatch=True)


@given(TOKENS, st.dictionaries(TOKENS.map(str.lower), st.text(st.characters(codec="ascii"), max_size=20), max_size=4))
def test_what_is_written_is_read(scheme: str, parameters: dict[str, str]) -> None:
    escaped = {name: value.replace("\\", "\\\\").replace('"', '\\"') for name, value in parameters.items()}
    header = f"{scheme} " + ", ".join(f'{name}="{value}"' for name, value in escaped.items())
    if "\n" not in header:
        assert parse_challenges([header]) == [Challenge(scheme.lower(), parameters)]


class TestManifests:
    async def test_by_tag_and_by_digest(self, registry: FakeRegistry) -> None:
        digest = registry.add(manifest(), "40")
        async with client_of(registry) as client:
            assert await client.manifest(registry.reference("40")) == manifest()
            assert await client.manifest(registry.reference(digest)) == manifest()
        assert registry.paths == [f"/v2/disks/fedora/manifests/{version}" for version in ("40", digest)]
        assert "application/vnd.oci.image.index.v1+json" in registry.requests[0].headers["Accept"]
        assert registry.authorizations() == [None, None]

    @pytest.mark.parametrize(
        ("status", "cause"),
        [(404, "absent"), (403, "denied"), (401, "denied"), (429, "limited"), (503, "unavailable"), (418, "invalid")],
    )
    async def test_other_answers_are_errors(self, registry: FakeRegistry, status: int, cause: str) -> None:
        async def refuse(_: web.BaseRequest) -> web.Response:
            return web.Response(status=status, text="password is secret")

        registry.handler = refuse
        async with client_of(registry) as client:
            assert await cause_of(client, registry.reference("40")) == cause

    async def test_a_tag_has_a_digest(self, registry: FakeRegistry) -> None:
        headers = {"Docker-Content-Digest": digest_of(manifest())}

        async def answer(request: web.BaseRequest) -> web.Response:
            assert request.method == "HEAD"
            return web.Response(body=manifest(), headers=headers)

        registry.handler = answer
        async with client_of(registry) as client:
            assert await client.digest(registry.reference("40")) == digest_of(manifest())
            for wrong in ("", "sha256:x", "../x"):
                headers["Docker-Content-Digest"] = wrong
                assert await client.digest(registry.reference("40")) == ""

    async def test_a_registry_that_is_away(self, registry: FakeRegistry) -> None:
        away = FakeRegistry()
        away.address = "127.0.0.1:1"
        assert await cause(client_of(away), away.reference("40")) == "unavailable"


class TestHostileRegistries:
    """Each attack ends with an error, and the next request is answered as if there had been none."""

    @pytest.fixture(autouse=True)
    async def goes_on(self, registry: FakeRegistry) -> AsyncIterator[None]:
        yield
        registry.handler = None
        registry.add(manifest(), "afterwards")
        async with client_of(registry) as client:
            assert await client.manifest(registry.reference("afterwards")) == manifest()

    async def test_wrong_digest(self, registry: FakeRegistry) -> None:
        digest = digest_of(b"something else")
        registry.contents[digest] = manifest()
        assert await cause(client_of(registry), registry.reference(digest)) == "invalid"

    async def test_a_header_does_not_replace_the_check(self, registry: FakeRegistry) -> None:
        digest = digest_of(b"something else")

        async def lie(_: web.BaseRequest) -> web.Response:
            return web.Response(body=manifest(), headers={"Docker-Content-Digest": digest})

        registry.handler = lie
        assert await cause(client_of(registry), registry.reference(digest)) == "invalid"

    async def test_slow(self, registry: FakeRegistry) -> None:
        end = asyncio.Event()

        async def dawdle(_: web.BaseRequest) -> web.Response:
            await end.wait()
            return web.Response()

        registry.handler = dawdle
        assert await cause(client_of(registry, seconds=0.1), registry.reference("40")) == "unavailable"
        end.set()

    async def test_endless(self, registry: FakeRegistry) -> None:
        sent = 0

        async def pour(request: web.BaseRequest) -> web.StreamResponse:
            nonlocal sent
            response = web.StreamResponse()
            await response.prepare(request)
            while True:
                sent += 65_536
                await response.write(b" " * 65_536)

        registry.handler = pour
        assert await cause(client_of(registry), registry.reference("40")) == "invalid"
        # The buffers of both ends bound the bytes that were on their way.
        assert sent < MAX_BYTES + 32 * 1024 * 1024

    async def test_dripping(self, registry: FakeRegistry) -> None:
        async def drip(request: web.BaseRequest) -> web.StreamResponse:
            response = web.StreamResponse()
            await response.prepare(request)
            while True:
                await response.write(b" ")
                await asyncio.sleep(0.02)

        registry.handler = drip
        assert await cause(client_of(registry, seconds=0.2), registry.reference("40")) == "unavailable"

    async def test_huge(self, registry: FakeRegistry) -> None:
        registry.contents["40"] = b" " * (MAX_BYTES + 1)
        assert await cause(client_of(registry), registry.reference("40")) == "invalid"

    async def test_a_small_body_stays_small(self, registry: FakeRegistry) -> None:
        bomb = gzip.compress(b" " * 50_000_000)

        async def send(request: web.BaseRequest) -> web.Response:
            assert request.headers["Accept-Encoding"] == "identity"
            return web.Response(body=bomb, headers={"Content-Encoding": "gzip"})

        registry.handler = send
        async with client_of(registry) as client:
            assert await client.manifest(registry.reference("40")) == bomb

    async def test_cookies_are_not_kept(self, registry: FakeRegistry) -> None:
        async def give(_: web.BaseRequest) -> web.Response:
            return web.Response(body=manifest(), headers={"Set-Cookie": "a=b"})

        registry.handler = give
        async with client_of(registry) as client:
            await client.manifest(registry.reference("40"))
            await client.manifest(registry.reference("41"))
        assert "Cookie" not in registry.requests[1].headers


class TestAddresses:
    @pytest.mark.parametrize(
        "host", ["127.0.0.1", "169.254.169.254", "[::1]", "10.96.0.1", "127.1", "2130706433", "0177.0.0.1"]
    )
    async def test_no_address_inside_is_contacted(self, host: str) -> None:
        client = RegistryClient(host, RegistrySettings(plain_http=True))
        try:
            assert await cause_of(client, ImageReference(host, "a", "b")) == "denied"
        finally:
            await client.close()

    async def test_a_name_for_an_address_inside_is_not_followed(self, registry: FakeRegistry) -> None:
        # No list of addresses: localhost is a name like another, as after a change of its DNS records.
        name = f"localhost:{registry.address.rpartition(':')[2]}"
        client = RegistryClient(name, RegistrySettings(plain_http=True))
        try:
            assert await cause_of(client, ImageReference(name, "a", "b")) == "denied"
        finally:
            await client.close()
        assert registry.requests == []

    async def test_the_proxy_of_the_environment_is_not_used(
        self, registry: FakeRegistry, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
        registry.add(manifest(), "40")
        async with client_of(registry) as client:
            assert await client.manifest(registry.reference("40")) == manifest()


class TestTls:
    @pytest.fixture
    def authority(self) -> trustme.CA:
        return trustme.CA()

    @pytest.fixture
    def trusted(self, authority: trustme.CA) -> ssl.SSLContext:
        return ssl.create_default_context(cadata=authority.cert_pem.bytes().decode())

    @pytest.fixture
    async def registry(self, serve: Callable[..., Awaitable[FakeRegistry]], authority: trustme.CA) -> FakeRegistry:
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        authority.issue_cert("127.0.0.1").configure_cert(tls)
        return await serve(tls)

    async def test_a_private_ca_is_trusted_for_its_registry_alone(
        self, registry: FakeRegistry, trusted: ssl.SSLContext
    ) -> None:
        registry.add(manifest(), "40")
        async with client_of(registry, plain_http=False, tls=trusted) as client:
            assert await client.manifest(registry.reference("40")) == manifest()
        assert await cause(client_of(registry, plain_http=False), registry.reference("40"), ANN) == "unavailable"
        assert len(registry.requests) == 1

    async def test_a_redirect_to_plain_http_is_not_followed(
        self, registry: FakeRegistry, trusted: ssl.SSLContext
    ) -> None:
        async def away(_: web.BaseRequest) -> web.Response:
            return web.Response(status=307, headers={"Location": f"http://{registry.address}/v2/x/manifests/40"})

        registry.handler = away
        assert (
            await cause(client_of(registry, plain_http=False, tls=trusted), registry.reference("40"), ANN) == "denied"
        )


class TestRedirects:
    async def redirect(self, registry: FakeRegistry, location: str) -> None:
        async def away(request: web.BaseRequest) -> web.Response | None:
            if request.path.startswith("/v2/disks/fedora/manifests/40"):
                return web.Response(status=307, headers={"Location": location})
            return None

        registry.handler = away

    @pytest.mark.parametrize(
        "location",
        [
            *("http://169.254.169.254/latest/meta-data", "http://127.0.0.1:1/", "//evil.example/x"),
            *("https://evil.example/x", "file:///etc/passwd", "http://[", "http://user:pass@{own}/x", ""),
        ],
    )
    async def test_to_hosts_that_are_not_listed(self, registry: FakeRegistry, location: str) -> None:
        await self.redirect(registry, location.replace("{own}", registry.address))
        async with client_of(registry) as client:
            assert await cause_of(client, registry.reference("40")) in ("denied", "invalid")

    async def test_within_the_registry(self, registry: FakeRegistry) -> None:
        registry.add(manifest(), "41")
        await self.redirect(registry, "/v2/other/manifests/41")
        async with client_of(registry) as client:
            assert await client.manifest(registry.reference("40")) == manifest()

    async def test_to_a_listed_host_without_credentials(self, registry: FakeRegistry, other: FakeRegistry) -> None:
        other.add(manifest(), "41")

        async def guard(request: web.BaseRequest) -> web.Response:
            if request.headers.get("Authorization") != BASIC:
                return web.Response(status=401, headers={"WWW-Authenticate": 'Basic realm="x"'})
            return web.Response(status=307, headers={"Location": f"http://{other.address}/x/41"})

        registry.handler = guard
        async with client_of(registry, redirect_hosts=(other.address,)) as client:
            assert await client.manifest(registry.reference("40"), ANN) == manifest()
        assert registry.authorizations() == [None, BASIC]
        assert other.authorizations() == [None]

    async def test_in_a_circle(self, registry: FakeRegistry) -> None:
        await self.redirect(registry, "/v2/disks/fedora/manifests/40")
        assert await cause(client_of(registry), registry.reference("40")) == "invalid"
        assert len(registry.requests) == MAX_REDIRECTS + 1


class TestBasic:
    async def test_credentials_are_sent_when_they_are_asked_for(self, registry: FakeRegistry) -> None:
        registry.add(manifest(), "40")

        async def guard(request: web.BaseRequest) -> web.Response | None:
            if request.headers.get("Authorization") == BASIC:
                return None
            return web.Response(status=401, headers={"WWW-Authenticate": 'Basic realm="x"'})

        registry.handler = guard
        async with client_of(registry) as client:
            assert await client.manifest(registry.reference("40"), ANN) == manifest()
            assert await cause_of(client, registry.reference("40")) == "denied"
            assert await cause_of(client, registry.reference("40"), RegistryCredentials("ann", "wrong")) == "denied"


def guarded(registry: FakeRegistry, realm: str, token: str = "t0ken", **parameters: str) -> None:
    """A registry with a token server at ``/token``."""
    challenge = ",".join(f'{name}="{value}"' for name, value in {"realm": realm, **parameters}.items())

    async def guard(request: web.BaseRequest) -> web.Response | None:
        if request.path == "/token":
            return web.Response(body=json.dumps({"token": token, "expires_in": 300}))
        if request.headers.get("Authorization") == f"Bearer {token}":
            return None
        return web.Response(status=401, headers={"WWW-Authenticate": f"Bearer {challenge}"})

    registry.handler = guard


class TestBearer:
    async def test_a_token_is_for_pulling_from_one_repository(self, registry: FakeRegistry) -> None:
        registry.add(manifest(), "40")
        registry.add(manifest(), "41")
        # A registry that requests more does not get more.
        guarded(registry, f"http://{registry.address}/token", service="reg", scope="repository:other/private:push,pull")
        async with client_of(registry) as client:
            assert await client.manifest(registry.reference("40"), ANN) == manifest()
            assert await client.manifest(registry.reference("41"), ANN) == manifest()
        tokens = [request for request in registry.requests if request.path == "/token"]
        assert [dict(request.query) for request in tokens] == [
            {"scope": "repository:disks/fedora:pull", "service": "reg"}
        ]
        assert tokens[0].headers["Authorization"] == BASIC

    async def test_a_realm_chooses_no_scope_either(self, registry: FakeRegistry) -> None:
        registry.add(manifest(), "40")
        realm = f"http://{registry.address}/token?scope=repository:other/private:push,pull&service=other&account=root"
        guarded(registry, realm, service="reg")
        async with client_of(registry) as client:
            await client.manifest(registry.reference("40"), ANN)
        (token,) = [request for request in registry.requests if request.path == "/token"]
        assert list(token.query.items()) == [("scope", "repository:disks/fedora:pull"), ("service", "reg")]

    async def test_tokens_of_others_are_not_used(self, registry: FakeRegistry) -> None:
        registry.add(manifest(), "40")
        guarded(registry, f"http://{registry.address}/token")
        async with client_of(registry) as client:
            await client.manifest(registry.reference("40"), ANN)
            await client.manifest(registry.reference("40"))
            await client.manifest(registry.reference("40"), RegistryCredentials("bob", "x"))
        assert registry.paths.count("/token") == 3

    async def test_a_token_server_on_another_host_gets_nothing(
        self, registry: FakeRegistry, other: FakeRegistry
    ) -> None:
        guarded(registry, f"http://{other.address}/token")
        assert await cause(client_of(registry), registry.reference("40"), ANN) == "denied"
        assert other.requests == []
        assert registry.authorizations() == [None]

    async def test_unless_it_is_listed(self, registry: FakeRegistry, other: FakeRegistry) -> None:
        registry.add(manifest(), "40")
        guarded(registry, f"http://{other.address}/token")
        guarded(other, "unused")
        async with client_of(registry, token_hosts=(other.address,)) as client:
            assert await client.manifest(registry.reference("40"), ANN) == manifest()
        assert other.authorizations() == [BASIC]

    @pytest.mark.parametrize(
        "realm", ["", "http://[", "file:///etc/passwd", "http://169.254.169.254/token", "https://{own}/token", "/token"]
    )
    async def test_realms_that_are_none(self, registry: FakeRegistry, realm: str) -> None:
        guarded(registry, realm.replace("{own}", registry.address))
        assert await cause(client_of(registry), registry.reference("40"), ANN) == "denied"

    @pytest.mark.parametrize(
        "token",
        ["", "a\r\nX-Evil: 1", "\u00e9", "x" * 20_000, "a\x00b"],
        ids=["none", "header", "unicode", "long", "nul"],
    )
    async def test_tokens_that_are_none(self, registry: FakeRegistry, token: str) -> None:
        guarded(registry, f"http://{registry.address}/token", token)
        assert await cause(client_of(registry), registry.reference("40"), ANN) == "invalid"

    @pytest.mark.parametrize("body", [b"", b"[]", b"[" * 60_000, b'{"token": 1}', b" " * 70_000])
    async def test_answers_of_token_servers_that_are_none(self, registry: FakeRegistry, body: bytes) -> None:
        guarded(registry, f"http://{registry.address}/token")
        usual = registry.handler
        assert usual

        async def answer(request: web.BaseRequest) -> web.StreamResponse | None:
            return web.Response(body=body) if request.path == "/token" else await usual(request)

        registry.handler = answer
        assert await cause(client_of(registry), registry.reference("40"), ANN) == "invalid"

    async def test_a_token_that_is_not_accepted_is_asked_for_once(self, registry: FakeRegistry) -> None:
        async def never(request: web.BaseRequest) -> web.Response:
            if request.path == "/token":
                return web.Response(body=b'{"access_token": "t"}')
            challenge = f'Bearer realm="http://{registry.address}/token"'
            return web.Response(status=401, headers={"WWW-Authenticate": challenge})

        registry.handler = never
        assert await cause(client_of(registry), registry.reference("40"), ANN) == "denied"
        assert len(registry.requests) == 3


async def test_docker_hub_has_its_own_hosts() -> None:
    async with AsyncExitStack() as ends:
        client = RegistryClient("docker.io", RegistrySettings())
        ends.push_async_callback(client.close)
        assert client._base.geturl() == "https://registry-1.docker.io"
        assert client._token_hosts == {"registry-1.docker.io", "auth.docker.io"}
