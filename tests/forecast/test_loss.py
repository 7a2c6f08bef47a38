from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from tests.forecast.clusters import (
    BUILT_IN,
    HOST,
    Json,
    apart,
    attachment,
    budget,
    filler,
    node,
    owned,
    priority_class,
    quota,
    snapshot,
    together,
    vm,
)
from webhook.admission.step_budget import StepBudget
from webhook.errors import InputError
from webhook.forecast import loss, report
from webhook.forecast.loss_report import LossPlan, StartPlan
from webhook.placement.machines import Vmi

THREE = [node(name) for name in "abc"]
CLASSES = [*BUILT_IN, priority_class("high", 1000), priority_class("low", 10)]


def plan(
    vms: Sequence[Any],
    lost: Sequence[str] = ("a",),
    *,
    nodes: Sequence[Json] = THREE,
    strategy: str = "Always",
    **options: Any,
) -> LossPlan:
    owners = [owned(each, strategy) for each in vms]
    return loss.plan(snapshot(nodes, vms, owners=owners, **options), lost)


def of(found: LossPlan, name: str = "web") -> StartPlan:
    (each,) = (vm for vm in found.vms if vm.name == name)
    return each


def reached(*hosts: str, key: str = HOST) -> dict[str, Any]:
    """A claim ``disk`` whose volume only these hosts reach."""
    terms = [{"matchExpressions": [{"key": key, "operator": "In", "values": [*hosts]}]}]
    return {
        "claims": [{"metadata": {"name": "disk", "namespace": "shop"}, "spec": {"volumeName": "pv"}}],
        "volumes": [{"metadata": {"name": "pv"}, "spec": {"nodeAffinity": {"required": {"nodeSelectorTerms": terms}}}}],
    }


PLUGGED: Json = {"volumes": [{"name": "disk", "persistentVolumeClaim": {"claimName": "disk", "hotpluggable": True}}]}
DISK: Json = {"volumes": [{"name": "disk", "persistentVolumeClaim": {"claimName": "disk"}}]}


def test_a_vm_starts_where_there_is_room_for_it() -> None:
    found = plan([vm("web", "a"), vm("large", "b", "8Gi")])
    web = of(found)
    assert (web.outcome, web.code, web.node, web.to) == ("starts-again", "has-room", "a", "c")
    assert (web.eligible, web.with_room, web.turn, web.ties) == (2, 1, 1, ())
    assert (found.starts, found.waits, found.stays_down, [each.name for each in found.vms]) == (1, 0, 0, ["web"])
    tied = of(plan([vm("web", "a")]))
    assert (tied.ties, tied.to) == (("b", "c"), "b")


class TestWhatStartsAgain:
    @pytest.mark.parametrize(
        ("strategy", "outcome", "code"),
        [
            ("Always", "starts-again", "has-room"),
            ("RerunOnFailure", "starts-again", "has-room"),
            *((name, "stays-down", "run-strategy") for name in ("Manual", "Once", "Halted")),
        ],
    )
    def test_by_its_run_strategy(self, strategy: str, outcome: str, code: str) -> None:
        found = plan([vm("web", "a")], strategy=strategy)
        assert (of(found).outcome, of(found).code) == (outcome, code)
        assert (found.starts, found.stays_down) == ((1, 0) if outcome == "starts-again" else (0, 1))

    def test_a_vmi_without_a_vm_and_one_that_is_being_deleted(self) -> None:
        alone, deleted = vm("alone", "a"), vm("deleted", "a")
        owner = owned(deleted)
        owner["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
        found = loss.plan(snapshot(THREE, [alone, deleted], owners=[owner]), ["a"])
        assert [each.code for each in found.vms] == ["no-vm", "being-deleted"]

    def test_one_whose_vm_cannot_be_read_counts_as_always(self) -> None:
        web = vm("web", "a")
        owned(web)
        found = loss.plan(snapshot(THREE, [web]), ["a"])
        assert (of(found).outcome, len(found.gaps)) == ("starts-again", 1)

    def test_one_of_a_replica_set(self) -> None:
        web = vm("web", "a")
        owner = {"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstanceReplicaSet", "name": "set", "uid": "s"}
        web[0]["metadata"]["ownerReferences"] = [owner | {"controller": True}]
        found = loss.plan(snapshot(THREE, [web]), ["a"])
        assert (of(found).code, found.gaps) == ("has-room", ())

    def test_what_has_ended_or_runs_nowhere_is_not_lost(self) -> None:
        ended, pending = vm("ended", "a"), vm("pending", "")
        ended[0]["status"]["phase"] = "Succeeded"
        ended[1]["status"]["phase"] = "Succeeded"
        assert plan([ended, pending]).vms == ()


class TestRequirements:
    def test_a_start_takes_over_nothing_of_the_host(self) -> None:
        """No CPU of it, and no vendor; a migration would have to find both again."""
        labels: Json = {"host-model-cpu.node.kubevirt.io/Milan": "true", "cpu-vendor.node.kubevirt.io/AMD": "true"}
        first = node("a", **labels)
        web = vm("web", "a")
        web[0]["spec"]["domain"]["cpu"]["model"] = "host-model"
        web[1]["spec"]["nodeSelector"] = {"cpu-model-migration.node.kubevirt.io/Milan": "true"}
        assert of(plan([web], nodes=[first, *THREE[1:]])).eligible == 2

    def test_a_named_cpu_model_is_required(self) -> None:
        web = vm("web", "a")
        web[0]["spec"]["domain"]["cpu"]["model"] = "Skylake"
        label: Json = {"cpu-model.node.kubevirt.io/Skylake": "true"}
        nodes = [*THREE[:2], node("c", **label)]
        assert (of(plan([web], nodes=nodes)).eligible, of(plan([web])).code) == (1, "no-eligible-node")

    def test_a_volume_that_only_the_lost_node_reaches(self) -> None:
        found = plan([vm("web", "a", **DISK)], **reached("a"))
        assert (of(found).code, found.changes[0].vms) == ("no-eligible-node", ("shop/web",))
        assert of(plan([vm("web", "a", **DISK)], **reached("a", "c"))).to == "c"

    def test_a_volume_of_its_persistent_state(self) -> None:
        web = vm("web", "a")
        web[0]["spec"]["domain"]["devices"] = {"tpm": {"persistent": True}}
        claim = {"persistentVolumeClaimInfo": {"claimName": "disk"}}
        web[0]["status"]["volumeStatus"] = [{"name": "persistent-state-for-web"} | claim]
        assert of(plan([web], **reached("a"))).code == "no-eligible-node"

    def test_hotplugged_volumes(self) -> None:
        web = vm("web", "a", **PLUGGED)
        for hosts, code in ((("b",), "may-not-attach"), (("a",), "no-attachment"), (("b", "c"), "has-room")):
            found = plan([web], pods=[attachment(web[1])], **reached(*hosts))
            assert of(found).code == code

    def test_what_was_plugged_into_the_vmi_alone_is_gone(self) -> None:
        web = vm("web", "a", **PLUGGED)
        owner = owned(web)
        owner["spec"]["template"] = {"spec": {}}
        found = loss.plan(snapshot(THREE, [web], owners=[owner], **reached("a")), ["a"])
        assert of(found).code == "has-room"

    def test_the_pod_requests_what_the_present_one_shows(self) -> None:
        """A sidecar, for example, which no field of the VM says."""
        web = vm("web", "a", "5Gi")
        web[1]["spec"]["containers"].append({"name": "hook", "resources": {"requests": {"memory": "4Gi"}}})
        assert (of(plan([web])).code, of(plan([web])).memory) == ("no-eligible-node", 9 * 2**30)

    def test_a_template_that_has_changed_counts(self) -> None:
        web = vm("web", "a")
        owner = owned(web, conditions=[{"type": "RestartRequired", "status": "True"}])
        objects = snapshot(THREE, [web], owners=[owner])
        larger = msgspec.convert(vm("web", "", "9Gi")[0] | {"status": {}}, Vmi)
        key = ("shop", "web")
        assert of(loss.plan(replace(objects, next_vmis={key: larger}), ["a"])).code == "no-eligible-node"
        denied = loss.plan(replace(objects, next_vmis={key: "it is denied"}), ["a"])
        assert (of(denied).code, of(denied).reason, denied.waits) == ("no-vmi", "it is denied", 1)

    def test_a_priority_class_that_is_gone(self) -> None:
        assert of(plan([vm("web", "a", priorityClassName="gone")], classes=CLASSES)).code == "no-priority-class"

    def test_dedicated_cpus(self) -> None:
        web = vm("web", "a")
        web[0]["spec"]["domain"]["cpu"] |= {"dedicatedCpuPlacement": True, "cores": 1}
        labels: Json = {"cpumanager": "true", "kubevirt.io/cpumanager": "true"}
        assert of(plan([web], nodes=[node(name, **labels) for name in "ab"])).code == "may-not-fit"


class TestRoom:
    def test_pods_of_other_controllers_need_room_first(self) -> None:
        full = [vm("b", "b", "5Gi"), vm("c", "c", "5Gi")]
        others = [filler("one", "a", "2Gi"), filler("two", "a", "2Gi")]
        found = plan([vm("web", "a", "2Gi"), *full], pods=others)
        assert (of(found).code, found.other_pods, found.waiting_pods) == ("no-room", 2, ())
        gone = [filler("one", "a", "2Gi", owner="DaemonSet"), filler("two", "a", "2Gi", owner="Node")]
        del (bare := filler("bare", "a", "2Gi"))["metadata"]["ownerReferences"]
        found = plan([vm("web", "a", "2Gi"), *full], pods=[*gone, bare])
        assert (of(found).code, found.other_pods) == ("has-room", 0)

    def test_other_pods_without_a_node(self) -> None:
        found = plan([], pods=[filler("one", "a", "9Gi")])
        (waiting,) = found.waiting_pods
        assert (waiting.namespace, waiting.name, waiting.owner) == ("shop", "one", "ReplicaSet owner")
        pod = filler("one", "a")
        pod["spec"]["volumes"] = [{"name": "disk", "persistentVolumeClaim": {"claimName": "disk"}}]
        assert len(plan([], pods=[pod], **reached("a")).waiting_pods) == 1
        assert plan([], pods=[pod], **reached("b")).waiting_pods == ()

    def test_what_depends_on_the_order_is_said(self) -> None:
        """By name the large one is first; two small ones that come before leave it no room."""
        vms = [vm("a-large", "a", "6Gi"), *(vm(f"small-{number}", "a", "2Gi") for number in range(2))]
        found = plan([*vms, vm("c", "c", "5Gi")])
        assert (of(found, "a-large").code, found.waits) == ("may-not-start", 0)
        vms = [vm("z-large", "a", "6Gi"), vm("b-small", "a", "3Gi")]
        found = plan([*vms, vm("c", "c", "6Gi")])
        assert (of(found, "z-large").code, of(found, "b-small").code) == ("no-room", "has-room")

    def test_rules_between_pods(self) -> None:
        apart_vms = [
            vm(name, on, labels={"app": "x"}, affinity=apart(app="x")) for name, on in zip("xyz", "abc", strict=True)
        ]
        assert of(plan(apart_vms), "x").code == "pods-apart"
        # The domain of a node that is lost does not count, even as an empty one.
        spread = {
            "topologyKey": HOST,
            "maxSkew": 1,
            "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": {"matchLabels": {"app": "x"}},
            "nodeAffinityPolicy": "Ignore",
        }
        vms = [
            vm(name, on, labels={"app": "x"}, topologySpreadConstraints=[spread])
            for name, on in zip("xyz", "abc", strict=True)
        ]
        assert of(plan(vms), "x").code == "has-room"

    def test_one_that_wants_to_be_near_another_waits_for_it(self) -> None:
        near = vm("a-near", "a", affinity=together(app="x"))
        found = plan([near, vm("x", "a", labels={"app": "x"})])
        assert (of(found, "x").turn, of(found, "a-near").turn, of(found, "a-near").to) == (1, 2, of(found, "x").to)
        assert of(plan([near]), "a-near").code == "pods-apart"
        both = [vm(name, "a", affinity=together(app="x")) for name in ("a-near", "b-near")]
        assert plan([*both, vm("x", "a", labels={"app": "x"})]).waits == 0

    def test_a_quota_that_has_been_lowered_since(self) -> None:
        vms = [vm("one", "a"), vm("two", "a"), vm("b", "b")]
        found = plan(vms, quotas=[quota(pods=("2", "3"))])
        assert [each.code for each in found.vms] == ["has-room", "quota"]
        assert [each.code for each in plan(vms, quotas=[quota(pods=("3", "3"))]).vms] == ["has-room", "has-room"]

    def test_the_target_pod_of_a_vm_that_is_lost_is_gone_too(self) -> None:
        web, other = vm("web", "a", "6Gi"), vm("other", "a", "8Gi")
        target = {**web[1], "metadata": web[1]["metadata"] | {"name": "virt-launcher-web-target"}}
        target = target | {"spec": web[1]["spec"] | {"nodeName": "b"}}
        found = plan([web, other, vm("c", "c", "2Gi")], pods=[target])
        assert (of(found, "other").to, of(found).to) == ("b", "c")


class TestPreemption:
    def test_pods_of_lower_priority_go_and_what_runs_in_them_starts_elsewhere_or_not(self) -> None:
        def low(name: str, on: str) -> Any:
            made = vm(name, on, "6Gi", priorityClassName="low")
            made[1]["spec"] |= {"priority": 10, "priorityClassName": "low"}
            return made

        high = vm("web", "a", "6Gi", priorityClassName="high")
        nodes = [*THREE[:2], node("c", memory="7Gi")]
        found = plan([high, low("low", "b")], nodes=nodes[:2], classes=CLASSES)
        assert (of(found).code, of(found).to, found.preempted, found.waits) == ("preempts", "b", 1, 1)
        (victim,) = of(found).preempts
        assert (victim.vm, victim.priority) == ("low", 10)
        assert (of(found, "low").node, of(found, "low").code) == ("b", "no-room")
        # Its guest shuts down, which is no failure.
        owners = [owned(high), owned(low("low", "b"), "RerunOnFailure")]
        vms = [high, low("low", "b")]
        owned(vms[1])
        found = loss.plan(snapshot(nodes[:2], vms, owners=owners, classes=CLASSES), ["a"])
        assert (of(found, "low").outcome, of(found, "low").code) == ("stays-down", "run-strategy")
        # One whose priority is the same stays.
        equal = vm("web", "a", "6Gi", priorityClassName="low")
        assert of(plan([equal, low("low", "b")], nodes=nodes[:2], classes=CLASSES)).code == "no-room"

    def test_what_has_started_before_is_preempted_too_once_it_has_been_preempted(self) -> None:
        pods = [filler(f"{name}-low", name, "6Gi") | {} for name in "bc"]
        for each in pods:
            each["spec"] |= {"priority": 0}
        vms = [vm(name, "a", "6Gi", priorityClassName="high") for name in ("one", "two")]
        found = plan(vms, pods=pods, classes=CLASSES)
        assert (found.preempted, found.waits, len(found.waiting_pods), found.other_pods) == (2, 0, 2, 0)

    def test_budgets_are_kept_where_they_can_be(self) -> None:
        pods = [filler("kept", "b", "6Gi", app="kept"), filler("other", "c", "6Gi")]
        found = plan(
            [vm("web", "a", "6Gi", priorityClassName="high")],
            pods=pods,
            classes=CLASSES,
            budgets=[budget(0, app="kept")],
        )
        assert [each.name for each in of(found).preempts] == ["other"]

    def test_never(self) -> None:
        never = [*BUILT_IN, priority_class("high", 1000, preemptionPolicy="Never")]
        found = plan(
            [vm("web", "a", "6Gi", priorityClassName="high")],
            pods=[filler("x", "b", "6Gi"), filler("y", "c", "6Gi")],
            classes=never,
        )
        assert (of(found).code, len(of(found).notes)) == ("no-room", 1)


class TestWhatWouldHelp:
    def test_the_cheapest_comes_first(self) -> None:
        nodes = [node("a"), node("b"), node("c", cordoned=True)]
        vms = [vm("web", "a", "6Gi"), vm("local", "a", **DISK), vm("b", "b", "4Gi")]
        found = plan(vms, nodes=nodes, **reached("a"))
        assert [each.vms for each in found.changes] == [("shop/web",), ("shop/web",), ("shop/local",)]
        assert found.changes[0].change == 'uncordon "c"'
        assert (found.spare and (found.spare.like, found.spare.waits)) == ("a", 1)

    def test_a_cordoned_node_that_does_not_help_is_not_named(self) -> None:
        nodes = [node("a"), node("b"), node("c", cordoned=True, memory="2Gi")]
        found = plan([vm("web", "a", "6Gi"), vm("b", "b", "4Gi")], nodes=nodes)
        assert not any(each.change.startswith("uncordon") for each in found.changes)

    def test_the_smallest_part_that_is_enough(self) -> None:
        vms = [vm("local", "b", **DISK), vm("web", "a")]
        found = plan(vms, ("a", "b"), **reached("b"))
        assert (found.waits, found.smallest) == (1, ("b",))
        both = plan([vm("x", "a", "5Gi"), vm("y", "b", "5Gi")], ("a", "b"))
        assert (both.smallest, both.gaps) == ((), ())

    def test_the_smallest_part_of_many_nodes(self) -> None:
        """Of 25 nodes, the VM's own and the one that could take it: other pairs come before them by name."""
        labels: list[Json] = [{"pair": "y"} if number in (23, 24) else {} for number in range(30)]
        nodes = [node(f"n{number:02}", **each) for number, each in enumerate(labels)]
        found = plan(
            [vm("web", "n24", nodeSelector={"pair": "y"})], [f"n{number:02}" for number in range(25)], nodes=nodes
        )
        assert (found.waits, found.smallest, found.gaps) == (1, ("n23", "n24"), ())

    def test_whether_a_smaller_part_is_enough_may_not_be_known(self) -> None:
        """No three of the nodes are enough, and of ten there are more parts than are looked at."""
        names = [f"n{number}" for number in range(10)]
        nodes = [node(name) for name in [*names, "left"]]
        found = plan([vm(name, name, "3Gi") for name in names], names, nodes=nodes)
        assert (found.waits > 0, found.smallest, len(found.gaps)) == (True, (), 1)
        assert "fewer of the nodes" in found.gaps[0]


def test_a_plan_that_leaves_no_steps_for_a_smaller_part_is_a_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    """It says that none was looked at."""
    vms = [vm("local", "b", **DISK), vm("web", "a")]
    objects = snapshot(THREE, vms, owners=[owned(each) for each in vms], **reached("b"))
    budget = StepBudget(10**6)
    budget.run(loss.planned, objects, ["a", "b"])
    monkeypatch.setattr(loss, "MAX_STEPS", budget.spent)
    found = loss.plan(objects, ["a", "b"])
    assert (found.waits, found.smallest, len(found.gaps)) == (1, (), 1)


def test_volumes_that_one_node_at_a_time_can_attach_are_noted() -> None:
    objects = reached("b")
    for modes, notes in ((["ReadWriteOnce"], 1), (["ReadWriteOncePod"], 1), (["ReadWriteOnce", "ReadWriteMany"], 0)):
        objects["claims"][0]["spec"]["accessModes"] = modes
        assert len(plan([vm("web", "a", **DISK)], **objects).notes) == notes


@pytest.mark.parametrize(("nodes", "what"), [(("z",), "does not exist"), (("a", "a"), "named twice")])
def test_nodes_that_cannot_be_lost(nodes: Sequence[str], what: str) -> None:
    with pytest.raises(InputError, match=what):
        plan([], nodes)


def test_every_code_is_that_of_an_outcome() -> None:
    assert {report.STARTS, report.WAITS, report.DOWN} <= report.CODES.keys()
