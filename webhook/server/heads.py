"""Heads of requests: parsed by aiohttp's parser, and where a client sends the same head again, not parsed again.

Go's HTTP client, and so the API server, sends the same bytes with every review to an endpoint, but for the length.
What the parser makes of a head depends on nothing but its bytes, and of the digits of a length on nothing but their
number. So a head that differs from the last one in these digits alone has been parsed already.
"""

from __future__ import annotations

import asyncio
from typing import Final

import msgspec
from aiohttp.base_protocol import BaseProtocol
from aiohttp.http import HttpProcessingError, HttpRequestParser
from multidict import CIMultiDictProxy

# What ends a head.
END: Final = b"\r\n\r\n"
# The parser's own limits, of lines and of their number, would let a head be a megabyte; the API server's has 300 bytes.
MAX_HEAD: Final = 32 * 1024

_LENGTH: Final = b"\r\nContent-Length: "
# Digits of a length; longer ones are left to the parser.
_MOST_DIGITS: Final = 9


class Head(msgspec.Struct, frozen=True):
    """What the head of a request says.

    Attributes:
        path: without the query.
        query: behind the path's question mark.
        length: bytes of the body; None for one in chunks, which has no length beforehand.
        is_last: the client wants no other request on the connection to be answered.
        content_type: empty: there is none.
        is_encoded: the body is compressed, or otherwise encoded.
    """

    method: str
    path: str
    query: str
    headers: CIMultiDictProxy[str]
    length: int | None
    is_last: bool
    content_type: str
    is_encoded: bool


def parse_head(data: bytes, protocol: BaseProtocol, loop: asyncio.AbstractEventLoop) -> Head:
    """The head in bytes, from its first to its empty line.

    Args:
        data: the bytes.
        protocol: what the parser wants for bodies, of which it gets none here.
        loop: the same.

    Raises:
        HttpProcessingError: the bytes are not the head of a request.
    """
    parser = HttpRequestParser(protocol, loop, 0, response_with_body=False, auto_decompress=False)
    messages, _, _ = parser.feed_data(data)
    if len(messages) != 1:
        raise HttpProcessingError(message="an empty line where a request should begin")
    message = messages[0][0]
    headers = message.headers
    path, _, query = message.path.partition("?")
    in_chunks = message.chunked or "Transfer-Encoding" in headers
    return Head(
        message.method,
        path,
        query,
        headers,
        None if in_chunks else int(headers.get("Content-Length", 0)),
        # No protocol that a client may want to upgrade to is supported.
        message.should_close or message.upgrade or message.method == "CONNECT",
        headers.get("Content-Type", ""),
        "Content-Encoding" in headers,
    )


class KnownHead:
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

    def body(self, data: bytes) -> tuple[int, int] | None:
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
