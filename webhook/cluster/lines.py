"""The lines of a watch: cut out of a stream, each bounded, and the events in them."""

from __future__ import annotations

from typing import Final

import msgspec

from webhook.cluster.api import LARGEST_ANSWER_BYTES, TooLarge
from webhook.cluster.pages import ListMeta
from webhook.cluster.shallow import prune
from webhook.objects import Anything, ObjectMeta, View

# An event, its object and the metadata: as deep as the name of an object lies.
_NAMED_LEVELS: Final = 3


class Event(View, frozen=True):
    type: str
    object: msgspec.Raw


class NamedMeta(ObjectMeta, frozen=True):
    resource_version: str | None = None


class Named(Anything, frozen=True):
    """What is still read of an object that is nested too deeply to be decoded."""

    metadata: NamedMeta | None = None


class _NamedEvent(View, frozen=True):
    object: Named


class _Versioned(View, frozen=True):
    """What even the object of a bookmark has."""

    metadata: ListMeta | None = None


class _Status(View, frozen=True):
    code: int | None = None
    reason: str | None = None


decode_event: Final = msgspec.json.Decoder(Event).decode
decode_versioned: Final = msgspec.json.Decoder(_Versioned).decode
decode_status: Final = msgspec.json.Decoder(_Status).decode
_decode_named: Final = msgspec.json.Decoder(_NamedEvent).decode


def decode_named(line: bytes) -> Named:
    """The name and the version of an event's object, however deep the object is.

    Raises:
        msgspec.DecodeError, UnicodeDecodeError: the line is not an event.
    """
    return _decode_named(prune(line, _NAMED_LEVELS)).object


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
            TooLarge: what is kept is longer than a line may be.
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
            raise TooLarge(self._most)
        return ended
