from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.forecast import clusters
from tests.forecast.clusters import apart, budget, filler, node, snapshot, together, vm
from tests.forecast.oracle import Simulated
from webhook.admission.step_budget import StepBudget
from webhook.errors import InputError
from webhook.forecast import drain as planner
from webhook.forecast import report
from webhook.forecast.drain import plan
from webhook.forecast.report import CODES, DrainPlan, Remedy, VmPlan
from webhook.forecast.snapshot import ClusterObjects
from webhook.k8s.types.core import NodeWithoutImages
from webhook.kubevirt.config import ClusterConfig
from webhook.kubevirt.releases.capabilities import parse_version
from webhook.kubevirt.releases.release import release_of
from webhook.kubevirt.rules import rules_of

NODES = [node("a"), node("b"), node("c")]
thorough = settings(deadline=None, max_examples=150, suppress_health_check=[HealthCheck.too_slow])
DRAINED = clusters.NAMES[0]


def of(found: DrainPlan, name: str) -> VmPlan:
    (each,) = (vm for step in found.steps for vm in step.vms if vm.name == name)
    return each


def code(nodes: Sequence[Any], *vms: Any, **options: Any) -> str:
    """What becomes of the VM ``web`` when node a is drained."""
    return of(plan(snapshot(nodes, vms, **options), ["a"]), "web").code


STOPS = {"strategy": "None", "labels": {"app": "x"}}
UNABLE = {"condition": {"type": "LiveMigratable", "status": "False", "reason": "DisksNotLiveMigratable"}}


def only(name: str = "web", **options: Any) -> VmPlan:
    """The plan of one VM on node a."""
    own = {key: options.pop(key) for key in [*options] if key not in ("strategy", "migrations", "limits", "budgets")}
    found = plan(snapshot(NODES, [vm(name, "a", **own)], **options), ["a"])
    assert found.blocks == (found.steps[0].vms[0].outcome == report.BLOCKS)
    return found.steps[0].vms[0]


def of_release(release: str, world: ClusterObjects) -> ClusterObjects:
    version = parse_version(release)
    assert version
    configuration = ClusterConfig(eviction_strategy="LiveMigrate", rules=rules_of(release_of(version)))
    return msgspec.structs.replace(world, kubevirt=configuration)


class TestEvictions:
    def test_a_vm_that_can_move_moves(self) -> None:
        found = only()

        assert (found.outcome, found.code, found.eligible, found.with_room) == ("moves", "migrates", 2, 2)
        assert found.to in found.candidates == ("b", "c")
        assert found.turn == 1
        assert found.memory == clusters.GIB

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
            (UNABLE | {"evictionStrategy": "LiveMigrate"}, "blocks", "not-migratable"),
            (UNABLE | {"evictionStrategy": "LiveMigrateIfPossible"}, "shuts-down", "not-migratable-if-possible"),
            (UNABLE | {"evictionStrategy": "External"}, "handed-over", "external-strategy"),
            (UNABLE | {"evictionStrategy": "Whatever"}, "blocks", "unknown-strategy"),
            ({"limits": {"parallelMigrationsPerCluster": 0}}, "blocks", "no-migrations"),
            ({"limits": {"parallelOutboundMigrationsPerNode": 0}}, "blocks", "no-migrations"),
            ({"limits": {"completionTimeoutPerGiB": -1}}, "blocks", "no-migrations"),
            ({"limits": {"completionTimeoutPerGiB": 0}}, "moves", "migrates"),
            ({"name": "w" * 64}, "blocks", "name-too-long"),
        ],
    )
    def test_what_becomes_of_a_vm(self, options: dict[str, Any], outcome: str, code: str) -> None:
        found = only(**options)

        assert (found.outcome, found.code) == (outcome, code)

    def test_another_controller_takes_a_vm_over(self, golden: Callable[[str], None]) -> None:
        """Its labels name the KubevirtMachine and the cluster, where Cluster API's provider made the VM."""
        machine = {
            "cluster.x-k8s.io/cluster-name": "tenant",
            "capk.cluster.x-k8s.io/kubevirt-machine-name": "worker-1",
            "capk.cluster.x-k8s.io/kubevirt-machine-namespace": "tenants",
        }
        vms = [vm("web", "a", evictionStrategy="External", labels=machine), vm("db", "a", evictionStrategy="External")]
        owner = {"apiVersion": "fleet.example.com/v1", "kind": "Machine", "name": "m-1", "controller": True}
        vms.append(vm("own", "a", evictionStrategy="External"))
        vms[-1][0]["metadata"]["ownerReferences"] = [owner]
        found = plan(snapshot(NODES, vms), ["a"])

        assert (found.handed_over, found.blocks, found.moves, found.changes) == (3, 0, 0, ())
        assert of(found, "web").controller == "KubevirtMachine tenants/worker-1 of cluster tenant"
        assert (of(found, "own").controller, of(found, "db").controller) == ("Machine m-1", "")
        golden(of(found, "web").reason)
        golden(of(found, "db").reason)

    def test_what_is_handed_over_keeps_its_room(self) -> None:
        """Where it goes, and when, is not known; nothing is placed on what it may still take."""
        vms = [vm("web", "a", "6Gi", evictionStrategy="External"), vm("db", "b", "6Gi")]
        world = snapshot([node("a"), node("b")], vms)

        assert of(plan(world, [], rolling=True), "db").code == "no-room"

    def test_a_migration_that_never_ends(self) -> None:
        def migration(value: str, phase: str) -> dict[str, Any]:
            spec = {"vmiName": "web", "addedNodeSelector": {"zone": value}}
            return {"metadata": {"name": "m", "namespace": "shop"}, "spec": spec, "status": {"phase": phase}}

        assert only(migrations=[migration("not a label!", "Pending")]).code == "migration-stuck"
        assert only(migrations=[migration("not a label!", "Failed")]).code == "migrates"
        unfinished = only(migrations=[migration("b", "Running")])
        assert (unfinished.code, len(unfinished.notes)) == ("migrates", 1)

    @pytest.mark.parametrize(("release", "notes"), [("1.7", 0), ("1.8", 1)])
    def test_a_backup_since_kubevirt_1_8(self, release: str, notes: int) -> None:
        vmi, pod = vm("web", "a")
        vmi["status"]["changedBlockTracking"] = {"backupStatus": {"backupName": "nightly"}}
        known = of_release(release, snapshot(NODES, [(vmi, pod)]))

        assert len(of(plan(known, ["a"]), "web").notes) == notes

    def test_vms_that_may_reserve_the_same_volume_stay_apart(self) -> None:
        vms = [vm("web", "a", evictionStrategy="LiveMigrate"), vm("db", "b", evictionStrategy="LiveMigrate")]
        for vmi, pod in vms:
            vmi["spec"]["domain"]["devices"] = {"disks": [{"name": "lun", "lun": {"reservation": True}}]}
            pod["metadata"]["labels"]["pr.kubevirt.io/claim-uid"] = ""

        assert of(plan(snapshot(NODES, vms), ["a"]), "web").candidates == ("c",)
        assert of(plan(snapshot(NODES[:2], vms), ["a"]), "web").code == "no-eligible-node"


class TestDrainedNodes:
    def test_a_selector_that_no_other_node_meets(self) -> None:
        found = plan(snapshot([node("a", zone="x"), node("b")], [vm("web", "a", nodeSelector={"zone": "x"})]), ["a"])

        assert of(found, "web").code == "no-eligible-node"
        assert [change.vms for change in found.changes] == [("shop/web",)]

    def test_taints_affinity_and_volumes_count(self) -> None:
        terms = [{"matchExpressions": [{"key": "zone", "operator": "In", "values": ["x"]}]}]
        volume = {"metadata": {"name": "pv"}, "spec": {"nodeAffinity": {"required": {"nodeSelectorTerms": terms}}}}
        claim = {"metadata": {"name": "data", "namespace": "shop"}, "spec": {"volumeName": "pv"}}
        disk = [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]
        tainted = node("c", zone="x")
        tainted["spec"]["taints"] = [{"key": "gpu", "effect": "NoSchedule"}]
        nodes = [node("a", zone="x"), node("b"), tainted]
        found = plan(snapshot(nodes, [vm("web", "a", volumes=disk)], claims=[claim], volumes=[volume]), ["a"])
        tolerant = vm("web", "a", volumes=disk, tolerations=[{"operator": "Exists"}])
        moves = plan(snapshot(nodes, [tolerant], claims=[claim], volumes=[volume]), ["a"])

        assert of(found, "web").code == "no-eligible-node"
        assert of(moves, "web").to == "c"

    def test_requests_are_packed_against_what_is_free(self, golden: Callable[[str], None]) -> None:
        vms = [vm(f"vm-{number}", "a", "3Gi") for number in range(4)]
        found = plan(snapshot([node("a", memory="16Gi"), node("b"), node("c", memory="4Gi")], vms), ["a"])

        assert sorted(each.to for each in found.steps[0].vms) == ["", "b", "b", "c"]
        assert [each.code for each in found.steps[0].vms].count("no-room") == 1
        (change,) = found.changes
        golden(change.change)

    def test_what_has_ended_takes_no_room(self) -> None:
        ended = filler("old", "b", "8Gi")
        ended["status"]["phase"] = "Succeeded"
        nodes, vms = [node("a"), node("b")], [vm("web", "a", "7Gi")]

        assert of(plan(snapshot(nodes, vms, pods=[ended]), ["a"]), "web").to == "b"
        assert of(plan(snapshot(nodes, vms, pods=[filler("new", "b", "8Gi")]), ["a"]), "web").code == "no-room"

    def test_a_tight_packing_is_told(self) -> None:
        # By scores, both small ones go to the larger gap first, where the large one then has no room.
        nodes = [node("a", memory="16Gi"), node("b", memory="4Gi"), node("c", memory="3Gi")]
        vms = [vm("1", "a", "1Gi"), vm("2", "a", "1Gi"), vm("3", "a", "4Gi")]
        found = plan(snapshot(nodes, vms), ["a"])

        assert found.blocks == 0
        assert of(found, "3").to == "b"
        assert of(found, "3").code == "migrates-if-packed"

    def test_all_nodes_of_a_drain_are_cordoned_at_once(self) -> None:
        world = snapshot([node("a"), node("b")], [vm("web", "a"), vm("db", "b")])

        assert plan(world, ["a"]).blocks == 0
        assert plan(world, ["a", "b"]).blocks == 2
        assert plan(world, ["a", "b"], rolling=True).blocks == 0


class TestPodsOnDrainedNodes:
    def test_anti_affinity_of_either_side(self) -> None:
        nodes = [node("a"), node("b")]
        mover, other = vm("web", "a", labels={"app": "x"}), vm("db", "b", labels={"app": "y"})
        own = vm("web", "a", labels={"app": "x"}, affinity=apart(app="y"))
        theirs = vm("db", "b", labels={"app": "y"}, affinity=apart(app="x"))

        assert code(nodes, mover, other) == "migrates"
        assert code(nodes, own, other) == "pods-apart"
        assert code(nodes, mover, theirs) == "pods-apart"

    def test_a_vm_keeps_itself_from_its_own_zone(self) -> None:
        """Its target pod is beside the pod that it leaves, which runs until the migration is over."""
        alone = vm("web", "a", labels={"app": "x"}, affinity=apart("zone", app="x"))
        near = snapshot([node("a", zone="1"), node("b", zone="1")], [alone])
        far = snapshot([node("a", zone="1"), node("b", zone="2")], [alone])

        assert of(plan(near, ["a"]), "web").code == "pods-apart"
        assert of(plan(far, ["a"]), "web").code == "migrates"

    def test_affinity_to_a_pod_that_stays(self) -> None:
        nodes = [node("a"), node("b"), node("c")]
        mover, other = vm("web", "a", affinity=together(app="y")), vm("db", "c", labels={"app": "y"})

        assert of(plan(snapshot(nodes, [mover, other]), ["a"]), "web").candidates == ("c",)

    def test_two_that_are_apart_do_not_share_a_node(self) -> None:
        vms = [vm(name, "a", labels={"app": "x"}, affinity=apart(app="x")) for name in ("1", "2", "3")]
        found = plan(snapshot(NODES, vms), ["a"])

        assert Counter(each.outcome for each in found.steps[0].vms) == {"moves": 2, "blocks": 1}

    def test_pods_without_a_vm(self) -> None:
        pods = [filler("one", "a", app="x"), filler("two", "a", app="y"), filler("logs", "a", owner="DaemonSet")]
        found = plan(snapshot(NODES, [], pods=pods, budgets=[budget(0, app="x")]), ["a"])
        step = found.steps[0]

        assert (step.other_pods, [pod.name for pod in step.blocked_pods], found.blocks) == (2, ["one"], 1)


class TestRolling:
    def test_a_vm_may_move_more_than_once(self) -> None:
        found = plan(snapshot([node("a"), node("b")], [vm("web", "a")]), [], rolling=True)

        assert [step.nodes for step in found.steps] == [("a",), ("b",)]
        assert [[each.to for each in step.vms] for step in found.steps] == [["b"], ["a"]]
        assert (found.moves, found.blocks) == (2, 0)

    def test_the_order_is_the_one_given(self) -> None:
        found = plan(snapshot(NODES, [vm("web", "b")]), ["c", "b"], rolling=True)

        assert [step.nodes for step in found.steps] == [("c",), ("b",)]

    def test_a_vm_that_shut_down_is_gone(self) -> None:
        vms = [vm("web", "a", "6Gi", evictionStrategy="None"), vm("db", "b", "6Gi")]
        found = plan(snapshot([node("a"), node("b")], vms), [], rolling=True)

        assert (found.shuts_down, found.moves, found.blocks) == (1, 1, 0)

    def test_the_first_hosts_cpu_stays_required(self) -> None:
        """A host-model VM requires the CPU of the host that it started on, wherever it has been since."""
        cpu = "host-model-cpu.node.kubevirt.io/Skylake"
        migration = "cpu-model-migration.node.kubevirt.io/Skylake"
        host, like = node("a"), node("b")
        host["metadata"]["labels"] |= {cpu: "true", migration: "true"}
        like["metadata"]["labels"] |= {"host-model-cpu.node.kubevirt.io/Icelake": "true", migration: "true"}
        other = node("c", memory="4Gi")
        vmi, pod = vm("web", "a")
        vmi["spec"]["domain"]["cpu"] = {"model": "host-model"}
        found = plan(snapshot([host, like, other], [(vmi, pod)]), [], rolling=True)

        assert [each.to for step in found.steps for each in step.vms] == ["b", "a"]


class TestCancellation:
    @pytest.mark.parametrize(
        ("spec", "can"),
        [({"nodeSelector": {"zone": "x"}}, True), ({"evictionStrategy": "External"}, True), ({}, False)],
    )
    def test_is_named_where_a_vm_stays(self, spec: dict[str, Any], can: bool, golden: Callable[[str], None]) -> None:
        found = plan(snapshot(NODES, [vm("web", "a", **spec)]), ["a"])

        assert bool(found.notes) == can
        if can:
            golden(*found.notes)

    def test_kubevirt_1_6_has_none(self) -> None:
        assert plan(of_release("1.6", snapshot(NODES, [vm("web", "a", "99Gi")])), ["a"]).notes == ()


class TestKubelets:
    @pytest.mark.parametrize(
        "cpu",
        [{"dedicatedCpuPlacement": True}, {"numa": {"guestMappingPassthrough": {}}}, {"realtime": {}}],
        ids=lambda cpu: next(iter(cpu)),
    )
    def test_decide_by_numa_node(self, cpu: dict[str, Any]) -> None:
        vmi, pod = vm("web", "a", evictionStrategy="LiveMigrate")
        vmi["spec"]["domain"]["cpu"] |= cpu
        ready = [node(name) for name in "abc"]
        for each in ready:
            each["metadata"]["labels"] |= {"kubevirt.io/cpumanager": "true", "kubevirt.io/realtime": "true"}
        found = of(plan(snapshot(ready, [(vmi, pod)]), ["a"]), "web")

        assert (found.outcome, found.code) == ("moves", "may-not-fit")


class TestQuotas:
    def test_a_target_pod_that_is_denied(self, golden: Callable[[str], None]) -> None:
        vms = [vm("small", "a", "1Gi"), vm("large", "a", "3Gi"), vm("none", "a", "3Gi", evictionStrategy="None")]
        found = plan(snapshot(NODES, vms, quotas=[clusters.quota(requests_memory=("9Gi", "7Gi"))]), ["a"])

        assert {vm.name: vm.code for vm in found.steps[0].vms} == {
            "small": "migrates",
            "large": "quota",
            "none": "strategy-none",
        }
        assert (of(found, "large").to, found.blocks) == ("", 1)
        assert [change.vms for change in found.changes] == [("shop/large",)]
        golden(of(found, "large").reason)

    def test_other_namespaces_have_their_own(self) -> None:
        other = clusters.quota(pods=("0", "0"))
        other["metadata"]["namespace"] = "lab"

        assert code(NODES, vm("web", "a"), quotas=[other]) == "migrates"

    def test_migrations_that_wait_for_each_other_take_longer(self, golden: Callable[[str], None]) -> None:
        vms = [vm(f"vm-{number}", on, "2Gi") for number, on in enumerate("aabb")]
        options: Any = {"limits": {"parallelMigrationsPerCluster": 4}}
        nodes = [*NODES, node("d")]
        free = plan(snapshot(nodes, vms, **options), ["a", "b"])
        quotas = [clusters.quota(requests_memory=("10Gi", "8Gi"))]
        narrow = plan(snapshot(nodes, vms, quotas=quotas, **options), ["a", "b"])

        assert (free.blocks, narrow.blocks, free.notes) == (0, 0, ())
        assert narrow.seconds == 4 * free.seconds
        golden(*narrow.notes)

    def test_the_pods_that_vms_leave_count_among_all_pods(self) -> None:
        vms = [vm(f"vm-{number}", "a") for number in range(3)]
        found = plan(snapshot(NODES, vms, quotas=[clusters.quota(count__pods=("5", "3"))]), ["a"])

        assert [vm.code for vm in found.steps[0].vms] == ["migrates", "migrates", "quota"]

    def test_what_is_not_known_is_said(self) -> None:
        new = clusters.quota(pods=("0", "0"))
        del new["status"]["used"]
        found = plan(snapshot(NODES, [vm("web", "a")], quotas=[new]), ["a"])

        assert (of(found, "web").code, len(found.gaps)) == ("migrates", 1)


class TestInput:
    @pytest.mark.parametrize(("nodes", "rolling"), [(["x"], False), (["a", "a"], False), (["a", "a"], True)])
    def test_nodes_that_cannot_be_drained(self, nodes: list[str], rolling: bool) -> None:
        with pytest.raises(InputError):
            plan(snapshot(NODES, []), nodes, rolling=rolling)

    def test_too_much_to_plan_is_one_sentence(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(planner, "MAX_STEPS", 10)
        with pytest.raises(InputError):
            plan(snapshot(NODES, [vm("web", "a")]), ["a"])

    def test_objects_with_nothing_in_them(self) -> None:
        vmi, pod = vm("web", "a")
        bare = ({"metadata": vmi["metadata"], "status": {"nodeName": "a"}}, {"metadata": pod["metadata"]})
        found = plan(snapshot(NODES, [bare]), ["a"])

        assert found.steps[0].vms[0].code == "not-migratable"


def test_codes_are_those_of_their_outcomes() -> None:
    assert {code for codes in CODES.values() for code in codes} == {
        value for name, value in vars(report).items() if name.isupper() and isinstance(value, str) and "/" not in value
    } - set(CODES)


class TestProperties:
    @thorough
    @given(clusters.random_clusters(), st.lists(st.sampled_from(clusters.NAMES), min_size=1, unique=True))
    def test_a_plan_can_be_carried_out(self, world: Any, nodes: list[str]) -> None:
        """Step by step, no node gets more than it has, and no hard rule is broken."""
        found = plan(world, nodes)
        simulated = Simulated(world, nodes)

        for each in sorted((each for each in found.steps[0].vms if each.turn), key=lambda each: each.turn):
            assert simulated.problem(each.name, each.to) == ""
            simulated.move(each.name, each.to)
        for each in found.steps[0].vms:
            if each.outcome == report.BLOCKS:
                assert all(simulated.problem(each.name, name) for name in clusters.NAMES), each
        assert {each.code for each in found.steps[0].vms} <= {code for codes in CODES.values() for code in codes}

    @thorough
    @given(clusters.random_clusters(), st.sampled_from(clusters.NAMES))
    def test_candidates_are_all_nodes_that_fit_alone(self, world: Any, drained: str) -> None:
        simulated = Simulated(world, [drained])

        for each in plan(world, [drained]).steps[0].vms:
            fits = [name for name in clusters.NAMES if not simulated.problem(each.name, name)]
            assert list(each.candidates) == fits

    @thorough
    @given(clusters.random_clusters(), st.randoms(use_true_random=False))
    def test_the_order_of_the_objects_changes_nothing(self, world: Any, order: Any) -> None:
        def shuffled(found: Sequence[Any]) -> tuple[Any, ...]:
            return tuple(order.sample(found, len(found)))

        fields = ("nodes", "pods", "vmis")
        other = msgspec.structs.replace(world, **{field: shuffled(getattr(world, field)) for field in fields})

        assert plan(other, [clusters.NAMES[0]]) == plan(world, [clusters.NAMES[0]])
        assert plan(other, [], rolling=True) == plan(world, [], rolling=True)

    @thorough
    @given(clusters.random_clusters(), st.sampled_from(clusters.NAMES))
    def test_more_room_never_takes_a_candidate(self, world: Any, drained: str) -> None:
        bigger = [msgspec.structs.replace(each, status=_doubled(each.status)) for each in world.nodes]
        more = plan(msgspec.structs.replace(world, nodes=tuple(bigger)), [drained])

        for before, after in zip(plan(world, [drained]).steps[0].vms, more.steps[0].vms, strict=True):
            assert {*before.candidates} <= {*after.candidates}

    @thorough
    @given(clusters.random_clusters())
    def test_a_rolling_drain_ends_where_single_ones_would(self, world: Any) -> None:
        """Its first step is the drain of that node alone."""
        assert plan(world, [], rolling=True).steps[0] == plan(world, [min(clusters.NAMES)]).steps[0]


def _doubled(status: Any) -> Any:
    amounts = {**status.allocatable, "memory": "64Gi", "cpu": "64", "pods": "200"}
    return msgspec.structs.replace(status, allocatable=amounts)


def test_large_clusters_take_few_steps() -> None:
    """Steps for each VM do not grow with the nodes, so that 5,000 nodes and 10,000 VMs take seconds."""

    def steps(number: int) -> int:
        nodes = [node(f"n{index:04}", memory="64Gi") for index in range(number)]
        vms = [
            vm(f"vm-{index}", f"n{index % number:04}", labels={"app": f"a{index % 7}"}, affinity=apart(app="a0"))
            for index in range(2 * number)
        ]
        work = StepBudget(planner.MAX_STEPS)
        work.run(planner._plan, snapshot(nodes, vms), [], True, None)
        return work.spent

    small, large = steps(20), steps(80)
    assert large < 5 * small


def changes(*vms: Any, nodes: Any = None, **options: Any) -> list[str]:
    found = plan(snapshot(nodes or [node("a"), node("b")], vms, **options), ["a"])
    return [change.change for change in found.changes]


def test_a_node_that_will_be_drained_soon_is_named() -> None:
    planned = node("b") | {}
    planned["status"]["conditions"] = [{"type": "MaintenancePlanned", "status": "True", "message": "new disks"}]
    found = plan(snapshot([node("a"), planned], [vm("web", "a")]), ["a"])

    (note,) = of(found, "web").notes
    assert note.startswith("b will be emptied")


def stuck(name: str, reason: str) -> Any:
    return vm(name, "a", condition={"type": "LiveMigratable", "status": "False", "reason": reason})


def test_a_node_can_be_uncordoned() -> None:
    nodes = [node("a"), node("b", cordoned=True)]

    assert changes(vm("web", "a"), nodes=nodes) == ['uncordon "b"']
    (any_node,) = changes(vm("web", "a"), nodes=[*nodes, node("c", cordoned=True)])
    assert any_node.startswith("uncordon a node")
    assert changes(vm("web", "a", "9Gi"), nodes=[node("a", memory="10Gi"), *nodes[1:]]) == [], "it has no room"


def test_selectors_and_taints_can_be_given_up() -> None:
    tainted = node("b")
    tainted["spec"]["taints"] = [{"key": "gpu", "effect": "NoSchedule"}]

    assert "zone=x" in changes(vm("web", "a", nodeSelector={"zone": "x"}), nodes=[node("a", zone="x"), node("b")])[0]
    assert "gpu:NoSchedule" in changes(vm("web", "a"), nodes=[node("a"), tainted])[0]


def test_what_frees_most_comes_first() -> None:
    disks = [stuck(name, "DisksNotLiveMigratable") for name in ("1", "2")]
    found = plan(snapshot([node("a"), node("b")], [*disks, stuck("3", "HostDeviceNotLiveMigratable")]), ["a"])

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


def named_by(change: Remedy, found: DrainPlan) -> list[VmPlan]:
    return [each for each in found.steps[0].vms if f"{each.namespace}/{each.name}" in change.vms]


@thorough
@given(clusters.random_clusters())
def test_a_node_that_is_uncordoned_takes_each_vm_that_is_named(world: Any) -> None:
    for change in plan(world, [DRAINED]).changes:
        uncordoned = re.fullmatch('uncordon "(.*)"', change.change)
        if uncordoned:
            nodes = tuple(
                msgspec.structs.replace(each, spec=None) if each.meta.name == uncordoned[1] else each
                for each in world.nodes
            )
            after = plan(msgspec.structs.replace(world, nodes=nodes), [DRAINED])
            assert all(uncordoned[1] in each.candidates for each in named_by(change, after)), change


@thorough
@given(clusters.random_clusters())
def test_a_node_that_is_added_takes_the_vms_that_are_named(world: Any) -> None:
    for change in plan(world, [DRAINED]).changes:
        if change.change.startswith("add an empty node"):
            (like,) = (each for each in world.nodes if each.meta.name == DRAINED)
            labels = {**like.meta.labels, clusters.HOST: "new"}
            meta = msgspec.structs.replace(like.meta, name="new", labels=labels)
            more = NodeWithoutImages(metadata=meta, status=like.status)
            after = plan(msgspec.structs.replace(world, nodes=(*world.nodes, more)), [DRAINED])
            assert all("new" in each.candidates for each in named_by(change, after)), change
