"""Registries for tests."""

from __future__ import annotations

import ssl
from collections.abc import Awaitable, Callable

import pytest
from aiohttp import web
from pytest_aiohttp import AiohttpServer

from tests.images.registry.fake_registry import FakeRegistry


@pytest.fixture
def serve(aiohttp_server: AiohttpServer) -> Callable[..., Awaitable[FakeRegistry]]:
    """Starts a registry, which ends with the test."""

    async def start(tls: ssl.SSLContext | None = None) -> FakeRegistry:
        registry = FakeRegistry()
        application = web.Application()
        application.router.add_route("*", "/{path:.*}", registry.answer)
        server = await aiohttp_server(application, ssl=tls, shutdown_timeout=0)
        registry.address = f"127.0.0.1:{server.port}"
        return registry

    return start


@pytest.fixture
async def registry(serve: Callable[..., Awaitable[FakeRegistry]]) -> FakeRegistry:
    return await serve()


@pytest.fixture
async def other(serve: Callable[..., Awaitable[FakeRegistry]]) -> FakeRegistry:
    return await serve()
