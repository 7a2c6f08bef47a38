"""The copies that a live cluster keeps: their content, memory and staleness, and the health that follows."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.builders import settings
from tests.cluster.fake_apiserver import FakeApiServer, HeldClock, why
from tests.cluster.live_case import VMI, declared, live, ready
from tests.waiting import until
from webhook import names
from webhook.cluster.live import ABSENT_NAMESPACES
from webhook.errors import Unavailable
from webhook.facts import NOT_READ, KubeVirtKey, NamespaceKey, NodesKey, SchedulerHealth, SchedulerKey, VmiKey
from webhook.k8s.resources import LEASES, NAMESPACES, NODES, PENDING_PODS
from webhook.k8s.types.meta import Namespace
from webhook.kubevirt.config import ClusterConfig
from webhook.kubevirt.resources import KUBEVIRTS, VMIS
from webhook.kubevirt.types.views import VirtualMachineInstance
from webhook.placement.index import NodeIndex
from webhook.settings.model import SchedulerHealthSettings

pytestmark = pytest.mark.repeats


def configuration(case: Any) -> Any:
    """KubeVirt's configuration as policies read it."""
    install: Any = case.cluster.peek(KubeVirtKey())
    return install and install.configuration


class TestCopiesInMemory:
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
                server.put(
                    PENDING_PODS, f"gated-{number}", "foreign", metadata=fat, spec=gated, status={"phase": "Pending"}
                )
            for number in range(300):
                server.put(NAMESPACES, f"ns-{number}", metadata=fat)
            for number in range(50):
                server.put(VMIS, f"vm-{number}", "demo", metadata=fat | {"uid": f"uid-{number}"})

        lease = SchedulerHealthSettings("lease", "kubevirt-scheduler", "kubevirt-scheduler")
        # As after each restart: the first thing is to list it all.
        async with ready(tmp_path, declared(kubevirt=lease), prepare=prepare) as case:
            for number in range(50):
                await case.read(VmiKey("demo", f"vm-{number}", f"uid-{number}"))
            kept = [*case.cluster._namespaces, *case.cluster._vmis.values(), *case.cluster._monitors["kubevirt"].pods]
            assert len(kept) == 350
            assert len(msgspec.json.encode(kept)) < 350 * 1000
            sizes = [
                size
                for asked in case.server.requests(PENDING_PODS.path(), "get")
                for size in [int(asked.query["limit"])]
            ]
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
            # The copy leaves out labels and annotations of other programs.
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
            # Objects in the copy are read as before, and so are all others once the second is over.
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

    async def test_of_kubevirts(self, tmp_path: Path, golden: Callable[[str], None]) -> None:
        async with live(tmp_path) as case:
            key = KubeVirtKey()
            golden(why(case.cluster.peek(key)))
            case.cluster.start()
            await case.ready()
            assert case.cluster.peek(key) is None
            assert await case.read(key) is None
            case.server.put(KUBEVIRTS, "kubevirt", "kubevirt")
            case.server.put(KUBEVIRTS, "kv", "harvester-system")
            both = {"kubevirt", "harvester-system"}
            await until(lambda: getattr(case.cluster.peek(key), "namespaces", ()) == both)

    async def test_of_kubevirts_that_may_not_be_listed(self, tmp_path: Path, golden: Callable[[str], None]) -> None:
        async with live(
            tmp_path, start=True, prepare=lambda server: server.fail(KUBEVIRTS.path(), 403, times=100)
        ) as case:
            await until(lambda: len(case.cluster.waiting_for()) == 1 and "403" in case.cluster.waiting_for()[0])
            found = case.cluster.peek(KubeVirtKey())
            assert isinstance(found, Unavailable)
            assert case.cluster.waiting_for() == (f"kubevirts: {found.why}",)
            golden(found.why)

    async def test_of_nodes(self, tmp_path: Path, golden: Callable[[str], None]) -> None:
        async with live(tmp_path) as case:
            case.server.put(NODES, "n1", metadata={"labels": {"zone": "a"}})
            golden(why(case.cluster.peek(NodesKey())))
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
            case.cluster.use(settings().with_kubevirt_version("1.7"))
            assert release() == "1.7.4"
            case.cluster.use(settings())
            assert release() == "1.9.0"
            put("devel", "devel")
            await until(lambda: release() == "1.9.0?")

    async def test_of_a_configuration_that_is_none(self, tmp_path: Path) -> None:
        async with ready(tmp_path) as case:
            odd = {"configuration": {"developerConfiguration": {"nodeSelectors": 1}, "cpuModel": 1}}
            case.server.put(KUBEVIRTS, "kubevirt", "kubevirt", spec=odd, status={"phase": "Deployed"})
            await until(lambda: isinstance(configuration(case), Unavailable))
            install: Any = case.cluster.peek(KubeVirtKey())
            assert install.namespaces == {"kubevirt"}

    async def test_their_staleness(self, tmp_path: Path) -> None:
        async with ready(
            tmp_path, declared(kubevirt=SchedulerHealthSettings("pods"), other=SchedulerHealthSettings("off"))
        ) as case:
            await until(lambda: case.server.watching == 4)
            watches = ("namespaces", "kubevirts", "nodes", "pods of kubevirt")
            assert case.cluster.staleness() == dict.fromkeys(watches, 0.0)

    async def test_the_ages_of_what_was_used(self, tmp_path: Path) -> None:
        async with ready(
            tmp_path, declared(kubevirt=SchedulerHealthSettings("pods"), other=SchedulerHealthSettings("off"))
        ) as case:
            await until(lambda: case.server.watching == 4)
            case.clock.time += 7.0
            used: list[Any] = [NamespaceKey("demo"), KubeVirtKey(), SchedulerKey("kubevirt")]
            never: list[Any] = [SchedulerKey("other"), SchedulerKey("undeclared"), VmiKey("demo", "web01", "uid")]
            assert case.cluster.ages([*used, *never]) == {"namespaces": 7.0, "kubevirts": 7.0, "pods of kubevirt": 7.0}
            assert case.cluster.ages([NodesKey()]) == {"nodes": 7.0}


class TestHealthChecks:
    async def test_judge_declared_schedulers_only(self, tmp_path: Path, golden: Callable[[str], None]) -> None:
        async with ready(
            tmp_path, declared(kubevirt=SchedulerHealthSettings("pods"), other=SchedulerHealthSettings("off"))
        ) as case:
            for name in ("kubevirt", "other"):
                health = case.cluster.peek(SchedulerKey(name))
                assert isinstance(health, SchedulerHealth)
                assert health.state == "available"
                golden(health.why)
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
        async with ready(tmp_path, before) as case:
            await until(lambda: case.server.watching == 6)
            asked = len(case.server.requests(PENDING_PODS.path()))
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
            selectors = [asked.query["fieldSelector"] for asked in case.server.requests(PENDING_PODS.path())[asked:]]
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
            assert "health check of kubevirt: internal error" in caplog.text
            spec = {"holderIdentity": "host_1", "renewTime": "2000-01-01T00:00:00Z"}
            case.server.put(LEASES, "b", "a", spec=spec)
            assert isinstance(case.clock, HeldClock)
            case.clock.advance(10.0)
            await until(lambda: case.changes)
            assert case.changes == [("kubevirt", "unknown")]
