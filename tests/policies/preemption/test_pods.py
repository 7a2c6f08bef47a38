"""Deletions by schedulers and by the taint controller: which are put off, for how long, and which go as they would."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.builders import Json
from tests.policies.eviction.world import MINE, vmi
from tests.policies.migration.world import NODES, VMI, node
from tests.policies.preemption.world import (
    ALL_UNFINISHED,
    MIGRATION_UID,
    STORED,
    TAINT_CONTROLLER,
    WAITING,
    condition,
    decide,
    facts,
    migration,
    pods,
    preemptor,
    review,
    stamp,
    target,
    victim,
)
from webhook.admission.reasons import common
from webhook.errors import Unavailable
from webhook.facts import ListKey
from webhook.placement.quota import LIMIT_RANGES, QUOTAS, QuotaStatus, ResourceQuota
from webhook.policies.preemption import reasons
from webhook.policies.preemption.pods import BY_TAINT, PREFIX
from webhook.policies.registry import BY_PATH

OTHER = migration(name="kubevirt-evacuation-x")
DOWN = "node.kubernetes.io/unreachable"


def tainted(key: str) -> list[Json]:
    found = node("node-a1", "a")
    found["spec"] = {"taints": [{"key": key, "effect": "NoExecute"}]}
    return [found, *(each for each in NODES if each["metadata"]["name"] != "node-a1")]


def by_taint(ago: float = 1) -> Json:
    return review(victim(BY_TAINT, ago), TAINT_CONTROLLER)


class TestPutOff:
    def test_until_a_migration_has_been_requested(self) -> None:
        decision = decide(facts())
        assert (decision.code, decision.details["vmi"]) == (reasons.MIGRATION_REQUESTED, "web01")
        assert decision.denial
        assert (decision.denial.code, decision.denial.retry_after) == (429, 10)

    @pytest.mark.parametrize("strategy", ["LiveMigrate", "LiveMigrateIfPossible", "None", "External", None])
    def test_whatever_its_eviction_strategy(self, strategy: str | None) -> None:
        """It is about evictions, which a VM may end by; without the policy the deletion ends it in any case."""
        assert decide(facts(found=vmi(strategy))).code == reasons.MIGRATION_REQUESTED

    @pytest.mark.parametrize("moving", [migration(), OTHER, migration(phase="Pending"), migration(phase="")])
    def test_while_it_moves_whoever_has_it_moved(self, moving: Json) -> None:
        decision = decide(facts(moving), review(victim(ago=200)))
        assert decision.code == reasons.WAITS
        assert "may take 295s more" in decision.reasons[0].text
        # The condition is taken back while it waits.
        assert decide(facts(moving), review(victim(status="False"))).code == reasons.WAITS

    def test_the_taint_controller_waits_for_longer_than_the_deadline_in_its_fifty_waits(self) -> None:
        for seconds in (30, 300, 3601):
            denial = decide(facts(waiting=()), by_taint(), deadline_seconds=seconds).denial
            assert denial
            assert denial.retry_after * 50 > seconds
            assert denial.retry_after >= 10
        assert decide(facts(migration(), waiting=()), by_taint()).code == reasons.WAITS

    def test_for_a_moment_in_which_the_scheduler_may_not_have_nominated_a_node_yet(self) -> None:
        for waiting in ((), (preemptor(node="node-b1"),), (preemptor(priority=0),), (preemptor(phase="Failed"),)):
            decision = decide(facts(waiting=waiting), review(victim(ago=1)))
            assert decision.code == reasons.PREEMPTOR_UNKNOWN
            assert decision.denial
            assert decision.denial.retry_after == 1
            assert decide(facts(waiting=waiting), review(victim(ago=4))).code == reasons.SYNCHRONOUS
            # While a VM migrates that somebody else has requested, as for the policy's own migration.
            moving = facts(migration(3, name="mine-1"), waiting=waiting)
            assert decide(moving, review(victim(ago=4))).code == reasons.SYNCHRONOUS
            assert decide(moving, review(victim(ago=6))).code == reasons.PREEMPTOR_GONE

    def test_without_a_time_where_the_scheduler_has_to_look_again(self) -> None:
        gone = decide(facts(migration(), waiting=()), review(victim(ago=20)))
        ended = decide({}, review(victim() | {"status": {"phase": "Succeeded"}}))
        for decision, code in ((gone, reasons.PREEMPTOR_GONE), (ended, reasons.ENDED)):
            assert (decision.code, decision.denial and decision.denial.retry_after) == (code, 0)


# Of a pod that was chosen for its taint, and whose containers have ended.
ENDED = victim(BY_TAINT)["status"] | {"phase": "Succeeded"}
ALLOWED: list[tuple[dict[Any, object], Json, str]] = [
    (facts(migration(300)), review(), reasons.OVERDUE),
    (facts(migration(), targets=(target(15),)), review(), reasons.NO_ROOM),
    (facts(migration(phase="Failed", ended=599)), review(), reasons.RECENT),
    (facts(migration(phase="Succeeded", ended=5, name=f"{PREFIX}other-pod")), review(), reasons.RECENT),
    # KubeVirt still has the one for this pod, so that no other could have its name.
    (facts(migration(phase="Failed", ended=5000)), review(), reasons.RECENT),
    (facts(), review(victim(ago=30)), reasons.NOT_BEGUN),
    (facts(found=vmi(migratable="False")), review(), reasons.CANNOT_MOVE),
    (facts(nodes=[node("node-a1", "a")]), review(), common.NO_ELIGIBLE_NODE),
    (facts(nodes=tainted(DOWN)), by_taint(), reasons.NODE_DOWN),
    (facts(migration(), nodes=tainted("node.kubernetes.io/not-ready")), review(), reasons.NODE_DOWN),
    (facts(waiting=(preemptor(2_000_000_000), preemptor())), review(), reasons.URGENT),
    (facts(), review(victim(status="False")), reasons.NOT_DISRUPTED),
    (facts(), review(victim(BY_TAINT)), reasons.NOT_DISRUPTED),
    (facts(), review(victim("EvictionByEvictionAPI"), TAINT_CONTROLLER), reasons.NOT_DISRUPTED),
    ({}, review(victim(ago=60), "admin"), reasons.OTHER_USER),
    ({}, review(victim(status="False"), "admin"), reasons.OTHER_USER),
    ({}, review(victim("EvictionByEvictionAPI"), "admin"), reasons.OTHER_USER),
    ({}, review(user="eks:scheduler"), reasons.UNKNOWN_USER),
    ({}, review(victim(BY_TAINT), "aksService"), reasons.UNKNOWN_USER),
    # A kubelet removes the pod of a VM that has shut down, moments after it was chosen: no user kills the VM by that.
    ({}, review(victim(deletionTimestamp="2026-11-21T12:00:00Z"), "system:node:node-a1"), reasons.OTHER_USER),
    ({}, review(victim(BY_TAINT) | {"status": ENDED}, "system:node:node-a1"), reasons.OTHER_USER),
    ({}, review(victim(deletionTimestamp="2026-11-21T12:00:00Z")), common.BEING_DELETED),
    ({}, review(victim(ownerReferences=[])), common.NO_VMI_OWNER),
    ({}, review(victim() | {"status": {"phase": "Failed"}}, TAINT_CONTROLLER), common.POD_OVER),
    (facts() | {VMI: None}, review(), common.VMI_NOT_FOUND),
    (facts(found=vmi(nodeName="node-b1")), review(), common.NOT_THE_CURRENT_POD),
    (facts(found=vmi(phase="Failed")), review(), common.BEING_DELETED),
    (facts() | {MINE: Unavailable("no answer")}, review(), common.LOOKUP_FAILED),
    (facts() | {WAITING: Unavailable("no answer")}, review(), common.LOOKUP_FAILED),
]


@pytest.mark.parametrize(
    ("world", "body", "code"), ALLOWED, ids=[f"{n}-{code}" for n, (*_, code) in enumerate(ALLOWED)]
)
def test_whatever_else_goes_as_it_would(world: dict[Any, object], body: Json, code: str) -> None:
    decision = decide(world, body)
    assert (decision.code, decision.denial) == (code, None)


@pytest.mark.control("preemptors-kept-waiting")
def test_the_settings_say_for_whom_and_how_many() -> None:
    assert decide(facts(), request_migrations=False).code == reasons.NOT_REQUESTED
    assert decide(facts(migration()), request_migrations=False).code == reasons.WAITS
    many = facts(*(migration(name=f"{PREFIX}{number}") for number in range(2)))[ALL_UNFINISHED]
    assert decide(facts() | {ALL_UNFINISHED: many}, max_per_cluster=2).code == reasons.TOO_MANY
    assert decide(facts() | {ALL_UNFINISHED: many}, max_per_cluster=3).code == reasons.MIGRATION_REQUESTED
    assert decide(facts(), max_priority=999).code == reasons.URGENT
    failed = migration(phase="Failed", ended=100, name=f"{PREFIX}other-pod")
    assert decide(facts(failed), window_seconds=100).code == reasons.MIGRATION_REQUESTED
    assert decide(facts(migration(29)), deadline_seconds=30).code == reasons.WAITS
    assert decide(facts(), review(user="mine"), schedulers=("mine",)).code == reasons.MIGRATION_REQUESTED


@pytest.mark.control("preemptors-kept-waiting")
def test_a_vm_that_is_migrated_again_and_again_is_waited_for_no_longer_than_by_one_migration() -> None:
    failed = migration(301, phase="Failed", ended=10, name="mine-1")
    now, asked = migration(5, name="mine-2"), review(victim(ago=310))
    assert decide(facts(failed, now), asked).code == reasons.OVERDUE
    assert decide(facts(failed, now), asked, deadline_seconds=302).code == reasons.WAITS
    assert decide(facts(failed, now), asked, window_seconds=10).code == reasons.WAITS
    moved_here = migration(301, phase="Succeeded", ended=10, name="mine-1")
    assert decide(facts(moved_here, now), asked).code == reasons.WAITS


def test_what_failed_before_anybody_asked_for_the_room_takes_none_of_the_time() -> None:
    """Whatever is promised when a migration is requested holds while it runs."""

    def said(known: dict[Any, object], ago: float) -> tuple[str, str]:
        decision = decide(known, review(victim(ago=ago)))
        return decision.code, decision.reasons[0].text.partition("which may take ")[2]

    earlier = migration(410, phase="Failed", ended=400, name="mine-1")
    assert said(facts(earlier), 1) == (reasons.MIGRATION_REQUESTED, "300s")
    assert said(facts(earlier, migration(10)), 11) == (reasons.WAITS, "290s more")
    # One that has failed since then has taken some of it.
    meanwhile = migration(20, phase="Failed", ended=5, name="mine-2")
    assert said(facts(meanwhile), 15) == (reasons.MIGRATION_REQUESTED, "285s")


@pytest.mark.control("reviews-that-move-vms")
def test_a_review_of_an_unknown_sender_moves_only_the_vms_of_pods_that_are_really_disrupted() -> None:
    other_vmi = victim(ownerReferences=[victim()["metadata"]["ownerReferences"][0] | {"uid": "other"}])
    for stored in ((), pods(victim(status="False")), pods(victim(BY_TAINT)), pods(victim(uid="x")), pods(other_vmi)):
        decision = decide(facts() | {STORED: stored}, verified=False)
        assert (decision.code, decision.denial) == (reasons.NOT_DISRUPTED, None)
    assert decide(facts() | {STORED: pods(victim())}, verified=False).code == reasons.MIGRATION_REQUESTED
    # Where the VM moves already, nothing is done for the review.
    assert decide(facts(migration()), verified=False).code == reasons.WAITS


def test_a_quota_that_denies_the_target_pod_is_in_the_way() -> None:
    """As `explain migration` says: with the same quotas, the migration would wait for nothing."""
    full = ResourceQuota(status=QuotaStatus(hard={"pods": "1"}, used={"pods": "1"}))
    known = facts() | {ListKey(QUOTAS, "demo"): (full,), ListKey(LIMIT_RANGES, "demo"): ()}
    decision = decide(known)
    assert (decision.code, decision.denial) == (reasons.CANNOT_MOVE, None)
    assert "pods" in decision.reasons[0].text
    # One that runs already has its target pod.
    assert decide(known | facts(migration())).code == reasons.WAITS


def copied(ago: float, guest: str = "2Gi", *, uid: str = MIGRATION_UID, **options: Any) -> Json:
    """The VM, which is being copied since so many seconds, with 20 seconds for each GB."""
    resolved = {"completionTimeoutPerGiB": 20, "allowPostCopy": False, "allowWorkloadDisruption": False} | options
    state = {"migrationUid": uid, "startTimestamp": stamp(ago), "migrationConfiguration": resolved}
    found = vmi(migrationState=state)
    found["spec"]["domain"]["memory"] = {"guest": guest}
    return found


class TestSize:
    """What KubeVirt gives a VM of its size bounds the wait from below, and the setting from above."""

    def test_a_migration_that_kubevirt_should_have_ended_is_waited_for_no_longer(self) -> None:
        # Three GB, so that KubeVirt ends it after 60 seconds, which takes a moment.
        for ago, left in ((1, 89), (60, 30), (89, 1)):
            decision = decide(facts(migration(ago), found=copied(ago)))
            assert decision.code == reasons.WAITS
            assert f"may take {left}s more" in decision.reasons[0].text
        decision = decide(facts(migration(90), found=copied(90)))
        assert (decision.code, decision.denial) == (reasons.OVERDUE, None)

    def test_a_larger_vm_may_take_longer_but_no_longer_than_the_setting_says(self) -> None:
        assert decide(facts(migration(90), found=copied(90, "16Gi"))).code == reasons.WAITS
        assert "may take 100s more" in decide(facts(migration(200), found=copied(200, "16Gi"))).reasons[0].text
        assert decide(facts(migration(300), found=copied(290, "16Gi"))).code == reasons.OVERDUE
        assert decide(facts(migration(100), found=copied(90, "16Gi")), deadline_seconds=100).code == reasons.OVERDUE

    def test_it_counts_from_when_the_guest_is_copied(self) -> None:
        """KubeVirt may let it wait for a place in its queue before."""
        assert decide(facts(migration(200), found=copied(10))).code == reasons.WAITS
        assert decide(facts(migration(200))).code == reasons.WAITS

    @pytest.mark.parametrize(
        "found",
        [
            copied(200, completionTimeoutPerGiB=0),
            # The guest runs on its new node already, and would be killed there.
            copied(200, allowPostCopy=True, allowWorkloadDisruption=None),
            copied(200, experimental={"stallDetector": {}}),
            copied(200, uid="of-an-earlier-one"),
            copied(200, guest="not a quantity"),
            copied(149, allowWorkloadDisruption=True),
        ],
    )
    def test_the_setting_alone_counts_where_kubevirt_ends_none(self, found: Json) -> None:
        assert decide(facts(migration(200), found=found)).code == reasons.WAITS


class TestSeveral:
    """A scheduler deletes the last of several victims after all others: its preemptor's wait counts as a whole."""

    @staticmethod
    def waiting(ago: float) -> tuple[Json, ...]:
        return (preemptor(conditions=[condition("PodScheduled", "False", "Unschedulable", ago)]),)

    @pytest.mark.control("preemptors-kept-waiting")
    def test_a_pod_that_has_waited_for_other_vms_waits_for_this_one_as_long_as_is_left(self) -> None:
        first = decide(facts(waiting=self.waiting(200)))
        assert (first.code, first.denial and first.denial.retry_after) == (reasons.MIGRATION_REQUESTED, 10)
        assert "may take 100s" in first.reasons[0].text
        moving = decide(facts(migration(50), waiting=self.waiting(250)))
        assert moving.code == reasons.WAITS
        assert "may take 50s more" in moving.reasons[0].text
        for known in (facts(waiting=self.waiting(300)), facts(migration(50), waiting=self.waiting(300))):
            assert (decide(known).code, decide(known).denial) == (reasons.OVERDUE, None)

    def test_one_that_waited_for_something_else_before_waits_for_the_whole_deadline(self) -> None:
        assert "may take 300s" in decide(facts(waiting=self.waiting(600))).reasons[0].text
        assert decide(facts(migration(299), waiting=self.waiting(1000))).code == reasons.WAITS

    def test_the_last_request_comes_when_the_time_is_over(self) -> None:
        for body in (review(), by_taint()):
            denial = decide(facts(migration(297), waiting=self.waiting(297)), body).denial
            assert denial
            assert denial.retry_after == 3


class TestAnnouncements:
    def test_the_owner_of_a_pod_that_waits_is_told_for_what_and_for_how_long(self) -> None:
        waiting = preemptor()
        waiting["metadata"] |= {"namespace": "demo", "uid": "p-1"}
        (told,) = decide(facts(migration(100), waiting=(waiting,))).announcements
        assert (told.namespace, told.api_version, told.kind, told.name, told.uid) == (
            "demo",
            "v1",
            "Pod",
            "batch",
            "p-1",
        )
        assert (told.reason, told.code) == ("WaitsForMigration", reasons.WAITS)
        assert "the migration of VM demo/web01, for at most 200s more" in told.text

    @pytest.mark.control("events-tell-too-much", "reveals-other-namespaces")
    def test_those_of_other_namespaces_do_not_learn_which_vms_there_are(self) -> None:
        (told,) = decide(facts()).announcements
        assert told.namespace == "jobs"
        assert "a VM of another namespace" in told.text
        assert not {"demo", "web01"} & set(re.findall(r"[\w-]+", told.text))

    def test_nobody_is_told_of_what_is_allowed_or_comes_of_a_taint(self) -> None:
        assert decide(facts(migration(300))).announcements == ()
        assert decide(facts(migration()), by_taint()).announcements == ()
        assert len(decide(facts(waiting=(preemptor(),) * 9)).announcements) == 5

    @pytest.mark.control("reviews-that-move-vms")
    def test_a_review_of_an_unknown_sender_tells_nobody_but_of_pods_that_are_really_disrupted(self) -> None:
        assert decide(facts(migration()), verified=False).announcements == ()
        assert decide(facts() | {STORED: pods(victim())}, verified=False).announcements


def test_a_target_pod_that_has_a_place_or_is_looked_at_just_now_is_no_lack_of_room() -> None:
    for waiting in (target(14), target(60, nodeName="node-b1"), target(60, "SchedulingGated")):
        assert decide(facts(migration(), targets=(waiting,))).code == reasons.WAITS


def test_overload_and_what_cannot_be_read_deny_nothing() -> None:
    endpoint = BY_PATH["/validate/preemption/pods/enforce"]
    assert not endpoint.denies
    assert endpoint.object_selector == {"matchLabels": {"kubevirt.io": "virt-launcher"}}
