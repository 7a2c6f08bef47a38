"""Evictions: whose, of which pods, and what becomes of them."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta, timezone
from typing import Any, Final

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.builders import CONTROLLER, Json, changed, config_of, installed, read_node
from tests.golden_files import Golden
from tests.policies.decisions import answered
from tests.policies.eviction import world as evictions
from tests.policies.eviction.world import CAPTURE, MINE, NOW, decide, facts, migration, pod, read, review, stamp, vmi
from tests.policies.migration.world import NODES, OWNED, PODS, VMI, launcher, node
from webhook.admission.decision import Decision, Reason
from webhook.admission.reasons import common
from webhook.errors import Unavailable
from webhook.facts import Batch, Facts, Key, KubeVirtKey, ListKey, NodesKey, ObjectKey
from webhook.placement.index import NodeIndex
from webhook.placement.machines import EVACUEES, LAUNCHER_PODS, PLACED_VMIS, UNFINISHED, Evacuee, Migration, Vmi
from webhook.placement.quota import LIMIT_RANGES, QUOTAS, QuotaStatus, ResourceQuota
from webhook.placement.requirements import Origin, Staying, Uncordoned
from webhook.policies.common import migration_targets
from webhook.policies.eviction import pods, reasons
from webhook.policies.eviction.pods import blackout, cool_down, too_many
from webhook.policies.eviction.settings import DAYS, Blackout, Day, EvictionSettings
from webhook.policies.registry import BY_PATH

ALWAYS = (Blackout(begin="00:00", end="24:00"),)
MODEL = "cpu-model-migration.node.kubevirt.io/Skylake"
THE_POD = ObjectKey(LAUNCHER_PODS, "demo", evictions.POD)
CORDONED = [node(f"node-{name}", "a", cordoned=True) for name in ("a1", "a2", "a3")]
# Everything that could lead to a denial does.
DELETED = "2026-11-21T12:00:00Z"
HOPELESS: dict[str, Any] = {"nodes": CORDONED, "migrations": [migration()]}


def hopeless(found: Json | None = None, its_pod: Json | None = None, **more: Any) -> dict[Key[Any], object]:
    return facts(found, its_pod, **(HOPELESS | more))


def edited(obj: Json, **metadata: str) -> Json:
    return obj | {"metadata": obj["metadata"] | metadata}


GONE = {THE_POD: reasons.POD_NOT_FOUND, VMI: common.VMI_NOT_FOUND}
NOT_MOVED = (
    *((pod(phase=phase), common.POD_OVER) for phase in ("Succeeded", "Failed")),
    (pod(app="hotplug-disk"), common.NOT_LAUNCHER),
    (pod(ownerReferences=[]), common.NO_VMI_OWNER),
    (pod(deletionTimestamp=DELETED), common.BEING_DELETED),
    # A target pod, or the source pod that a migration has left behind.
    *((pod(node=place), common.NOT_THE_CURRENT_POD) for place in ("node-b1", "")),
)


class TestQuotas:
    FULL = msgspec.convert(
        {"metadata": {"name": "vms"}, "status": {"hard": {"pods": "1"}, "used": {"pods": "1"}}}, ResourceQuota
    )
    ROOMY = msgspec.structs.replace(FULL, status=QuotaStatus({"pods": "2"}, {"pods": "1"}))

    @pytest.mark.parametrize(
        ("quotas", "ranges", "codes"),
        [
            ((FULL,), (), [reasons.QUOTA]),
            ((ROOMY,), (), [common.ELIGIBLE]),
            ((ROOMY,), Unavailable("may not list limitranges"), [common.ELIGIBLE]),
            # What is not known denies nothing.
            (Unavailable("may not list resourcequotas"), (), [common.ELIGIBLE, common.LOOKUP_FAILED]),
        ],
    )
    def test_target_pods_that_quotas_admit_or_not(self, quotas: object, ranges: object, codes: list[str]) -> None:
        known = facts() | {ListKey(QUOTAS, "demo"): quotas, ListKey(LIMIT_RANGES, "demo"): ranges}
        decision = decide(known)
        assert [reason.code for reason in decision.reasons] == codes
        assert (decision.denial is not None) is (codes == [reasons.QUOTA])
        assert len(decision.warnings) == len(codes) - 1
        if decision.warnings:
            assert decision.warnings[0].text.endswith("is not known, because may not list resourcequotas")

    def test_quotas_are_read_only_where_placements_are_evaluated(self) -> None:
        """One list more for such an eviction, two where there is a quota; none for the others."""
        known = {key: value for key, value in facts(migrations=[migration()]).items() if key != ListKey(QUOTAS, "demo")}
        assert decide(known).denial


class TestAllowed:
    def test_where_the_vm_can_go(self) -> None:
        decision = decide(facts())
        assert (decision.denial, decision.warnings, decision.reasons) == (None, (), (common.eligible(2, 4),))
        assert decision.notes == {"eligible-nodes": "2"}
        why = {"vmi": "web01", "requester": "sigs.k8s.io/descheduler", "why": "triggered by a profile"}
        assert decision.details == why

    def test_drains_are_not_looked_at(self) -> None:
        for body in (json.loads(CAPTURE.read_bytes()), review(by=None), review(by="somebody")):
            decision = decide({}, body, protect_transfers_seconds=3600)
            assert (decision.code, decision.denial) == (reasons.OTHER_REQUESTER, None)
        assert decide({}, review(), requesters=()).code == reasons.OTHER_REQUESTER
        assert decide({}, review(operation="UPDATE")).code == common.OTHER_OPERATION
        assert decide(facts(), review(by="balancer"), requesters=("balancer",)).code == common.ELIGIBLE

    def test_kubevirts_own(self) -> None:
        assert decide(facts(**HOPELESS), review(user=CONTROLLER)).code == common.BY_KUBEVIRT
        elsewhere = "system:serviceaccount:cnv:kubevirt-controller"
        assert decide({}, review(user=elsewhere), kubevirt_namespace="cnv").code == common.BY_KUBEVIRT

    @pytest.mark.parametrize(
        ("world", "code"),
        [
            *((hopeless() | {key: None}, code) for key, code in GONE.items()),
            # Pods that carry no VM to be moved, whatever is to become of it.
            *(
                (hopeless(vmi(strategy), its_pod), code)
                for strategy in ("LiveMigrate", "None")
                for its_pod, code in NOT_MOVED
            ),
            # A VM that runs nowhere yet, or is being migrated.
            *(
                (hopeless(vmi() | {"status": status}, pod(node="")), common.NOT_THE_CURRENT_POD)
                for status in (None, {"nodeName": ""}, {"nodeName": None})
            ),
            *(
                (hopeless(migrations=[migration(), migration(phase, None)]), reasons.EVACUATING)
                for phase in ("", "Pending", "Running")
            ),
            (hopeless(vmi(evacuationNodeName="node-a1")), reasons.EVACUATING),
            (hopeless(vmi(evacuationNodeName="node-a3")), reasons.STALE),
            # What KubeVirt or others answer better.
            (hopeless(vmi("External")), reasons.EXTERNAL),
            (hopeless(vmi("LiveMigrateTomorrow")), reasons.UNKNOWN_STRATEGY),
            *((hopeless(vmi("LiveMigrate", state)), reasons.NOT_MIGRATABLE) for state in ("False", None, "Unknown")),
            # Another one of the same name.
            (hopeless(edited(vmi(), uid="another")), common.VMI_REPLACED),
            (hopeless(edited(vmi(), deletionTimestamp=DELETED)), common.BEING_DELETED),
        ],
    )
    def test_what_is_left_to_kubevirt(self, world: dict[Key[Any], object], code: str) -> None:
        decision = decide(world, blackouts=ALWAYS)
        assert (decision.code, decision.denial, decision.warnings) == (code, None, ())


class TestTransfers:
    """Pods that copy a disk for hours stay where they are, for as long as the settings say."""

    LABELS: Final = {"app": "containerized-data-importer", "cdi.kubevirt.io": "importer"}
    CLAIM: Final = ({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "name": "d", "uid": "u", "controller": True},)

    def importer(self, started: float | None = 60, phase: str = "Running", **metadata: Any) -> Json:
        meta = {"name": "importer-d", "labels": self.LABELS, "ownerReferences": self.CLAIM} | metadata
        status = {"phase": phase} | ({} if started is None else {"startTime": stamp(started)})
        return {"metadata": meta, "spec": {"nodeName": "node-a1"}, "status": status}

    @pytest.mark.control("forged-disk-transfers")
    @pytest.mark.parametrize(
        ("made", "seconds", "code"),
        [
            ({}, 0, common.NOT_LAUNCHER),
            ({}, 61, reasons.TRANSFER),
            # A forged one gains no more than that.
            ({}, 60, common.NOT_LAUNCHER),
            # A clock that is behind.
            ({"started": -60}, 60, reasons.TRANSFER),
            # Nothing is lost yet.
            ({"started": None, "phase": "Pending"}, 3600, common.NOT_LAUNCHER),
            ({"phase": "Succeeded"}, 3600, common.POD_OVER),
            ({"deletionTimestamp": DELETED}, 3600, common.NOT_LAUNCHER),
            ({"ownerReferences": OWNED}, 3600, common.NOT_LAUNCHER),
        ],
    )
    def test_which_are_held(self, made: Json, seconds: int, code: str) -> None:
        decision = decide(facts(its_pod=self.importer(**made)), protect_transfers_seconds=seconds)
        assert decision.code == code
        assert (decision.denial is not None) is (code == reasons.TRANSFER)
        assert decision.warnings == ()

    def test_a_vm_with_such_labels_is_a_vm(self) -> None:
        labels = self.LABELS | {"kubevirt.io": "virt-launcher"}
        its_pod = pod(labels=labels)
        its_pod["status"]["startTime"] = stamp(60)
        assert decide(facts(its_pod=its_pod), protect_transfers_seconds=3600).code == common.ELIGIBLE


class TestGoesDown:
    def test_is_warned_about_and_never_refused(self) -> None:
        if_possible = [(vmi("LiveMigrateIfPossible", state), reasons.strategy_if_possible) for state in ("False", None)]
        for found, why in (*if_possible, *((vmi(strategy), reasons.strategy_none) for strategy in ("None", None))):
            decision = decide(facts(found, **HOPELESS), blackouts=ALWAYS)
            assert (decision.code, decision.denial) == (reasons.WILL_STOP, None)
            assert decision.warnings == (reasons.will_stop("demo/web01", why),)

    def test_the_clusters_strategy_counts_only_where_the_vm_has_none(self) -> None:
        assert decide(facts(vmi(None), strategy="LiveMigrate")).code == common.ELIGIBLE
        assert decide(facts(vmi(None), strategy="External")).code == reasons.EXTERNAL
        assert decide(facts(vmi("None"), strategy="LiveMigrate")).code == reasons.WILL_STOP
        assert decide(facts(vmi(None)) | {KubeVirtKey(): None}).code == common.KUBEVIRT_ABSENT


def denial(decision: Decision, code: str = common.NO_ELIGIBLE_NODE) -> str:
    """The message of a denial."""
    assert decision.code == code
    assert decision.denial
    return decision.denial.message


class TestDenied:
    def test_no_eligible_node_nor_one_that_vms_leave(self) -> None:
        emptied, planned = (
            [NODES[0], *(one | {"status": {"conditions": [{"type": kind, "status": "True"}]}} for one in NODES[1:])]
            for kind in ("MaintenanceInProgress", "MaintenancePlanned")
        )
        assert Staying(Origin.DEPARTURE).lacking in denial(decide(facts(nodes=emptied)))
        assert decide(facts(nodes=planned)).code == common.ELIGIBLE
        decision = decide(facts(nodes=CORDONED))
        # The present node is out for its own reason, too.
        cordoned = Uncordoned(Origin.CORDONED, ()).lacking
        classes, _, advice = denial(decision).rpartition(";")
        assert classes.startswith(common.eligible(0, 3).text)
        assert f"3 node(s) {cordoned}" in classes
        assert "2 node(s)" in advice
        assert cordoned in advice
        assert "node-a2" not in denial(decision)
        names = {name for group in decision.details["nodes"] for name in group["nodes"]}
        assert (names, decision.details["vmi"]) == ({"node-a1", "node-a2", "node-a3"}, "web01")

    def test_a_vm_whose_name_is_longer_than_a_label(self) -> None:
        long = "v" * 64
        owned = pod(ownerReferences=[OWNED[0] | {"name": long}])
        found = msgspec.convert(edited(vmi(), name=long), Vmi)
        known = facts(its_pod=owned) | {ObjectKey(PLACED_VMIS, "demo", long): found}
        # The API server rejects such a label in a list, too.
        del known[MINE]
        assert denial(decide(known), reasons.NAME_TOO_LONG) == migration_targets.name_problem(long)

    def test_blackout_and_cool_down(self) -> None:
        dark, cooling = decide(facts(), blackouts=ALWAYS), decide(facts(migrations=[migration("Failed", 60)]))
        assert denial(dark, reasons.BLACKOUT) == reasons.blackout(ALWAYS[0].text).text
        assert denial(cooling, reasons.COOL_DOWN) == reasons.cool_down(300, 1, 60, 240).text
        # Other VMs' migrations neither cool nor hold.
        others: list[Json] = [{"vm": "other"}, {"namespace": "elsewhere"}]
        states: list[Any] = [("Succeeded", 0), ("Running", None)]
        migrations = [migration(*state, **other) for other in others for state in states]
        assert decide(facts(migrations=migrations)).code == common.ELIGIBLE
        # The one node that is left suffices.
        assert decide(facts(nodes=[*CORDONED, NODES[2]])).code == common.ELIGIBLE

    @pytest.mark.parametrize(("cap", "namespace"), [("max_per_namespace", "demo"), ("max_per_cluster", "")])
    @pytest.mark.parametrize(("allowed", "code"), [(1, reasons.TOO_MANY_EVACUATIONS), (2, common.ELIGIBLE)])
    def test_too_many(self, cap: str, namespace: str, allowed: int, code: str) -> None:
        busy = facts() | evacuating("demo", "other", key=ListKey(UNFINISHED, namespace))
        settings: dict[str, Any] = {cap: allowed}
        assert decide(busy, **settings).code == code


CLUSTER = ListKey(UNFINISHED, "")
XS = ObjectKey(EVACUEES, "a", "x")
QUEUE: Json = {"featureGates": ["MigrationPriorityQueue"]}


def evacuee(name: str, phase: str = "Running", mark: str | None = "node-a1") -> Evacuee:
    status = {"phase": phase, "evacuationNodeName": mark}
    return msgspec.convert({"metadata": {"name": name}, "status": status}, Evacuee)


def evacuating(namespace: str, *vms: str, key: ListKey[Any] = CLUSTER) -> dict[Key[Any], object]:
    """VMs that KubeVirt evacuates."""
    found = read(*(migration("Running", None, vm=vm, namespace=namespace) for vm in vms))
    return {key: found} | {ObjectKey(EVACUEES, namespace, vm): evacuee(vm) for vm in vms}


class TestForged:
    @pytest.mark.control("forged-evacuations")
    @pytest.mark.parametrize(
        "vmi",
        [
            None,
            Unavailable("nested too deeply"),
            *(evacuee("x", mark=mark) for mark in (None, "")),
            # Its maker can write a status; but the phase is KubeVirt's.
            *(evacuee("x", phase=phase) for phase in ("Pending", "Scheduling")),
            Evacuee(),
        ],
    )
    def test_an_annotation_alone_counts_for_nothing(self, vmi: object) -> None:
        key = ObjectKey(EVACUEES, "mallory", "x")
        world = facts() | evacuating("mallory", "x") | {key: vmi}
        assert decide(world, max_per_cluster=1).code == common.ELIGIBLE

    @pytest.mark.control("forged-evacuations")
    def test_what_kubevirt_says_counts(self) -> None:
        """Once for a VM, however many migrations it has."""
        world = facts() | evacuating("drained", "x", "x", "x")
        assert decide(world, max_per_cluster=1).code == reasons.TOO_MANY_EVACUATIONS
        assert decide(world, max_per_cluster=2).code == common.ELIGIBLE

    @pytest.mark.parametrize(
        ("version", "configuration", "code"),
        [
            ("1.9", {}, common.ELIGIBLE),
            ("1.8", {}, reasons.TOO_MANY_EVACUATIONS),
            ("1.8", {"developerConfiguration": QUEUE}, common.ELIGIBLE),
            ("1.6", {"developerConfiguration": QUEUE}, reasons.TOO_MANY_EVACUATIONS),
            ("1.8", {"migrations": {"parallelMigrationsPerCluster": 6}}, common.ELIGIBLE),
        ],
    )
    def test_without_a_queue_no_more_count_than_run_at_once(self, version: str, configuration: Json, code: str) -> None:
        """KubeVirt up to 1.8 creates the migrations of further evacuations only when others have ended."""
        world = facts() | evacuating("drained", "a", "b", "c", "d", "e")
        world |= {KubeVirtKey(): installed(config_of(version, configuration))}
        assert decide(world, max_per_cluster=10).code == code

    def test_no_vmi_is_read_where_caps_are_far(self) -> None:
        world = {key: value for key, value in (facts() | evacuating("a", "x")).items() if key != XS}
        assert XS not in world
        assert decide(world, max_per_cluster=2, max_per_namespace=2).code == common.ELIGIBLE

    @pytest.mark.control("forged-evacuations")
    def test_reads_are_bounded_and_forged_migrations_leave_others_their_place(self) -> None:
        forged = evacuating("mallory", *(f"vm-{number}" for number in range(1000)))
        real = evacuating("drained", *(f"vm-{number}" for number in range(5)))
        world = facts() | forged | real | {CLUSTER: (*forged[CLUSTER], *real[CLUSTER])}  # type: ignore[misc]
        none_evacuated = {key: None for key in forged if isinstance(key, ObjectKey)}
        known = world | none_evacuated
        watched = Facts(NOW, peek=lambda key: known[key])
        assert evictions.decide_with(watched, max_per_cluster=5).code == reasons.TOO_MANY_EVACUATIONS
        asked = [key for key in watched.remembered if isinstance(key, ObjectKey) and key.resource is EVACUEES]
        assert len(asked) <= 42

    def test_those_that_only_kubevirt_can_have_made_come_first(self) -> None:
        forged = read(*(migration("Running", None, vm="x", namespace=f"m-{number}") for number in range(1000)))
        made = migration("Running", None, vm="x", namespace="z-drained")
        made["spec"]["priority"] = "system-critical"
        assert pods.claimed_evacuations((*forged, *read(made)))[0] == ("z-drained", "x")

    @pytest.mark.control("forged-evacuations")
    def test_a_list_that_a_tenant_made_too_large_takes_away_the_clusters_cap_alone(self) -> None:
        large = facts() | {CLUSTER: Unavailable("too large")}
        decision = decide(large, max_per_cluster=1)
        assert [reason.code for reason in decision.reasons] == [common.ELIGIBLE, common.LOOKUP_FAILED]
        assert decision.denial is None
        (warning,) = decision.warnings
        assert warning.code == common.LOOKUP_FAILED
        assert "maxPerCluster" in warning.text
        own = evacuating("demo", "other", key=ListKey(UNFINISHED, "demo"))
        assert decide(large | own, max_per_cluster=1, max_per_namespace=1).code == reasons.TOO_MANY_EVACUATIONS
        assert decide(large | {NodesKey(): facts(nodes=CORDONED)[NodesKey()]}, max_per_cluster=1).denial


EMPTIED = NODES[0] | {"status": {"conditions": [{"type": "DrainInProgress", "status": "True"}]}}


def test_a_vm_whose_node_is_emptied_is_not_paced() -> None:
    """A drain would move it without any pacing."""
    known = facts(nodes=[EMPTIED, *NODES[1:]], migrations=[migration()]) | evacuating("demo", "other")
    assert decide(facts(migrations=[migration()])).code == reasons.COOL_DOWN
    assert decide(known, max_per_cluster=1).code == common.ELIGIBLE
    assert decide(known, blackouts=ALWAYS).code == reasons.BLACKOUT


def test_nor_is_one_whose_node_begins_to_be_emptied_while_evacuations_are_counted() -> None:
    known = facts() | evacuating("demo", "other")
    nodes = known[NodesKey()]
    assert isinstance(nodes, NodeIndex)

    def meanwhile(batch: Batch) -> None:
        if ObjectKey(EVACUEES, "demo", "other") in batch:
            nodes.put(read_node(EMPTIED))

    endpoint = BY_PATH["/mutate/eviction/pods/enforce"]
    request = endpoint.codec.decode(msgspec.json.encode(review())).request
    settings = changed(EvictionSettings(), max_per_cluster=1)
    for begins, code in ((lambda _: None, reasons.TOO_MANY_EVACUATIONS), (meanwhile, common.ELIGIBLE)):
        policy = endpoint.handler(request.object, request, Facts(NOW), settings)
        assert answered(policy, known, begins)[0].code == code


@pytest.mark.parametrize(
    ("known", "vm"),
    [
        (facts() | {THE_POD: Unavailable("no answer")}, ""),
        (facts() | {VMI: Unavailable("no answer")}, "web01"),
        (facts() | {MINE: Unavailable("no answer")}, "web01"),
        (facts() | {THE_POD: None}, ""),
        *((hopeless(its_pod=its_pod), "") for its_pod, code in NOT_MOVED[:4]),
        *((hopeless(its_pod=its_pod), "web01") for its_pod, code in NOT_MOVED[4:]),
        (facts() | {VMI: None}, "web01"),
        (hopeless(vmi("External")), "web01"),
        (hopeless(), "web01"),
    ],
)
def test_every_line_of_an_evaluated_eviction_says_who_wanted_it_and_of_which_vm(
    known: dict[Key[Any], object], vm: str
) -> None:
    details = decide(known).details
    assert (details["vmi"], details["requester"], details["why"]) == (
        vm,
        evictions.DESCHEDULER,
        "triggered by a profile",
    )


@pytest.mark.parametrize("key", [KubeVirtKey(), THE_POD, VMI, MINE, NodesKey()])
def test_what_can_not_be_read_allows_the_eviction(key: Any) -> None:
    decision = decide(facts(vmi(None), strategy="LiveMigrate") | {key: Unavailable("no answer")})
    assert (decision.code, decision.denial) == (common.LOOKUP_FAILED, None)
    assert decision.warnings == decision.reasons
    assert decision.warnings[0].text.endswith("no answer")


def test_without_the_nodes_nothing_is_paced() -> None:
    """The VM's node may be being emptied, from which neither the cool-down nor a cap holds it back."""
    paced = facts(migrations=[migration()]) | evacuating("demo", "other")
    for known in (paced, facts() | evacuating("demo", "other")):
        assert decide(known, max_per_cluster=1).denial
        decision = decide(known | {NodesKey(): Unavailable("too old")}, max_per_cluster=1)
        assert (decision.code, decision.denial) == (common.LOOKUP_FAILED, None)


SETTINGS = EvictionSettings(cool_down_seconds=300, max_cool_down_seconds=3600)


def clock(minutes: int) -> str:
    return f"{minutes // 60:02}:{minutes % 60:02}"


@given(
    days=st.sets(st.sampled_from(DAYS), min_size=1),
    begin=st.integers(0, 24 * 60 - 1),
    end=st.integers(0, 24 * 60),
    offset=st.integers(-14 * 60, 14 * 60),
    now=st.integers(1_700_000_000, 1_900_000_000),
)
def test_blackouts_are_those_of_a_calendar(days: set[Day], begin: int, end: int, offset: int, now: int) -> None:
    if begin == end:
        return
    zone = f"{'-' if offset < 0 else '+'}{clock(abs(offset))}"
    made = Blackout(days=tuple(days), begin=clock(begin), end=clock(end), time_zone=zone)
    local = datetime.fromtimestamp(now, timezone(timedelta(minutes=offset)))
    lasts = timedelta(minutes=end - begin if end > begin else end - begin + 24 * 60)
    expected = False
    for ago in (0, 1):
        day = local.replace(hour=0, minute=0, second=0) - timedelta(days=ago)
        start = day + timedelta(minutes=begin)
        expected |= DAYS[day.weekday()] in days and start <= local < start + lasts
    assert (blackout([made], now) is not None) == expected


@pytest.mark.parametrize(
    "fields",
    [
        {"begin": "08:00", "end": "18:00"},
        {"begin": "22:00", "end": "12:01", "days": ("Sat", "Fri")},
        {"begin": "00:00", "end": "24:00", "time_zone": "-11:00", "days": ("Sat",)},
    ],
    ids=["every day", "two days", "time zone"],
)
def test_a_blackout_is_told_as_it_was_written(fields: dict[str, Any], golden: Golden) -> None:
    other = Blackout(begin="00:00", end="00:01")
    found = blackout([other, Blackout(**fields)], NOW)
    assert found
    golden(found.text)
    assert blackout([other], NOW) is None


def test_a_blackout_holds_from_its_first_minute_to_before_its_last() -> None:
    ends, begins = (Blackout(begin=at, end=to) for at, to in (("11:00", "12:00"), ("12:00", "13:00")))
    assert blackout([ends], NOW) is None
    assert blackout([ends], NOW - 0.1)
    assert blackout([begins], NOW)
    assert blackout([begins], NOW - 0.1) is None


def ended(*seconds_ago: float) -> tuple[Migration, ...]:
    """Finished migrations of one VM."""
    times = [datetime.fromtimestamp(NOW - ago, UTC).isoformat().replace("+00:00", "Z") for ago in seconds_ago]
    statuses = [{"phase": "Succeeded", "migrationState": {"endTimestamp": time}} for time in times]
    return read(*({"status": status} for status in statuses))


def held(ends: list[float] | tuple[Migration, ...], now: float = NOW) -> tuple[int, int]:
    """How long a VM is held in all, and from now on, after migrations that ended so many seconds ago."""
    migrations = ended(*ends) if isinstance(ends, list) else ends
    if (reason := cool_down(migrations, now, SETTINGS)) is None:
        return 0, 0
    assert reason.code == reasons.COOL_DOWN
    seconds, *_, rest = map(int, re.findall(r"\d+", reason.text))
    return seconds, rest


class TestCoolDown:
    @pytest.mark.parametrize(
        ("ends", "lasts", "rest"),
        [
            ([0], 300, 300),
            ([299.5], 300, 1),
            ([300], 0, 0),
            ([60, 500], 600, 540),
            ([60, 500, 1500], 1200, 1140),
            ([60, 500, 1500, 2500, 3500], 3600, 3540),
            # Migrations that ended before two of the longest pauses are forgotten, with all before them.
            ([60, 7260], 600, 540),
            ([60, 7261, 7262], 300, 240),
            # KubeVirt's clock is ahead of the webhook's.
            ([-5], 300, 305),
        ],
    )
    def test_doubles_with_each_that_follows_soon(self, ends: list[float], lasts: int, rest: int) -> None:
        assert held(ends) == held(ends[::-1]) == (lasts, rest)

    def test_says_how_many_there_were_and_none_in_the_future(self) -> None:
        assert cool_down(ended(60, 500), NOW, SETTINGS) == reasons.cool_down(600, 2, 60, 540)
        assert cool_down(ended(-5), NOW, SETTINGS) == reasons.cool_down(300, 1, 0, 305)
        # None where there is nothing to wait for.
        assert cool_down((), NOW, SETTINGS) is None
        assert cool_down(ended(1), NOW, EvictionSettings(cool_down_seconds=0)) is None
        assert cool_down(read(migration("Running", 60), migration("Failed", None)), NOW, SETTINGS) is None

    @given(st.lists(st.integers(0, 20_000), min_size=1, max_size=6), st.integers(0, 20_000))
    def test_more_history_never_makes_it_shorter_nor_longer_than_the_longest(self, ends: list[int], more: int) -> None:
        fewer, all_of_them = held([*ends])[1], held([*ends, more])[1]
        assert held([*ends], NOW + fewer) == (0, 0), "it ends"
        assert max(fewer, all_of_them) <= 3600
        # A younger migration restarts the time; an older one can only lengthen it.
        if more >= min(ends):
            assert all_of_them >= fewer


@pytest.mark.parametrize(
    ("metadata", "transitions", "left"),
    [
        # It never began.
        ({}, [None, ("Pending", 600), ("Failed", 120)], 180),
        # It ended when it was created, at least.
        ({"creationTimestamp": stamp(60)}, [], 240),
    ],
)
def test_the_end_of_a_migration_that_does_not_say_it(metadata: Json, transitions: list[Any], left: int) -> None:
    obj = edited(migration("Failed", None), **metadata)
    obj["status"]["phaseTransitionTimestamps"] = [
        each and {"phase": each[0], "phaseTransitionTimestamp": stamp(each[1])} for each in transitions
    ]
    assert held(read(obj))[1] == left
    assert Migration().ended_at is None


class TestTooMany:
    BUSY: Mapping[str, int] = {"demo": 2, "elsewhere": 1}

    @pytest.mark.parametrize(
        ("namespace", "cluster", "said"),
        [
            (0, 0, None),
            (3, 4, None),
            (2, 0, reasons.too_many(2, 2, "namespace demo")),
            (1, 3, reasons.too_many(2, 1, "namespace demo")),
            (0, 3, reasons.too_many(3, 3, "the cluster")),
        ],
    )
    def test_counts_unfinished_evacuations(self, namespace: int, cluster: int, said: Reason | None) -> None:
        settings = EvictionSettings(max_per_namespace=namespace, max_per_cluster=cluster)
        assert too_many(self.BUSY, "demo", settings) == said

    @pytest.mark.control("forged-evacuations")
    def test_a_namespace_beyond_its_own_cap_does_not_fill_that_of_all(self) -> None:
        settings = EvictionSettings(max_per_namespace=2, max_per_cluster=4)
        assert too_many({"greedy": 50, "elsewhere": 1}, "demo", settings) is None
        assert too_many({"greedy": 50, "elsewhere": 2}, "demo", settings)


@pytest.mark.parametrize("version", ["1.7.2", "1.7.3"])
def test_a_vm_whose_persistent_state_kubevirt_does_not_find(version: str) -> None:
    """virt-controller would never begin its migration."""
    state = {"name": "persistent-state-for-a-name-that-was-cut-off"}
    known = facts(vmi(volumeStatus=[state])) | {KubeVirtKey(): installed(config_of(version))}
    assert decide(known).code == (reasons.NAME_TOO_LONG if version == "1.7.2" else common.ELIGIBLE)


@pytest.mark.control("held-back-migrations")
@pytest.mark.parametrize("version", ["1.7", "1.8", "1.9"])
@pytest.mark.parametrize(
    ("spec", "status"),
    [
        ({"utilityVolumes": [{"name": "scratch"}]}, {}),
        ({}, {"changedBlockTracking": {"backupStatus": {"backupName": "nightly"}}}),
    ],
)
def test_a_vm_whose_migrations_kubevirt_holds_back(version: str, spec: Json, status: Json) -> None:
    """Since 1.8 its migration would wait, and take a place of the descheduler's meanwhile."""
    found = vmi(**status)
    found["spec"] |= spec
    known = facts(found) | {KubeVirtKey(): installed(config_of(version))}
    assert decide(known).code == (common.ELIGIBLE if version == "1.7" else reasons.HELD_BACK)
    completed = {"backupStatus": {"backupName": "nightly", "completed": True}}
    assert decide(facts(vmi(changedBlockTracking=completed))).code == common.ELIGIBLE


@pytest.mark.parametrize(
    ("labels", "selector", "code"),
    [
        ({}, {}, "host-cpu-unknown"),
        ({"host-model-cpu.node.kubevirt.io/Skylake": "true", MODEL: "true"}, {}, "nodes-eligible"),
        # It has migrated before, and its pod requires what it took over then.
        ({MODEL: "true"}, {MODEL: "true"}, "nodes-eligible"),
    ],
)
def test_a_vm_with_the_cpu_of_a_host_that_no_label_names(
    labels: dict[str, Any], selector: dict[str, str], code: str
) -> None:
    """virt-api would mark it, and its migration would stay Pending for ever, in one of the descheduler's places."""
    found = vmi()
    found["spec"]["domain"]["cpu"]["model"] = "host-model"
    nodes = [node(name, "a", **labels) for name in ("node-a1", "node-a2")]
    known = facts(found, nodes=nodes) | {PODS: (launcher(nodeSelector=selector),)}
    assert decide(known).code == code
