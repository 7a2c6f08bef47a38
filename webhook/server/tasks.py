"""What runs until the server's end."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Final

_RESTART_SECONDS: Final = 10.0

logger = logging.getLogger(__name__)


def keep_until(ends: AsyncExitStack, work: Callable[[], Awaitable[None]], event: str) -> None:
    """Run a task until the end, again after a bug, which is logged: it must not end without notice."""

    async def keep() -> None:
        while True:
            try:
                return await work()
            except Exception:
                logger.exception(event)
                await asyncio.sleep(_RESTART_SECONDS)

    ends.push_async_callback(cancel, asyncio.create_task(keep()))


async def cancel(task: asyncio.Task[None]) -> None:
    """End a task, and wait until it has ended, or the caller is cancelled."""
    task.cancel()
    await asyncio.wait([task])
