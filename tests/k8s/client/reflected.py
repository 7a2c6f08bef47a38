"""A reflector of namespaces at work against a fake API server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tests.cluster.fake_apiserver import FakeApiServer, FakeClock, running
from tests.waiting import until
from webhook.k8s.client.reflector import Reflector, Timing
from webhook.k8s.client.transport import connect
from webhook.k8s.resources import NAMESPACES
from webhook.k8s.types.meta import Namespace

PATH = NAMESPACES.path()
SMALL_PAGES = Timing(page_limit=2)


def lowest(first: float, _: float) -> float:
    return first


class ReflectedCopy:
    """A reflector of namespaces at work against a fake API server."""

    def __init__(self, server: FakeApiServer, clock: FakeClock, reflector: Reflector[Namespace]) -> None:
        self.server = server
        self.clock = clock
        self.reflector = reflector
        self.changes: list[tuple[str | None, str | None]] = []

    @property
    def names(self) -> list[str]:
        return sorted(namespace.meta.name or "" for namespace in self.reflector)

    def mode(self, name: str) -> str | None:
        namespace = self.reflector.get(name)
        return namespace.meta.label("mode") if namespace else None

    def put(self, name: str, mode: str = "enforce") -> None:
        self.server.put(NAMESPACES, name, metadata={"labels": {"mode": mode}})

    async def becomes(self, *names: str) -> None:
        await until(lambda: self.names == sorted(names))

    async def watched(self, times: int = 1) -> None:
        """Waits until so many watches were requested, one is open, and the copy has noticed."""
        await until(
            lambda: (
                len(self.server.requests(PATH, "watch")) >= times
                and self.server.watching
                and self.reflector.problem is None
            )
        )

    @property
    def lists(self) -> int:
        return len(self.server.requests(PATH, "get"))


@asynccontextmanager
async def reflected(
    tmp_path: Path,
    *names: str,
    prepare: Callable[[FakeApiServer], None] = lambda _: None,
    clock: FakeClock | None = None,
    timing: Timing = SMALL_PAGES,
    **options: Any,
) -> AsyncIterator[ReflectedCopy]:
    server = FakeApiServer()
    server.serve(NAMESPACES)
    for name in names:
        server.put(NAMESPACES, name, metadata={"labels": {"mode": "enforce"}})
    prepare(server)
    clock = clock or FakeClock()
    async with running(server):
        transport = await connect(server.kubeconfig(tmp_path / "config"))
        copy: ReflectedCopy

        def note(old: Namespace | None, new: Namespace | None) -> None:
            copy.changes.append((old.meta.name if old else None, new.meta.name if new else None))

        options = {"on_change": note, "jitter": lowest} | options
        copy = ReflectedCopy(server, clock, Reflector(transport, NAMESPACES, clock=clock, timing=timing, **options))
        task = asyncio.create_task(copy.reflector.run())
        try:
            yield copy
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            await transport.close()


@asynccontextmanager
async def watched(tmp_path: Path, *names: str, **options: Any) -> AsyncIterator[ReflectedCopy]:
    """As `reflected`, once it watches."""
    async with reflected(tmp_path, *names, **options) as copy:
        await copy.watched()
        yield copy
