"""An informer of namespaces at work against a fake API server: lists, watches, their failures, and restored etcds."""

from __future__ import annotations

import asyncio
import logging
import math
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from types import MappingProxyType
from typing import Any
from unittest import mock

import msgspec
import pytest
from aiohttp import web
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.cluster.fake_apiserver import DEEP, EtcdCopy, FakeApiServer, FakeClock, HeldClock, broken, running, status
from tests.golden_files import Golden
from tests.waiting import until
from webhook.errors import Unavailable
from webhook.k8s.client import api
from webhook.k8s.client import reflector as module
from webhook.k8s.client.api import TooLargeError
from webhook.k8s.client.clock import REAL_TIME
from webhook.k8s.client.reflector import (
    CURRENT_SECONDS,
    QUIET_SECONDS,
    LineBuffer,
    ObjectName,
    ObjectStore,
    Reflector,
    is_behind,
)
from webhook.k8s.client.transport import KubernetesTransport, connect
from webhook.k8s.resources import NAMESPACES, PENDING_PODS
from webhook.k8s.types.meta import Namespace, ObjectMeta
from webhook.kubevirt.resources import KUBEVIRTS

PATH = NAMESPACES.path()
EXPIRED = {"type": "ERROR", "object": status(410, "Expired")}
FAILED = {"type": "ERROR", "object": status(500, "InternalError")}


class ReflectedCopy:
    """A reflector of namespaces at work against a fake API server."""

    def __init__(self, server: FakeApiServer, clock: FakeClock, reflector: Reflector[Namespace]) -> None:
        self.server = server
        self.clock = clock
        self.reflector = reflector
        self.changes: list[tuple[str | None, str | None]] = []
        # What was said of restored etcds.
        self.restores: list[str] = []

    @property
    def names(self) -> list[str]:
        return sorted(namespace.meta.name or "" for namespace in self.reflector)

    def mode(self, name: str) -> str | None:
        namespace = self.reflector.get(name)
        return namespace.meta.label("mode") if namespace else None

    def put(self, name: str, mode: str = "enforce") -> None:
        self.server.put(NAMESPACES, name, metadata={"labels": {"mode": mode}})

    async def becomes(self, *names: str) -> None:
        await until(lambda: self.names == sorted(names))

    def asked(self, verb: str) -> list[dict[str, str]]:
        """The queries of all requests of a verb."""
        return [dict(asked.query) for asked in self.server.requests(PATH, verb)]

    async def watched(self, times: int = 1) -> None:
        """Waits until so many watches were requested, one is open, and the copy has noticed."""
        await until(
            lambda: len(self.asked("watch")) >= times and self.server.watching and self.reflector.problem is None
        )

    @property
    def lists(self) -> int:
        return len(self.asked("get"))

    @property
    def is_current(self) -> bool:
        return self.reflector.is_current(self.clock.now())

    async def bring_future(self) -> EtcdCopy:
        """A copy of etcd, after which namespaces were changed and made."""
        saved = self.server.save()
        self.put("a", "off")
        self.put("new")
        await until(lambda: "new" in self.names)
        return saved


@asynccontextmanager
async def reflecting(reflector: Reflector[Any]) -> AsyncIterator[None]:
    """A reflector at work."""
    task = asyncio.create_task(reflector.run())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@asynccontextmanager
async def reflected(
    tmp_path: Path,
    *names: str,
    prepare: Callable[[FakeApiServer], object] = lambda _: None,
    clock: FakeClock | None = None,
    timing: Mapping[str, Any] = MappingProxyType({"PAGE_LIMIT": 2}),
    **options: Any,
) -> AsyncIterator[ReflectedCopy]:
    server = FakeApiServer()
    server.serve(NAMESPACES)
    for name in names:
        server.put(NAMESPACES, name, metadata={"labels": {"mode": "enforce"}})
    prepare(server)
    clock = clock or FakeClock()
    async with running(server):
        transport = await connect(server.kubeconfig(tmp_path / "config"))
        copy: ReflectedCopy

        def note(old: Namespace | None, new: Namespace | None) -> None:
            copy.changes.append((old.meta.name if old else None, new.meta.name if new else None))

        defaults: dict[str, Any] = {"on_change": note, "jitter": lambda first, _: first}
        reflector = Reflector(transport, NAMESPACES, clock=clock, **defaults | options)
        copy = ReflectedCopy(server, clock, reflector)
        try:
            with mock.patch.multiple(module, **timing):
                async with reflecting(copy.reflector):
                    yield copy
        finally:
            await transport.close()


@asynccontextmanager
async def watched(tmp_path: Path, *names: str, **options: Any) -> AsyncIterator[ReflectedCopy]:
    """As `reflected`, once it watches."""
    async with reflected(tmp_path, *names, **options) as copy:
        await copy.watched()
        yield copy


@pytest.fixture
async def copy(tmp_path: Path) -> AsyncIterator[ReflectedCopy]:
    """One that watches a namespace "a", and whose restores are noted."""
    restores: list[str] = []
    async with watched(tmp_path, "a", on_restore=lambda _, why: restores.append(why)) as copy:
        copy.restores = restores
        yield copy


class TestList:
    async def test_in_pages(self, tmp_path: Path) -> None:
        async with reflected(tmp_path, "a", "b", "c", "d", "e") as copy:
            assert not copy.reflector.has_synced
            assert math.isinf(copy.reflector.staleness(copy.clock.now()))
            await copy.watched()
            assert (copy.names, len(copy.reflector.contents)) == (["a", "b", "c", "d", "e"], 5)
            assert copy.reflector.has_synced
            version = copy.server.version
            assert copy.asked("get") == [
                {"limit": "2"} | more for more in ({}, {"continue": f"{version}.2"}, {"continue": f"{version}.4"})
            ]

    @pytest.mark.parametrize("items", [[], None])
    async def test_of_nothing(self, tmp_path: Path, items: Any) -> None:
        def answer(server: FakeApiServer) -> None:
            server.answer(PATH, lambda _: web.json_response({"items": items}))

        async with watched(tmp_path, prepare=answer) as copy:
            assert (copy.reflector.has_synced, copy.names) == (True, [])
            assert copy.asked("watch")[0]["resourceVersion"] == ""

    async def test_is_restarted_when_its_snapshot_expires(self, tmp_path: Path) -> None:
        def compact_once(server: FakeApiServer) -> None:
            def hook() -> None:
                server.page_hook = lambda: None
                server.compact()

            server.page_hook = hook

        async with watched(tmp_path, "a", "b", "c", prepare=compact_once) as copy:
            assert (copy.names, copy.clock.slept, copy.lists) == (["a", "b", "c"], [], 4)

    async def test_that_expires_again_and_again_is_slowed_down(self, tmp_path: Path) -> None:
        def prepare(server: FakeApiServer) -> None:
            server.page_hook = server.compact

        async with reflected(tmp_path, "a", "b", "c", prepare=prepare) as copy:
            await until(lambda: len(copy.clock.slept) >= 6)
            assert copy.clock.slept[:6] == [0.5, 1.0, 2.0, 4.0, 5.0, 5.0]

    async def test_uses_the_selector(self, server: FakeApiServer, transport: KubernetesTransport) -> None:
        for namespace in ("demo", "other"):
            for phase in ("Pending", "Running"):
                server.put(PENDING_PODS, phase.lower(), namespace, status={"phase": phase})
        reflector = Reflector(
            transport,
            PENDING_PODS,
            field_selector="status.phase=Pending",
            transform=lambda pod: msgspec.structs.replace(pod, status=None),
        )
        async with reflecting(reflector):
            await until(lambda: server.watching)
            named = sorted((pod.meta.namespace, pod.meta.name) for pod in reflector)
            assert named == [("demo", "pending"), ("other", "pending")]
            kept = reflector.get("pending", "demo")
            assert kept and kept.status is None
            server.put(PENDING_PODS, "pending", "demo", status={"phase": "Running"})
            await until(lambda: len(reflector.contents) == 1)

    async def test_is_reported_in_slices(self, server: FakeApiServer, transport: KubernetesTransport) -> None:
        """Lists share the event loop with reviews: none keeps it for longer than a slice of its objects takes."""
        names = [f"n-{number}" for number in range(23)]
        for name in names:
            server.put(NAMESPACES, name)
        turn, reported = 0, []
        turns: dict[str, list[int]] = {"decoded": [], "reduced": [], "reported": []}

        async def count() -> None:
            nonlocal turn
            while True:
                turn += 1
                await asyncio.sleep(0)

        def decode(item: Any) -> Namespace:
            turns["decoded"].append(turn)
            return msgspec.json.decode(item, type=Namespace)

        def reduce(view: Namespace) -> Namespace:
            turns["reduced"].append(turn)
            return view

        def report(_: Namespace | None, new: Namespace | None) -> None:
            turns["reported"].append(turn)
            reported.append(new.meta.name if new else None)

        reflector = Reflector(transport, NAMESPACES, transform=reduce, on_change=report)
        reflector._decode_view = decode
        counting = asyncio.create_task(count())
        with mock.patch.multiple(module, PAGE_LIMIT=10, SLICE=4):
            async with reflecting(reflector):
                await until(lambda: reflector.has_synced)
        counting.cancel()

        assert reported == sorted(names)
        assert {what: max(Counter(taken).values()) <= 4 for what, taken in turns.items()} == dict.fromkeys(turns, True)
        assert [asked.query["limit"] for asked in server.requests(PATH, "get")][:3] == ["10"] * 3


class TestWatch:
    async def test_follows_every_change(self, copy: ReflectedCopy) -> None:
        copy.put("b", "audit")
        await copy.becomes("a", "b")
        assert copy.mode("b") == "audit"
        copy.put("b", "warn")
        await until(lambda: copy.mode("b") == "warn")
        copy.server.remove(NAMESPACES, "a")
        await copy.becomes("b")
        assert copy.reflector.get("a") is None
        assert (copy.lists, copy.changes) == (1, [(None, "a"), (None, "b"), ("b", "b"), ("a", None)])

    async def test_asks_for_bookmarks_and_an_end_and_reports_only_what_the_view_shows(
        self, copy: ReflectedCopy
    ) -> None:
        expected = {"watch": "true", "allowWatchBookmarks": "true", "timeoutSeconds": "240"}
        assert copy.asked("watch")[0] == expected | {"resourceVersion": str(copy.server.version)}
        copy.server.put(NAMESPACES, "a", metadata={"labels": {"mode": "enforce"}}, status={"phase": "Terminating"})
        copy.server.send({"type": "DELETED", "object": {"metadata": {"name": "never-seen"}}})
        copy.put("b")
        await copy.becomes("a", "b")
        assert copy.changes == [(None, "a"), (None, "b")]

    async def test_goes_on_where_events_and_bookmarks_left_off(self, copy: ReflectedCopy) -> None:
        copy.put("b")
        await copy.becomes("a", "b")
        after_event = str(copy.server.version)
        copy.server.end_watches()
        await copy.watched(2)
        copy.server.bookmark()
        after_bookmark = str(copy.server.version)
        copy.server.end_watches()
        await copy.watched(3)
        assert [query["resourceVersion"] for query in copy.asked("watch")[1:3]] == [after_event, after_bookmark]
        assert (copy.lists, copy.clock.slept) == (1, [])

    async def test_survives_a_cut_in_the_middle_of_a_line(self, copy: ReflectedCopy) -> None:
        copy.server.cut()
        await copy.watched(2)
        copy.put("b")
        await copy.becomes("a", "b")
        assert (copy.lists, copy.clock.slept) == (1, [0.25])

    async def test_lines_of_many_megabytes_unknown_events_and_floods(self, copy: ReflectedCopy) -> None:
        copy.server.send(b'\r\n\n{"type":"NOVELTY","object":{}}\n')
        copy.server.put(NAMESPACES, "big", metadata={"managedFields": ["x" * (5 << 20)]})
        copy.put("small")
        await copy.becomes("a", "big", "small")
        events = [{"type": "ADDED", "object": {"metadata": {"name": f"ns{number}"}}} for number in range(500)]
        copy.server.send(b"".join(msgspec.json.encode(event) + b"\n" for event in events))
        await until(lambda: len(copy.reflector.contents) == 503)
        assert copy.lists == 1

    async def test_needs_no_listener(self, tmp_path: Path) -> None:
        async with watched(tmp_path, "a", on_change=None) as copy:
            copy.put("b")
            await copy.becomes("a", "b")
            copy.server.remove(NAMESPACES, "b")
            await copy.becomes("a")


class TestGone:
    @pytest.mark.parametrize("event", [EXPIRED, {"type": "ERROR", "object": {"reason": "Gone"}}])
    async def test_as_an_event_relists_at_once(self, copy: ReflectedCopy, event: dict[str, Any]) -> None:
        copy.server.send(event)
        await until(lambda: copy.lists == 2)
        assert copy.clock.slept == []
        assert copy.reflector.problem is None

    async def test_as_an_answer(self, copy: ReflectedCopy) -> None:
        copy.server.fail(PATH, 410, "Expired", verb="watch")
        copy.server.end_watches()
        await until(lambda: copy.lists == 2)

    async def test_what_was_removed_meanwhile_disappears(self, tmp_path: Path) -> None:
        async with watched(tmp_path, "a", "b", "c") as copy:
            copy.server.end_watches()
            copy.server.fail(PATH, 503, verb="watch")
            copy.server.remove(NAMESPACES, "b")
            copy.put("c", "audit")
            copy.put("d")
            copy.server.compact()
            await copy.becomes("a", "c", "d")
            assert (copy.mode("c"), copy.changes[3:]) == ("audit", [("b", None), ("c", "c"), (None, "d")])

    async def test_nobody_sees_half_a_list(self, tmp_path: Path) -> None:
        async with watched(tmp_path, "a", "b", "c") as copy:
            release = asyncio.Event()
            copy.server.page_hook = lambda: copy.server.hang(PATH, release)
            copy.server.remove(NAMESPACES, "a")
            copy.server.put(NAMESPACES, "d")
            await copy.becomes("b", "c", "d")
            copy.server.send(EXPIRED)
            copy.server.put(NAMESPACES, "e")
            await until(lambda: copy.lists == 4)
            assert copy.names == ["b", "c", "d"]
            copy.server.page_hook = lambda: None
            release.set()
            await copy.becomes("b", "c", "d", "e")

    async def test_in_a_circle_is_slowed_down(self, tmp_path: Path) -> None:
        expired = partial(FakeApiServer.fail, path=PATH, code=410, reason="Expired", times=5, verb="watch")
        async with reflected(tmp_path, prepare=expired) as copy:
            await copy.watched(6)
            assert copy.clock.slept == [0.5, 1.0, 2.0, 4.0]


class TestAbsent:
    async def test_a_type_that_is_not_served_counts_as_empty(
        self, server: FakeApiServer, transport: KubernetesTransport
    ) -> None:
        clock = HeldClock()
        reflector = Reflector(transport, KUBEVIRTS, clock=clock)
        async with reflecting(reflector):
            await until(lambda: reflector.has_synced)
            assert (len(reflector.contents), reflector.problem, reflector.staleness(clock.now())) == (0, None, 0.0)
            await until(lambda: clock.slept == [30.0])
            server.put(KUBEVIRTS, "kubevirt", "kubevirt")
            clock.advance(30.0)
            await until(lambda: reflector.get("kubevirt", "kubevirt"))

    async def test_a_type_that_is_removed_becomes_empty(self, copy: ReflectedCopy) -> None:
        copy.server.unserve(NAMESPACES)
        copy.server.end_watches()
        await copy.becomes()
        assert copy.changes[1:] == [("a", None)]
        await until(lambda: 30.0 in copy.clock.slept)

    async def test_one_of_several_api_servers_that_does_not_serve_a_kind_empties_no_store(
        self, copy: ReflectedCopy
    ) -> None:
        """Behind one address one may be older, or have just been started: 404 from it, 200 from the other."""
        copy.server.fail(PATH, 404, times=2, verb="get")
        copy.server.send(EXPIRED)
        await until(lambda: copy.lists >= 4)
        await copy.watched(2)
        assert (copy.names, copy.changes) == (["a"], [(None, "a")])


async def test_every_sign_of_life_counts(copy: ReflectedCopy) -> None:
    def staleness() -> float:
        return copy.reflector.staleness(copy.clock.now())

    await until(lambda: staleness() == 0.0)
    copy.clock.time += 60.0
    assert staleness() == 60.0
    copy.server.bookmark()
    await until(lambda: staleness() == 0.0)
    copy.put("b")
    await copy.becomes("a", "b")
    copy.clock.time += 60.0
    copy.server.end_watches()
    await copy.watched(2)
    # A watch that begins and brings nothing may be one of an API server that has stopped watching itself.
    assert staleness() == 60.0


class TestTrouble:
    async def test_a_refused_list(self, tmp_path: Path, caplog: pytest.LogCaptureFixture, golden: Golden) -> None:
        caplog.set_level(logging.INFO)
        clock = HeldClock()
        forbidden = partial(FakeApiServer.fail, path=PATH, code=403, reason="Forbidden", times=3)
        async with reflected(tmp_path, "a", prepare=forbidden, clock=clock) as copy:
            await until(lambda: copy.reflector.problem)
            golden(copy.reflector.problem or "")
            assert copy.reflector.is_forbidden
            assert not copy.reflector.has_synced
            for _ in range(3):
                slept = len(clock.slept)
                clock.advance(10.0)
                await until(lambda slept=slept: len(clock.slept) > slept or copy.reflector.has_synced)  # type: ignore[misc]
            await copy.watched()
            assert not copy.reflector.is_forbidden
            said = [record for record in caplog.records if "namespaces" in record.getMessage()]
            assert [record.levelno for record in said] == [logging.WARNING, logging.INFO]
            golden("\n".join(record.getMessage() for record in said))

    async def test_a_refused_watch_is_made_up_for_by_lists(self, tmp_path: Path, golden: Golden) -> None:
        forbidden = partial(FakeApiServer.fail, path=PATH, code=403, reason="Forbidden", times=1000, verb="watch")
        async with reflected(tmp_path, "a", prepare=forbidden) as copy:
            await until(lambda: copy.reflector.problem)
            golden(copy.reflector.problem or "")
            assert copy.reflector.has_synced
            copy.server.put(NAMESPACES, "b")
            await copy.becomes("a", "b")

    @pytest.mark.parametrize(
        ("code", "reason"),
        [(500, "InternalError"), (429, "TooManyRequests"), (502, ""), (400, "a SECRET text"), (401, "Unauthorized")],
    )
    async def test_other_answers(self, tmp_path: Path, code: int, reason: str, golden: Golden) -> None:
        fails = partial(FakeApiServer.fail, path=PATH, code=code, reason=reason, times=100)
        async with reflected(tmp_path, "a", prepare=fails, clock=HeldClock()) as copy:
            await until(lambda: copy.reflector.problem)
            assert "SECRET" not in (copy.reflector.problem or "")
            golden(copy.reflector.problem or "")
            assert not copy.reflector.is_forbidden

    async def test_an_answer_that_is_no_json(self, tmp_path: Path) -> None:
        def prepare(server: FakeApiServer) -> None:
            server.answer(PATH, lambda _: web.Response(text="<html>", status=504))
            server.answer(PATH, lambda _: web.Response(text="<html>"))
            server.answer(PATH, lambda _: web.json_response({"items": [{"metadata": {"name": 7}}]}))

        async with watched(tmp_path, "a", prepare=prepare) as copy:
            assert (copy.names, copy.clock.slept) == (["a"], [0.25, 0.5, 1.0])

    async def test_starts_slowly_and_doubles(self, tmp_path: Path) -> None:
        async with watched(tmp_path, "a", prepare=lambda server: server.fail(PATH, 500, times=7)) as copy:
            assert copy.clock.slept == [0.25, 0.5, 1.0, 2.0, 4.0, 5.0, 5.0]

    async def test_server_errors_in_a_watch_need_no_list_until_the_version_is_refused_three_times(
        self, copy: ReflectedCopy
    ) -> None:
        copy.server.send(FAILED)
        await copy.watched(2)
        assert copy.lists == 1
        copy.put("b")
        await copy.becomes("a", "b")
        assert copy.lists == 1
        copy.server.fail(PATH, 504, "Timeout", times=3, verb="watch")  # "Too large resource version"
        copy.server.end_watches()
        await until(lambda: copy.lists == 2)

    async def test_progress_in_between_dispels_the_doubt(self, tmp_path: Path) -> None:
        async with reflected(tmp_path) as copy:
            for watches in range(1, 6):
                await copy.watched(watches)
                copy.put(f"n{watches}")
                await until(lambda watches=watches: len(copy.names) == watches)  # type: ignore[misc]
                copy.server.send(FAILED)
                await until(lambda watches=watches: len(copy.clock.slept) == watches)  # type: ignore[misc]
            assert (copy.lists, copy.clock.slept) == (1, [0.25] * 5)

    async def test_a_server_that_is_starting_raises_no_doubt(self, copy: ReflectedCopy) -> None:
        copy.server.fail(PATH, 503, times=8, verb="watch")
        copy.server.end_watches()
        await copy.watched(10)
        assert copy.lists == 1

    async def test_a_poisoned_event_ends_in_a_list(self, copy: ReflectedCopy) -> None:
        while copy.lists < 2:
            copy.server.send({"type": "MODIFIED", "object": {"metadata": {"name": 7}}})
            await asyncio.sleep(0.005)
        await until(lambda: copy.reflector.problem is None)

    async def test_watches_that_end_at_once_are_slowed_down(self, copy: ReflectedCopy) -> None:
        copy.server.answer(PATH, lambda _: web.Response(), times=3, verb="watch")
        copy.server.end_watches()
        await until(lambda: len(copy.asked("watch")) >= 5)
        assert (copy.clock.slept[:3], copy.lists) == ([0.25, 0.5, 1.0], 1)

    async def test_a_long_watch_forgives_earlier_failures(self, tmp_path: Path) -> None:
        async with reflected(tmp_path, "a") as copy:
            copy.server.fail(PATH, 500, times=5)
            await copy.watched()
            copy.clock.time += 60.0
            copy.server.cut()
            await copy.watched(2)
            assert copy.clock.slept[-1] == 0.25

    async def test_a_silent_watch_is_cut(self, tmp_path: Path) -> None:
        timing = {"WATCH_SECONDS": (0, 0), "WATCH_MARGIN_SECONDS": 0.5}
        async with reflected(tmp_path, "a", timing=timing) as copy:
            # On a slow machine none may live long enough to be seen open.
            await until(lambda: len(copy.asked("watch")) >= 2)
            assert copy.lists == 1
            assert copy.clock.slept

    async def test_a_silent_list_is_cut(self, tmp_path: Path, golden: Golden) -> None:
        clock = HeldClock()
        hangs = partial(FakeApiServer.hang, path=PATH, release=asyncio.Event(), times=1)
        async with reflected(tmp_path, "a", prepare=hangs, clock=clock, timing={"LIST_SECONDS": 0.05}) as copy:
            await until(lambda: copy.reflector.problem)
            golden(copy.reflector.problem or "")
            while not copy.names:  # on a slow machine the next one may be cut, too
                clock.advance(10.0)
                await asyncio.sleep(0.01)

    async def test_no_api_server_at_all(self, transport: KubernetesTransport) -> None:
        clock = HeldClock()
        reflector = Reflector(transport, NAMESPACES, clock=clock)
        await transport.close()
        async with reflecting(reflector):
            await until(lambda: clock.slept)
        assert reflector.problem == "the connection to the API server has been closed"
        assert 0.25 <= clock.slept[0] <= 0.5


class TestHostile:
    LINE = b'{"metadata":{"name":"deep","resourceVersion":"%d"},"spec":' + b"[" * 5000 + b"]" * 5000 + b"}"

    async def test_an_object_that_is_too_deep_ends_no_watch(self, copy: ReflectedCopy) -> None:
        for _ in range(3):
            copy.server.version += 1
            copy.server.send(b'{"type":"MODIFIED","object":' + self.LINE % copy.server.version + b"}\n")
        after = str(copy.server.version)
        # Nothing that is read of it lies so deep, so it is known as a list would show it.
        await copy.becomes("a", "deep")
        copy.server.end_watches()
        await copy.watched(2)
        assert (copy.asked("watch")[1]["resourceVersion"], copy.lists) == (after, 1)
        copy.put("b")
        await copy.becomes("a", "b", "deep")

    async def test_nor_a_list(self, tmp_path: Path) -> None:
        deep = partial(FakeApiServer.put, resource=NAMESPACES, name="c-deep", spec=DEEP)
        async with watched(tmp_path, "a", "b", "d", prepare=deep) as copy:
            assert copy.names == ["a", "b", "c-deep", "d"]
            assert copy.reflector.problem is None

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


@pytest.mark.parametrize(
    ("version", "seen", "behind"),
    [
        *(("9", "10", True), ("10", "10", False), ("11", "10", False), (None, "10", False), ("9", None, False)),
        *(("a9", "10", False), ("9", "", False), ("-9", "10", False)),
    ],
)
def test_only_numbers_are_compared(version: str | None, seen: str | None, behind: bool) -> None:
    assert is_behind(version, seen) is behind


@pytest.mark.repeats
class TestRestoredEtcd:
    """etcd that is restored from an older copy, as an informer notices it, and API servers that only lag behind."""

    async def test_a_watch_from_a_lost_future_brings_nothing_and_is_noticed_when_etcd_is_asked(
        self, copy: ReflectedCopy
    ) -> None:
        copy.server.restore(await copy.bring_future())
        copy.put("c")
        await asyncio.sleep(0.05)
        assert copy.names == ["a", "new"], "the watch is silent, without an error"

        assert await copy.reflector.verify() is None

        await copy.becomes("a", "c")
        assert copy.mode("a") == "enforce"
        assert copy.is_current
        assert copy.lists == 2
        assert await copy.reflector.verify() is None
        assert len(copy.restores) == 1
        # What has changed is reported as after any list.
        assert ("new", None) in copy.changes

    async def test_nothing_in_the_store_counts_until_it_has_been_listed(self, copy: ReflectedCopy) -> None:
        copy.server.restore(await copy.bring_future())
        release = copy.server.hang(PATH, verb="get")
        await copy.reflector.verify()
        assert not copy.is_current
        release.set()
        await until(lambda: copy.is_current)
        assert copy.names == ["a"]

    async def test_a_list_that_is_older_than_what_was_seen_says_it_too(self, copy: ReflectedCopy) -> None:
        copy.server.restore(await copy.bring_future())
        copy.server.send(EXPIRED)
        await copy.becomes("a")
        await until(lambda: copy.restores)
        assert copy.is_current
        assert copy.asked("verify") == []

    async def test_after_a_lost_connection_etcd_is_asked_before_the_watch_goes_on(self, copy: ReflectedCopy) -> None:
        copy.server.restore(await copy.bring_future())
        copy.server.cut()
        await copy.becomes("a")
        assert [query["resourceVersion"] for query in copy.asked("verify")] == ["103"]
        assert copy.restores

    async def test_an_api_server_that_was_not_restarted_is_not_believed(
        self, copy: ReflectedCopy, caplog: pytest.LogCaptureFixture
    ) -> None:
        """It lists from its watch cache, which is in the lost future as well, until it is restarted."""
        saved = await copy.bring_future()
        copy.server.restore(saved, cached=True)
        await copy.reflector.verify()
        await until(lambda: len(copy.asked("verify")) >= 2)
        await until(lambda: "restart it" in caplog.text)
        assert not copy.is_current
        # etcd reaches the version again: the watch cache is a mixture of both now, which nothing shows.
        copy.server.version = 200
        while copy.lists < 5:
            copy.server.end_watches()
            await asyncio.sleep(0.005)
        assert not copy.is_current
        # Restarted before that, its lists are older than what was seen.
        copy.server.restore(saved)
        while not copy.is_current:
            copy.server.end_watches()
            await asyncio.sleep(0.005)
        assert (copy.names, caplog.text.count("restart it")) == (["a"], 1)

    async def test_an_api_server_that_lags_behind_costs_one_list_and_no_alarm(self, copy: ReflectedCopy) -> None:
        """Behind one address there may be several; a watch cache may be older than what another one has said."""
        copy.put("b")
        await copy.becomes("a", "b")
        copy.server.send({"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "1"}}})
        await until(lambda: copy.lists >= 2)
        await copy.watched(2)
        assert copy.names == ["a", "b"]
        assert copy.is_current
        assert copy.restores == []

    @pytest.mark.parametrize(
        ("code", "message", "is_future"),
        [
            (500, "etcdserver: mvcc: required revision is a future revision", True),  # before Kubernetes 1.34
            *((410, "The provided resource version is too old", False), (404, "", False)),
            *((500, "something else", None), (429, "", None)),
        ],
    )
    async def test_what_an_api_server_says_of_a_version(
        self, copy: ReflectedCopy, code: int, message: str, is_future: bool | None
    ) -> None:
        body = status(code, "", message)
        copy.server.answer(PATH, lambda _: web.json_response(body, status=code), verb="verify")
        assert isinstance(await copy.reflector.verify(), Unavailable) is (is_future is None)
        assert bool(copy.restores) is bool(is_future)

    async def test_a_quiet_watch_has_the_api_server_ask_etcd_for_its_progress(self, copy: ReflectedCopy) -> None:
        """Without that it would send no bookmark where etcd notifies it once in ten minutes."""
        copy.clock.time += QUIET_SECONDS / 2
        await copy.reflector.verify()
        assert copy.asked("progress") == []
        copy.clock.time += QUIET_SECONDS / 2
        await copy.reflector.verify()
        # A list without resourceVersion, of one name: consistent and small.
        assert copy.asked("progress") == [{"fieldSelector": "metadata.name=kubevirt-webhook"}]
        copy.server.send({"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": str(copy.server.version)}}})
        await until(lambda: copy.reflector.staleness(copy.clock.now()) == 0)
        await copy.reflector.verify()
        assert (len(copy.asked("progress")), copy.names) == (1, ["a"])

    async def test_no_answer_is_no_verdict(self, copy: ReflectedCopy) -> None:
        # aiohttp repeats a GET once on a connection that it has kept.
        copy.server.answer(PATH, broken, verb="verify", times=2)
        assert isinstance(await copy.reflector.verify(), Unavailable)
        assert copy.is_current

    def test_the_fake_keeps_its_promise(self) -> None:
        """A watch from the future is silent until etcd has passed it; else the tests above would show nothing."""
        server = FakeApiServer()
        saved = server.save()
        server.version += 10
        server.restore(saved)
        assert server.version == saved.version


@pytest.mark.repeats
class TestFrozenWatches:
    async def test_it_is_cut_and_the_second_one_in_a_row_leads_to_a_list(self, tmp_path: Path) -> None:
        """The peer is alive and says nothing: what it does not say is found by a list."""
        async with reflected(tmp_path, "a", timing={"SILENCE_SECONDS": 0.05}) as copy:
            await until(lambda: len(copy.asked("watch")) >= 3 and copy.lists >= 2)
            assert copy.names == ["a"]

    async def test_bookmarks_keep_it_open(self, copy: ReflectedCopy) -> None:
        watching = copy.reflector._watching
        assert watching
        ends = watching.when() or 0.0
        copy.server.bookmark()
        await until(lambda: (watching.when() or 0.0) > ends, "the end of the watch to be put off")
        assert len(copy.asked("watch")) == 1

    async def test_a_watch_that_begins_and_brings_nothing_is_no_sign_of_life(self, copy: ReflectedCopy) -> None:
        copy.clock.time += CURRENT_SECONDS - 1.0
        copy.server.end_watches()
        await copy.watched(2)
        assert copy.is_current
        copy.clock.time += 1.0
        assert not copy.is_current
        copy.server.bookmark()
        await until(lambda: copy.is_current)


STEPS: dict[str, Callable[[FakeApiServer], None]] = {
    "gone": lambda server: server.send(EXPIRED),
    "error": lambda server: server.send(FAILED),
    "garbage": lambda server: server.send(b"}{\n"),
    "bookmark": FakeApiServer.bookmark,
    "end": FakeApiServer.end_watches,
    "cut": FakeApiServer.cut,
    "compact": FakeApiServer.compact,
    "refuse a watch": lambda server: server.fail(PATH, 504, "Timeout", verb="watch"),
    "refuse a list": lambda server: server.fail(PATH, 500, "InternalError", verb="get"),
    "wait": lambda _: None,
}
CHANGES = st.tuples(st.sampled_from("abcdefg"), st.sampled_from(["enforce", "audit", None]))


@settings(max_examples=40, deadline=None)
@given(st.lists(st.sampled_from(sorted(STEPS)) | CHANGES, max_size=40))
def test_whatever_happens_it_ends_with_the_truth(steps: list[str | tuple[str, str | None]]) -> None:
    async def run(directory: Path) -> None:
        async with reflected(directory, "a", "b", "c") as copy:
            for step in steps:
                if isinstance(step, str):
                    STEPS[step](copy.server)
                    await asyncio.sleep(0.002 if step == "wait" else 0)
                elif step[1]:
                    copy.put(step[0], step[1])
                elif ("", step[0]) in copy.server.held(NAMESPACES):
                    copy.server.remove(NAMESPACES, step[0])
            copy.server.heal()
            held = copy.server.held(NAMESPACES).items()
            truth = {name: namespace["metadata"]["labels"]["mode"] for (_, name), namespace in held}
            await until(lambda: {name: copy.mode(name) for name in copy.names} == truth)

    with TemporaryDirectory() as directory:
        asyncio.run(run(Path(directory)))


@given(st.lists(st.binary(max_size=40).map(lambda line: line.replace(b"\n", b"")), max_size=20), st.data())
def test_lines_come_whole_however_they_are_cut(lines: list[bytes], data: st.DataObject) -> None:
    stream = b"".join(line + b"\n" for line in lines) + b"an open end"
    buffer, found = LineBuffer(), []
    while stream:
        size = data.draw(st.integers(1, len(stream)))
        found += buffer.feed(stream[:size])
        stream = stream[size:]
    assert (found, buffer.feed(b""), buffer.feed(b"\n")) == (lines, [], [b"an open end"])


def test_a_line_without_end_is_broken_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api, "LARGEST_ANSWER_BYTES", 100)
    buffer = LineBuffer()
    assert buffer.feed(b"x" * 90 + b"\n" + b"x" * 90) == [b"x" * 90]
    with pytest.raises(TooLargeError):
        buffer.feed(b"x" * 11)


async def test_real_time_passes() -> None:
    before = REAL_TIME.now()
    await REAL_TIME.sleep(0.01)
    assert REAL_TIME.now() > before
    assert REAL_TIME.wall() > 1_700_000_000


def named(name: str) -> Namespace:
    return Namespace(metadata=ObjectMeta(name=name))


def test_a_number_is_kept_and_what_is_there_may_change() -> None:
    room: ObjectStore[Namespace] = ObjectStore(1)
    assert room.put(("", "x"), named("1"))
    assert not room.put(("", "y"), named("1"))
    assert room.put(("", "x"), named("2"))
    assert ([*room.names()], [*room], len(room)) == ([("", "x")], [named("2")], 1)
    room.reject(("", "x"))
    assert room.drop(("", "x")) is room.get(("", "x")) is None


def test_without_parts_of_namespaces_none_is_remembered() -> None:
    room: ObjectStore[Namespace] = ObjectStore(1)
    assert room.put(("", "x"), named("1"))
    for number in range(3000):
        room.reject((f"tenant-{number}", "x"))
        assert not room.put((f"other-{number}", "x"), named("1"))
    kept = [part for part in vars(room).values() if isinstance(part, dict | set)]
    assert {name for part in kept for name in part} == {""}


OBJECTS = st.tuples(st.sampled_from(["", "a", "b"]), st.sampled_from(["x", "y", "z"]))


@given(st.lists(st.tuples(OBJECTS, st.sampled_from(["put", "drop", "refuse"]), st.integers(1, 9))))
def test_bytes_are_counted_right_whatever_happens(steps: list[tuple[ObjectName, str, int]]) -> None:
    room: ObjectStore[Namespace] = ObjectStore(20, 10, lambda view: len(view.meta.name or ""))
    expected: dict[ObjectName, Namespace] = {}
    missing: set[str] = set()
    for name, step, size in steps:
        expected.pop(name, None)
        sizes = {each: len(view.meta.name or "") for each, view in expected.items()}
        taken = sum(taken for (namespace, _), taken in sizes.items() if namespace == name[0]) + size
        everything = sum(sizes.values()) + size
        if step == "put" and room.put(name, named("n" * size)):
            expected[name] = named("n" * size)
            assert taken <= 10 and everything <= 20
        elif step == "drop":
            room.drop(name)
        else:
            assert step == "refuse" or taken > 10 or everything > 20
            room.reject(name)
            missing.add(name[0])
    assert {name: room.get(name) for name in room.names()} == expected
    assert (len(room), len([*room])) == (len(expected),) * 2
    assert room.size == sum(len(view.meta.name or "") for view in room)
    for namespace in ("", "a", "b"):
        inside = [expected[name] for name in sorted(expected) if name[0] == namespace]
        assert room.all_of(namespace) == (None if namespace in missing else inside)
