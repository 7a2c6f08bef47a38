"""Lookups that several reviews need at once, and answers that the reviews of one request share for a second."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest
from aiohttp import web

from tests.cluster.fake_apiserver import FakeClock, status, why
from tests.cluster.live_case import LiveCase
from tests.cluster.test_live import TYPE, TYPE_PATH
from tests.golden_files import Golden
from webhook.cluster.live import SHARED_BYTES, SHARED_SECONDS, RecentAnswers
from webhook.errors import Unavailable
from webhook.facts import NOT_READ, NamespaceKey, ObjectKey
from webhook.k8s.resources import NAMESPACES
from webhook.k8s.types.meta import Namespace, Unstructured
from webhook.kubevirt.resources import INSTANCETYPES, REVISIONS, UNSTRUCTURED
from webhook.kubevirt.types.views import ControllerRevision, Instancetype


class TestJoining:
    @pytest.mark.control("slow-lookups")
    @pytest.mark.parametrize(
        ("resource", "keys"),
        [
            (INSTANCETYPES, [TYPE] * 50),
            (
                NAMESPACES,
                [NamespaceKey("small"), NamespaceKey("small", uncached=True), ObjectKey(NAMESPACES, "", "small")],
            ),
        ],
        ids=["one key", "keys of one object"],
    )
    async def test_many_askers_share_one_get(self, case: LiveCase, resource: Any, keys: list[Any]) -> None:
        namespace = "demo" if resource.namespaced else ""
        case.server.put(resource, "small", namespace)
        release, path = asyncio.Event(), resource.path(namespace, "small")
        case.server.hang(path, release)
        readers = [case.reading(key) for key in keys]
        await case.asked(path, 1)
        release.set()
        assert all(isinstance(found, Instancetype | Namespace) for found in await asyncio.gather(*readers))
        assert case.gets(path) == 1

    async def test_one_that_gives_up_leaves_it_to_the_others(self, case: LiveCase) -> None:
        case.server.put(INSTANCETYPES, "small", "demo")
        release = case.server.hang(TYPE_PATH)
        first, second, patient = case.reading(TYPE), case.reading(TYPE, 0.05), case.reading(TYPE)
        await case.asked(TYPE_PATH, 1)
        first.cancel()
        assert "timed out after" in why(await second)
        release.set()
        assert isinstance(await patient, Instancetype)
        assert first.cancelled()
        assert case.gets(TYPE_PATH) == 1

    @pytest.mark.control("slow-lookups")
    async def test_after_the_deadline_nothing_is_asked(self, case: LiveCase, golden: Golden) -> None:
        golden(why(await case.read(TYPE, -1.0)))
        assert case.server.asked == []

    @pytest.mark.parametrize(("code", "early"), [(404, type(None)), (500, Unavailable)])
    async def test_a_404_or_a_failure_from_before_is_not_trusted(
        self, case: LiveCase, code: int, early: type[Any]
    ) -> None:
        release = asyncio.Event()

        async def answer(_: web.Request) -> web.Response:
            await release.wait()
            return web.json_response(status(code), status=code)

        case.server.answer(TYPE_PATH, answer)
        first = case.reading(TYPE)
        await case.asked(TYPE_PATH, 1)
        case.server.put(INSTANCETYPES, "small", "demo")
        late = [case.reading(TYPE) for _ in range(20)]
        await asyncio.sleep(0)
        release.set()
        assert isinstance(await first, early)
        assert all(isinstance(found, Instancetype) for found in await asyncio.gather(*late))
        assert case.gets(TYPE_PATH) == 2

    async def test_a_second_404_is_an_answer(self, case: LiveCase) -> None:
        release = case.server.hang(TYPE_PATH)
        readers = [case.reading(TYPE) for _ in range(3)]
        await case.asked(TYPE_PATH, 1)
        release.set()
        assert (await asyncio.gather(*readers), case.gets(TYPE_PATH)) == ([None, None, None], 2)

    async def test_closing_answers_those_who_wait(self, case: LiveCase, golden: Golden) -> None:
        case.server.hang(TYPE_PATH)
        reader = case.reading(TYPE)
        await case.asked(TYPE_PATH, 1)
        await case.cluster.close()
        for found in (await reader, await case.read(TYPE)):
            golden(why(found))


TYPED = ObjectKey(REVISIONS, "demo", "r1")
UNTYPED = ObjectKey(UNSTRUCTURED["ControllerRevision"], "demo", "r1")
UNCACHED = msgspec.structs.replace(UNTYPED, uncached=True)
PATH = REVISIONS.path("demo", "r1")


def put(case: LiveCase, name: str = "u1.small", **more: Any) -> None:
    data = {"kind": "VirtualMachineClusterInstancetype", "metadata": {"name": name}, "spec": more}
    case.server.put(REVISIONS, "r1", "demo", data=data)


async def test_the_policies_of_a_request_share_an_answer_whatever_they_read_of_it(case: LiveCase) -> None:
    put(case)
    first, second, third = [await case.read(key) for key in (UNTYPED, TYPED, UNTYPED)]
    assert (type(first), type(second), first) == (Unstructured, ControllerRevision, third)
    assert case.gets(PATH) == 1


@pytest.mark.control("revision-recreated")
async def test_for_a_second_an_answer_may_be_old_and_a_fresh_one_is_not(case: LiveCase) -> None:
    put(case)
    await case.read(UNTYPED)
    put(case, "u1.huge")
    old, now = await case.read(UNTYPED), await case.read(UNCACHED)
    assert [found.data["metadata"]["name"] for found in (old, now)] == ["u1.small", "u1.huge"]
    # Fresh objects are shared, too.
    assert case.peek(UNTYPED) == now
    case.clock.advance(SHARED_SECONDS)
    assert case.peek(UNTYPED) is NOT_READ
    await case.read(UNTYPED)
    assert case.gets(PATH) == 3


async def test_absence_and_what_is_too_large_are_not_shared(case: LiveCase) -> None:
    assert ([await case.read(UNTYPED), await case.read(UNTYPED)], case.gets(PATH)) == ([None, None], 2)
    put(case, fat="x" * SHARED_BYTES)
    assert [type(await case.read(key)) for key in (UNTYPED, UNTYPED)] == [Unstructured, Unstructured]
    assert case.gets(PATH) == 4


A, B, C = (("demo", name) for name in "abc")


def test_the_newest_answer_counts_and_is_shared_for_its_time() -> None:
    clock = FakeClock()
    recent = RecentAnswers(clock)
    recent[A] = b"one"
    clock.time += SHARED_SECONDS / 2
    assert [recent.get(A), recent.get(B)] == [b"one", None]
    recent[A] = b"two"
    clock.time += SHARED_SECONDS / 2
    assert recent.get(A) == b"two"
    clock.time += SHARED_SECONDS / 2
    assert recent.get(A) is None


def test_the_oldest_make_room() -> None:
    recent = RecentAnswers(FakeClock())
    for name in (A, B, C):
        recent[name] = b"x" * (SHARED_BYTES // 5 * 2)
    assert [name in recent for name in (A, B, C)] == [False, True, True]


def test_what_is_too_large_is_not_kept_and_takes_nobodys_place() -> None:
    """Any user may write a ControllerRevision that is larger than all that is shared."""
    recent = RecentAnswers(FakeClock())
    recent[A], recent[B] = b"one", b"two"
    recent[C] = b"x" * (SHARED_BYTES + 1)
    assert [recent.get(name) for name in (A, B, C)] == [b"one", b"two", None]
    # What it was before is not what it is now.
    recent[A] = b"x" * (SHARED_BYTES + 1)
    assert [recent.get(name) for name in (A, B)] == [None, b"two"]
