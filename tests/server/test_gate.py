"""Tokens at a gate: one question to the API server for each, kept for a while, and few at the same time."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.review.memory import MemoryCluster
from tests.server.conftest import SlowCluster
from webhook.admission.wire import UserInfo
from webhook.errors import Unavailable
from webhook.facts import Key, TokenKey
from webhook.policies.common import accounts
from webhook.policies.common.required_facts import Unreadable
from webhook.server.bearer import RequestDenied
from webhook.server.gate import MAX_IN_FLIGHT, MAX_KEPT, Gate

ALICE = UserInfo("alice", "u1", [], {})
MAY = accounts.access_to_path(ALICE, "get", "/page")
KNOWN: dict[Key[Any], object] = {TokenKey("GOOD"): ALICE, MAY: True}


async def test_an_answer_is_kept_for_the_path_of_the_gate() -> None:
    cluster = MemoryCluster(KNOWN, peeked=set())
    gate = Gate(cluster, "/page")
    for _ in range(5):
        await gate.admit("GOOD")

    assert cluster.reads == [TokenKey("GOOD"), MAY]


@pytest.mark.parametrize(("known", "status"), [({TokenKey("GOOD"): None}, 401), ({MAY: False}, 403)])
async def test_a_refusal_is_kept_too(known: dict[Key[Any], object], status: int) -> None:
    cluster = MemoryCluster(KNOWN | known, peeked=set())
    gate = Gate(cluster, "/page")
    for _ in range(3):
        with pytest.raises(RequestDenied) as refused:
            await gate.admit("GOOD")
        assert refused.value.status == status

    assert len(cluster.reads) <= 2


async def test_what_is_not_known_is_asked_again() -> None:
    cluster = MemoryCluster(KNOWN | {MAY: Unavailable("no answer")}, peeked=set())
    gate = Gate(cluster, "/page")
    for _ in range(2):
        with pytest.raises(Unreadable):
            await gate.admit("GOOD")

    assert cluster.reads.count(MAY) == 2


async def test_guessers_fill_no_memory_and_are_few_at_a_time() -> None:
    known: dict[Key[Any], object] = {TokenKey(str(number)): None for number in range(200)}
    slow = SlowCluster(known, set())
    gate = Gate(slow, "/page")
    guesses = [asyncio.create_task(gate.admit(str(number))) for number in range(MAX_IN_FLIGHT + 3)]
    while slow.waiting < MAX_IN_FLIGHT:
        await asyncio.sleep(0)
    slow.release.set()
    refused = await asyncio.gather(*guesses, return_exceptions=True)
    assert (
        sorted(error.status for error in refused if isinstance(error, RequestDenied))
        == [401] * MAX_IN_FLIGHT + [429] * 3
    )

    for number in range(200):
        with pytest.raises(RequestDenied):
            await gate.admit(str(number))
    assert len(gate._kept) == MAX_KEPT
