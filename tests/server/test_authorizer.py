"""Tokens at a authorizer: one question to the API server for each, kept for a while, and few at the same time."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.review.memory import MemoryCluster
from tests.server.conftest import SlowCluster
from tests.waiting import until
from webhook.admission.wire import UserInfo
from webhook.errors import Unavailable
from webhook.facts import Key, TokenKey
from webhook.policies.common.required_facts import Unreadable, access_to_path
from webhook.server import authorizer as authorizer_module
from webhook.server.authorizer import MAX_KEPT, MAX_QUESTIONS, Authorizer
from webhook.server.edge import RequestDenied

ALICE = UserInfo("alice", "u1", [], {})
MAY = access_to_path(ALICE, "get", "/page")
# Of one client, who gets half of what is free.
SHARE = MAX_QUESTIONS // 2
KNOWN: dict[Key[Any], object] = {TokenKey("GOOD"): ALICE, MAY: True}


@pytest.mark.parametrize(
    ("known", "status", "reads"),
    [
        ({}, 200, [TokenKey("GOOD"), MAY]),
        ({TokenKey("GOOD"): None}, 401, [TokenKey("GOOD")]),
        ({MAY: False}, 403, [TokenKey("GOOD"), MAY]),
        # What is not known is asked again.
        ({MAY: Unavailable("no answer")}, 503, [TokenKey("GOOD"), MAY] * 3),
    ],
)
async def test_an_answer_is_kept_for_the_path_of_the_authorizer(
    known: dict[Key[Any], object], status: int, reads: list[Key[Any]]
) -> None:
    cluster = MemoryCluster(KNOWN | known, peeked=set())
    authorizer, statuses = Authorizer(cluster, "/page"), list[int]()
    for _ in range(3):
        try:
            await authorizer.admit("GOOD", "10.0.0.1")
            statuses.append(200)
        except RequestDenied as denied:
            statuses.append(denied.status)
        except Unreadable:
            statuses.append(503)
    assert (statuses, cluster.reads) == ([status] * 3, reads)


async def test_an_answer_is_not_kept_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(authorizer_module, "KEPT_SECONDS", -1.0)
    cluster = MemoryCluster(dict(KNOWN), peeked=set())
    authorizer = Authorizer(cluster, "/page")
    await authorizer.admit("GOOD", "10.0.0.1")
    cluster.facts[MAY] = False
    with pytest.raises(RequestDenied):
        await authorizer.admit("GOOD", "10.0.0.1")


async def test_guessers_fill_no_memory_and_are_few_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(authorizer_module, "PATIENCE_SECONDS", 0.05)
    known: dict[Key[Any], object] = {TokenKey(str(number)): None for number in range(200)}
    slow = SlowCluster(known, set())
    authorizer = Authorizer(slow, "/page")
    guesses = [asyncio.create_task(authorizer.admit(str(number), "10.0.0.1")) for number in range(SHARE + 3)]
    await until(lambda: slow.waiting == SHARE, "half of the questions to be asked")
    await until(lambda: sum(guess.done() for guess in guesses) == 3, "the others to be denied")
    await Authorizer(MemoryCluster(KNOWN, peeked=set()), "/page").admit("GOOD", "10.0.0.2")
    slow.release.set()
    refused = await asyncio.gather(*guesses, return_exceptions=True)
    assert sorted(error.status for error in refused if isinstance(error, RequestDenied)) == [401] * SHARE + [429] * 3

    for number in range(200):
        with pytest.raises(RequestDenied):
            await authorizer.admit(str(number), "10.0.0.1")
    assert authorizer._kept.weight == MAX_KEPT
