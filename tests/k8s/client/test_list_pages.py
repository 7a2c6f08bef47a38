from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from aiohttp import web

from tests.cluster.fake_apiserver import DEEP, FakeApiServer, running
from webhook.k8s.client.api import LARGEST_ANSWER_BYTES, ApiError, TooLargeError
from webhook.k8s.client.list_pages import PAGE_BYTES, decode_items, pages
from webhook.k8s.client.transport import KubernetesTransport, connect
from webhook.k8s.resources import PENDING_PODS
from webhook.kubevirt.resources import UNSTRUCTURED_VMS

World = tuple[FakeApiServer, KubernetesTransport]


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    async with running(FakeApiServer()) as server:
        for number in range(5):
            server.put(PENDING_PODS, f"pod-{number}", "demo", status={"phase": "Pending" if number else "Running"})
        transport = await connect(server.kubeconfig(tmp_path / "kubeconfig"))
        yield server, transport
        await transport.close()


async def names_of(transport: KubernetesTransport, resource: Any, **options: Any) -> list[str]:
    options = {"limit": 100, "seconds": 20} | options
    return [item.meta.name async for page in pages(transport, resource, **options) for item in page.items or ()]


async def test_all_pages_come(world: World) -> None:
    server, transport = world
    listed = pages(transport, PENDING_PODS, query={"fieldSelector": "status.phase=Pending"}, limit=3, seconds=5)

    found = [(page.meta.resource_version, [pod.meta.name for pod in page.items or ()]) async for page in listed]

    assert found == [(str(server.version), ["pod-1", "pod-2", "pod-3"]), (str(server.version), ["pod-4"])]


async def test_a_moment_too_long_ago_is_refused(world: World) -> None:
    server, transport = world
    server.page_hook = server.compact

    with pytest.raises(ApiError) as caught:
        _ = [page async for page in pages(transport, PENDING_PODS, limit=2, seconds=5)]
    assert caught.value.status == 410


class TestBytes:
    async def test_pages_of_large_objects_have_fewer_of_them(self, world: World) -> None:
        server, transport = world
        for number in range(60):
            server.put(PENDING_PODS, f"fat-{number:02}", "demo", metadata={"annotations": {"a": "x" * 250_000}})
        sizes = [page.size async for page in pages(transport, PENDING_PODS, limit=100, seconds=20)]

        assert len(await names_of(transport, PENDING_PODS)) == 65
        assert max(sizes) <= PAGE_BYTES
        # 15 MB: most pages are half full, and few were too large.
        assert len(sizes) <= 12
        assert len(server.asked) <= 2 * 16

    async def test_pages_of_small_ones_are_as_large_as_they_may_be(self, world: World) -> None:
        server, transport = world
        for number in range(500):
            server.put(PENDING_PODS, f"small-{number}", "demo")

        assert len(await names_of(transport, PENDING_PODS)) == 505
        assert len(server.asked) == 6

    async def test_one_object_may_be_larger_than_a_page(self, world: World) -> None:
        server, transport = world
        # etcd's 1.5 MB of characters that JSON must escape.
        server.put(PENDING_PODS, "escaped", "demo", metadata={"annotations": {"a": "\u0001" * 1_500_000}})

        assert "escaped" in await names_of(transport, PENDING_PODS)

    async def test_but_not_without_bounds(self, world: World) -> None:
        server, transport = world
        server.put(PENDING_PODS, "endless", "demo", metadata={"annotations": {"a": "x" * (LARGEST_ANSWER_BYTES + 1)}})

        with pytest.raises(TooLargeError, match="larger than 16 MiB"):
            await names_of(transport, PENDING_PODS)


class TestDepth:
    async def test_objects_that_are_too_deep_hide_no_other_and_not_themselves(self, world: World) -> None:
        server, transport = world
        for number in range(40):
            server.put(UNSTRUCTURED_VMS, f"vm-{number:02}", "demo", spec={"running": True})
        for name in ("a-deep", "vm-17-deep", "z-deep"):
            server.put(UNSTRUCTURED_VMS, name, "demo", spec={"template": {"metadata": DEEP}})

        found = await names_of(transport, UNSTRUCTURED_VMS)

        assert found == [
            "a-deep",
            *(f"vm-{n:02}" for n in range(18)),
            "vm-17-deep",
            *(f"vm-{n}" for n in range(18, 40)),
            "z-deep",
        ]

    async def test_what_is_no_list_at_all(self, world: World) -> None:
        server, transport = world
        server.answer(PENDING_PODS.path(), lambda _: web.Response(text="[" * 5000), times=9)

        with pytest.raises(msgspec.DecodeError):
            await names_of(transport, PENDING_PODS)


async def test_an_object_that_only_its_own_decoder_finds_too_deep_hides_no_other() -> None:
    deep = msgspec.Raw(b'{"metadata": {"name": "deep"}, "x": %s1%s}' % (b"[" * 20_000, b"]" * 20_000))
    flat = msgspec.Raw(b'{"metadata": {"name": "flat"}}')

    items = await decode_items([deep, flat], msgspec.json.Decoder(PENDING_PODS.view).decode)

    assert [item.meta.name for item in items] == ["deep", "flat"]
