from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from functools import partial

import pytest

from tests.server.page.samples import Opened, opened
from tests.waiting import break_off
from webhook.server import edge


@pytest.fixture
async def page(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Opened]:
    """Opens pages that answer as fast as they are asked."""
    monkeypatch.setattr(edge, "BURST", 1000)
    monkeypatch.setattr(edge, "BURST_OF_ALL", 1000)
    async with AsyncExitStack() as ends:
        yield partial(opened, ends)
    await break_off()
