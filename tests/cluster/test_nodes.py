"""Nodes from their watch, and the further fields that the watch keeps where a component needs them."""

from __future__ import annotations

from typing import Any, cast

import msgspec

from webhook.cluster.nodes import WatchedNodes
from webhook.k8s.resources import NODES, Resource
from webhook.k8s.types.core import Node, NodeWithoutImages


class NodesReports:
    def __init__(self) -> None:
        self.resource = NODES.decoded_as(cast("type[NodeWithoutImages]", Node))
        self.events: list[tuple[str, object]] = []

    def reduce(self, view: NodeWithoutImages) -> object:
        status = cast("Node", view).status
        return tuple(image.names for image in (status.images if status else None) or ())

    def put(self, name: str, kept: object) -> None:
        self.events.append((name, kept))

    def remove(self, name: str) -> None:
        self.events.append((name, None))


def view(resource: Resource[NodeWithoutImages], image: str = "one", zone: str = "a") -> NodeWithoutImages:
    written = {"metadata": {"name": "n1", "labels": {"zone": zone}}, "status": {"images": [{"names": [image]}]}}
    return msgspec.convert(written, resource.view)


def change(
    nodes: WatchedNodes, old: NodeWithoutImages | None, new: NodeWithoutImages | None
) -> NodeWithoutImages | None:
    """The effects of the watch."""
    kept = nodes._trim(new) if new else None
    nodes._on_change(old, kept)
    return kept


def test_reports_get_what_they_keep_and_reviews_what_they_need() -> None:
    reports = NodesReports()
    nodes = WatchedNodes(cast("Any", None), reports=reports)
    assert nodes.copy.resource is reports.resource
    first = change(nodes, None, view(reports.resource))
    second = change(nodes, first, view(reports.resource, image="two"))
    third = change(nodes, second, view(reports.resource, image="two", zone="b"))
    change(nodes, third, None)
    assert reports.events == [("n1", (["one"],)), ("n1", (["two"],)), ("n1", None)]


def test_without_reports_no_images_are_decoded() -> None:
    nodes = WatchedNodes(cast("Any", None))
    assert nodes.copy.resource is NODES
    kept = change(nodes, None, view(NODES))
    assert not hasattr(view(NODES).status, "images")
    change(nodes, kept, None)
