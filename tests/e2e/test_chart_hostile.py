"""Hostile values of the chart: each is an error that names it, or stands only where it belongs."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest
import yaml

from webhook.install.plan import DIGEST_ANNOTATION

from .support.helm import CHART, IMAGE, Helm
from .support.kube import Json

SCHEMA: Final[Json] = json.loads((CHART / "values.schema.json").read_text())
# Everything that the chart can make, so that every value is used.
ON: Final[tuple[tuple[str, ...], ...]] = (("autoscaling",), ("monitoring",), ("dashboard",))
# Longer ones are not YAML.
MAX_KEY: Final = 900
# Of a scheduler, and of a registry.
NAME: Final = "kubevirt"
HOSTILE: Final = {
    "lines": "x\ny: z\n---\nkind: Secret\n",
    "after a colon": "x:1\nopenshift: true",
    "double quote": 'x", "y": "z',
    "single quote": "x', y: 'z",
    "template": '{{ fail "x" }}{{ .Release.Name }}',
    "anchor": "&a {<<: *a}",
    "comment": "x #",
    "a line break of YAML": "x\u2028y: z",
    "long": "x" * 100_000,
}


class Leaf(NamedTuple):
    """A value that is no object with keys of the chart's own; a step that is a number: an item of a list."""

    path: tuple[str | int, ...]
    kind: str

    @property
    def pointer(self) -> str:
        """As Helm writes it."""
        return "".join(f"/{step}" for step in self.path)


def leaves(node: Json = SCHEMA, path: tuple[str | int, ...] = ()) -> Iterator[Leaf]:
    if "$ref" in node:
        node = SCHEMA["$defs"][node["$ref"].rpartition("/")[2]]
    if "anyOf" in node:
        node = node["anyOf"][0]
    named = [*node.get("patternProperties", {}).values(), node.get("additionalProperties")][0]
    kind = node.get("type", "string")
    if "properties" in node:
        for name, value in node["properties"].items():
            yield from leaves(value, (*path, name))
    elif kind == "array":
        yield from leaves(node["items"], (*path, 0))
    elif isinstance(named, dict) and "$ref" in named:
        yield from leaves(named, (*path, NAME))
        yield Leaf(path, "names")
    else:
        yield Leaf(path, kind if isinstance(kind, str) else "integer or string")


LEAVES: Final = tuple(leaves())


def values(chosen: dict[Leaf, Any]) -> Json:
    """The chart's values with these."""
    tree: Json = {"image": dict(IMAGE), **{name: {"enabled": True} for (name,) in ON}}
    for leaf, value in chosen.items():
        place: Any = tree
        for step, following in zip(leaf.path, leaf.path[1:], strict=False):
            empty: Any = [] if isinstance(following, int) else {}
            place = _step(place, step, empty)
        if isinstance(place, list):
            place.append(value)
        elif isinstance(value, dict) and isinstance(place.get(leaf.path[-1]), dict):
            place[leaf.path[-1]].update(value)
        else:
            place[leaf.path[-1]] = value
    return tree


def _step(place: Any, step: str | int, empty: Any) -> Any:
    if isinstance(step, str):
        return place.setdefault(step, empty)
    if not place:
        place.append(empty)
    return place[step]


def shaped(leaf: Leaf, text: str) -> Any:
    """A text as a value: of maps also as a key."""
    if leaf.kind == "names":
        return {text[-MAX_KEY:]: {}}
    return {text[-MAX_KEY:]: text} if leaf.kind == "object" else text


def refused(helm: Helm, chosen: dict[Leaf, Any]) -> set[Leaf]:
    """What Helm names as wrong."""
    said = helm.run("template", "kubevirt-webhook", CHART, values=values(chosen), check=False)
    assert "values don't meet the specifications of the schema" in said, said[:2000]

    def is_named(leaf: Leaf) -> bool:
        return bool(re.search(rf"at '{re.escape(leaf.pointer)}['/]", said))

    return {leaf for leaf in chosen if is_named(leaf)}


def objects(helm: Helm, chosen: dict[Leaf, Any]) -> Any:
    """What the chart makes, without digests; lists of texts in the order of their texts."""
    made = helm.run("template", "kubevirt-webhook", CHART, values=values(chosen))
    found = [one for one in yaml.load_all(made, UniqueKeyLoader) if one]
    for one in found:
        if one["kind"] == "Deployment":
            one["spec"]["template"]["metadata"]["annotations"].pop(DIGEST_ANNOTATION)
        if one["kind"] == "ConfigMap" and "settings.yaml" in one["data"]:
            one["data"] = yaml.safe_load(one["data"]["settings.yaml"])
    return found


class UniqueKeyLoader(yaml.SafeLoader):
    """As the API server's strict reader: a key that is there twice is an error."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        keys = [self.construct_object(key, deep=True) for key, _ in node.value]
        assert len({*keys}) == len(keys), f"twice: {keys}"
        return super().construct_mapping(node, deep)


def replaced(tree: Any, change: Callable[[str], str]) -> Any:
    """A tree with all of its texts changed, keys too, and its lists of texts sorted."""
    if isinstance(tree, dict):
        return {replaced(key, change)[-MAX_KEY:]: replaced(value, change) for key, value in tree.items()}
    if isinstance(tree, list):
        items = [replaced(item, change) for item in tree]
        return sorted(items) if all(isinstance(item, str) for item in items) else items
    return change(tree) if isinstance(tree, str) else tree


@pytest.fixture
def helm(helm_program: Path, tmp_path: Path) -> Helm:
    return Helm(helm_program, tmp_path)


@pytest.mark.parametrize("hostile", HOSTILE.values(), ids=HOSTILE)
def test_a_hostile_text_is_refused_by_its_name_or_stands_where_it_belongs(helm: Helm, hostile: str) -> None:
    texts = {leaf: f"{hostile}{number}x" for number, leaf in enumerate(LEAVES)}
    harmless = {leaf: f"harmless{number}x" for number, leaf in enumerate(LEAVES)}
    wrong = refused(helm, {leaf: shaped(leaf, text) for leaf, text in texts.items()})
    wrong |= refused(helm, {leaf: shaped(leaf, text) for leaf, text in harmless.items()})
    kept = [leaf for leaf in LEAVES if leaf not in wrong]

    made = objects(helm, {leaf: shaped(leaf, texts[leaf]) for leaf in kept})
    expected = objects(helm, {leaf: shaped(leaf, harmless[leaf]) for leaf in kept})

    def hostile_again(text: str) -> str:
        for leaf in kept:
            text = text.replace(harmless[leaf], texts[leaf])
        return text

    assert replaced(made, str) == replaced(expected, hostile_again)


@pytest.mark.parametrize("value", [-1, 2**40, 0.5, "1", "x\ny: z", [], {}], ids=repr)
def test_a_number_is_a_number_in_its_range(helm: Helm, value: Any) -> None:
    numbers = {leaf: value for leaf in LEAVES if leaf.kind.startswith("integer")}
    assert len(numbers) > 20
    assert refused(helm, numbers) == {*numbers}


@pytest.mark.parametrize("value", [7, True, [], {}], ids=repr)
def test_a_text_is_a_text(helm: Helm, value: Any) -> None:
    texts = {leaf: value for leaf in LEAVES if leaf.kind == "string"}
    # YAML 1.1 makes booleans of on and off.
    excepted = {leaf for leaf in texts if leaf.pointer == "/settings/events" and value is True}
    assert refused(helm, texts) == {*texts} - excepted


@pytest.mark.parametrize("leaf", [leaf for leaf in LEAVES if "abels" in leaf.pointer], ids=lambda leaf: leaf.pointer)
def test_labels_that_kubernetes_would_deny_are_refused(helm: Helm, leaf: Leaf) -> None:
    for key, value in (("a b", "x"), ("/a", "x"), ("a", "x y"), ("a", "x" * 64), ("a", "-x"), ("a" * 64, "x")):
        assert refused(helm, {leaf: {key: value}}) == {leaf}
