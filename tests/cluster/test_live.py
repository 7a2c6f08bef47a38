"""What a live cluster reads, stores and remembers, how old that may be, and the health of schedulers."""

from __future__ import annotations

import asyncio
import copy
import json
import logging
from collections.abc import AsyncIterator
from typing import Any
from unittest.mock import AsyncMock, Mock

import msgspec
import pytest
from aiohttp import web

from tests.builders import settings
from tests.cluster.fake_apiserver import ApiServers, FakeApiServer, broken, why
from tests.cluster.live_case import LEASE, OFF, PODS, LiveCase, declared, live, ready
from tests.golden_files import Golden
from tests.policies.migration import world as migrations
from tests.waiting import PATIENCE, until
from webhook import facts, names
from webhook.admission.decision import Decision
from webhook.admission.reasons import common
from webhook.cluster.live import ABSENT_NAMESPACES, VERIFY_EVERY_SECONDS
from webhook.errors import Unavailable
from webhook.facts import NOT_READ
from webhook.images.registry.node_layers import NodeLayers
from webhook.k8s.client.api import Forbidden
from webhook.k8s.client.reflector import CURRENT_SECONDS
from webhook.k8s.resources import LEASES, NAMESPACES, NODES, PENDING_PODS
from webhook.k8s.types.meta import Namespace
from webhook.kubevirt.config import ClusterConfig
from webhook.kubevirt.resources import INSTANCETYPES, KUBEVIRTS, VMIS
from webhook.kubevirt.types.views import Instancetype, VirtualMachineInstance
from webhook.placement.machines import MIGRATIONS
from webhook.policies.migration.settings import MigrationSettings
from webhook.policies.registry import BY_PATH
from webhook.review.driver import drive

VMI = facts.VmiKey("demo", "web01", "uid-1")
VMI_PATH = VMIS.path("demo", "web01")
TYPE = facts.ObjectKey(INSTANCETYPES, "demo", "small")
TYPE_PATH = INSTANCETYPES.path("demo", "small")
DEMO = facts.NamespaceKey("demo")
DEMO_PATH = NAMESPACES.path(name="demo")
KUBEVIRT = facts.KubeVirtKey()
LABEL = names.policy_label(names.SCHEDULING)
WELL = facts.SchedulerHealth("available", "no pod waits unnoticed")


async def test_a_label_with_an_invalid_value_is_logged_once(
    case: LiveCase, caplog: pytest.LogCaptureFixture, golden: Golden
) -> None:
    """A trial has no admission policy that denies it, and the API server sends no request of such a namespace."""

    def logged() -> list[str]:
        return [one.getMessage() for one in caplog.records if "invalid value" in one.getMessage()]

    case.server.put(NAMESPACES, "right", metadata={"labels": {LABEL: "enforce"}})
    case.server.put(NAMESPACES, "wrong", metadata={"labels": {LABEL: "enfroce"}})
    case.cluster.start()
    await case.ready(1)
    golden("\n".join(logged()))
    case.server.put(NAMESPACES, "wrong", metadata={"labels": {LABEL: "enfroce", "other": "a"}})
    case.server.put(NAMESPACES, "right", metadata={"labels": {LABEL: "on"}})
    await until(lambda: len(logged()) == 2)
    assert '"on"' in logged()[1]


class TestLiveObjects:
    @pytest.mark.control("stale-watches")
    async def test_are_read_fresh_every_time(self, case: LiveCase) -> None:
        assert await case.read(TYPE) is None
        for scheduler in ("one", "two"):
            case.server.put(INSTANCETYPES, "small", "demo", spec={"schedulerName": scheduler})
            assert case.peek(TYPE) is NOT_READ
            found = await case.read(TYPE)
            assert isinstance(found, Instancetype) and found.spec and found.spec.scheduler_name == scheduler

    @pytest.mark.control("names-in-paths")
    async def test_other_wild_names_stay_in_their_place(self, case: LiveCase) -> None:
        assert await case.read(facts.ObjectKey(INSTANCETYPES, "demo", "small?watch=true#x y")) is None
        assert (case.server.asked[0].path, case.server.asked[0].query) == (TYPE_PATH + "?watch=true#x y", {})

    @pytest.mark.parametrize(("code", "reason"), [(403, "Forbidden"), (500, "InternalError"), (401, "Unauthorized")])
    async def test_refusals_in_words(self, case: LiveCase, code: int, reason: str, golden: Golden) -> None:
        case.server.fail(TYPE_PATH, code, reason, times=2)
        found = await case.read(TYPE)
        assert isinstance(found, Forbidden) is (code == 403)
        golden(why(found))

    @pytest.mark.parametrize("body", ["<html>SECRET</html>", '{"spec": {"schedulerName": {"SECRET": 1}}}', "[" * 5000])
    async def test_what_can_not_be_decoded(self, case: LiveCase, body: str) -> None:
        case.server.answer(TYPE_PATH, lambda _: web.Response(text=body))
        assert await case.read(TYPE) == Unavailable("the API server's VirtualMachineInstancetype cannot be decoded")

    async def test_no_api_server(self, case: LiveCase, golden: Golden) -> None:
        case.server.answer(TYPE_PATH, broken, times=5)  # aiohttp itself tries a GET twice
        golden(why(await case.read(TYPE)).partition(" (")[0])

    async def test_a_get_ends_by_itself(
        self, apiservers: ApiServers, golden: Golden, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("webhook.cluster.live.GET_SECONDS", 0.05)
        async with live(apiservers) as case:
            case.server.hang(TYPE_PATH)
            golden(why(await case.read(TYPE)))

    async def test_keys_of_other_kinds(self, case: LiveCase, golden: Golden) -> None:
        class OtherKey(facts.Key[str], frozen=True):
            pass

        assert case.peek(OtherKey()) is NOT_READ
        golden(why(await case.read(OtherKey())))


class TestLiveVmis:
    @pytest.mark.control("slow-lookups")
    async def test_are_remembered_by_uid_with_what_can_not_change(self, case: LiveCase) -> None:
        assert await case.read(VMI) is None, "absence is not remembered"
        case.put_vmi(schedulerName="mine")
        assert case.peek(VMI) is NOT_READ
        found = await case.read(VMI)
        assert isinstance(found, VirtualMachineInstance)
        assert (found.scheduler_name, found.meta.labels) == ("mine", None)
        assert (found.meta.namespace, found.meta.name, found.meta.uid) == ("demo", "web01", "uid-1")
        assert case.peek(VMI) == await case.read(VMI) == found
        assert case.gets(VMI_PATH) == 2
        assert (await case.read(facts.ObjectKey(VMIS, "demo", "web01"))).meta.labels == {"a": "b"}

    async def test_of_another_uid_are_told_but_not_taken_for_the_one(self, case: LiveCase) -> None:
        case.put_vmi("uid-2")
        found = await case.read(VMI)
        assert found.meta.uid == "uid-2"
        assert case.peek(VMI) is NOT_READ
        assert case.peek(facts.VmiKey("demo", "web01", "uid-2")) == found
        assert case.peek(facts.VmiKey("evil", "web01", "uid-2")) is NOT_READ

    async def test_another_uid_from_before_is_not_trusted(self, case: LiveCase) -> None:
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
        assert ((await early).meta.uid, (await late).meta.uid) == ("uid-0", "uid-1")

    @pytest.mark.control("watches-filled")
    @pytest.mark.parametrize(("uid", "scheduler"), [("", "mine"), ("uid-1", "x" * 100_000)])
    async def test_without_uid_or_with_an_endless_scheduler_are_not_remembered(
        self, case: LiveCase, uid: str, scheduler: str
    ) -> None:
        case.put_vmi(uid, schedulerName=scheduler)
        key = facts.VmiKey("demo", "web01", uid)
        assert (await case.read(key)).scheduler_name == scheduler
        assert case.peek(key) is NOT_READ

    async def test_the_least_recently_used_are_forgotten(
        self, apiservers: ApiServers, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("webhook.cluster.live.CACHED_VMIS", 2)
        async with live(apiservers) as case:
            keys = [facts.VmiKey("demo", f"vm{i}", f"u{i}") for i in range(3)]
            for key in keys:
                case.server.put(VMIS, key.name, "demo", metadata={"uid": key.uid})
            await case.read(keys[0])
            await case.read(keys[1])
            assert case.peek(keys[0]) is not NOT_READ
            await case.read(keys[2])
            assert [case.peek(key) is NOT_READ for key in keys] == [False, True, False]


class TestReadiness:
    async def test_names_what_is_missing(self, apiservers: ApiServers, golden: Golden) -> None:
        def forbid(server: FakeApiServer) -> None:
            server.fail(NAMESPACES.path(), 403, times=1)

        async with live(apiservers, declared(kubevirt=LEASE), prepare=forbid) as case:
            assert len(case.cluster.waiting_for()) == 4
            golden("\n".join(case.cluster.waiting_for()))
            case.cluster.start()
            await until(lambda: "403" in case.cluster.waiting_for()[0])
            golden(case.cluster.waiting_for()[0])

            def is_ready_later() -> bool:
                # More than once: the failure shows before the pause begins that follows it.
                case.clock.advance(10.0)
                return not case.cluster.waiting_for()

            await until(is_ready_later)

    async def test_once_ready_stays_ready(self, apiservers: ApiServers) -> None:
        async with ready(apiservers) as case:
            case.server.fail(PENDING_PODS.path(), 500, times=100)
            case.cluster.use(declared(kubevirt=PODS))
            await asyncio.sleep(0)
            assert case.cluster.waiting_for() == ()
            assert case.peek(facts.SchedulerKey("kubevirt")).state != "available"


class TestLists:
    KEY = facts.ListKey(MIGRATIONS, "demo", "kubevirt.io/vmi-name=web01")

    async def test_of_what_carries_a_label(self, case: LiveCase) -> None:
        for name, vmi, namespace in (("m1", "web01", "demo"), ("m2", "web02", "demo"), ("m3", "web01", "other")):
            case.server.put(MIGRATIONS, name, namespace, metadata={"labels": {"kubevirt.io/vmi-name": vmi}})
        for key, expected in (
            (self.KEY, ["m1"]),
            (facts.ListKey(MIGRATIONS, "demo"), ["m1", "m2"]),
            (facts.ListKey(MIGRATIONS, "", "kubevirt.io/vmi-name=web01"), ["m1", "m3"]),
        ):
            assert [found.meta.name for found in await case.read(key)] == expected

    async def test_of_what_a_field_says(self, case: LiveCase) -> None:
        for name, phase in (("a", "Pending"), ("b", "Running")):
            case.server.put(PENDING_PODS, name, "demo", status={"phase": phase})
        key = facts.ListKey(PENDING_PODS, "", field="status.phase=Pending")
        assert [found.meta.name for found in await case.read(key)] == ["a"]

    async def test_of_what_the_cluster_does_not_know(self, case: LiveCase) -> None:
        case.server.unserve(MIGRATIONS)
        assert await case.read(self.KEY) == await case.read(facts.ListKey(MIGRATIONS, "../x")) == ()

    async def test_that_fail(self, case: LiveCase) -> None:
        path = MIGRATIONS.path("demo")
        case.server.fail(path, 403)
        assert "grant list on virtualmachineinstancemigrations" in why(await case.read(self.KEY))
        case.server.answer(path, lambda _: web.Response(text="{"))
        assert "cannot be decoded" in why(await case.read(self.KEY))
        assert "timed out after" in why(await case.read(self.KEY, 0.0))


class TestAccess:
    KEY = facts.AccessKey("alice", ("devs",), "1", (("scopes", ("a",)),), "use", "g", "r", "demo")
    PATH = "/apis/authorization.k8s.io/v1/subjectaccessreviews"

    @pytest.mark.parametrize("allowed", [True, False])
    async def test_is_asked_of_the_api_server(self, case: LiveCase, allowed: bool) -> None:
        case.server.answer(self.PATH, lambda _: web.json_response({"status": {"allowed": allowed}}, status=201))
        assert await case.read(self.KEY) is allowed
        (asked,) = case.server.requests(self.PATH)
        user = {"user": "alice", "groups": ["devs"], "uid": "1", "extra": {"scopes": ["a"]}}
        attributes = {"verb": "use", "group": "g", "resource": "r", "namespace": "demo"}
        assert json.loads(asked.body)["spec"] == user | {"resourceAttributes": attributes}

    async def test_that_can_not_be_learnt(self, case: LiveCase) -> None:
        case.server.answer(self.PATH, lambda _: web.Response(status=403))
        assert "grant create on subjectaccessreviews" in why(await case.read(self.KEY))


def configuration(case: LiveCase) -> Any:
    """KubeVirt's configuration as policies read it."""
    install: Any = case.peek(KUBEVIRT)
    return install and install.configuration


@pytest.mark.repeats
class TestInformers:
    @pytest.mark.control("watches-filled")
    async def test_what_is_kept_does_not_grow_with_what_tenants_write(self, apiservers: ApiServers) -> None:
        """Of 100 gated pods, 20 namespaces and 10 VMIs, each with 250 kB of annotations, next to nothing is."""
        fat = {"annotations": {"fat": "x" * 250_000}}

        def prepare(server: FakeApiServer) -> None:
            gated = {"schedulerName": "kubevirt", "resourceClaims": [{"name": "gpu"}]}
            pod = {"metadata": fat, "spec": gated, "status": {"phase": "Pending"}}
            for number in range(100):
                server.put(PENDING_PODS, f"gated-{number}", "foreign", **pod)
            for number in range(20):
                server.put(NAMESPACES, f"ns-{number}", metadata=fat)
            for number in range(10):
                server.put(VMIS, f"vm-{number}", "demo", metadata=fat | {"uid": f"uid-{number}"})

        # As after each restart: the first thing is to list it all.
        async with ready(apiservers, declared(kubevirt=LEASE), prepare=prepare) as case:
            vmis = [facts.VmiKey("demo", f"vm-{number}", f"uid-{number}") for number in range(10)]
            for key in vmis:
                await case.read(key)
            remembered = map(case.peek, vmis)
            kept = [*case.cluster._namespaces, *remembered, *case.cluster._monitors["kubevirt"].pods]
            assert len(kept) == 30
            assert len(msgspec.json.encode(kept)) < 30 * 1000
            sizes = [int(asked.query["limit"]) for asked in case.server.requests(PENDING_PODS.path(), "get")]
            # 4 MiB each, whatever there is.
            assert sorted(sizes)[-3] * 250_000 <= 4 * 1024 * 1024

    async def test_of_namespaces(self, case: LiveCase) -> None:
        ours, others = {LABEL: "enforce"}, {"a": "x" * 200_000}
        case.server.put(NAMESPACES, "demo", metadata={"labels": others | ours, "annotations": others | ours})
        said = {f"{names.DOMAIN}/{number}": "x" * 1000 for number in range(20)}
        case.server.put(NAMESPACES, "chatty", metadata={"annotations": said})
        assert case.peek(DEMO) is NOT_READ
        case.cluster.start()
        await case.ready()
        found = case.peek(DEMO)
        assert isinstance(found, Namespace)
        # The store leaves out labels and annotations of other programs, and those of a namespace that says too much.
        assert (found.meta.labels, found.meta.annotations, await case.read(DEMO)) == (ours, ours, found)
        assert case.gets(DEMO_PATH) == 0
        for key in (facts.NamespaceKey("demo", uncached=True), facts.NamespaceKey("chatty"), facts.NamespaceKey("new")):
            assert case.peek(key) is NOT_READ
        assert isinstance(await case.read(facts.NamespaceKey("demo", uncached=True)), Namespace)
        assert (await case.read(facts.NamespaceKey("chatty"))).meta.annotations == said
        assert await case.read(facts.NamespaceKey("new")) is None

    @pytest.mark.control("invented-namespaces")
    async def test_made_up_namespaces_cost_a_bounded_number_of_gets(self, apiservers: ApiServers) -> None:
        async with ready(apiservers, prepare=enforcing) as case:
            for number in range(ABSENT_NAMESPACES):
                assert await case.read(facts.NamespaceKey(f"made-up-{number}")) is None
            more = [case.reading(facts.NamespaceKey(f"more-{number}")) for number in range(100)]
            await until(lambda: case.clock.slept.count(0.1) == 100)
            # One that is made under such an attack is found in the store.
            case.server.put(NAMESPACES, "more-7")
            await until(lambda: isinstance(case.peek(facts.NamespaceKey("more-7")), Namespace))
            case.clock.advance(0.1)
            answers = await asyncio.gather(*more)
            assert [number for number, answer in enumerate(answers) if not isinstance(answer, Unavailable)] == [7]
            assert not any(case.gets(NAMESPACES.path(name=f"more-{number}")) for number in range(100))
            # Objects in the store are read as before, and so are all others once the second is over.
            assert isinstance(await case.read(facts.NamespaceKey("demo", uncached=True)), Namespace)
            case.clock.advance(1.0)
            assert await case.read(facts.NamespaceKey("more-0")) is None

    async def test_of_kubevirts(self, case: LiveCase, golden: Golden) -> None:
        golden(why(case.peek(KUBEVIRT)))
        case.cluster.start()
        await case.ready()
        assert case.peek(KUBEVIRT) is None
        assert await case.read(KUBEVIRT) is None
        assert configuration(case) is None
        case.server.put(KUBEVIRTS, "kv", "harvester-system")
        case.put_kubevirt(
            configuration={"evictionStrategy": "LiveMigrate", "developerConfiguration": {"useEmulation": True}}
        )
        both = {"kubevirt", "harvester-system"}
        await until(lambda: getattr(case.peek(KUBEVIRT), "namespaces", ()) == both)
        await until(lambda: getattr(configuration(case), "eviction_strategy", "") == "LiveMigrate")
        assert configuration(case).use_emulation

    async def test_of_kubevirts_that_may_not_be_listed(self, apiservers: ApiServers, golden: Golden) -> None:
        def forbid(server: FakeApiServer) -> None:
            server.fail(KUBEVIRTS.path(), 403, times=100)

        async with live(apiservers, start=True, prepare=forbid) as case:
            await until(lambda: len(case.cluster.waiting_for()) == 1 and "403" in case.cluster.waiting_for()[0])
            found = why(case.peek(KUBEVIRT))
            assert case.cluster.waiting_for() == (f"kubevirts: {found}",)
            golden(found)

    async def test_of_nodes(self, case: LiveCase, golden: Golden) -> None:
        case.server.put(NODES, "n1", metadata={"labels": {"zone": "a"}})
        golden(why(case.peek(facts.NodesKey())))
        case.cluster.start()
        await case.ready()
        index = case.peek(facts.NodesKey())
        assert [node.labels for node in index] == [{"zone": "a"}]
        assert case.cluster._nodes.resource is NODES, "without images"
        case.server.put(NODES, "n2", spec={"unschedulable": True})
        case.server.remove(NODES, "n1")
        await until(lambda: [node.name for node in index] == ["n2"])
        assert [node.unschedulable for node in index] == [True]

    async def test_of_nodes_with_their_images(self, apiservers: ApiServers) -> None:
        """Placements and layers each hear of a change of what they need, and of nothing else."""
        layers = NodeLayers(["quay.io"])
        events: list[tuple[str, ...]] = []
        layers.put = lambda name, node: events.append((name, *map(str, node.references)))  # type: ignore[method-assign]
        layers.remove = lambda name: events.append((name, "gone"))  # type: ignore[method-assign]
        one, two = (f"quay.io/disk@sha256:{digit * 64}" for digit in "12")

        def put(image: str, zone: str) -> None:
            case.server.put(NODES, "n1", metadata={"labels": {"zone": zone}}, status={"images": [{"names": [image]}]})

        async with ready(apiservers, reports=layers) as case:
            index, changed = case.peek(facts.NodesKey()), []
            take = index.put

            def changing(node: Any) -> None:
                changed.append(dict(node.labels))
                take(node)

            index.put = changing
            for image, zone in ((one, "a"), (two, "a"), (two, "b")):
                put(image, zone)
            await until(lambda: len(changed) == 2)
            case.server.remove(NODES, "n1")
            await until(lambda: not list(index))
            assert changed == [{"zone": "a"}, {"zone": "b"}]
            assert events == [("n1", one), ("n1", two), ("n1", "gone")]

    async def test_of_kubevirts_release(self, apiservers: ApiServers) -> None:
        """Followed while KubeVirt is updated, the older release until the update is done; the settings say more."""

        def release() -> str:
            read = configuration(case)
            return f"{read.release}{'?' if read.is_release_assumed else ''}"

        def put(observed: str, target: str) -> None:
            versions = {"observedKubeVirtVersion": observed, "targetKubeVirtVersion": target}
            case.put_kubevirt(versions | {"phase": "Deploying"})

        async with live(apiservers, start=True) as case:
            put("v1.8.4", "v1.8.4")
            await case.ready()
            await until(lambda: isinstance(configuration(case), ClusterConfig))
            assert release() == "1.8.4"
            before = case.peek(KUBEVIRT)
            put("v1.8.4", "v1.9.0")
            await until(lambda: case.peek(KUBEVIRT) is not before)
            assert release() == "1.8.4"
            put("v1.9.0", "v1.9.0")
            await until(lambda: release() == "1.9.0")
            # It is worked out once for each change of the object, and not for each review.
            assert case.peek(KUBEVIRT) is case.peek(KUBEVIRT)
            case.cluster.use(settings().with_kubevirt_version("1.7"))
            assert release() == "1.7.4"
            case.cluster.use(settings())
            assert release() == "1.9.0"
            put("devel", "devel")
            await until(lambda: release() == "1.9.0?")

    async def test_of_a_configuration_that_is_none(self, apiservers: ApiServers) -> None:
        async with ready(apiservers) as case:
            case.put_kubevirt(configuration={"developerConfiguration": {"nodeSelectors": 1}, "cpuModel": 1})
            await until(lambda: isinstance(configuration(case), Unavailable))
            assert case.peek(KUBEVIRT).namespaces == {"kubevirt"}

    @pytest.mark.control("stale-watches")
    async def test_their_staleness_and_the_ages_of_what_was_used(self, apiservers: ApiServers) -> None:
        async with ready(apiservers, declared(kubevirt=PODS, other=OFF), watches=4) as case:
            watches = ("namespaces", "kubevirts", "nodes", "pods of kubevirt")
            assert case.cluster.staleness() == dict.fromkeys(watches, 0.0)
            case.clock.time += 7.0
            used: list[facts.Key[Any]] = [DEMO, KUBEVIRT, facts.SchedulerKey("kubevirt")]
            never: list[facts.Key[Any]] = [facts.SchedulerKey("other"), facts.SchedulerKey("undeclared"), VMI]
            assert case.cluster.ages([*used, *never]) == {"namespaces": 7.0, "kubevirts": 7.0, "pods of kubevirt": 7.0}
            assert case.cluster.ages([facts.NodesKey()]) == {"nodes": 7.0}


@pytest.mark.repeats
class TestHealthChecks:
    async def test_evaluate_declared_schedulers_only(self, apiservers: ApiServers, golden: Golden) -> None:
        async with ready(apiservers, declared(kubevirt=PODS, other=OFF)) as case:
            for name in ("kubevirt", "other"):
                health = case.peek(facts.SchedulerKey(name))
                assert health.state == "available"
                golden(health.why)
            undeclared = facts.SchedulerKey("undeclared")
            assert case.peek(undeclared) is await case.read(undeclared) is None
            await until(lambda: case.clock.slept)
            case.clock.advance(2.0)
            await until(lambda: case.changes)
            assert case.changes == [("kubevirt", "available")]

    async def test_follow_the_settings_without_disturbing_each_other(self, apiservers: ApiServers) -> None:
        async with ready(apiservers, declared(stays=PODS, changes=PODS, goes=PODS), watches=6) as case:
            asked = case.gets(PENDING_PODS.path())
            case.cluster.use(declared(stays=PODS, changes=LEASE, comes=PODS))
            without = facts.SchedulerHealth("unavailable", "Lease a/b does not exist")
            await until(lambda: case.peek(facts.SchedulerKey("changes")) == without)
            await until(lambda: case.peek(facts.SchedulerKey("comes")) == WELL)
            assert case.peek(facts.SchedulerKey("goes")) is None
            selectors = [asked.query["fieldSelector"] for asked in case.server.requests(PENDING_PODS.path())[asked:]]
            assert not any("stays" in selector for selector in selectors)
            await until(lambda: case.server.watching == 6)

    async def test_a_reload_before_the_start(self, apiservers: ApiServers) -> None:
        async with live(apiservers, declared(one=PODS)) as case:
            case.cluster.use(declared(two=PODS))
            case.cluster.start()
            await case.ready()
            assert (case.peek(facts.SchedulerKey("one")), case.peek(facts.SchedulerKey("two"))) == (None, WELL)

    async def test_a_bug_in_a_listener_does_not_blind_us(
        self, apiservers: ApiServers, caplog: pytest.LogCaptureFixture
    ) -> None:
        async with live(apiservers) as case:
            bugs = ["first"]

            def listener(name: str, old: facts.SchedulerHealth, new: facts.SchedulerHealth) -> None:
                if bugs:
                    raise RuntimeError(bugs.pop())
                case.changes.append((name, new.state))

            case.cluster._on_health = listener
            case.cluster.use(declared(kubevirt=LEASE))
            case.cluster.start()
            await until(lambda: 10.0 in case.clock.slept)
            assert "health check of kubevirt: internal error" in caplog.text
            spec = {"holderIdentity": "host_1", "renewTime": "2000-01-01T00:00:00Z"}
            case.server.put(LEASES, "b", "a", spec=spec)
            case.clock.advance(10.0)
            await until(lambda: case.changes)
            assert case.changes == [("kubevirt", "unknown")]


def put(server: FakeApiServer, mode: str) -> None:
    server.put(NAMESPACES, "demo", metadata={"labels": {LABEL: mode}})


def enforcing(server: FakeApiServer) -> None:
    put(server, "enforce")


def mode(answer: Any) -> str | None:
    return answer.meta.label(LABEL) if isinstance(answer, Namespace) else str(answer)


def renew(server: FakeApiServer, second: int) -> None:
    server.put(LEASES, "b", "a", spec={"holderIdentity": "a", "renewTime": f"2026-01-01T00:00:{second:02}Z"})


async def verified(case: LiveCase) -> None:
    """Has each store verified twice: one after the other, with a pause before each."""
    stores = len(case.cluster.staleness())
    pause = VERIFY_EVERY_SECONDS / stores
    await until(lambda: pause in case.clock.slept)
    for _ in range(2 * stores):
        pauses = case.clock.slept.count(pause)
        case.clock.advance(pause)
        await until(lambda pauses=pauses: case.clock.slept.count(pause) > pauses)  # type: ignore[misc]


@pytest.fixture
async def watching(apiservers: ApiServers) -> AsyncIterator[LiveCase]:
    """A cluster that watches, with a namespace that enforces."""
    async with ready(apiservers, prepare=enforcing, watches=3) as case:
        yield case


WATCHED = (NAMESPACES, KUBEVIRTS, NODES)


@pytest.mark.repeats
class TestRestoredEtcd:
    @pytest.mark.control("stale-watches")
    async def test_every_store_returns_to_the_past_within_the_bound(self, watching: LiveCase) -> None:
        heard: list[str] = []
        watching.cluster.on_restore(heard.append)
        watching.put_vmi()
        await watching.read(VMI)
        saved = watching.server.save()
        put(watching.server, "off")
        watching.server.put(NODES, "n1")
        watching.put_kubevirt()
        await until(lambda: mode(watching.peek(DEMO)) == "off")
        await until(lambda: list(watching.peek(facts.NodesKey())) and watching.peek(KUBEVIRT) is not None)
        watching.server.restore(saved)

        await verified(watching)

        await until(lambda: mode(watching.peek(DEMO)) == "enforce")
        await until(lambda: not list(watching.peek(facts.NodesKey())) and watching.peek(KUBEVIRT) is None)
        assert watching.peek(VMI) is NOT_READ
        assert watching.cluster.restores == len(heard) == 1
        assert [watching.gets(resource.path(), "get") for resource in WATCHED] == [2, 2, 2]

    async def test_verification_costs_one_request_for_each_store_in_its_time(self, watching: LiveCase) -> None:
        pause = VERIFY_EVERY_SECONDS / len(WATCHED)

        def asked() -> int:
            return sum(each.verb == "verify" for each in watching.server.asked)

        for number in range(1, 31):
            # Other tasks sleep, too: only the one that verifies takes such pauses.
            await until(lambda number=number: watching.clock.slept.count(pause) == number)  # type: ignore[misc]
            watching.clock.advance(pause)
            await until(lambda number=number: asked() == number)  # type: ignore[misc]
        assert watching.cluster.restores == 0
        assert [watching.gets(resource.path(), "get") for resource in WATCHED] == [1, 1, 1]

    async def test_a_polled_lease_that_is_older_than_it_was_has_all_verified_at_once(
        self, apiservers: ApiServers
    ) -> None:
        def prepare(server: FakeApiServer) -> None:
            enforcing(server)
            renew(server, 0)

        async with ready(apiservers, declared(kubevirt=LEASE), prepare=prepare, watches=4) as case:
            saved = case.server.save()
            put(case.server, "off")
            renew(case.server, 2)
            await until(lambda: mode(case.peek(DEMO)) == "off")
            await until(lambda: case.clock.slept.count(2.0) == 1)
            case.clock.advance(2.0)
            await until(lambda: case.clock.slept.count(2.0) == 2)
            case.server.restore(saved)
            case.clock.advance(2.0)
            await until(lambda: mode(case.peek(DEMO)) == "enforce")
            assert case.cluster.restores == 1
            assert case.peek(facts.SchedulerKey("kubevirt")) is not None
            await until(lambda: case.gets(PENDING_PODS.path(), "get") == 2)

    async def test_an_api_server_that_goes_on_with_its_cache_has_each_review_read(self, watching: LiveCase) -> None:
        saved = watching.server.save()
        put(watching.server, "off")
        await until(lambda: mode(watching.peek(DEMO)) == "off")
        watching.server.restore(saved, cached=True)
        await verified(watching)
        assert watching.peek(DEMO) is NOT_READ
        assert mode(await watching.read(DEMO)) == "enforce"
        assert watching.cluster.has_namespace("demo")


@pytest.mark.repeats
class TestFrozenWatches:
    @pytest.mark.control("stale-watches")
    async def test_a_get_decides_once_the_store_is_too_old(self, watching: LiveCase) -> None:
        case = watching
        assert mode(case.peek(DEMO)) == "enforce"
        case.clock.time += CURRENT_SECONDS - 0.1
        assert mode(case.peek(DEMO)) == "enforce"
        case.clock.time += 0.1
        # The peer is alive and silent: what has changed is not heard.
        case.server.held(NAMESPACES)["", "demo"]["metadata"]["labels"][LABEL] = "off"
        assert case.peek(DEMO) is NOT_READ
        # Fifty reviews share one read, and so do those of the next second.
        answers = await asyncio.gather(*(case.read(DEMO) for _ in range(50)))
        assert ({mode(answer) for answer in answers}, mode(case.peek(DEMO))) == ({"off"}, "off")
        asked = case.gets(DEMO_PATH)
        assert 1 <= asked <= 2
        for seconds, gets in ((0.9, asked), (0.1, asked + 1)):
            case.clock.time += seconds
            assert (mode(await case.read(DEMO)), case.gets(DEMO_PATH)) == ("off", gets)
        assert case.cluster.waiting_for() == ()
        # The first bookmark of the watch makes it count again: an event may be an old one, with others behind it.
        put(case.server, "warn")
        case.server.bookmark()
        await until(lambda: mode(case.peek(DEMO)) == "warn")

    async def test_where_kubevirt_runs_is_listed(self, watching: LiveCase) -> None:
        watching.clock.time += CURRENT_SECONDS
        assert watching.peek(KUBEVIRT) is NOT_READ
        watching.server.end_watches()
        watching.put_kubevirt()
        assert (await watching.read(KUBEVIRT)).namespaces == {"kubevirt"}

    async def test_without_any_answer_nothing_is_known_and_the_replica_is_not_ready(
        self, watching: LiveCase, caplog: pytest.LogCaptureFixture
    ) -> None:
        # The namespace of the probe, too.
        for path in (DEMO_PATH, NAMESPACES.path(name="default"), *(resource.path() for resource in WATCHED)):
            watching.server.answer(path, broken, times=1000)
        watching.server.cut()
        await verified(watching)
        assert watching.cluster.waiting_for() == (), "the store is young enough to decide"
        with caplog.at_level(logging.WARNING):
            watching.clock.time += CURRENT_SECONDS
            while "namespaces: the watch is too old" not in caplog.text:
                await verified(watching)
        assert isinstance(await watching.read(DEMO), Unavailable)
        (missing,) = watching.cluster.waiting_for()
        assert missing.startswith("namespaces: not up to date for ")
        assert ", and not readable: the connection to the API server broke" in missing
        assert caplog.text.count("namespaces: the watch is too old") == 1
        watching.server.heal()
        watching.server.cut()

        def is_ready_later() -> bool:
            # More than once: what failed pauses before its next attempt.
            watching.clock.advance(10.0)
            return not watching.cluster.waiting_for()

        await until(is_ready_later)


async def decided_by(case: LiveCase, obj: Any) -> Decision:
    """What becomes of a migration to chosen nodes."""
    endpoint = BY_PATH["/validate/migration/virtualmachineinstancemigrations/enforce"]
    request = endpoint.codec.decode(msgspec.json.encode(migrations.asking(obj))).request
    known = facts.Facts(peek=case.peek)
    policy = endpoint.handler(request.object, request, known, MigrationSettings())
    decision: Decision = await drive(policy, case.cluster, known, asyncio.get_running_loop().time() + PATIENCE, "")
    return decision


@pytest.mark.repeats
class TestSilentStores:
    async def test_nodes_of_long_ago_deny_no_migration(self, apiservers: ApiServers, golden: Golden) -> None:
        """docs/reliability.md: what decides was known to be up to date in the last 150 s."""

        def prepare(server: FakeApiServer) -> None:
            # The API server's own: one of them changes.
            for node in copy.deepcopy(migrations.NODES):
                server.put(NODES, node["metadata"]["name"], **node)
            server.put(VMIS, "web01", "demo", **migrations.vmi())

        to_c = migrations.migration({"zone": "c"})
        async with ready(apiservers, prepare=prepare, watches=3) as case:
            assert (await decided_by(case, to_c)).code == common.NO_ELIGIBLE_NODE
            # The peer is alive and silent: that a node has come into the zone is not heard.
            moved = migrations.node("node-a2", "c")
            case.server.held(NODES)["", "node-a2"]["metadata"]["labels"]["zone"] = "c"
            case.clock.time += CURRENT_SECONDS - 0.1
            assert (await decided_by(case, to_c)).code == common.NO_ELIGIBLE_NODE
            case.clock.time += 0.1
            decision = await decided_by(case, to_c)
            assert decision.denial and (decision.code, decision.denial.code) == (common.LOOKUP_FAILED, 503)
            golden(decision.denial.message)
            case.server.put(NODES, "node-a2", **moved)
            case.server.bookmark()
            await until(lambda: not isinstance(case.peek(facts.NodesKey()), Unavailable))
            assert (await decided_by(case, to_c)).code == common.ELIGIBLE

    @pytest.mark.parametrize("kind", [kind for kind in facts.Key.__subclasses__() if kind.__module__ == facts.__name__])
    async def test_say_nothing_of_any_fact(self, apiservers: ApiServers, kind: type[facts.Key[Any]]) -> None:
        """For each kind of fact: what a store had to say of it, it says no more once it is too old."""

        def prepare(server: FakeApiServer) -> None:
            enforcing(server)
            server.put(NODES, "n1")
            server.put(KUBEVIRTS, "kubevirt", "kubevirt", status={"phase": "Deployed"})
            server.put(INSTANCETYPES, "small", "demo")

        watched: dict[type[facts.Key[Any]], facts.Key[Any]] = {
            facts.NamespaceKey: DEMO,
            facts.KubeVirtKey: KUBEVIRT,
            facts.NodesKey: facts.NodesKey(),
            facts.SchedulerKey: facts.SchedulerKey("kubevirt"),
            facts.ObjectKey: TYPE,
            facts.ListKey: facts.ListKey(INSTANCETYPES, "demo"),
        }
        async with ready(apiservers, declared(kubevirt=PODS), prepare=prepare, watches=4) as case:
            if kind not in watched:
                # A VMI's choice cannot change; permissions and tokens are asked for each time; headroom is a part's.
                assert kind in (facts.VmiKey, facts.AccessKey, facts.TokenKey, facts.HeadroomKey, facts.VerdictKey)
                if kind is facts.HeadroomKey:
                    assert isinstance(await case.read(facts.HeadroomKey()), Unavailable)
                    case.cluster.answer(facts.HeadroomKey(), lambda: "as a part says")
                    assert case.peek(facts.HeadroomKey()) == "as a part says"
                if kind is facts.VerdictKey:
                    asked: facts.VerdictKey = facts.VerdictKey(Mock(), Mock())
                    assert isinstance(await case.read(asked), Unavailable)
                    case.cluster.answer_later(facts.VerdictKey, AsyncMock(return_value="as a part says"))
                    assert case.peek(asked) is NOT_READ
                    assert await case.read(asked) == "as a part says"
                return
            key = watched[kind]
            await case.read(key)
            await until(lambda: case.peek(key) is not NOT_READ)
            assert not isinstance(case.peek(key), Unavailable)
            case.clock.time += CURRENT_SECONDS
            told = case.peek(key)
            silent = told is NOT_READ or isinstance(told, Unavailable)
            assert silent or (kind is facts.SchedulerKey and told.state == "unknown")
