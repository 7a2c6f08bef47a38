"""The clocks of watches and health checks, in one object so that tests can run them at any speed."""

from __future__ import annotations

import asyncio
import time
from typing import Final


class Clock:
    """Real time. Ages are counted on the monotonic clock: the wall clock jumps, and other machines' clocks differ."""

    def now(self) -> float:
        """Seconds on a monotonic clock; only differences mean anything."""
        return time.monotonic()

    def wall(self) -> float:
        """Unix time in seconds, to compare with timestamps that others wrote."""
        return time.time()

    async def sleep(self, seconds: float) -> None:
        """Pause for so many seconds."""
        await asyncio.sleep(seconds)


REAL_TIME: Final = Clock()
