"""Decides about starts whose losses have to be simulated, beside the reviews that are answered meanwhile."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any, Final

from webhook.facts import Key, VerdictKey
from webhook.k8s.client.clock import REAL_TIME, Clock
from webhook.placement.headroom.headroom import AskedStart, Headroom
from webhook.placement.headroom.losses import OutOfSteps
from webhook.placement.headroom.verdicts import Verdict
from webhook.server.fair_queue import FairQueue

# For so long a simulation keeps others waiting, and then lets them have their turn for longer. A review has several
# turns of the loop, each of which a slice may put off. Clocks of event loops count milliseconds.
_SLICE_SECONDS: Final = 0.0005
_PAUSE_SECONDS: Final = 0.001
# Of a review's time, kept for the rest of it.
_LEFT_SECONDS: Final = 0.1
# For which one start is decided while others wait.
_SHARED_SECONDS: Final = 0.3


class Decider:
    """Decides about one start at a time, of namespaces in turn.

    Args:
        headroom: what there is.
        clock: the source of monotonic time, and of sleep.
    """

    def __init__(self, headroom: Headroom, clock: Clock = REAL_TIME) -> None:
        self._headroom: Final = headroom
        self._clock: Final = clock
        self._turns: Final = FairQueue(1)
        self._waiting = 0

    async def read(self, key: Key[Any], deadline: float) -> Verdict:
        """The verdict that a `VerdictKey` asks for, before a deadline on the running loop's clock."""
        assert isinstance(key, VerdictKey)
        asked, deadline = key.start, deadline - _LEFT_SECONDS
        namespace = asked.pod.name[0]
        self._waiting += 1
        try:
            has_turn = await self._turns.take(namespace, deadline)
        finally:
            self._waiting -= 1
        if not has_turn:
            return self._headroom.give_up(asked)
        try:
            return await self._decide(asked, deadline - asyncio.get_running_loop().time())
        finally:
            self._turns.give(namespace)

    async def _decide(self, asked: AskedStart, seconds: float) -> Verdict:
        # uvloop's own clock stands still within a turn.
        clock = self._clock
        began, is_late = clock.now(), False
        deciding = self._headroom.decide(asked)
        advance = partial(next, deciding)
        try:
            while True:
                end = clock.now() + _SLICE_SECONDS
                try:
                    advance()
                    while clock.now() < end:
                        next(deciding)
                except StopIteration as returned:
                    verdict: Verdict = returned.value
                    return verdict
                await clock.sleep(_PAUSE_SECONDS)
                advance, most = partial(next, deciding), min(seconds, _SHARED_SECONDS) if self._waiting else seconds
                if not is_late and clock.now() - began > most:
                    is_late = True
                    advance = partial(deciding.throw, OutOfSteps())
        finally:
            deciding.close()
