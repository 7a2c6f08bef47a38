from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.k8s.json_values import JSON_VALUES, plainly
from webhook.k8s.json_tree import ABSENT, MAX_LEVELS, cut, flatten, is_too_deep, lookup, plain_fields
from webhook.k8s.types.core import Eviction, SchedulingPod, TargetPod
from webhook.k8s.types.meta import Unstructured
from webhook.kubevirt.types.views import VirtualMachine


@pytest.mark.control("deep-objects-in-scans")
@given(JSON_VALUES, st.integers(0, 5), st.sampled_from([None, 1]), st.booleans())
def test_it_is_what_recursion_would_make_of_it(value: Any, levels: int, indent: int | None, ascii_only: bool) -> None:
    body = json.dumps(value, indent=indent, ensure_ascii=ascii_only).encode(errors="surrogatepass")
    assert json.loads(flatten(body, levels).decode(errors="surrogatepass")) == plainly(value, levels)


@pytest.mark.control("deep-objects-in-scans")
def test_depth_costs_nothing() -> None:
    for opener, closer in ((b"[", b"]"), (b'{"a":', b"}"), (b'[{"a":', b"}]"), (b'{"a" : [ ', b" ] }")):
        body = opener * 50_000 + b"1" + closer * 50_000
        assert msgspec.json.decode(flatten(body, 5)) is not None


@given(st.binary(max_size=60) | st.text(st.sampled_from('[]{}"\\,: a'), max_size=40).map(str.encode))
def test_any_bytes_come_to_an_end(body: bytes) -> None:
    assert len(flatten(body, 2)) <= len(body) + 4 * body.count(b"[") + 4 * body.count(b"{")


def nested(levels: int, kind: str = "mixed") -> Any:
    """Plain JSON of so many levels."""
    value: Any = 1
    for level in range(levels):
        value = [value, 2] if kind == "list" or (kind == "mixed" and level % 2) else {"a": value, "b": 2}
    return value


@pytest.mark.control("unreadable-vms")
@pytest.mark.parametrize("kind", ["list", "dict", "mixed"])
def test_the_limit_is_exact(kind: str) -> None:
    assert not is_too_deep(nested(MAX_LEVELS, kind))
    assert is_too_deep(nested(MAX_LEVELS + 1, kind))
    assert is_too_deep(nested(50_000, kind)), "by a loop"


def test_views_count_as_what_they_are_made_of() -> None:
    assert not is_too_deep(Unstructured(spec={"a": nested(MAX_LEVELS - 2)}))
    assert is_too_deep(Unstructured(spec={"a": nested(MAX_LEVELS)}))
    assert not is_too_deep(None)


def test_which_views_keep_what_they_do_not_know() -> None:
    kept = {view: plain_fields(view) for view in (Unstructured, VirtualMachine, TargetPod, SchedulingPod, Eviction)}
    assert kept == {
        Unstructured: ("spec", "status", "data"),
        VirtualMachine: ("spec",),
        TargetPod: ("spec",),
        SchedulingPod: (),
        Eviction: (),
    }
    # And one that holds itself.
    assert plain_fields(_Tree) == ()


class _Tree(msgspec.Struct):
    branches: list[_Tree] = []


@given(JSON_VALUES, st.integers(0, 6))
def test_cut_keeps_all_above(value: Any, levels: int) -> None:
    assert cut(value, levels) == plainly(value, levels)


def test_cut_needs_no_more_frames_than_levels() -> None:
    assert not is_too_deep(cut(nested(50_000), MAX_LEVELS))


def test_lookup() -> None:
    view = msgspec.json.decode(b'{"spec": {"template": {"metadata": {"annotations": {"a": 1}}}}}', type=VirtualMachine)
    assert lookup(view, ("spec", "template", "metadata", "annotations", "a")) == 1
    assert lookup(view, ("spec", "template", "spec", "schedulerName")) is ABSENT
    assert lookup({"a": {"b": None}}, ("a", "b")) is ABSENT
    with pytest.raises(TypeError, match=r"^a/b: "):
        lookup({"a": 1}, ("a", "b"))
