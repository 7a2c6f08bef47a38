"""A request and its answer, between a connection and what answers."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any, Final

import msgspec
from aiohttp import StreamReader

from webhook.server.heads import Head
from webhook.text import visible

_JSON: Final = b"Content-Type: application/json\r\n"
_TEXT: Final = b"Content-Type: text/plain; charset=utf-8\r\n"
_CLOSE: Final = b"Connection: close\r\n"
_STATUS_LINES: Final = {status.value: f"HTTP/1.1 {status} {status.phrase}\r\n".encode() for status in HTTPStatus}
# The answer to nearly every request.
_REVIEWED: Final = _STATUS_LINES[200] + _JSON + b"Content-Length: %d\r\n\r\n"


class Answer(msgspec.Struct, frozen=True, gc=False):
    """What a request is answered.

    Attributes:
        headers: whole lines, without those of length and connection.
    """

    status: int
    body: bytes
    headers: bytes = _JSON

    def head(self, *, is_last: bool) -> bytes:
        """The head, to whose end the body belongs.

        Args:
            is_last: the connection ends with it.
        """
        length = len(self.body)
        if self.status == 200 and not is_last:
            return _REVIEWED % length
        close = _CLOSE if is_last else b""
        return b"%s%s%sContent-Length: %d\r\n\r\n" % (_STATUS_LINES[self.status], self.headers, close, length)

    @classmethod
    def text(cls, status: int, sentence: str, headers: bytes = b"") -> Answer:
        """An error as plain text: the API server shows it in its own message."""
        return cls(status, (visible(sentence) + "\n").encode(), _TEXT + headers)


class HttpRequest(msgspec.Struct):
    """One request, whose body may still be on its way.

    Attributes:
        announced: bytes that the body is going to have; None for chunks, which have no length beforehand.
        connection: its `webhook.server.connection.Connection`.
        start: when its head had arrived, on the clock of `time.monotonic`, which is the loop's, in seconds.
        end: when its answer was written, on the same clock; 0.0: not yet.
        body: the whole body, if it has been read.
        payload: the stream of a body that a task reads; None: there is none.
        begun: a review of it that has to wait for look-ups.
    """

    head: Head
    announced: int | None
    connection: Any
    start: float
    end: float = 0.0
    body: bytes | None = None
    payload: StreamReader | None = None
    begun: Any = None

    @property
    def is_complete(self) -> bool:
        """Whether the whole body has arrived."""
        return self.payload is None or self.payload.is_eof()

    async def read(self) -> bytes:
        """The next piece of the body, as large as what has arrived; empty at its end.

        Raises:
            ConnectionError: the client has gone.
            RequestPayloadError: what came is not HTTP.
        """
        return await self.payload.readany() if self.payload else b""
