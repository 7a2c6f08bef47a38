"""An informer of namespaces at work against a fake API server: lists, watches, their failures, and restored etcds."""

from __future__ import annotations

import asyncio
import logging
import math
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from types import MappingProxyType
from typing import Any
from unittest import mock

import msgspec
import pytest
from aiohttp import web
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.cluster.fake_apiserver import DEEP, ApiServers, EtcdCopy, FakeApiServer, FakeClock, HeldClock, broken, status
from tests.golden_files import Golden
from tests.waiting import other_turns, until
from webhook.errors import Unavailable
from webhook.k8s.client import api
from webhook.k8s.client import reflector as module
from webhook.k8s.client.api import TooLargeError
from webhook.k8s.client.clock import REAL_TIME
from webhook.k8s.client.freshness import Fresh, Freshness, Stale, Unknown
from webhook.k8s.client.reflector import (
    CURRENT_SECONDS,
    MOST_REJECTED,
    QUIET_SECONDS,
    REJECTED_OF_A_NAMESPACE,
    LineBuffer,
    ObjectName,
    ObjectStore,
    Reflector,
    is_behind,
)
from webhook.k8s.client.transport import KubernetesTransport
from webhook.k8s.resources import NAMESPACES, PENDING_PODS
from webhook.k8s.types.meta import Namespace, ObjectMeta
from webhook.kubevirt.resources import KUBEVIRTS

PATH = NAMESPACES.path()
EXPIRED = {"type": "ERROR", "object": status(410, "Expired")}
FAILED = {"type": "ERROR", "object": status(500, "InternalError")}


class ReflectedStore:
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
        """Waits until so many watches were requested, one is open, and the store has noticed."""
        await until(lambda: len(self.asked("watch")) >= times and self.server.watching and not self.freshness.problem)

    @property
    def lists(self) -> int:
        return len(self.asked("get"))

    @property
    def freshness(self) -> Freshness:
        return self.reflector.freshness(self.clock.now())

    @property
    def is_current(self) -> bool:
        return isinstance(self.freshness, Fresh)

    @property
    def problem(self) -> str | None:
        """Why the informer is interrupted."""
        problem = self.freshness.problem
        return problem.why if problem else None

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
    apiservers: ApiServers,
    *names: str,
    prepare: Callable[[FakeApiServer], object] = lambda _: None,
    clock: FakeClock | None = None,
    timing: Mapping[str, Any] = MappingProxyType({"PAGE_LIMIT": 2}),
    **options: Any,
) -> AsyncIterator[ReflectedStore]:
    server = FakeApiServer()
    server.serve(NAMESPACES)
    for name in names:
        server.put(NAMESPACES, name, metadata={"labels": {"mode": "enforce"}})
    prepare(server)
    clock = clock or FakeClock()
    await apiservers.start(server)
    transport = await apiservers.connect(server)
    store: ReflectedStore

    def note(old: Namespace | None, new: Namespace | None) -> None:
        store.changes.append((old.meta.name if old else None, new.meta.name if new else None))

    defaults: dict[str, Any] = {"on_change": note, "jitter": lambda first, _: first}
    reflector = Reflector(transport, NAMESPACES, clock=clock, **defaults | options)
    store = ReflectedStore(server, clock, reflector)
    try:
        with mock.patch.multiple(module, **timing):
            async with reflecting(store.reflector):
                yield store
    finally:
        await transport.close()


@asynccontextmanager
async def watched(apiservers: ApiServers, *names: str, **options: Any) -> AsyncIterator[ReflectedStore]:
    """As `reflected`, once it watches."""
    async with reflected(apiservers, *names, **options) as store:
        await store.watched()
        yield store


@pytest.fixture
async def store(apiservers: ApiServers) -> AsyncIterator[ReflectedStore]:
    """One that watches a namespace "a", and whose restores are noted."""
    restores: list[str] = []
    async with watched(apiservers, "a", on_restore=lambda _, why: restores.append(why)) as store:
        store.restores = restores
        yield store


class TestList:
    async def test_in_pages(self, apiservers: ApiServers) -> None:
        async with reflected(apiservers, "a", "b", "c", "d", "e") as store:
            assert (store.freshness, store.names) == (Unknown(), [])
            await store.watched()
            assert (store.names, len(store.reflector.contents)) == (["a", "b", "c", "d", "e"], 5)
            assert store.freshness == Fresh(0.0)
            version = store.server.version
            assert store.asked("get") == [
                {"limit": "2"} | more for more in ({}, {"continue": f"{version}.2"}, {"continue": f"{version}.4"})
            ]

    @pytest.mark.parametrize("items", [[], None])
    async def test_of_nothing(self, apiservers: ApiServers, items: Any) -> None:
        def answer(server: FakeApiServer) -> None:
            server.answer(PATH, lambda _: web.json_response({"metadata": {"resourceVersion": "7"}, "items": items}))

        async with watched(apiservers, prepare=answer) as store:
            assert (store.freshness, store.names) == (Fresh(0.0), [])
            assert store.asked("watch")[0]["resourceVersion"] == "7"

    async def test_is_restarted_when_its_snapshot_expires(self, apiservers: ApiServers) -> None:
        def compact_once(server: FakeApiServer) -> None:
            def hook() -> None:
                server.page_hook = lambda: None
                server.compact()

            server.page_hook = hook

        async with watched(apiservers, "a", "b", "c", prepare=compact_once) as store:
            assert (store.names, store.clock.slept, store.lists) == (["a", "b", "c"], [], 4)

    async def test_that_expires_again_and_again_is_slowed_down(self, apiservers: ApiServers) -> None:
        def prepare(server: FakeApiServer) -> None:
            server.page_hook = server.compact

        async with reflected(apiservers, "a", "b", "c", prepare=prepare) as store:
            await until(lambda: len(store.clock.slept) >= 6)
            assert store.clock.slept[:6] == [0.5, 1.0, 2.0, 4.0, 5.0, 5.0]

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

    @pytest.mark.control("long-lists-hold-up-reviews", "slow-pages-hold-up-reviews")
    async def test_is_reported_in_slices(self, server: FakeApiServer, transport: KubernetesTransport) -> None:
        """Lists share the event loop with reviews: none keeps it for longer than a slice of its objects takes."""
        names = [f"n-{number}" for number in range(23)]
        for name in names:
            server.put(NAMESPACES, name)
        reported: list[str | None] = []
        turns: dict[str, list[int]] = {"decoded": [], "reduced": [], "reported": []}

        def decode(item: Any) -> Namespace:
            turns["decoded"].append(others[-1])
            return msgspec.json.decode(item, type=Namespace)

        def reduce(view: Namespace) -> Namespace:
            turns["reduced"].append(others[-1])
            return view

        def report(_: Namespace | None, new: Namespace | None) -> None:
            turns["reported"].append(others[-1])
            reported.append(new.meta.name if new else None)

        reflector = Reflector(transport, NAMESPACES, transform=reduce, on_change=report)
        reflector._decode_view = decode
        with mock.patch.multiple(module, PAGE_LIMIT=10, SLICE=4):
            async with other_turns() as others, reflecting(reflector):
                await until(lambda: not isinstance(reflector.freshness(REAL_TIME.now()), Unknown))
        assert reported == sorted(names)
        assert {what: max(Counter(taken).values()) <= 4 for what, taken in turns.items()} == dict.fromkeys(turns, True)
        assert [asked.query["limit"] for asked in server.requests(PATH, "get")][:3] == ["10"] * 3


class TestWatch:
    async def test_follows_every_change(self, store: ReflectedStore) -> None:
        store.put("b", "audit")
        await store.becomes("a", "b")
        assert store.mode("b") == "audit"
        store.put("b", "warn")
        await until(lambda: store.mode("b") == "warn")
        store.server.remove(NAMESPACES, "a")
        await store.becomes("b")
        assert store.reflector.get("a") is None
        assert (store.lists, store.changes) == (1, [(None, "a"), (None, "b"), ("b", "b"), ("a", None)])

    async def test_asks_for_bookmarks_and_an_end_and_reports_only_what_the_view_shows(
        self, store: ReflectedStore
    ) -> None:
        expected = {"watch": "true", "allowWatchBookmarks": "true", "timeoutSeconds": "240"}
        assert store.asked("watch")[0] == expected | {"resourceVersion": str(store.server.version)}
        store.server.put(NAMESPACES, "a", metadata={"labels": {"mode": "enforce"}}, status={"phase": "Terminating"})
        store.server.send({"type": "DELETED", "object": {"metadata": {"name": "never-seen"}}})
        store.put("b")
        await store.becomes("a", "b")
        assert store.changes == [(None, "a"), (None, "b")]

    async def test_goes_on_where_events_and_bookmarks_left_off(self, store: ReflectedStore) -> None:
        store.put("b")
        await store.becomes("a", "b")
        after_event = str(store.server.version)
        store.server.end_watches()
        await store.watched(2)
        store.server.bookmark()
        after_bookmark = str(store.server.version)
        store.server.end_watches()
        await store.watched(3)
        assert [query["resourceVersion"] for query in store.asked("watch")[1:3]] == [after_event, after_bookmark]
        assert (store.lists, store.clock.slept) == (1, [])

    async def test_survives_a_cut_in_the_middle_of_a_line(self, store: ReflectedStore) -> None:
        store.server.cut()
        await store.watched(2)
        store.put("b")
        await store.becomes("a", "b")
        assert (store.lists, store.clock.slept) == (1, [0.25])

    async def test_lines_of_many_megabytes_unknown_events_and_floods(self, store: ReflectedStore) -> None:
        store.server.send(b'\r\n\n{"type":"NOVELTY","object":{}}\n')
        store.server.put(NAMESPACES, "big", metadata={"managedFields": ["x" * (5 << 20)]})
        store.put("small")
        await store.becomes("a", "big", "small")
        events = [{"type": "ADDED", "object": {"metadata": {"name": f"ns{number}"}}} for number in range(500)]
        store.server.send(b"".join(msgspec.json.encode(event) + b"\n" for event in events))
        await until(lambda: len(store.reflector.contents) == 503)
        assert store.lists == 1


class TestGone:
    @pytest.mark.parametrize("event", [EXPIRED, {"type": "ERROR", "object": {"reason": "Gone"}}])
    async def test_as_an_event_relists_at_once(self, store: ReflectedStore, event: dict[str, Any]) -> None:
        store.server.send(event)
        await until(lambda: store.lists == 2)
        assert store.clock.slept == []
        assert store.problem is None

    async def test_as_an_answer(self, store: ReflectedStore) -> None:
        store.server.fail(PATH, 410, "Expired", verb="watch")
        store.server.end_watches()
        await until(lambda: store.lists == 2)

    async def test_what_was_removed_meanwhile_disappears(self, apiservers: ApiServers) -> None:
        async with watched(apiservers, "a", "b", "c") as store:
            store.server.end_watches()
            store.server.fail(PATH, 503, verb="watch")
            store.server.remove(NAMESPACES, "b")
            store.put("c", "audit")
            store.put("d")
            store.server.compact()
            await store.becomes("a", "c", "d")
            assert (store.mode("c"), store.changes[3:]) == ("audit", [("b", None), ("c", "c"), (None, "d")])

    async def test_nobody_sees_half_a_list(self, apiservers: ApiServers) -> None:
        async with watched(apiservers, "a", "b", "c") as store:
            release = asyncio.Event()
            store.server.page_hook = lambda: store.server.hang(PATH, release)
            store.server.remove(NAMESPACES, "a")
            store.server.put(NAMESPACES, "d")
            await store.becomes("b", "c", "d")
            store.server.send(EXPIRED)
            store.server.put(NAMESPACES, "e")
            await until(lambda: store.lists == 4)
            assert store.names == ["b", "c", "d"]
            store.server.page_hook = lambda: None
            release.set()
            await store.becomes("b", "c", "d", "e")

    async def test_in_a_circle_is_slowed_down(self, apiservers: ApiServers) -> None:
        expired = partial(FakeApiServer.fail, path=PATH, code=410, reason="Expired", times=5, verb="watch")
        async with reflected(apiservers, prepare=expired) as store:
            await store.watched(6)
            assert store.clock.slept == [0.5, 1.0, 2.0, 4.0]


class TestAbsent:
    async def test_a_type_that_is_not_served_counts_as_empty(
        self, server: FakeApiServer, transport: KubernetesTransport
    ) -> None:
        clock = HeldClock()
        reflector = Reflector(transport, KUBEVIRTS, clock=clock)
        async with reflecting(reflector):
            await until(lambda: reflector.freshness(clock.now()) == Fresh(0.0))
            assert len(reflector.contents) == 0
            await until(lambda: clock.slept == [30.0])
            server.put(KUBEVIRTS, "kubevirt", "kubevirt")
            clock.advance(30.0)
            await until(lambda: reflector.get("kubevirt", "kubevirt"))

    async def test_a_type_that_is_removed_becomes_empty(self, store: ReflectedStore) -> None:
        store.server.unserve(NAMESPACES)
        store.server.end_watches()
        await store.becomes()
        assert store.changes[1:] == [("a", None)]
        await until(lambda: 30.0 in store.clock.slept)

    async def test_one_of_several_api_servers_that_does_not_serve_a_kind_empties_no_store(
        self, store: ReflectedStore
    ) -> None:
        """Behind one address one may be older, or have just been started: 404 from it, 200 from the other."""
        store.server.fail(PATH, 404, times=2, verb="get")
        store.server.send(EXPIRED)
        await until(lambda: store.lists >= 4)
        await store.watched(2)
        assert (store.names, store.changes) == (["a"], [(None, "a")])


async def test_every_sign_of_life_counts(store: ReflectedStore) -> None:
    def staleness() -> float:
        return store.freshness.age

    await until(lambda: staleness() == 0.0)
    store.clock.time += 60.0
    assert staleness() == 60.0
    store.server.bookmark()
    await until(lambda: staleness() == 0.0)
    store.put("b")
    await store.becomes("a", "b")
    store.clock.time += 60.0
    store.server.end_watches()
    await store.watched(2)
    # A watch that begins and brings nothing may be one of an API server that has stopped watching itself.
    assert staleness() == 60.0


async def test_a_store_that_nothing_proves_up_to_date_becomes_stale(store: ReflectedStore) -> None:
    store.clock.time += CURRENT_SECONDS - 1.0
    assert [store.freshness] == [Fresh(149.0)]
    store.clock.time += 1.0
    assert [store.freshness] == [Stale("age", 150.0)]
    store.server.bookmark()
    await until(lambda: store.is_current)
    assert [store.freshness] == [Fresh(0.0)]


class TestTrouble:
    async def test_a_refused_list(
        self, apiservers: ApiServers, caplog: pytest.LogCaptureFixture, golden: Golden
    ) -> None:
        caplog.set_level(logging.INFO)
        clock = HeldClock()
        forbidden = partial(FakeApiServer.fail, path=PATH, code=403, reason="Forbidden", times=3)
        async with reflected(apiservers, "a", prepare=forbidden, clock=clock) as store:
            await until(lambda: store.problem)
            golden(store.problem or "")
            assert (store.freshness, store.names) == (Unknown(api.Forbidden(store.problem or "")), [])
            for _ in range(3):
                slept = len(clock.slept)
                clock.advance(10.0)
                await until(lambda slept=slept: len(clock.slept) > slept or store.is_current)  # type: ignore[misc]
            await store.watched()
            assert store.freshness == Fresh(store.freshness.age)
            store.server.bookmark()
            await until(lambda: "up to date again" in caplog.text)
            said = [record for record in caplog.records if "namespaces" in record.getMessage()]
            assert [record.levelno for record in said] == [logging.WARNING, logging.INFO]
            golden("\n".join(record.getMessage() for record in said))

    async def test_a_refused_watch_is_made_up_for_by_lists(self, apiservers: ApiServers, golden: Golden) -> None:
        forbidden = partial(FakeApiServer.fail, path=PATH, code=403, reason="Forbidden", times=1000, verb="watch")
        async with reflected(apiservers, "a", prepare=forbidden) as store:
            await until(lambda: store.problem)
            golden(store.problem or "")
            assert store.freshness == Fresh(store.freshness.age, api.Forbidden(store.problem or ""))
            store.server.put(NAMESPACES, "b")
            await store.becomes("a", "b")

    @pytest.mark.parametrize(
        ("code", "reason"),
        [(500, "InternalError"), (429, "TooManyRequests"), (502, ""), (400, "a SECRET text"), (401, "Unauthorized")],
    )
    async def test_other_answers(self, apiservers: ApiServers, code: int, reason: str, golden: Golden) -> None:
        fails = partial(FakeApiServer.fail, path=PATH, code=code, reason=reason, times=100)
        async with reflected(apiservers, "a", prepare=fails, clock=HeldClock()) as store:
            await until(lambda: store.problem)
            assert "SECRET" not in (store.problem or "")
            golden(store.problem or "")
            assert type(store.freshness.problem) is Unavailable

    async def test_an_answer_that_is_no_json(self, apiservers: ApiServers) -> None:
        def prepare(server: FakeApiServer) -> None:
            server.answer(PATH, lambda _: web.Response(text="<html>", status=504))
            server.answer(PATH, lambda _: web.Response(text="<html>"))
            server.answer(PATH, lambda _: web.json_response({"items": [{"metadata": {"name": 7}}]}))

        async with watched(apiservers, "a", prepare=prepare) as store:
            assert (store.names, store.clock.slept) == (["a"], [0.25, 0.5, 1.0])

    async def test_starts_slowly_and_doubles(self, apiservers: ApiServers) -> None:
        async with watched(apiservers, "a", prepare=lambda server: server.fail(PATH, 500, times=7)) as store:
            assert store.clock.slept == [0.25, 0.5, 1.0, 2.0, 4.0, 5.0, 5.0]

    async def test_server_errors_in_a_watch_need_no_list_until_the_version_is_refused_three_times(
        self, store: ReflectedStore
    ) -> None:
        store.server.send(FAILED)
        await store.watched(2)
        assert store.lists == 1
        store.put("b")
        await store.becomes("a", "b")
        assert store.lists == 1
        store.server.fail(PATH, 504, "Timeout", times=3, verb="watch")  # "Too large resource version"
        store.server.end_watches()
        await until(lambda: store.lists == 2)

    async def test_progress_in_between_dispels_the_doubt(self, apiservers: ApiServers) -> None:
        async with reflected(apiservers) as store:
            for watches in range(1, 6):
                await store.watched(watches)
                store.put(f"n{watches}")
                await until(lambda watches=watches: len(store.names) == watches)  # type: ignore[misc]
                store.server.send(FAILED)
                await until(lambda watches=watches: len(store.clock.slept) == watches)  # type: ignore[misc]
            assert (store.lists, store.clock.slept) == (1, [0.25] * 5)

    async def test_a_server_that_is_starting_raises_no_doubt(self, store: ReflectedStore) -> None:
        store.server.fail(PATH, 503, times=8, verb="watch")
        store.server.end_watches()
        await store.watched(10)
        assert store.lists == 1

    async def test_a_poisoned_event_ends_in_a_list(self, store: ReflectedStore) -> None:
        while store.lists < 2:
            store.server.send({"type": "MODIFIED", "object": {"metadata": {"name": 7}}})
            await asyncio.sleep(0.005)
        await until(lambda: store.problem is None)

    async def test_watches_that_end_at_once_are_slowed_down(self, store: ReflectedStore) -> None:
        store.server.answer(PATH, lambda _: web.Response(), times=3, verb="watch")
        store.server.end_watches()
        await until(lambda: len(store.asked("watch")) >= 5)
        assert (store.clock.slept[:3], store.lists) == ([0.25, 0.5, 1.0], 1)

    async def test_a_long_watch_forgives_earlier_failures(self, apiservers: ApiServers) -> None:
        async with reflected(apiservers, "a") as store:
            store.server.fail(PATH, 500, times=5)
            await store.watched()
            store.clock.time += 60.0
            store.server.cut()
            await store.watched(2)
            assert store.clock.slept[-1] == 0.25

    async def test_a_silent_watch_is_cut(self, apiservers: ApiServers) -> None:
        timing = {"WATCH_SECONDS": (0, 0), "WATCH_MARGIN_SECONDS": 0.5}
        async with reflected(apiservers, "a", timing=timing) as store:
            # On a slow machine none may live long enough to be seen open.
            await until(lambda: len(store.asked("watch")) >= 2)
            assert store.lists == 1
            assert store.clock.slept

    async def test_a_silent_list_is_cut(self, apiservers: ApiServers, golden: Golden) -> None:
        clock = HeldClock()
        hangs = partial(FakeApiServer.hang, path=PATH, release=asyncio.Event(), times=1)
        async with reflected(apiservers, "a", prepare=hangs, clock=clock, timing={"LIST_SECONDS": 0.05}) as store:
            await until(lambda: store.problem)
            golden(store.problem or "")
            while not store.names:  # on a slow machine the next one may be cut, too
                clock.advance(10.0)
                await asyncio.sleep(0.01)

    async def test_no_api_server_at_all(self, transport: KubernetesTransport) -> None:
        clock = HeldClock()
        reflector = Reflector(transport, NAMESPACES, clock=clock)
        await transport.close()
        async with reflecting(reflector):
            await until(lambda: clock.slept)
        assert reflector.freshness(clock.now()) == Unknown(
            Unavailable("the connection to the API server has been closed")
        )
        assert 0.25 <= clock.slept[0] <= 0.5


class TestHostile:
    LINE = b'{"metadata":{"name":"deep","resourceVersion":"%d"},"spec":' + b"[" * 5000 + b"]" * 5000 + b"}"

    @pytest.mark.control("deep-objects-in-scans")
    async def test_an_object_that_is_too_deep_ends_no_watch(self, store: ReflectedStore) -> None:
        for _ in range(3):
            store.server.version += 1
            store.server.send(b'{"type":"MODIFIED","object":' + self.LINE % store.server.version + b"}\n")
        after = str(store.server.version)
        # Nothing that is read of it lies so deep, so it is known as a list would show it.
        await store.becomes("a", "deep")
        store.server.end_watches()
        await store.watched(2)
        assert (store.asked("watch")[1]["resourceVersion"], store.lists) == (after, 1)
        store.put("b")
        await store.becomes("a", "b", "deep")

    @pytest.mark.control("deep-objects-in-scans")
    async def test_nor_a_list(self, apiservers: ApiServers) -> None:
        deep = partial(FakeApiServer.put, resource=NAMESPACES, name="c-deep", spec=DEEP)
        async with watched(apiservers, "a", "b", "d", prepare=deep) as store:
            assert store.names == ["a", "b", "c-deep", "d"]
            assert store.problem is None

    @pytest.mark.control("watches-filled")
    async def test_no_more_is_kept_than_may_be(self, apiservers: ApiServers) -> None:
        async with watched(apiservers, "a", "b", "c", store=partial(ObjectStore, 2), largest=1000) as store:
            assert store.names == ["a", "b"]
            store.put("d")
            store.server.remove(NAMESPACES, "a")
            await store.becomes("b")
            store.put("e")
            await store.becomes("b", "e")
            store.server.put(NAMESPACES, "e", metadata={"annotations": {"a": "x" * 1000}})
            await store.becomes("b")
            assert store.changes[-1] == ("e", None)


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
        self, store: ReflectedStore
    ) -> None:
        store.server.restore(await store.bring_future())
        store.put("c")
        await asyncio.sleep(0.05)
        assert store.names == ["a", "new"], "the watch is silent, without an error"

        assert await store.reflector.verify() is None

        await store.becomes("a", "c")
        assert store.mode("a") == "enforce"
        assert store.is_current
        assert store.lists == 2
        assert await store.reflector.verify() is None
        assert len(store.restores) == 1
        # What has changed is reported as after any list.
        assert ("new", None) in store.changes

    async def test_nothing_in_the_store_counts_until_it_has_been_listed(self, store: ReflectedStore) -> None:
        store.server.restore(await store.bring_future())
        release = store.server.hang(PATH, verb="get")
        await store.reflector.verify()
        assert [store.freshness] == [Stale("restore", math.inf)]
        release.set()
        await until(lambda: store.is_current)
        assert store.names == ["a"]

    async def test_a_busy_watch_ends_too(self, transport: KubernetesTransport, monkeypatch: pytest.MonkeyPatch) -> None:
        """The next chunk is there already when the store stops counting, so that nothing waits for the watch's end."""
        taken: list[int] = []

        async def watch(*_: object) -> AsyncIterator[bytes]:
            for number in range(9):
                taken.append(number)
                yield b'{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"900"}}}\n'
                if number == 3:
                    reflector.distrust()

        monkeypatch.setattr(transport, "watch", watch)
        reflector = Reflector(transport, NAMESPACES)
        reflector._version = "100"
        await reflector._watch()
        assert taken == [0, 1, 2, 3, 4]

    async def test_a_list_that_is_older_than_what_was_seen_says_it_too(self, store: ReflectedStore) -> None:
        store.server.restore(await store.bring_future())
        store.server.send(EXPIRED)
        await store.becomes("a")
        await until(lambda: store.restores)
        assert store.is_current
        assert store.asked("verify") == []

    async def test_after_a_lost_connection_etcd_is_asked_before_the_watch_goes_on(self, store: ReflectedStore) -> None:
        store.server.restore(await store.bring_future())
        store.server.cut()
        await store.becomes("a")
        assert [query["resourceVersion"] for query in store.asked("verify")] == ["103"]
        assert store.restores

    async def test_an_api_server_that_was_not_restarted_is_not_believed(
        self, store: ReflectedStore, caplog: pytest.LogCaptureFixture
    ) -> None:
        """It lists from its watch cache, which is in the lost future as well, until it is restarted."""
        saved = await store.bring_future()
        store.server.restore(saved, cached=True)
        await store.reflector.verify()
        await until(lambda: len(store.asked("verify")) >= 2)
        await until(lambda: "restart it" in caplog.text)
        assert not store.is_current
        # etcd reaches the version again: the watch cache is a mixture of both now, which nothing shows.
        store.server.version = 200
        while store.lists < 5:
            store.server.end_watches()
            await asyncio.sleep(0.005)
        assert not store.is_current
        # Restarted before that, its lists are older than what was seen.
        store.server.restore(saved)
        while not store.is_current:
            store.server.end_watches()
            await asyncio.sleep(0.005)
        assert (store.names, caplog.text.count("restart it")) == (["a"], 1)

    async def test_an_api_server_that_lags_behind_costs_one_list_and_no_alarm(self, store: ReflectedStore) -> None:
        """Behind one address there may be several; a watch cache may be older than what another one has said."""
        store.put("b")
        await store.becomes("a", "b")
        store.server.send({"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "1"}}})
        await until(lambda: store.lists >= 2)
        await store.watched(2)
        assert store.names == ["a", "b"]
        assert store.is_current
        assert store.restores == []

    @pytest.mark.parametrize(
        ("code", "message", "is_future"),
        [
            (500, "etcdserver: mvcc: required revision is a future revision", True),  # before Kubernetes 1.34
            *((410, "The provided resource version is too old", False), (404, "", False)),
            *((500, "something else", None), (429, "", None)),
        ],
    )
    async def test_what_an_api_server_says_of_a_version(
        self, store: ReflectedStore, code: int, message: str, is_future: bool | None
    ) -> None:
        body = status(code, "", message)
        store.server.answer(PATH, lambda _: web.json_response(body, status=code), verb="verify")
        assert isinstance(await store.reflector.verify(), Unavailable) is (is_future is None)
        assert bool(store.restores) is bool(is_future)

    async def test_a_quiet_watch_has_the_api_server_ask_etcd_for_its_progress(self, store: ReflectedStore) -> None:
        """Without that it would send no bookmark where etcd notifies it once in ten minutes."""
        store.clock.time += QUIET_SECONDS / 2
        await store.reflector.verify()
        assert store.asked("progress") == []
        store.clock.time += QUIET_SECONDS / 2
        await store.reflector.verify()
        # A list without resourceVersion, of one name: consistent and small.
        assert store.asked("progress") == [{"fieldSelector": "metadata.name=kubevirt-webhook"}]
        store.server.send({"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": str(store.server.version)}}})
        await until(lambda: store.freshness == Fresh(0.0))
        await store.reflector.verify()
        assert (len(store.asked("progress")), store.names) == (1, ["a"])

    async def test_no_answer_is_no_verdict(self, store: ReflectedStore) -> None:
        # aiohttp repeats a GET once on a connection that it has kept.
        store.server.answer(PATH, broken, verb="verify", times=2)
        assert isinstance(await store.reflector.verify(), Unavailable)
        assert store.is_current


@pytest.mark.repeats
class TestFrozenWatches:
    async def test_it_is_cut_and_the_second_one_in_a_row_leads_to_a_list(self, apiservers: ApiServers) -> None:
        """The peer is alive and says nothing: what it does not say is found by a list."""
        async with reflected(apiservers, "a", timing={"SILENCE_SECONDS": 0.05}) as store:
            await until(lambda: len(store.asked("watch")) >= 3 and store.lists >= 2)
            assert store.names == ["a"]

    async def test_bookmarks_keep_it_open(self, store: ReflectedStore) -> None:
        watching = store.reflector._watching
        assert watching
        ends = watching.when() or 0.0
        store.server.bookmark()
        await until(lambda: (watching.when() or 0.0) > ends, "the end of the watch to be put off")
        assert len(store.asked("watch")) == 1


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


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(steps=st.lists(st.sampled_from(sorted(STEPS)) | CHANGES, max_size=40))
async def test_whatever_happens_it_ends_with_the_truth(
    apiservers: ApiServers, steps: list[str | tuple[str, str | None]]
) -> None:
    async with reflected(apiservers, "a", "b", "c") as store:
        for step in steps:
            if isinstance(step, str):
                STEPS[step](store.server)
                await asyncio.sleep(0.002 if step == "wait" else 0)
            elif step[1]:
                store.put(step[0], step[1])
            elif ("", step[0]) in store.server.held(NAMESPACES):
                store.server.remove(NAMESPACES, step[0])
        store.server.heal()
        held = store.server.held(NAMESPACES).items()
        truth = {name: namespace["metadata"]["labels"]["mode"] for (_, name), namespace in held}
        await until(lambda: {name: store.mode(name) for name in store.names} == truth)


@given(st.lists(st.binary(max_size=40).map(lambda line: line.replace(b"\n", b"")), max_size=20), st.data())
def test_lines_come_whole_however_they_are_cut(lines: list[bytes], data: st.DataObject) -> None:
    stream = b"".join(line + b"\n" for line in lines) + b"an open end"
    buffer, found = LineBuffer(), []
    while stream:
        size = data.draw(st.integers(1, len(stream)))
        found += buffer.feed(stream[:size])
        stream = stream[size:]
    assert (found, buffer.feed(b""), buffer.feed(b"\n")) == (lines, [], [b"an open end"])


@pytest.mark.control("watches-filled")
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


def test_a_namespace_is_complete_again_once_the_object_that_was_too_large_is_gone_or_small() -> None:
    room: ObjectStore[Namespace] = ObjectStore(20, 10, lambda view: len(view.meta.name or ""))
    room.reject(("a", "x"))
    assert not room.put(("a", "y"), named("n" * 11))
    assert (room.all_of("a"), room.all_of("b")) == (None, [])
    room.drop(("a", "x"))
    assert room.all_of("a") is None, "y is still there"
    assert room.put(("a", "y"), named("n"))
    assert room.all_of("a") == [named("n")]


def test_what_is_remembered_of_objects_that_are_not_kept_is_bounded() -> None:
    room: ObjectStore[Namespace] = ObjectStore(1000, 1000)
    for place in range(3000):
        for number in range(10):
            room.reject((f"comes-and-goes-{place}", f"{number}"))
        for number in range(10):
            room.drop((f"comes-and-goes-{place}", f"{number}"))
    assert room._rejected == {}
    for number in range(2 * REJECTED_OF_A_NAMESPACE):
        room.reject(("many", f"{number}"))
    assert room._rejected == {"many": None}
    assert (room.all_of("many"), room.all_of("other")) == (None, [])
    for place in range(2 * MOST_REJECTED):
        room.reject((f"tenant-{place}", "x"))
    # Beyond the bound nothing counts as complete.
    assert (len(room._rejected), room.all_of("other")) == (0, None)
    room.drop(("tenant-1", "x"))
    assert room.all_of("tenant-1") is None


def test_the_names_of_all_namespaces_together_are_bounded() -> None:
    room: ObjectStore[Namespace] = ObjectStore(1000, 1000)
    for place in range(200):
        for number in range(REJECTED_OF_A_NAMESPACE):
            room.reject((f"tenant-{place}", f"{number}"))
    assert sum(len(names or ()) for names in room._rejected.values()) == room._rejected_names <= MOST_REJECTED
    assert [room.all_of(f"tenant-{place}") for place in range(200)] == [None] * 200


OBJECTS = st.tuples(st.sampled_from(["", "a", "b"]), st.sampled_from(["x", "y", "z"]))


@pytest.mark.control("informers-filled")
@given(st.lists(st.tuples(OBJECTS, st.sampled_from(["put", "drop", "refuse"]), st.integers(1, 9))))
def test_bytes_are_counted_right_whatever_happens(steps: list[tuple[ObjectName, str, int]]) -> None:
    room: ObjectStore[Namespace] = ObjectStore(20, 10, lambda view: len(view.meta.name or ""))
    expected: dict[ObjectName, Namespace] = {}
    missing: set[ObjectName] = set()
    for name, step, size in steps:
        expected.pop(name, None)
        missing.discard(name)
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
            missing.add(name)
    assert {name: room.get(name) for name in room.names()} == expected
    assert (len(room), len([*room])) == (len(expected),) * 2
    assert room.size == sum(len(view.meta.name or "") for view in room)
    for namespace in ("", "a", "b"):
        inside = [expected[name] for name in sorted(expected) if name[0] == namespace]
        assert room.all_of(namespace) == (None if namespace in {name[0] for name in missing} else inside)
