"""etcd that is restored from an older copy, as an informer notices it, and API servers that only lag behind."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from tests.cluster.fake_apiserver import FakeApiServer, status
from tests.k8s.client.reflected import PATH, ReflectedCopy, reflected, watched
from tests.waiting import until
from webhook.errors import Unavailable
from webhook.k8s.client.reflector import CURRENT_SECONDS, Timing, is_behind

pytestmark = pytest.mark.repeats


def bring_future(copy: ReflectedCopy) -> Any:
    """A copy of etcd, after which namespaces were changed, made and deleted."""
    saved = copy.server.save()
    copy.put("a", "off")
    copy.put("new")
    return saved


def verifications(copy: ReflectedCopy) -> list[Any]:
    return copy.server.requests(PATH, "verify")


def is_current(copy: ReflectedCopy) -> bool:
    return copy.reflector.is_current(copy.clock.now())


@pytest.mark.parametrize(
    ("version", "seen", "behind"),
    [
        *(("9", "10", True), ("10", "10", False), ("11", "10", False), (None, "10", False), ("9", None, False)),
        *(("a9", "10", False), ("9", "", False), ("-9", "10", False)),
    ],
)
def test_only_numbers_are_compared(version: str | None, seen: str | None, behind: bool) -> None:
    assert is_behind(version, seen) is behind


async def test_a_watch_from_a_lost_future_brings_nothing_and_is_noticed_when_etcd_is_asked(tmp_path: Path) -> None:
    noticed: list[str] = []
    async with watched(tmp_path, "a", "b", on_restore=lambda _, why: noticed.append(why)) as copy:
        saved = bring_future(copy)
        await copy.becomes("a", "b", "new")
        copy.server.restore(saved)
        copy.put("c")
        await asyncio.sleep(0.05)
        assert copy.names == ["a", "b", "new"], "the watch is silent, without an error"

        assert await copy.reflector.verify() is None

        await copy.becomes("a", "b", "c")
        assert copy.mode("a") == "enforce"
        assert is_current(copy)
        assert len(noticed) == 1
        assert copy.lists == 3, "one list at the start, and one of two pages"
        assert await copy.reflector.verify() is None
        assert len(noticed) == 1
        # What has changed is reported as after any list.
        assert ("new", None) in copy.changes


async def test_nothing_in_the_store_counts_until_it_has_been_listed(tmp_path: Path) -> None:
    async with watched(tmp_path, "a") as copy:
        saved = bring_future(copy)
        await copy.becomes("a", "new")
        copy.server.restore(saved)
        release = asyncio.Event()
        copy.server.hang(PATH, release, verb="get")
        await copy.reflector.verify()
        assert not is_current(copy)
        release.set()
        await until(lambda: is_current(copy))
        assert copy.names == ["a"]


async def test_a_list_that_is_older_than_what_was_seen_says_it_too(tmp_path: Path) -> None:
    noticed: list[str] = []
    async with watched(tmp_path, "a", on_restore=lambda _, why: noticed.append(why)) as copy:
        saved = bring_future(copy)
        await copy.becomes("a", "new")
        copy.server.restore(saved)
        copy.server.send({"type": "ERROR", "object": status(410, "Expired")})
        await copy.becomes("a")
        await until(lambda: noticed)
        assert is_current(copy)
        assert verifications(copy) == []


async def test_after_a_lost_connection_etcd_is_asked_before_the_watch_goes_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with watched(tmp_path, "a") as copy:
        saved = bring_future(copy)
        await copy.becomes("a", "new")
        copy.server.restore(saved)
        with caplog.at_level(logging.INFO):
            copy.server.cut()
            await copy.becomes("a")
        assert [each.query["resourceVersion"] for each in verifications(copy)] == ["103"]
        assert "restored from an older copy" in caplog.text


async def test_an_api_server_that_was_not_restarted_is_not_believed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It lists from its watch cache, which is in the lost future as well, until it is restarted."""
    async with watched(tmp_path, "a") as copy:
        saved = bring_future(copy)
        await copy.becomes("a", "new")
        copy.server.restore(saved, cached=True)
        with caplog.at_level(logging.WARNING):
            await copy.reflector.verify()
            await until(lambda: len(verifications(copy)) >= 2)
            await until(lambda: "restart it" in caplog.text)
        assert not is_current(copy)
        # etcd reaches the version again: the watch cache is a mixture of both now, which nothing shows.
        copy.server.version = 200
        while copy.lists < 5:
            copy.server.end_watches()
            await asyncio.sleep(0.005)
        assert not is_current(copy)
        # Restarted before that, its lists are older than what was seen.
        copy.server.restore(saved)
        while not is_current(copy):
            copy.server.end_watches()
            await asyncio.sleep(0.005)
        assert copy.names == ["a"]
        assert caplog.text.count("restart it") == 1


async def test_an_api_server_that_lags_behind_costs_one_list_and_no_alarm(tmp_path: Path) -> None:
    """Behind one address there may be several; a watch cache may be older than what another one has said."""
    noticed: list[str] = []
    async with watched(tmp_path, "a", on_restore=lambda _, why: noticed.append(why)) as copy:
        copy.put("b")
        await copy.becomes("a", "b")
        copy.server.send({"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "1"}}})
        await until(lambda: copy.lists >= 2)
        await copy.watched(2)
        assert copy.names == ["a", "b"]
        assert is_current(copy)
        assert noticed == []


async def test_one_of_several_api_servers_that_does_not_serve_a_kind_empties_no_store(tmp_path: Path) -> None:
    """Behind one address one may be older, or have just been started: 404 from it, 200 from the other."""
    async with watched(tmp_path, "a") as copy:
        copy.server.fail(PATH, 404, times=2, verb="get")
        copy.server.send({"type": "ERROR", "object": status(410, "Expired")})
        await until(lambda: copy.lists >= 4)
        await copy.watched(2)
        assert copy.names == ["a"]
        assert copy.changes == [(None, "a")]


@pytest.mark.parametrize(
    ("code", "message", "is_future"),
    [
        (500, "etcdserver: mvcc: required revision is a future revision", True),  # before Kubernetes 1.34
        (410, "The provided resource version is too old", False),
        (404, "", False),
        (500, "something else", None),
        (429, "", None),
    ],
)
async def test_what_an_api_server_says_of_a_version(
    tmp_path: Path, code: int, message: str, is_future: bool | None
) -> None:
    noticed: list[str] = []
    async with watched(tmp_path, "a", on_restore=lambda _, why: noticed.append(why)) as copy:
        body = status(code, "", message)
        copy.server.answer(PATH, lambda _: web.json_response(body, status=code), verb="verify")
        trouble = await copy.reflector.verify()
        assert isinstance(trouble, Unavailable) is (is_future is None)
        assert bool(noticed) is bool(is_future)


async def test_no_answer_is_no_verdict(tmp_path: Path) -> None:
    async with reflected(tmp_path, "a") as copy:
        await copy.watched()

        def broken(request: web.Request) -> web.Response:
            assert request.transport
            request.transport.abort()
            return web.Response()

        # aiohttp repeats a GET once on a connection that it has kept.
        copy.server.answer(PATH, broken, verb="verify", times=2)
        assert isinstance(await copy.reflector.verify(), Unavailable)
        assert is_current(copy)


class TestFrozenWatches:
    async def test_a_watch_that_begins_and_brings_nothing_is_no_sign_of_life(self, tmp_path: Path) -> None:
        async with watched(tmp_path, "a") as copy:
            copy.clock.time += CURRENT_SECONDS - 1.0
            copy.server.end_watches()
            await copy.watched(2)
            assert is_current(copy)
            copy.clock.time += 1.0
            assert not is_current(copy)
            copy.server.bookmark()
            await until(lambda: is_current(copy))

    async def test_it_is_cut_and_the_second_one_in_a_row_leads_to_a_list(self, tmp_path: Path) -> None:
        """The peer is alive and says nothing: what it does not say is found by a list."""
        async with reflected(tmp_path, "a", timing=Timing(page_limit=2, silence=0.05)) as copy:
            await until(lambda: len(copy.server.requests(PATH, "watch")) >= 3 and copy.lists >= 2)
            assert copy.names == ["a"]

    async def test_bookmarks_keep_it_open(self, tmp_path: Path) -> None:
        async with watched(tmp_path, "a", timing=Timing(page_limit=2, silence=0.5)) as copy:
            for _ in range(15):
                copy.server.bookmark()
                await asyncio.sleep(0.05)
            assert len(copy.server.requests(PATH, "watch")) == 1


def test_the_fake_keeps_its_promise() -> None:
    """A watch from the future is silent until etcd has passed it; else the tests above would show nothing."""
    server = FakeApiServer()
    saved = server.save()
    server.version += 10
    server.restore(saved)
    assert server.version == saved.version
