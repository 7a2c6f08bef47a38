"""The lines of a watch: cut out of a stream, each bounded, and the events in them."""

from __future__ import annotations

from typing import Final

import msgspec

from webhook.k8s.client.api import LARGEST_ANSWER_BYTES, TooLargeError
from webhook.k8s.client.list_pages import ListMeta
from webhook.k8s.nesting import MAX_LEVELS
from webhook.k8s.views import View

# Of an event around its object: one more in the object than are read, so that it still counts as too deep.
EVENT_LEVELS: Final = MAX_LEVELS + 2


class WatchEvent(View, frozen=True):
    """One event of a watch (metav1.WatchEvent in apimachinery); the object is decoded later, by its type."""

    type: str
    object: msgspec.Raw


class _Versioned(View, frozen=True):
    """What even the object of a bookmark has."""

    metadata: ListMeta | None = None


decode_event: Final = msgspec.json.Decoder(WatchEvent).decode
decode_versioned: Final = msgspec.json.Decoder(_Versioned).decode


class LineBuffer:
    """Cuts a stream into lines. Linear also for lines of many MiB that come in small pieces.

    Args:
        most: bytes that a line may have.
    """

    def __init__(self, most: int = LARGEST_ANSWER_BYTES) -> None:
        self._most: Final = most
        self._open: list[bytes] = []
        self._size = 0

    def feed(self, chunk: bytes) -> list[bytes]:
        """The lines that ``chunk`` ends, without their newlines; what follows the last one is kept for later.

        Raises:
            TooLargeError: what is kept is longer than a line may be.
        """
        *ended, rest = chunk.split(b"\n")
        if ended and self._open:
            ended[0] = b"".join((*self._open, ended[0]))
            self._open.clear()
            self._size = 0
        if rest:
            self._open.append(rest)
            self._size += len(rest)
        if self._size > self._most:
            raise TooLargeError(self._most)
        return ended
