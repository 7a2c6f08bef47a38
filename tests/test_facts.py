from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.policies.decisions import answered
from webhook.errors import Unavailable
from webhook.facts import (
    NOT_READ,
    Facts,
    Key,
    KubeVirtKey,
    NamespaceKey,
    NotInMemory,
    ObjectKey,
    SchedulerKey,
    VmiKey,
    from_memory,
)
from webhook.kubevirt.resources import CLUSTER_INSTANCETYPES

KUBEVIRT: Key[Any] = KubeVirtKey()
HEALTH: Key[Any] = SchedulerKey("x")
DEMO: Key[Any] = NamespaceKey("a")
KEYS: list[Key[Any]] = [
    KubeVirtKey(),
    NamespaceKey("a"),
    NamespaceKey("a", fresh=True),
    SchedulerKey("a"),
    VmiKey("a", "b", "c"),
]


def test_unread_facts_are_asked_for_together() -> None:
    facts = Facts.of({DEMO: None})
    policy = facts.all(DEMO, HEALTH, KUBEVIRT, HEALTH)
    assert policy.send(None) == (HEALTH, KUBEVIRT)
    with pytest.raises(StopIteration) as returned:
        policy.send(["healthy", Unavailable("no")])
    assert returned.value.value == (None, "healthy", Unavailable("no"), "healthy")
    # What is known is needed no more.
    assert from_memory(facts.get(KUBEVIRT)) == Unavailable("no")
    from_memory(facts.prefetch(DEMO, KUBEVIRT))


def test_what_came_from_memory_is_known() -> None:
    facts = Facts(0.0, {NamespaceKey("a"): 1}.get)  # type: ignore[arg-type]
    for _ in range(2):
        assert from_memory(facts.get(DEMO)) == 1
    assert facts.remembered == [DEMO]


def test_a_policy_that_must_not_wait_never_sees_that_it_would_have_to() -> None:
    seen: list[str] = []

    async def policy(facts: Facts) -> None:
        try:
            await facts.get(KubeVirtKey())
        except Exception:
            seen.append("error")
        finally:
            seen.append("end")

    with pytest.raises(NotInMemory) as missing:
        from_memory(policy(Facts()))
    assert (missing.value.batch, seen) == ((KubeVirtKey(),), ["end"])


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
        assert from_memory(facts.get(key)) == first.setdefault(key, value)


SIZE: Key[Any] = ObjectKey(CLUSTER_INSTANCETYPES, "", "u1.small")
FRESH: Key[Any] = ObjectKey(CLUSTER_INSTANCETYPES, "", "u1.small", fresh=True)


def peeking(memory: dict[Key[Any], object]) -> Facts:
    return Facts(peek=lambda key: memory.get(key, NOT_READ))


def test_fresh_facts_ask_for_what_came_from_memory_and_for_nothing_twice() -> None:
    other: Key[Any] = ObjectKey(CLUSTER_INSTANCETYPES, "", "read")
    facts = peeking({SIZE: 1, KUBEVIRT: 2})
    assert answered(facts.all(SIZE, other), {other: None}) == ((1, None), [(other,)])
    assert facts.informer_keys() == [SIZE]
    found, batches = answered(facts.fresh().all(SIZE, other, KUBEVIRT), {FRESH: 3})
    assert (found, batches) == ((3, None, 2), [(FRESH,)])
    assert from_memory(facts.fresh().fresh().get(SIZE)) == 3
    assert from_memory(facts.get(SIZE)) == 1


def test_fresh_facts_never_begin_with_a_copy_and_serve_whoever_asks_later() -> None:
    facts = peeking({SIZE: 1})
    assert answered(facts.fresh().get(SIZE), {FRESH: 2}) == (2, [(FRESH,)])
    assert from_memory(facts.get(SIZE)) == 2
    assert facts.remembered == []
