from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.builders import config_of
from tests.forecast import clusters
from tests.forecast.clusters import attachment, budget, node, quota, snapshot, vm
from tests.forecast.oracle import Simulated, shuffled, thorough
from tests.golden_files import Golden
from webhook.errors import InputError
from webhook.forecast import report, update
from webhook.forecast.movers import OUTDATED
from webhook.forecast.report import CODES, UpdatePlan, VmPlan
from webhook.kubevirt.config import ClusterConfig
from webhook.kubevirt.hyperconverged import HyperConverged

NODES = [node("a"), node("b")]
BOTH = {"workloadUpdateMethods": ["LiveMigrate", "Evict"]}
MIGRATE = {"workloadUpdateMethods": ["LiveMigrate"]}
EVICT = {"workloadUpdateMethods": ["Evict"]}
ANY = {"labels": {"app": "x"}}


def plan(nodes: Sequence[Any], vms: Sequence[Any], updates: Any = BOTH, **options: Any) -> UpdatePlan:
    return update.plan(snapshot(nodes, vms, updates=updates, **options))


def of(found: UpdatePlan, name: str = "web") -> VmPlan:
    (each,) = (vm for vm in found.vms if vm.name == name)
    return each


def unable(strategy: str | None = "LiveMigrate") -> clusters.Json:
    condition = {"type": "LiveMigratable", "status": "False", "reason": "DisksNotLiveMigratable"}
    return {"condition": condition} | ({"evictionStrategy": strategy} if strategy else {})


def updating(before: str, after: str, **configuration: Any) -> ClusterConfig:
    """The configuration while KubeVirt is updated from one version to another."""
    return replace(config_of(after, configuration), launchers_of=config_of(before).release)


class TestOutcomes:
    """Of getUpdateData: LiveMigrate goes before Evict, and an eviction is answered as in a drain."""

    @pytest.mark.parametrize(
        ("methods", "own", "options", "outcome", "code"),
        [
            (BOTH, {}, {}, "moves", "migrates"),
            (MIGRATE, {"evictionStrategy": "None"}, {}, "moves", "migrates"),
            (MIGRATE, {"evictionStrategy": "External"}, {}, "moves", "migrates"),
            (EVICT, {}, {}, "moves", "migrates"),
            (EVICT, {"evictionStrategy": "None"}, {}, "shuts-down", "strategy-none"),
            (EVICT, {"evictionStrategy": "External"}, {}, "handed-over", "external-strategy"),
            (BOTH, unable("LiveMigrateIfPossible"), {}, "shuts-down", "not-migratable-if-possible"),
            (BOTH, unable("None"), {}, "shuts-down", "strategy-none"),
            (BOTH, unable(), {}, "stays-outdated", "not-migratable"),
            (MIGRATE, unable(), {}, "stays-outdated", "not-migratable"),
            (MIGRATE, unable("None"), {}, "stays-outdated", "evict-not-configured"),
            (MIGRATE, unable("External"), {}, "stays-outdated", "evict-not-configured"),
            (BOTH | {"batchEvictionSize": 0}, unable("None"), {}, "stays-outdated", "evict-not-configured"),
            ({}, {}, {}, "stays-outdated", "live-migrate-not-configured"),
            ({}, {"name": "w" * 64}, {}, "stays-outdated", "name-too-long"),
            ({"workloadUpdateMethods": ["Reboot"]}, {}, {}, "stays-outdated", "live-migrate-not-configured"),
            (BOTH, {"name": "w" * 64}, {}, "stays-outdated", "name-too-long"),
            (BOTH, {"nodeSelector": {"zone": "x"}}, {}, "stays-outdated", "no-eligible-node"),
            (BOTH, {"memory": "9Gi"}, {}, "stays-outdated", "no-eligible-node"),
            (BOTH, {}, {"limits": {"parallelMigrationsPerCluster": 0}}, "stays-outdated", "no-migrations"),
            (BOTH, {}, {"quotas": [quota(count__pods=("1", "1"))]}, "stays-outdated", "quota"),
            (BOTH, unable("None") | ANY, {"budgets": [budget(0, app="x")]}, "stays-outdated", "disruption-budget"),
        ],
    )
    def test_of_a_vm(self, methods: Any, own: Any, options: Any, outcome: str, code: str) -> None:
        found = plan(NODES, [vm(own.pop("name", "web"), "a", **own)], methods, **options)
        assert (found.vms[0].outcome, found.vms[0].code) == (outcome, code)
        assert found.stays == (outcome == "stays-outdated")
        assert (found.vms[0].code in CODES[outcome]) or outcome == report.STAYS

    def test_volumes_that_a_migration_copies_need_not_be_shared(self) -> None:
        def migrating(copied: Sequence[str], storage: str = "True") -> VmPlan:
            vmi, pod = vm("web", "a", **unable())
            claim = {"accessModes": ["ReadWriteOnce"]}
            names = ("disk", "data", "persistent-state-for-web")
            vmi["status"] |= {
                "migratedVolumes": [{"volumeName": name} for name in copied],
                "volumeStatus": [{"name": name, "persistentVolumeClaimInfo": claim} for name in names],
            }
            vmi["status"]["conditions"].append({"type": "StorageLiveMigratable", "status": storage})
            found = plan(NODES, [(vmi, pod)])
            assert (found.at_most_seconds is None) == bool(found.moves), "how large they are is not known"
            return of(found)

        assert migrating(["disk", "data"]).code == "migrates"
        assert migrating(["disk"]).code == migrating([]).code == migrating(["disk", "data"], "False").code
        assert migrating([]).code == "not-migratable"

    def test_which_vms_are_outdated(self) -> None:
        vms = [vm(name, "a") for name in ("old", "new", "ended", "starting", "leaving")]
        vms[0][0]["metadata"]["labels"][OUTDATED] = ""
        vms[2][0]["status"]["phase"], vms[3][0]["status"]["phase"] = "Succeeded", "Scheduled"
        vms[4][0]["metadata"]["deletionTimestamp"] = "2026-11-26T00:00:00Z"
        objects = snapshot(NODES, vms, updates=BOTH)
        every, only = update.plan(objects), update.plan(objects, outdated_only=True)
        assert ([each.name for each in every.vms], every.up_to_date) == (["new", "old"], 0)
        assert ([each.name for each in only.vms], only.up_to_date) == (["old"], 1)
        assert len(every.gaps) == 1, "what becomes of the one that starts"

    def test_a_hotplug_is_carried_out_as_an_update_is(self) -> None:
        """The updater migrates for it, whether or not the launcher is outdated."""
        vms = [vm("new", "a"), vm("plugged", "a", condition={"type": "HotMemoryChange", "status": "True"})]
        vms[1][0]["status"]["conditions"].append({"type": "LiveMigratable", "status": "True"})
        found = update.plan(snapshot(NODES, vms, updates=BOTH), outdated_only=True)
        (moved,) = found.vms
        assert (moved.name, moved.outcome, found.up_to_date) == ("plugged", "moves", 1)
        assert any("HotMemoryChange" in note for note in moved.notes)


class TestOrder:
    def test_room_that_others_leave(self) -> None:
        """The large one finds a node only once the small one has left it, and the small one has one at once."""
        nodes = [node("a"), node("b"), node("c", memory="2Gi")]
        vms = [vm("1-large", "a", "7Gi"), vm("2-small", "b", "2Gi")]
        assert [each.code for each in plan(nodes, vms).vms] == ["migrates-later", "migrates"]

    def test_two_that_wait_for_each_other_stay(self) -> None:
        found = plan(NODES, [vm("web", "a", "5Gi"), vm("db", "b", "5Gi")])
        assert [(each.outcome, each.code) for each in found.vms] == [("stays-outdated", "no-room")] * 2
        assert (found.stays, found.failing, found.at_most_seconds) == (2, 2, None)
        assert sorted(change.vms for change in found.changes) == [("shop/db",), ("shop/web",)]

    def test_who_finds_room_may_depend_on_the_order(self) -> None:
        """The small one takes the only gap of the large one, if it is first."""
        nodes = [node("a", memory="4Gi"), node("b", memory="1Gi"), node("c", memory="4Gi")]
        large_first = plan(nodes, [vm("1-large", "a", "4Gi"), vm("2-small", "b", "1Gi")])
        assert [each.code for each in large_first.vms] == ["depends-on-order", "migrates"]

    def test_a_single_node(self, golden: Golden) -> None:
        """KubeVirt creates migrations that cannot succeed, again and again."""
        found = plan(NODES[:1], [vm("web", "a"), vm("db", "a")])
        assert ([each.code for each in found.vms], found.failing) == (["no-eligible-node"] * 2, 2)
        golden(*found.notes)


class TestTimes:
    def test_migrations_wait_for_each_other(self) -> None:
        def seconds(**limits: int) -> int:
            return plan(NODES, [vm(str(number), "a") for number in range(4)], limits=limits).seconds

        one = seconds(parallelMigrationsPerCluster=4, parallelOutboundMigrationsPerNode=4)
        assert one == 24, "15 s to start, 5 until KubeVirt looks, and 1Gi by 256Mi a second"
        assert (seconds(parallelMigrationsPerCluster=1), seconds(parallelOutboundMigrationsPerNode=2)) == (96, 48)

    @pytest.mark.parametrize(
        ("batches", "number", "seconds", "at_most"),
        [
            ({}, 10, 0, 0),
            ({}, 11, 60, 90),
            ({"batchEvictionSize": 2, "batchEvictionInterval": "1m30.5s"}, 5, 182, 242),
            ({"batchEvictionInterval": "-1s"}, 11, 0, 30),
        ],
    )
    def test_evictions_come_in_batches(self, batches: Any, number: int, seconds: int, at_most: int) -> None:
        vms = [vm(f"{each}", "a", "1Mi", **unable("None")) for each in range(number)]
        found = plan(NODES, vms, BOTH | batches).evictions
        assert (found.vms, found.seconds, found.at_most_seconds) == (number, seconds, at_most)

    def test_denied_evictions_keep_others_waiting(self) -> None:
        found = plan(NODES, [vm("web", "a", **unable()), vm("db", "a", **unable("None"))])
        assert (found.evictions.vms, found.evictions.at_most_seconds, len(found.notes)) == (2, None, 1)

    @pytest.mark.parametrize("written", ["soon", "1", "1m2", "m", f"{'9' * 400}h", "", "+-5m"])
    def test_an_interval_that_is_none(self, written: str) -> None:
        with pytest.raises(InputError, match="batchEvictionInterval"):
            plan(NODES, [], BOTH | {"batchEvictionInterval": written})

    def test_a_downgrade_is_not_evaluated(self) -> None:
        def gaps(before: str, after: str) -> int:
            world = msgspec.structs.replace(snapshot(NODES, []), kubevirt=updating(before, after))
            return len(update.plan(world).gaps)

        assert [gaps("1.8.3", "1.9.0"), gaps("1.9.0", "1.9.0"), gaps("1.9.0", "1.8.3")] == [0, 0, 1]


def test_hyperconverged_owns_the_methods() -> None:
    vms = [vm("web", "a"), vm("db", "a", **unable("None"))]
    world = snapshot(NODES, vms)
    owned = replace(world.kubevirt, owner=HyperConverged("hco", "kubevirt-hyperconverged", "v1beta1"))
    for found, text in (
        (plan(NODES, vms, {}), "KubeVirt"),
        (update.plan(msgspec.structs.replace(world, kubevirt=owned)), "hco/"),
    ):
        changes = {each.change.split()[1]: (each.vms, text in each.change) for each in found.changes}
        assert changes == {"LiveMigrate": (("shop/web",), True), "Evict": (("shop/db",), True)}
    none = snapshot(NODES, vms, updates=EVICT | {"batchEvictionSize": 0})
    for kubevirt, words in ((world.kubevirt, "spec.{} of KubeVirt"), (owned, "{} of HyperConverged hco/")):
        (change,) = update.plan(msgspec.structs.replace(none, kubevirt=kubevirt)).changes
        assert words.format("workloadUpdateStrategy.batchEvictionSize") in change.change
        assert change.vms == ("shop/db", "shop/web")


class TestReleases:
    @pytest.mark.parametrize(
        ("before", "after", "ratio", "own", "to"),
        [
            *(("1.9.0", "1.10.0", "", {}, ""), ("1.9.0", "1.9.0", "", {}, "b"), ("1.10.0", "1.10.1", "", {}, "b")),
            ("1.8.4", "1.9.0", "2.0", {}, "b"),
            ("1.9.0", "1.10.0", "", {"overcommitGuestOverhead": True}, "b"),
        ],
    )
    def test_memory_that_qemu_gets(self, before: str, after: str, ratio: str, own: Any, to: str) -> None:
        """From 1.10 on a target pod requests 20Mi more than its source, of nodes and of quotas."""
        config = updating(before, after, evictionStrategy="LiveMigrate", additionalGuestMemoryOverheadRatio=ratio)
        vmi, pod = vm("web", "a")
        vmi["spec"]["domain"]["resources"] = own
        for nodes, quotas in (
            ([node("a"), node("b", memory="1034Mi")], ()),
            (NODES, [quota(memory=("2058Mi", "1Gi"))]),
        ):
            world = snapshot(nodes, [(vmi, pod)], updates=BOTH, quotas=quotas)
            found = update.plan(msgspec.structs.replace(world, kubevirt=config))
            assert (found.from_version, found.to_version, of(found).to) == (before, after, to)

    @pytest.mark.parametrize(("ratio", "memory"), [("", 1044), ("2.5", 1074), ("nonsense", 1044)])
    def test_the_ratio_of_the_overhead(self, ratio: str, memory: int) -> None:
        config = updating("1.9.0", "1.10", additionalGuestMemoryOverheadRatio=ratio)
        found = update.plan(msgspec.structs.replace(snapshot(NODES, [vm("web", "a")], updates=BOTH), kubevirt=config))
        assert of(found).memory == memory * 2**20
        assert [gap for gap in found.gaps if "1.10.0 is newer" in gap]


class TestHotplug:
    """Migrations of VMs with hotplugged volumes, whose attachment pods KubeVirt makes once the target pod runs."""

    DISK: Any = {"name": "disk", "persistentVolumeClaim": {"claimName": "data", "hotpluggable": True}}

    def world(
        self, *zones: str, reach: str = "x", beside: Sequence[Any] = (), dedicated: bool = False, **options: Any
    ) -> UpdatePlan:
        terms = [{"matchExpressions": [{"key": "zone", "operator": "In", "values": [reach]}]}]
        volume = {"metadata": {"name": "pv"}, "spec": {"nodeAffinity": {"required": {"nodeSelectorTerms": terms}}}}
        claim = {"metadata": {"name": "data", "namespace": "shop"}, "spec": {"volumeName": "pv"}}
        vmi, pod = vm("web", "a", volumes=[self.DISK])
        vmi["spec"]["domain"]["cpu"]["dedicatedCpuPlacement"] = dedicated
        manager: Any = {"kubevirt.io/cpumanager": "true"}
        nodes = [node(name, zone=zone, **manager) for name, zone in zip("abc", zones, strict=False)]
        for each in nodes[1:]:
            each["status"]["allocatable"] |= options.pop("allocatable", {})
        more = {"claims": [claim], "volumes": [volume], "pods": [attachment(pod)], **options}
        return plan(nodes, [(vmi, pod), *beside], **more)

    @pytest.mark.parametrize("dedicated", [False, True])
    @pytest.mark.parametrize(
        ("zones", "code"), [("xxx", "migrates"), ("xxy", "waits-for-quota"), ("xyy", "waits-for-quota")]
    )
    def test_a_target_pod_that_waits_for_its_volume_takes_the_quota(
        self, zones: str, code: str, dedicated: bool
    ) -> None:
        quotas = [quota(requests_memory=("3584Mi", "2Gi"))]
        found = self.world(*zones, beside=[vm("small", "a", "1Gi")], dedicated=dedicated, quotas=quotas)
        assert of(found, "small").code == code

    @pytest.mark.parametrize(
        ("zones", "options", "code"),
        [
            *(("xx", {}, "migrates"), ("xxy", {}, "may-not-attach"), ("xyy", {}, "no-attachment")),
            ("xx", {"allocatable": {"pods": "1"}}, "no-attachment"),
            ("xx", {"allocatable": {"memory": "1Gi"}}, "no-attachment"),
            # None of the nodes for the target pod has room for it now, and none can attach the volume.
            ("xyy", {"allocatable": {"memory": "1Gi"}}, "no-attachment"),
            ("x", {}, "no-eligible-node"),
            ("xx", {"quotas": [quota(pods=("3", "2"))]}, "quota"),
            ("xx", {"quotas": [quota(pods=("4", "2"))]}, "migrates"),
        ],
    )
    def test_a_node_must_take_both_pods(self, zones: str, options: Any, code: str) -> None:
        found = self.world(*zones, **options)
        assert of(found).code == code
        assert (found.at_most_seconds is None) == (code in ("may-not-attach", "no-attachment", "no-eligible-node"))


@thorough
@given(clusters.random_clusters(), st.randoms(use_true_random=False))
def test_a_plan_can_be_carried_out_and_so_can_any_other_order(world: Any, dice: Any) -> None:
    """A VM that no node is eligible for never moves, and one that has room at first can move."""
    world = msgspec.structs.replace(world, workload_updates=msgspec.convert(MIGRATE, type(world.workload_updates)))
    found, simulated = update.plan(world), Simulated(world, [])
    assert {each.outcome for each in found.vms} <= {report.MOVES, report.STAYS}
    assert update.plan(shuffled(world, dice)) == found, "the order of the objects changes nothing"
    never = {each.name for each in found.vms if each.code == report.NO_ELIGIBLE_NODE}
    for each in found.vms:
        fits = simulated.fitting(each.name)
        assert list(each.candidates) == fits
        assert bool(fits) or each.code not in (report.MIGRATES, report.DEPENDS_ON_ORDER)
    waiting = [each.name for each in found.vms]
    dice.shuffle(waiting)
    for name in waiting:
        if fits := simulated.fitting(name):
            assert name not in never
            simulated.move(name, dice.choice(fits))

    simulated = Simulated(world, [])
    simulated.carry_out(found.vms)
    assert not any(simulated.fitting(each.name) for each in found.vms if each.outcome == report.STAYS)
