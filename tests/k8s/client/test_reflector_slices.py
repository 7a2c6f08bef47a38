"""Lists share the event loop with reviews: none keeps it for longer than a slice of its objects takes."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.cluster.fake_apiserver import FakeApiServer, running
from tests.k8s.client.reflected import PATH
from tests.waiting import until
from webhook.k8s.client.reflector import Reflector, Timing
from webhook.k8s.client.transport import connect
from webhook.k8s.resources import NAMESPACES
from webhook.k8s.types.meta import Namespace


async def test_a_list_is_reported_in_slices(tmp_path: Path) -> None:
    server = FakeApiServer()
    names = [f"n-{number}" for number in range(23)]
    for name in names:
        server.put(NAMESPACES, name)
    turns = LoopTurns()
    async with running(server):
        transport = await connect(server.kubeconfig(tmp_path / "config"))
        reflector = Reflector(
            transport,
            NAMESPACES,
            transform=turns.reduced,
            on_change=turns.changed,
            timing=Timing(page_limit=10, slice=4),
        )
        reflector._decode_view = turns.decoding(reflector._decode_view)
        watching = [asyncio.create_task(task) for task in (reflector.run(), turns.count())]
        await until(lambda: reflector.has_synced)
        for task in watching:
            task.cancel()
        await asyncio.gather(*watching, return_exceptions=True)
        await transport.close()

    assert [name for _, name in turns.reports] == sorted(names)
    assert max(Counter(turn for turn, _ in turns.reports).values()) <= 4
    assert max(Counter(turn for turn, _ in turns.reductions).values()) <= 4
    assert max(Counter(turns.decoded).values()) <= 4
    assert [asked.query["limit"] for asked in server.requests(PATH, "get")][:3] == ["10"] * 3


class LoopTurns:
    """Notes in which turn of the event loop an object was reduced or reported."""

    def __init__(self) -> None:
        self.turn = 0
        self.decoded: list[int] = []
        self.reductions: list[tuple[int, str | None]] = []
        self.reports: list[tuple[int, str | None]] = []

    async def count(self) -> None:
        while True:
            self.turn += 1
            await asyncio.sleep(0)

    def decoding(self, decode: Callable[[Any], Namespace]) -> Callable[[Any], Namespace]:
        def noted(item: Any) -> Namespace:
            self.decoded.append(self.turn)
            return decode(item)

        return noted

    def reduced(self, view: Namespace) -> Namespace:
        self.reductions.append((self.turn, view.meta.name))
        return view

    def changed(self, _: Namespace | None, new: Namespace | None) -> None:
        self.reports.append((self.turn, new.meta.name if new else None))
