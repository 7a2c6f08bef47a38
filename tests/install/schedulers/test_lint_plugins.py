from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from webhook.install.schedulers.lint import QUEUE_SORT, arguments, queue_sort, runs

IMAGE = "ImageLocality"


def lists(point: str, *, enabled: tuple[str, ...] = (), disabled: tuple[str, ...] = ()) -> dict[str, Any]:
    return {point: {"enabled": [{"name": one} for one in enabled], "disabled": [{"name": one} for one in disabled]}}


@pytest.mark.parametrize(
    ("plugins", "expected"),
    [
        ({}, True),
        (lists("score", disabled=(IMAGE,)), False),
        (lists("score", disabled=("*",)), False),
        (lists("score", enabled=(IMAGE,), disabled=("*",)), True),
        (lists("multiPoint", disabled=(IMAGE,)), False),
        (lists("multiPoint", enabled=(IMAGE,), disabled=("*",)), True),
        (lists("score", enabled=(IMAGE,)) | lists("multiPoint", disabled=(IMAGE,)), True),
        (lists("score", disabled=(IMAGE,)) | lists("multiPoint", enabled=(IMAGE,)), False),
        (lists("filter", disabled=(IMAGE,)), True),
    ],
)
def test_whether_a_plugin_runs(plugins: dict[str, Any], expected: bool) -> None:
    assert runs({"plugins": plugins}, "score", IMAGE) is expected


def test_the_queue_sort_is_the_default_one_unless_another_is_enabled() -> None:
    assert queue_sort({}) == QUEUE_SORT
    assert queue_sort({"plugins": lists("queueSort", enabled=("Coscheduling",), disabled=("*",))}) == "Coscheduling"
    assert queue_sort({"plugins": lists("multiPoint", enabled=("QOSSort",))}) == "QOSSort"


def test_arguments_are_found_by_name() -> None:
    config = [{"name": "Other", "args": {"a": 1}}, {"name": IMAGE, "args": {"b": 2}}, 5]

    assert arguments({"pluginConfig": config}, IMAGE) == {"b": 2}
    assert arguments({}, IMAGE) == {}


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.sampled_from(["score", "enabled", "disabled", "name", IMAGE, "*"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["plugins", "score", "multiPoint", "queueSort", "enabled", "disabled", "name", "args", "pluginConfig"]
            ),
            inner,
            max_size=4,
        )
    ),
)


@given(st.dictionaries(st.sampled_from(["plugins", "pluginConfig", "schedulerName"]), values))
def test_profiles_of_any_shape_have_an_answer(profile: dict[str, Any]) -> None:
    assert runs(profile, "score", IMAGE) in (True, False)
    assert isinstance(queue_sort(profile), str)
    arguments(profile, IMAGE)
