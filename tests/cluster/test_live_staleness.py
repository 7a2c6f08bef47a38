"""What is decided, the gauge of staleness and readiness agree, however the API server fails."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from unittest import mock

import pytest

from tests import builders
from tests.cluster.faulty_apiserver import FaultyApiServer
from tests.virtual_time import LoopClock, run
from webhook import names
from webhook.cluster.live import LiveCluster
from webhook.errors import Unavailable
from webhook.facts import NOT_READ, NamespaceKey
from webhook.k8s.client import reflector
from webhook.k8s.client.reflector import CURRENT_SECONDS
from webhook.k8s.types.meta import Namespace

LABEL = names.policy_label(names.SCHEDULING)
DEMO = NamespaceKey("demo")
HOUR = 3600.0
DEAD: dict[str, Any] = {
    "pages": dict.fromkeys(range(1, 9), "refused"),
    "other": "refused",
    "watch": "refused",
    "line": "cut",
}


@asynccontextmanager
async def clustered() -> AsyncIterator[tuple[FaultyApiServer, LiveCluster]]:
    """A cluster of five namespaces that are listed in three pages, which has been ready for a while."""
    server = FaultyApiServer(LABEL)
    for name in ("a", "b", "c", "default", "demo"):
        server.put(name, "enforce")
    cluster = LiveCluster(server, builders.settings(), clock=LoopClock())
    with mock.patch.object(reflector, "PAGE_LIMIT", 2):
        cluster.start()
        try:
            await asyncio.sleep(130.0)
            assert cluster.waiting_for() == ()
            yield server, cluster
        finally:
            await cluster.close()


async def pass_time(cluster: LiveCluster, seconds: float, *, has_gets: bool) -> None:
    """Let time pass, and compare at each step what the store decides, the gauge, and readiness."""
    loop = asyncio.get_running_loop()
    end = loop.time() + seconds
    while loop.time() < end:
        await asyncio.sleep(3.0)
        decides = cluster.peek(DEMO) is not NOT_READ
        assert decides is (cluster.staleness()["namespaces"] < CURRENT_SECONDS)
        assert (not cluster.waiting_for()) is (decides or has_gets), cluster.waiting_for()


async def mode(cluster: LiveCluster) -> Any:
    answer = await cluster.read(DEMO, asyncio.get_running_loop().time() + 10.0)
    return answer.meta.label(LABEL) if isinstance(answer, Namespace) else answer


@pytest.mark.parametrize("expires", [True, False], ids=["after a 410", "under a watch"])
@pytest.mark.parametrize(
    "fault",
    [
        {"pages": {2: "500"}},
        {"pages": {2: "429"}},
        {"pages": {3: "hang"}},
        {"pages": {1: "403"}, "watch": "403", "line": "cut"},
        {"watch": "503", "line": "ERROR 500"},
        {"line": "silence"},
    ],
    ids=str,
)
def test_while_gets_are_answered_they_decide_and_the_replica_is_ready(fault: dict[str, Any], expires: bool) -> None:
    async def main() -> None:
        async with clustered() as (server, cluster):
            server.fail(**fault)
            if expires:
                server.expire()
            server.put("demo", "off")
            await pass_time(cluster, CURRENT_SECONDS, has_gets=True)
            assert await mode(cluster) == "off"
            await pass_time(cluster, HOUR, has_gets=True)
            server.put("demo", "warn")
            await pass_time(cluster, CURRENT_SECONDS, has_gets=True)
            assert await mode(cluster) == "warn"
            server.heal()
            await pass_time(cluster, 300.0, has_gets=True)
            assert (cluster.peek(DEMO) is not NOT_READ, await mode(cluster)) == (True, "warn")

    run(main())


@pytest.mark.parametrize("expires", [True, False], ids=["after a 410", "under a watch"])
@pytest.mark.parametrize(
    "fault",
    [
        DEAD,
        DEAD | {"line": "silence"},
        {"pages": {2: "500"}, "other": "500", "line": "cut"},
        {"pages": {2: "hang"}, "other": "hang", "watch": "hang", "line": "silence"},
        {"pages": {1: "401"}, "other": "401", "watch": "401", "line": "ERROR 401"},
        {"other": "429", "line": "silence", "pages": {3: "429"}},
    ],
    ids=["dead", "dead, without a word", "500", "hang", "401", "429"],
)
def test_without_any_answer_a_replica_is_not_ready_until_there_is_one(fault: dict[str, Any], expires: bool) -> None:
    """It was ready for an hour without an API server, where its watch had ended with a 410 before."""

    async def main() -> None:
        async with clustered() as (server, cluster):
            server.fail(**fault)
            if expires:
                server.expire()
            server.put("demo", "off")
            await pass_time(cluster, HOUR, has_gets=False)
            assert isinstance(await mode(cluster), Unavailable)
            (missing,) = cluster.waiting_for()
            assert missing.startswith("namespaces: not up to date for ")
            server.heal()
            await asyncio.sleep(60.0)
            assert (cluster.waiting_for(), await mode(cluster)) == ((), "off")
            await pass_time(cluster, 300.0, has_gets=True)
            assert cluster.peek(DEMO) is not NOT_READ

    run(main())


def test_after_a_restore_that_no_list_has_followed_a_replica_is_not_ready() -> None:
    """The store has an infinite age, and readiness says nothing of how long."""

    async def main() -> None:
        async with clustered() as (server, cluster):
            server.fail(**DEAD)
            cluster._start_over(cluster._kubevirts, "by a test")
            await pass_time(cluster, 60.0, has_gets=False)
            assert cluster.staleness()["namespaces"] == math.inf
            (missing,) = cluster.waiting_for()
            assert missing.startswith("namespaces: not up to date, and not readable: ")
            server.heal()
            await asyncio.sleep(60.0)
            assert (cluster.waiting_for(), await mode(cluster)) == ((), "enforce")

    run(main())


def test_a_replica_that_knows_enough_is_ready_without_an_api_server_for_a_moment() -> None:
    async def main() -> None:
        async with clustered() as (server, cluster):
            server.die()
            # Its last bookmark was at most a minute ago.
            await pass_time(cluster, CURRENT_SECONDS - 60.0 - 5.0, has_gets=False)
            assert (cluster.waiting_for(), await mode(cluster)) == ((), "enforce")

    run(main())
