from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, suppress
from unittest.mock import AsyncMock

import pytest

from tests.waiting import until
from webhook.server import tasks


async def test_a_bug_is_logged_and_the_work_goes_on(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(tasks, "_RESTART_SECONDS", 0.01)
    work = AsyncMock(side_effect=ZeroDivisionError)
    async with AsyncExitStack() as ends:
        tasks.keep_until(ends, work, "internal error; retrying")
        await until(lambda: work.await_count == 2)
    (first, *_) = caplog.records
    assert first.getMessage() == "internal error; retrying"
    assert first.exc_info and first.exc_info[0] is ZeroDivisionError


async def test_a_caller_that_is_cancelled_does_not_wait_for_the_end_of_a_task() -> None:
    """A second SIGTERM ends the server at once, whatever the first one waits for."""
    last = asyncio.Event()

    async def work() -> None:
        with suppress(asyncio.CancelledError):
            await asyncio.Event().wait()
        await last.wait()

    task = asyncio.create_task(work())
    await asyncio.sleep(0)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(tasks.cancel(task), 0.1)
    last.set()
    await tasks.cancel(task)
    assert task.done()
