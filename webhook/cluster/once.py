"""A running cluster that is read a few times: no watches, no health checks, no permissions beyond those of the reads.

For commands, which have their user's permissions. `webhook.cluster.live` is for servers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Final, TypeVar, cast

from webhook.cluster.source import Cluster
from webhook.errors import Unavailable
from webhook.facts import NOT_READ, Key, KubeVirtKey, ListKey, NamespaceKey, NodesKey, ObjectKey
from webhook.k8s.client.api import READ_ERRORS, ApiError, Transport, fetch, list_failure
from webhook.k8s.client.bounded_lists import fetch_list
from webhook.k8s.client.list_pages import pages
from webhook.k8s.client.resources import NAMESPACES, NODES, Resource
from webhook.k8s.views import Object
from webhook.kubevirt.install import KubeVirtInstall
from webhook.kubevirt.resources import KUBEVIRTS
from webhook.placement.index import NodeIndex
from webhook.placement.nodes import Node

T = TypeVar("T")
V = TypeVar("V", bound=Object)

_PAGE: Final = 500


class OnceCluster(Cluster):
    """Answers the questions of explanations, each key with a request of its own.

    Args:
        transport: the connection to the API server; the caller closes it.
    """

    def __init__(self, transport: Transport) -> None:
        self._transport: Final = transport

    def peek(self, key: Key[Any]) -> object:
        """Always `webhook.facts.NOT_READ`, since nothing is remembered."""
        return NOT_READ

    async def read(self, key: Key[T], deadline: float) -> T | Unavailable | None:
        """The answer of the API server, by a request of its own."""
        return cast("T | Unavailable | None", await self._read(key, deadline))

    async def _read(self, key: Key[Any], deadline: float) -> object:
        left = max(0.0, deadline - asyncio.get_running_loop().time())
        match key:
            case ObjectKey():
                return await fetch(self._transport, key.resource, key.namespace, key.name, left)
            case NamespaceKey():
                return await fetch(self._transport, NAMESPACES, "", key.name, left)
            case ListKey():
                return await fetch_list(self._transport, key.resource, key.namespace, key.label, left)
            case NodesKey():
                nodes = await self._all(NODES, left)
                return (
                    nodes
                    if isinstance(nodes, Unavailable)
                    else NodeIndex(Node.of(node) for node in nodes if node.meta.name)
                )
            case KubeVirtKey():
                kubevirts = await self._all(KUBEVIRTS, left)
                return kubevirts if isinstance(kubevirts, Unavailable) else KubeVirtInstall.of(kubevirts)
        return Unavailable(f"{type(key).__name__} cannot be read from a cluster without watches")

    async def _all(self, resource: Resource[V], seconds: float) -> list[V] | Unavailable:
        """All objects of a kind; none where the cluster does not know it."""
        objects: list[V] = []
        try:
            async with asyncio.timeout(seconds):
                async for page in pages(self._transport, resource, limit=_PAGE, seconds=seconds):
                    objects += page.items or ()
        except READ_ERRORS as error:
            missing = isinstance(error, ApiError) and error.status == 404
            return [] if missing else list_failure(error, resource, "", seconds)
        return objects

    def staleness(self) -> Mapping[str, float]:
        """Always empty, since nothing is watched."""
        return {}

    def waiting_for(self) -> tuple[str, ...]:
        """Always empty: every answer is read when it is needed."""
        return ()
