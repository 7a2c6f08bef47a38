"""The layers on nodes, from the watch and from manifests."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator

import msgspec
import pytest

from tests.images.registry.fake_registry import manifest
from tests.images.registry.test_images import AMD, ImageSource, index, running, settle
from webhook.images.manifests import digest_of
from webhook.images.registry import node_layers
from webhook.images.registry.images import Images
from webhook.images.registry.node_layers import NodeLayers
from webhook.k8s.types.core import Node

WANTED = {AMD: {digest_of(b"L1"): 100}}
ONE = digest_of(manifest())


def node(name: str, *digests: str, registry: str = "quay.io", addresses: tuple[str, ...] = ()) -> Node:
    status = {
        "images": [{"names": [f"{registry}/disk@{digest}"]} for digest in digests],
        "nodeInfo": {"architecture": "amd64", "operatingSystem": "linux"},
        "addresses": [{"address": address} for address in addresses],
    }
    return msgspec.convert({"metadata": {"name": name}, "status": status}, Node)


def scores(nodes: NodeLayers) -> dict[str, int]:
    return {each["Host"]: each["Score"] for each in json.loads(nodes.index.answer(WANTED))}


def put(nodes: NodeLayers, view: Node) -> None:
    nodes.put(view.meta.name or "", nodes.reduce(view))


@pytest.fixture
def source() -> ImageSource:
    return ImageSource()


@pytest.fixture
def nodes() -> NodeLayers:
    return NodeLayers(["quay.io"])


@pytest.fixture
async def images(source: ImageSource, nodes: NodeLayers) -> AsyncIterator[Images]:
    async with running(source, on_manifest=nodes.on_manifest) as images:
        nodes.use(images)
        yield images


async def test_a_node_is_scored_once_its_images_are_known(
    source: ImageSource, nodes: NodeLayers, images: Images
) -> None:
    source.add(manifest())
    put(nodes, node("a", ONE))
    put(nodes, node("b"))
    assert (scores(nodes), nodes.index.unknown_images) == ({}, 1)
    await settle(images)
    assert scores(nodes) == {"a": 10}
    # Those that come later find it in memory.
    put(nodes, node("b", ONE))
    assert (scores(nodes), source.asked) == ({"a": 10, "b": 10}, [(ONE, None)])


async def test_images_by_index_take_two_steps(source: ImageSource, nodes: NodeLayers, images: Images) -> None:
    put(nodes, node("a", digest_of(source.add(index(amd64=source.add(manifest()))))))
    await settle(images)
    assert scores(nodes) == {"a": 10}


@pytest.mark.parametrize("is_gone", [False, True])
async def test_what_failed_is_asked_for_again_unless_no_node_lists_it_any_more(
    source: ImageSource, nodes: NodeLayers, images: Images, is_gone: bool
) -> None:
    put(nodes, node("a", ONE, addresses=("8.8.8.8",)))
    await settle(images)
    if is_gone:
        nodes.remove("a")
    source.add(manifest())
    source.now += 3600
    await nodes.sweep()
    if is_gone:
        nodes.on_manifest(ONE)
        assert (nodes._references, nodes._waiting, nodes.index._nodes, nodes.own._by_node) == ({}, {}, {}, {})
    await settle(images)
    assert (scores(nodes), len(source.asked)) == (({}, 1) if is_gone else ({"a": 10}, 2))


async def test_a_registry_that_has_an_image_no_more_hides_no_other(source: ImageSource) -> None:
    """Nodes have pulled one digest from several places; the first that was seen must not be asked for ever."""
    nodes, gone = NodeLayers(["quay.io", "other.example"]), ImageSource()
    source.add(manifest())
    async with running(source, other=gone, on_manifest=nodes.on_manifest) as images:
        nodes.use(images)
        put(nodes, node("a", ONE, registry="other.example"))
        put(nodes, node("b", ONE))
        await settle(images)
        assert scores(nodes) == {}
        await nodes.sweep()
        await settle(images)
        assert (scores(nodes), source.asked, gone.asked) == ({"a": 10, "b": 10}, [(ONE, None)], [(ONE, None)])


@pytest.mark.parametrize("is_removed", [True, False])
async def test_a_reference_that_no_node_lists_any_more_is_not_asked(source: ImageSource, is_removed: bool) -> None:
    nodes, gone = NodeLayers(["quay.io", "other.example"]), ImageSource()
    source.add(manifest())
    async with running(source, other=gone, on_manifest=nodes.on_manifest) as images:
        put(nodes, node("a", ONE, registry="other.example"))
        put(nodes, node("b", ONE))
        if is_removed:
            nodes.remove("a")
        else:
            put(nodes, node("a", ONE))
        nodes.use(images)
        put(nodes, node("c", digest_of(b"another image")))
        nodes.remove("b")
        put(nodes, node("b", ONE))
        await nodes.sweep()
        await settle(images)
        assert gone.asked == []
        for name in ("a", "b", "c"):
            nodes.remove(name)
        assert (nodes._references, nodes._listed) == ({}, {})


async def test_a_sweep_while_nodes_are_listed_loses_nothing(
    source: ImageSource, nodes: NodeLayers, images: Images
) -> None:
    source.add(manifest())
    # The watch reads all pages of a list before it reports the first node.
    kept = nodes.reduce(node("a", ONE))
    await nodes.sweep()
    nodes.put("a", kept)
    await settle(images)
    assert scores(nodes) == {"a": 10}


async def test_other_registries_are_not_looked_at(nodes: NodeLayers, images: Images) -> None:
    put(nodes, node("a", ONE, registry="other.example"))
    assert (nodes.index.unknown_images, images.waiting) == (0, 0)


async def test_the_sweep_lets_others_have_their_turn(
    nodes: NodeLayers, images: Images, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(node_layers, "_TURN", 1)
    put(nodes, node("a", *(digest_of(bytes([number])) for number in range(5))))
    await nodes.sweep()
    assert nodes.index.unknown_images == 5


def test_nodes_that_list_fifty_images_are_counted(nodes: NodeLayers) -> None:
    put(nodes, node("a", *(digest_of(bytes([number])) for number in range(50))))
    put(nodes, node("b"))
    assert nodes.cut == {"a"}
    put(nodes, node("a"))
    assert (nodes.cut, nodes.resource.path(), nodes.resource.view) == (set(), "/api/v1/nodes", Node)
