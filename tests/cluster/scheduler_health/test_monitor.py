from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.cluster.fake_apiserver import FakeApiServer, FakeClock, HeldClock, running
from tests.cluster.scheduler_health.monitored import DOWN, LEASE, PODS_ONLY, WALL, abandon, guarded, lease, stamp
from tests.cluster.scheduler_health.pods import pod
from tests.waiting import until
from webhook.cluster.scheduler_health import SchedulerMonitor, Waiting
from webhook.facts import SchedulerHealth
from webhook.k8s.client.transport import connect
from webhook.k8s.resources import LEASES, PENDING_PODS
from webhook.k8s.types.core import PendingPod
from webhook.kubevirt.resources import ACTIVE_VMIS
from webhook.settings.model import SchedulerHealthSettings

FORBIDDEN = "403: list pods"


class TestPodsAsEvidence:
    def test_pods_that_nobody_tries_outweigh_a_fresh_lease(self, golden: Callable[[str], None]) -> None:
        state = guarded()
        state.lease.observe(lease(WALL + 30), 30.0, WALL + 30)
        assert state.health(31.0).state == "available"
        abandon(state)
        assert state.health(31.0).state == "unavailable"
        golden(state.health(31.0).why)

    def test_it_is_alive_again_once_a_pod_is_tried(self) -> None:
        state = guarded(PODS_ONLY)
        abandon(state)
        assert state.health(31.0).state == "unavailable"
        state.pods.observe_attempt("east-a-0", 31.0)
        assert state.health(31.0) == SchedulerHealth("available", "no pod waits unnoticed")

    def test_a_namespace_may_know_better(self) -> None:
        state = guarded(PODS_ONLY)
        for owner in "ab":
            state.pods.observe_waiting(Waiting.of(msgspec.convert(pod("east", owner), PendingPod), 0.0))
        for waiting in state.pods.unchecked_pods(31.0, 9):
            state.pods.record_check(waiting.uid, listed=True)
        assert [state.health(31.0, where).state for where in ("", "west", "east")] == [
            "available",
            "available",
            "unavailable",
        ]

    def test_a_pods_health_check_knows_nothing_before_its_list(self, golden: Callable[[str], None]) -> None:
        state = guarded(PODS_ONLY, synced=False)
        assert state.health(0.0).state == "unknown"
        golden(state.health(0.0).why)
        assert not state.has_answered
        state.observe_watch(synced=False, problem=FORBIDDEN, forbidden=True, staleness=0.0)
        assert state.health(0.0).state == "unknown"
        assert FORBIDDEN in state.health(0.0).why
        assert state.has_answered

    def test_the_lease_decides_alone_while_pods_are_unseen(self, golden: Callable[[str], None]) -> None:
        state = guarded(synced=False)
        state.lease.observe(lease(WALL), 0.0, WALL)
        assert not state.has_answered
        assert state.health(0.0).state == "available"
        golden(state.health(0.0).why)
        state.observe_watch(synced=False, problem=FORBIDDEN, forbidden=True, staleness=0.0)
        assert state.has_answered
        assert FORBIDDEN in state.health(0.0).why

    def test_what_was_seen_before_a_refusal_is_no_evidence(self) -> None:
        state = guarded()
        state.lease.observe(lease(WALL), 0.0, WALL)
        state.lease.observe(lease(WALL + 30), 30.0, WALL + 30)
        abandon(state)
        assert state.health(31.0).state == "unavailable"
        state.observe_watch(synced=True, problem="403: grant watch on pods", forbidden=True, staleness=0.0)
        assert state.health(31.0).state == "available"

    @pytest.mark.parametrize(("staleness", "expected"), [(59.0, "available"), (61.0, "unknown")])
    def test_a_copy_that_is_not_kept_in_step_grows_cold(self, staleness: float, expected: str) -> None:
        state = guarded(PODS_ONLY)
        state.observe_watch(synced=True, problem=DOWN.why, forbidden=False, staleness=staleness)
        assert state.health(0.0).state == expected


def test_without_a_health_check_it_counts_as_alive(golden: Callable[[str], None]) -> None:
    state = guarded(SchedulerHealthSettings("off"), synced=False)
    assert state.has_answered
    assert state.health(0.0).state == "available"
    golden(state.health(0.0).why)


class Watched:
    """A scheduler health check that polls a fake API server."""

    def __init__(
        self, server: FakeApiServer, clock: FakeClock, monitor: SchedulerMonitor, changes: list[tuple[str, str, str]]
    ) -> None:
        self.server = server
        self.clock = clock
        self.monitor = monitor
        self.changes = changes

    @property
    def state(self) -> str:
        return self.monitor.health().state

    async def becomes(self, state: str) -> None:
        await until(lambda: self.state == state)

    def renew(self, holder: str = "host_1") -> None:
        spec = {"holderIdentity": holder, "leaseDurationSeconds": 15, "renewTime": stamp(self.clock.wall())}
        self.server.put(LEASES, LEASE.name, LEASE.namespace, spec=spec)

    def launch(self, namespace: str, age: float = 0.0, *conditions: str, phase: str = "Pending", **meta: Any) -> None:
        """A launcher pod, and the VMI that knows it."""
        made = pod(namespace)
        metadata = made["metadata"] | {"creationTimestamp": stamp(self.clock.wall() - age)} | meta
        status = {"phase": phase, "conditions": [{"type": kind} for kind in conditions]}
        self.server.put(PENDING_PODS, metadata["name"], namespace, metadata=metadata, spec=made["spec"], status=status)
        (owner,) = metadata["ownerReferences"]
        active = {"activePods": {metadata["uid"]: ""}}
        self.server.put(ACTIVE_VMIS, owner["name"], namespace, metadata={"uid": owner["uid"]}, status=active)

    async def dies(self) -> None:
        """Let polls happen until the pods that wait have been asked about."""
        for _ in range(10):
            await self.pass_time(2)
            if self.state == "unavailable":
                return
        raise AssertionError(f"still {self.monitor.health()}")

    async def until(self, condition: Callable[[], object]) -> None:
        """Let time pass until something is true: what waits for its next attempt waits on this clock alone."""
        for _ in range(30):
            if condition():
                return
            await self.pass_time(2)
        raise AssertionError(f"still {self.monitor.health()}")

    async def pass_time(self, seconds: float) -> None:
        """Let every poll of that time happen."""
        assert isinstance(self.clock, HeldClock)
        for _ in range(int(seconds / 2)):
            polls = len(self.clock.slept)
            self.clock.advance(2.0)
            await until(lambda polls=polls: len(self.clock.slept) > polls)  # type: ignore[misc]


@asynccontextmanager
async def watched(
    tmp_path: Path, settings: SchedulerHealthSettings = LEASE, *, prepare: Any = lambda _: None
) -> AsyncIterator[Watched]:
    server = FakeApiServer()
    server.serve(PENDING_PODS)
    clock = HeldClock()
    changes: list[tuple[str, str, str]] = []
    async with running(server):
        transport = await connect(server.kubeconfig(tmp_path / "config"))
        monitor = SchedulerMonitor(
            transport,
            "kubevirt",
            settings,
            opted_in=lambda name: not name.startswith("foreign"),
            on_change=lambda name, old, new: changes.append((name, old.state, new.state)),
            clock=clock,
        )
        case = Watched(server, clock, monitor, changes)
        prepare(case)
        task = asyncio.create_task(monitor.run())
        try:
            yield case
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            await transport.close()


async def test_a_scheduler_lives_dies_and_comes_back(tmp_path: Path) -> None:
    async with watched(tmp_path, prepare=Watched.renew) as case:
        await until(lambda: case.monitor.waiting_for() is None)
        assert case.state == "available"
        for _ in range(5):
            await case.pass_time(2)
            case.renew()
        await case.pass_time(2 + 14)
        assert case.state == "available"
        await case.pass_time(2)
        assert case.state == "unavailable"
        case.renew()
        await case.pass_time(2)
        assert case.state == "available"
        assert case.changes == [
            ("kubevirt", "unknown", "available"),
            ("kubevirt", "available", "unavailable"),
            ("kubevirt", "unavailable", "available"),
        ]


async def test_pods_of_the_first_list_are_as_old_as_they_say(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    def prepare(case: Watched) -> None:
        case.renew()
        case.launch("east", 300.0)
        case.launch("west", 300.0)
        case.launch("seen", 300.0, "PodScheduled")
        case.launch("running", 300.0, phase="Running")

    async with watched(tmp_path, prepare=prepare) as case:
        await until(lambda: len(case.monitor.pods) == 2)
        await case.dies()
        assert case.monitor.health().state == "unavailable"
        assert "east/virt-launcher-a-0, west/virt-launcher-a-0" in caplog.text
        case.launch("east", 300.0, "PodScheduled")
        await case.becomes("available")
        query = case.server.requests(PENDING_PODS.path(), "watch")[0].query
        assert query["fieldSelector"] == "spec.schedulerName=kubevirt,status.phase=Pending"


async def test_later_pods_are_as_old_as_we_know_them(tmp_path: Path) -> None:
    async with watched(tmp_path, PODS_ONLY) as case:
        await case.becomes("available")
        await until(lambda: case.server.watching == 1)
        for namespace in ("east", "west"):
            case.launch(namespace, 300.0)  # by a clock that is five minutes behind
        await until(lambda: len(case.monitor.pods) == 2)
        assert case.state == "available"
        await case.pass_time(32)
        await case.dies()
        case.server.remove(PENDING_PODS, "virt-launcher-a-0", "east")
        await case.becomes("available")
        assert case.changes[-1] == ("kubevirt", "unavailable", "available")


async def test_a_pod_of_the_same_name_is_another_pod(tmp_path: Path) -> None:
    async with watched(tmp_path, PODS_ONLY) as case:
        await until(lambda: case.server.watching == 1)
        for namespace in ("east", "west"):
            case.launch(namespace)
        await until(lambda: len(case.monitor.pods) == 2)
        await case.pass_time(34)
        await case.dies()
        case.launch("east", uid="another")
        await case.becomes("available")


@pytest.mark.parametrize("settings", [LEASE, PODS_ONLY])
async def test_pods_that_tenants_make_change_nothing(tmp_path: Path, settings: SchedulerHealthSettings) -> None:
    def prepare(case: Watched) -> None:
        case.renew()
        for number in range(4):
            case.launch(f"foreign-{number}", 300.0)
        # Launcher pods by all that is written in them; but no VMI knows them.
        for namespace in ("east", "west"):
            case.launch(namespace, 300.0)
            case.server.put(ACTIVE_VMIS, "a", namespace, metadata={"uid": f"vmi-{namespace}-a"})

    async with watched(tmp_path, settings, prepare=prepare) as case:
        await until(lambda: len(case.monitor.pods) == 6)
        for _ in range(30):
            case.renew()
            await case.pass_time(2)
            assert case.state == "available"
        asked = {asked.path for asked in case.server.asked if "virtualmachineinstances" in asked.path}
        assert asked == {ACTIVE_VMIS.path(namespace, "a") for namespace in ("east", "west")}
        assert len(case.server.requests(ACTIVE_VMIS.path("east", "a"))) == 1


async def test_vmis_that_can_not_be_read_are_asked_again(tmp_path: Path) -> None:
    def prepare(case: Watched) -> None:
        for namespace in ("east", "west"):
            case.launch(namespace, 300.0)
        case.server.fail(ACTIVE_VMIS.path("east", "a"), 500, "InternalError", times=2)

    async with watched(tmp_path, PODS_ONLY, prepare=prepare) as case:
        await until(lambda: len(case.monitor.pods) == 2)
        await case.dies()


async def test_fat_and_gated_pods_are_not_kept(tmp_path: Path) -> None:
    def fat(case: Watched, name: str) -> None:
        case.server.put(
            PENDING_PODS,
            name,
            "foreign",
            metadata={"annotations": {"a": "x" * 250_000}},
            spec={"schedulerName": "kubevirt", "resourceClaims": [{"name": "gpu"}]},
            status={"phase": "Pending"},
        )

    def prepare(case: Watched) -> None:
        for number in range(40):
            fat(case, f"fat-{number}")

    async with watched(tmp_path, PODS_ONLY, prepare=prepare) as case:
        await until(lambda: case.server.watching == 1)
        fat(case, "another")
        case.launch("east")
        await until(lambda: len(case.monitor.pods) == 1)
        pages = case.server.requests(PENDING_PODS.path(), "get")
        # 10 MB: no page of them all, and none of a single one either.
        assert {int(page.query["limit"]) for page in pages[3:]} <= set(range(4, 17))
        assert len(pages) < 20


async def test_a_refused_watch_of_pods_leaves_the_lease(tmp_path: Path, golden: Callable[[str], None]) -> None:
    def prepare(case: Watched) -> None:
        case.renew()
        case.server.fail(PENDING_PODS.path(), 403, "Forbidden", times=1000)

    async with watched(tmp_path, prepare=prepare) as case:
        await case.until(lambda: case.monitor.waiting_for() is None)
        assert case.state == "available"
        golden(case.monitor.health().why)


async def test_an_unanswered_list_of_pods_is_waited_for(tmp_path: Path, golden: Callable[[str], None]) -> None:
    def prepare(case: Watched) -> None:
        case.renew()
        case.server.fail(PENDING_PODS.path(), 500, "InternalError", times=1)

    async with watched(tmp_path, prepare=prepare) as case:
        await until(lambda: case.monitor.pods.problem is not None and case.state == "available")
        golden(case.monitor.waiting_for() or "")
        await case.pass_time(2)
        await until(lambda: case.monitor.waiting_for() is None)


async def test_without_a_health_check_nothing_is_asked(tmp_path: Path) -> None:
    async with watched(tmp_path, SchedulerHealthSettings("off")) as case:
        await case.monitor.run()
        assert case.state == "available"
        assert case.monitor.waiting_for() is None
        assert case.server.asked == []
