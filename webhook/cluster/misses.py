"""How many look-ups of late have found nothing, to bound what made-up names cost the API server."""

from __future__ import annotations

from collections import deque
from typing import Final


class Misses:
    """Counts the misses of a period.

    Misses are counted, and not kept as answers: what did not exist a moment ago may exist now.

    Args:
        limit: so many in a period are too many.
        seconds: the period.
    """

    def __init__(self, limit: int, seconds: float) -> None:
        self._last: Final[deque[float]] = deque(maxlen=limit)
        self._seconds: Final = seconds

    def add(self, now: float) -> None:
        """Count a miss, on a monotonic clock."""
        self._last.append(now)

    def too_many(self, now: float) -> bool:
        """Whether the limit is reached."""
        return len(self._last) == self._last.maxlen and now - self._last[0] < self._seconds
