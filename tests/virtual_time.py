"""An event loop whose time passes only while nothing can be done: hours in milliseconds, the same at each run."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any

from webhook.k8s.client.clock import Clock


class _IdleSelector(selectors.SelectSelector):
    """Waits for nothing: where nothing is ready, the time for which it should wait has passed."""

    def __init__(self) -> None:
        super().__init__()
        self.time = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        # Without a timeout no task waits for a time, so that only a socket could wake one.
        assert timeout is not None, "every task waits for another one"
        self.time += max(0.0, timeout)
        return super().select(0)


class _VirtualLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._idle = _IdleSelector()
        super().__init__(self._idle)

    def time(self) -> float:
        return self._idle.time


class LoopClock(Clock):
    """The time of the running loop, so that timeouts and clocks agree."""

    def now(self) -> float:
        return asyncio.get_running_loop().time()

    def wall(self) -> float:
        return 1_790_000_000.0 + self.now()


def run(main: Coroutine[Any, Any, None]) -> None:
    """Run a coroutine to its end on a loop of virtual time; nothing in it may use sockets or threads."""
    with asyncio.Runner(loop_factory=_VirtualLoop) as runner:
        runner.run(main)
