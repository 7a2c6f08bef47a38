"""ControllerRevisions that were read a moment ago: one request of a user is reviewed several times in a row.

The data of a revision cannot change, but it may be deleted and created anew under its name, and its labels may change.
So answers are shared for a second only, and a caller that must not be deceived reads a fresh one.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from webhook.k8s.client.object_store import ObjectName

# From the first review of a request to its last; the API server waits 3 s for each at most.
SHARED_SECONDS: Final = 1.0
SHARED_BYTES: Final = 1024 * 1024


class Recent:
    """Answers to GETs.

    Args:
        seconds: how old an answer may be.
        most: bytes of all answers.
    """

    def __init__(self, seconds: float = SHARED_SECONDS, most: int = SHARED_BYTES) -> None:
        self._seconds: Final = seconds
        self._most: Final = most
        self._answers: Final[OrderedDict[ObjectName, tuple[float, bytes]]] = OrderedDict()
        self._size = 0

    def get(self, name: ObjectName, now: float) -> bytes | None:
        """The answer, on a monotonic clock; None where there is none that is young enough."""
        self._forget(now)
        answer = self._answers.get(name)
        return answer[1] if answer else None

    def put(self, name: ObjectName, body: bytes, now: float) -> None:
        """Keep an answer for a moment."""
        self._remove(name)
        self._answers[name] = now, body
        self._size += len(body)
        self._forget(now)

    def clear(self) -> None:
        """Keep nothing."""
        self._answers.clear()
        self._size = 0

    def _forget(self, now: float) -> None:
        """Remove what is too old, and the oldest of what is too much."""
        while self._answers:
            name, (since, _) = next(iter(self._answers.items()))
            if now - since < self._seconds and self._size <= self._most:
                return
            self._remove(name)

    def _remove(self, name: ObjectName) -> None:
        answer = self._answers.pop(name, None)
        if answer:
            self._size -= len(answer[1])
