"""The nodes of a running cluster, watched, trimmed and indexed."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Final, cast

from webhook import objects
from webhook.cluster.api import Transport
from webhook.cluster.clock import REAL_TIME, Clock
from webhook.cluster.reflector import DEFAULT_TIMING, Reflector, Timing
from webhook.objects import NODES, ObjectMeta
from webhook.placement.index import NodeIndex
from webhook.placement.node import Node


class _Trimmed(objects.Node, frozen=True):
    """What is kept of a node: its name, for the watch, and what placements need."""

    kept: Node | None = None


def _trim(view: objects.Node) -> objects.Node:
    return _Trimmed(metadata=ObjectMeta(name=view.meta.name), kept=Node.of(view))


class WatchedNodes:
    """A `NodeIndex` that a watch keeps up to date.

    Attributes:
        copy: the watch.
        index: the nodes; complete once ``copy.synced``.
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
            transport, NODES, transform=_trim, on_change=self._changed, clock=clock, timing=timing, jitter=jitter
        )

    def _changed(self, old: objects.Node | None, new: objects.Node | None) -> None:
        if new is not None:
            node = cast("_Trimmed", new).kept
            assert node is not None
            self.index.put(node)
        elif old is not None and old.meta.name:
            self.index.remove(old.meta.name)
