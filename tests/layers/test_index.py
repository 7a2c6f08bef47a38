"""How much of an image a node has."""

from __future__ import annotations

import json
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from webhook.layers import index as layer_index
from webhook.layers.index import MAX_SCORE, LayerIndex, PlatformImage
from webhook.layers.manifests import Layer

AMD, ARM = "linux/amd64", "linux/arm64"
GIB = 2**30


def filled(nodes: dict[str, list[str]], images: dict[str, dict[str, int]], platform: str = AMD) -> LayerIndex:
    """An index of nodes with their images, whose layers are all known."""
    index = LayerIndex()
    for name, listed in nodes.items():
        for image in index.put(name, platform, listed):
            index.learn(image, [Layer(*each) for each in images[image.digest].items()])
    return index


def expected(have: set[str], sizes: dict[str, int]) -> int:
    total = sum(sizes.values())
    return MAX_SCORE * sum(size for digest, size in sizes.items() if digest in have) // total if total else 0


class TestScores:
    def test_a_node_scores_by_the_bytes_that_it_has(self) -> None:
        images = {"one": {"L1": 100, "L2": 200, "L3": 700}, "two": {"L1": 100, "L2": 200, "L4": 50}}
        index = filled({"a": ["one"], "b": ["two"], "c": []}, images)
        assert index.scores({AMD: images["one"]}) == {"a": 10, "b": 3}
        assert index.scores({AMD: images["two"]}) == {"a": 8, "b": 10}

    def test_layers_of_several_images_add_up(self) -> None:
        images = {"one": {"L1": 50, "L2": 50}, "two": {"L2": 50, "L3": 100}}
        index = filled({"a": ["one"], "b": ["two"], "c": ["one", "two"]}, images)
        assert index.scores({AMD: images["one"] | images["two"]}) == {"a": 5, "b": 7, "c": 10}

    def test_a_score_is_never_rounded_up(self) -> None:
        index = filled({"a": ["one"]}, {"one": {"L1": 99}})
        assert index.scores({AMD: {"L1": 99, "L2": 1}}) == {"a": 9}
        assert index.scores({AMD: {"L1": 99, "L2": 10_000}}) == {}

    def test_platforms_have_layers_of_their_own(self) -> None:
        index = filled({"a": ["one"]}, {"one": {"L1": 10}})
        for image in index.put("b", ARM, ["one"]):
            index.learn(image, [Layer("L9", 10)])
        assert index.scores({AMD: {"L1": 10}, ARM: {"L9": 10}}) == {"a": 10, "b": 10}
        assert index.scores({AMD: {"L9": 10}, ARM: {"L1": 10}}) == {}
        assert index.scores({"windows/amd64": {"L1": 10}}) == {}

    def test_nothing_is_scored_by_nothing(self) -> None:
        index = filled({"a": ["one"]}, {"one": {"L1": 0}})
        assert index.scores({}) == {}
        assert index.scores({AMD: {}}) == {}
        assert index.scores({AMD: {"L1": 0}}) == {}

    @given(st.randoms(use_true_random=False), st.integers(1, 40), st.integers(1, 12))
    @settings(max_examples=60, deadline=None)
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
            scores = {name: score for name, have in has.items() if (score := expected(have, wanted))}
            assert index.scores({AMD: wanted}) == scores
            assert index.scores({AMD: wanted}) == scores

    def test_many_sums_are_rounded_down_and_bounded(self) -> None:
        dice = random.Random(7)
        sizes = {f"L{number}": dice.randrange(1, GIB) for number in range(40)}
        images = {digest: {digest: size} for digest, size in sizes.items()}
        nodes = {f"n{number}": [digest for digest in sizes if dice.random() < 0.5] for number in range(1500)}
        found = filled(nodes, images).scores({AMD: sizes})
        for name, have in nodes.items():
            exact = expected(set(have), sizes)
            assert exact - 1 <= found.get(name, 0) <= exact

    def test_of_more_layers_than_are_told_apart_the_largest_count(self) -> None:
        sizes = {f"L{number}": 1 + number for number in range(layer_index.MAX_GROUPS * 2)}
        images = {digest: {digest: size} for digest, size in sizes.items()}
        # Each layer is on a set of nodes of its own.
        nodes = {f"n{number}": [f"L{number}"] for number in range(len(sizes))} | {"all": list(sizes)}
        assert filled(nodes, images).scores({AMD: sizes})["all"] >= 7


class TestAnswer:
    def test_it_has_only_the_nodes_that_were_sent_if_these_are_few(self) -> None:
        nodes = {f"n{number}": ["one"] for number in range(10)} | {"c": []}
        index = filled(nodes, {"one": {"L1": 10}})
        answer = index.answer({AMD: {"L1": 10}}, ["n3", "c", "unknown"])
        assert json.loads(answer) == [{"Host": "n3", "Score": 10}]

    def test_where_most_nodes_were_sent_it_has_all_of_them(self) -> None:
        nodes = {f"n{number}": ["one"] for number in range(10)}
        index = filled(nodes, {"one": {"L1": 10}})
        wanted = {AMD: {"L1": 10}}
        answer = index.answer(wanted, list(nodes)[:5])
        assert {each["Host"] for each in json.loads(answer)} == set(nodes)
        assert index.answer(wanted, list(nodes)) is answer
        index.put("n1", AMD, [])
        index.remove("n2")
        hosts = {each["Host"] for each in json.loads(index.answer(wanted, None))}
        assert hosts == nodes.keys() - {"n1", "n2"}

    def test_without_scores_it_is_an_empty_list(self) -> None:
        assert LayerIndex().answer({AMD: {"L1": 10}}, ["a"]) == b"[]"

    def test_only_what_has_changed_is_worked_out_again(self) -> None:
        index = filled({"a": ["one"], "b": [], "c": []}, {"one": {"L1": 10}})
        wanted = {AMD: {"L1": 10}}
        table = index.table(wanted)
        kept = index._tables[next(iter(index._tables))].scores
        # What has no layer of the pod makes no difference.
        for image in index.put("b", AMD, ["two"]):
            index.learn(image, [Layer("L2", 5)])
        assert index.table(wanted) is table
        assert index._tables[next(iter(index._tables))].scores == kept
        index.put("b", AMD, ["one"])
        index.put("a", AMD, [])
        assert index.table(wanted) is table
        assert index.scores(wanted) == {"b": 10}

    def test_the_number_of_answers_that_are_kept_is_bounded(self) -> None:
        index = filled({"a": ["one"]}, {"one": {"L1": 10}})
        for size in range(1, 1000):
            index.table({AMD: {"L1": size}})
        assert len(index._tables) == layer_index._CACHED_TABLES


class TestNodesOfTheIndex:
    def test_unknown_images_are_named_once(self) -> None:
        index = LayerIndex()
        assert index.put("a", AMD, ["one"]) == [PlatformImage("one", AMD)]
        assert index.put("a", AMD, ["one"]) == []
        assert (index.known_images, index.unknown_images) == (0, 1)
        index.learn(PlatformImage("one", AMD), [Layer("L1", 1)])
        assert index.put("b", AMD, ["one"]) == []
        assert (index.known_images, index.unknown_images) == (1, 0)

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
        assert index.scores({AMD: {"L1": 1}}) == {}
        index.remove("never-there")
        assert len(index) == 2

    def test_a_node_may_change_its_platform(self) -> None:
        index = filled({"a": ["one"]}, {"one": {"L1": 1}})
        index.put("a", ARM, [])
        assert list(index.platforms) == [ARM]
        assert index.scores({AMD: {"L1": 1}, ARM: {"L1": 1}}) == {}

    def test_layers_of_images_on_no_node_are_not_kept(self) -> None:
        index = LayerIndex()
        index.learn(PlatformImage("one", AMD), [Layer("L1", 1)])
        assert index.known_images == 0

    def test_the_number_of_images_is_bounded(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(layer_index, "MAX_IMAGES", 3)
        index = LayerIndex()
        index.put("a", AMD, ["one", "two", "three", "four"])
        assert index.denied == 1
        assert index.unknown_images == 3
        index.put("a", AMD, ["four"])
        assert index.is_on_nodes(PlatformImage("four", AMD))
