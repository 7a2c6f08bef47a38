"""A live cluster in front of a fake API server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from aiohttp import web

from tests import builders
from tests.cluster.fake_apiserver import FakeApiServer, FakeClock, HeldClock, running
from tests.waiting import until
from webhook.cluster.live import LiveCluster
from webhook.facts import Key, ObjectKey, VmiKey
from webhook.k8s.client.transport import connect
from webhook.k8s.resources import LEASES, NAMESPACES, NODES, PENDING_PODS
from webhook.kubevirt.resources import INSTANCETYPES, KUBEVIRTS, VMIS
from webhook.placement.machines import MIGRATIONS
from webhook.settings.model import SchedulerHealthSettings, SchedulerSettings, Settings

SOON = 10.0


def declared(**health_checks: SchedulerHealthSettings) -> Settings:
    return builders.settings(
        schedulers={name: SchedulerSettings(name, health_check) for name, health_check in health_checks.items()}
    )


class LiveCase:
    """A live cluster in front of a fake API server."""

    def __init__(self, server: FakeApiServer, clock: FakeClock, cluster: LiveCluster) -> None:
        self.server = server
        self.clock = clock
        self.cluster = cluster
        self.changes: list[tuple[str, str]] = []

    @property
    def held(self) -> HeldClock:
        """The clock, to be moved."""
        assert isinstance(self.clock, HeldClock)
        return self.clock

    async def read(self, key: Key[Any], seconds: float = SOON) -> Any:
        return await self.cluster.read(key, asyncio.get_running_loop().time() + seconds)

    def reading(self, key: Key[Any], seconds: float = SOON) -> asyncio.Task[Any]:
        return asyncio.create_task(self.read(key, seconds))

    async def asked(self, path: str, times: int) -> None:
        await until(lambda: len(self.server.requests(path)) >= times)

    def put_vmi(self, uid: str = "uid-1", **spec: Any) -> None:
        self.server.put(VMIS, "web01", "demo", metadata={"uid": uid, "labels": {"a": "b"}}, spec=spec)

    async def ready(self) -> None:
        await until(lambda: not self.cluster.waiting_for())


@asynccontextmanager
async def live(
    tmp_path: Path,
    settings: Settings | None = None,
    *,
    start: bool = False,
    prepare: Callable[[FakeApiServer], None] = lambda _: None,
    **options: Any,
) -> AsyncIterator[LiveCase]:
    server = FakeApiServer()
    for resource in (NAMESPACES, KUBEVIRTS, NODES, PENDING_PODS, LEASES, MIGRATIONS):
        server.serve(resource)
    prepare(server)
    clock = HeldClock()
    case: LiveCase
    async with running(server):
        transport = await connect(server.kubeconfig(tmp_path / "config"))
        cluster = LiveCluster(
            transport,
            settings or declared(),
            clock=clock,
            on_health=lambda name, _, new: case.changes.append((name, new.state)),
            **options,
        )
        case = LiveCase(server, clock, cluster)
        if start:
            cluster.start()
        try:
            yield case
        finally:
            await cluster.close()


@asynccontextmanager
async def ready(tmp_path: Path, settings: Settings | None = None, **options: Any) -> AsyncIterator[LiveCase]:
    """As `live`, once it is ready to answer."""
    async with live(tmp_path, settings, start=True, **options) as case:
        await case.ready()
        yield case


VMI = VmiKey("demo", "web01", "uid-1")
VMI_PATH = VMIS.path("demo", "web01")
TYPE = ObjectKey(INSTANCETYPES, "demo", "small")
TYPE_PATH = INSTANCETYPES.path("demo", "small")


async def abort(request: web.Request) -> web.StreamResponse:
    assert request.transport
    request.transport.abort()
    return web.Response()
