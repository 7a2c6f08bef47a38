from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from tests.cluster.fake_apiserver import FakeApiServer, running, why
from webhook.cluster import reader
from webhook.cluster.reader import OnceCluster
from webhook.facts import NOT_READ, Key, KubeVirtKey, ListKey, NodesKey, ObjectKey, SchedulerKey
from webhook.k8s.client.transport import connect
from webhook.k8s.resources import NODES
from webhook.kubevirt.resources import KUBEVIRTS
from webhook.placement.machines import LAUNCHER_PODS, VMIS

LIST = "/api/v1/nodes"


class OnceCase:
    def __init__(self, server: FakeApiServer, cluster: OnceCluster) -> None:
        self.server = server
        self.cluster = cluster

    async def read(self, key: Key[Any], seconds: float = 10.0) -> Any:
        return await self.cluster.read(key, asyncio.get_running_loop().time() + seconds)


@pytest.fixture
async def case(tmp_path: Path) -> AsyncIterator[OnceCase]:
    server = FakeApiServer()
    async with running(server):
        transport = await connect(server.kubeconfig(tmp_path / "config"))
        try:
            yield OnceCase(server, OnceCluster(transport))
        finally:
            await transport.close()


async def test_nodes_are_listed_in_pages(case: OnceCase, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader, "_PAGE", 2)
    for number in range(5):
        case.server.put(NODES, f"n{number}", metadata={"labels": {"zone": "a"}})
    index = await case.read(NodesKey())

    assert sorted(node.name for node in index) == [f"n{number}" for number in range(5)]
    assert len(case.server.requests(LIST)) == 3


async def test_objects_lists_and_kubevirt(case: OnceCase) -> None:
    case.server.put(VMIS, "web", "demo", status={"nodeName": "n1"})
    owned = {"labels": {"a": "b"}, "ownerReferences": [{"uid": "u", "controller": True}]}
    case.server.put(LAUNCHER_PODS, "p", "demo", metadata=owned, spec={"nodeName": "n1"})
    case.server.put(LAUNCHER_PODS, "q", "demo")
    selectors = {"developerConfiguration": {"nodeSelectors": {"x": "y"}}}
    case.server.put(KUBEVIRTS, "kubevirt", "kubevirt", spec={"configuration": selectors}, status={"phase": "Deployed"})

    assert (await case.read(ObjectKey(VMIS, "demo", "web"))).node_name == "n1"
    assert await case.read(ObjectKey(VMIS, "demo", "other")) is None
    assert [pod.node_name for pod in await case.read(ListKey(LAUNCHER_PODS, "demo", "a=b"))] == ["n1"]
    assert (await case.read(KubeVirtKey())).configuration.node_selectors == {"x": "y"}


async def test_a_cluster_without_kubevirt(case: OnceCase) -> None:
    assert await case.read(KubeVirtKey()) is None


@pytest.mark.parametrize(
    "answer",
    [web.Response(status=403), web.Response(status=500), web.Response(text='{"items": 1}')],
    ids=["403", "500", "items"],
)
async def test_lists_that_can_not_be_read(case: OnceCase, answer: web.Response, golden: Callable[[str], None]) -> None:
    case.server.answer(LIST, lambda _: answer)
    found = await case.read(NodesKey())

    golden(why(found))


async def test_late_and_broken(case: OnceCase, golden: Callable[[str], None]) -> None:
    def broken(request: web.Request) -> Any:
        assert request.transport
        request.transport.abort()
        return web.Response()

    golden((await case.read(NodesKey(), 0.0)).why)
    case.server.answer(LIST, broken, times=9)
    golden((await case.read(NodesKey())).why.partition(" (")[0])


async def test_it_remembers_and_watches_nothing(case: OnceCase) -> None:
    assert case.cluster.peek(NodesKey()) is NOT_READ
    assert case.cluster.staleness() == {}
    assert case.cluster.waiting_for() == ()
    assert "cannot be read" in (await case.read(SchedulerKey("kubevirt"))).why
