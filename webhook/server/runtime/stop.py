"""What ends a server."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any, Final


class Stop:
    """SIGTERM, SIGINT and SIGHUP: the first ends the server in order, a second ends it at once.

    During the start there is nothing to end in order: the first one ends it at once.
    """

    def __init__(self) -> None:
        self.event: Final = asyncio.Event()
        self._running: asyncio.Task[None] | None = None
        self._at_once = True
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            loop.add_signal_handler(number, self._on_signal)

    async def run(self, work: Coroutine[Any, Any, None]) -> None:
        """Run ``work`` so that a signal can end it at once."""
        self._running = asyncio.create_task(work)
        with suppress(asyncio.CancelledError):
            await self._running

    def end_start(self) -> None:
        """From now on the first signal is for `event`."""
        self._at_once = self.event.is_set()

    def _on_signal(self) -> None:
        if (self._at_once or self.event.is_set()) and self._running:
            self._running.cancel()
        self.event.set()
