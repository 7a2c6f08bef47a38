"""What was used last is kept, up to a weight."""

from __future__ import annotations

from collections import OrderedDict

from hypothesis import given
from hypothesis import strategies as st

from webhook.lru import LruCache

STEPS = st.tuples(st.sampled_from(["put", "get", "drop"]), st.sampled_from("abcd"), st.integers(1, 12))


@given(st.lists(STEPS))
def test_those_that_were_used_least_recently_make_room(steps: list[tuple[str, str, int]]) -> None:
    cache: LruCache[str, int] = LruCache(10, lambda value: value)
    expected: OrderedDict[str, int] = OrderedDict()
    for step, key, value in steps:
        if step == "get":
            assert cache.get(key) == expected.get(key)
            if key in expected:
                expected.move_to_end(key)
            continue
        expected.pop(key, None)
        if step == "drop":
            cache.drop(key)
            continue
        cache.put(key, value)
        expected[key] = value
        while sum(expected.values()) > 10:
            expected.popitem(last=False)
    assert cache.weight == sum(expected.values())
    assert {key: cache.get(key) for key in expected} == expected
    cache.clear()
    assert (cache.weight, cache.get("a")) == (0, None)


def test_by_default_their_number_counts() -> None:
    cache: LruCache[str, str] = LruCache(2)
    for key in "abc":
        cache.put(key, key)
    assert [cache.get(key) for key in "abc"] == [None, "b", "c"]
