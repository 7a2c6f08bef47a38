from __future__ import annotations

import asyncio
import logging

import pytest

from tests.waiting import until
from webhook.server.runtime import tasks


async def test_a_bug_is_logged_and_the_work_goes_on(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(tasks, "_RESTART_SECONDS", 0.01)
    runs, again = list[int](), asyncio.Event()

    async def work() -> None:
        runs.append(1)
        if len(runs) == 2:
            again.set()
        raise ZeroDivisionError

    keeping = asyncio.create_task(tasks.keep(work, logging.getLogger(__name__), "internal error; retrying"))
    await until(again.is_set)
    await tasks.cancel(keeping)
    assert keeping.done()
    (first, *_) = caplog.records
    assert first.getMessage() == "internal error; retrying"
    assert first.exc_info and first.exc_info[0] is ZeroDivisionError
