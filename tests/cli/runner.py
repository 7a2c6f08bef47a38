"""Running a command in this process."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager, contextmanager
from pathlib import Path
from typing import TypeVar

from click.testing import CliRunner, Result

from tests.waiting import PATIENCE
from webhook.cli.main import main

T = TypeVar("T")


def run(*arguments: str | Path, stdin: str | None = None) -> Result:
    return CliRunner().invoke(main, [str(argument) for argument in arguments], input=stdin, catch_exceptions=False)


@contextmanager
def in_thread(served: AbstractAsyncContextManager[T]) -> Iterator[T]:
    """What is served in a thread: a command has a loop of its own."""
    loop, ready, end = asyncio.new_event_loop(), Future[T](), asyncio.Event()

    async def serve() -> None:
        async with served as found:
            ready.set_result(found)
            await end.wait()

    thread = threading.Thread(target=loop.run_until_complete, args=(serve(),))
    thread.start()
    try:
        yield ready.result(PATIENCE)
    finally:
        loop.call_soon_threadsafe(end.set)
        thread.join()
        loop.close()
