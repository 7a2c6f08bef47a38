"""How long the turns of an event loop are, noted by the loop itself.

A probe from outside sees its own scheduler, its client and the pauses that the server makes on purpose. So the loop
notes how late its own timer is, and how much CPU its thread has used meanwhile: on a machine with other load only the
latter is the server's.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

_TICK_SECONDS: Final = 0.001
# Shorter turns are not written down.
_NOTED_SECONDS: Final = 0.002


class Turn(NamedTuple):
    """What happened between two ticks.

    Attributes:
        end: on the machine's monotonic clock, in seconds.
        late: seconds that the second tick was late.
        cpu: seconds of CPU that the loop's thread has used.
    """

    end: float
    late: float
    cpu: float


def noting(make: Callable[[], asyncio.AbstractEventLoop], path: Path) -> Callable[[], asyncio.AbstractEventLoop]:
    """A maker of event loops that write down their long turns.

    Args:
        make: makes the loops.
        path: the file for them.
    """

    def make_noting() -> asyncio.AbstractEventLoop:
        loop = make()
        path.write_text("")
        last = [time.monotonic(), time.thread_time()]

        def tick() -> None:
            now, cpu = time.monotonic(), time.thread_time()
            turn = Turn(now, now - last[0] - _TICK_SECONDS, cpu - last[1])
            if max(turn.late, turn.cpu) >= _NOTED_SECONDS:
                with path.open("a") as file:
                    file.write(f"{turn.end:.4f} {turn.late:.4f} {turn.cpu:.4f}\n")
            last[:] = now, cpu
            loop.call_later(_TICK_SECONDS, tick)

        loop.call_soon(tick)
        return loop

    return make_noting


def read(path: Path, since: float, until: float) -> list[Turn]:
    """The long turns that ended between two times of the monotonic clock."""
    turns = [Turn(*map(float, line.split())) for line in path.read_text().splitlines()]
    return [turn for turn in turns if since <= turn.end <= until]
