"""Bodies of requests: read in pieces, within a time; memory for a large one is reserved before it is read."""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Final, Self

from aiohttp import web

from webhook.server.answers import Overload, OverloadError, RequestDenied
from webhook.server.guard import Guard

# Bodies up to this are the everyday ones: a pod is 20 KB, a VM's update with both its states seldom 100 KB.
EVERYDAY_BYTES: Final = 256 * 1024
# The API server sends a body at once. What is slower holds memory meanwhile.
ARRIVAL_SECONDS: Final = 3.0
GRACE_SECONDS: Final = 0.5
MIN_BYTES_PER_SECOND: Final = 512 * 1024
# Of a body that is not read, to find out which request it belongs to.
PREFIX_BYTES: Final = 4096
# Before a body that seems late is given up: the process itself may have had no processor, and the bytes are there.
_CATCH_UP_SECONDS: Final = 0.05


class RequestBody:
    """The body of a request, as a context: what it has reserved is given back at the end.

    Args:
        request: the request.
        guard: of its connection; its listener's limits hold.

    Raises:
        RequestDenied: it comes in chunks. No API server sends any, and a body of tiny ones holds up all reviews.
    """

    def __init__(self, request: web.BaseRequest, guard: Guard) -> None:
        if guard.length is None:
            raise RequestDenied(411, "the request's body comes in chunks; send it whole, with its Content-Length")
        self._length: Final = guard.length
        self._content: Final = request.content
        self._guard: Final = guard
        self._most: Final = guard.listener.limits.body_bytes
        # One array: each of many small pieces would take a multiple of its size.
        self._data = bytearray()
        self._reserved = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        # aiohttp keeps the error of a client that has gone, and so its frames, until the collector's next run.
        self._data.clear()
        if self._reserved:
            self._guard.listener.reserved.give(self._guard.client, self._reserved)

    @property
    def is_large(self) -> bool:
        """Whether it may be larger than everyday ones."""
        return self._length > EVERYDAY_BYTES

    @property
    def prefix(self) -> bytes:
        """The beginning, as far as it has come: as much as tells whose the request is."""
        return bytes(self._data[:PREFIX_BYTES])

    async def read(self, until: float) -> bytes:
        """The whole body.

        A large one reserves all of its bytes before it is read: two of them, half read, could wait for each other.

        Args:
            until: how long the client waits, on the running loop's clock.

        Raises:
            OverloadError: it is too large or too slow, or there is no memory for it in time.
            ConnectionError: the client has gone.
        """
        began = asyncio.get_running_loop().time()
        if not self.is_large:
            if self._length > self._most:
                raise OverloadError(Overload.TOO_LARGE)
            # In nearly all requests it came with the head.
            self._guard.allow(self._length)
            await self._take(self._length, until, began)
            return self._whole()
        # As much as an answer without the rest takes.
        self._guard.allow(PREFIX_BYTES)
        await self._take(PREFIX_BYTES, until, began)
        if self._length > self._most:
            raise OverloadError(Overload.TOO_LARGE)
        if not await self._guard.listener.reserved.take(self._guard.client, until, self._length):
            raise OverloadError(Overload.NO_MEMORY)
        self._reserved = self._length
        self._guard.allow(self._length - PREFIX_BYTES, counted=False)
        await self._take(self._length, until, asyncio.get_running_loop().time())
        return self._whole()

    def _whole(self) -> bytes:
        whole = bytes(self._data)
        # Two copies of a large body would be too many.
        del self._data[PREFIX_BYTES:]
        return whole

    async def _take(self, count: int, until: float, began: float) -> None:
        """Read on until so many bytes of the body have come."""
        until = min(until, began + ARRIVAL_SECONDS)
        while len(self._data) < count:
            pace = began + GRACE_SECONDS + len(self._data) / MIN_BYTES_PER_SECOND
            piece = await self._next(min(until, pace))
            if not piece and self._content.at_eof():
                # Reading on would return at once, again and again.
                raise ConnectionError("the body has ended before its length")
            self._data += piece

    async def _next(self, due: float) -> bytes:
        before = self._content.total_bytes
        try:
            async with asyncio.timeout_at(due):
                return await self._content.readany()
        except TimeoutError:
            await asyncio.sleep(_CATCH_UP_SECONDS)
            if self._content.total_bytes == before and not self._content.is_eof():
                raise OverloadError(Overload.LATE) from None
            return b""
