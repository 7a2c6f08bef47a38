from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from aiohttp import web

from tests.cluster.fake_apiserver import FakeApiServer, running, why
from webhook.cluster.directory import KINDS
from webhook.cluster.files import FilesCluster
from webhook.cluster.reader import RESOURCES, FileObjects, LiveObjects
from webhook.errors import Unavailable
from webhook.k8s.client.transport import connect
from webhook.kubevirt.resources import KUBEVIRTS
from webhook.kubevirt.types.views import KubeVirt
from webhook.settings.file import default_settings

EXAMPLES = Path(__file__).parents[2] / "examples" / "cluster"
IMAGE = RESOURCES["DataSource"]


@asynccontextmanager
async def live(tmp_path: Path, seconds: float = 10) -> AsyncIterator[tuple[FakeApiServer, LiveObjects]]:
    async with running(FakeApiServer()) as server:
        transport = await connect(server.kubeconfig(tmp_path / "kubeconfig"))
        try:
            yield server, LiveObjects(transport, seconds)
        finally:
            await transport.close()


def test_every_kind_can_stand_in_a_file_too() -> None:
    for name, resource in RESOURCES.items():
        assert (KINDS[name].group, KINDS[name].namespaced) == (resource.group, resource.namespaced)


async def test_files() -> None:
    files = FileObjects(FilesCluster.load(EXAMPLES, default_settings()))
    image = await files.get("DataSource", "shop", "debian")

    assert isinstance(image, dict)
    assert image["spec"]["source"]["pvc"]["name"] == "debian-13"
    assert await files.get("DataSource", "shop", "none") is None
    assert [install.meta.name for install in await files.kubevirts()] == ["kubevirt"]  # type: ignore[union-attr]


@pytest.mark.parametrize("resource", RESOURCES.values(), ids=RESOURCES)
async def test_live_objects_are_whole(tmp_path: Path, resource: Any) -> None:
    async with live(tmp_path) as (server, objects):
        namespace = "shop" if resource.namespaced else ""
        put = server.put(resource, "a", namespace, spec={"anything": [1, {"at": "all"}]})

        assert await objects.get(resource.kind, namespace, "a") == put
        assert await objects.get(resource.kind, namespace, "b") is None
        assert [asked.path for asked in server.asked] == [resource.path(namespace, name) for name in "ab"]
        assert {asked.verb for asked in server.asked} == {"get"}


@pytest.mark.parametrize("name", ["", "..", "../secrets/x", "a/b", "a%2fb"])
async def test_wild_names_are_not_asked_for(tmp_path: Path, name: str) -> None:
    async with live(tmp_path) as (server, objects):
        assert await objects.get("DataSource", "shop", name) is None
        assert await objects.get("DataSource", name, "a") is None
        assert server.asked == []


async def test_refusals_are_values(tmp_path: Path) -> None:
    async with live(tmp_path) as (server, objects):
        path = IMAGE.path("shop", "a")
        server.fail(path, 403)
        refused = await objects.get("DataSource", "shop", "a")
        server.answer(path, lambda _: web.Response(text="[1"))
        broken = await objects.get("DataSource", "shop", "a")

    assert isinstance(refused, Unavailable)
    assert refused.why.endswith("(403): grant get on datasources.cdi.kubevirt.io in namespace shop")
    assert broken == Unavailable("the API server's DataSource cannot be decoded")


async def test_kubevirts(tmp_path: Path) -> None:
    async with live(tmp_path) as (server, objects):
        assert await objects.kubevirts() == [], "no such kind"
        put = server.put(KUBEVIRTS, "kubevirt", "kubevirt", status={"phase": "Deployed"})
        assert await objects.kubevirts() == [msgspec.convert(put, KubeVirt)]
        server.answer(KUBEVIRTS.path(), lambda _: web.json_response({"items": None}))
        assert await objects.kubevirts() == []
        server.answer(KUBEVIRTS.path(), lambda _: web.Response(text="[]"))
        assert isinstance(await objects.kubevirts(), Unavailable)
        server.fail(KUBEVIRTS.path(), 403)
        assert "grant list on kubevirts.kubevirt.io" in why(await objects.kubevirts())


async def test_silence_and_no_server(tmp_path: Path) -> None:
    async with live(tmp_path, 0.05) as (server, objects):
        release = asyncio.Event()
        server.hang(KUBEVIRTS.path(), release)
        server.hang(IMAGE.path("shop", "a"), release)
        silent = await objects.kubevirts(), await objects.get("DataSource", "shop", "a")
        release.set()
    gone = await objects.kubevirts()

    for answer in (*silent, gone):
        assert isinstance(answer, Unavailable)
