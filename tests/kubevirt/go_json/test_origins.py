from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from webhook.kubevirt.go_json.origins import Origin, Origins, leaves

KEYS = ["a", "b", "c.d"]
trees = st.recursive(
    st.integers(0, 3), lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner)
)


@given(st.lists(st.tuples(st.sampled_from(Origin), st.dictionaries(st.sampled_from(KEYS), trees)), min_size=1))
def test_every_leaf_is_of_the_last_who_changed_it(steps: list[tuple[Origin, Any]]) -> None:
    watched: dict[str, Any] = {}
    origins, expected = Origins(watched), {"": Origin.VM}
    before: dict[str, Any] = {"": {}}
    for origin, state in steps:
        watched.clear()
        watched.update(state)
        origins.note(origin)
        now = dict(leaves(watched))
        absent = object()
        expected = {path: expected[path] if before.get(path, absent) == now[path] else origin for path in now}
        before = now
    assert origins.by_path() == expected


def test_what_only_the_encoding_made_is_kubevirts() -> None:
    origins = Origins({"a": {"b": 1}, "l": [1]})
    assert origins.by_path({"a": {}, "l": [1, 2], "e": {}}) == {
        "a": Origin.KUBEVIRT,
        "l[0]": Origin.VM,
        "l[1]": Origin.KUBEVIRT,
        "e": Origin.KUBEVIRT,
    }


def test_what_only_the_decoding_made_is_kubevirts() -> None:
    decoded = {"a": {"devices": {}, "bus": "x", "memory": "1Gi"}, "l": [{"name": "", "n": 1}]}
    given = {"a": {"bus": "x", "memory": "1024Mi", "devices": None}, "l": [{"n": 1}]}
    assert Origins(decoded, given=given).by_path() == {
        "a.devices": Origin.KUBEVIRT,
        "a.bus": Origin.VM,
        "a.memory": Origin.VM,
        "l[0].name": Origin.KUBEVIRT,
        "l[0].n": Origin.VM,
    }


def test_inheritance_goes_back_as_far_as_it_is_known() -> None:
    vm = {"spec": {"x": 1}}
    first = Origins(vm)
    vm["spec"]["y"] = 2
    first.note(Origin.PREFERENCE)
    second = Origins({"spec": {"x": 1, "y": 2}})
    second.inherit(first)
    built = {"x": 1, "y": 2}
    third = Origins(built)
    built["z"] = 3
    third.note(Origin.INSTANCETYPE)
    third.inherit(second, "spec.")
    assert third.by_path() == {"x": Origin.VM, "y": Origin.PREFERENCE, "z": Origin.INSTANCETYPE}
