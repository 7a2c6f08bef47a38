"""A node's labels behave as the dictionary that they were, and nodes of one kind share the table of their keys."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Callable
from itertools import count, cycle

from hypothesis import given
from hypothesis import strategies as st

from webhook.placement.nodes import Labels, labels_starting_with, plain_labels

TEXTS = st.text("abc", max_size=2)


@given(st.dictionaries(TEXTS, TEXTS), st.dictionaries(TEXTS, TEXTS), TEXTS)
def test_as_a_dictionary(one: dict[str, str], other: dict[str, str], key: str) -> None:
    labels = Labels(one)

    assert dict(labels) == one
    assert list(labels.items()) == list(one.items())
    assert (len(labels), key in labels, labels.get(key), labels.get(key, "x")) == (
        *(len(one), key in one, one.get(key), one.get(key, "x")),
    )
    assert labels.keys() == one.keys()
    assert plain_labels(labels) == plain_labels(one) == one
    assert labels == Labels(one) == one
    assert (labels == Labels(other)) == (labels == other) == (one == other)
    assert labels == Labels(dict(reversed(one.items())))


@given(st.dictionaries(TEXTS, TEXTS), st.lists(TEXTS, max_size=3))
def test_labels_with_a_prefix(one: dict[str, str], prefixes: list[str]) -> None:
    labels = (Labels(one), Labels(dict.fromkeys(one, "x")), one)

    for prefix in prefixes * 2:
        for each in labels:
            found = labels_starting_with(each, prefix, "x/")
            those = sorted(item for item in each.items() if item[0].startswith(prefix))
            assert list(found.items()) == [(f"x/{key[len(prefix) :]}", value) for key, value in those]


def test_of_what_is_no_mapping() -> None:
    assert Labels({}) != ()
    assert repr(Labels({"a": "b"})) == "Labels({'a': 'b'})"


def test_a_thousand_nodes_take_a_tenth_of_what_dictionaries_take() -> None:
    keys = [f"key-{number}" for number in range(120)]
    hosts = map(str, count())

    def written() -> dict[str, str]:
        return dict.fromkeys(keys, "value") | {"key-7": next(hosts)}

    assert _bytes_of(lambda: Labels(written())) * 10 < _bytes_of(written)


def test_nodes_with_other_values_take_no_more_than_a_third() -> None:
    keys = [f"key-{number}" for number in range(120)]
    values = cycle([dict.fromkeys(keys, value) for value in "abcd"])

    assert _bytes_of(lambda: Labels(next(values))) * 3 < _bytes_of(lambda: dict(next(values)))


def test_values_are_those_of_each_node() -> None:
    usual = {f"key-{number}": "value" for number in range(20)}
    first, second, third = (Labels(usual | own) for own in ({}, {"key-3": "x"}, dict.fromkeys(list(usual)[:9], "y")))

    assert [each["key-3"] for each in (first, second, third)] == ["value", "x", "y"]
    assert [each.get("key-9") for each in (first, second, third)] == ["value"] * 3
    assert (first == second, second == third, second == Labels(usual | {"key-3": "x"})) == (False, False, True)
    assert dict(third) == third.as_dict() == usual | dict.fromkeys(list(usual)[:9], "y")


def _bytes_of(make: Callable[[], object]) -> int:
    gc.collect()
    tracemalloc.start()
    try:
        kept = [make() for _ in range(1000)]
        return tracemalloc.get_traced_memory()[0] if kept else 0
    finally:
        tracemalloc.stop()
