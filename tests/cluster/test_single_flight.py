"""The reviews of one request share ControllerRevisions for a second, unless a review requests fresh ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from tests.cluster.fake_apiserver import FakeApiServer
from tests.cluster.live_case import LiveCase, live
from webhook.cluster.single_flight import SHARED_BYTES, SHARED_SECONDS, NegativeCache, RecentAnswers
from webhook.facts import NOT_READ, ObjectKey
from webhook.k8s.types.meta import Unstructured
from webhook.kubevirt.resources import REVISIONS, UNSTRUCTURED
from webhook.kubevirt.types.views import ControllerRevision

TYPED = ObjectKey(REVISIONS, "demo", "r1")
UNTYPED = ObjectKey(UNSTRUCTURED["ControllerRevision"], "demo", "r1")
FRESH = msgspec.structs.replace(UNTYPED, fresh=True)
PATH = REVISIONS.path("demo", "r1")


def put(server: FakeApiServer, name: str = "u1.small", **more: Any) -> None:
    data = {"kind": "VirtualMachineClusterInstancetype", "metadata": {"name": name}, "spec": more}
    server.put(REVISIONS, "r1", "demo", data=data)


def gets(case: LiveCase) -> int:
    return len(case.server.requests(PATH))


async def test_the_policies_of_a_request_share_an_answer_whatever_they_read_of_it(tmp_path: Path) -> None:
    async with live(tmp_path) as case:
        put(case.server)
        first, second, third = [await case.read(key) for key in (UNTYPED, TYPED, UNTYPED)]
        assert isinstance(first, Unstructured)
        assert isinstance(second, ControllerRevision)
        assert first == third
        assert gets(case) == 1


async def test_for_a_second_an_answer_may_be_old_and_a_fresh_one_is_not(tmp_path: Path) -> None:
    async with live(tmp_path) as case:
        put(case.server)
        await case.read(UNTYPED)
        put(case.server, "u1.huge")
        old, now = await case.read(UNTYPED), await case.read(FRESH)
        assert [found.data["metadata"]["name"] for found in (old, now)] == ["u1.small", "u1.huge"]
        # Fresh objects are shared, too.
        assert case.cluster.peek(UNTYPED) == now
        case.held.advance(SHARED_SECONDS)
        assert case.cluster.peek(UNTYPED) is NOT_READ
        await case.read(UNTYPED)
        assert gets(case) == 3


async def test_absence_and_what_is_too_large_are_not_shared(tmp_path: Path) -> None:
    async with live(tmp_path) as case:
        assert [await case.read(UNTYPED), await case.read(UNTYPED)] == [None, None]
        assert gets(case) == 2
        put(case.server, fat="x" * SHARED_BYTES)
        assert [type(await case.read(key)) for key in (UNTYPED, UNTYPED)] == [Unstructured, Unstructured]
        assert gets(case) == 4


A, B, C = (("demo", name) for name in "abc")


def test_an_answer_is_shared_for_its_time() -> None:
    recent = RecentAnswers(1.0, 100)
    recent.put(A, b"one", 10.0)
    assert recent.get(A, 10.9) == b"one"
    assert recent.get(B, 10.9) is None
    assert recent.get(A, 11.0) is None
    assert recent.get(A, 10.9) is None


def test_the_newest_counts_and_lasts() -> None:
    recent = RecentAnswers(1.0, 100)
    recent.put(A, b"one", 10.0)
    recent.put(A, b"two", 10.5)
    assert recent.get(A, 11.2) == b"two"


def test_the_oldest_make_room_and_what_is_too_large_is_not_kept() -> None:
    recent = RecentAnswers(1.0, 100)
    for name in (A, B, C):
        recent.put(name, b"x" * 40, 10.0)
    assert [recent.get(name, 10.0) is not None for name in (A, B, C)] == [False, True, True]
    recent.put(A, b"x" * 101, 10.0)
    assert [recent.get(name, 10.0) for name in (A, B, C)] == [None] * 3


def test_too_many_in_a_period() -> None:
    misses = NegativeCache(2, 1.0)

    assert not misses.too_many(0.0)
    misses.add(0.0)
    assert not misses.too_many(0.0)
    misses.add(0.5)
    assert misses.too_many(0.9)
    assert not misses.too_many(1.0)
    misses.add(1.1)
    assert misses.too_many(1.2), "the last two count"
    assert not misses.too_many(1.5)
