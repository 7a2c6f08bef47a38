"""How much of an image a node has."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from webhook.images import index as layer_index
from webhook.images.index import MAX_SCORE, LayerIndex, PlatformImage
from webhook.images.manifests import Layer

AMD, ARM = "linux/amd64", "linux/arm64"
GIB = 2**30


def filled(nodes: dict[str, list[str]], images: dict[str, dict[str, int]], platform: str = AMD) -> LayerIndex:
    """An index of nodes with their images, whose layers are all known."""
    index = LayerIndex()
    for name, listed in nodes.items():
        for image in index.put(name, platform, listed):
            index.learn(image, [Layer(*each) for each in images[image.digest].items()])
    return index


def scores(index: LayerIndex, wanted: dict[str, dict[str, int]]) -> dict[str, int]:
    """The scores of all nodes that have one."""
    return {each["Host"]: each["Score"] for each in json.loads(index.answer(wanted))}


def expected(have: set[str], sizes: dict[str, int]) -> int:
    total = sum(sizes.values())
    return MAX_SCORE * sum(size for digest, size in sizes.items() if digest in have) // total if total else 0


class TestScores:
    def test_platforms_have_layers_of_their_own(self) -> None:
        index = filled({"a": ["one"]}, {"one": {"L1": 10}})
        for image in index.put("b", ARM, ["one"]):
            index.learn(image, [Layer("L9", 10)])
        assert scores(index, {AMD: {"L1": 10}, ARM: {"L9": 10}}) == {"a": 10, "b": 10}
        assert scores(index, {AMD: {"L9": 10}, ARM: {"L1": 10}}) == {}
        assert scores(index, {"windows/amd64": {"L1": 10}}) == {}

    @pytest.mark.control("manifests-that-lie")
    @given(st.randoms(use_true_random=False), st.integers(1, 40), st.integers(1, 12))
    @settings(max_examples=60)
    def test_scores_are_those_of_sets(self, dice: random.Random, nodes: int, layers: int) -> None:
        sizes = {f"L{number}": dice.choice([0, 1, 5, 1000, GIB]) for number in range(layers)}
        images = {
            f"image-{number}": {digest: sizes[digest] for digest in sizes if dice.random() < 0.4} for number in range(8)
        }
        listed = {f"n{number}": [image for image in images if dice.random() < 0.3] for number in range(nodes)}
        index = filled(listed, images)
        for _ in range(3):
            # Nodes come and go, and images with them.
            name = dice.choice(list(listed))
            if dice.random() < 0.5 and len(listed) > 1:
                del listed[name]
                index.remove(name)
            else:
                listed[name] = [image for image in images if dice.random() < 0.3]
                for image in index.put(name, AMD, listed[name]):
                    index.learn(image, [Layer(*each) for each in images[image.digest].items()])
            wanted = {digest: size for digest, size in sizes.items() if dice.random() < 0.7}
            has = {name: {digest for image in found for digest in images[image]} for name, found in listed.items()}
            found = {name: score for name, have in has.items() if (score := expected(have, wanted))}
            assert (scores(index, {AMD: wanted}), scores(index, {AMD: wanted})) == (found, found)
            some = [name for name in listed if dice.random() < 0.2] + ["unknown"]
            answered = {each["Host"]: each["Score"] for each in json.loads(index.answer({AMD: wanted}, some))}
            assert answered == found or answered == {name: found[name] for name in some if name in found}

    def test_many_sums_are_rounded_down_and_bounded(self) -> None:
        dice = random.Random(7)
        sizes = {f"L{number}": dice.randrange(1, GIB) for number in range(40)}
        images = {digest: {digest: size} for digest, size in sizes.items()}
        nodes = {f"n{number}": [digest for digest in sizes if dice.random() < 0.5] for number in range(1500)}
        found = scores(filled(nodes, images), {AMD: sizes})
        for name, have in nodes.items():
            exact = expected(set(have), sizes)
            assert exact - 1 <= found.get(name, 0) <= exact

    def test_of_more_layers_than_are_told_apart_the_largest_count(self) -> None:
        sizes = {f"L{number}": 1 + number for number in range(layer_index.MAX_GROUPS * 2)}
        images = {digest: {digest: size} for digest, size in sizes.items()}
        # Each layer is on a set of nodes of its own.
        nodes = {f"n{number}": [f"L{number}"] for number in range(len(sizes))} | {"all": list(sizes)}
        assert scores(filled(nodes, images), {AMD: sizes})["all"] >= 7


class TestAnswer:
    def test_where_most_nodes_were_sent_it_has_all_of_them(self) -> None:
        nodes = {f"n{number}": ["one"] for number in range(10)}
        index = filled(nodes, {"one": {"L1": 10}})
        wanted = {AMD: {"L1": 10}}
        assert {each["Host"] for each in json.loads(index.answer(wanted, list(nodes)[:5]))} == set(nodes)
        index.put("n1", AMD, [])
        index.remove("n2")
        assert scores(index, wanted).keys() == nodes.keys() - {"n1", "n2"}

    def test_without_scores_it_is_an_empty_list(self) -> None:
        assert LayerIndex().answer({AMD: {"L1": 10}}, ["a"]) == b"[]"

    def test_names_are_read_only_where_few_were_sent(self) -> None:
        """Reading 5,000 names takes longer than all else together."""
        index = filled({f"n{number}": ["one"] for number in range(10)}, {"one": {"L1": 10}})
        many: Any = CountedNames(5)
        few: Any = CountedNames(4)
        index.answer({AMD: {"L1": 10}}, many)
        index.answer({AMD: {"L1": 10}}, few)
        assert (many.read, few.read) == (0, 1)

    def test_only_the_blocks_of_nodes_that_have_changed_are_written_again(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        written: list[int] = []
        real = layer_index._entries

        def counted(heads: list[bytes], marks: bytes) -> bytes:
            written.append(len(heads))
            return real(heads, marks)

        monkeypatch.setattr(layer_index, "_entries", counted)
        nodes = {f"n{number:04}": ["one"] for number in range(5000)}
        index = filled(nodes, {"one": {"L1": 10}})
        wanted = {AMD: {"L1": 10}}
        assert len(scores(index, wanted)) == sum(written) == 5000
        # An image without a layer of the pod makes no difference; a lost image makes one block.
        for images, expected_nodes in ((["one", "two"], 0), (["two"], layer_index._BLOCK)):
            written.clear()
            for image in index.put("n2000", AMD, images):
                index.learn(image, [Layer("L2", 5)])
            index.answer(wanted)
            assert sum(written) == expected_nodes
        assert scores(index, wanted).keys() == nodes.keys() - {"n2000"}

    def test_the_number_of_answers_that_are_kept_is_bounded(self) -> None:
        index = filled({"a": ["one"]}, {"one": {"L1": 10}})
        for size in range(1, 1000):
            index.answer({AMD: {"L1": size}})
        assert index._tables.currsize == layer_index._CACHED_TABLES

    def test_the_answer_of_a_pod_that_comes_again_is_kept(self) -> None:
        """Also where a node has come meanwhile, which has all answers made anew."""
        index = filled({"a": ["one"]}, {"one": {"L1": 10}})
        for number in range(2 * layer_index._CACHED_TABLES):
            index.put(f"n{number}", AMD, [])
            for size in (1, 2 + number):
                index.answer({AMD: {"L1": size}})
        assert index._tables.get(((AMD, (("L1", 1),)),))


class CountedNames:
    """CountedNames that count how often they are read."""

    def __init__(self, count: int) -> None:
        self._count = count
        self.read = 0

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[str]:
        self.read += 1
        return iter([f"n{number}" for number in range(self._count)])


class TestNodesOfTheIndex:
    def test_unknown_images_are_named_once(self) -> None:
        index = LayerIndex()
        assert index.put("a", AMD, ["one"]) == [PlatformImage("one", AMD)]
        assert (index.put("a", AMD, ["one"]), index.known_images, index.unknown_images) == ([], 0, 1)
        index.learn(PlatformImage("one", AMD), [Layer("L1", 1)])
        assert (index.put("b", AMD, ["one"]), index.known_images, index.unknown_images) == ([], 1, 0)

    def test_the_last_node_takes_the_layers_along(self) -> None:
        index = filled({"a": ["one"], "b": ["one"]}, {"one": {"L1": 1}})
        index.remove("a")
        assert index.is_on_nodes(PlatformImage("one", AMD))
        index.put("b", AMD, [])
        assert not index.is_on_nodes(PlatformImage("one", AMD))
        assert (index.known_images, index._images, index._holders) == (0, {}, {})

    def test_a_node_that_comes_back_begins_anew(self) -> None:
        index = filled({"a": ["one"], "b": []}, {"one": {"L1": 1}})
        index.remove("a")
        index.put("z", AMD, [])
        assert scores(index, {AMD: {"L1": 1}}) == {}
        index.remove("never-there")
        assert len(index._nodes) == 2

    def test_a_node_may_change_its_platform(self) -> None:
        index = filled({"a": ["one"]}, {"one": {"L1": 1}})
        index.put("a", ARM, [])
        assert (list(index.platforms), scores(index, {AMD: {"L1": 1}, ARM: {"L1": 1}})) == ([ARM], {})

    def test_layers_of_images_on_no_node_are_not_kept(self) -> None:
        index = LayerIndex()
        index.learn(PlatformImage("one", AMD), [Layer("L1", 1)])
        assert index.known_images == 0

    @pytest.mark.control("many-layers")
    def test_the_number_of_layers_is_bounded(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(layer_index, "MAX_LAYERS", 3)
        images = {"one": {"L1": 1, "L2": 1}, "two": {"L1": 1, "L3": 1}, "three": {"L4": 1}}
        index = filled({"a": ["one"], "b": ["two"], "c": ["three"]}, images)
        assert (index.known_images, index.denied) == (2, 1)
        # There is room again once a node has lost its image.
        index.put("a", AMD, [])
        index.learn(PlatformImage("two", AMD), [Layer("L1", 1), Layer("L3", 1)])
        assert index.known_images == 2

    def test_the_number_of_images_is_bounded(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(layer_index, "MAX_IMAGES", 3)
        index = LayerIndex()
        index.put("a", AMD, ["one", "two", "three", "four"])
        assert (index.denied, index.unknown_images) == (1, 3)
        index.put("a", AMD, ["four"])
        assert index.is_on_nodes(PlatformImage("four", AMD))
