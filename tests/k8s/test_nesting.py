from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.k8s.json_values import JSON_VALUES, plainly
from webhook.k8s.nesting import MAX_LEVELS, cut, is_too_deep, plain_fields
from webhook.k8s.pods import Eviction, Pod, TargetPod
from webhook.k8s.views import Unstructured
from webhook.kubevirt.types.views import VirtualMachine


def nested(levels: int, kind: str = "mixed") -> Any:
    """Plain JSON of so many levels."""
    value: Any = 1
    for level in range(levels):
        value = [value, 2] if kind == "list" or (kind == "mixed" and level % 2) else {"a": value, "b": 2}
    return value


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
    kept = {view: plain_fields(view) for view in (Unstructured, VirtualMachine, TargetPod, Pod, Eviction)}

    assert kept == {
        Unstructured: ("spec", "status", "data"),
        VirtualMachine: ("spec",),
        TargetPod: ("spec",),
        Pod: (),
        Eviction: (),
    }


def test_a_view_that_holds_itself() -> None:
    assert plain_fields(_Tree) == ()


class _Tree(msgspec.Struct):
    branches: list[_Tree] = []


@given(JSON_VALUES, st.integers(0, 6))
def test_cut_keeps_all_above(value: Any, levels: int) -> None:
    assert cut(value, levels) == plainly(value, levels)


def test_cut_needs_no_more_frames_than_levels() -> None:
    assert not is_too_deep(cut(nested(50_000), MAX_LEVELS))
