"""Reads of a cluster for checks: every list once, page by page. An object that cannot be decoded spoils no list."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping
from typing import Any, Final, Protocol, TypeVar, cast

import msgspec

from webhook.errors import Unavailable
from webhook.k8s.client.api import (
    NO_QUERY,
    READ_ERRORS,
    ApiError,
    Requests,
    Transport,
    fetch,
    list_failure,
)
from webhook.k8s.client.list_pages import pages
from webhook.k8s.client.resources import Resource
from webhook.k8s.views import Object

V = TypeVar("V", bound=Object)

SECONDS: Final = 30.0
_PAGE: Final = 500


class TimedTransport(Transport, Requests, Protocol):
    """A connection whose server's clock can be read."""

    async def date(self) -> float | Unavailable:
        """The API server's clock in Unix seconds."""


class Reader:
    """Reads each object and list once, so that all checks see the same state.

    Args:
        api: the connection to the API server.

    Attributes:
        api: the connection, for requests that do not read an object.
        malformed: objects that could not be decoded and were skipped, by kind.
    """

    def __init__(self, api: TimedTransport) -> None:
        self.api: Final = api
        self.malformed: Final[Counter[str]] = Counter()
        self._reads: Final[dict[Any, asyncio.Task[Any]]] = {}

    async def get(self, resource: Resource[V], namespace: str, name: str) -> V | Unavailable | None:
        """One object; None if it does not exist."""
        key = (resource, namespace, name)
        if key not in self._reads:
            self._reads[key] = asyncio.create_task(fetch(self.api, resource, namespace, name, SECONDS))
        return cast("V | Unavailable | None", await self._reads[key])

    async def all(
        self, resource: Resource[V], namespace: str = "", query: Mapping[str, str] = NO_QUERY
    ) -> tuple[V, ...] | Unavailable:
        """All objects of a kind; none if the cluster does not serve it.

        Args:
            resource: the resource to list.
            namespace: only the objects of this namespace; empty: all namespaces.
            query: parameters of the query, for example selectors.
        """
        key = (resource, namespace, tuple(query.items()))
        if key not in self._reads:
            self._reads[key] = asyncio.create_task(self._list(resource, namespace, query))
        return cast("tuple[V, ...] | Unavailable", await self._reads[key])

    async def _list(
        self, resource: Resource[V], namespace: str, query: Mapping[str, str]
    ) -> tuple[V, ...] | Unavailable:
        raw = cast("Resource[Object]", msgspec.structs.replace(resource, view=msgspec.Raw))
        objects: list[V] = []
        try:
            async for page in pages(self.api, raw, namespace, query, limit=_PAGE, seconds=SECONDS):
                for item in page.items or ():
                    self._take(resource, cast("msgspec.Raw", item), objects)
        except READ_ERRORS as error:
            missing = isinstance(error, ApiError) and error.status == 404
            return () if missing else list_failure(error, resource, namespace, SECONDS)
        return tuple(objects)

    def _take(self, resource: Resource[V], item: msgspec.Raw, objects: list[V]) -> None:
        try:
            objects.append(msgspec.json.decode(item, type=resource.view))
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            self.malformed[resource.kind] += 1
