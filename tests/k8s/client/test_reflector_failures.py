"""Lists and watches that fail, and servers that send unreadable content."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from tests.cluster.fake_apiserver import DEEP, FakeApiServer, HeldClock, status
from tests.k8s.client.reflected import PATH, reflected, watched
from tests.waiting import until
from webhook.k8s.client.api import NO_QUERY, ApiConnectionError, TooLargeError, Transport
from webhook.k8s.client.reflector import LineBuffer, ObjectStore, Reflector, Timing
from webhook.k8s.resources import NAMESPACES


class TestTrouble:
    async def test_a_refused_list(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture, golden: Callable[[str], None]
    ) -> None:
        caplog.set_level(logging.INFO)

        async with reflected(
            tmp_path, "a", prepare=lambda server: server.fail(PATH, 403, "Forbidden", times=3), clock=HeldClock()
        ) as copy:
            await until(lambda: copy.reflector.problem)
            golden(copy.reflector.problem or "")
            assert copy.reflector.is_forbidden
            assert not copy.reflector.has_synced
            assert isinstance(copy.clock, HeldClock)
            for _ in range(3):
                slept = len(copy.clock.slept)
                copy.clock.advance(10.0)
                await until(lambda slept=slept: len(copy.clock.slept) > slept or copy.reflector.has_synced)  # type: ignore[misc]
            await copy.watched()
            assert copy.reflector.problem is None
            assert not copy.reflector.is_forbidden
            said = [record for record in caplog.records if "namespaces" in record.getMessage()]
            assert [record.levelno for record in said] == [logging.WARNING, logging.INFO]
            golden("\n".join(record.getMessage() for record in said))

    async def test_a_refused_watch_is_made_up_for_by_lists(self, tmp_path: Path, golden: Callable[[str], None]) -> None:
        async with reflected(
            tmp_path, "a", prepare=lambda server: server.fail(PATH, 403, "Forbidden", times=1000, verb="watch")
        ) as copy:
            await until(lambda: copy.reflector.problem)
            golden(copy.reflector.problem or "")
            assert copy.reflector.has_synced
            copy.server.put(NAMESPACES, "b")
            await copy.becomes("a", "b")

    @pytest.mark.parametrize(
        ("code", "reason"),
        [(500, "InternalError"), (429, "TooManyRequests"), (502, ""), (400, "a SECRET text"), (401, "Unauthorized")],
    )
    async def test_other_answers(self, tmp_path: Path, code: int, reason: str, golden: Callable[[str], None]) -> None:
        async with reflected(
            tmp_path, "a", prepare=lambda server: server.fail(PATH, code, reason, times=100), clock=HeldClock()
        ) as copy:
            await until(lambda: copy.reflector.problem)
            assert copy.reflector.problem
            assert "SECRET" not in copy.reflector.problem
            golden(copy.reflector.problem)
            assert not copy.reflector.is_forbidden

    async def test_an_answer_that_is_no_json(self, tmp_path: Path) -> None:
        def prepare(server: FakeApiServer) -> None:
            server.answer(PATH, lambda _: web.Response(text="<html>", status=504))
            server.answer(PATH, lambda _: web.Response(text="<html>"))
            server.answer(PATH, lambda _: web.json_response({"items": [{"metadata": {"name": 7}}]}))

        async with watched(tmp_path, "a", prepare=prepare) as copy:
            assert copy.names == ["a"]
            assert copy.clock.slept == [0.25, 0.5, 1.0]

    async def test_starts_slowly_and_doubles(self, tmp_path: Path) -> None:
        async with watched(tmp_path, "a", prepare=lambda server: server.fail(PATH, 500, times=7)) as copy:
            assert copy.clock.slept == [0.25, 0.5, 1.0, 2.0, 4.0, 5.0, 5.0]

    async def test_server_errors_in_a_watch_need_no_list_at_first(self, tmp_path: Path) -> None:
        async with watched(tmp_path, "a") as copy:
            copy.server.send({"type": "ERROR", "object": status(500, "InternalError")})
            await copy.watched(2)
            assert copy.lists == 1
            copy.put("b")
            await copy.becomes("a", "b")
            assert copy.lists == 1

    async def test_but_a_version_that_is_refused_three_times_is_doubted(self, tmp_path: Path) -> None:
        async with watched(tmp_path, "a") as copy:
            copy.server.fail(PATH, 504, "Timeout", times=3, verb="watch")  # "Too large resource version"
            copy.server.end_watches()
            await until(lambda: copy.lists == 2)

    async def test_progress_in_between_dispels_the_doubt(self, tmp_path: Path) -> None:
        async with reflected(tmp_path) as copy:
            names = []
            for watches in range(1, 6):
                await copy.watched(watches)
                names.append(f"n{watches}")
                copy.put(names[-1])
                await copy.becomes(*names)
                copy.server.send({"type": "ERROR", "object": status(500, "InternalError")})
                await until(lambda watches=watches: len(copy.clock.slept) == watches)  # type: ignore[misc]
            assert copy.lists == 1
            assert copy.clock.slept == [0.25] * 5

    async def test_a_server_that_is_starting_raises_no_doubt(self, tmp_path: Path) -> None:
        async with watched(tmp_path, "a") as copy:
            copy.server.fail(PATH, 503, times=8, verb="watch")
            copy.server.end_watches()
            await copy.watched(10)
            assert copy.lists == 1

    async def test_a_poisoned_event_ends_in_a_list(self, tmp_path: Path) -> None:
        async with watched(tmp_path, "a") as copy:
            while copy.lists < 2:
                copy.server.send({"type": "MODIFIED", "object": {"metadata": {"name": 7}}})
                await asyncio.sleep(0.005)
            await until(lambda: copy.reflector.problem is None)

    async def test_watches_that_end_at_once_are_slowed_down(self, tmp_path: Path) -> None:
        async with watched(tmp_path, "a") as copy:
            copy.server.answer(PATH, lambda _: web.Response(), times=3, verb="watch")
            copy.server.end_watches()
            await until(lambda: len(copy.server.requests(PATH, "watch")) >= 5)
            assert copy.clock.slept[:3] == [0.25, 0.5, 1.0]
            assert copy.lists == 1

    async def test_a_long_watch_forgives_earlier_failures(self, tmp_path: Path) -> None:
        async with reflected(tmp_path, "a") as copy:
            copy.server.fail(PATH, 500, times=5)
            await copy.watched()
            copy.clock.time += 60.0
            copy.server.cut()
            await copy.watched(2)
            assert copy.clock.slept[-1] == 0.25

    async def test_a_silent_watch_is_cut(self, tmp_path: Path) -> None:
        timing = Timing(watch_shortest=0, watch_longest=0, watch_margin=0.05)
        async with reflected(tmp_path, "a", timing=timing) as copy:
            # On a slow machine none may live long enough to be seen open.
            await until(lambda: len(copy.server.requests(PATH, "watch")) >= 2)
            assert copy.lists == 1
            assert copy.clock.slept

    async def test_a_silent_list_is_cut(self, tmp_path: Path, golden: Callable[[str], None]) -> None:
        clock = HeldClock()
        async with reflected(
            tmp_path,
            "a",
            prepare=lambda server: server.hang(PATH, asyncio.Event(), times=1),
            clock=clock,
            timing=Timing(list_timeout=0.05),
        ) as copy:
            await until(lambda: copy.reflector.problem)
            golden(copy.reflector.problem or "")
            while not copy.names:  # on a slow machine the next one may be cut, too
                clock.advance(10.0)
                await asyncio.sleep(0.01)

    async def test_no_api_server_at_all(self, tmp_path: Path) -> None:
        class Nowhere(Transport):
            async def get(self, path: str, query: Mapping[str, str] = NO_QUERY, *, most: int = 0) -> tuple[int, bytes]:
                raise ApiConnectionError("no connection")

            async def post(self, path: str, body: Any) -> tuple[int, bytes]:
                raise AssertionError("a reflector only reads")

            async def watch(self, path: str, query: Mapping[str, str]) -> AsyncGenerator[bytes, None]:
                raise ApiConnectionError("unused")
                yield b""

            async def close(self) -> None:
                pass

        clock = HeldClock()
        reflector = Reflector(Nowhere(), NAMESPACES, clock=clock)
        task = asyncio.create_task(reflector.run())
        await until(lambda: reflector.problem)
        assert reflector.problem == "no connection"
        assert 0.25 <= clock.slept[0] <= 0.5
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


class TestHostile:
    LINE = b'{"metadata":{"name":"deep","resourceVersion":"%d"},"spec":' + b"[" * 5000 + b"]" * 5000 + b"}"

    async def test_an_object_that_is_too_deep_ends_no_watch(self, tmp_path: Path) -> None:
        async with watched(tmp_path, "a") as copy:
            for _ in range(3):
                copy.server.version += 1
                copy.server.send(b'{"type":"MODIFIED","object":' + self.LINE % copy.server.version + b"}\n")
            after = str(copy.server.version)
            # Nothing that is read of it lies so deep, so it is known as a list would show it.
            await copy.becomes("a", "deep")
            copy.server.end_watches()
            await copy.watched(2)
            assert copy.server.requests(PATH, "watch")[1].query["resourceVersion"] == after
            assert copy.lists == 1
            copy.put("b")
            await copy.becomes("a", "b", "deep")

    async def test_nor_a_list(self, tmp_path: Path) -> None:
        def prepare(server: FakeApiServer) -> None:
            server.put(NAMESPACES, "c-deep", spec=DEEP)

        async with watched(tmp_path, "a", "b", "d", prepare=prepare) as copy:
            assert copy.names == ["a", "b", "c-deep", "d"]
            assert copy.reflector.problem is None

    async def test_a_line_without_end_is_broken_off(self) -> None:
        buffer = LineBuffer(100)
        assert buffer.feed(b"x" * 90 + b"\n" + b"x" * 90) == [b"x" * 90]
        with pytest.raises(TooLargeError):
            buffer.feed(b"x" * 11)

    async def test_no_more_is_kept_than_may_be(self, tmp_path: Path) -> None:
        async with watched(tmp_path, "a", "b", "c", store=partial(ObjectStore, 2), largest=1000) as copy:
            assert copy.names == ["a", "b"]
            copy.put("d")
            copy.server.remove(NAMESPACES, "a")
            await copy.becomes("b")
            copy.put("e")
            await copy.becomes("b", "e")
            copy.server.put(NAMESPACES, "e", metadata={"annotations": {"a": "x" * 1000}})
            await copy.becomes("b")
            assert copy.changes[-1] == ("e", None)
