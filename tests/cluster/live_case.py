"""A live cluster in front of a fake API server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tests import builders
from tests.cluster.fake_apiserver import ApiServers, FakeApiServer, HeldClock
from tests.waiting import PATIENCE, until
from webhook.cluster.live import LiveCluster
from webhook.cluster.source import NodeReports
from webhook.facts import Key
from webhook.k8s.resources import LEASES, NAMESPACES, NODES, PENDING_PODS
from webhook.kubevirt.resources import KUBEVIRTS, VMIS
from webhook.placement.machines import MIGRATIONS
from webhook.settings.model import Settings

OFF, PODS, LEASE = "off", "pods", "lease a/b"


def declared(**health_checks: str) -> Settings:
    return builders.settings(
        schedulers={name: builders.scheduler(name, check) for name, check in health_checks.items()}
    )


class LiveCase:
    """A live cluster in front of a fake API server."""

    def __init__(self, server: FakeApiServer, clock: HeldClock, cluster: LiveCluster) -> None:
        self.server = server
        self.clock = clock
        self.cluster = cluster
        self.changes: list[tuple[str, str]] = []

    async def read(self, key: Key[Any], seconds: float = PATIENCE) -> Any:
        return await self.cluster.read(key, asyncio.get_running_loop().time() + seconds)

    def reading(self, key: Key[Any], seconds: float = PATIENCE) -> asyncio.Task[Any]:
        return asyncio.create_task(self.read(key, seconds))

    def peek(self, key: Key[Any]) -> Any:
        return self.cluster.peek(key)

    def gets(self, path: str, verb: str = "") -> int:
        return len(self.server.requests(path, verb))

    async def asked(self, path: str, times: int) -> None:
        await until(lambda: self.gets(path) >= times)

    def put_vmi(self, uid: str = "uid-1", **spec: Any) -> None:
        self.server.put(VMIS, "web01", "demo", metadata={"uid": uid, "labels": {"a": "b"}}, spec=spec)

    def put_kubevirt(self, status: Mapping[str, str] | None = None, **spec: Any) -> None:
        phase = {"phase": "Deployed"}
        self.server.put(KUBEVIRTS, "kubevirt", "kubevirt", spec=spec, status=phase | dict(status or {}))

    async def ready(self, watches: int = 0) -> None:
        """Until it answers, and so many watches are open."""
        await until(lambda: not self.cluster.waiting_for() and self.server.watching >= watches)


@asynccontextmanager
async def live(
    apiservers: ApiServers,
    settings: Settings | None = None,
    *,
    start: bool = False,
    reports: NodeReports | None = None,
    prepare: Callable[[FakeApiServer], object] = lambda _: None,
    **options: Any,
) -> AsyncIterator[LiveCase]:
    server = FakeApiServer()
    for resource in (NAMESPACES, KUBEVIRTS, NODES, PENDING_PODS, LEASES, MIGRATIONS):
        server.serve(resource)
    prepare(server)
    clock = HeldClock()
    case: LiveCase
    transport = await apiservers.connect(await apiservers.start(server))
    options["on_health"] = lambda name, _, new: case.changes.append((name, new.state))
    cluster = LiveCluster(transport, settings or declared(), clock=clock, **options)
    case = LiveCase(server, clock, cluster)
    if reports:
        cluster.report_nodes(reports)
    if start:
        cluster.start()
    try:
        yield case
    finally:
        await cluster.close()


@pytest.fixture
async def case(apiservers: ApiServers) -> AsyncIterator[LiveCase]:
    """A cluster that has not been started."""
    async with live(apiservers) as case:
        yield case


@asynccontextmanager
async def ready(
    apiservers: ApiServers, settings: Settings | None = None, *, watches: int = 0, **options: Any
) -> AsyncIterator[LiveCase]:
    """As `live`, once it is ready to answer."""
    async with live(apiservers, settings, start=True, **options) as case:
        await case.ready(watches)
        yield case
