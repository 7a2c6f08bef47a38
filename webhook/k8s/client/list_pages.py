"""Lists of any length, page by page, each page bounded in bytes.

Users decide how large their objects are, so pages are cut to size: one that is too large is requested again with fewer
objects.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping
from typing import Any, Final, Generic, TypeVar

import msgspec

from webhook.k8s.client.api import LARGEST_ANSWER_BYTES, NO_QUERY, ApiError, TooLargeError, Transport
from webhook.k8s.client.resources import Resource
from webhook.k8s.json_depth import flatten
from webhook.k8s.nesting import MAX_LEVELS
from webhook.k8s.views import Object, View

V = TypeVar("V", bound=Object)

PAGE_BYTES: Final = 4 * 1024 * 1024

# After a page that did not work. The next ones grow again.
_SHRINK: Final = 4
# Of a page's bytes, what the next page is meant to have: objects are not all of the same size.
_FILL: Final = 0.5
# Of a list: one more in an object than are read, so that it still counts as too deep.
_LEVELS: Final = MAX_LEVELS + 3


class ListMeta(View, frozen=True):
    """``metadata`` of a list (metav1.ListMeta): the version of its content, and the token of its next page."""

    resource_version: str | None = None
    # ``continue`` is a keyword of Python.
    continue_: str | None = msgspec.field(default=None, name="continue")


class _RawPage(View, frozen=True):
    metadata: ListMeta | None = None
    items: list[msgspec.Raw] | None = None


class Page(View, Generic[V], frozen=True):
    """A part of a list; the last one continues nowhere.

    Attributes:
        size: bytes as they were sent.
    """

    metadata: ListMeta | None = None
    items: list[V] | None = None
    sizes: list[int] | None = None
    size: int = 0

    @property
    def meta(self) -> ListMeta:
        """The page's ``metadata``; an empty one where the API server sent none."""
        return self.metadata or ListMeta()


_decode_raw: Final = msgspec.json.Decoder(_RawPage).decode


async def pages(
    transport: Transport,
    resource: Resource[V],
    namespace: str = "",
    query: Mapping[str, str] = NO_QUERY,
    *,
    limit: int,
    seconds: float,
) -> AsyncGenerator[Page[V], None]:
    """All objects of a resource; all pages show the moment of the first.

    Args:
        transport: the connection to the API server.
        resource: the resource to list.
        namespace: empty for all.
        query: selectors.
        limit: objects in a page at most.
        seconds: timeout of one page.

    Raises:
        ApiError: the answer is not a list; 410 where the moment of the first page is too long ago.
        ApiConnectionError: there was no answer, or one object alone is too large.
        TimeoutError: there was none in time.
        msgspec.DecodeError, UnicodeDecodeError: it cannot be decoded.
    """
    decode = msgspec.json.Decoder(resource.view).decode
    path, asked, fits = resource.path(namespace), dict(query), limit
    while True:
        asked["limit"] = str(fits)
        try:
            async with asyncio.timeout(seconds):
                status, body = await transport.get(path, asked, most=PAGE_BYTES if fits > 1 else LARGEST_ANSWER_BYTES)
            if status != 200:
                raise ApiError(status, body)
            page: Page[V] = _decode(body, decode)
        except TooLargeError:
            if fits == 1:
                raise
            fits = max(1, fits // _SHRINK)
            continue
        except RecursionError:
            # One object that is nested too deeply must hide no other, and nothing that is read lies so deep.
            page = _decode(await asyncio.to_thread(flatten, body, _LEVELS), decode)
        del body
        yield page
        if not page.meta.continue_:
            return
        asked["continue"] = page.meta.continue_
        fits = _next(limit, fits, page)


def _decode(body: bytes, decode: Any) -> Page[Any]:
    raw = _decode_raw(body)
    items = raw.items or []
    return Page(raw.metadata, [decode(item) for item in items], [len(memoryview(item)) for item in items], len(body))


def _next(limit: int, fits: int, page: Page[Any]) -> int:
    """How many objects the next page may have, by the size of those before."""
    count = len(page.items or ()) or 1
    average = max(1, page.size // count)
    return max(1, min(limit, fits * 2, int(PAGE_BYTES * _FILL) // average))
