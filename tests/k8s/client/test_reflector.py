from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec
from aiohttp import web
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.cluster.fake_apiserver import FakeApiServer, HeldClock, running, status
from tests.k8s.client.reflected import PATH, reflected, watched
from tests.waiting import until
from webhook.k8s.client.clock import REAL_TIME
from webhook.k8s.client.reflector import LineBuffer, Reflector
from webhook.k8s.client.transport import connect
from webhook.k8s.resources import NAMESPACES, PENDING_PODS
from webhook.kubevirt.resources import KUBEVIRTS


class TestList:
    async def test_in_pages(self, tmp_path: Path) -> None:
        async with reflected(tmp_path, "a", "b", "c", "d", "e") as copy:
            assert not copy.reflector.has_synced
            assert math.isinf(copy.reflector.staleness(copy.clock.now()))
            await copy.watched()
            assert copy.names == ["a", "b", "c", "d", "e"]
            assert len(copy.reflector) == 5
            assert copy.reflector.has_synced
            assert [asked.query.get("continue") for asked in copy.server.requests(PATH, "get")] == [
                None,
                f"{copy.server.version}.2",
                f"{copy.server.version}.4",
            ]
            assert {asked.query["limit"] for asked in copy.server.requests(PATH, "get")} == {"2"}

    async def test_of_nothing(self, tmp_path: Path) -> None:
        async with watched(tmp_path) as copy:
            assert copy.reflector.has_synced
            assert copy.names == []

    async def test_null_items_are_none(self, tmp_path: Path) -> None:
        async with watched(
            tmp_path, prepare=lambda server: server.answer(PATH, lambda _: web.json_response({"items": None}))
        ) as copy:
            assert copy.reflector.has_synced
            assert copy.server.requests(PATH, "watch")[0].query["resourceVersion"] == ""

    async def test_is_restarted_when_its_snapshot_expires(self, tmp_path: Path) -> None:
        def compact_once(server: FakeApiServer) -> None:
            def hook() -> None:
                server.page_hook = lambda: None
                server.compact()

            server.page_hook = hook

        async with watched(tmp_path, "a", "b", "c", prepare=compact_once) as copy:
            assert copy.names == ["a", "b", "c"]
            assert copy.clock.slept == []
            assert copy.lists == 4

    async def test_that_expires_again_and_again_is_slowed_down(self, tmp_path: Path) -> None:
        def prepare(server: FakeApiServer) -> None:
            server.page_hook = server.compact

        async with reflected(tmp_path, "a", "b", "c", prepare=prepare) as copy:
            await until(lambda: len(copy.clock.slept) >= 6)
            assert copy.clock.slept[:6] == [0.5, 1.0, 2.0, 4.0, 5.0, 5.0]

    async def test_uses_selectors_and_the_namespace(self, tmp_path: Path) -> None:
        server = FakeApiServer()
        for namespace in ("demo", "other"):
            for phase in ("Pending", "Running"):
                server.put(PENDING_PODS, phase.lower(), namespace, status={"phase": phase})
        async with running(server):
            transport = await connect(server.kubeconfig(tmp_path / "config"))
            reflector = Reflector(
                transport,
                PENDING_PODS,
                field_selector="status.phase=Pending",
                label_selector="app in (a,b)",
                transform=lambda pod: msgspec.structs.replace(pod, status=None),
            )
            task = asyncio.create_task(reflector.run())
            await until(lambda: server.watching)
            assert sorted((pod.meta.namespace, pod.meta.name) for pod in reflector) == [
                ("demo", "pending"),
                ("other", "pending"),
            ]
            kept = reflector.get("pending", "demo")
            assert kept
            assert kept.status is None
            assert {asked.query["labelSelector"] for asked in server.asked} == {"app in (a,b)"}
            server.put(PENDING_PODS, "pending", "demo", status={"phase": "Running"})
            await until(lambda: len(reflector) == 1)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            await transport.close()


class TestWatch:
    async def test_follows_every_change(self, tmp_path: Path) -> None:
        async with watched(tmp_path, "a") as copy:
            copy.put("b", "audit")
            await copy.becomes("a", "b")
            assert copy.mode("b") == "audit"
            copy.put("b", "warn")
            await until(lambda: copy.mode("b") == "warn")
            copy.server.remove(NAMESPACES, "a")
            await copy.becomes("b")
            assert copy.reflector.get("a") is None
            assert copy.lists == 1
            assert copy.changes == [(None, "a"), (None, "b"), ("b", "b"), ("a", None)]

    async def test_reports_only_what_the_view_shows(self, tmp_path: Path) -> None:
        async with watched(tmp_path, "a") as copy:
            copy.server.put(NAMESPACES, "a", metadata={"labels": {"mode": "enforce"}}, status={"phase": "Terminating"})
            copy.server.send({"type": "DELETED", "object": {"metadata": {"name": "never-seen"}}})
            copy.put("b")
            await copy.becomes("a", "b")
            assert copy.changes == [(None, "a"), (None, "b")]

    async def test_needs_no_listener(self, tmp_path: Path) -> None:
        async with watched(tmp_path, "a", on_change=None) as copy:
            copy.put("b")
            await copy.becomes("a", "b")
            copy.server.remove(NAMESPACES, "b")
            await copy.becomes("a")

    async def test_asks_for_bookmarks_and_an_end(self, tmp_path: Path) -> None:
        async with watched(tmp_path) as copy:
            query = copy.server.requests(PATH, "watch")[0].query
            assert query["allowWatchBookmarks"] == "true"
            assert query["timeoutSeconds"] == "240"
            assert query["resourceVersion"] == str(copy.server.version)

    async def test_goes_on_where_events_and_bookmarks_left_off(self, tmp_path: Path) -> None:
        async with watched(tmp_path, "a") as copy:
            copy.put("b")
            await copy.becomes("a", "b")
            after_event = str(copy.server.version)
            copy.server.end_watches()
            await copy.watched(2)
            copy.server.bookmark()
            after_bookmark = str(copy.server.version)
            copy.server.end_watches()
            await copy.watched(3)
            versions = [asked.query["resourceVersion"] for asked in copy.server.requests(PATH, "watch")]
            assert versions[1:3] == [after_event, after_bookmark]
            assert copy.lists == 1
            assert copy.clock.slept == []

    async def test_survives_a_cut_in_the_middle_of_a_line(self, tmp_path: Path) -> None:
        async with watched(tmp_path, "a") as copy:
            copy.server.cut()
            await copy.watched(2)
            copy.put("b")
            await copy.becomes("a", "b")
            assert copy.lists == 1
            assert copy.clock.slept == [0.25]
            assert copy.reflector.problem is None

    async def test_lines_of_many_megabytes(self, tmp_path: Path) -> None:
        async with watched(tmp_path, "a") as copy:
            copy.server.put(NAMESPACES, "big", metadata={"managedFields": ["x" * (5 << 20)]})
            copy.put("small")
            await copy.becomes("a", "big", "small")

    async def test_a_flood_lets_others_run(self, tmp_path: Path) -> None:
        async with watched(tmp_path) as copy:
            lines = [
                msgspec.json.encode({"type": "ADDED", "object": {"metadata": {"name": f"ns{i}"}}}) for i in range(500)
            ]
            copy.server.send(b"\n".join(lines) + b"\n")
            await until(lambda: len(copy.reflector) == 500)

    async def test_unknown_events_and_empty_lines_are_passed_over(self, tmp_path: Path) -> None:
        async with watched(tmp_path) as copy:
            copy.server.send(b'\r\n\n{"type":"NOVELTY","object":{}}\n')
            copy.put("a")
            await copy.becomes("a")
            assert copy.lists == 1


class TestGone:
    async def test_as_an_event_relists_at_once(self, tmp_path: Path) -> None:
        async with watched(tmp_path, "a", "b") as copy:
            copy.server.send({"type": "ERROR", "object": status(410, "Expired")})
            await until(lambda: copy.lists == 2)
            assert copy.clock.slept == []
            assert copy.reflector.problem is None

    async def test_by_its_reason_alone(self, tmp_path: Path) -> None:
        async with watched(tmp_path, "a", "b") as copy:
            copy.server.send({"type": "ERROR", "object": {"reason": "Gone"}})
            await until(lambda: copy.lists == 2)

    async def test_as_an_answer(self, tmp_path: Path) -> None:
        async with watched(tmp_path, "a", "b") as copy:
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
            assert copy.mode("c") == "audit"
            assert copy.changes[3:] == [("b", None), ("c", "c"), (None, "d")]

    async def test_nobody_sees_half_a_list(self, tmp_path: Path) -> None:
        async with watched(tmp_path, "a", "b", "c") as copy:
            release = asyncio.Event()
            copy.server.page_hook = lambda: copy.server.hang(PATH, release)
            copy.server.remove(NAMESPACES, "a")
            copy.server.put(NAMESPACES, "d")
            await copy.becomes("b", "c", "d")
            copy.server.send({"type": "ERROR", "object": status(410, "Expired")})
            copy.server.put(NAMESPACES, "e")
            await until(lambda: copy.lists == 4)
            assert copy.names == ["b", "c", "d"]
            copy.server.page_hook = lambda: None
            release.set()
            await copy.becomes("b", "c", "d", "e")

    async def test_in_a_circle_is_slowed_down(self, tmp_path: Path) -> None:
        async with reflected(
            tmp_path, prepare=lambda server: server.fail(PATH, 410, "Expired", times=5, verb="watch")
        ) as copy:
            await copy.watched(6)
            assert copy.clock.slept == [0.5, 1.0, 2.0, 4.0]


class TestAbsent:
    async def test_a_type_that_is_not_served_counts_as_empty(self, tmp_path: Path) -> None:
        server = FakeApiServer()
        clock = HeldClock()
        async with running(server):
            transport = await connect(server.kubeconfig(tmp_path / "config"))
            reflector = Reflector(transport, KUBEVIRTS, clock=clock)
            task = asyncio.create_task(reflector.run())
            await until(lambda: reflector.has_synced)
            assert len(reflector) == 0
            assert reflector.problem is None
            assert reflector.staleness(clock.now()) == 0.0
            await until(lambda: clock.slept == [30.0])
            server.put(KUBEVIRTS, "kubevirt", "kubevirt")
            clock.advance(30.0)
            await until(lambda: reflector.get("kubevirt", "kubevirt"))
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            await transport.close()

    async def test_a_type_that_is_removed_becomes_empty(self, tmp_path: Path) -> None:
        async with watched(tmp_path, "a", "b") as copy:
            copy.server.unserve(NAMESPACES)
            copy.server.end_watches()
            await copy.becomes()
            assert copy.changes[2:] == [("a", None), ("b", None)]
            await until(lambda: 30.0 in copy.clock.slept)


class TestStaleness:
    async def test_every_sign_of_life_counts(self, tmp_path: Path) -> None:
        async with watched(tmp_path, "a") as copy:
            await until(lambda: copy.reflector.staleness(copy.clock.now()) == 0.0)
            copy.clock.time += 60.0
            assert copy.reflector.staleness(copy.clock.now()) == 60.0
            copy.server.bookmark()
            await until(lambda: copy.reflector.staleness(copy.clock.now()) == 0.0)
            copy.put("b")
            await until(lambda: copy.names == ["a", "b"])
            copy.clock.time += 60.0
            copy.server.end_watches()
            await copy.watched(2)
            # A watch that begins and brings nothing may be one of an API server that has stopped watching itself.
            assert copy.reflector.staleness(copy.clock.now()) == 60.0


STEPS: dict[str, Callable[[FakeApiServer], None]] = {
    "gone": lambda server: server.send({"type": "ERROR", "object": status(410, "Expired")}),
    "error": lambda server: server.send({"type": "ERROR", "object": status(500, "InternalError")}),
    "garbage": lambda server: server.send(b"}{\n"),
    "bookmark": FakeApiServer.bookmark,
    "end": FakeApiServer.end_watches,
    "cut": FakeApiServer.cut,
    "compact": FakeApiServer.compact,
    "refuse a watch": lambda server: server.fail(PATH, 504, "Timeout", verb="watch"),
    "refuse a list": lambda server: server.fail(PATH, 500, "InternalError", verb="get"),
    "wait": lambda _: None,
}


@settings(max_examples=40, deadline=None)
@given(
    st.lists(
        st.one_of(
            st.sampled_from(sorted(STEPS)),
            st.tuples(st.sampled_from("abcdefg"), st.sampled_from(["enforce", "audit", None])),
        ),
        max_size=40,
    )
)
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
            truth = {
                name: held["metadata"]["labels"]["mode"] for (_, name), held in copy.server.held(NAMESPACES).items()
            }
            await until(lambda: {name: copy.mode(name) for name in copy.names} == truth)

    with TemporaryDirectory() as directory:
        asyncio.run(run(Path(directory)))


@given(st.lists(st.binary(max_size=40).map(lambda line: line.replace(b"\n", b"")), max_size=20), st.data())
def test_lines_come_whole_however_they_are_cut(lines: list[bytes], data: st.DataObject) -> None:
    stream = b"".join(line + b"\n" for line in lines) + b"an open end"
    buffer = LineBuffer()
    found = []
    while stream:
        size = data.draw(st.integers(1, len(stream)))
        found += buffer.feed(stream[:size])
        stream = stream[size:]
    assert found == lines
    assert buffer.feed(b"") == []
    assert buffer.feed(b"\n") == [b"an open end"]


async def test_real_time_passes() -> None:
    before = REAL_TIME.now()
    await REAL_TIME.sleep(0.01)
    assert REAL_TIME.now() > before
    assert REAL_TIME.wall() > 1_700_000_000
