"""The Lease of a scheduler, the pods that can be evidence against it, and the monitor that reads both."""

from __future__ import annotations

import asyncio
import math
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.builders import Json
from tests.cluster.fake_apiserver import ApiServers, FakeApiServer, HeldClock
from tests.cluster.files_case import launcher_pod as pod
from tests.golden_files import Golden
from tests.waiting import until
from webhook.cluster import scheduler_health
from webhook.cluster.scheduler_health import HealthEvidence, LeaseState, SchedulerMonitor, Waiting, WaitingPods
from webhook.errors import Unavailable
from webhook.facts import SchedulerHealth
from webhook.k8s.client.api import Forbidden
from webhook.k8s.client.freshness import Fresh, Freshness, Stale, Unknown
from webhook.k8s.resources import LEASES, PENDING_PODS
from webhook.k8s.types.core import PendingPod
from webhook.k8s.types.meta import Lease, LeaseSpec
from webhook.kubevirt.resources import ACTIVE_VMIS
from webhook.kubevirt.types.views import ActiveVmi
from webhook.settings.schedulers import HealthCheck

LEASE = HealthCheck("lease", "kubevirt-scheduler", "kubevirt-scheduler")
PODS_ONLY, OFF = HealthCheck("pods"), HealthCheck("off")
WALL = 1_790_000_000.0
DOWN = Unavailable("no connection")
FORBIDDEN = "403: list pods"
WELL = SchedulerHealth("available", "no pod waits unnoticed")


def stamp(unix: float) -> str:
    return datetime.fromtimestamp(unix, UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def lease(renewed: float | str | None, holder: str | None = "host_1", seconds: int | None = 15) -> Lease:
    renew_time = stamp(renewed) if isinstance(renewed, float) else renewed
    return Lease(spec=LeaseSpec(holder_identity=holder, lease_duration_seconds=seconds, renew_time=renew_time))


def guarded(settings: HealthCheck = LEASE, *, synced: bool = True) -> HealthEvidence:
    state = HealthEvidence(settings, lambda _: True)
    if synced:
        state.observe_watch(Fresh(0.0))
    return state


# At monotonic seconds, what is read, or the state that is expected. The wall clock goes along.
Step = tuple[float, Lease | Unavailable | str | None]
HELD = lease(WALL)


def evolve(*steps: Step) -> HealthEvidence:
    state = guarded()
    for now, step in steps:
        if isinstance(step, str):
            assert state.health(now).state == step, now
        else:
            state.lease.observe(step, now, WALL + now)
    return state


class TestLease:
    def test_nothing_is_known_before_the_first_answer(self, golden: Golden) -> None:
        state = evolve((0.0, "unknown"))
        golden(state.health(0.0).why)
        assert not state.has_answered
        state.lease.observe(DOWN, 0.0, WALL)
        assert not state.has_answered
        assert state.health(0.0) == SchedulerHealth("unknown", DOWN.why)

    def test_no_lease_means_dead(self, golden: Golden) -> None:
        state = evolve((0.0, None), (0.0, "unavailable"))
        assert state.has_answered
        golden(state.health(0.0).why)

    @pytest.mark.parametrize("holder", [None, ""])
    def test_a_released_lease_means_dead_at_once(self, holder: str | None) -> None:
        state = evolve((0.0, HELD), (1.0, lease(WALL + 1, holder, 1)), (1.0, "unavailable"))
        assert "released" in state.health(1.0).why

    def test_a_fresh_lease_at_first_sight_is_believed_for_its_duration(self) -> None:
        old = lease(WALL - 10)
        state = evolve((0.0, old), (14.9, "available"), (14.0, old), (15.0, "unavailable"))
        assert "not been renewed for 15 s" in state.health(15.0).why

    @pytest.mark.parametrize("renewed", [WALL - 15, WALL - 3600, WALL + 61, "yesterday", "2026-09-21T12:00:00", None])
    def test_an_implausible_first_sight_proves_nothing(self, renewed: float | str | None) -> None:
        state = evolve((0.0, lease(renewed)), (0.0, "unknown"), (14.9, "unknown"), (15.0, "unavailable"))
        assert state.has_answered

    @pytest.mark.parametrize(
        ("renewed", "steps"),
        [
            # By the holder's clock it has expired, and nobody renews it for a quarter of its duration.
            (WALL - 63, [(0.0, "unknown"), (14.9, "unknown"), (15.0, "unavailable")]),
            # One that is renewed meanwhile is held, whatever its holder's clock says.
            (WALL - 3600, [(0.0, "unknown"), (14.0, lease(WALL - 3586, seconds=60)), (15.0, "available")]),
            # Not by the holder's clock, or by none that can be read.
            (WALL + 200, [(15.0, "unknown"), (59.9, "unknown"), (60.0, "unavailable")]),
            (None, [(15.0, "unknown"), (59.9, "unknown"), (60.0, "unavailable")]),
            (WALL - 50, [(0.0, "available"), (15.0, "available")]),
        ],
    )
    def test_a_command_does_not_watch_for_as_long_as_a_lease_lasts(
        self, renewed: float | None, steps: list[Step]
    ) -> None:
        state = LeaseState("kubevirt/scheduler", is_brief=True)
        state.observe(lease(renewed, seconds=60), 0.0, WALL)
        for now, step in steps:
            if isinstance(step, str):
                assert state.health(now).state == step, now
                assert state.is_old is (step != "available")
            else:
                state.observe(step, now, WALL + now)

    @pytest.mark.parametrize("seconds", [None, 0, -1, 15, 137])
    def test_a_missing_duration_is_kube_schedulers_default(self, seconds: int | None) -> None:
        end = 137.0 if seconds == 137 else 15.0
        evolve((0.0, lease(WALL, seconds=seconds)), (end - 0.1, "available"), (end, "unavailable"))

    CHANGES: dict[str, tuple[Step, ...]] = {
        "a skewed clock does not matter once a change was seen": (
            *((0.0, lease(WALL - 3600)), (2.0, lease(WALL - 3598))),
            *((2.0, "available"), (16.9, "available"), (17.0, "unavailable")),
        ),
        "age counts from the last change": (
            *(step for now in range(0, 60, 2) for step in ((now, lease(WALL + now)), (now, "available"))),
            *((72.9, "available"), (73.0, "unavailable")),
        ),
        "the next holder revives it": ((0.0, lease(WALL, "", 1)), (2.0, lease(WALL + 2, "host_2")), (2.0, "available")),
        "recovery with the first change": (
            *((now, HELD) for now in (0.0, 10.0, 20.0, 30.0)),
            *((30.0, "unavailable"), (32.0, lease(WALL + 32)), (32.0, "available")),
        ),
        # Out of a backup.
        "one that comes back is seen for the first time": (
            *((0.0, None), (2.0, lease(WALL - 3600)), (2.0, "unknown")),
            *((4.0, None), (6.0, lease(WALL + 5)), (6.0, "available")),
        ),
        "without spec it has no holder": ((0.0, Lease()), (0.0, "unavailable")),
        "unavailable stands for as long": ((0.0, None), (2.0, DOWN), (14.9, "unavailable"), (15.0, "unknown")),
        "seen to be expired stands for as long": (
            *((now, HELD) for now in (0.0, 14.0, 20.0)),
            *((22.0, DOWN), (34.9, "unavailable"), (35.0, "unknown")),
        ),
        # The next holder's clock is an hour behind.
        "a released one stands longer than its one second": (
            *((0.0, lease(WALL, "", 1)), (2.0, DOWN), (14.9, "unavailable")),
            *((4.0, lease(WALL - 3600, "host_2")), (4.0, "available")),
        ),
        "a change during long blindness dates nothing": (
            *((0.0, HELD), (2.0, DOWN), (3600.0, lease(WALL + 100)), (3600.0, "unknown")),
            *((3602.0, lease(WALL + 3601)), (3602.0, "available")),
        ),
        "a change during a short one does": (
            *((0.0, lease(WALL - 3600)), (2.0, DOWN), (4.0, lease(WALL - 3596)), (4.0, "available")),
        ),
    }

    @pytest.mark.parametrize("steps", CHANGES.values(), ids=CHANGES)
    def test_states_follow_what_is_read(self, steps: tuple[Step, ...]) -> None:
        evolve(*steps)

    def test_a_refusal_is_an_answer(self) -> None:
        state = evolve((0.0, Forbidden("403: grant get on leases")), (0.0, "unknown"))
        assert state.has_answered
        assert "grant get on leases" in state.health(0.0).why

    def test_alive_stands_until_it_would_have_expired(self, golden: Golden) -> None:
        golden(evolve((0.0, HELD), (10.0, DOWN), (14.9, "available"), (15.0, "unknown")).health(15.0).why)


OVERDUE = scheduler_health.UNNOTICED_SECONDS + 1


def read(manifest: Json) -> PendingPod:
    return msgspec.convert(manifest, PendingPod)


def waiting(*manifests: Json, since: float = 0.0, pods: WaitingPods | None = None) -> WaitingPods:
    """Pods that wait, in two namespaces that have opted in and in others."""
    pods = WaitingPods(("east", "west").__contains__) if pods is None else pods
    for manifest in manifests:
        pods.observe_waiting(Waiting.of(read(manifest), since))
    return pods


def check_all(pods: WaitingPods, now: float = OVERDUE, *, listed: bool = True) -> None:
    for each in pods.unchecked_pods(now, scheduler_health.MOST):
        own = {"metadata": {"uid": each.owner}, "status": {"activePods": {each.uid: "n"}}}
        pods.record_check(each, msgspec.convert(own, ActiveVmi) if listed else None)


def evidence(*manifests: Json, now: float = OVERDUE, namespace: str = "") -> str | None:
    """What pods that have waited since 0 say, every VMI knowing its own."""
    pods = waiting(*manifests)
    check_all(pods, now)
    return pods.evidence(now, namespace)


class TestEnough:
    @pytest.mark.control("live-scheduler-looks-dead")
    def test_pods_of_two_namespaces(self, golden: Golden) -> None:
        two = pod("east"), pod("west")
        golden(evidence(*two) or "")
        assert evidence(*two, now=scheduler_health.UNNOTICED_SECONDS) is None

    @pytest.mark.control("live-scheduler-looks-dead")
    def test_pods_of_two_vms_for_their_own_namespace_alone(self, golden: Golden) -> None:
        two = pod("east", "a"), pod("east", "b")
        assert evidence(*two) is evidence(*two, namespace="west") is None
        golden(evidence(*two, namespace="east") or "")

    @pytest.mark.control("live-scheduler-looks-dead")
    def test_one_pod_or_one_vm_is_never_enough(self) -> None:
        assert evidence(pod("east"), namespace="east") is None
        assert evidence(pod("east", "a", 1), pod("east", "a", 2), namespace="east") is None

    @pytest.mark.control("pods-named-in-warnings", "reveals-schedulers")
    def test_nobody_is_named_but_in_the_log(self) -> None:
        text = evidence(pod("east", "secret-a"), pod("west", "secret-b"), namespace="east") or ""
        assert "secret" not in text and "east" not in text
        pods = waiting(pod("west", "b"), pod("east", "a"))
        check_all(pods)
        assert pods.witnesses() == ["east/virt-launcher-a-0", "west/virt-launcher-b-0"]


def both(**spec: Any) -> list[Json]:
    return [pod(each, **spec) for each in ("east", "west")]


class TestNoEvidence:
    @pytest.mark.control("live-scheduler-looks-dead")
    @pytest.mark.parametrize(
        "spec",
        [
            *(
                {"resourceClaims": [{"name": "gpu", claim: "none"}]}
                for claim in ("resourceClaimName", "resourceClaimTemplateName")
            ),
            {"schedulingGates": [{"name": "example.com/gate"}]},
            {"schedulingGroup": {"podGroupName": "gang"}},
            {"workloadRef": {"name": "gang", "podGroup": "gang"}},
        ],
    )
    def test_pods_that_a_live_scheduler_may_leave_aside(self, spec: Json) -> None:
        assert evidence(*both(**spec), now=1e6) is None
        assert waiting(*both(**spec)).unchecked_pods(1e6, scheduler_health.MOST) == []

    @pytest.mark.control("live-scheduler-looks-dead")
    @pytest.mark.parametrize(
        ("volume", "patience"),
        [
            ({"persistentVolumeClaim": {"claimName": "root"}}, scheduler_health.VOLUME_SECONDS),
            ({"ephemeral": {"volumeClaimTemplate": {}}}, scheduler_health.VOLUME_SECONDS),
            # An emptyDir needs no volume to be made.
            ({"emptyDir": {}}, 0.0),
        ],
    )
    def test_pods_whose_volumes_a_scheduler_may_be_waiting_for(self, volume: Json, patience: float) -> None:
        pods = both(volumes=[{"name": "other", "emptyDir": {}}, {"name": "root", **volume}])
        assert evidence(*pods, now=patience + scheduler_health.UNNOTICED_SECONDS) is None
        assert evidence(*pods, now=patience + OVERDUE)

    @pytest.mark.control("live-scheduler-looks-dead")
    def test_namespaces_that_have_not_opted_in_or_opt_out_later(self) -> None:
        pods = waiting(pod("foreign-1"), pod("foreign-2"), pod("east"))
        assert [each.namespace for each in pods.unchecked_pods(OVERDUE, scheduler_health.MOST)] == ["east"]
        check_all(pods)
        assert pods.evidence(OVERDUE, "foreign-1") is None
        inside = {"east", "west"}
        pods = waiting(*both(), pods=WaitingPods(inside.__contains__))
        check_all(pods)
        assert pods.evidence(OVERDUE)
        inside.remove("west")
        assert pods.evidence(OVERDUE) is None

    @pytest.mark.control("live-scheduler-looks-dead")
    @pytest.mark.parametrize("change", ["labels", "ownerReferences"])
    def test_other_pods(self, change: str) -> None:
        others = both()
        for other in others:
            del other["metadata"][change]
        assert evidence(*others) is None

    @pytest.mark.control("live-scheduler-looks-dead")
    def test_pods_that_no_vmi_knows_or_nobody_has_asked_about(self) -> None:
        pods = waiting(*both())
        assert pods.evidence(OVERDUE) is None
        check_all(pods, listed=False)
        assert pods.evidence(OVERDUE) is None
        assert pods.unchecked_pods(OVERDUE + 60, scheduler_health.MOST) == []


class TestPositive:
    @pytest.mark.control("live-scheduler-looks-dead")
    def test_a_scheduler_that_has_just_tried_a_pod_is_available_whatever_waits(self) -> None:
        pods = waiting(*both(), pod("foreign", "x"))
        check_all(pods, 100.0)
        assert pods.evidence(100.0)
        # A tenant who creates a pod may also bind it: pods that never waited prove nothing.
        pods.observe_attempt("bound-by-its-maker", 100.0)
        assert pods.evidence(100.0)
        pods.observe_attempt("foreign-x-0", 100.0)
        assert pods.evidence(100.0 + scheduler_health.UNNOTICED_SECONDS) is None
        assert pods.evidence(100.0 + OVERDUE)

    def test_what_is_gone_is_no_evidence_any_more(self) -> None:
        pods = waiting(*both(), pod("west", "b"))
        check_all(pods)
        pods.forget("west-a-0")
        assert pods.evidence(OVERDUE)
        pods.forget("west-b-0")
        assert pods.evidence(OVERDUE) is None
        assert pods.witnesses() == ["east/virt-launcher-a-0"]


class TestBounds:
    @pytest.mark.control("watches-filled")
    def test_of_one_namespace_in_which_what_goes_makes_room_and_of_all(self) -> None:
        most = scheduler_health.MOST_PER_NAMESPACE
        pods = waiting(*(pod("east", f"vm-{number}") for number in range(most + 50)), pod("west"))
        assert len(pods) == most + 1
        check_all(pods)
        assert pods.evidence(OVERDUE)
        pods.forget("east-vm-0-0")
        waiting(pod("east", "new"), pods=pods)
        assert len(pods) == most + 1
        most = scheduler_health.MOST
        assert len(waiting(*(pod(f"ns-{number}") for number in range(most + 50)))) == most

    @pytest.mark.control("watches-filled")
    @pytest.mark.parametrize("names", [300, 1], ids=["different pods", "one that comes again"])
    def test_pods_that_come_and_go_leave_nothing(self, monkeypatch: pytest.MonkeyPatch, names: int) -> None:
        monkeypatch.setattr(scheduler_health, "MOST", 100)
        pods = waiting(pod("west"))
        for number in range(3 * scheduler_health.MOST):
            waiting(pod("east", f"vm-{number % names}"), since=float(number % 7), pods=pods)
            pods.forget(f"east-vm-{number % names}-0")
        assert len(pods._due) <= 2 * scheduler_health.MOST
        assert [each.namespace for each in pods.unchecked_pods(OVERDUE, scheduler_health.MOST)] == ["west"]

    def test_namespaces_take_turns_in_being_checked(self) -> None:
        pods = waiting(*(pod("east", f"vm-{number}") for number in range(50)), pod("west"))
        assert sorted(each.namespace for each in pods.unchecked_pods(OVERDUE, 4)) == ["east", "east", "east", "west"]


@pytest.mark.parametrize(
    ("uid", "active", "known"),
    [
        *(("vmi-east-a", {}, False), ("vmi-east-a", {"activePods": None}, False)),
        *(("vmi-east-a", {"activePods": {"another": ""}}, False), ("another", {"activePods": {"east-a-0": ""}}, False)),
        ("vmi-east-a", {"activePods": {"east-a-0": ""}}, True),
    ],
)
def test_a_pod_is_listed_by_the_vmi_that_owns_it(uid: str, active: Json, known: bool) -> None:
    vmi = msgspec.convert({"metadata": {"uid": uid}, "status": active}, ActiveVmi)
    for other, is_evidence in ((vmi, known), (ActiveVmi(), False), (None, False)):
        pods = waiting(pod("east"))
        (each,) = pods.unchecked_pods(OVERDUE, 1)
        pods.record_check(each, other)
        assert bool(pods.witnesses()) is is_evidence


# What its former wait was counts no longer.
COMES_AGAIN = [("seen", 0), ("tried", 0), ("seen", 20)]
WHAT, WHERE = st.sampled_from(["seen", "tried", "gone", "check"]), st.sampled_from(["east", "west", "foreign"])


@given(st.lists(st.tuples(WHAT, WHERE, st.sampled_from("abc"), st.integers(0, 20)), max_size=60))
@example(
    [("seen", "east", "a", 0), *((step, "west", "b", wait) for step, wait in COMES_AGAIN), ("check", "east", "a", 11)]
)
def test_evidence_is_what_a_plain_count_says(steps: list[tuple[str, str, str, int]]) -> None:
    pods = waiting()
    seen: dict[str, tuple[str, str, float]] = {}
    known: set[str] = set()
    now, tried = 0.0, -1e9
    for step, namespace, owner, seconds in steps:
        now += seconds
        uid = f"{namespace}-{owner}-0"
        if step == "seen":
            waiting(pod(namespace, owner), since=now, pods=pods)
            seen.setdefault(uid, (namespace, owner, now))
        elif step == "check":
            check_all(pods, now)
            known |= {each for each, (_, _, since) in seen.items() if now - since > scheduler_health.UNNOTICED_SECONDS}
        else:
            if step == "tried" and uid in seen:
                tried = now
            (pods.observe_attempt(uid, now) if step == "tried" else pods.forget(uid))
            seen.pop(uid, None)
            known.discard(uid)
        counted = [seen[each] for each in known if seen[each][0] != "foreign"]
        lately = now - tried <= scheduler_health.UNNOTICED_SECONDS
        all_over = len({namespace for namespace, _, _ in counted}) >= 2 and not lately
        east = len({owner for namespace, owner, _ in counted if namespace == "east"}) >= 2 and not lately
        assert (bool(pods.evidence(now)), bool(pods.evidence(now, "east"))) == (all_over, all_over or east)


def abandon(state: HealthEvidence, *manifests: Json) -> None:
    """Pods wait from 0 on, by default two of two namespaces, as their VMIs confirm."""
    waiting(*manifests or both(), pods=state.pods)
    check_all(state.pods)


class TestEvidence:
    def test_pods_that_nobody_tries_outweigh_a_fresh_lease(self, golden: Golden) -> None:
        state = guarded()
        for now in (0.0, 30.0):
            state.lease.observe(lease(WALL + now), now, WALL + now)
        assert state.health(31.0).state == "available"
        abandon(state)
        assert state.health(31.0).state == "unavailable"
        golden(state.health(31.0).why)
        # What was seen before a denial is no evidence.
        state.observe_watch(Fresh(0.0, Forbidden("403: grant watch on pods")))
        assert state.health(31.0).state == "available"

    def test_a_namespace_may_know_better(self) -> None:
        state = guarded(PODS_ONLY)
        abandon(state, pod("east", "a"), pod("east", "b"))
        states = {where: state.health(31.0, where).state for where in ("", "west", "east")}
        assert states == {"": "available", "west": "available", "east": "unavailable"}

    def test_a_pods_health_check_knows_nothing_before_its_list(self, golden: Golden) -> None:
        state = guarded(PODS_ONLY, synced=False)
        assert (state.health(0.0).state, state.has_answered) == ("unknown", False)
        golden(state.health(0.0).why)
        state.observe_watch(Unknown(Forbidden(FORBIDDEN)))
        assert (state.health(0.0).state, state.has_answered) == ("unknown", True)
        assert FORBIDDEN in state.health(0.0).why

    def test_the_lease_decides_alone_while_pods_are_unseen(self, golden: Golden) -> None:
        state = guarded(synced=False)
        state.lease.observe(lease(WALL), 0.0, WALL)
        assert (state.health(0.0).state, state.has_answered) == ("available", False)
        golden(state.health(0.0).why)
        state.observe_watch(Unknown(Forbidden(FORBIDDEN)))
        assert state.has_answered
        assert FORBIDDEN in state.health(0.0).why

    @pytest.mark.parametrize(
        ("store", "expected"),
        [
            *((Fresh(59.0, DOWN), "available"), (Fresh(61.0, DOWN), "unknown")),
            # Between two bookmarks it may be a minute old; without any for long, nothing shows that it is not older.
            *((Fresh(149.0), "available"), (Stale("age", 150.0), "unknown"), (Stale("restore", math.inf), "unknown")),
        ],
    )
    def test_a_store_that_is_not_kept_in_step_grows_cold(self, store: Freshness, expected: str) -> None:
        state = guarded(PODS_ONLY)
        state.observe_watch(store)
        assert state.health(0.0).state == expected

    def test_without_a_health_check_it_counts_as_alive(self, golden: Golden) -> None:
        state = guarded(OFF, synced=False)
        assert (state.health(0.0).state, state.has_answered) == ("available", True)
        golden(state.health(0.0).why)


def undated(text: str) -> str:
    """A text without how long ago: how many attempts until then are made depends on the machine."""
    return re.sub(r"\d+ s ago", "0 s ago", text)


class Watched:
    """A scheduler health check that polls a fake API server."""

    def __init__(self, server: FakeApiServer, clock: HeldClock, monitor: SchedulerMonitor) -> None:
        self.server = server
        self.clock = clock
        self.monitor = monitor
        self.changes: list[tuple[str, str, str]] = []

    @property
    def state(self) -> str:
        return self.monitor.health().state

    async def becomes(self, state: str) -> None:
        await until(lambda: self.state == state)

    async def pods(self, count: int) -> None:
        await until(lambda: len(self.monitor.pods.contents) == count)

    def renew(self) -> None:
        spec = {"holderIdentity": "host_1", "leaseDurationSeconds": 15, "renewTime": stamp(self.clock.wall())}
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

    async def until(self, condition: Callable[[], object]) -> None:
        """Let time pass until something is true: what waits for its next attempt waits on this clock alone."""
        for _ in range(30):
            if condition():
                return
            await self.pass_time(2)
        raise AssertionError(f"still {self.monitor.health()}")

    async def dies(self) -> None:
        """Let polls happen until the pods that wait have been asked about."""
        await self.pass_time(2)
        await self.until(lambda: self.state == "unavailable")

    async def pass_time(self, seconds: float) -> None:
        """Let every poll of that time happen."""
        for _ in range(int(seconds / 2)):
            polls = len(self.clock.slept)
            self.clock.advance(2.0)
            await until(lambda polls=polls: len(self.clock.slept) > polls)  # type: ignore[misc]


@asynccontextmanager
async def watched(
    apiservers: ApiServers,
    settings: HealthCheck = LEASE,
    *,
    prepare: Callable[[Watched], object] = lambda _: None,
    watches: int = 0,
) -> AsyncIterator[Watched]:
    server = FakeApiServer()
    server.serve(PENDING_PODS)
    clock = HeldClock()
    await apiservers.start(server)
    transport = await apiservers.connect(server)
    monitor = SchedulerMonitor(
        transport,
        "kubevirt",
        settings,
        opted_in=lambda name: not name.startswith("foreign"),
        on_change=lambda name, old, new: case.changes.append((name, old.state, new.state)),
        clock=clock,
    )
    case = Watched(server, clock, monitor)
    prepare(case)
    task = asyncio.create_task(monitor.run())
    try:
        await until(lambda: server.watching >= watches)
        yield case
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await transport.close()


class TestMonitor:
    async def test_a_scheduler_lives_dies_and_comes_back(self, apiservers: ApiServers) -> None:
        async with watched(apiservers, prepare=Watched.renew) as case:
            await until(lambda: case.monitor.waiting_for() is None)
            assert case.state == "available"
            for _ in range(5):
                await case.pass_time(2)
                case.renew()
            for seconds, state in ((2 + 14, "available"), (2, "unavailable")):
                await case.pass_time(seconds)
                assert case.state == state
            case.renew()
            await case.pass_time(2)
            states = ["unknown", "available", "unavailable", "available"]
            assert case.changes == [("kubevirt", *states[at : at + 2]) for at in range(3)]

    async def test_pods_of_the_first_list_are_as_old_as_they_say(
        self, apiservers: ApiServers, caplog: pytest.LogCaptureFixture
    ) -> None:
        def prepare(case: Watched) -> None:
            case.renew()
            for namespace in ("east", "west"):
                case.launch(namespace, 300.0)
            case.launch("seen", 300.0, "PodScheduled")
            case.launch("running", 300.0, phase="Running")

        async with watched(apiservers, prepare=prepare) as case:
            await case.pods(2)
            await case.dies()
            assert "east/virt-launcher-a-0, west/virt-launcher-a-0" in caplog.text
            case.launch("east", 300.0, "PodScheduled")
            await case.becomes("available")
            query = case.server.requests(PENDING_PODS.path(), "watch")[0].query
            assert query["fieldSelector"] == "spec.schedulerName=kubevirt,status.phase=Pending"

    @pytest.mark.parametrize("end", ["removed", "another"])
    async def test_later_pods_are_as_old_as_we_know_them(self, apiservers: ApiServers, end: str) -> None:
        async with watched(apiservers, PODS_ONLY, watches=1) as case:
            await case.becomes("available")
            for namespace in ("east", "west"):
                case.launch(namespace, 300.0)  # by a clock that is five minutes behind
            await case.pods(2)
            assert case.state == "available"
            await case.pass_time(32)
            await case.dies()
            if end == "removed":
                case.server.remove(PENDING_PODS, "virt-launcher-a-0", "east")
            else:  # of the same name
                case.launch("east", uid="another")
            await case.becomes("available")
            assert case.changes[-1] == ("kubevirt", "unavailable", "available")

    @pytest.mark.control("live-scheduler-looks-dead")
    @pytest.mark.parametrize("settings", [LEASE, PODS_ONLY])
    async def test_pods_that_tenants_make_change_nothing(self, apiservers: ApiServers, settings: HealthCheck) -> None:
        def prepare(case: Watched) -> None:
            case.renew()
            for number in range(4):
                case.launch(f"foreign-{number}", 300.0)
            # Launcher pods by all that is written in them; but no VMI knows them.
            for namespace in ("east", "west"):
                case.launch(namespace, 300.0)
                case.server.put(ACTIVE_VMIS, "a", namespace, metadata={"uid": f"vmi-{namespace}-a"})

        async with watched(apiservers, settings, prepare=prepare) as case:
            await case.pods(6)
            for _ in range(30):
                case.renew()
                await case.pass_time(2)
                assert case.state == "available"
            asked = [asked.path for asked in case.server.asked if "virtualmachineinstances" in asked.path]
            assert sorted(asked) == [ACTIVE_VMIS.path(namespace, "a") for namespace in ("east", "west")]

    async def test_vmis_that_can_not_be_read_are_asked_again(self, apiservers: ApiServers) -> None:
        def prepare(case: Watched) -> None:
            for namespace in ("east", "west"):
                case.launch(namespace, 300.0)
            case.server.fail(ACTIVE_VMIS.path("east", "a"), 500, "InternalError", times=2)

        async with watched(apiservers, PODS_ONLY, prepare=prepare) as case:
            await case.pods(2)
            await case.dies()

    @pytest.mark.control("watches-filled")
    async def test_fat_and_gated_pods_are_not_kept(self, apiservers: ApiServers) -> None:
        spec = {"schedulerName": "kubevirt", "resourceClaims": [{"name": "gpu"}]}
        fat = {"metadata": {"annotations": {"a": "x" * 250_000}}, "spec": spec, "status": {"phase": "Pending"}}

        def prepare(case: Watched) -> None:
            for number in range(40):
                case.server.put(PENDING_PODS, f"fat-{number}", "foreign", **fat)

        async with watched(apiservers, PODS_ONLY, prepare=prepare, watches=1) as case:
            case.server.put(PENDING_PODS, "another", "foreign", **fat)
            case.launch("east")
            await case.pods(1)
            pages = case.server.requests(PENDING_PODS.path(), "get")
            # 10 MB: no page of them all, and none of a single one either.
            assert {int(page.query["limit"]) for page in pages[3:]} <= set(range(4, 17))
            assert len(pages) < 20

    async def test_a_refused_watch_of_pods_leaves_the_lease(self, apiservers: ApiServers, golden: Golden) -> None:
        def prepare(case: Watched) -> None:
            case.renew()
            case.server.fail(PENDING_PODS.path(), 403, "Forbidden", times=1000)

        async with watched(apiservers, prepare=prepare) as case:
            await case.until(lambda: case.monitor.waiting_for() is None)
            assert case.state == "available"
            golden(undated(case.monitor.health().why))

    async def test_an_unanswered_list_of_pods_is_waited_for(self, apiservers: ApiServers, golden: Golden) -> None:
        def prepare(case: Watched) -> None:
            case.renew()
            case.server.fail(PENDING_PODS.path(), 500, "InternalError", times=1)

        async with watched(apiservers, prepare=prepare) as case:
            await until(lambda: case.monitor.pods.freshness(case.clock.now()).problem and case.state == "available")
            golden(undated(case.monitor.waiting_for() or ""))
            await case.pass_time(2)
            await until(lambda: case.monitor.waiting_for() is None)

    async def test_without_a_health_check_nothing_is_asked(self, apiservers: ApiServers) -> None:
        async with watched(apiservers, OFF) as case:
            await case.monitor.run()
            assert (case.state, case.monitor.waiting_for(), case.server.asked) == ("available", None, [])
