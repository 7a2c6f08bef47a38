"""Registries that are right, slow, wrong and hostile, and those that require a user and a password, or a token."""

from __future__ import annotations

import asyncio
import gzip
import json
import ssl
from base64 import b64encode
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
import trustme
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st

from tests.images.registry.fake_registry import FakeRegistry, client_of, manifest
from tests.waiting import PATIENCE
from webhook.images.manifests import MAX_BYTES, ImageReference, digest_of
from webhook.images.registry.client import MAX_REDIRECTS, Challenge, RegistryClient, RegistryError, parse_challenges
from webhook.images.registry.credentials import RegistryCredentials
from webhook.settings.model import RegistrySettings

ANN = RegistryCredentials("ann", "secret")
BASIC = "Basic " + b64encode(b"ann:secret").decode()
MINE = manifest()
Answer = Callable[[web.BaseRequest], Awaitable[web.StreamResponse | None]]


async def cause_of(
    client: RegistryClient, reference: ImageReference, credentials: RegistryCredentials | None = None
) -> str:
    with pytest.raises(RegistryError) as caught:
        await client.manifest(reference, credentials)
    assert "secret" not in caught.value.why
    return caught.value.cause


async def cause(
    registry: FakeRegistry, version: str = "40", credentials: RegistryCredentials | None = None, **options: Any
) -> str:
    """Why a registry has no manifest."""
    async with client_of(registry, **options) as client:
        return await cause_of(client, registry.reference(version), credentials)


def answering(status: int = 200, body: bytes = b"", **headers: str) -> Answer:
    """Answers each request in the same way."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}

    async def answer(_: web.BaseRequest) -> web.Response:
        return web.Response(status=status, body=body, headers=named)

    return answer


REALM = "https://auth.example/token"


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        (
            f'Bearer realm="{REALM}",service="registry.example",scope="repository:a/b:pull"',
            [("bearer", {"realm": REALM, "service": "registry.example", "scope": "repository:a/b:pull"})],
        ),
        *(('Basic realm="x"', [("basic", {"realm": "x"})]), ("Basic", [("basic", {})])),
        ('Negotiate, Basic realm="x y"', [("negotiate", {}), ("basic", {"realm": "x y"})]),
        (
            'Basic realm="x", BEARER Realm=plain , service = "q\\"uoted, and comma"',
            [("basic", {"realm": "x"}), ("bearer", {"realm": "plain", "service": 'q"uoted, and comma'})],
        ),
        *(('Bearer realm="a",realm="b"', [("bearer", {"realm": "a"})]), ('Bearer realm="open', [("bearer", {})])),
        *(("", []), ("=", [])),
    ],
)
def test_a_header_has_challenges(header: str, expected: list[tuple[str, dict[str, str]]]) -> None:
    assert parse_challenges([header])[: len(expected)] == [Challenge(*each) for each in expected]


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
        digest = registry.add(MINE, "40")
        async with client_of(registry) as client:
            assert await client.manifest(registry.reference("40")) == MINE
            assert await client.manifest(registry.reference(digest)) == MINE
        assert registry.paths == [f"/v2/disks/fedora/manifests/{version}" for version in ("40", digest)]
        assert "application/vnd.oci.image.index.v1+json" in registry.requests[0].headers["Accept"]
        assert registry.authorizations() == [None, None]

    @pytest.mark.parametrize(
        ("status", "expected"),
        [(404, "absent"), (403, "denied"), (401, "denied"), (429, "limited"), (503, "unavailable"), (418, "invalid")],
    )
    async def test_other_answers_are_errors(self, registry: FakeRegistry, status: int, expected: str) -> None:
        registry.handler = answering(status, b"password is secret")
        assert await cause(registry) == expected

    async def test_a_tag_has_a_digest(self, registry: FakeRegistry) -> None:
        async with client_of(registry) as client:
            for told, digest in ((digest_of(MINE), digest_of(MINE)), ("", ""), ("sha256:x", ""), ("../x", "")):
                registry.handler = answering(body=MINE, Docker_Content_Digest=told)
                assert await client.digest(registry.reference("40")) == digest
        assert {request.method for request in registry.requests} == {"HEAD"}

    async def test_a_registry_that_is_away(self) -> None:
        away = FakeRegistry()
        away.address = "127.0.0.1:1"
        assert await cause(away) == "unavailable"


class TestHostileRegistries:
    """Each attack ends with an error, and the next request is answered as if there had been none."""

    @pytest.fixture(autouse=True)
    async def goes_on(self, registry: FakeRegistry) -> AsyncIterator[None]:
        yield
        registry.handler = None
        registry.add(MINE, "afterwards")
        async with client_of(registry) as client:
            assert await client.manifest(registry.reference("afterwards")) == MINE

    @pytest.mark.control("replaced-manifests", "hostile-registries")
    async def test_wrong_digest_and_huge(self, registry: FakeRegistry) -> None:
        digest = digest_of(b"something else")
        registry.contents[digest] = MINE
        assert await cause(registry, digest) == "invalid"
        registry.handler = answering(body=MINE, Docker_Content_Digest=digest)
        assert await cause(registry, digest) == "invalid", "a header does not replace the check"
        registry.handler = answering(body=b" " * (MAX_BYTES + 1))
        assert await cause(registry) == "invalid"

    @pytest.mark.control("hostile-registries", "scheduling-waits")
    async def test_slow(self, registry: FakeRegistry) -> None:
        end = asyncio.Event()

        async def dawdle(_: web.BaseRequest) -> web.Response:
            await end.wait()
            return web.Response()

        registry.handler = dawdle
        assert await cause(registry, seconds=0.1) == "unavailable"
        end.set()

    @pytest.mark.control("hostile-registries")
    @pytest.mark.parametrize(
        ("size", "pause", "seconds", "expected"),
        [(65_536, 0.0, PATIENCE, "invalid"), (1, 0.02, 0.2, "unavailable")],
        ids=["endless", "dripping"],
    )
    async def test_endless(
        self, registry: FakeRegistry, size: int, pause: float, seconds: float, expected: str
    ) -> None:
        sent = 0

        async def pour(request: web.BaseRequest) -> web.StreamResponse:
            nonlocal sent
            response = web.StreamResponse()
            await response.prepare(request)
            while True:
                sent += size
                await response.write(b" " * size)
                await asyncio.sleep(pause)

        registry.handler = pour
        assert await cause(registry, seconds=seconds) == expected
        # The buffers of both ends bound the bytes that were on their way.
        assert sent < MAX_BYTES + 32 * 1024 * 1024

    @pytest.mark.control("hostile-registries")
    async def test_a_small_body_stays_small(self, registry: FakeRegistry) -> None:
        bomb = gzip.compress(b" " * 50_000_000)
        registry.handler = answering(body=bomb, Content_Encoding="gzip")
        async with client_of(registry) as client:
            assert await client.manifest(registry.reference("40")) == bomb
        assert registry.requests[0].headers["Accept-Encoding"] == "identity"

    async def test_cookies_are_not_kept(self, registry: FakeRegistry) -> None:
        registry.handler = answering(body=MINE, Set_Cookie="a=b")
        async with client_of(registry) as client:
            for version in ("40", "41"):
                await client.manifest(registry.reference(version))
        assert "Cookie" not in registry.requests[1].headers


class TestAddresses:
    @pytest.mark.control("request-forgery-by-a-registry")
    @pytest.mark.parametrize(
        "host",
        # Without a list of addresses, localhost is a name like another, as after a change of its DNS records.
        ["127.0.0.1", "169.254.169.254", "[::1]", "10.96.0.1", "127.1", "2130706433", "0177.0.0.1", "localhost:{port}"],
    )
    async def test_no_address_inside_is_contacted(self, registry: FakeRegistry, host: str) -> None:
        name = host.replace("{port}", registry.address.rpartition(":")[2])
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
        registry.add(MINE, "40")
        async with client_of(registry) as client:
            assert await client.manifest(registry.reference("40")) == MINE


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
        registry.add(MINE, "40")
        async with client_of(registry, plain_http=False, tls=trusted) as client:
            assert await client.manifest(registry.reference("40")) == MINE
        assert await cause(registry, credentials=ANN, plain_http=False) == "unavailable"
        assert len(registry.requests) == 1

    async def test_a_redirect_to_plain_http_is_not_followed(
        self, registry: FakeRegistry, trusted: ssl.SSLContext
    ) -> None:
        registry.handler = answering(307, Location=f"http://{registry.address}/v2/x/manifests/40")
        assert await cause(registry, credentials=ANN, plain_http=False, tls=trusted) == "denied"


def demanding_basic(then: Answer) -> Answer:
    """Answers only who authenticates."""

    async def answer(request: web.BaseRequest) -> web.StreamResponse | None:
        if request.headers.get("Authorization") != BASIC:
            return web.Response(status=401, headers={"WWW-Authenticate": 'Basic realm="x"'})
        return await then(request)

    return answer


class TestRedirects:
    def redirect(self, registry: FakeRegistry, location: str) -> None:
        async def away(request: web.BaseRequest) -> web.Response | None:
            if request.path.startswith("/v2/disks/fedora/manifests/40"):
                return web.Response(status=307, headers={"Location": location})
            return None

        registry.handler = away

    @pytest.mark.control("request-forgery-by-a-registry", "scheduling-waits")
    @pytest.mark.parametrize(
        "location",
        [
            *("http://169.254.169.254/latest/meta-data", "http://127.0.0.1:1/", "//evil.example/x"),
            *("https://evil.example/x", "file:///etc/passwd", "http://[", "http://user:pass@{own}/x", ""),
        ],
    )
    async def test_to_hosts_that_are_not_listed(self, registry: FakeRegistry, location: str) -> None:
        self.redirect(registry, location.replace("{own}", registry.address))
        assert await cause(registry) in ("denied", "invalid")

    async def test_within_the_registry(self, registry: FakeRegistry) -> None:
        registry.add(MINE, "41")
        self.redirect(registry, "/v2/other/manifests/41")
        async with client_of(registry) as client:
            assert await client.manifest(registry.reference("40")) == MINE

    @pytest.mark.control("credentials-to-other-hosts")
    async def test_to_a_listed_host_without_credentials(self, registry: FakeRegistry, other: FakeRegistry) -> None:
        other.add(MINE, "41")
        registry.handler = demanding_basic(answering(307, Location=f"http://{other.address}/x/41"))
        async with client_of(registry, redirect_hosts=(other.address,)) as client:
            assert await client.manifest(registry.reference("40"), ANN) == MINE
        assert (registry.authorizations(), other.authorizations()) == ([None, BASIC], [None])

    async def test_in_a_circle(self, registry: FakeRegistry) -> None:
        self.redirect(registry, "/v2/disks/fedora/manifests/40")
        assert (await cause(registry), len(registry.requests)) == ("invalid", MAX_REDIRECTS + 1)


async def test_credentials_are_sent_when_they_are_asked_for(registry: FakeRegistry) -> None:
    registry.handler = demanding_basic(answering(body=MINE))
    async with client_of(registry) as client:
        assert await client.manifest(registry.reference("40"), ANN) == MINE
        for credentials in (None, RegistryCredentials("ann", "wrong")):
            assert await cause_of(client, registry.reference("40"), credentials) == "denied"


def guarded(registry: FakeRegistry, realm: str, token: str = "t0ken", **parameters: str) -> None:
    """A registry with a token server at ``/token``."""
    challenge = ",".join(f'{name}="{value}"' for name, value in {"realm": realm, **parameters}.items())

    async def guard(request: web.BaseRequest) -> web.Response | None:
        if request.path == "/token":
            return web.Response(body=json.dumps({"token": token, "expires_in": 300}))
        if request.headers.get("Authorization") == f"Bearer {token}":
            return None
        return web.Response(status=401, headers={"WWW-Authenticate": f"Bearer {challenge}"})

    registry.add(MINE, "40")
    registry.handler = guard


class TestBearer:
    @pytest.mark.control("credentials-to-other-hosts")
    @pytest.mark.parametrize("query", ["", "?scope=repository:other/private:push,pull&service=other&account=root"])
    async def test_a_token_is_for_pulling_from_one_repository(self, registry: FakeRegistry, query: str) -> None:
        """A registry that requests more does not get more, and a realm chooses no scope either."""
        registry.add(MINE, "41")
        scope = "repository:other/private:push,pull"
        guarded(registry, f"http://{registry.address}/token{query}", service="reg", scope=scope)
        async with client_of(registry) as client:
            for version in ("40", "41"):
                assert await client.manifest(registry.reference(version), ANN) == MINE
        (token,) = [request for request in registry.requests if request.path == "/token"]
        assert list(token.query.items()) == [("scope", "repository:disks/fedora:pull"), ("service", "reg")]
        assert token.headers["Authorization"] == BASIC

    @pytest.mark.control("credentials-to-other-hosts")
    async def test_tokens_of_others_are_not_used(self, registry: FakeRegistry) -> None:
        guarded(registry, f"http://{registry.address}/token")
        async with client_of(registry) as client:
            for credentials in (ANN, None, RegistryCredentials("bob", "x")):
                await client.manifest(registry.reference("40"), credentials)
        assert registry.paths.count("/token") == 3

    @pytest.mark.control("credentials-to-other-hosts")
    async def test_a_token_server_on_another_host_gets_nothing_unless_it_is_listed(
        self, registry: FakeRegistry, other: FakeRegistry
    ) -> None:
        guarded(registry, f"http://{other.address}/token")
        assert (await cause(registry, credentials=ANN), other.requests) == ("denied", [])
        assert registry.authorizations() == [None]
        guarded(other, "unused")
        async with client_of(registry, token_hosts=(other.address,)) as client:
            assert await client.manifest(registry.reference("40"), ANN) == MINE
        assert other.authorizations() == [BASIC]

    @pytest.mark.parametrize(
        "realm", ["", "http://[", "file:///etc/passwd", "http://169.254.169.254/token", "https://{own}/token", "/token"]
    )
    async def test_realms_that_are_none(self, registry: FakeRegistry, realm: str) -> None:
        guarded(registry, realm.replace("{own}", registry.address))
        assert await cause(registry, credentials=ANN) == "denied"

    @pytest.mark.parametrize(
        "token",
        ["", "a\r\nX-Evil: 1", "\u00e9", "x" * 20_000, "a\x00b"],
        ids=["none", "header", "unicode", "long", "nul"],
    )
    async def test_tokens_that_are_none(self, registry: FakeRegistry, token: str) -> None:
        guarded(registry, f"http://{registry.address}/token", token)
        assert await cause(registry, credentials=ANN) == "invalid"

    @pytest.mark.parametrize(
        ("body", "expected"),
        [
            *((b"", "invalid"), (b"[]", "invalid"), (b"[" * 60_000, "invalid"), (b'{"token": 1}', "invalid")),
            # A token that is not accepted is asked for once.
            *((b" " * 70_000, "invalid"), (b'{"access_token": "t"}', "denied")),
        ],
    )
    async def test_answers_of_token_servers_that_are_none(
        self, registry: FakeRegistry, body: bytes, expected: str
    ) -> None:
        guarded(registry, f"http://{registry.address}/token")
        usual = registry.handler
        assert usual

        async def answer(request: web.BaseRequest) -> web.StreamResponse | None:
            return web.Response(body=body) if request.path == "/token" else await usual(request)

        registry.handler = answer
        assert (await cause(registry, credentials=ANN), registry.paths.count("/token")) == (expected, 1)


async def test_docker_hub_has_its_own_hosts() -> None:
    client = RegistryClient("docker.io", RegistrySettings())
    await client.close()
    assert client._base.geturl() == "https://registry-1.docker.io"
    assert client._token_hosts == {"registry-1.docker.io", "auth.docker.io"}
