from __future__ import annotations

import dataclasses
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.builders import config_of
from tests.forecast import clusters
from tests.forecast.clusters import GIB, apart, budget, filler, node, quota, snapshot, together, vm
from tests.forecast.large_cluster import write_cluster
from tests.forecast.oracle import Simulated, shuffled, thorough
from tests.golden_files import Golden
from webhook.admission.step_budget import StepBudget
from webhook.cli.explain import from_files
from webhook.errors import InputError
from webhook.forecast import drain as planner
from webhook.forecast import report
from webhook.forecast.report import CODES, DrainPlan, Remedy, VmPlan
from webhook.forecast.snapshot import ClusterObjects
from webhook.k8s.types.core import NodeWithoutImages
from webhook.kubevirt.hyperconverged import HyperConverged
from webhook.placement import quota as quotas
from webhook.placement import simulate
from webhook.placement.nodes import CORDON

NODES = [node("a"), node("b"), node("c")]
TWO = NODES[:2]
NAMES = st.sampled_from(clusters.NAMES)
DRAINED = clusters.NAMES[0]


def plan(
    nodes: Sequence[Any],
    vms: Sequence[Any],
    drained: Sequence[str] = ("a",),
    *,
    rolling: bool = False,
    parallel: int = 1,
    **options: Any,
) -> DrainPlan:
    return planner.plan(snapshot(nodes, vms, **options), drained, rolling=rolling, parallel=parallel)


def of(found: DrainPlan, name: str = "web") -> VmPlan:
    (each,) = (vm for step in found.steps for vm in step.vms if vm.name == name)
    return each


def code(nodes: Sequence[Any], *vms: Any, **options: Any) -> str:
    """What becomes of the VM ``web`` when node a is drained."""
    return of(plan(nodes, vms, **options)).code


def only(name: str = "web", **options: Any) -> VmPlan:
    own = {key: options.pop(key) for key in [*options] if key not in ("strategy", "migrations", "limits", "budgets")}
    found = plan(NODES, [vm(name, "a", **own)], **options)
    assert found.blocks == (found.steps[0].vms[0].outcome == report.BLOCKS)
    return found.steps[0].vms[0]


def of_release(release: str, world: ClusterObjects) -> DrainPlan:
    configuration = config_of(release, {"evictionStrategy": "LiveMigrate"})
    return planner.plan(msgspec.structs.replace(world, kubevirt=configuration), ["a"])


def unable(reason: str = "DisksNotLiveMigratable") -> clusters.Json:
    return {"condition": {"type": "LiveMigratable", "status": "False", "reason": reason}}


def tainted(name: str, **labels: Any) -> clusters.Json:
    return node(name, **labels) | {"spec": {"taints": [{"key": "gpu", "effect": "NoSchedule"}]}}


STOPS = {"strategy": "None", "labels": {"app": "x"}}


class TestEvictions:
    @pytest.mark.parametrize(
        ("strategy", "stays_down"), [("Always", False), ("RerunOnFailure", True), ("Manual", True), ("Once", True)]
    )
    def test_who_stays_down_after_a_shutdown_is_named(self, strategy: str, stays_down: bool) -> None:
        machine = vm("web", "a", evictionStrategy="None")
        known = snapshot(NODES, [machine], owners=[clusters.owned(machine, strategy)])
        unread = msgspec.structs.replace(known, vms=())
        plans = [planner.plan(world, ["a"]).steps[0].vms[0] for world in (known, unread)]
        assert [(each.outcome, bool(each.stays_down)) for each in plans] == [
            ("shuts-down", stays_down),
            ("shuts-down", False),
        ]
        assert [any("runStrategy" in gap for gap in each.gaps) for each in plans] == [False, True]
        assert only("web", evictionStrategy="None").stays_down.startswith("it has no VirtualMachine")

    def test_a_vm_that_can_move_moves(self) -> None:
        found = only()
        assert (found.outcome, found.code, found.eligible, found.with_room) == ("moves", "migrates", 2, 2)
        assert found.to in found.candidates == ("b", "c")
        assert (found.turn, found.memory) == (1, clusters.GIB)

    @pytest.mark.parametrize(
        ("options", "outcome", "code"),
        [
            ({"evictionStrategy": "None"}, "shuts-down", "strategy-none"),
            ({"strategy": "None"}, "shuts-down", "strategy-none"),
            (STOPS | {"budgets": [budget(0, app="x")]}, "blocks", "disruption-budget"),
            (STOPS | {"budgets": [budget(1, app="x")]}, "shuts-down", "strategy-none"),
            (STOPS | {"budgets": [budget(0, app="y")]}, "shuts-down", "strategy-none"),
            (STOPS | {"budgets": [budget(1, app="x"), budget(1, app="x")]}, "blocks", "disruption-budget"),
            ({"labels": {"app": "x"}, "budgets": [budget(0, app="x")]}, "moves", "migrates"),
            (unable() | {"evictionStrategy": "LiveMigrate"}, "blocks", "not-migratable"),
            (unable() | {"evictionStrategy": "LiveMigrateIfPossible"}, "shuts-down", "not-migratable-if-possible"),
            (unable() | {"evictionStrategy": "External"}, "handed-over", "external-strategy"),
            (unable() | {"evictionStrategy": "Whatever"}, "blocks", "unknown-strategy"),
            ({"limits": {"parallelMigrationsPerCluster": 0}}, "blocks", "no-migrations"),
            ({"limits": {"parallelOutboundMigrationsPerNode": 0}}, "blocks", "no-migrations"),
            ({"limits": {"completionTimeoutPerGiB": -1}}, "blocks", "no-migrations"),
            ({"limits": {"completionTimeoutPerGiB": 0}}, "moves", "migrates"),
            ({"name": "w" * 64}, "blocks", "name-too-long"),
        ],
    )
    def test_what_becomes_of_a_vm(self, options: clusters.Json, outcome: str, code: str) -> None:
        found = only(**options)
        assert (found.outcome, found.code) == (outcome, code)

    def test_whose_strategy_counts(self, golden: Golden) -> None:
        """A VMI from before KubeVirt 1.1 has none; an unknown one is that of a newer KubeVirt."""
        own = ({"strategy": "None"}, {"evictionStrategy": "None"}, {"evictionStrategy": "Whatever"})
        golden("\n".join(only(**options).reason for options in own))

    @pytest.mark.parametrize("release", ["1.6.4", "1.6.5"])
    def test_a_vm_whose_persistent_state_kubevirt_does_not_find(self, release: str) -> None:
        vmi, pod = vm("web", "a")
        vmi["status"]["volumeStatus"] = [{"name": "persistent-state-for-a-name-that-was-cut-off"}]
        (found,) = of_release(release, snapshot(NODES, [(vmi, pod)])).steps[0].vms
        assert found.code == ("name-too-long" if release == "1.6.4" else "migrates")

    def test_another_controller_takes_a_vm_over(self, golden: Golden) -> None:
        """Its labels name the KubevirtMachine and the cluster, where Cluster API's provider made the VM."""
        prefix = "capk.cluster.x-k8s.io/kubevirt-machine-"
        machine = {f"{prefix}name": "worker-1", f"{prefix}namespace": "tenants"}
        machine["cluster.x-k8s.io/cluster-name"] = "tenant"
        of_labels = {"web": machine, "db": {}, "own": {}}
        vms = [vm(name, "a", evictionStrategy="External", labels=labels) for name, labels in of_labels.items()]
        owner = {"apiVersion": "fleet.example.com/v1", "kind": "Machine", "name": "m-1", "controller": True}
        vms[-1][0]["metadata"]["ownerReferences"] = [owner]
        found = plan(NODES, vms)

        assert (found.handed_over, found.blocks, found.moves, found.changes) == (3, 0, 0, ())
        assert of(found, "web").controller == "KubevirtMachine tenants/worker-1 of cluster tenant"
        assert (of(found, "own").controller, of(found, "db").controller) == ("Machine m-1", "")
        golden(of(found, "web").reason)
        golden(of(found, "db").reason)

    def test_what_is_handed_over_keeps_its_room(self) -> None:
        """Where it goes, and when, is not known; nothing is placed on what it may still take."""
        vms = [vm("web", "a", "6Gi", evictionStrategy="External"), vm("db", "b", "6Gi")]
        assert of(plan(TWO, vms, [], rolling=True), "db").code == "no-room"

    def test_a_migration_that_never_ends(self) -> None:
        def among(value: str, phase: str) -> VmPlan:
            spec = {"vmiName": "web", "addedNodeSelector": {"zone": value}}
            metadata = {"name": "m", "namespace": "shop"}
            return only(migrations=[{"metadata": metadata, "spec": spec, "status": {"phase": phase}}])

        assert among("not a label!", "Pending").code == "migration-stuck"
        assert among("not a label!", "Failed").code == "migrates"
        assert (among("b", "Running").code, len(among("b", "Running").notes)) == ("migrates", 1)

    @pytest.mark.parametrize(("release", "notes"), [("1.7", 0), ("1.8", 1)])
    def test_a_backup_since_kubevirt_1_8(self, release: str, notes: int) -> None:
        vmi, pod = vm("web", "a")
        vmi["status"]["changedBlockTracking"] = {"backupStatus": {"backupName": "nightly"}}
        assert len(of(of_release(release, snapshot(NODES, [(vmi, pod)]))).notes) == notes

    def test_vms_that_may_reserve_the_same_volume_stay_apart(self) -> None:
        vms = [vm("web", "a", evictionStrategy="LiveMigrate"), vm("db", "b", evictionStrategy="LiveMigrate")]
        for vmi, pod in vms:
            vmi["spec"]["domain"]["devices"] = {"disks": [{"name": "lun", "lun": {"reservation": True}}]}
            pod["metadata"]["labels"]["pr.kubevirt.io/claim-uid"] = ""
        assert (of(plan(NODES, vms)).candidates, code(TWO, *vms)) == (("c",), "no-eligible-node")


class TestDrainedNodes:
    def test_a_selector_that_no_other_node_meets(self) -> None:
        found = plan([node("a", zone="x"), node("b")], [vm("web", "a", nodeSelector={"zone": "x"})])
        assert of(found).code == "no-eligible-node"
        assert [change.vms for change in found.changes] == [("shop/web",)]

    def test_taints_affinity_and_volumes_count(self) -> None:
        terms = [{"matchExpressions": [{"key": "zone", "operator": "In", "values": ["x"]}]}]
        volume = {"metadata": {"name": "pv"}, "spec": {"nodeAffinity": {"required": {"nodeSelectorTerms": terms}}}}
        claim = {"metadata": {"name": "data", "namespace": "shop"}, "spec": {"volumeName": "pv"}}
        disk = [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]
        nodes = [node("a", zone="x"), node("b"), tainted("c", zone="x")]
        for tolerations, to in (([], ""), ([{"operator": "Exists"}], "c")):
            mover = vm("web", "a", volumes=disk, tolerations=tolerations)
            found = of(plan(nodes, [mover], claims=[claim], volumes=[volume]))
            assert (found.to, found.code == "no-eligible-node") == (to, not to)

    def test_requests_are_packed_against_what_is_free(self, golden: Golden) -> None:
        nodes = [node("a", memory="16Gi"), node("b"), node("c", memory="4Gi")]
        found = plan(nodes, [vm(f"vm-{number}", "a", "3Gi") for number in range(4)])
        assert sorted(each.to for each in found.steps[0].vms) == ["", "b", "b", "c"]
        assert [each.code for each in found.steps[0].vms].count("no-room") == 1
        (change,) = found.changes
        golden(change.change)

    def test_what_has_ended_takes_no_room(self) -> None:
        for phase, expected in (("Succeeded", "migrates"), ("Running", "no-room")):
            other = clusters.filler("other", "b", "8Gi") | {"status": {"phase": phase}}
            assert code(TWO, vm("web", "a", "7Gi"), pods=[other]) == expected

    def test_a_tight_packing_is_told(self) -> None:
        # By scores, both small ones go to the larger gap first, where the large one then has no room.
        nodes = [node("a", memory="16Gi"), node("b", memory="4Gi"), node("c", memory="3Gi")]
        found = plan(nodes, [vm("1", "a", "1Gi"), vm("2", "a", "1Gi"), vm("3", "a", "4Gi")])
        assert (found.blocks, of(found, "3").to, of(found, "3").code) == (0, "b", "migrates-if-packed")

    @pytest.mark.parametrize(("drained", "rolling", "blocks"), [("a", False, 0), ("ab", False, 2), ("ab", True, 0)])
    def test_all_nodes_of_a_drain_are_cordoned_at_once(self, drained: str, rolling: bool, blocks: int) -> None:
        assert plan(TWO, [vm("web", "a"), vm("db", "b")], [*drained], rolling=rolling).blocks == blocks


class TestPodsOnDrainedNodes:
    def test_anti_affinity_of_either_side(self) -> None:
        mover, other = vm("web", "a", labels={"app": "x"}), vm("db", "b", labels={"app": "y"})
        own = vm("web", "a", labels={"app": "x"}, affinity=apart(app="y"))
        theirs = vm("db", "b", labels={"app": "y"}, affinity=apart(app="x"))
        found = [code(TWO, *vms) for vms in ((mover, other), (own, other), (mover, theirs))]
        assert found == ["migrates", "pods-apart", "pods-apart"]

    def test_a_vm_keeps_itself_from_its_own_zone(self) -> None:
        """Its target pod is beside the pod that it leaves, which runs until the migration is over."""
        alone = vm("web", "a", labels={"app": "x"}, affinity=apart("zone", app="x"))
        found = [code([node("a", zone="1"), node("b", zone=zone)], alone) for zone in "12"]
        assert found == ["pods-apart", "migrates"]

    def test_affinity_to_a_pod_that_stays(self) -> None:
        mover, other = vm("web", "a", affinity=clusters.together(app="y")), vm("db", "c", labels={"app": "y"})
        assert of(plan(NODES, [mover, other])).candidates == ("c",)

    def test_two_that_are_apart_do_not_share_a_node(self) -> None:
        found = plan(NODES, [vm(name, "a", labels={"app": "x"}, affinity=apart(app="x")) for name in "123"])
        assert Counter(each.outcome for each in found.steps[0].vms) == {"moves": 2, "blocks": 1}

    def test_pods_without_a_vm(self) -> None:
        pods = [clusters.filler(name, "a", app=app) for name, app in (("one", "x"), ("two", "y"))]
        pods.append(clusters.filler("logs", "a", owner="DaemonSet"))
        found = plan(NODES, [], pods=pods, budgets=[budget(0, app="x")])
        step = found.steps[0]
        assert (step.other_pods, [pod.name for pod in step.blocked_pods], found.blocks) == (2, ["one"], 1)

    def test_pods_that_only_say_that_they_carry_a_vm(self) -> None:
        """One of another namespace is not a VM's, and one of no VM is evicted as its budget allows."""
        forged = [
            clusters.filler(name, "a", "9Gi", **{"kubevirt.io/created-by": uid, "app": "x"})
            for name, uid in (("hidden", "uid-none"), ("other", "uid-web"))
        ]
        forged[1]["metadata"] |= {"namespace": "mallory", "creationTimestamp": "2027-01-01T00:00:00Z"}
        found = plan(NODES, [vm("web", "a")], pods=forged, budgets=[budget(0, app="x")])
        assert (of(found).code, of(found).memory) == ("migrates", GIB)
        assert (found.steps[0].other_pods, [pod.name for pod in found.steps[0].blocked_pods]) == (2, ["hidden"])

    def test_those_that_copy_disks_are_named(self) -> None:
        """The drain cuts them off, wherever their controller is; one that a budget keeps goes on."""
        labels = {"app": "containerized-data-importer", "cdi.kubevirt.io": "importer"}
        pods = [clusters.filler(name, "a", owner="PersistentVolumeClaim", **labels) for name in ("one", "two", "three")]
        for pod in pods:
            pod["metadata"]["ownerReferences"][0]["apiVersion"] = "v1"
        pods[0]["status"]["startTime"] = "2026-11-21T10:00:00Z"
        pods[2]["metadata"]["labels"]["kept"] = "yes"
        world = snapshot(NODES, [], pods=[*pods, clusters.filler("web", "a")], budgets=[budget(0, kept="yes")])
        (step,) = planner.plan(msgspec.structs.replace(world, now=1_795_262_400.0), ["a"]).steps
        found = [(each.name, each.what, each.owner, each.running_seconds) for each in step.transfers]
        claim = "PersistentVolumeClaim owner"
        assert found == [("one", "CDI importer", claim, 7200), ("two", "CDI importer", claim, None)]
        assert (step.other_pods, [pod.name for pod in step.blocked_pods]) == (4, ["three"])


class TestRolling:
    def test_a_vm_may_move_more_than_once(self) -> None:
        found = plan(TWO, [vm("web", "a")], [], rolling=True)
        assert [(step.nodes, [each.to for each in step.vms]) for step in found.steps] == [
            (("a",), ["b"]),
            (("b",), ["a"]),
        ]
        assert (found.moves, found.blocks) == (2, 0)

    def test_a_vm_that_shut_down_is_gone(self) -> None:
        vms = [vm("web", "a", "6Gi", evictionStrategy="None"), vm("db", "b", "6Gi")]
        found = plan(TWO, vms, [], rolling=True)
        assert (found.shuts_down, found.moves, found.blocks) == (1, 1, 0)

    def test_the_first_hosts_cpu_stays_required(self) -> None:
        """A host-model VM requires the CPU of the host that it started on, wherever it has been since."""
        prefix = "host-model-cpu.node.kubevirt.io/"
        migration: Any = {"cpu-model-migration.node.kubevirt.io/Skylake": "true"}
        host, like = (
            node(name, **migration | {f"{prefix}{cpu}": "true"}) for name, cpu in (("a", "Skylake"), ("b", "Icelake"))
        )
        vmi, pod = vm("web", "a")
        vmi["spec"]["domain"]["cpu"] = {"model": "host-model"}
        found = plan([host, like, node("c", memory="4Gi")], [(vmi, pod)], [], rolling=True)
        assert [each.to for step in found.steps for each in step.vms] == ["b", "a"]


class TestParallel:
    """Several nodes at a time, as MachineConfigPools are updated."""

    def test_steps_of_several_nodes(self) -> None:
        found = plan([*NODES, node("d")], [vm("web", "a"), vm("db", "b")], [], rolling=True, parallel=2)
        assert [step.nodes for step in found.steps] == [("a", "b"), ("c", "d")]
        assert (found.rolling, found.parallel, found.moves, found.blocks) == (True, 2, 4, 0)
        assert {each.to for each in found.steps[0].vms} <= {"c", "d"}

    def test_limits_hold_for_all_nodes_of_a_step(self) -> None:
        """Four migrations from two nodes, two at a time in the whole cluster, or from each node."""
        vms = [vm(str(number), "ab"[number % 2]) for number in range(4)]
        for limits, seconds in (({"parallelMigrationsPerCluster": 2}, 38), ({"parallelMigrationsPerCluster": 4}, 19)):
            assert plan(NODES, vms, ["a", "b"], rolling=True, parallel=2, limits=limits).seconds == seconds

    @pytest.mark.parametrize(("allowed", "notes"), [(0, 0), (1, 1), (2, 0)])
    def test_a_budget_that_does_not_allow_all_of_a_step(self, allowed: int, notes: int, golden: Golden) -> None:
        vms = [vm("web", "a", evictionStrategy="None", labels={"app": "x"})]
        pods = [clusters.filler("other", "b", app="x")]
        found = plan(NODES, vms, ["a", "b"], pods=pods, budgets=[budget(allowed, app="x")])
        assert (len(found.notes), found.blocks) == (notes, 2 * (allowed == 0))
        assert plan(NODES, vms, [], rolling=True, pods=pods, budgets=[budget(1, app="x")]).notes == ()
        if notes:
            golden(*found.notes)

    def test_the_order_and_a_spare_node(self) -> None:
        """The emptiest node first, which takes the VMs of the next one; or one more node."""
        nodes = [*TWO, node("c", memory="6Gi")]
        vms = [vm("1", "a", "5Gi"), vm("2", "b", "5Gi"), vm("3", "c", "2Gi")]
        found = plan(nodes, vms, [], rolling=True)
        assert (found.blocks, found.order) == (2, ("c", "a", "b"))
        assert plan(nodes, vms, found.order, rolling=True).blocks == 0
        assert found.spare == report.SpareNode(like="a", moves=3, blocks=0, seconds=93)
        assert plan(nodes, vms, ["a"]).spare is None, "what one change would free most says it"
        # The new node has neither the cordon of the one that it is like, nor what says that this is down or emptied.
        taints = [{"key": key, "effect": "NoSchedule"} for key in (CORDON.key, "medik8s.io/drain")]
        cordoned = [nodes[0] | {"spec": {"unschedulable": True, "taints": taints}}, *nodes[1:]]
        found = plan(cordoned, vms, ["a", "b"], rolling=True)
        assert (found.blocks, found.spare and found.spare.like, found.spare and found.spare.blocks) == (2, "a", 1)


class TestCancellation:
    @pytest.mark.parametrize(
        ("spec", "can"),
        [({"nodeSelector": {"zone": "x"}}, True), ({"evictionStrategy": "External"}, True), ({}, False)],
    )
    def test_is_named_where_a_vm_stays(self, spec: clusters.Json, can: bool, golden: Golden) -> None:
        found = plan(NODES, [vm("web", "a", **spec)])
        assert bool(found.notes) == can
        if can:
            golden(*found.notes)

    def test_kubevirt_1_6_has_none(self) -> None:
        assert of_release("1.6", snapshot(NODES, [vm("web", "a", "99Gi")])).notes == ()


@pytest.mark.parametrize(
    "cpu",
    [{"dedicatedCpuPlacement": True}, {"numa": {"guestMappingPassthrough": {}}}, {"realtime": {}}],
    ids=lambda cpu: next(iter(cpu)),
)
def test_kubelets_decide_by_numa_node(cpu: clusters.Json) -> None:
    vmi, pod = vm("web", "a", evictionStrategy="LiveMigrate")
    vmi["spec"]["domain"]["cpu"] |= cpu
    labels: Any = {"kubevirt.io/cpumanager": "true", "kubevirt.io/realtime": "true"}
    found = of(plan([node(name, **labels) for name in "abc"], [(vmi, pod)]))
    assert (found.outcome, found.code) == ("moves", "may-not-fit")


class TestQuotas:
    def test_a_target_pod_that_is_denied(self, golden: Golden) -> None:
        vms = [vm("small", "a", "1Gi"), vm("large", "a", "3Gi"), vm("none", "a", "512Mi", evictionStrategy="None")]
        found = plan(NODES, vms, quotas=[quota(requests_memory=("9Gi", "7Gi"))])
        codes = {vm.name: vm.code for vm in found.steps[0].vms}
        assert codes == {"small": "migrates", "large": "quota", "none": "strategy-none"}
        assert (of(found, "large").to, found.blocks) == ("", 1)
        assert [change.vms for change in found.changes] == [("shop/large",)]
        golden(of(found, "large").reason)

    def test_other_namespaces_have_their_own(self) -> None:
        other = quota(pods=("0", "0"))
        other["metadata"]["namespace"] = "lab"
        assert code(NODES, vm("web", "a"), quotas=[other]) == "migrates"

    def test_migrations_that_wait_for_each_other_take_longer(self, golden: Golden) -> None:
        vms = [vm(f"vm-{number}", on, "2Gi") for number, on in enumerate("aabb")]
        free, narrow = (
            plan([*NODES, node("d")], vms, "ab", quotas=quotas, limits={"parallelMigrationsPerCluster": 4})
            for quotas in ([], [quota(requests_memory=("10Gi", "8Gi"))])
        )
        assert (free.blocks, narrow.blocks, free.notes) == (0, 0, ())
        assert narrow.seconds == 4 * free.seconds
        golden(*narrow.notes)

    def test_the_pods_that_vms_leave_count_among_all_pods(self) -> None:
        vms = [vm(f"vm-{number}", "a") for number in range(3)]
        found = plan(NODES, vms, quotas=[quota(count__pods=("5", "3"))])
        assert [vm.code for vm in found.steps[0].vms] == ["migrates", "migrates", "quota"]
        assert [note for note in found.notes if "which is not known" in note] == [
            "The quotas of shop let at most 2 of 3 VMs move; which is not known."
        ]

    def test_a_vm_that_shuts_down_frees_what_it_takes(self, golden: Golden) -> None:
        vms = [vm("stops", "a", "2Gi", evictionStrategy="None"), vm("web", "a", "1Gi"), vm("large", "a", "3Gi")]
        found = plan(NODES, vms, quotas=[quota(requests_memory=("6Gi", "6Gi"))])
        codes = {each.name: each.code for each in found.steps[0].vms}
        assert codes == {"stops": "strategy-none", "web": "waits-for-quota", "large": "quota"}
        golden(of(found).reason)

    @pytest.mark.parametrize(("owner", "is_known"), [("ReplicaSet", False), ("DaemonSet", True)])
    def test_what_other_evicted_pods_free_is_not_known(self, owner: str, is_known: bool) -> None:
        """Their controllers may start them again before the target pod is made, or after."""
        pods = [clusters.filler("other", "a", owner=owner)]
        found = plan(NODES, [vm("web", "a")], pods=pods, quotas=[quota(count__pods=("2", "2"))])
        assert of(found).code == "quota"
        assert ("not known" not in of(found).reason) is is_known

    def test_a_target_pod_without_a_node_takes_the_quota_from_others(self, golden: Golden) -> None:
        """It is pending for minutes, and counts meanwhile; beside it there is room for a small one alone."""
        nowhere = vm("nowhere", "a", "3Gi", nodeSelector={"zone": "x"})
        vms = [nowhere, vm("small", "a", "1Gi"), vm("large", "a", "2Gi")]
        found = plan(NODES, vms, quotas=[quota(requests_memory=("10Gi", "6Gi"))])
        codes = {each.name: (each.outcome, each.code) for each in found.steps[0].vms}
        assert codes == {
            "nowhere": ("blocks", "no-eligible-node"),
            "small": ("moves", "migrates"),
            "large": ("moves", "waits-for-quota"),
        }
        golden(of(found, "large").reason)

    def test_what_is_not_known_is_said(self) -> None:
        new = quota(pods=("0", "0"))
        del new["status"]["used"]
        found = plan(NODES, [vm("web", "a")], quotas=[new])
        assert (of(found).code, len(found.gaps)) == ("migrates", 1)

    def test_sizes_beyond_those_that_are_scored_everywhere(self, monkeypatch: pytest.MonkeyPatch) -> None:
        vms = [vm("web", "a"), vm("db", "a", "2Gi")]
        assert plan(NODES, vms).gaps == ()
        monkeypatch.setattr(simulate, "MOST_SIZES", 1)
        found = plan(NODES, vms)
        assert (found.moves, len(found.gaps)) == (2, 1)


class TestInput:
    @pytest.mark.parametrize(("nodes", "rolling"), [(["x"], False), (["a", "a"], False), (["a", "a"], True)])
    def test_nodes_that_cannot_be_drained(self, nodes: list[str], rolling: bool) -> None:
        with pytest.raises(InputError):
            plan(NODES, [], nodes, rolling=rolling)

    def test_objects_with_nothing_in_them(self) -> None:
        vmi, pod = vm("web", "a")
        bare = ({"metadata": vmi["metadata"], "status": {"nodeName": "a"}}, {"metadata": pod["metadata"]})
        assert code(NODES, bare) == "not-migratable"


def enlarged(world: ClusterObjects, like: str, name: str) -> ClusterObjects:
    """The cluster with one more node, which is empty and otherwise like one that is there."""
    (node,) = (each for each in world.nodes if each.meta.name == like)
    meta = msgspec.structs.replace(node.meta, name=name, labels={**(node.meta.labels or {}), clusters.HOST: name})
    more = NodeWithoutImages(metadata=meta, status=node.status)
    return msgspec.structs.replace(world, nodes=(*world.nodes, more))


ALL_CODES = {code for codes in CODES.values() for code in codes}


def test_codes_are_those_of_their_outcomes() -> None:
    assert {
        value for name, value in vars(report).items() if name.isupper() and isinstance(value, str) and "/" not in value
    } - set(CODES) == ALL_CODES


class TestProperties:
    @thorough
    @given(clusters.random_clusters(), st.lists(NAMES, min_size=1, unique=True), st.randoms(use_true_random=False))
    def test_a_plan_can_be_carried_out(self, world: Any, nodes: list[str], dice: Any) -> None:
        """No node gets more than it has, and no hard rule is broken; the candidates are all nodes that fit alone."""
        plan = planner.plan(world, nodes)
        found, simulated = plan.steps[0].vms, Simulated(world, nodes)
        assert [[*each.candidates] for each in found] == [simulated.fitting(each.name) for each in found]
        simulated.carry_out(found)
        assert not any(simulated.fitting(each.name) for each in found if each.outcome == report.BLOCKS)
        assert {each.code for each in found} <= ALL_CODES
        assert planner.plan(shuffled(world, dice), nodes) == plan, "the order of the objects changes nothing"

    @thorough
    @given(clusters.random_clusters(), st.integers(1, 6), st.randoms(use_true_random=False))
    def test_several_nodes_at_a_time(self, world: Any, parallel: int, dice: Any) -> None:
        """Step by step, no VM goes to a node that is drained at the same time, and none has more than it can take."""
        given = dice.choice([[], dice.sample(clusters.NAMES, len(clusters.NAMES))])
        order = given or clusters.NAMES
        found = planner.plan(world, given, rolling=True, parallel=parallel)
        simulated = Simulated(world, [])
        before = {*simulated.closed}

        assert [name for step in found.steps for name in step.nodes] == order
        for step in found.steps:
            assert len(step.nodes) <= parallel
            simulated.closed = {*before, *step.nodes}
            simulated.carry_out(step.vms)
            assert {vm.name for vm in step.vms if vm.outcome == report.BLOCKS} == {
                name for name, on in simulated.on.items() if on in step.nodes
            }
        assert found.steps[0] == planner.plan(world, order[:parallel]).steps[0]
        assert planner.plan(shuffled(world, dice), given, rolling=True, parallel=parallel) == found
        if found.order:
            better = planner.plan(world, found.order, rolling=True, parallel=parallel)
            assert (better.blocks, better.moves) < (found.blocks, found.moves)
        if spare := found.spare:
            after = planner.plan(enlarged(world, spare.like, "spare-0"), order, rolling=True, parallel=parallel)
            assert (after.blocks, after.moves, after.seconds) == (spare.blocks, spare.moves, spare.seconds)
            assert after.blocks < found.blocks


def guarded(
    *, phase: str = "Running", ready: str | None = "False", deleted: bool = False, healthy: int = 0, **spec: str
) -> DrainPlan:
    """The drain of a node with a pod of an application, of which one pod has to be healthy."""
    pod, pdb = filler("app", "a", app="x"), budget(0, app="x")
    pod["status"] = {"phase": phase, "conditions": [{"type": "Ready", "status": ready}] if ready else []}
    pod["metadata"]["deletionTimestamp"] = "2026-11-28T10:00:00Z" if deleted else None
    pdb["spec"] |= spec
    pdb["status"] |= {"currentHealthy": healthy, "desiredHealthy": 1}
    return plan(TWO, [], pods=[pod], budgets=[pdb])


ALWAYS = {"unhealthyPodEvictionPolicy": "AlwaysAllow"}


@pytest.mark.parametrize(
    ("options", "blocks"),
    [
        ({"ready": "True"}, 1),
        ({"ready": "True", "healthy": 1} | ALWAYS, 1),
        # The API server leaves the budgets of such pods aside (canIgnorePDB).
        ({"phase": "Pending"}, 0),
        ({"deleted": True, "ready": "True"}, 0),
        # One that is not ready protects nothing, if the others are healthy enough or the budget says so.
        ({}, 1),
        ({"healthy": 1}, 0),
        ({"healthy": 1, "ready": None}, 0),
        (ALWAYS, 0),
        ({"unhealthyPodEvictionPolicy": "IfHealthyBudget"}, 1),
        ({"healthy": 1, "unhealthyPodEvictionPolicy": "IfHealthyBudget"}, 0),
    ],
)
def test_budgets_let_pods_go_that_are_not_healthy(options: clusters.Json, blocks: int) -> None:
    found = guarded(**options)
    assert (found.blocks, len(found.steps[0].blocked_pods), found.steps[0].other_pods) == (blocks, blocks, 1)


def test_evictions_that_no_budget_counts_wait_for_none() -> None:
    pods = [filler(f"app-{number}", "a", app="x") for number in range(3)]
    for pod in pods[1:]:
        pod["status"] = {"phase": "Pending"}
    assert plan(TWO, [], pods=pods, budgets=[budget(1, app="x")]).notes == ()


def test_a_budget_that_cannot_be_counted_says_why() -> None:
    """virt-launcher pods belong to a VirtualMachineInstance, which has no scale to count ``maxUnavailable`` by."""
    message = "virtualmachineinstances.kubevirt.io does not implement the scale subresource"
    failed = {"type": "DisruptionAllowed", "status": "False", "reason": "SyncFailed", "message": message}
    pdb = budget(0, app="x")
    pdb["status"]["conditions"] = [failed]
    found = only(strategy="None", labels={"app": "x"}, budgets=[pdb])
    assert found.code == "disruption-budget"
    assert message in found.reason
    assert "minAvailable" in found.reason
    assert "now" not in found.reason.split()


def test_budgets_of_pods_are_steps() -> None:
    """A tenant can make thousands of either; and a reason names a few."""
    budgets = [budget(0, app="x") | {"metadata": {"name": f"b{each}", "namespace": "shop"}} for each in range(100)]
    pods = [clusters.filler(f"pod-{each}", "a", app="x") for each in range(9)]
    world = snapshot(NODES, [], pods=pods, budgets=budgets)
    work = StepBudget(planner.MAX_STEPS)
    (blocked, *_) = (
        work.run(planner._plan, world, ["a"], rolling=False, parallel=1, bandwidth=None).steps[0].blocked_pods
    )
    assert work.spent >= 900
    assert "b0, b1" in blocked.reason
    assert len(blocked.reason) < 200


def test_reviews_of_quotas_do_not_grow_with_the_pods_that_leave_or_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """A namespace with thousands of VMs would take minutes otherwise, which no step counts."""
    counting = Mock(wraps=quotas._counts)
    monkeypatch.setattr(quotas, "_counts", counting)

    def reviews(number: int) -> int:
        counting.reset_mock()
        strategies = ("LiveMigrate", "None")
        vms = [vm(f"vm-{index}", "a", "1Mi", evictionStrategy=strategies[index % 2]) for index in range(number)]
        large = [vm(f"large-{index}", "a", "8Gi") for index in range(number)]
        others = [clusters.filler(f"pod-{index}", "a", "1Mi") for index in range(number)]
        found = plan(NODES, [*vms, *large], pods=others, quotas=[quota(requests_memory=("12Gi", "1Gi"))])
        assert found.shuts_down == number // 2
        assert found.blocks >= number
        return counting.call_count

    assert reviews(40) < 3 * reviews(20)


# -- changes -----------------------------------------------------------------------------------------------------------


def test_limits_are_raised_where_their_owner_reads_them() -> None:
    world = snapshot(NODES, [vm("web", "a")], limits={"parallelMigrationsPerCluster": 0})
    owner = HyperConverged("openshift-cnv", "hco", "v1beta1")
    kubevirt = dataclasses.replace(world.kubevirt, owner=owner)
    (change,) = planner.plan(msgspec.structs.replace(world, kubevirt=kubevirt), ["a"]).changes
    assert change.change == "raise the limits in spec.liveMigrationConfig of HyperConverged openshift-cnv/hco"

    # Its API has no field for the selectors, so that they come from its annotation, and go there.
    world = snapshot([node("a", zone="x"), node("b")], [vm("web", "a")])
    kubevirt = dataclasses.replace(world.kubevirt, owner=owner, node_selectors={"zone": "x"})
    (change,) = planner.plan(msgspec.structs.replace(world, kubevirt=kubevirt), ["a"]).changes
    assert change.change == (
        "remove zone=x from developerConfiguration.nodeSelectors in the annotation kubevirt.kubevirt.io/jsonpatch of "
        "HyperConverged openshift-cnv/hco, which overwrites changes of the KubeVirt object"
    )


def changes(*vms: Any, nodes: Sequence[Any] = TWO, **options: Any) -> list[str]:
    return [change.change for change in plan(nodes, vms, **options).changes]


def test_a_node_that_will_be_drained_soon_is_named() -> None:
    planned = node("b")
    planned["status"]["conditions"] = [{"type": "MaintenancePlanned", "status": "True", "message": "new disks"}]
    (note,) = of(plan([node("a"), planned], [vm("web", "a")])).notes
    assert note.startswith("b will be emptied")


def test_a_node_can_be_uncordoned() -> None:
    nodes = [node("a"), node("b", cordoned=True)]
    assert changes(vm("web", "a"), nodes=nodes) == ['uncordon "b"']
    (any_node,) = changes(vm("web", "a"), nodes=[*nodes, node("c", cordoned=True)])
    assert any_node.startswith("uncordon a node")
    assert changes(vm("web", "a", "9Gi"), nodes=[node("a", memory="10Gi"), *nodes[1:]]) == [], "it has no room"


def test_selectors_and_taints_can_be_given_up() -> None:
    assert "zone=x" in changes(vm("web", "a", nodeSelector={"zone": "x"}), nodes=[node("a", zone="x"), node("b")])[0]
    assert "gpu:NoSchedule" in changes(vm("web", "a"), nodes=[node("a"), tainted("b")])[0]


def test_what_frees_most_comes_first() -> None:
    reasons = ["DisksNotLiveMigratable", "DisksNotLiveMigratable", "HostDeviceNotLiveMigratable"]
    found = plan(TWO, [vm(str(number), "a", **unable(reason)) for number, reason in enumerate(reasons)])
    assert [len(change.vms) for change in found.changes] == [3, 2, 1]


@pytest.mark.parametrize(
    ("own", "options"),
    [
        ({"evictionStrategy": "Whatever"}, {}),
        ({}, {"limits": {"parallelMigrationsPerCluster": 0}}),
        ({"evictionStrategy": "None", "labels": {"app": "x"}}, {"budgets": [budget(0, app="x")]}),
        ({"affinity": apart(app="y")}, {}),
    ],
)
def test_every_kind_of_block_has_a_change(own: Any, options: Any) -> None:
    assert len(changes(vm("web", "a", **own), vm("db", "b", labels={"app": "y"}), **options)) == 1


def takes_all(world: ClusterObjects, change: Remedy, name: str) -> bool:
    """Whether the node that a change names is a candidate of each VM that it names, in the cluster after it."""
    after = planner.plan(world, [DRAINED])
    named = [each for each in after.steps[0].vms if f"{each.namespace}/{each.name}" in change.vms]
    return all(name in each.candidates for each in named)


@thorough
@given(clusters.random_clusters())
def test_a_node_that_is_uncordoned_or_added_takes_each_vm_that_is_named(world: Any) -> None:
    for change in planner.plan(world, [DRAINED]).changes:
        if uncordoned := re.fullmatch('uncordon "(.*)"', change.change):
            name = uncordoned[1]
            opened = tuple(
                each if each.meta.name != name else msgspec.structs.replace(each, spec=None) for each in world.nodes
            )
            assert takes_all(msgspec.structs.replace(world, nodes=opened), change, name), change
        elif change.change.startswith("add an empty node"):
            assert takes_all(enlarged(world, DRAINED, "new"), change, "new"), change


class TestVmsThatTolerateCordonedNodes:
    """kube-scheduler sends them to nodes that are drained, too, and those are then not empty."""

    ANYWHERE: Any = {"tolerations": [{"operator": "Exists"}]}

    def test_one_that_ends_within_the_drain_blocks_it(self) -> None:
        found = plan([node("a"), node("b", memory="16Gi"), node("c")], [vm("web", "a", **self.ANYWHERE)], ["a", "b"])
        assert (of(found).outcome, of(found).code, of(found).to) == ("blocks", "moves-within-drain", "b")
        assert (found.moves, found.blocks) == (1, 1)
        assert found.seconds > 0, "it is migrated all the same"
        assert [each.vms for each in found.changes] == [("shop/web",)]

    def test_one_that_leaves_does_not(self) -> None:
        nodes = [node("a"), node("b"), node("c", memory="16Gi")]
        assert of(plan(nodes, [vm("web", "a", **self.ANYWHERE)], ["a", "b"])).code == "migrates"
        # Others never go to nodes that are drained.
        nodes[1] = node("b", memory="64Gi")
        assert of(plan(nodes, [vm("web", "a")], ["a", "b"])).to == "c"

    def test_node_after_node_it_moves_as_often_as_it_has_to(self) -> None:
        nodes, mover = [node("a"), node("b", memory="16Gi"), node("c")], vm("web", "a", **self.ANYWHERE)
        found = plan(nodes, [mover], ["a", "b"], rolling=True)
        assert [[(each.node, each.to) for each in step.vms] for step in found.steps] == [[("a", "b")], [("b", "a")]]
        assert found.blocks == 0
        assert plan(nodes, [mover], ["a", "b"], rolling=True, parallel=2).blocks == 1


def test_rules_between_pods_leave_no_domain_out_of_a_hard_spread() -> None:
    """PodTopologySpread looks at the pod's selector and node affinity alone: the zone without a rack counts, too."""
    labels = {"app": "web"}
    hard = {"topologyKey": "zone", "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"}
    spread = [{**hard, "labelSelector": {"matchLabels": labels}}]
    nodes = [node("a", zone="1", rack="1"), node("b", zone="1", rack="1"), node("c", zone="2")]
    mover = vm("web", "a", labels=labels, topologySpreadConstraints=spread, affinity=together("rack", app="web"))
    assert code(nodes, mover) == "pods-apart"


def test_a_rolling_drain_takes_steps_by_its_size(tmp_path: Path) -> None:
    def steps(nodes: int) -> int:
        budget = StepBudget(planner.MAX_STEPS)
        directory = write_cluster(tmp_path / str(nodes), nodes, 2 * nodes)
        assert (
            budget.run(planner._plan, from_files(directory), (), rolling=True, parallel=1, bandwidth=None).blocks == 0
        )
        return budget.spent

    large = steps(50)
    # At a hundred times as many of both it would stay below the limit.
    assert large < 3 * steps(25)
    assert large * 100 < planner.MAX_STEPS
