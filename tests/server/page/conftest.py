from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from functools import partial

import pytest

from tests.server.page.samples import Opened, opened
from tests.waiting import break_off
from webhook.server import edge
from webhook.server.page.renderer import PageRenderer

# To compile the templates takes longer than all that a test asks.
RENDERER = PageRenderer()


def shared_renderer() -> PageRenderer:
    RENDERER.slices = 0
    return RENDERER


@pytest.fixture
async def page(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Opened]:
    """Opens pages that answer as fast as they are asked."""
    monkeypatch.setattr(edge, "BURST", 1000)
    monkeypatch.setattr(edge, "BURST_OF_ALL", 1000)
    monkeypatch.setattr("webhook.server.page.listener.PageRenderer", shared_renderer)
    async with AsyncExitStack() as ends:
        yield partial(opened, ends)
    await break_off()
