"""Lists of whatever length, page by page, each page bounded in bytes.

How large an object is decides who made it, so pages are cut to size: one that is too large is asked for again with
fewer objects.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping
from typing import Any, Final, Generic, TypeVar

import msgspec

from webhook.cluster.api import LARGEST_ANSWER_BYTES, NO_QUERY, Refused, TooLarge, Transport
from webhook.cluster.shallow import prune
from webhook.cluster.skipped import SKIPPED
from webhook.objects import Anything, Object, Resource, View

V = TypeVar("V", bound=Object)

PAGE_BYTES: Final = 4 * 1024 * 1024

# After a page that did not work. The next ones grow again.
_SHRINK: Final = 4
# Of a page's bytes, what the next page is meant to have: objects are not all of the same size.
_FILL: Final = 0.5
# A list, its items, an item and its metadata: as deep as the name of an object lies.
_NAMED_LEVELS: Final = 4


class ListMeta(View, frozen=True):
    resource_version: str | None = None
    # ``continue`` is a keyword of Python.
    continue_: str | None = msgspec.field(default=None, name="continue")


class _RawPage(View, frozen=True):
    metadata: ListMeta | None = None
    items: list[msgspec.Raw] | None = None


class _NamedPage(View, frozen=True):
    metadata: ListMeta | None = None
    items: list[Anything] | None = None


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
        return self.metadata or ListMeta()


_decode_raw: Final = msgspec.json.Decoder(_RawPage).decode
_decode_named: Final = msgspec.json.Decoder(_NamedPage).decode


async def pages(
    transport: Transport,
    resource: Resource[V],
    namespace: str = "",
    query: Mapping[str, str] = NO_QUERY,
    *,
    limit: int,
    seconds: float,
    skip: bool = True,
) -> AsyncGenerator[Page[V], None]:
    """All objects of a resource; all pages show the moment of the first.

    Args:
        namespace: empty for all.
        query: selectors.
        limit: objects in a page at most.
        seconds: to wait for a page at most.
        skip: pass over objects that are nested too deeply to be decoded; they are counted.

    Raises:
        Refused: the answer is not a list; 410 where the moment of the first page is too long ago.
        Unreachable: there was no answer, or one object alone is too large.
        TimeoutError: there was none in time.
        msgspec.DecodeError, UnicodeDecodeError: it can't be decoded.
    """
    decode = msgspec.json.Decoder(resource.view).decode
    path, asked, fits = resource.path(namespace), dict(query), limit
    while True:
        asked["limit"] = str(fits)
        try:
            async with asyncio.timeout(seconds):
                status, body = await transport.get(path, asked, most=PAGE_BYTES if fits > 1 else LARGEST_ANSWER_BYTES)
            if status != 200:
                raise Refused(status, body)
            page: Page[V] = _decoded(body, decode)
        except TooLarge:
            if fits == 1:
                raise
            fits = max(1, fits // _SHRINK)
            continue
        except RecursionError:
            if fits > 1:
                # One object is nested too deeply. Alone in its page it can be passed over.
                fits = max(1, fits // _SHRINK)
                continue
            if not skip:
                raise msgspec.DecodeError("the object is nested too deeply") from None
            page = _without(body, resource)
        del body
        yield page
        if not page.meta.continue_:
            return
        asked["continue"] = page.meta.continue_
        fits = _next(limit, fits, page)


def _decoded(body: bytes, decode: Any) -> Page[Any]:
    raw = _decode_raw(body)
    items = raw.items or []
    return Page(raw.metadata, [decode(item) for item in items], [len(memoryview(item)) for item in items], len(body))


def _without(body: bytes, resource: Resource[Any]) -> Page[Any]:
    """The page of one object that is passed over."""
    named = _decode_named(prune(body, _NAMED_LEVELS))
    for found in named.items or ():
        SKIPPED.note(resource, found)
    return Page(named.metadata, [], [], len(body))


def _next(limit: int, fits: int, page: Page[Any]) -> int:
    """How many objects the next page may have, by the size of those before."""
    count = len(page.items or ()) or 1
    average = max(1, page.size // count)
    return max(1, min(limit, fits * 2, int(PAGE_BYTES * _FILL) // average))
