from __future__ import annotations

import asyncio
import json
import logging
from pathlib import Path
from typing import Any

import msgspec
import pytest
from aiohttp import web

from tests.builders import settings
from tests.cluster.fake_apiserver import FakeApiServer, HeldClock, status
from tests.cluster.live_case import declared, live
from tests.waiting import until
from webhook import names
from webhook.cluster.live import ABSENT_NAMESPACES
from webhook.errors import Unavailable
from webhook.facts import (
    NOT_READ,
    AccessKey,
    Key,
    KubeVirtKey,
    ListKey,
    NamespaceKey,
    NodesKey,
    ObjectKey,
    SchedulerHealth,
    SchedulerKey,
    VmiKey,
)
from webhook.k8s.client.resources import LEASES, NAMESPACES, NODES, PODS
from webhook.k8s.views import Namespace
from webhook.kubevirt.config import ClusterConfig
from webhook.kubevirt.resources import INSTANCETYPES, KUBEVIRTS, VMIS
from webhook.kubevirt.views import Instancetype, VirtualMachineInstance
from webhook.placement.index import NodeIndex
from webhook.placement.migrations import MIGRATIONS
from webhook.settings.snapshot import SchedulerHealthSettings

VMI = VmiKey("demo", "web01", "uid-1")
VMI_PATH = VMIS.path("demo", "web01")
TYPE = ObjectKey(INSTANCETYPES, "demo", "small")
TYPE_PATH = INSTANCETYPES.path("demo", "small")


def configuration(case: Any) -> Any:
    """KubeVirt's configuration as policies read it."""
    install: Any = case.cluster.peek(KubeVirtKey())
    return install and install.configuration


class TestObjects:
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

    @pytest.mark.parametrize(
        ("code", "reason", "why"),
        [
            (
                403,
                "Forbidden",
                (
                    "the API server denied the request (403): grant get on "
                    "virtualmachineinstancetypes.instancetype.kubevirt.io in namespace demo"
                ),
            ),
            (500, "InternalError", "the API server answered 500 InternalError to get virtualmachineinstancetypes"),
            (
                401,
                "Unauthorized",
                "the API server answered 401: it does not accept the credentials of kubevirt-webhook",
            ),
        ],
    )
    async def test_refusals_in_words(self, tmp_path: Path, code: int, reason: str, why: str) -> None:
        async with live(tmp_path) as case:
            case.server.fail(TYPE_PATH, code, reason, times=2)
            found = await case.read(TYPE)
            assert isinstance(found, Unavailable)
            assert found.why == why

    @pytest.mark.parametrize("body", ["<html>SECRET</html>", '{"spec": {"schedulerName": {"SECRET": 1}}}', "[" * 5000])
    async def test_what_can_not_be_decoded(self, tmp_path: Path, body: str) -> None:
        async with live(tmp_path) as case:
            case.server.answer(TYPE_PATH, lambda _: web.Response(text=body))
            assert await case.read(TYPE) == Unavailable("the API server's VirtualMachineInstancetype cannot be decoded")

    async def test_no_api_server(self, tmp_path: Path) -> None:
        async with live(tmp_path) as case:
            case.server.answer(TYPE_PATH, _abort, times=5)  # aiohttp itself tries a GET twice
            found = await case.read(TYPE)
            assert isinstance(found, Unavailable)
            assert found.why.startswith("the connection to the API server broke")

    async def test_a_get_ends_by_itself(self, tmp_path: Path) -> None:
        async with live(tmp_path, get_seconds=0.05) as case:
            case.server.hang(TYPE_PATH, asyncio.Event())
            assert await case.read(TYPE) == Unavailable("the API server did not answer within 50 ms")

    async def test_keys_of_other_kinds(self, tmp_path: Path) -> None:
        class OtherKey(Key[str], frozen=True):
            pass

        async with live(tmp_path) as case:
            assert case.cluster.peek(OtherKey()) is NOT_READ
            assert await case.read(OtherKey()) == Unavailable("OtherKey cannot be read from a cluster")


async def _abort(request: web.Request) -> web.StreamResponse:
    assert request.transport
    request.transport.abort()
    return web.Response()


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
                for key in (
                    NamespaceKey("demo"),
                    NamespaceKey("demo", fresh=True),
                    ObjectKey(NAMESPACES, "", "demo"),
                )
            ]
            await case.asked(path, 1)
            release.set()
            assert all(isinstance(namespace, Namespace) for namespace in await asyncio.gather(*readers))
            assert len(case.server.requests(path)) == 1

    async def test_one_that_gives_up_leaves_it_to_the_others(self, tmp_path: Path) -> None:
        async with live(tmp_path) as case:
            case.server.put(INSTANCETYPES, "small", "demo")
            release = asyncio.Event()
            case.server.hang(TYPE_PATH, release)
            first, second, patient = case.reading(TYPE), case.reading(TYPE, 0.05), case.reading(TYPE)
            await case.asked(TYPE_PATH, 1)
            first.cancel()
            late = await second
            assert late == Unavailable("the API server did not answer within 50 ms")
            release.set()
            assert isinstance(await patient, Instancetype)
            assert first.cancelled()
            assert len(case.server.requests(TYPE_PATH)) == 1

    async def test_after_the_deadline_nothing_is_asked(self, tmp_path: Path) -> None:
        async with live(tmp_path) as case:
            assert await case.read(TYPE, -1.0) == Unavailable("the API server did not answer within 0 ms")
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

    async def test_closing_answers_those_who_wait(self, tmp_path: Path) -> None:
        async with live(tmp_path) as case:
            case.server.hang(TYPE_PATH, asyncio.Event())
            reader = case.reading(TYPE)
            await case.asked(TYPE_PATH, 1)
            await case.cluster.close()
            assert await reader == Unavailable("the server is being stopped")
            assert await case.read(TYPE) == Unavailable("the connection to the API server has been closed")


class TestVmis:
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


class TestMemory:
    async def test_a_vmi_that_asks_for_an_endless_scheduler_is_not_remembered(self, tmp_path: Path) -> None:
        async with live(tmp_path) as case:
            case.put_vmi(schedulerName="x" * 100_000)
            found = await case.read(VMI)
            assert isinstance(found, VirtualMachineInstance)
            assert len(found.scheduler_name) == 100_000
            assert case.cluster.peek(VMI) is NOT_READ

    async def test_what_is_kept_does_not_grow_with_what_tenants_write(self, tmp_path: Path) -> None:
        """Of 1,500 gated pods, 300 namespaces and 50 VMIs, each with 250 kB of annotations, next to nothing is."""
        fat = {"annotations": {"fat": "x" * 250_000}}

        def prepare(server: FakeApiServer) -> None:
            gated = {"schedulerName": "kubevirt", "resourceClaims": [{"name": "gpu"}]}
            for number in range(1500):
                server.put(PODS, f"gated-{number}", "foreign", metadata=fat, spec=gated, status={"phase": "Pending"})
            for number in range(300):
                server.put(NAMESPACES, f"ns-{number}", metadata=fat)
            for number in range(50):
                server.put(VMIS, f"vm-{number}", "demo", metadata=fat | {"uid": f"uid-{number}"})

        lease = SchedulerHealthSettings("lease", "kubevirt-scheduler", "kubevirt-scheduler")
        # As after each restart: the first thing is to list it all.
        async with live(tmp_path, declared(kubevirt=lease), start=True, prepare=prepare) as case:
            await case.ready()
            for number in range(50):
                await case.read(VmiKey("demo", f"vm-{number}", f"uid-{number}"))
            kept = [*case.cluster._namespaces, *case.cluster._vmis.values(), *case.cluster._monitors["kubevirt"].pods]
            assert len(kept) == 350
            assert len(msgspec.json.encode(kept)) < 350 * 1000
            sizes = [size for asked in case.server.requests(PODS.path(), "get") for size in [int(asked.query["limit"])]]
            # 4 MiB each, whatever there is.
            assert sorted(sizes)[-3] * 250_000 <= 4 * 1024 * 1024


class TestCopies:
    async def test_of_namespaces(self, tmp_path: Path) -> None:
        async with live(tmp_path) as case:
            ours, others = f"{names.DOMAIN}/scheduling", {"a": "x" * 200_000}
            metadata = {"labels": others | {ours: "enforce"}, "annotations": others | {ours: "y"}}
            case.server.put(NAMESPACES, "demo", metadata=metadata)
            assert case.cluster.peek(NamespaceKey("demo")) is NOT_READ
            case.cluster.start()
            await case.ready()
            found = case.cluster.peek(NamespaceKey("demo"))
            assert isinstance(found, Namespace)
            # What it says to others is not kept.
            assert (found.meta.labels, found.meta.annotations) == ({ours: "enforce"}, {ours: "y"})
            assert await case.read(NamespaceKey("demo")) == found
            assert case.server.requests(NAMESPACES.path(name="demo")) == []
            assert case.cluster.peek(NamespaceKey("demo", fresh=True)) is NOT_READ
            assert isinstance(await case.read(NamespaceKey("demo", fresh=True)), Namespace)
            assert case.cluster.peek(NamespaceKey("new")) is NOT_READ
            assert await case.read(NamespaceKey("new")) is None

    async def test_made_up_namespaces_cost_a_bounded_number_of_gets(self, tmp_path: Path) -> None:
        async with live(tmp_path, start=True) as case:
            clock = case.held
            case.server.put(NAMESPACES, "demo")
            await until(lambda: isinstance(case.cluster.peek(NamespaceKey("demo")), Namespace))
            for number in range(ABSENT_NAMESPACES):
                assert await case.read(NamespaceKey(f"made-up-{number}")) is None
            more = [case.reading(NamespaceKey(f"more-{number}")) for number in range(100)]
            await until(lambda: len([each for each in clock.slept if each == 0.1]) == 100)
            clock.advance(0.1)

            assert all(isinstance(answer, Unavailable) for answer in await asyncio.gather(*more))
            assert not any(case.server.requests(NAMESPACES.path(name=f"more-{number}")) for number in range(100))
            # What the copy has is read as ever, and so is everything once the second is over.
            assert isinstance(await case.read(NamespaceKey("demo", fresh=True)), Namespace)
            clock.advance(1.0)
            assert await case.read(NamespaceKey("more-0")) is None

    async def test_a_namespace_made_under_such_an_attack_is_found_in_the_copy(self, tmp_path: Path) -> None:
        async with live(tmp_path, start=True) as case:
            clock = case.held
            await case.ready()
            for number in range(ABSENT_NAMESPACES):
                assert await case.read(NamespaceKey(f"made-up-{number}")) is None
            reading = case.reading(NamespaceKey("new"))
            await until(lambda: 0.1 in clock.slept)
            case.server.put(NAMESPACES, "new")
            await until(lambda: isinstance(case.cluster.peek(NamespaceKey("new")), Namespace))
            clock.advance(0.1)

            assert isinstance(await reading, Namespace)
            assert case.server.requests(NAMESPACES.path(name="new")) == []

    async def test_of_a_namespace_that_says_too_much(self, tmp_path: Path) -> None:
        async with live(tmp_path, start=True) as case:
            said = {f"{names.DOMAIN}/{number}": "x" * 1000 for number in range(20)}
            case.server.put(NAMESPACES, "chatty", metadata={"annotations": said})
            await case.ready()
            assert case.cluster.peek(NamespaceKey("chatty")) is NOT_READ
            found = await case.read(NamespaceKey("chatty"))
            assert isinstance(found, Namespace)
            assert found.meta.annotations == said

    async def test_of_kubevirts(self, tmp_path: Path) -> None:
        async with live(tmp_path) as case:
            key = KubeVirtKey()
            assert case.cluster.peek(key) == Unavailable("kubevirts have not been listed yet")
            case.cluster.start()
            await case.ready()
            assert case.cluster.peek(key) is None
            assert await case.read(key) is None
            case.server.put(KUBEVIRTS, "kubevirt", "kubevirt")
            case.server.put(KUBEVIRTS, "kv", "harvester-system")
            both = {"kubevirt", "harvester-system"}
            await until(lambda: getattr(case.cluster.peek(key), "namespaces", ()) == both)

    async def test_of_kubevirts_that_may_not_be_listed(self, tmp_path: Path) -> None:
        def prepare(server: FakeApiServer) -> None:
            server.fail(KUBEVIRTS.path(), 403, times=100)

        async with live(tmp_path, start=True, prepare=prepare) as case:
            why = "the API server denied the request (403): grant list on kubevirts.kubevirt.io"
            await until(lambda: case.cluster.waiting_for() == (f"kubevirts: {why}",))
            assert case.cluster.peek(KubeVirtKey()) == Unavailable(why)

    async def test_of_nodes(self, tmp_path: Path) -> None:
        async with live(tmp_path) as case:
            case.server.put(NODES, "n1", metadata={"labels": {"zone": "a"}})
            assert case.cluster.peek(NodesKey()) == Unavailable("nodes have not been listed yet")
            case.cluster.start()
            await case.ready()
            index = case.cluster.peek(NodesKey())
            assert isinstance(index, NodeIndex)
            assert [node.labels for node in index] == [{"zone": "a"}]
            case.server.put(NODES, "n2", spec={"unschedulable": True})
            case.server.remove(NODES, "n1")
            await until(lambda: [node.name for node in index] == ["n2"])
            assert [node.unschedulable for node in index] == [True]

    async def test_of_kubevirts_configuration(self, tmp_path: Path) -> None:
        async with live(tmp_path) as case:
            case.cluster.start()
            await case.ready()
            assert configuration(case) is None
            spec = {
                "configuration": {"evictionStrategy": "LiveMigrate", "developerConfiguration": {"useEmulation": True}}
            }
            case.server.put(KUBEVIRTS, "other", "other", spec={})
            case.server.put(KUBEVIRTS, "kubevirt", "kubevirt", spec=spec, status={"phase": "Deployed"})
            await until(lambda: getattr(configuration(case), "eviction_strategy", "") == "LiveMigrate")
            assert configuration(case).use_emulation

    async def test_of_kubevirts_release(self, tmp_path: Path) -> None:
        """Followed while KubeVirt is updated, the older release until the update is done; the settings say more."""

        def release() -> str:
            read = configuration(case)
            return f"{read.release}{'?' if read.is_release_assumed else ''}"

        def put(observed: str, target: str) -> None:
            status = {"phase": "Deploying", "observedKubeVirtVersion": observed, "targetKubeVirtVersion": target}
            case.server.put(KUBEVIRTS, "kubevirt", "kubevirt", spec={}, status=status)

        async with live(tmp_path, start=True) as case:
            put("v1.8.4", "v1.8.4")
            await case.ready()
            await until(lambda: isinstance(configuration(case), ClusterConfig))
            assert release() == "1.8.4"
            before = case.cluster.peek(KubeVirtKey())
            put("v1.8.4", "v1.9.0")
            await until(lambda: case.cluster.peek(KubeVirtKey()) is not before)
            assert release() == "1.8.4"
            put("v1.9.0", "v1.9.0")
            await until(lambda: release() == "1.9.0")
            # It is worked out once for each change of the object, and not for each review.
            assert case.cluster.peek(KubeVirtKey()) is case.cluster.peek(KubeVirtKey())
            case.cluster.use(msgspec.structs.replace(settings(), kubevirt_version="1.7"))
            assert release() == "1.7.4"
            case.cluster.use(settings())
            assert release() == "1.9.0"
            put("devel", "devel")
            await until(lambda: release() == "1.9.0?")

    async def test_of_a_configuration_that_is_none(self, tmp_path: Path) -> None:
        async with live(tmp_path, start=True) as case:
            await case.ready()
            odd = {"configuration": {"developerConfiguration": {"nodeSelectors": 1}, "cpuModel": 1}}
            case.server.put(KUBEVIRTS, "kubevirt", "kubevirt", spec=odd, status={"phase": "Deployed"})
            await until(lambda: isinstance(configuration(case), Unavailable))
            install: Any = case.cluster.peek(KubeVirtKey())
            assert install.namespaces == {"kubevirt"}

    async def test_their_staleness(self, tmp_path: Path) -> None:
        async with live(
            tmp_path,
            declared(kubevirt=SchedulerHealthSettings("pods"), other=SchedulerHealthSettings("off")),
            start=True,
        ) as case:
            await case.ready()
            await until(lambda: case.server.watching == 4)
            watches = ("namespaces", "kubevirts", "nodes", "pods of kubevirt")
            assert case.cluster.staleness() == dict.fromkeys(watches, 0.0)

    async def test_the_ages_of_what_was_used(self, tmp_path: Path) -> None:
        async with live(
            tmp_path,
            declared(kubevirt=SchedulerHealthSettings("pods"), other=SchedulerHealthSettings("off")),
            start=True,
        ) as case:
            await case.ready()
            await until(lambda: case.server.watching == 4)
            case.clock.time += 7.0
            used: list[Any] = [NamespaceKey("demo"), KubeVirtKey(), SchedulerKey("kubevirt")]
            never: list[Any] = [SchedulerKey("other"), SchedulerKey("undeclared"), VmiKey("demo", "web01", "uid")]
            assert case.cluster.ages([*used, *never]) == {"namespaces": 7.0, "kubevirts": 7.0, "pods of kubevirt": 7.0}
            assert case.cluster.ages([NodesKey()]) == {"nodes": 7.0}


class TestReadiness:
    async def test_names_what_is_missing(self, tmp_path: Path) -> None:
        def prepare(server: FakeApiServer) -> None:
            server.fail(NAMESPACES.path(), 403, times=1)

        async with live(
            tmp_path, declared(kubevirt=SchedulerHealthSettings("lease", "a", "b")), prepare=prepare
        ) as case:
            assert case.cluster.waiting_for() == (
                "namespaces: not listed yet",
                "kubevirts: not listed yet",
                "nodes: not listed yet",
                (
                    "scheduler kubevirt: no answer from its guard yet: Lease a/b has not been read yet;"
                    " its pods are not watched: not listed yet"
                ),
            )
            case.cluster.start()
            await until(
                lambda: (
                    case.cluster.waiting_for()
                    == ("namespaces: the API server denied the request (403): grant list on namespaces",)
                )
            )
            assert isinstance(case.clock, HeldClock)
            case.clock.advance(10.0)
            await case.ready()

    async def test_once_ready_stays_ready(self, tmp_path: Path) -> None:
        async with live(tmp_path, start=True) as case:
            await case.ready()
            case.server.fail(PODS.path(), 500, times=100)
            case.cluster.use(declared(kubevirt=SchedulerHealthSettings("pods")))
            await asyncio.sleep(0)
            assert case.cluster.waiting_for() == ()
            assert case.cluster.peek(SchedulerKey("kubevirt")) != SchedulerHealth(
                "available", "its health is not checked"
            )


class TestGuards:
    async def test_judge_declared_schedulers_only(self, tmp_path: Path) -> None:
        async with live(
            tmp_path,
            declared(kubevirt=SchedulerHealthSettings("pods"), other=SchedulerHealthSettings("off")),
            start=True,
        ) as case:
            await case.ready()
            assert case.cluster.peek(SchedulerKey("kubevirt")) == SchedulerHealth("available", "no pod waits unnoticed")
            assert case.cluster.peek(SchedulerKey("other")) == SchedulerHealth("available", "its health is not checked")
            assert case.cluster.peek(SchedulerKey("undeclared")) is None
            assert await case.read(SchedulerKey("undeclared")) is None
            await until(lambda: case.clock.slept)
            assert isinstance(case.clock, HeldClock)
            case.clock.advance(2.0)
            await until(lambda: case.changes)
            assert case.changes == [("kubevirt", "available")]

    async def test_follow_the_settings_without_disturbing_each_other(self, tmp_path: Path) -> None:
        before = declared(
            stays=SchedulerHealthSettings("pods"),
            changes=SchedulerHealthSettings("pods"),
            goes=SchedulerHealthSettings("pods"),
        )
        after = declared(
            stays=SchedulerHealthSettings("pods"),
            changes=SchedulerHealthSettings("lease", "a", "b"),
            comes=SchedulerHealthSettings("pods"),
        )
        async with live(tmp_path, before, start=True) as case:
            await case.ready()
            await until(lambda: case.server.watching == 6)
            asked = len(case.server.requests(PODS.path()))
            case.cluster.use(after)
            await until(
                lambda: (
                    case.cluster.peek(SchedulerKey("changes"))
                    == SchedulerHealth("unavailable", "Lease a/b does not exist")
                )
            )
            await until(
                lambda: (
                    case.cluster.peek(SchedulerKey("comes")) == SchedulerHealth("available", "no pod waits unnoticed")
                )
            )
            assert case.cluster.peek(SchedulerKey("goes")) is None
            selectors = [asked.query["fieldSelector"] for asked in case.server.requests(PODS.path())[asked:]]
            assert not any("stays" in selector for selector in selectors)
            await until(lambda: case.server.watching == 6)

    async def test_a_reload_before_the_start(self, tmp_path: Path) -> None:
        async with live(tmp_path, declared(one=SchedulerHealthSettings("pods"))) as case:
            case.cluster.use(declared(two=SchedulerHealthSettings("pods")))
            case.cluster.start()
            await case.ready()
            assert case.cluster.peek(SchedulerKey("one")) is None
            assert case.cluster.peek(SchedulerKey("two")) == SchedulerHealth("available", "no pod waits unnoticed")

    async def test_a_bug_in_a_listener_does_not_blind_us(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        async with live(tmp_path, declared(kubevirt=SchedulerHealthSettings("lease", "a", "b"))) as case:
            bugs = ["first"]

            def listener(name: str, old: SchedulerHealth, new: SchedulerHealth) -> None:
                if bugs:
                    raise RuntimeError(bugs.pop())
                case.changes.append((name, new.state))

            case.cluster._on_health = listener
            case.cluster.use(declared())
            case.cluster.use(declared(kubevirt=SchedulerHealthSettings("lease", "a", "b")))
            with caplog.at_level(logging.ERROR):
                case.cluster.start()
                await until(lambda: 10.0 in case.clock.slept)
            assert "guard of kubevirt: internal error" in caplog.text
            spec = {"holderIdentity": "host_1", "renewTime": "2000-01-01T00:00:00Z"}
            case.server.put(LEASES, "b", "a", spec=spec)
            assert isinstance(case.clock, HeldClock)
            case.clock.advance(10.0)
            await until(lambda: case.changes)
            assert case.changes == [("kubevirt", "unknown")]


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
            assert "did not answer within" in (await case.read(self.KEY, 0.0)).why


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

    @pytest.mark.parametrize(
        ("answer", "why"),
        [
            (web.Response(status=403), "grant create on subjectaccessreviews"),
            (web.Response(status=500), "answered 500"),
            (web.Response(status=201, text="{}"), "cannot be decoded"),
        ],
    )
    async def test_that_can_not_be_learnt(self, tmp_path: Path, answer: web.Response, why: str) -> None:
        async with live(tmp_path) as case:
            case.server.answer(self.PATH, lambda _: answer)
            assert why in (await case.read(self.KEY)).why

    async def test_that_takes_too_long(self, tmp_path: Path) -> None:
        async with live(tmp_path) as case:
            assert "did not answer within" in (await case.read(self.KEY, 0.0)).why
