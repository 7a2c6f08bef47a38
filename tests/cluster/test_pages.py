from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.cluster.fake_apiserver import FakeApiServer, running
from webhook.cluster.api import Refused
from webhook.cluster.pages import pages
from webhook.cluster.transport import KubernetesTransport, connect
from webhook.objects import PODS


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[tuple[FakeApiServer, KubernetesTransport]]:
    async with running(FakeApiServer()) as server:
        for number in range(5):
            server.put(PODS, f"pod-{number}", "demo", status={"phase": "Pending" if number else "Running"})
        transport = await connect(server.kubeconfig(tmp_path / "kubeconfig"))
        yield server, transport
        await transport.close()


async def test_all_pages_come(world: tuple[FakeApiServer, KubernetesTransport]) -> None:
    server, transport = world
    listed = pages(transport, PODS, query={"fieldSelector": "status.phase=Pending"}, limit=3, seconds=5)

    found = [(page.meta.resource_version, [pod.meta.name for pod in page.items or ()]) async for page in listed]

    assert found == [(str(server.version), ["pod-1", "pod-2", "pod-3"]), (str(server.version), ["pod-4"])]


async def test_a_moment_too_long_ago_is_refused(world: tuple[FakeApiServer, KubernetesTransport]) -> None:
    server, transport = world
    server.page_hook = server.compact

    with pytest.raises(Refused) as caught:
        _ = [page async for page in pages(transport, PODS, limit=2, seconds=5)]
    assert caught.value.status == 410
