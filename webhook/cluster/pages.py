"""Lists of whatever length, page by page."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping
from typing import Any, Final, Generic, TypeVar, cast

import msgspec

from webhook.admission.brackets import flattened
from webhook.admission.nesting import MAX_LEVELS
from webhook.cluster.api import NO_QUERY, Refused, Transport
from webhook.objects import Object, Resource, View

V = TypeVar("V", bound=Object)

# Of a list: one more in an object than are read, so that it still counts as too deep.
_LEVELS: Final = MAX_LEVELS + 3


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
        try:
            page = decoder.decode(body)
        except RecursionError:
            # One object that is nested too deeply would hide all others.
            page = decoder.decode(await asyncio.to_thread(flattened, body, _LEVELS))
        yield page
        if not page.meta.continue_:
            return
        asked["continue"] = page.meta.continue_
