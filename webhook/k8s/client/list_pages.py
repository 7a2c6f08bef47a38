"""Lists of any length, page by page, each page bounded in bytes.

Users decide how large their objects are: a page that is too large is requested again with fewer of them. Lists that a
review waits for are bounded as a whole, in what is read and kept; longer ones are unavailable.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from typing import Final, Generic, NamedTuple, TypeVar

import msgspec

from webhook.errors import Unavailable
from webhook.k8s.client import api
from webhook.k8s.client.api import NO_QUERY, ApiError, TooLargeError, Transport
from webhook.k8s.json_tree import MAX_LEVELS, flatten
from webhook.k8s.paths import is_segment
from webhook.k8s.resources import Resource
from webhook.k8s.types.meta import ListMeta, Object, View

T = TypeVar("T")
V = TypeVar("V", bound=Object)

PAGE_BYTES: Final = 4 * 1024 * 1024
# Into plain JSON that is half a millisecond, as long as a review.
TURN_BYTES: Final = 64 * 1024

# After a page that did not work. The next ones grow again.
_SHRINK: Final = 4
# Of a page's bytes, what the next page is meant to have: objects are not all of the same size.
_FILL: Final = 0.5
# Of a list: one more in an object than are read, so that it still counts as too deep.
_LEVELS: Final = MAX_LEVELS + 3


class _RawPage(View, frozen=True):  # a part of a list as it is sent, its objects not yet decoded
    metadata: ListMeta | None = None
    items: list[msgspec.Raw] | None = None


class Page(NamedTuple, Generic[T]):
    """A part of a list with its ``metadata``, its objects, decoded or not, and the bytes of it as they were sent."""

    meta: ListMeta
    items: list[T]
    size: int


_decode_page: Final = msgspec.json.Decoder(_RawPage).decode


async def pages(
    transport: Transport,
    resource: Resource[V],
    namespace: str = "",
    query: Mapping[str, str] = NO_QUERY,
    *,
    limit: int,
    seconds: float,
) -> AsyncGenerator[Page[V], None]:
    """All objects of a resource, in a namespace or in all; all pages show the moment of the first.

    A page has ``limit`` objects at most, and takes so many seconds.

    Raises:
        ApiError: the answer is not a list; 410 where the moment of the first page is too long ago.
        ApiConnectionError: there was no answer, or one object alone is too large.
        TimeoutError: there was none in time.
        msgspec.DecodeError, UnicodeDecodeError: it cannot be decoded.
    """
    decode = msgspec.json.Decoder(resource.view).decode
    async with aclosing(raw_pages(transport, resource.path(namespace), query, limit, seconds)) as listed:
        async for page in listed:
            items = await decode_items(page.items, decode)
            yield Page(page.meta, items, page.size)
            # What is kept of a page is little of it, and the next one needs the memory.
            del page, items


async def raw_pages(
    transport: Transport, path: str, query: Mapping[str, str], limit: int, seconds: float
) -> AsyncGenerator[Page[msgspec.Raw], None]:
    """As `pages`, for who decodes the objects in slices; ``path`` is that of the resource."""
    options, fits = dict(query), limit
    while True:
        options["limit"] = str(fits)
        try:
            async with asyncio.timeout(seconds):
                status, body = await transport.get(
                    path, options, most=PAGE_BYTES if fits > 1 else api.LARGEST_ANSWER_BYTES
                )
            if status != 200:
                raise ApiError(status, body)
            raw = _decode_page(body)
        except TooLargeError:
            if fits == 1:
                raise
            fits = max(1, fits // _SHRINK)
            continue
        except RecursionError:
            # One object that is nested too deeply must hide no other, and nothing that is read lies so deep.
            raw = _decode_page(await asyncio.to_thread(flatten, body, _LEVELS))
        page = Page(raw.metadata or ListMeta(), raw.items or [], len(body))
        token, average = page.meta.continue_, max(1, page.size // (len(page.items) or 1))
        # By the size of the objects before; objects are not all of the same size.
        fits = max(1, min(limit, fits * 2, int(PAGE_BYTES * _FILL) // average))
        del body, raw
        yield page
        del page
        if not token:
            return
        options["continue"] = token


async def decode_items(items: Sequence[msgspec.Raw], decode: Callable[[bytes | msgspec.Raw], V]) -> list[V]:
    """Decode objects of a page, with a turn for other tasks after each `TURN_BYTES`, since reviews wait meanwhile.

    Raises:
        msgspec.DecodeError, UnicodeDecodeError: one cannot be decoded.
    """
    decoded, left = [], TURN_BYTES
    for item in items:
        try:
            decoded.append(decode(item))
        except RecursionError:
            # The list and its items are two levels.
            decoded.append(decode(await asyncio.to_thread(flatten, bytes(item), _LEVELS - 2)))
        left -= len(memoryview(item))
        if left <= 0:
            await asyncio.sleep(0)
            left = TURN_BYTES
    return decoded


# What is read for one list, of a namespace and of all; and what is kept of it, as JSON. Honest lists are far below: a
# virt-launcher pod has 25 kB, of which 2 kB are kept, and a VM has a handful of them.
LIST_BYTES: Final = 16 * 1024 * 1024
CLUSTER_LIST_BYTES: Final = 64 * 1024 * 1024
KEPT_BYTES: Final = 1024 * 1024

_PAGE_LIMIT: Final = 100


async def fetch_list(
    transport: Transport, resource: Resource[V], namespace: str, label: str, seconds: float, field: str = ""
) -> tuple[V, ...] | Unavailable:
    """What ``resource.keep`` keeps of the objects of a namespace, or of all, with a label ``KEY=VALUE``, or with any.

    ``field`` is one like that of a field that the API server can select by.

    `Unavailable` also where they are too many or too large, or where all pages together take more than so many seconds;
    nothing is raised for what goes wrong.
    """
    if namespace and not is_segment(namespace):
        return ()
    room = LIST_BYTES if namespace else CLUSTER_LIST_BYTES
    selectors = {"labelSelector": label, "fieldSelector": field}
    query = {name: selector for name, selector in selectors.items() if selector} or NO_QUERY
    kept: list[V] = []
    read = held = 0
    listed = pages(transport, resource, namespace, query, limit=_PAGE_LIMIT, seconds=seconds)
    try:
        async with asyncio.timeout(seconds), aclosing(listed):
            async for page in listed:
                read += page.size
                for item in page.items:
                    view = resource.keep(item) if resource.keep else item
                    if view is not None:
                        held += len(msgspec.json.encode(view))
                        kept.append(view)
                if read > room or held > KEPT_BYTES:
                    return Unavailable(f"the list of {resource.plural} is too large to be read")
                await asyncio.sleep(0)
    except api.READ_ERRORS as error:
        missing = isinstance(error, ApiError) and error.status == 404
        return () if missing else api.list_failure(error, resource, namespace, seconds)
    return tuple(kept)
