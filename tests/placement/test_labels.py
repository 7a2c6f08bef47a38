"""A node's labels behave as the dictionary that they were, and nodes of one kind share the table of their keys."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Callable

from hypothesis import given
from hypothesis import strategies as st

from webhook.placement.labels import Labels, plain

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
    assert plain(labels) == plain(one) == one
    assert labels == Labels(one) == one
    assert (labels == Labels(other)) == (labels == other) == (one == other)
    assert labels == Labels(dict(reversed(one.items())))


def test_of_what_is_no_mapping() -> None:
    assert Labels({}) != ()
    assert repr(Labels({"a": "b"})) == "Labels({'a': 'b'})"


def test_a_thousand_nodes_take_a_third_of_what_dictionaries_take() -> None:
    keys = [f"key-{number}" for number in range(120)]
    written = dict.fromkeys(keys, "value")

    assert _bytes_of(lambda: Labels(written)) * 2 < _bytes_of(lambda: dict(written))


def _bytes_of(make: Callable[[], object]) -> int:
    gc.collect()
    tracemalloc.start()
    try:
        kept = [make() for _ in range(1000)]
        return tracemalloc.get_traced_memory()[0] if kept else 0
    finally:
        tracemalloc.stop()
