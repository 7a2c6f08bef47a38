"""Registries that require a user and a password, or a token."""

from __future__ import annotations

import json
from contextlib import AsyncExitStack

import pytest
from aiohttp import web

from tests.images.registry.asking import ANN, BASIC, cause_of
from tests.images.registry.fake_registry import FakeRegistry, client_of, manifest
from webhook.images.registry.client import RegistryClient
from webhook.images.registry.credentials import RegistryCredentials
from webhook.settings.layers_snapshot import RegistrySettings


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
        async with client_of(registry) as client:
            assert await cause_of(client, registry.reference("40"), ANN) == "denied"
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
        async with client_of(registry) as client:
            assert await cause_of(client, registry.reference("40"), ANN) == "denied"

    @pytest.mark.parametrize(
        "token",
        ["", "a\r\nX-Evil: 1", "\u00e9", "x" * 20_000, "a\x00b"],
        ids=["none", "header", "unicode", "long", "nul"],
    )
    async def test_tokens_that_are_none(self, registry: FakeRegistry, token: str) -> None:
        guarded(registry, f"http://{registry.address}/token", token)
        async with client_of(registry) as client:
            assert await cause_of(client, registry.reference("40"), ANN) == "invalid"

    @pytest.mark.parametrize("body", [b"", b"[]", b"[" * 60_000, b'{"token": 1}', b" " * 70_000])
    async def test_answers_of_token_servers_that_are_none(self, registry: FakeRegistry, body: bytes) -> None:
        guarded(registry, f"http://{registry.address}/token")
        usual = registry.handler
        assert usual

        async def answer(request: web.BaseRequest) -> web.StreamResponse | None:
            return web.Response(body=body) if request.path == "/token" else await usual(request)

        registry.handler = answer
        async with client_of(registry) as client:
            assert await cause_of(client, registry.reference("40"), ANN) == "invalid"

    async def test_a_token_that_is_not_accepted_is_asked_for_once(self, registry: FakeRegistry) -> None:
        async def never(request: web.BaseRequest) -> web.Response:
            if request.path == "/token":
                return web.Response(body=b'{"access_token": "t"}')
            challenge = f'Bearer realm="http://{registry.address}/token"'
            return web.Response(status=401, headers={"WWW-Authenticate": challenge})

        registry.handler = never
        async with client_of(registry) as client:
            assert await cause_of(client, registry.reference("40"), ANN) == "denied"
        assert len(registry.requests) == 3


async def test_docker_hub_has_its_own_hosts() -> None:
    async with AsyncExitStack() as ends:
        client = RegistryClient("docker.io", RegistrySettings())
        ends.push_async_callback(client.close)
        assert client._base.geturl() == "https://registry-1.docker.io"
        assert client._token_hosts == {"registry-1.docker.io", "auth.docker.io"}
