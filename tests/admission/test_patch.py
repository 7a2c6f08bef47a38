from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import jsonpatch
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from webhook.admission.decision import Change, RepeatedChanges
from webhook.admission.patch import changes, make_patch, overlay, pointer, render, segments
from webhook.k8s.json_tree import ABSENT, lookup
from webhook.k8s.types.core import SchedulingPod

# Names with everything that a JSON pointer must escape, and few of them, so that paths meet.
_names = st.sampled_from(["a", "b", "a/b", "m~n", "~1", "", "kubevirt-webhook.github.io/x"])
_leaves = st.none() | st.booleans() | st.integers(-5, 5) | st.text(max_size=4) | st.lists(st.integers(), max_size=2)
_objects = st.recursive(
    st.dictionaries(_names, _leaves, max_size=4),
    lambda inner: st.dictionaries(_names, st.one_of(_leaves, inner), max_size=4),
)


def _set(root: dict[str, Any], path: tuple[str, ...], value: object) -> bool:
    """Applies a change by hand, as intended; False if its path leads through a value that is not an object."""
    for segment in path[:-1]:
        child = root.get(segment)
        if child is None:
            child = root[segment] = {}
        if not isinstance(child, dict):
            return False
        root = child
    root[path[-1]] = value
    return True


def _old(root: dict[str, Any], path: Sequence[str]) -> object:
    value = lookup(root, path)
    return None if value is ABSENT else value


@pytest.mark.control("malformed-reviews")
@given(_objects, st.lists(st.tuples(st.lists(_names, min_size=1, max_size=4), st.text(max_size=3)), max_size=5))
def test_applied_operations_give_the_intended_object(root: dict[str, Any], wanted: list[tuple[list[str], str]]) -> None:
    intended = copy.deepcopy(root)
    changes: list[Change] = []
    for path, value in wanted:
        # A later change must not lead through the value of an earlier one: policies set leaves.
        prefixes = [change.path for change in changes]
        if any(tuple(path[: len(p)]) == p or p[: len(path)] == tuple(path) for p in prefixes):
            continue
        trial = copy.deepcopy(intended)
        if _set(trial, tuple(path), value):
            intended = trial
            changes.append(Change(tuple(path), _old(root, path), value, "test"))

    rendered = render(root, changes)
    ops = msgspec.json.decode(rendered) if rendered else []

    assert jsonpatch.apply_patch(root, ops) == intended
    assert {op["op"] for op in ops} <= {"add"}, "nothing that can fail to apply"
    again = [Change(change.path, _old(intended, change.path), change.new, "test") for change in changes]
    assert render(intended, again) is None, "a second pass changes nothing"


def test_absent_parents_come_with_the_value_and_are_made_once() -> None:
    ops = make_patch({"spec": {}}, [Change(("spec", "template", "metadata", "x"), None, "y", "r")])
    assert [(op["path"], op["value"]) for op in ops] == [("/spec/template", {"metadata": {"x": "y"}})]
    changes = [Change(("metadata", "annotations", name), None, "1", "r") for name in ("a", "b")]
    ops = make_patch({"metadata": {"annotations": None}}, changes)
    assert [op["path"] for op in ops] == ["/metadata/annotations", "/metadata/annotations/b"]


def test_views_and_plain_json_give_the_same() -> None:
    plain = {"metadata": {"labels": {"a": "b"}}, "spec": {"schedulerName": "default-scheduler"}}
    changes = [
        Change(("spec", "schedulerName"), "default-scheduler", "kubevirt", "r"),
        Change(("metadata", "annotations", "k/x"), None, "kubevirt", "r"),
    ]
    assert make_patch(msgspec.convert(plain, SchedulingPod), changes) == make_patch(plain, changes)


def test_a_change_through_a_string_or_of_an_unknown_field_is_a_bug() -> None:
    with pytest.raises(TypeError, match="a str "):
        make_patch({"spec": "text"}, [Change(("spec", "schedulerName"), None, "x", "r")])
    with pytest.raises(KeyError):
        make_patch(SchedulingPod(), [Change(("sepc",), None, "x", "r")])


@given(st.lists(_names, min_size=1, max_size=5))
def test_a_pointer_stands_for_its_path(path: list[str]) -> None:
    assert segments(pointer(path)) == tuple(path)
    assert pointer(("metadata", "annotations", "a/b~c")) == "/metadata/annotations/a~1b~0c"


_PARENTS: tuple[dict[str, Any], ...] = (
    *({}, {"metadata": None}, {"metadata": {}}, {"metadata": {"annotations": {}}, "spec": {}}),
    {"spec": {"x": 1}},
)


def test_repeated_changes_become_the_patch_of_the_object_at_hand() -> None:
    paths = (("spec", "schedulerName"), ("metadata", "annotations", "a"), ("metadata", "annotations", "b"))
    written = [Change(path, None, "kubevirt", "r") for path in paths]
    repeated = RepeatedChanges(written)
    for root in _PARENTS * 2:
        assert render(root, repeated) == render(root, written)
    assert len(repeated.patches) == len(_PARENTS) - 1, "one for each shape: to have null is to have nothing"
    # Those that change nothing make no patch.
    same = RepeatedChanges([Change(("spec", "schedulerName"), "kubevirt", "kubevirt", "r")])
    assert [render({"spec": {"schedulerName": "kubevirt"}}, same) for _ in range(2)] == [None, None]
    assert render({}, []) is None


LEAVES = st.one_of(st.integers(0, 3), st.sampled_from(["a", "b", "1024Mi"]), st.booleans())
KEYS = st.sampled_from(["a", "b", "c"])


def objects(inner: st.SearchStrategy[Any] = LEAVES) -> st.SearchStrategy[dict[str, Any]]:
    values = st.recursive(
        inner, lambda part: st.one_of(st.dictionaries(KEYS, part, max_size=3), st.lists(part, max_size=3)), max_leaves=8
    )
    return st.dictionaries(KEYS, values, max_size=3)


def patched(original: dict[str, Any], before: dict[str, Any], after: dict[str, Any]) -> Any:
    made = list(changes(("spec",), original, before, after, "r"))
    rendered = render({"spec": original}, made)
    return jsonpatch.apply_patch({"spec": original}, msgspec.json.decode(rendered) if rendered else [])["spec"]


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


def test_what_is_gone_is_removed_where_it_stands() -> None:
    assert overlay({"a": 1, "b": 2, "x": 3}, {"a": 1, "b": 2}, {"a": 1}) == {"a": 1, "x": 3}
    original = {"acpi": {"enabled": False, "unknown": 1}, "null": None, "kept": 1}
    before = {"acpi": {"enabled": False}, "null": 0, "kept": 1}
    assert patched(original, before, {"acpi": {}, "kept": 1}) == {"acpi": {"unknown": 1}, "null": None, "kept": 1}


def test_nothing_of_the_original_is_changed() -> None:
    original = {"a": [{"b": 1}]}
    overlay(original, {"a": [{"b": 1}]}, {"a": [{"b": 2}]})
    assert original == {"a": [{"b": 1}]}


@given(objects(), objects())
def test_an_exact_reading_is_replaced_exactly(before: dict[str, Any], after: dict[str, Any]) -> None:
    assert overlay(before, before, after) == after or any(isinstance(value, list) for value in before.values())
    assert overlay(before, before, before) is before
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
