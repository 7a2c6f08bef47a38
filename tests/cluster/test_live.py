from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from aiohttp import web

from tests.cluster.fake_apiserver import why
from tests.cluster.live_case import TYPE, TYPE_PATH, VMI, VMI_PATH, abort, declared, live, ready
from tests.waiting import until
from webhook.errors import Unavailable
from webhook.facts import NOT_READ, AccessKey, Key, ListKey, ObjectKey, SchedulerHealth, SchedulerKey, VmiKey
from webhook.k8s.client.api import Forbidden
from webhook.k8s.resources import NAMESPACES, PENDING_PODS
from webhook.kubevirt.resources import INSTANCETYPES, VMIS
from webhook.kubevirt.types.views import Instancetype, VirtualMachineInstance
from webhook.placement.machines import MIGRATIONS
from webhook.settings.model import SchedulerHealthSettings


class TestLiveObjects:
    async def test_are_read_fresh_every_time(self, tmp_path: Path) -> None:
        async with live(tmp_path) as case:
            case.server.put(INSTANCETYPES, "small", "demo", spec={"schedulerName": "one"})
            assert case.cluster.peek(TYPE) is NOT_READ
            first = await case.read(TYPE)
            case.server.put(INSTANCETYPES, "small", "demo", spec={"schedulerName": "two"})
            second = await case.read(TYPE)
            assert [found.spec.scheduler_name for found in (first, second)] == ["one", "two"]
            assert isinstance(first, Instancetype)
            assert case.cluster.peek(TYPE) is NOT_READ

    async def test_404_is_none(self, tmp_path: Path) -> None:
        async with live(tmp_path) as case:
            assert await case.read(TYPE) is None

    @pytest.mark.parametrize(
        "name", ["", ".", "..", "../../../../api/v1/namespaces/kube-system/secrets/x", "a%2Fb", "a/b"]
    )
    async def test_names_that_no_object_can_have_are_not_asked_for(self, tmp_path: Path, name: str) -> None:
        async with live(tmp_path) as case:
            assert await case.read(ObjectKey(INSTANCETYPES, "demo", name)) is None
            assert await case.read(ObjectKey(INSTANCETYPES, name, "small")) is None
            assert case.server.asked == []

    async def test_other_wild_names_stay_in_their_place(self, tmp_path: Path) -> None:
        async with live(tmp_path) as case:
            assert await case.read(ObjectKey(INSTANCETYPES, "demo", "small?watch=true#x y")) is None
            assert case.server.asked[0].path == TYPE_PATH + "?watch=true#x y"
            assert not case.server.asked[0].query

    @pytest.mark.parametrize(("code", "reason"), [(403, "Forbidden"), (500, "InternalError"), (401, "Unauthorized")])
    async def test_refusals_in_words(
        self, tmp_path: Path, code: int, reason: str, golden: Callable[[str], None]
    ) -> None:
        async with live(tmp_path) as case:
            case.server.fail(TYPE_PATH, code, reason, times=2)
            found = await case.read(TYPE)
            assert isinstance(found, Unavailable)
            assert isinstance(found, Forbidden) is (code == 403)
            golden(found.why)

    @pytest.mark.parametrize("body", ["<html>SECRET</html>", '{"spec": {"schedulerName": {"SECRET": 1}}}', "[" * 5000])
    async def test_what_can_not_be_decoded(self, tmp_path: Path, body: str) -> None:
        async with live(tmp_path) as case:
            case.server.answer(TYPE_PATH, lambda _: web.Response(text=body))
            assert await case.read(TYPE) == Unavailable("the API server's VirtualMachineInstancetype cannot be decoded")

    async def test_no_api_server(self, tmp_path: Path, golden: Callable[[str], None]) -> None:
        async with live(tmp_path) as case:
            case.server.answer(TYPE_PATH, abort, times=5)  # aiohttp itself tries a GET twice
            golden(why(await case.read(TYPE)).partition(" (")[0])

    async def test_a_get_ends_by_itself(self, tmp_path: Path, golden: Callable[[str], None]) -> None:
        async with live(tmp_path, get_seconds=0.05) as case:
            case.server.hang(TYPE_PATH, asyncio.Event())
            golden(why(await case.read(TYPE)))

    async def test_keys_of_other_kinds(self, tmp_path: Path, golden: Callable[[str], None]) -> None:
        class OtherKey(Key[str], frozen=True):
            pass

        async with live(tmp_path) as case:
            assert case.cluster.peek(OtherKey()) is NOT_READ
            golden(why(await case.read(OtherKey())))


class TestLiveVmis:
    async def test_are_remembered_by_uid(self, tmp_path: Path) -> None:
        async with live(tmp_path) as case:
            case.put_vmi(schedulerName="mine")
            assert case.cluster.peek(VMI) is NOT_READ
            found = await case.read(VMI)
            assert isinstance(found, VirtualMachineInstance)
            assert found.scheduler_name == "mine"
            assert case.cluster.peek(VMI) == found
            assert await case.read(VMI) == found
            assert len(case.server.requests(VMI_PATH)) == 1

    async def test_have_only_what_can_not_change(self, tmp_path: Path) -> None:
        async with live(tmp_path) as case:
            case.put_vmi()
            found = await case.read(VMI)
            assert found.meta.labels is None
            assert (found.meta.namespace, found.meta.name, found.meta.uid) == ("demo", "web01", "uid-1")
            assert (await case.read(ObjectKey(VMIS, "demo", "web01"))).meta.labels == {"a": "b"}

    async def test_of_another_uid_are_told_but_not_taken_for_the_one(self, tmp_path: Path) -> None:
        async with live(tmp_path) as case:
            case.put_vmi("uid-2")
            found = await case.read(VMI)
            assert found.meta.uid == "uid-2"
            assert case.cluster.peek(VMI) is NOT_READ
            assert case.cluster.peek(VmiKey("demo", "web01", "uid-2")) == found
            assert case.cluster.peek(VmiKey("evil", "web01", "uid-2")) is NOT_READ

    async def test_another_uid_from_before_is_not_trusted(self, tmp_path: Path) -> None:
        async with live(tmp_path) as case:
            release = asyncio.Event()

            async def former(_: web.Request) -> web.Response:
                await release.wait()
                return web.json_response({"metadata": {"name": "web01", "namespace": "demo", "uid": "uid-0"}})

            case.server.answer(VMI_PATH, former)
            early = case.reading(VMI)
            await case.asked(VMI_PATH, 1)
            case.put_vmi()
            late = case.reading(VMI)
            await asyncio.sleep(0)
            release.set()
            assert (await early).meta.uid == "uid-0"
            assert (await late).meta.uid == "uid-1"

    async def test_absence_is_not_remembered(self, tmp_path: Path) -> None:
        async with live(tmp_path) as case:
            assert await case.read(VMI) is None
            case.put_vmi()
            assert isinstance(await case.read(VMI), VirtualMachineInstance)

    async def test_without_uid_are_not_remembered(self, tmp_path: Path) -> None:
        async with live(tmp_path) as case:
            case.put_vmi("")
            key = VmiKey("demo", "web01", "")
            await case.read(key)
            assert case.cluster.peek(key) is NOT_READ

    async def test_the_least_recently_used_are_forgotten(self, tmp_path: Path) -> None:
        async with live(tmp_path, cached_vmis=2) as case:
            keys = [VmiKey("demo", f"vm{i}", f"u{i}") for i in range(3)]
            for key in keys:
                case.server.put(VMIS, key.name, "demo", metadata={"uid": key.uid})
            await case.read(keys[0])
            await case.read(keys[1])
            assert case.cluster.peek(keys[0]) is not NOT_READ
            await case.read(keys[2])
            assert [case.cluster.peek(key) is NOT_READ for key in keys] == [False, True, False]


class TestReadiness:
    async def test_names_what_is_missing(self, tmp_path: Path, golden: Callable[[str], None]) -> None:
        async with live(
            tmp_path,
            declared(kubevirt=SchedulerHealthSettings("lease", "a", "b")),
            prepare=lambda server: server.fail(NAMESPACES.path(), 403, times=1),
        ) as case:
            assert len(case.cluster.waiting_for()) == 4
            golden("\n".join(case.cluster.waiting_for()))
            case.cluster.start()
            await until(lambda: "403" in case.cluster.waiting_for()[0])
            golden(case.cluster.waiting_for()[0])

            def is_ready_later() -> bool:
                # More than once: the failure shows before the pause begins that follows it.
                case.held.advance(10.0)
                return not case.cluster.waiting_for()

            await until(is_ready_later)

    async def test_once_ready_stays_ready(self, tmp_path: Path) -> None:
        async with ready(tmp_path) as case:
            case.server.fail(PENDING_PODS.path(), 500, times=100)
            case.cluster.use(declared(kubevirt=SchedulerHealthSettings("pods")))
            await asyncio.sleep(0)
            assert case.cluster.waiting_for() == ()
            found = case.cluster.peek(SchedulerKey("kubevirt"))
            assert isinstance(found, SchedulerHealth)
            assert found.state != "available"


class TestLists:
    KEY = ListKey(MIGRATIONS, "demo", "kubevirt.io/vmi-name=web01")

    async def test_of_what_carries_a_label(self, tmp_path: Path) -> None:
        async with live(tmp_path) as case:
            for name, vmi, namespace in (("m1", "web01", "demo"), ("m2", "web02", "demo"), ("m3", "web01", "other")):
                case.server.put(MIGRATIONS, name, namespace, metadata={"labels": {"kubevirt.io/vmi-name": vmi}})
            assert [found.meta.name for found in await case.read(self.KEY)] == ["m1"]
            assert [found.meta.name for found in await case.read(ListKey(MIGRATIONS, "demo"))] == ["m1", "m2"]
            everywhere = await case.read(ListKey(MIGRATIONS, "", "kubevirt.io/vmi-name=web01"))
            assert [(found.meta.namespace, found.meta.name) for found in everywhere] == [
                ("demo", "m1"),
                ("other", "m3"),
            ]

    async def test_of_what_the_cluster_does_not_know(self, tmp_path: Path) -> None:
        async with live(tmp_path) as case:
            case.server.unserve(MIGRATIONS)
            assert await case.read(self.KEY) == ()
            assert await case.read(ListKey(MIGRATIONS, "../x")) == ()

    async def test_that_fail(self, tmp_path: Path) -> None:
        async with live(tmp_path) as case:
            path = MIGRATIONS.path("demo")
            case.server.fail(path, 403)
            assert "grant list on virtualmachineinstancemigrations" in (await case.read(self.KEY)).why
            case.server.answer(path, lambda _: web.Response(text="{"))
            assert "cannot be decoded" in (await case.read(self.KEY)).why
            assert "timed out after" in (await case.read(self.KEY, 0.0)).why


class TestAccess:
    KEY = AccessKey("alice", ("devs",), "1", (("scopes", ("a",)),), "use", "g", "r", "demo")
    PATH = "/apis/authorization.k8s.io/v1/subjectaccessreviews"

    @pytest.mark.parametrize("allowed", [True, False])
    async def test_is_asked_of_the_api_server(self, tmp_path: Path, allowed: bool) -> None:
        async with live(tmp_path) as case:
            case.server.answer(self.PATH, lambda _: web.json_response({"status": {"allowed": allowed}}, status=201))
            assert await case.read(self.KEY) is allowed
            (asked,) = case.server.requests(self.PATH)
            assert json.loads(asked.body)["spec"] == {
                "user": "alice",
                "groups": ["devs"],
                "uid": "1",
                "extra": {"scopes": ["a"]},
                "resourceAttributes": {"verb": "use", "group": "g", "resource": "r", "namespace": "demo"},
            }

    async def test_that_can_not_be_learnt(self, tmp_path: Path) -> None:
        async with live(tmp_path) as case:
            case.server.answer(self.PATH, lambda _: web.Response(status=403))
            assert "grant create on subjectaccessreviews" in why(await case.read(self.KEY))
