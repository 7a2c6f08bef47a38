"""How many bytes of bodies are in memory at the same time: 64 reviews of 7 MiB each would be more than the pod has."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Final

# Bodies up to this are the everyday ones: a pod is 20 KB, a VM's update with both its states seldom 100 KB.
EVERYDAY: Final = 256 * 1024
# Of the everyday bodies together, and of the larger ones together, which are four of the largest. Decoded, a body may
# take several times that, and the pod's limit is 512 MiB.
LANE: Final = 32 * 1024 * 1024


class NoRoom(Exception):  # noqa: N818 - a state of affairs
    """There is none for another body, and there was none in time."""


class Lane:
    """Bytes that requests may take, in the order of their arrival.

    Args:
        size: bytes that may be taken at the same time.
    """

    def __init__(self, size: int) -> None:
        self.size: Final = size
        self.free = size
        self._waiting: Final[deque[tuple[int, asyncio.Future[None]]]] = deque()

    def has_room(self, count: int) -> bool:
        """Whether so many may be taken without waiting."""
        return count <= self.free and not self._waiting

    async def take(self, count: int, until: float) -> None:
        """Take bytes, at most `size` of them.

        Raises:
            NoRoom: there were none by ``until``, on the running loop's clock.
        """
        if self.has_room(count):
            self.free -= count
            return
        turn = asyncio.get_running_loop().create_future()
        place = (count, turn)
        self._waiting.append(place)
        try:
            async with asyncio.timeout_at(until):
                await turn
        except BaseException as error:
            if place in self._waiting:
                self._waiting.remove(place)
                # Those behind may want less than this one did.
                self._admit()
            else:
                # It came just as this one gave up.
                self.give(count)
            if isinstance(error, TimeoutError):
                raise NoRoom from None
            raise

    def give(self, count: int) -> None:
        """Return bytes that were taken."""
        self.free += count
        self._admit()

    def _admit(self) -> None:
        while self._waiting and self._waiting[0][0] <= self.free:
            count, turn = self._waiting.popleft()
            self.free -= count
            if not turn.done():
                turn.set_result(None)


class BodyBudget:
    """Two lanes, so that large bodies, however slowly they come, are never in the way of everyday ones.

    Args:
        size: the size of each lane, in bytes.
    """

    def __init__(self, size: int = LANE) -> None:
        self._lanes: Final = Lane(size), Lane(size)

    @property
    def taken_bytes(self) -> int:
        """Bytes that are taken now."""
        return sum(lane.size - lane.free for lane in self._lanes)

    def has_room(self, count: int) -> bool:
        """Whether a body of so many bytes need not wait."""
        return self._lanes[count > EVERYDAY].has_room(count)

    def lane(self, count: int) -> Lane:
        """Where a body of so many bytes belongs."""
        return self._lanes[count > EVERYDAY]


class Share:
    """What one body has taken of a budget.

    Args:
        budget: the budget to take from.
        until: on the running loop's clock, in seconds: how long `take` waits.
    """

    __slots__ = ("_budget", "_count", "_lane", "_until")

    def __init__(self, budget: BodyBudget, until: float) -> None:
        self._budget: Final = budget
        self._until: Final = until
        self._lane: Lane | None = None
        self._count = 0

    async def take(self, count: int) -> None:
        """Take bytes, or more bytes; the first count decides of which lane.

        Raises:
            NoRoom: there were none in time.
        """
        lane = self._lane = self._lane or self._budget.lane(count)
        await lane.take(count, self._until)
        self._count += count

    def give(self) -> None:
        """Return all bytes that were taken."""
        if self._lane:
            self._lane.give(self._count)
            self._count = 0
