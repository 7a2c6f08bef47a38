"""Lists of whatever length, page by page."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping
from typing import Any, Generic, TypeVar, cast

import msgspec

from webhook.cluster.api import NO_QUERY, Refused, Transport
from webhook.objects import Object, Resource, View

V = TypeVar("V", bound=Object)


class ListMeta(View, frozen=True):
    resource_version: str | None = None
    # ``continue`` is a keyword of Python.
    continue_: str | None = msgspec.field(default=None, name="continue")


class Page(View, Generic[V], frozen=True):
    """A part of a list; the last one continues nowhere."""

    metadata: ListMeta | None = None
    items: list[V] | None = None

    @property
    def meta(self) -> ListMeta:
        return self.metadata or ListMeta()


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
        namespace: empty for all.
        query: selectors.
        limit: objects in a page.
        seconds: to wait for a page at most.

    Raises:
        Refused: the answer is not a list; 410 where the moment of the first page is too long ago.
        Unreachable: there was no answer.
        TimeoutError: there was none in time.
        msgspec.DecodeError, UnicodeDecodeError: it can't be decoded.
    """
    decoder = msgspec.json.Decoder(cast("type[Page[V]]", cast("Any", Page)[resource.view]))
    path, asked = resource.path(namespace), {**query, "limit": str(limit)}
    while True:
        async with asyncio.timeout(seconds):
            status, body = await transport.get(path, asked)
        if status != 200:
            raise Refused(status, body)
        page = decoder.decode(body)
        yield page
        if not page.meta.continue_:
            return
        asked["continue"] = page.meta.continue_
