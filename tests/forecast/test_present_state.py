"""What goes on with VMs already decides over a plan: migrations in flight, evacuations, virt-handlers that are gone."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.forecast import clusters
from tests.forecast.clusters import Json, node, snapshot, vm
from webhook.cli.explain import from_files
from webhook.forecast import drain, report, update
from webhook.forecast.report import DrainPlan, VmPlan

CLUSTERS = Path(__file__).parents[1] / "data" / "clusters"
NODES = [node("a"), node("b"), node("c")]
NOW = datetime(2026, 11, 28, 12, 0, tzinfo=UTC).timestamp()
MIGRATES = {"workloadUpdateMethods": ["LiveMigrate"]}


def of(plan: DrainPlan, name: str = "web") -> VmPlan:
    (found,) = (vm for step in plan.steps for vm in step.vms if vm.name == name)
    return found


def migration(name: str = "m", phase: str = "Running", vmi: str = "web") -> Json:
    metadata = {"name": name, "namespace": "shop", "uid": f"uid-{name}"}
    return {"metadata": metadata, "spec": {"vmiName": vmi}, "status": {"phase": phase}}


def target_pod(of: Json, on: str | None, by: str = "m") -> Json:
    """The target pod of a migration of a VM, whose present pod this is."""
    metadata = of["metadata"]
    labels = metadata["labels"] | {"kubevirt.io/migrationJobUID": f"uid-{by}"}
    return {
        **of,
        "metadata": metadata | {"name": f"{metadata['name']}-next", "labels": labels},
        "spec": of["spec"] | {"nodeName": on},
    }


def in_flight(
    drained: list[str], *, on: str | None = "b", nodes: list[Json] = NODES, rolling: bool = False, **spec: Any
) -> DrainPlan:
    mover = vm("web", "a", **spec)
    world = snapshot(nodes, [mover], pods=[target_pod(mover[1], on)], migrations=[migration()])
    return drain.plan(msgspec.structs.replace(world, now=NOW), drained, rolling=rolling)


class TestMigrationsInFlight:
    def test_a_vm_that_lands_on_a_drained_node_must_leave_again(self) -> None:
        plan = drain.plan(from_files(CLUSTERS / "migration-in-flight.yaml"), ["node-1"])
        found = of(plan, "incoming")
        assert (found.node, found.outcome, found.to) == ("node-1", "moves", "node-2")
        assert any("Eviction request for target Pod" in note for note in found.notes)
        # What an earlier migration has left takes no room, and moves nothing.
        assert {vm.name for vm in plan.steps[0].vms} == {"incoming", "paused", "starting"}

    def test_a_vm_that_leaves_already_needs_no_other_migration(self) -> None:
        found = of(in_flight(["a"]))
        assert (found.node, found.to, found.code, found.turn) == ("a", "b", "already-migrating", 0)

    def test_both_nodes_are_drained(self) -> None:
        steps = in_flight(["a", "b"]).steps
        assert [(vm.node, vm.to, vm.code) for vm in steps[0].vms] == [
            ("a", "b", "already-migrating"),
            ("b", "c", "migrates"),
        ]

    def test_other_nodes_are_drained(self) -> None:
        assert in_flight(["c"]).steps[0].vms == ()

    def test_in_a_rolling_plan_it_has_ended_after_the_first_step(self) -> None:
        plan = in_flight(["c", "a", "b"], rolling=True)
        assert [[(vm.node, vm.code) for vm in step.vms] for step in plan.steps] == [[], [], [("b", "migrates")]]
        assert not any("in flight" in note for note in plan.steps[2].vms[0].notes)

    def test_a_target_pod_without_a_node_moves_nothing_yet(self) -> None:
        found = of(in_flight(["a"], on=None))
        assert (found.code, found.to != "a") == ("migrates", True)
        assert any("migration m of it has not ended" in note for note in found.notes)

    @pytest.mark.parametrize("phase", ["Synchronizing", "Pending", "Running"])
    def test_one_that_sends_it_elsewhere_holds_the_evacuation_up(self, phase: str) -> None:
        """virt-controller creates no other migration meanwhile, which may be for ever (kubevirt 18259)."""
        sending = migration("send", phase)
        sending["spec"]["sendTo"] = {"migrationID": "x", "connectURL": "10.0.0.1:9185"}
        found = of(drain.plan(snapshot(NODES, [vm("web", "a")], migrations=[sending]), ["a"]))
        assert found.code == "migrates"
        assert any("send" in note and "another namespace or cluster" in note for note in found.notes)
        sending["spec"]["receive"] = {"migrationID": "x"}
        found = of(drain.plan(snapshot(NODES, [vm("web", "a")], migrations=[sending]), ["a"]))
        assert not any("another namespace or cluster" in note for note in found.notes)

    @pytest.mark.parametrize("strategy", ["LiveMigrate", "LiveMigrateIfPossible"])
    def test_a_vm_without_live_migration_that_a_migration_moves_all_the_same(self, strategy: str) -> None:
        """Of its volumes, or to another cluster; when it has ended, the VM no longer blocks."""
        condition = {"type": "LiveMigratable", "status": "False", "reason": "DisksNotLiveMigratable"}
        mover = vm("web", "a", condition=condition, evictionStrategy=strategy)
        found = of(drain.plan(snapshot(NODES, [mover], migrations=[migration("volumes", "Pending")]), ["a"]))
        blocks = strategy == "LiveMigrate"
        assert found.code == ("not-migratable" if blocks else "not-migratable-if-possible")
        assert any("migration volumes of it has not ended" in note for note in found.notes) is blocks

    def test_one_that_sends_it_elsewhere_ends_with_a_vm_that_shuts_down(self) -> None:
        condition = {"type": "LiveMigratable", "status": "False", "reason": "DisksNotLiveMigratable"}
        mover = vm("web", "a", condition=condition, evictionStrategy="LiveMigrateIfPossible")
        sending = migration("send", "Synchronizing")
        sending["spec"]["sendTo"] = {"migrationID": "x", "connectURL": "10.0.0.1:9185"}
        found = of(drain.plan(snapshot(NODES, [mover], migrations=[sending]), ["a"]))
        assert found.outcome == "shuts-down"
        assert any("migration send, which sends it" in note and "ends with it" in note for note in found.notes)

    def test_the_room_that_it_leaves_is_free(self) -> None:
        """The guest of 5Gi is on b then, and a has room for that of 6Gi."""
        mover, other = vm("web", "a", "5Gi"), vm("db", "b", "3Gi")
        world = snapshot(NODES[:2], [mover, other], pods=[target_pod(mover[1], "b")], migrations=[migration()])
        assert of(drain.plan(world, ["b"]), "db").to == "a"

    def test_one_whose_eviction_shuts_it_down_stays_where_it_is(self) -> None:
        """The target pod is evicted like any other, and the migration fails."""
        source = of(in_flight(["a"], evictionStrategy="None"))
        assert (source.node, source.code) == ("a", "strategy-none")
        target = in_flight(["b"], evictionStrategy="None")
        assert (target.steps[0].vms, target.blocks) == ((), 0)
        assert any("ends migration m of shop/web" in note for note in target.notes)

    def test_an_update_finds_it_where_it_lands(self) -> None:
        mover = vm("web", "a")
        pods, migrations = [target_pod(mover[1], "b")], [migration()]
        world = snapshot(NODES[:2], [mover], pods=pods, migrations=migrations, updates=MIGRATES)
        (found,) = update.plan(world).vms
        assert (found.node, found.to, found.code) == ("b", "a", "migrates")

    def test_what_an_earlier_migration_has_left_holds_the_next_one_up(self) -> None:
        mover = vm("web", "a")
        world = snapshot(NODES, [mover], pods=[target_pod(mover[1], "b")], migrations=[migration(phase="Failed")])
        found = of(drain.plan(world, ["a"]))
        assert found.code == "migrates"
        assert any("once its other pods have ended" in note for note in found.notes)

    @pytest.mark.parametrize(("end", "notes"), [(None, 1), ("2026-11-28T10:01:00Z", 0)])
    def test_a_state_that_no_migration_ends_any_more(self, end: str | None, notes: int) -> None:
        mover = vm("web", "a")
        mover[0]["status"]["migrationState"] = {"startTimestamp": "2026-11-28T10:00:00Z", "endTimestamp": end}
        assert len(of(drain.plan(snapshot(NODES, [mover]), ["a"])).notes) == notes


def with_host_model(*names: str, pod_requires: str = "", **labels: Any) -> Json:
    """A VM with the CPU of its host on node a, and nodes that have these labels."""
    mover = vm("web", "a")
    mover[0]["spec"]["domain"]["cpu"]["model"] = "host-model"
    mover[1]["spec"]["nodeSelector"] = {pod_requires: "true"} if pod_requires else {}
    return {"nodes": [node(name, **labels) for name in names], "vms": [mover]}


MODEL = "cpu-model-migration.node.kubevirt.io/Skylake"
HOST_MODEL = {"host-model-cpu.node.kubevirt.io/Skylake": "true", MODEL: "true"}


class TestCpuOfTheHost:
    @pytest.mark.parametrize(
        ("options", "code"),
        [
            ({}, "host-cpu-unknown"),
            # Only the key that virt-controller looks for counts.
            ({MODEL: "true"}, "host-cpu-unknown"),
            (HOST_MODEL, "migrates"),
            # A VM that has migrated before keeps what its pod requires.
            ({"pod_requires": MODEL, MODEL: "true"}, "migrates"),
        ],
    )
    def test_nodes_that_virt_handler_has_not_labeled(self, options: Json, code: str) -> None:
        world = snapshot(**with_host_model("a", "b", **options), updates=MIGRATES)
        assert of(drain.plan(world, ["a"])).code == code
        assert [each.code for each in update.plan(world).vms] == [code]

    def test_what_helps(self) -> None:
        (change,) = drain.plan(snapshot(**with_host_model("a", "b")), ["a"]).changes
        assert "host-model-cpu.node.kubevirt.io" in change.change

    def test_only_a_restart_ends_that_its_own_node_lacks_its_cpu(self) -> None:
        """After an update KubeVirt labels nodes with other features, and the VM's pod keeps the former ones."""
        lost = "cpu-feature.node.kubevirt.io/ht"
        world = snapshot(**with_host_model("a", "b", pod_requires=lost, **HOST_MODEL), updates=MIGRATES)
        for found in (of(drain.plan(world, ["a"])), *update.plan(world).vms):
            assert found.code == "no-eligible-node"
            assert any(lost in note and "restart" in note for note in found.notes)

    def test_a_pod_that_is_not_known_proves_nothing(self) -> None:
        world = snapshot(**with_host_model("a", "b"))
        assert of(drain.plan(msgspec.structs.replace(world, pods=()), ["a"])).code == "migrates"


def unreachable(name: str, heartbeat: str | None = None, label: str = "false") -> Json:
    found = node(name)
    found["metadata"]["labels"]["kubevirt.io/schedulable"] = label
    found["metadata"]["annotations"] = {"kubevirt.io/heartbeat": heartbeat} if heartbeat else {}
    found["status"]["conditions"] = [{"type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown"}]
    return found


OLD, FRESH = "2026-11-28T11:54:00Z", "2026-11-28T11:58:00Z"


class TestVirtHandlers:
    def test_a_drain_and_an_update_of_a_lost_node(self) -> None:
        objects = from_files(CLUSTERS / "without-virt-handler.yaml")
        plan = drain.plan(objects, ["node-1"])
        assert (of(plan, "lost").code, plan.blocks) == ("virt-handler-gone", 1)
        assert [each.vms for each in plan.changes] == [("vms/lost",)]
        assert any("The kubelet of node-1 is not ready" in note for note in plan.notes)
        updates = update.plan(objects)
        assert (updates.vms[0].code, updates.vms[0].outcome) == ("virt-handler-gone", "stays-outdated")

    @pytest.mark.parametrize(
        ("heartbeat", "label", "code"),
        [
            (OLD, "false", "virt-handler-gone"),
            (None, "false", "virt-handler-gone"),
            (FRESH, "false", "migrates"),
            (OLD, "true", "migrates"),
            (None, "true", "migrates"),
        ],
    )
    def test_that_the_node_is_not_ready_decides_nothing(self, heartbeat: str | None, label: str, code: str) -> None:
        world = snapshot([unreachable("a", heartbeat, label), *NODES[1:]], [vm("web", "a")], updates=MIGRATES)
        world = msgspec.structs.replace(world, now=NOW)
        assert of(drain.plan(world, ["a"])).code == code
        plan = update.plan(world)
        # KubeVirt creates the migration, which waits without end, and holds up others.
        assert (plan.vms[0].code, plan.failing) == (code, int(code != "migrates"))
        assert (plan.at_most_seconds is None) == (code != "migrates")

    def test_one_that_shuts_down_needs_none(self) -> None:
        world = snapshot([unreachable("a"), *NODES[1:]], [vm("web", "a", evictionStrategy="None")])
        assert of(drain.plan(world, ["a"])).code == "strategy-none"

    def test_a_node_without_virt_handler_takes_no_vm(self) -> None:
        world = snapshot([NODES[0], unreachable("b", FRESH)], [vm("web", "a")])
        assert of(drain.plan(msgspec.structs.replace(world, now=NOW), ["a"])).code == "no-eligible-node"

    def test_a_migration_from_there_never_ends_and_keeps_its_target_from_being_drained(self) -> None:
        nodes = [unreachable("a"), *NODES[1:]]
        for drained in "ab":
            found = of(in_flight([drained], nodes=nodes))
            assert (found.node, found.code) == (drained, "virt-handler-gone")

    def test_a_node_that_does_not_exist_any_more_has_none(self) -> None:
        world = snapshot(NODES, [vm("web", "gone")], updates=MIGRATES)
        assert [each.code for each in update.plan(world).vms] == ["virt-handler-gone"]


def marked(name: str, on: str, mark: str | None) -> tuple[Json, Json]:
    vmi, pod = vm(name, on)
    vmi["status"]["evacuationNodeName"] = mark
    return vmi, pod


class TestEvacuations:
    def test_the_plan_says_what_kubevirt_does_already_and_how_to_end_it(self) -> None:
        found = of(drain.plan(from_files(CLUSTERS / "evacuation.yaml"), ["node-1"]), "stuck")
        assert found.code == "no-eligible-node"
        assert any("virtualmachineinstances/stuck/evacuate/cancel" in note for note in found.notes)

    def test_others_are_moved_meanwhile(self) -> None:
        plan = drain.plan(from_files(CLUSTERS / "evacuation.yaml"), ["node-2"])
        assert any("vms/stuck from node-1" in note for note in plan.notes)

    @pytest.mark.parametrize(
        ("mark", "code", "notes"), [(None, "migrates", 0), ("a", "migrates", 1), ("c", "stale-evacuation", 0)]
    )
    def test_a_mark_of_another_node_is_never_acted_on(self, mark: str | None, code: str, notes: int) -> None:
        plan = drain.plan(snapshot(NODES, [marked("web", "a", mark)]), ["a"])
        assert (of(plan).code, len(of(plan).notes)) == (code, notes)

    def test_an_update_says_so_too(self) -> None:
        (found,) = update.plan(snapshot(NODES, [marked("web", "a", "a")], updates=MIGRATES)).vms
        says = any("virtualmachineinstances/web/evacuate/cancel" in note for note in found.notes)
        assert (found.code, says) == ("migrates", True)

    def test_a_migration_ends_it(self) -> None:
        """Else the VM, which is on b then, would carry a mark of a."""
        plan = drain.plan(snapshot(NODES[:2], [marked("web", "a", "a")]), ["a", "b"], rolling=True)
        assert [step.vms[0].code for step in plan.steps] == ["migrates", "migrates"]
        assert [len(step.vms[0].notes) for step in plan.steps] == [1, 0]


def test_every_code_of_a_blocked_vm_has_a_change_or_a_reason_to_have_none() -> None:
    without = {report.NO_ELIGIBLE_NODE, report.NO_ROOM}
    assert set(report.CODES[report.BLOCKS]) - set(drain._BY_CODE) == without


def test_large_clusters_with_migrations_in_flight_are_planned() -> None:
    world = clusters.large(60)
    plan = drain.plan(world, ["n0000"])
    assert plan.moves + plan.blocks == 2
