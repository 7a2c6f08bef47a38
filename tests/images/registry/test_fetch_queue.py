"""The queue of manifests that wait for a fetch."""

from __future__ import annotations

import asyncio

import pytest

from webhook.images.references import ImageReference
from webhook.images.registry.fetch_queue import NO_SCOPE, FetchJob, FetchQueue, PullScope


def job(version: str, scope: PullScope = NO_SCOPE) -> FetchJob:
    digest = f"sha256:{int(version):064x}" if version.isdecimal() else ""
    return FetchJob(ImageReference("quay.io", "a", "" if digest else version, digest), scope)


async def test_jobs_are_taken_in_their_order_and_once() -> None:
    queue = FetchQueue()
    for version in ("1", "2", "1"):
        queue.add(job(version), "")
    assert len(queue) == 2
    assert [await queue.take(), await queue.take()] == [job("1"), job("2")]
    assert len(queue) == 0


async def test_one_digest_is_fetched_once_at_a_time() -> None:
    queue = FetchQueue()
    first, other = job("1"), job("1", PullScope("shop", ("secret",)))
    queue.add(first, "")
    queue.add(other, "shop")
    queue.add(job("2"), "")
    assert [await queue.take(), await queue.take()] == [first, job("2")]
    waiting = asyncio.ensure_future(queue.take())
    await asyncio.sleep(0)
    assert not waiting.done()
    queue.done(first)
    assert await waiting == other


async def test_a_namespace_has_its_share() -> None:
    queue = FetchQueue(most=5, most_of_a_namespace=2)
    for number in range(4):
        queue.add(job(f"greedy-{number}"), "greedy")
    queue.add(job("modest"), "modest")
    assert (len(queue), queue.dropped) == (3, 2)
    await queue.take()
    queue.add(job("greedy-9"), "greedy")
    assert (len(queue), queue.dropped) == (3, 2)


async def test_nodes_fill_the_queue_and_no_more() -> None:
    queue = FetchQueue(most=5, most_of_a_namespace=2)
    for number in range(9):
        queue.add(job(f"node-{number}"), "")
    assert (len(queue), queue.dropped) == (5, 4)


async def test_a_job_wakes_who_waits() -> None:
    queue = FetchQueue()
    waiting = asyncio.ensure_future(queue.take())
    await asyncio.sleep(0)
    queue.add(job("1"), "")
    assert await waiting == job("1")


@pytest.mark.parametrize(
    ("scope", "expected"),
    [(PullScope("shop"), NO_SCOPE), (PullScope("shop", ("s",)), PullScope("shop", ("s",)))],
)
def test_without_secrets_all_namespaces_are_one(scope: PullScope, expected: PullScope) -> None:
    assert scope.credentials == expected
