from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from webhook.errors import Unavailable
from webhook.facts import NOT_READ, Facts, Key, KubeVirtKey, NamespaceKey, NotRead, ObjectKey, SchedulerKey, VmiKey
from webhook.kubevirt.resources import CLUSTER_INSTANCETYPES

KEYS: list[Key[Any]] = [
    KubeVirtKey(),
    NamespaceKey("a"),
    NamespaceKey("a", fresh=True),
    SchedulerKey("a"),
    VmiKey("a", "b", "c"),
]


def test_unread_facts_are_asked_for_together() -> None:
    facts = Facts.of({NamespaceKey("a"): None})
    with pytest.raises(NotRead) as missing:
        facts.need(NamespaceKey("a"), SchedulerKey("x"), KubeVirtKey())
    assert missing.value.keys == (SchedulerKey("x"), KubeVirtKey())
    # What is known is needed no more.
    facts = Facts.of({NamespaceKey("a"): None, KubeVirtKey(): Unavailable("x")})
    facts.need(NamespaceKey("a"), KubeVirtKey())
    assert facts.get(KubeVirtKey()) == Unavailable("x")


def test_what_came_from_memory_is_known() -> None:
    facts = Facts(0.0, {NamespaceKey("a"): 1}.get)  # type: ignore[arg-type]
    facts.learn(SchedulerKey("x"), None)
    for _ in range(2):
        facts.get(NamespaceKey("a"))
        facts.get(SchedulerKey("x"))
    assert facts.remembered == [NamespaceKey("a")]


def test_nothing_swallows_not_read() -> None:
    with pytest.raises(NotRead):
        try:
            Facts().get(KubeVirtKey())
        except Exception:
            pytest.fail("a policy's own handler must not see it")


def test_keys_of_different_facts_differ() -> None:
    assert (len(set(KEYS)), len({SchedulerKey("a"), NamespaceKey("a")})) == (len(KEYS), 2)


@given(st.lists(st.tuples(st.sampled_from(KEYS), st.integers()), max_size=20))
def test_the_first_answer_stands(answers: list[tuple[Key[Any], int]]) -> None:
    """A world that changes while a review runs does not change the review."""
    now: dict[Key[Any], object] = {}
    facts = Facts(0.0, lambda key: now.get(key, NOT_READ))
    first: dict[Key[Any], object] = {}
    for key, value in answers:
        now[key] = value
        assert facts.get(key) == first.setdefault(key, value)
        facts.learn(key, value + 1)
        assert facts.get(key) == first[key]


SIZE = ObjectKey(CLUSTER_INSTANCETYPES, "", "u1.small")
FRESH = ObjectKey(CLUSTER_INSTANCETYPES, "", "u1.small", fresh=True)


def peeking(memory: dict[Key[Any], object]) -> Facts:
    return Facts(peek=lambda key: memory.get(key, NOT_READ))


def test_fresh_facts_ask_for_what_came_from_memory_and_for_nothing_twice() -> None:
    other = ObjectKey(CLUSTER_INSTANCETYPES, "", "read")
    facts = peeking({SIZE: 1, KubeVirtKey(): 2})
    facts.learn(other, None)
    facts.get(SIZE)
    with pytest.raises(NotRead) as missing:
        facts.fresh().need(SIZE, other, KubeVirtKey())
    assert (missing.value.keys, facts.informer_keys()) == ((FRESH,), [SIZE])
    facts.learn(FRESH, None)
    assert facts.fresh().fresh().get(SIZE) is None
    assert facts.get(SIZE) == 1  # type: ignore[comparison-overlap]
    # They never begin with a copy.
    facts = peeking({SIZE: 1})
    with pytest.raises(NotRead) as missing:
        facts.fresh().get(SIZE)
    assert (missing.value.keys, facts.remembered) == ((FRESH,), [])
