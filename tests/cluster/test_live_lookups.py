"""Lookups of a live cluster that several reviews need at once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

from aiohttp import web

from tests.cluster.fake_apiserver import status, why
from tests.cluster.live_case import TYPE, TYPE_PATH, live
from webhook.errors import Unavailable
from webhook.facts import NamespaceKey, ObjectKey
from webhook.k8s.resources import NAMESPACES
from webhook.k8s.types.meta import Namespace
from webhook.kubevirt.resources import INSTANCETYPES
from webhook.kubevirt.types.views import Instancetype


class TestJoining:
    async def test_many_askers_share_one_get(self, tmp_path: Path) -> None:
        async with live(tmp_path) as case:
            case.server.put(INSTANCETYPES, "small", "demo")
            release = asyncio.Event()
            case.server.hang(TYPE_PATH, release)
            readers = [case.reading(TYPE) for _ in range(50)]
            await case.asked(TYPE_PATH, 1)
            release.set()
            found = await asyncio.gather(*readers)
            assert all(isinstance(instancetype, Instancetype) for instancetype in found)
            assert len(case.server.requests(TYPE_PATH)) == 1

    async def test_keys_of_one_object_share_it_too(self, tmp_path: Path) -> None:
        async with live(tmp_path) as case:
            case.server.put(NAMESPACES, "demo")
            release = asyncio.Event()
            path = NAMESPACES.path(name="demo")
            case.server.hang(path, release)
            readers = [
                case.reading(key)
                for key in (NamespaceKey("demo"), NamespaceKey("demo", fresh=True), ObjectKey(NAMESPACES, "", "demo"))
            ]
            await case.asked(path, 1)
            release.set()
            assert all(isinstance(namespace, Namespace) for namespace in await asyncio.gather(*readers))
            assert len(case.server.requests(path)) == 1

    async def test_one_that_gives_up_leaves_it_to_the_others(
        self, tmp_path: Path, golden: Callable[[str], None]
    ) -> None:
        async with live(tmp_path) as case:
            case.server.put(INSTANCETYPES, "small", "demo")
            release = asyncio.Event()
            case.server.hang(TYPE_PATH, release)
            first, second, patient = case.reading(TYPE), case.reading(TYPE, 0.05), case.reading(TYPE)
            await case.asked(TYPE_PATH, 1)
            first.cancel()
            late = await second
            golden(why(late))
            release.set()
            assert isinstance(await patient, Instancetype)
            assert first.cancelled()
            assert len(case.server.requests(TYPE_PATH)) == 1

    async def test_after_the_deadline_nothing_is_asked(self, tmp_path: Path, golden: Callable[[str], None]) -> None:
        async with live(tmp_path) as case:
            late = await case.read(TYPE, -1.0)
            golden(why(late))
            assert case.server.asked == []

    async def test_a_404_from_before_is_not_trusted(self, tmp_path: Path) -> None:
        async with live(tmp_path) as case:
            release = asyncio.Event()

            async def absent(_: web.Request) -> web.Response:
                await release.wait()
                return web.json_response(status(404, "NotFound"), status=404)

            case.server.answer(TYPE_PATH, absent)
            early = case.reading(TYPE)
            await case.asked(TYPE_PATH, 1)
            case.server.put(INSTANCETYPES, "small", "demo")
            late = [case.reading(TYPE) for _ in range(20)]
            await asyncio.sleep(0)
            release.set()
            assert await early is None
            assert all(isinstance(found, Instancetype) for found in await asyncio.gather(*late))
            assert len(case.server.requests(TYPE_PATH)) == 2

    async def test_neither_is_a_failure_from_before(self, tmp_path: Path) -> None:
        async with live(tmp_path) as case:
            release = asyncio.Event()

            async def broken(_: web.Request) -> web.Response:
                await release.wait()
                return web.json_response(status(500), status=500)

            case.server.put(INSTANCETYPES, "small", "demo")
            case.server.answer(TYPE_PATH, broken)
            early = case.reading(TYPE)
            await case.asked(TYPE_PATH, 1)
            late = case.reading(TYPE)
            await asyncio.sleep(0)
            release.set()
            assert isinstance(await early, Unavailable)
            assert isinstance(await late, Instancetype)

    async def test_a_second_404_is_an_answer(self, tmp_path: Path) -> None:
        async with live(tmp_path) as case:
            release = asyncio.Event()
            case.server.hang(TYPE_PATH, release)
            readers = [case.reading(TYPE) for _ in range(3)]
            await case.asked(TYPE_PATH, 1)
            release.set()
            assert await asyncio.gather(*readers) == [None, None, None]
            assert len(case.server.requests(TYPE_PATH)) == 2

    async def test_closing_answers_those_who_wait(self, tmp_path: Path, golden: Callable[[str], None]) -> None:
        async with live(tmp_path) as case:
            case.server.hang(TYPE_PATH, asyncio.Event())
            reader = case.reading(TYPE)
            await case.asked(TYPE_PATH, 1)
            await case.cluster.close()
            for found in (await reader, await case.read(TYPE)):
                golden(why(found))
