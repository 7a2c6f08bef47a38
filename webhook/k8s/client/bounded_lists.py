"""Lists that a review waits for: paged, and bounded in what is read and kept; longer ones are unavailable."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import Any, Final, TypeVar
from urllib.parse import quote

import msgspec

from webhook.errors import Unavailable
from webhook.k8s.client.api import (
    NO_QUERY,
    READ_ERRORS,
    ApiError,
    Transport,
    is_segment,
    list_failure,
)
from webhook.k8s.client.list_pages import pages
from webhook.k8s.client.resources import Resource
from webhook.k8s.views import Object

V = TypeVar("V", bound=Object)

# What is read for one list, of a namespace and of all; and what is kept of it, as JSON. Honest lists are far below: a
# virt-launcher pod has 25 kB, of which 2 kB are kept, and a VM has a handful of them.
LIST_BYTES: Final = 16 * 1024 * 1024
CLUSTER_LIST_BYTES: Final = 64 * 1024 * 1024
KEPT_BYTES: Final = 1024 * 1024

_PAGE_LIMIT: Final = 100


async def fetch_list(
    transport: Transport, resource: Resource[V], namespace: str, label: str, seconds: float
) -> tuple[V, ...] | Unavailable:
    """The objects of one namespace that carry a label. Never raises for what goes wrong on the way.

    Args:
        transport: the connection to the API server.
        resource: the resource to list.
        namespace: only the objects of this namespace; empty: all namespaces.
        label: a label as ``KEY=VALUE``; empty: objects with any labels.
        seconds: timeout of the whole list, all pages together.

    Returns:
        What ``resource.keep`` keeps of them; `Unavailable` also where they are too many or too large.
    """
    if namespace and not is_segment(namespace):
        return ()
    try:
        async with asyncio.timeout(seconds):
            return await _list(transport, resource, namespace, label)
    except READ_ERRORS as error:
        missing = isinstance(error, ApiError) and error.status == 404
        return () if missing else list_failure(error, resource, namespace, seconds)


async def _list(transport: Transport, resource: Resource[V], namespace: str, label: str) -> tuple[V, ...] | Unavailable:
    query = {"labelSelector": label} if label else NO_QUERY
    room = LIST_BYTES if namespace else CLUSTER_LIST_BYTES
    kept: list[V] = []
    read = held = 0
    listed = pages(
        transport,
        resource,
        quote(namespace, safe=""),
        query,
        limit=_PAGE_LIMIT,
        # The whole list has a time of its own.
        seconds=float(60),
    )
    async with aclosing(listed):
        async for page in listed:
            read += page.size
            for item in page.items or ():
                view = resource.keep(item) if resource.keep else item
                if view is not None:
                    held += len(msgspec.json.encode(view))
                    kept.append(view)
            if read > room or held > KEPT_BYTES:
                return _too_large(resource)
            await asyncio.sleep(0)
    return tuple(kept)


def _too_large(resource: Resource[Any]) -> Unavailable:
    return Unavailable(f"the list of {resource.plural} is too large to be read")
