"""The layers on nodes, from the watch and from manifests."""

from __future__ import annotations

import json
from typing import Any, cast

import msgspec
import pytest

from tests.images.registry.fake_registry import manifest
from tests.images.registry.test_images import AMD, ImageSource, index, running, settle
from webhook.images.index import LayerIndex
from webhook.images.manifests import digest_of
from webhook.images.registry import node_layers
from webhook.images.registry.node_layers import NodeLayers
from webhook.k8s.types.core import Node, NodeWithoutImages

WANTED = {AMD: {digest_of(b"L1"): 100}}


def node(name: str, *digests: str, registry: str = "quay.io", addresses: tuple[str, ...] = ()) -> NodeWithoutImages:
    written = {
        "metadata": {"name": name},
        "status": {
            "images": [{"names": [f"{registry}/disk@{digest}"]} for digest in digests],
            "nodeInfo": {"architecture": "amd64", "operatingSystem": "linux"},
            "addresses": [{"address": address} for address in addresses],
        },
    }
    return msgspec.json.decode(json.dumps(written).encode(), type=Node)


def scores(index: LayerIndex) -> dict[str, int]:
    return {each["Host"]: each["Score"] for each in json.loads(index.answer(WANTED))}


def put(nodes: NodeLayers, view: NodeWithoutImages) -> None:
    nodes.put(cast("str", view.meta.name), nodes.reduce(view))


async def test_a_node_is_scored_once_its_images_are_known() -> None:
    source, nodes = ImageSource(), NodeLayers({"quay.io": None})
    one = source.add(manifest())
    async with running(source, on_manifest=nodes.on_manifest) as images:
        nodes.use(images)
        put(nodes, node("a", digest_of(one)))
        put(nodes, node("b"))
        assert scores(nodes.index) == {}
        assert nodes.unknown == 1
        await settle(images)
        assert scores(nodes.index) == {"a": 10}
        # Those that come later find it in memory.
        put(nodes, node("b", digest_of(one)))
        assert scores(nodes.index) == {"a": 10, "b": 10}
        assert source.asked == [(digest_of(one), None)]


async def test_images_by_index_take_two_steps() -> None:
    source, nodes = ImageSource(), NodeLayers(["quay.io"])
    whole = source.add(index(amd64=source.add(manifest())))
    async with running(source, on_manifest=nodes.on_manifest) as images:
        nodes.use(images)
        put(nodes, node("a", digest_of(whole)))
        await settle(images)
        assert scores(nodes.index) == {"a": 10}


async def test_what_failed_is_asked_for_again() -> None:
    source, nodes = ImageSource(), NodeLayers(["quay.io"])
    async with running(source, on_manifest=nodes.on_manifest) as images:
        nodes.use(images)
        put(nodes, node("a", digest_of(manifest())))
        await settle(images)
        source.add(manifest())
        source.now += 3600
        await nodes.sweep()
        await settle(images)
        assert scores(nodes.index) == {"a": 10}
        assert len(source.asked) == 2


async def test_what_no_node_lists_any_more_is_forgotten() -> None:
    source, nodes = ImageSource(), NodeLayers(["quay.io"])
    async with running(source, on_manifest=nodes.on_manifest) as images:
        nodes.use(images)
        put(nodes, node("a", digest_of(manifest()), addresses=("8.8.8.8",)))
        await settle(images)
        nodes.remove("a")
        source.add(manifest())
        source.now += 3600
        await nodes.sweep()
        nodes.on_manifest(digest_of(manifest()))
        await settle(images)
        assert len(source.asked) == 1
    assert (nodes._references, nodes._waiting, len(nodes.index)) == ({}, {}, 0)
    assert nodes.own._by_node == {}


async def test_a_sweep_while_nodes_are_listed_loses_nothing() -> None:
    source, nodes = ImageSource(), NodeLayers(["quay.io"])
    one = source.add(manifest())
    async with running(source, on_manifest=nodes.on_manifest) as images:
        nodes.use(images)
        # The watch reads all pages of a list before it reports the first node.
        kept = nodes.reduce(node("a", digest_of(one)))
        await nodes.sweep()
        nodes.put("a", kept)
        await settle(images)
        assert scores(nodes.index) == {"a": 10}


async def test_other_registries_are_not_looked_at() -> None:
    source, nodes = ImageSource(), NodeLayers(["quay.io"])
    async with running(source, on_manifest=nodes.on_manifest) as images:
        nodes.use(images)
        put(nodes, node("a", digest_of(manifest()), registry="other.example"))
        assert (nodes.unknown, images.waiting) == (0, 0)


async def test_the_sweep_lets_others_have_their_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_layers, "_TURN", 1)
    source, nodes = ImageSource(), NodeLayers(["quay.io"])
    async with running(source) as images:
        nodes.use(images)
        put(nodes, node("a", *(digest_of(bytes([number])) for number in range(5))))
        await nodes.sweep()
        assert nodes.unknown == 5


def test_nodes_that_list_fifty_images_are_counted() -> None:
    nodes = NodeLayers(["quay.io"])
    put(nodes, node("a", *(digest_of(bytes([number])) for number in range(50))))
    put(nodes, node("b"))
    assert nodes.cut == {"a"}
    put(nodes, node("a"))
    assert nodes.cut == set()


def test_the_view_is_that_of_the_watch() -> None:
    nodes: Any = NodeLayers([])
    assert nodes.resource.path() == "/api/v1/nodes"
    assert nodes.resource.view is Node
