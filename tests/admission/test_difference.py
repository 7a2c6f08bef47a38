from __future__ import annotations

import copy
from typing import Any

import jsonpatch
import msgspec
from hypothesis import given
from hypothesis import strategies as st

from webhook.admission.patch import changes, operations, overlay

LEAVES = st.one_of(st.integers(0, 3), st.sampled_from(["a", "b", "1024Mi"]), st.booleans())
KEYS = st.sampled_from(["a", "b", "c"])


def objects(inner: st.SearchStrategy[Any] = LEAVES) -> st.SearchStrategy[dict[str, Any]]:
    values = st.recursive(
        inner, lambda part: st.one_of(st.dictionaries(KEYS, part, max_size=3), st.lists(part, max_size=3)), max_leaves=8
    )
    return st.dictionaries(KEYS, values, max_size=3)


def patched(original: dict[str, Any], before: dict[str, Any], after: dict[str, Any]) -> Any:
    made = list(changes(("spec",), original, before, after, "r"))
    ops = operations({"spec": original}, made)
    return jsonpatch.apply_patch({"spec": original}, msgspec.json.decode(msgspec.json.encode(ops)))["spec"]


def test_what_a_reading_drops_or_rewrites_stays() -> None:
    original = {"memory": "1024Mi", "unknown": 1, "empty": {}, "null": None, "list": [{"name": "x", "unknown": 2}]}
    before = {"memory": "1Gi", "list": [{"name": "x"}], "struct": {}}
    after = {"memory": "1Gi", "list": [{"name": "x", "bus": "virtio"}, {"name": "y"}], "struct": {}, "cpu": {"n": 1}}

    assert patched(original, before, after) == original | {
        "list": [{"name": "x", "unknown": 2, "bus": "virtio"}, {"name": "y"}],
        "cpu": {"n": 1},
    }


def test_only_what_differs_is_a_change() -> None:
    original: dict[str, Any] = {"a": {"b": {"c": 1}, "z": {}}}
    after = {"a": {"b": {"c": 1, "d": 2}, "z": {"y": 3}}}

    made = list(changes(("spec",), original, {"a": {"b": {"c": 1}}}, after, "r"))

    assert [(change.path, change.old, change.new) for change in made] == [
        (("spec", "a", "b", "d"), None, 2),
        (("spec", "a", "z", "y"), None, 3),
    ]


def test_what_is_gone_is_removed_from_a_whole() -> None:
    assert overlay({"a": 1, "b": 2, "x": 3}, {"a": 1, "b": 2}, {"a": 1}) == {"a": 1, "x": 3}


def test_what_is_gone_is_removed_where_it_stands() -> None:
    original = {"acpi": {"enabled": False, "unknown": 1}, "null": None, "kept": 1}
    before = {"acpi": {"enabled": False}, "null": 0, "kept": 1}

    assert patched(original, before, {"acpi": {}, "kept": 1}) == {"acpi": {"unknown": 1}, "null": None, "kept": 1}


def test_nothing_of_the_original_is_changed() -> None:
    original = {"a": [{"b": 1}]}
    kept = copy.deepcopy(original)

    overlay(original, {"a": [{"b": 1}]}, {"a": [{"b": 2}]})

    assert original == kept


@given(objects(), objects())
def test_an_exact_reading_is_replaced_exactly(before: dict[str, Any], after: dict[str, Any]) -> None:
    assert overlay(before, before, after) == after or any(isinstance(value, list) for value in before.values())
    assert overlay(before, before, before) is before


@given(objects(), objects())
def test_an_object_becomes_any_other(before: dict[str, Any], after: dict[str, Any]) -> None:
    assert patched(before, before, after) == overlay(before, before, after)


@given(objects(), objects())
def test_additions_make_the_same_object(before: dict[str, Any], more: dict[str, Any]) -> None:
    after = _merged(before, more)

    assert patched(before, before, after) == after


def _merged(one: Any, other: Any) -> Any:
    if isinstance(one, dict) and isinstance(other, dict):
        return one | {key: _merged(one[key], value) if key in one else value for key, value in other.items()}
    if isinstance(one, list) and isinstance(other, list):
        return one + other
    return other
