"""Manifests from registries that are right, slow, wrong and hostile."""

from __future__ import annotations

import asyncio
import gzip
import ssl
from collections.abc import AsyncIterator

import pytest
import trustme
from aiohttp import web

from tests.images.registry.asking import ANN, BASIC, cause_of
from tests.images.registry.fake_registry import LOOPBACK, FakeRegistry, client_of, manifest, serving
from webhook.images.manifests import MAX_BYTES, digest_of
from webhook.images.references import ImageReference
from webhook.images.registry.client import MAX_REDIRECTS, RegistryClient
from webhook.settings.layers_snapshot import RegistrySettings


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
        [
            (404, "absent"),
            (403, "denied"),
            (401, "denied"),
            (429, "limited"),
            (503, "unavailable"),
            (418, "invalid"),
        ],
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
        async with client_of(away) as client:
            assert await cause_of(client, away.reference("40")) == "unavailable"


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
        async with client_of(registry) as client:
            assert await cause_of(client, registry.reference(digest)) == "invalid"

    async def test_a_header_does_not_replace_the_check(self, registry: FakeRegistry) -> None:
        digest = digest_of(b"something else")

        async def lie(_: web.BaseRequest) -> web.Response:
            return web.Response(body=manifest(), headers={"Docker-Content-Digest": digest})

        registry.handler = lie
        async with client_of(registry) as client:
            assert await cause_of(client, registry.reference(digest)) == "invalid"

    async def test_slow(self, registry: FakeRegistry) -> None:
        end = asyncio.Event()

        async def dawdle(_: web.BaseRequest) -> web.Response:
            await end.wait()
            return web.Response()

        registry.handler = dawdle
        async with client_of(registry, seconds=0.1) as client:
            assert await cause_of(client, registry.reference("40")) == "unavailable"
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
        async with client_of(registry) as client:
            assert await cause_of(client, registry.reference("40")) == "invalid"
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
        async with client_of(registry, seconds=0.2) as client:
            assert await cause_of(client, registry.reference("40")) == "unavailable"

    async def test_huge(self, registry: FakeRegistry) -> None:
        registry.contents["40"] = b" " * (MAX_BYTES + 1)
        async with client_of(registry) as client:
            assert await cause_of(client, registry.reference("40")) == "invalid"

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
    async def test_a_private_ca_is_trusted_for_its_registry_alone(self) -> None:
        authority = trustme.CA()
        serving_tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        authority.issue_cert("127.0.0.1").configure_cert(serving_tls)
        trusted = ssl.create_default_context(cadata=authority.cert_pem.bytes().decode())
        settings = RegistrySettings(addresses=(LOOPBACK,))
        async with serving(serving_tls) as registry:
            registry.add(manifest(), "40")
            for tls in (trusted, None):
                client = RegistryClient(registry.address, settings, tls=tls)
                try:
                    if tls:
                        assert await client.manifest(registry.reference("40")) == manifest()
                    else:
                        assert await cause_of(client, registry.reference("40"), ANN) == "unavailable"
                finally:
                    await client.close()
            assert len(registry.requests) == 1

    async def test_a_redirect_to_plain_http_is_not_followed(self) -> None:
        authority = trustme.CA()
        serving_tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        authority.issue_cert("127.0.0.1").configure_cert(serving_tls)
        trusted = ssl.create_default_context(cadata=authority.cert_pem.bytes().decode())
        async with serving(serving_tls) as registry:

            async def away(_: web.BaseRequest) -> web.Response:
                return web.Response(status=307, headers={"Location": f"http://{registry.address}/v2/x/manifests/40"})

            registry.handler = away
            client = RegistryClient(registry.address, RegistrySettings(addresses=(LOOPBACK,)), tls=trusted)
            try:
                assert await cause_of(client, registry.reference("40"), ANN) == "denied"
            finally:
                await client.close()


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
            "http://169.254.169.254/latest/meta-data",
            "http://127.0.0.1:1/",
            "//evil.example/x",
            "https://evil.example/x",
            "file:///etc/passwd",
            "http://[",
            "http://user:pass@{own}/x",
            "",
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
        async with client_of(registry) as client:
            assert await cause_of(client, registry.reference("40")) == "invalid"
        assert len(registry.requests) == MAX_REDIRECTS + 1
