"""The queue of fetches: its order, that each is taken once, and its bounds."""

from __future__ import annotations

import asyncio

import pytest

from webhook.images.manifests import ImageReference
from webhook.images.registry import fetch_queue as module
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
    waiting = asyncio.ensure_future(queue.take())
    await asyncio.sleep(0)
    queue.add(job("3"), "")
    assert await waiting == job("3"), "a job wakes who waits"
    assert len(queue) == 0


@pytest.mark.control("many-images")
async def test_one_digest_is_fetched_once_at_a_time() -> None:
    queue = FetchQueue()
    first, other = job("1"), job("1", PullScope("shop", ("secret",)))
    for each, namespace in ((first, ""), (other, "shop"), (job("2"), "")):
        queue.add(each, namespace)
    assert [await queue.take(), await queue.take()] == [first, job("2")]
    waiting = asyncio.ensure_future(queue.take())
    await asyncio.sleep(0)
    assert not waiting.done()
    queue.done(first)
    assert await waiting == other


@pytest.mark.control("many-images")
async def test_a_namespace_has_its_share_and_nodes_fill_the_queue(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_JOBS", 5)
    monkeypatch.setattr(module, "MAX_JOBS_OF_A_NAMESPACE", 2)
    queue = FetchQueue()
    for number in range(4):
        queue.add(job(f"greedy-{number}"), "greedy")
    queue.add(job("modest"), "modest")
    assert (len(queue), queue.dropped) == (3, 2)
    await queue.take()
    queue.add(job("greedy-9"), "greedy")
    assert (len(queue), queue.dropped) == (3, 2)
    for number in range(9):
        queue.add(job(f"node-{number}"), "")
    assert (len(queue), queue.dropped) == (5, 9)


def test_without_secrets_all_namespaces_are_one() -> None:
    scope = PullScope("shop", ("s",))
    assert (PullScope("shop").credentials, scope.credentials) == (NO_SCOPE, scope)
