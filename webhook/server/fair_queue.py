"""A fair queue: seats that flows share so that none can take all of them, as in the API server's own APF.

A flow may hold at most as many seats as are free at that moment. One flow alone so gets half of them, and the next one
finds the other half free, however long the first holds its own. (It is the dynamic threshold by which switches share
their buffers: Choudhury and Hahne, IEEE/ACM Transactions on Networking 6(2), 1998.) Where several flows have taken all,
a seat that comes back goes to one that holds none. Seats are reviews by namespace, bytes by client, or questions by
client.
"""

from __future__ import annotations

import asyncio
from collections import Counter, OrderedDict, deque
from typing import Final

# The API server writes ``request.namespace`` before the object, behind fields that are all short.
_MEMBER: Final = b'"namespace":"'
_HEAD_BYTES: Final = 4096
_MAX_NAME: Final = 63

_Waiter = asyncio.Future[None]


def namespace_of(body: bytes) -> str:
    """The namespace that an AdmissionReview is about, without decoding it; empty where it is not seen at once.

    It decides only whose seat a review takes; policies evaluate the decoded review.
    """
    start = body.find(_MEMBER, 0, _HEAD_BYTES)
    if start < 0:
        return ""
    start += len(_MEMBER)
    end = body.find(b'"', start, start + _MAX_NAME + 1)
    return body[start:end].decode("ascii", "replace") if end >= 0 else ""


class FairQueue:
    """Gives seats to flows, and makes those wait that hold their share.

    Only a returned seat can change whether a flow may have more, and then the waiting flows are checked in rotation. So
    a new flow that may have a seat passes no flow that could have had it.

    Args:
        total: seats that can be taken at the same time.
    """

    def __init__(self, total: int) -> None:
        self._total: Final = total
        self._free = total
        self._held: Final[Counter[str]] = Counter()
        self._queues: Final[OrderedDict[str, deque[tuple[_Waiter, int]]]] = OrderedDict()

    @property
    def taken(self) -> int:
        """Seats that are taken."""
        return self._total - self._free

    def is_free(self, flow: str, seats: int = 1) -> bool:
        """Whether a flow may have so many seats at once."""
        return self._held[flow] + seats <= self._free

    async def take(self, flow: str, until: float, seats: int = 1) -> bool:
        """Take seats for a flow; False if there were none until a time on the running loop's clock, in seconds."""
        if flow not in self._queues and self.is_free(flow, seats):
            self._grant(flow, seats)
            return True
        waiter: _Waiter = asyncio.get_running_loop().create_future()
        claim = (waiter, seats)
        self._queues.setdefault(flow, deque()).append(claim)
        try:
            async with asyncio.timeout_at(until):
                await waiter
        except BaseException as error:
            self._withdraw(flow, claim)
            if isinstance(error, TimeoutError):
                return False
            raise
        return True

    def give(self, flow: str, seats: int = 1) -> None:
        """Return seats."""
        self._free += seats
        self._held[flow] -= seats
        if not self._held[flow]:
            del self._held[flow]
        self._serve()

    def _grant(self, flow: str, seats: int) -> None:
        self._free -= seats
        self._held[flow] += seats

    def _serve(self) -> None:
        """Grant the seats that have come back, and more where their flow may have more now.

        A flow that may not have one holds seats itself, so that fewer flows than seats are passed over.
        """
        passed = 0
        while passed < len(self._queues):
            passed += 1
            flow, waiters = next(iter(self._queues.items()))
            self._queues.move_to_end(flow)
            # One that has just been given up leaves the queue a moment later.
            claim = next((one for one in waiters if not one[0].cancelled()), None)
            if claim is None or not self.is_free(flow, claim[1]):
                continue
            self._grant(flow, claim[1])
            self._remove(flow, claim)
            claim[0].set_result(None)
            passed = 0

    def _withdraw(self, flow: str, claim: tuple[_Waiter, int]) -> None:
        """End a wait that was given up."""
        if claim[0].done() and not claim[0].cancelled():
            # It was granted in the very moment in which it was given up.
            self.give(flow, claim[1])
        else:
            self._remove(flow, claim)
            # Those behind may want less than this one did.
            self._serve()

    def _remove(self, flow: str, claim: tuple[_Waiter, int]) -> None:
        waiters = self._queues[flow]
        waiters.remove(claim)
        if not waiters:
            del self._queues[flow]
