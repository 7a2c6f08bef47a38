"""The nodes of a running cluster, watched, trimmed and indexed."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Final, cast

from webhook.k8s import nodes
from webhook.k8s.client.api import Transport
from webhook.k8s.client.clock import REAL_TIME, Clock
from webhook.k8s.client.reflector import DEFAULT_TIMING, Reflector, Timing
from webhook.k8s.client.resources import NODES
from webhook.k8s.views import ObjectMeta
from webhook.placement.index import NodeIndex
from webhook.placement.node import Node


class _TrimmedNode(nodes.NodeView, frozen=True):
    """What is kept of a node: its name, for the watch, and what placements need."""

    kept: Node | None = None


def _trim(view: nodes.NodeView) -> nodes.NodeView:
    return _TrimmedNode(metadata=ObjectMeta(name=view.meta.name), kept=Node.of(view))


class WatchedNodes:
    """A `NodeIndex` that a watch keeps up to date.

    Args:
        transport: the connection to the API server.
        clock: the source of monotonic time, and of sleep.
        timing: pauses, timeouts and page sizes of the watch.
        jitter: picks a random number between two bounds.

    Attributes:
        copy: the watch.
        index: the nodes; complete once ``copy.has_synced``.
    """

    def __init__(
        self,
        transport: Transport,
        *,
        clock: Clock = REAL_TIME,
        timing: Timing = DEFAULT_TIMING,
        jitter: Callable[[float, float], float] = random.uniform,
    ) -> None:
        self.index: Final = NodeIndex()
        self.copy: Final = Reflector(
            transport, NODES, transform=_trim, on_change=self._on_change, clock=clock, timing=timing, jitter=jitter
        )

    def _on_change(self, old: nodes.NodeView | None, new: nodes.NodeView | None) -> None:
        if new is not None:
            node = cast("_TrimmedNode", new).kept
            assert node is not None
            self.index.put(node)
        elif old is not None and old.meta.name:
            self.index.remove(old.meta.name)
