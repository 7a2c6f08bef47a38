"""Turns for reviews, shared so that no namespace can take all of them.

A namespace may hold at most as many turns as are free at that moment. One namespace alone so gets half of them, and
the next one finds the other half free, however slow the look-ups of the first are. (It is the dynamic threshold by
which switches share their buffers: Choudhury and Hahne, IEEE/ACM Transactions on Networking 6(2), 1998.) Where several
namespaces have taken all, a turn that comes back goes to one that holds none.
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

    It decides only whose turn a review takes; policies evaluate the decoded review.
    """
    start = body.find(_MEMBER, 0, _HEAD_BYTES)
    if start < 0:
        return ""
    start += len(_MEMBER)
    end = body.find(b'"', start, start + _MAX_NAME + 1)
    return body[start:end].decode("ascii", "replace") if end >= 0 else ""


class Turns:
    """Gives turns to keys, and makes those wait that hold their share.

    Only a returned turn can change whether a key may have another one, and then the waiting keys are checked in
    rotation. So a new key that may have a turn passes no key that could have had it.

    Args:
        total: turns that can be taken at the same time.
    """

    def __init__(self, total: int) -> None:
        self._free = total
        self._held: Final[Counter[str]] = Counter()
        self._queues: Final[OrderedDict[str, deque[_Waiter]]] = OrderedDict()

    def is_free(self, key: str) -> bool:
        """Whether a key may have a turn at once."""
        return self._held[key] < self._free

    async def take(self, key: str, until: float) -> bool:
        """Take a turn; False if there was none in time.

        Args:
            key: the namespace of the review.
            until: on the running loop's clock, in seconds.
        """
        if self.is_free(key):
            self._grant(key)
            return True
        waiter: _Waiter = asyncio.get_running_loop().create_future()
        self._queues.setdefault(key, deque()).append(waiter)
        try:
            async with asyncio.timeout_at(until):
                await waiter
        except BaseException as error:
            self._withdraw(key, waiter)
            if isinstance(error, TimeoutError):
                return False
            raise
        return True

    def give(self, key: str) -> None:
        """Return a turn."""
        self._free += 1
        self._held[key] -= 1
        if not self._held[key]:
            del self._held[key]
        self._serve()

    def _grant(self, key: str) -> None:
        self._free -= 1
        self._held[key] += 1

    def _serve(self) -> None:
        """Grant the turn that has come back, and one more where its key may have another one now.

        A key that may not have one holds turns itself, so that fewer keys than turns are passed over.
        """
        passed = 0
        while passed < len(self._queues):
            passed += 1
            key, waiters = next(iter(self._queues.items()))
            self._queues.move_to_end(key)
            if self._held[key] >= self._free:
                continue
            # One that has just been given up leaves the queue a moment later.
            waiter = next((one for one in waiters if not one.cancelled()), None)
            if waiter is None:
                continue
            self._grant(key)
            self._remove(key, waiter)
            waiter.set_result(None)
            passed = 0

    def _withdraw(self, key: str, waiter: _Waiter) -> None:
        """End a wait that was given up."""
        if waiter.done() and not waiter.cancelled():
            # It was granted in the very moment in which it was given up.
            self.give(key)
        else:
            self._remove(key, waiter)

    def _remove(self, key: str, waiter: _Waiter) -> None:
        waiters = self._queues[key]
        waiters.remove(waiter)
        if not waiters:
            del self._queues[key]
