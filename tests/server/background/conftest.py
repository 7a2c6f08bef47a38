from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.fake_apiserver import FakeApiServer, running
from webhook.k8s.client.transport import connect

ServedApi = tuple[FakeApiServer, Any]


@pytest.fixture
async def api(tmp_path: Path) -> AsyncIterator[ServedApi]:
    """A fake API server, and a connection to it."""
    async with running(FakeApiServer()) as server:
        transport = await connect(server.kubeconfig(tmp_path / "kubeconfig"))
        try:
            yield server, transport
        finally:
            await transport.close()


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
