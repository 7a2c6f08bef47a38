"""Waiting for what a test asserts, and for nothing else: no test asserts how long something takes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

# Only a broken test waits to the end.
PATIENCE = 300.0


async def until(condition: Callable[[], object], what: str = "") -> None:
    """Wait until something is true.

    Args:
        what: is waited for, for who reads of a failure.
    """
    try:
        async with asyncio.timeout(PATIENCE):
            while not condition():
                await asyncio.sleep(0.002)
    except TimeoutError:
        raise AssertionError(f"waited {PATIENCE:.0f} seconds for {what or 'a condition'}") from None


@asynccontextmanager
async def other_turns() -> AsyncIterator[list[int]]:
    """The turns that another task gets on the loop meanwhile, by number, the latest last."""
    turns = [0]

    async def others() -> None:
        while True:
            turns.append(turns[-1] + 1)
            await asyncio.sleep(0)

    task = asyncio.create_task(others())
    try:
        yield turns
    finally:
        task.cancel()


async def break_off() -> None:
    """End whatever connections the running loop still has.

    TLS connections end with a word from both sides. One that still waits for it when the loop is closed would be an
    unclosed socket, and so the failure of some later test.
    """
    transports = asyncio.get_running_loop()._transports  # type: ignore[attr-defined]
    for transport in [*transports.values()]:
        transport.abort()
    await asyncio.sleep(0)
