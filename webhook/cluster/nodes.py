"""The nodes of a running cluster, watched, trimmed and indexed."""

from __future__ import annotations

from typing import Final, Protocol, cast

from webhook.k8s.client.api import Transport
from webhook.k8s.client.clock import REAL_TIME, Clock
from webhook.k8s.client.reflector import OnRestore, Reflector
from webhook.k8s.resources import NODES, Resource
from webhook.k8s.types.core import NodeWithoutImages
from webhook.k8s.types.meta import ObjectMeta
from webhook.placement.index import NodeIndex
from webhook.placement.nodes import Node


class NodeReports(Protocol):
    """Gets more of each node than placements need."""

    @property
    def resource(self) -> Resource[NodeWithoutImages]:
        """Nodes, with a view that has what is needed beyond `webhook.k8s.types.core.NodeWithoutImages`."""

    def reduce(self, view: NodeWithoutImages) -> object:
        """What is to be kept of a node; the view is that of `resource`."""

    def put(self, name: str, kept: object) -> None:
        """A node is there, or what was kept of it has changed."""

    def remove(self, name: str) -> None:
        """A node is gone."""


class _TrimmedNode(NodeWithoutImages, frozen=True):
    """What is kept of a node: its name, for the watch, what placements need, and what reports want."""

    kept: Node | None = None
    reported: object = None


class WatchedNodes:
    """A `NodeIndex` that a watch keeps up to date.

    Args:
        transport: the connection to the API server.
        reports: gets more of each node; None: no more is read.
        on_restore: as that of `Reflector`.
        clock: the source of monotonic time, and of sleep.

    Attributes:
        copy: the watch.
        index: the nodes; complete once ``copy.has_synced``.
    """

    def __init__(
        self,
        transport: Transport,
        *,
        reports: NodeReports | None = None,
        on_restore: OnRestore | None = None,
        clock: Clock = REAL_TIME,
    ) -> None:
        self._reports: Final = reports
        self.index: Final = NodeIndex()
        self.copy: Final = Reflector(
            transport,
            reports.resource if reports else NODES,
            transform=self._trim,
            on_change=self._on_change,
            on_restore=on_restore,
            clock=clock,
        )

    def _trim(self, view: NodeWithoutImages) -> NodeWithoutImages:
        reported = self._reports.reduce(view) if self._reports else None
        node = Node.of(view)
        return _TrimmedNode(metadata=ObjectMeta(name=node.name), kept=node, reported=reported)

    def _on_change(self, old: NodeWithoutImages | None, new: NodeWithoutImages | None) -> None:
        if new is not None:
            former, node = cast("_TrimmedNode | None", old), cast("_TrimmedNode", new)
            assert node.kept is not None
            if former is None or former.kept != node.kept:
                self.index.put(node.kept)
            if self._reports and (former is None or former.reported != node.reported):
                self._reports.put(node.kept.name, node.reported)
        elif old is not None and old.meta.name:
            self.index.remove(old.meta.name)
            if self._reports:
                self._reports.remove(old.meta.name)
