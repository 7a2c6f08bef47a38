from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.review.memory import MemoryCluster
from webhook.admission.step_budget import MAX_STEPS, spend
from webhook.errors import InputError, Unavailable
from webhook.facts import Facts, Key, NamespaceKey
from webhook.review.replay import MAX_ROUNDS, replay

NAMES = [NamespaceKey(f"n{number}") for number in range(MAX_ROUNDS + 1)]


class Together(MemoryCluster):
    """Answers only when two keys are being read."""

    def __init__(self, facts: dict[Key[Any], object]) -> None:
        super().__init__(facts, peeked=set())
        self.both = asyncio.Barrier(2)

    async def read(self, key: Key[Any], deadline: float) -> Any:
        await self.both.wait()
        return await super().read(key, deadline)


def counting(keys: list[NamespaceKey]) -> Any:
    def decide(facts: Facts) -> list[Any]:
        return [facts.get(key) for key in keys]

    return decide


async def test_what_is_missing_is_read_and_the_function_asked_again() -> None:
    cluster = MemoryCluster({NAMES[0]: None, NAMES[1]: Unavailable("no")}, peeked=set())

    assert await replay(counting(NAMES[:2]), cluster, Facts(), 1.0, "it") == [None, Unavailable("no")]
    assert cluster.reads == NAMES[:2]


async def test_what_is_needed_at_once_is_read_at_once() -> None:
    cluster = Together({NAMES[0]: None, NAMES[1]: None})

    def decide(facts: Facts) -> str:
        facts.need(*NAMES[:2])
        return "done"

    assert await replay(decide, cluster, Facts(), 1.0, "it") == "done"


async def test_there_is_an_end_to_it() -> None:
    cluster = MemoryCluster(dict.fromkeys(NAMES), peeked=set())

    assert await replay(counting(NAMES[:-1]), cluster, Facts(), 1.0, "it") == [None] * MAX_ROUNDS
    with pytest.raises(RuntimeError, match=f" {MAX_ROUNDS} "):
        await replay(counting(NAMES), cluster, Facts(), 1.0, "it")


async def test_all_rounds_share_one_budget_of_steps() -> None:
    cluster = MemoryCluster(dict.fromkeys(NAMES), peeked=set())
    facts = Facts()

    def decide(known: Facts) -> str:
        spend(MAX_STEPS // 2, "names")
        known.need(*NAMES[:1])
        return "done"

    assert await replay(decide, cluster, facts, 1.0, "it") == "done"
    assert facts.budget.spent == 2 * (MAX_STEPS // 2)
    with pytest.raises(InputError) as refused:
        await replay(decide, cluster, facts, 1.0, "it")
    assert refused.value.where == "it"
