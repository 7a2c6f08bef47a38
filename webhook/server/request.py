"""Requests and answers of HTTP/1.1: heads from bytes, and answers to bytes.

httptools, which is llhttp, the parser of Node.js, takes heads and chunks apart. What it says of a head depends on the
head's bytes alone, and of the digits of a length on nothing but their number. Go's HTTP client, and so the API server,
sends the same bytes with every review to an endpoint, but for these digits: such a head is not parsed again.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from http import HTTPStatus
from typing import Any, Final

import msgspec
from httptools import HttpParserError, HttpParserUpgrade, HttpRequestParser

from webhook.text import visible

# What ends a head.
END: Final = b"\r\n\r\n"
# The API server's has 300 bytes.
MAX_HEAD_BYTES: Final = 32 * 1024
# Each costs a call.
_MAX_HEADERS: Final = 128

_LENGTH: Final = b"\r\nContent-Length: "
# Digits of a length; longer ones are left to the parser.
_MOST_DIGITS: Final = 9
# Two that differ could be read differently by a proxy between.
_ONCE: Final = ("host", "content-type", "authorization", "transfer-encoding")

_JSON: Final = b"Content-Type: application/json\r\n"
_TEXT: Final = b"Content-Type: text/plain; charset=utf-8\r\n"
_CLOSE: Final = b"Connection: close\r\n"
_STATUS_LINES: Final = {status.value: f"HTTP/1.1 {status} {status.phrase}\r\n".encode() for status in HTTPStatus}
# The answer to nearly every request.
_REVIEWED: Final = _STATUS_LINES[200] + _JSON + b"Content-Length: %d\r\n\r\n"


class BadRequestError(Exception):
    """Bytes that are not HTTP/1.1, with the reason as a clause."""


class Head(msgspec.Struct, frozen=True):
    """What the head of a request says.

    Attributes:
        path: without the query.
        query: behind the path's question mark.
        headers: by name in lower case.
        length: bytes of the body; None for one in chunks, which has no length beforehand.
        is_last: the client wants no other request on the connection to be answered.
        content_type: empty: there is none.
        is_encoded: the body is compressed, or otherwise encoded.
    """

    method: str
    path: str
    query: str
    headers: Mapping[str, str]
    length: int | None
    is_last: bool
    content_type: str
    is_encoded: bool


class _Message:
    """What httptools finds, which calls its methods: the target, headers by name in lower case, pieces of the body."""

    def __init__(self) -> None:
        self.url = b""
        self.headers: dict[str, str] = {}
        self.heads = 0
        self.pieces: list[bytes] = []
        self.is_complete = False

    def on_url(self, url: bytes) -> None:
        self.url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        if self.heads:
            # A trailer, which is not read.
            return
        key = name.decode("ascii").lower()
        if key in self.headers:
            if key in _ONCE:
                raise BadRequestError(f"it has two headers {key}")
            self.headers[key] += ", " + value.decode("latin-1")
        elif len(self.headers) == _MAX_HEADERS:
            raise BadRequestError(f"it has more than {_MAX_HEADERS} headers")
        else:
            self.headers[key] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        self.heads += 1

    def on_body(self, body: bytes) -> None:
        # Behind the end of a message is another one.
        if not self.is_complete:
            self.pieces.append(body)

    def on_message_complete(self) -> None:
        self.is_complete = True


class Chunks:
    """A body in chunks, taken apart; the head of its request comes first.

    Attributes:
        message: what the parser has found so far.
    """

    def __init__(self) -> None:
        # Two objects: one that calls itself would be a cycle, and keep hostile heads until the collector's next run.
        self.message: Final = _Message()
        self.parser: Final = HttpRequestParser(self.message)

    def take(self, data: bytes) -> bytes:
        """What bytes have of the body; a `BadRequestError` where they are not HTTP."""
        clause = ""
        try:
            self.parser.feed_data(data)
        except HttpParserUpgrade:
            # Nothing to upgrade to is supported, so the request is an ordinary one.
            pass
        except HttpParserError as error:
            cause = error.__context__
            clause = str(cause if isinstance(cause, BadRequestError) else error) or type(error).__name__
        if clause:
            # Not inside the handler: a chain of exceptions would keep the frames, and these the bytes.
            raise BadRequestError(clause)
        pieces, self.message.pieces = self.message.pieces, []
        return b"".join(pieces)


def parse_head(data: bytes) -> tuple[Head, Chunks]:
    """The head in bytes, from its first to its empty line, and what takes a body in chunks behind it.

    Raises:
        BadRequestError: the bytes are not the head of a request, or of more than one.
    """
    chunks = Chunks()
    body, message = chunks.take(data), chunks.message
    if body or message.heads != 1:
        raise BadRequestError("an empty line where a request should begin")
    headers, parser = message.headers, chunks.parser
    method, version = parser.get_method().decode("ascii"), parser.get_http_version()
    if not message.url.isascii():
        raise BadRequestError("the path has other characters than ASCII")
    if version not in ("1.0", "1.1"):
        raise BadRequestError(f"HTTP/{version} is not supported")
    if version == "1.1" and "host" not in headers:
        raise BadRequestError("it has no header Host")
    coding = headers.get("transfer-encoding")
    if coding is not None and (coding.lower() != "chunked" or version != "1.1" or "content-length" in headers):
        raise BadRequestError("its Transfer-Encoding is not chunked alone")
    path, _, query = message.url.decode("ascii").partition("?")
    wishes = {wish.strip() for wish in headers.get("connection", "").lower().split(",")}
    head = Head(
        method,
        path,
        query,
        headers,
        int(headers.get("content-length", 0)) if coding is None else None,
        version != "1.1" or "close" in wishes or "upgrade" in headers or method == "CONNECT",
        headers.get("content-type", ""),
        "content-encoding" in headers,
    )
    return head, chunks


class CachedRequestHead:
    """A head that may come again with another length.

    Args:
        data: the bytes of the head.
        head: what they say.
    """

    __slots__ = ("_after", "_before", "head")

    def __init__(self, data: bytes, head: Head) -> None:
        before, name, rest = data.partition(_LENGTH)
        _, end, after = rest.partition(b"\r\n")
        self._before: Final = before + name
        self._after: Final = end + after
        self.head: Final = head

    def match(self, data: bytes | bytearray) -> tuple[int, int] | None:
        """Where the body begins in the bytes of a request, and its length; None: the request has another head."""
        if not data.startswith(self._before):
            return None
        begin = len(self._before)
        end = data.find(b"\r", begin, begin + _MOST_DIGITS + 1)
        digits = data[begin:end]
        # Digits of ASCII alone are digits of bytes.
        if not (self._after and digits.isdigit() and data.startswith(self._after, end)):
            return None
        return end + len(self._after), int(digits)


class Answer(msgspec.Struct, frozen=True, gc=False):
    """The answer to a request.

    Attributes:
        headers: whole lines, without those of length and connection.
    """

    status: int
    body: bytes
    headers: bytes = _JSON

    def head(self, *, is_last: bool) -> bytes:
        """The head, behind which the body belongs; with ``is_last`` the connection ends with it."""
        length = len(self.body)
        if self.headers is _JSON and self.status == 200 and not is_last:
            return _REVIEWED % length
        close = _CLOSE if is_last else b""
        return b"%s%s%sContent-Length: %d\r\n\r\n" % (_STATUS_LINES[self.status], self.headers, close, length)

    @classmethod
    def text(cls, status: int, sentence: str, headers: Mapping[str, str] | None = None) -> Answer:
        """Plain text, which the API server shows in its own message where it is an error."""
        return cls(status, (visible(sentence) + "\n").encode(), _TEXT + header_lines(headers or {}))


def header_lines(headers: Mapping[str, str]) -> bytes:
    """Headers as whole lines."""
    return "".join(f"{name}: {value}\r\n" for name, value in headers.items()).encode("latin-1")


class Overload(Enum):
    """Why a request whose head is fine gets no answer of its own.

    Args:
        status: of an answer as an HTTP error.
        denial: the code of a denial.
        clause: why.
        remedy: what the client can do.

    Attributes:
        sentence: why, and what the client can do.
    """

    NO_ROOM = 429, 429, "kubevirt-webhook has more bytes of requests than it has memory for", "try again"
    NO_SEAT = 429, 429, "kubevirt-webhook has more requests than it can evaluate", "try again"
    LATE = 408, 429, "the request's body did not arrive in time", "send it whole"
    TOO_LARGE = 413, 413, "the request's body is too large", "send one review at a time"

    def __init__(self, status: int, denial: int, clause: str, remedy: str) -> None:
        self.status: Final = status
        self.denial: Final = denial
        self.clause: Final = clause
        self.sentence: Final = f"{clause}; {remedy}"

    def answer(self) -> Answer:
        """The answer as an HTTP error."""
        return Answer.text(self.status, self.sentence, {"Retry-After": "1"} if self.status == 429 else None)


class HttpRequest(msgspec.Struct):
    """One request.

    Attributes:
        length: bytes of its body, whose digits the head may have from another request; None: it comes in chunks.
        connection: its `webhook.server.edge.Connection`.
        start: when its head had arrived, on the clock of `time.monotonic`, which is the loop's, in seconds.
        end: when its answer was written, on the same clock; 0.0: not yet.
        body: the whole body once it has arrived; until then empty.
        pending: a review of it that has to wait for look-ups.
    """

    head: Head
    length: int | None
    connection: Any
    start: float
    end: float = 0.0
    body: bytes = b""
    pending: Any = None
