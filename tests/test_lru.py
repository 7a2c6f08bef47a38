"""Values that don't fit are not kept, and take nobody's place."""

from __future__ import annotations

import tracemalloc
from collections import OrderedDict

from hypothesis import given
from hypothesis import strategies as st

from webhook.lru import SizedCache, shared_text

MOST = 10
STEPS = st.tuples(st.sampled_from(["put", "get", "drop"]), st.sampled_from("abcd"), st.integers(1, 15))


@given(st.lists(STEPS))
def test_no_value_takes_more_than_the_place_that_it_gets(steps: list[tuple[str, str, int]]) -> None:
    cache: SizedCache[str, int] = SizedCache(MOST, lambda value: value)
    expected: OrderedDict[str, int] = OrderedDict()
    for step, key, value in steps:
        if step == "get":
            assert cache.get(key) == expected.get(key)
            if key in expected:
                expected.move_to_end(key)
            continue
        expected.pop(key, None)
        if step == "drop":
            cache.pop(key, None)
            continue
        cache[key] = value
        if value <= MOST:
            while sum(expected.values()) + value > MOST:
                expected.popitem(last=False)
            expected[key] = value
        # Nobody else's is lost for one that doesn't fit.
        assert set(cache) == set(expected)
    assert cache.currsize == sum(expected.values()) <= MOST
    assert {key: cache.get(key) for key in expected} == expected


def made(number: int, length: int) -> str:
    return f"{number}".zfill(length)


def test_equal_short_texts_are_one_object() -> None:
    assert shared_text(made(1, 253)) is shared_text(made(1, 253))
    assert shared_text(made(1, 254)) == made(1, 254)


def test_texts_that_tenants_make_up_are_forgotten_on_every_interpreter() -> None:
    """A replica runs for months, and each change of a label or a scheduler's name brings another text."""
    tracemalloc.start()
    try:
        for number in range(30_000):
            shared_text(made(number, 253))
            shared_text(made(number, 1000))
        taken = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert taken < 5 * 1024 * 1024
