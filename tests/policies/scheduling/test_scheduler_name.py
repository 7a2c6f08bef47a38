"""Every rule of the scheduling policy, a policy call each: no server, no loop, no cluster."""

from __future__ import annotations

import itertools
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests import builders
from tests.builders import AVAILABLE, UNAVAILABLE, UNKNOWN, VMI_UID, Json, known, launcher_pod, review, vm, vmi
from tests.policies.scheduling.world import (
    ANNOTATIONS,
    MARK,
    POD_MARK_PATH,
    SCHEDULERS,
    VM_SCHEDULER,
    captured,
    changes,
    decide,
)
from webhook.admission.decision import Decision, RepeatedChanges
from webhook.admission.reasons import common, scheduling
from webhook.admission.reasons import scheduling as reasons
from webhook.errors import Unavailable
from webhook.facts import KubeVirtKey, ObjectKey, SchedulerKey
from webhook.kubevirt.config import KubeVirtInstall
from webhook.kubevirt.resources import CLUSTER_INSTANCETYPES, INSTANCETYPES, REVISIONS
from webhook.kubevirt.types.views import ControllerRevision, Instancetype, InstancetypeSpec, RevisionData
from webhook.settings.model import SchedulerSettings, SchedulingSettings


class TestNamesOfPods:
    def test_injects_where_the_vmi_chose_nothing(self) -> None:
        decision = decide(review(launcher_pod()), known(vmi()))

        assert decision.code == reasons.INJECTED
        assert changes(decision) == {("spec", "schedulerName"): "kubevirt", POD_MARK_PATH: "kubevirt"}
        assert decision.changes[0].old == "default-scheduler"
        assert not decision.warnings

    @pytest.mark.parametrize("scheduler", ["", None])
    def test_empty_choice_of_the_vmi_is_none(self, scheduler: str | None) -> None:
        assert decide(review(launcher_pod()), known(vmi(scheduler))).code == reasons.INJECTED

    def test_explicit_default_scheduler_of_the_vmi_is_an_opt_out(self) -> None:
        decision = decide(review(launcher_pod()), known(vmi("default-scheduler")))
        assert (decision.code, decision.changes) == (common.OWNER_OPTED_OUT, ())

    def test_pod_that_somebody_set_back_is_left_alone(self) -> None:
        decision = decide(review(launcher_pod()), known(vmi("stork")))
        assert (decision.code, decision.changes) == (reasons.REWRITTEN, ())

    @pytest.mark.parametrize("scheduler", ["stork", "volcano", "kubevirt", "batch"])
    def test_foreign_scheduler_is_left_alone(self, scheduler: str) -> None:
        decision = decide(review(launcher_pod(schedulerName=scheduler)), known(vmi(scheduler)))
        assert (decision.code, decision.changes) == (reasons.FOREIGN_SCHEDULER, ())

    @pytest.mark.parametrize("scheduler", ["", None])
    def test_pod_without_a_name_counts_as_default(self, scheduler: str | None) -> None:
        assert decide(review(launcher_pod(schedulerName=scheduler)), known(vmi())).code == reasons.INJECTED

    def test_vmi_gone(self) -> None:
        assert decide(review(launcher_pod()), known(None)).code == common.VMI_NOT_FOUND

    def test_vmi_of_the_same_name_but_another_uid(self) -> None:
        decision = decide(review(launcher_pod()), known(vmi(uid="another")))
        assert (decision.code, decision.changes) == (common.VMI_REPLACED, ())

    def test_vmi_unreadable_is_said_to_the_user(self) -> None:
        decision = decide(review(launcher_pod()), known(Unavailable("it took too long")))

        assert (decision.code, decision.changes) == (reasons.VMI_UNREADABLE, ())
        assert [warning.code for warning in decision.warnings] == [reasons.VMI_UNREADABLE]
        assert "it took too long" in decision.warnings[0].text

    @pytest.mark.parametrize("labels", [None, {}, {"kubevirt.io": "hotplug-disk"}, {"kubevirt.io": "virt-handler"}])
    def test_without_the_label_it_is_no_launcher(self, labels: dict[str, str] | None) -> None:
        pod = launcher_pod()
        pod["metadata"]["labels"] = labels
        assert decide(review(pod), known(vmi())).code == common.NOT_LAUNCHER

    @pytest.mark.parametrize(
        "owner",
        [
            None,
            {"kind": "Pod", "apiVersion": "v1"},
            {"kind": "ReplicaSet", "apiVersion": "apps/v1"},
            {"kind": "VirtualMachineInstance", "apiVersion": "example.org/v1"},
            {"kind": "VirtualMachineInstance", "apiVersion": "v1"},
            {"kind": "VirtualMachineInstance", "apiVersion": "kubevirt.io/v1", "controller": False},
            {"kind": "VirtualMachineInstance", "apiVersion": "kubevirt.io/v1", "controller": None},
            {"kind": "VirtualMachineInstance", "apiVersion": "kubevirt.io/v1", "uid": ""},
            {"kind": "VirtualMachineInstance", "apiVersion": "kubevirt.io/v1", "name": None},
        ],
    )
    def test_without_a_controlling_vmi_it_only_looks_like_one(self, owner: Json | None) -> None:
        pod = launcher_pod()
        references = [pod["metadata"]["ownerReferences"][0] | owner] if owner else None
        pod["metadata"]["ownerReferences"] = references

        assert decide(review(pod), known(vmi())).code == common.NO_VMI_OWNER

    def test_old_api_version_of_the_owner(self) -> None:
        pod = launcher_pod()
        pod["metadata"]["ownerReferences"][0]["apiVersion"] = "kubevirt.io/v1alpha3"
        assert decide(review(pod), known(vmi())).code == reasons.INJECTED

    @pytest.mark.parametrize(
        "user",
        [
            "",
            "admin",
            "system:serviceaccount:demo:kubevirt-controller",
            "system:serviceaccount:kubevirt:kubevirt-apiserver",
        ],
    )
    def test_made_by_somebody_else(self, user: str) -> None:
        assert decide(review(launcher_pod(), user=user), known(vmi())).code == common.NOT_CREATED_BY_KUBEVIRT

    def test_kubevirt_in_another_namespace(self) -> None:
        facts = known(vmi()) | {KubeVirtKey(): KubeVirtInstall(frozenset({"openshift-cnv"}))}
        user = "system:serviceaccount:openshift-cnv:kubevirt-controller"

        assert decide(review(launcher_pod(), user=user), facts).code == reasons.INJECTED
        assert decide(review(launcher_pod()), facts).code == common.NOT_CREATED_BY_KUBEVIRT

    def test_settings_override_where_kubevirt_is(self) -> None:
        facts = known(vmi()) | {KubeVirtKey(): Unavailable("forbidden")}
        user = "system:serviceaccount:virt:kubevirt-controller"

        assert decide(review(launcher_pod(), user=user), facts, kubevirt_namespace="virt").code == reasons.INJECTED
        assert decide(review(launcher_pod()), facts, kubevirt_namespace="virt").code == common.NOT_CREATED_BY_KUBEVIRT

    def test_no_kubevirt(self) -> None:
        decision = decide(review(launcher_pod()), known(vmi()) | {KubeVirtKey(): None})
        assert (decision.code, decision.changes) == (common.KUBEVIRT_ABSENT, ())

    def test_kubevirt_unreadable(self) -> None:
        decision = decide(review(launcher_pod()), known(vmi()) | {KubeVirtKey(): Unavailable("forbidden")})
        assert (decision.code, decision.changes) == (reasons.KUBEVIRT_UNREADABLE, ())
        assert decision.warnings

    def test_bound_pod(self) -> None:
        assert decide(review(launcher_pod(nodeName="node01")), known(vmi())).code == reasons.BOUND

    def test_gated_pod_is_injected_because_it_can_not_be_later(self) -> None:
        assert decide(review(launcher_pod(schedulingGates=[{"name": "x"}])), known(vmi())).code == reasons.INJECTED

    def test_provisioning_pod_is_placed_like_the_real_one(self) -> None:
        pod = launcher_pod()
        pod["metadata"]["annotations"]["kubevirt.io/ephemeral-provisioning"] = "true"
        assert decide(review(pod), known(vmi())).code == reasons.INJECTED

    def test_migration_target_of_a_vm_older_than_us(self) -> None:
        pod = launcher_pod()
        pod["metadata"]["labels"]["kubevirt.io/migrationJobUID"] = "m"
        assert decide(review(pod), known(vmi())).code == reasons.INJECTED

    def test_pod_without_annotations_gets_them(self) -> None:
        pod = launcher_pod()
        del pod["metadata"]["annotations"]
        assert changes(decide(review(pod), known(vmi())))[POD_MARK_PATH] == "kubevirt"

    def test_update_is_not_ours(self) -> None:
        body = review(launcher_pod(), operation="UPDATE", oldObject=launcher_pod())
        assert decide(body, known(vmi())).code == common.OTHER_OPERATION

    def test_pod_without_spec(self) -> None:
        pod = launcher_pod()
        del pod["spec"]
        assert decide(review(pod), known(vmi())).code == reasons.INJECTED

    @pytest.mark.parametrize(
        ("health", "code"), [(UNAVAILABLE, reasons.SCHEDULER_UNAVAILABLE), (UNKNOWN, reasons.SCHEDULER_HEALTH_UNKNOWN)]
    )
    def test_nothing_is_injected_while_the_scheduler_may_be_down(self, health: Any, code: str) -> None:
        decision = decide(review(launcher_pod()), known(vmi(), health))
        assert (decision.code, decision.changes) == (code, ())
        assert decision.warnings

    def test_unreadable_health_is_unknown(self) -> None:
        decision = decide(review(launcher_pod()), known(vmi(), Unavailable("no health check")))
        assert (decision.code, decision.changes) == (reasons.SCHEDULER_HEALTH_UNKNOWN, ())

    def test_assume_alive_bridges_ignorance_but_not_death(self) -> None:
        base = builders.scheduling().schedulers
        trusting = {**base, "kubevirt": msgspec.structs.replace(base["kubevirt"], assume_alive=True)}

        assert decide(review(launcher_pod()), known(vmi(), UNKNOWN), schedulers=trusting).code == reasons.INJECTED
        assert (
            decide(review(launcher_pod()), known(vmi(), UNAVAILABLE), schedulers=trusting).code
            == reasons.SCHEDULER_UNAVAILABLE
        )

    def test_undeclared_name_is_never_written(self) -> None:
        decision = decide(review(launcher_pod()), known(vmi()), scheduler_name="nobody")
        assert (decision.code, decision.changes) == (reasons.UNDECLARED, ())
        assert decision.warnings == (reasons.undeclared("nobody"),)


class TestFallback:
    """A pod that has an earlier choice of the webhook, through VM and VMI."""

    def pod(self, scheduler: str = "kubevirt", mark: str = "kubevirt") -> Json:
        pod = launcher_pod(schedulerName=scheduler)
        pod["metadata"]["annotations"][MARK] = mark
        return pod

    def test_falls_back_while_the_scheduler_is_dead(self) -> None:
        decision = decide(review(self.pod()), known(vmi("kubevirt"), UNAVAILABLE))

        assert decision.code == reasons.FELL_BACK
        assert changes(decision) == {("spec", "schedulerName"): "default-scheduler"}
        assert decision.warnings

    @pytest.mark.parametrize("health", [AVAILABLE, UNKNOWN, Unavailable("no health check")])
    def test_stays_otherwise(self, health: Any) -> None:
        decision = decide(review(self.pod()), known(vmi("kubevirt"), health))
        assert (decision.code, decision.changes) == (reasons.ALREADY_INJECTED, ())

    def test_owner_changed_the_name_but_left_the_mark(self) -> None:
        decision = decide(review(self.pod("batch", "kubevirt")), known(vmi("batch"), UNAVAILABLE))
        assert (decision.code, decision.changes) == (reasons.FOREIGN_SCHEDULER, ())

    def test_clone_from_a_cluster_whose_scheduler_nobody_declares_here(self) -> None:
        decision = decide(review(self.pod("elsewhere", "elsewhere")), known(vmi("elsewhere")))
        assert changes(decision) == {("spec", "schedulerName"): "default-scheduler"}

    def test_strangers_pod_with_our_mark_is_left_alone(self) -> None:
        decision = decide(review(self.pod(), user="admin"), known(vmi("kubevirt"), UNAVAILABLE))
        assert (decision.code, decision.changes) == (common.NOT_CREATED_BY_KUBEVIRT, ())


class TestVirtualMachineInstances:
    def body(self, **spec: Any) -> Json:
        return review(
            {"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance", "metadata": {"name": "v"}, "spec": spec},
            user="owner",
        )

    def test_off_by_default(self) -> None:
        assert decide(self.body()).code == common.DISABLED

    def test_injects(self) -> None:
        decision = decide(self.body(), virtual_machine_instances=True)
        assert changes(decision) == {("spec", "schedulerName"): "kubevirt", POD_MARK_PATH: "kubevirt"}

    @pytest.mark.parametrize(
        ("scheduler", "code"), [("default-scheduler", common.OWNER_OPTED_OUT), ("stork", reasons.OWNER_CHOSE)]
    )
    def test_the_owner_has_the_last_word(self, scheduler: str, code: str) -> None:
        assert decide(self.body(schedulerName=scheduler), virtual_machine_instances=True).code == code

    def test_update_is_refused_by_kubevirt_anyway(self) -> None:
        body = self.body()
        body["request"]["operation"] = "UPDATE"
        assert decide(body, virtual_machine_instances=True).code == common.OTHER_OPERATION

    def test_without_spec(self) -> None:
        body = self.body()
        body["request"]["object"]["spec"] = None
        assert decide(body, virtual_machine_instances=True).code == reasons.NO_TEMPLATE

    def test_dead_scheduler(self) -> None:
        assert (
            decide(self.body(), known(health=UNAVAILABLE), virtual_machine_instances=True).code
            == reasons.SCHEDULER_UNAVAILABLE
        )


@given(SCHEDULERS, ANNOTATIONS, st.sampled_from([None, "", "default-scheduler", "kubevirt", "stork"]), st.data())
def test_only_declared_names_are_ever_written(scheduler: Any, mark: str | None, chosen: str | None, data: Any) -> None:
    health = data.draw(st.sampled_from([AVAILABLE, UNAVAILABLE, UNKNOWN]))
    pod = launcher_pod(schedulerName=None if scheduler is ... else scheduler)
    pod["metadata"]["annotations"][MARK] = mark or ""

    decision = decide(review(pod), known(vmi(chosen), health))

    written = changes(decision).get(("spec", "schedulerName"))
    assert written in (None, "kubevirt", "default-scheduler")
    if written == "kubevirt":
        assert health is AVAILABLE and not chosen and scheduler in (..., None, "", "default-scheduler")
    if written == "default-scheduler":
        assert mark == scheduler and (health is UNAVAILABLE or scheduler not in builders.scheduling().schedulers)


def test_every_health_check_state_has_an_answer_for_every_point() -> None:
    """No combination of healths ends in an exception."""
    healths = [AVAILABLE, UNAVAILABLE, UNKNOWN, Unavailable("x"), None]
    bodies = [review(launcher_pod()), review(vm()), TestFallback().pod() and review(TestFallback().pod())]
    for body, health in itertools.product(bodies, healths):
        assert decide(body, known(vmi()) | {SchedulerKey("kubevirt", "demo"): health}).reasons


def test_declared_schedulers_are_looked_up_by_name() -> None:
    only = {"batch": SchedulerSettings("batch", builders.scheduling().schedulers["batch"].health_check)}
    section: SchedulingSettings = builders.scheduling(schedulers=only, scheduler_name="batch")

    decision = decide(review(launcher_pod()), known(vmi()), schedulers=section.schedulers, scheduler_name="batch")

    assert changes(decision)[("spec", "schedulerName")] == "batch"
    assert VMI_UID in str(known(vmi()))


def test_a_fallback_is_final() -> None:
    """The second pass sees the default again, beside an annotation that names an unknown scheduler."""
    pod = launcher_pod()
    pod["metadata"]["annotations"][MARK] = "gone"

    decision = decide(review(pod), known(vmi()))

    assert (decision.code, decision.changes) == (reasons.ALREADY_FELL_BACK, ())


def test_changes_are_kept_only_where_no_tenant_wrote_a_part_of_them() -> None:
    usual = [decide(review(launcher_pod()), known(vmi())).changes for _ in range(2)]
    tenants = decide(review(vm(mark="x" * 1000)), known()).changes

    assert usual[0] is usual[1]
    assert isinstance(usual[0], RepeatedChanges)
    assert "x" * 1000 in [change.old for change in tenants]
    assert not isinstance(tenants, RepeatedChanges)


class TestVirtualMachines:
    @pytest.mark.parametrize("scheduler", [..., "", None])
    def test_injects_at_create(self, scheduler: Any) -> None:
        decision = decide(review(vm(scheduler), user="owner"))
        assert decision.code == reasons.INJECTED
        assert changes(decision) == {
            VM_SCHEDULER: "kubevirt",
            POD_MARK_PATH: "kubevirt",
            ("spec", "template", "metadata", "annotations", MARK): "kubevirt",
        }

    @pytest.mark.parametrize(
        ("scheduler", "code"),
        [
            ("default-scheduler", common.OWNER_OPTED_OUT),
            ("stork", reasons.OWNER_CHOSE),
            ("kubevirt", reasons.OWNER_CHOSE),
        ],
    )
    def test_the_owner_has_the_last_word(self, scheduler: str, code: str) -> None:
        decision = decide(review(vm(scheduler)))
        assert (decision.code, decision.changes) == (code, ())

    def test_clone_with_mark_and_value_is_complete(self) -> None:
        assert decide(review(vm("kubevirt", mark="kubevirt"))).code == reasons.ALREADY_INJECTED

    def test_restore_with_the_mark_alone_is_a_vm_without_choice(self) -> None:
        decision = decide(review(vm(mark="batch")))

        assert decision.code == reasons.INJECTED
        assert changes(decision)[POD_MARK_PATH] == "kubevirt"
        assert {change.path: change.old for change in decision.changes}[POD_MARK_PATH] == "batch"

    def test_clone_whose_owner_chose_otherwise_but_left_the_mark(self) -> None:
        assert decide(review(vm("stork", mark="kubevirt"))).code == reasons.OWNER_CHOSE

    def test_switched_off(self) -> None:
        assert decide(review(vm()), virtual_machines=False).code == common.DISABLED

    @pytest.mark.parametrize("operation", ["DELETE", "CONNECT"])
    def test_other_operations(self, operation: str) -> None:
        assert decide(review(vm(), operation=operation)).code == common.OTHER_OPERATION

    @pytest.mark.parametrize("operation", ["CREATE", "UPDATE"])
    def test_being_deleted(self, operation: str) -> None:
        gone = vm()
        gone["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
        body = review(gone, operation=operation, oldObject=vm("kubevirt", mark="kubevirt"))

        assert decide(body).code == common.BEING_DELETED

    @pytest.mark.parametrize("template", [None, {}, {"spec": None}, {"metadata": {}}])
    def test_without_template_spec_there_is_nothing_to_patch(self, template: Any) -> None:
        odd = vm()
        odd["spec"]["template"] = template
        assert decide(review(odd)).code == reasons.NO_TEMPLATE

    def test_without_spec(self) -> None:
        odd = vm()
        del odd["spec"]
        assert decide(review(odd)).code == reasons.NO_TEMPLATE

    def test_dead_scheduler_is_said_to_the_owner(self) -> None:
        decision = decide(review(vm()), known(health=UNAVAILABLE))
        assert (decision.code, decision.changes) == (reasons.SCHEDULER_UNAVAILABLE, ())
        assert decision.warnings == (reasons.unavailable("kubevirt", UNAVAILABLE.why),)

    def test_status_at_create_is_only_a_claim(self) -> None:
        body = vm(instancetype={"name": "u1"})
        body["status"] = {"instancetypeRef": {"controllerRevisionRef": {"name": "forged"}}}
        facts = known() | {ObjectKey(CLUSTER_INSTANCETYPES, "", "u1"): Instancetype()}

        assert decide(review(body), facts).code == reasons.INJECTED


class TestInstancetypes:
    """KubeVirt denies a VM that sets what its instancetype sets, even to the same value."""

    @pytest.mark.parametrize(
        ("kind", "resource", "namespace"),
        [
            (None, CLUSTER_INSTANCETYPES, ""),
            ("", CLUSTER_INSTANCETYPES, ""),
            ("VirtualMachineClusterInstancetype", CLUSTER_INSTANCETYPES, ""),
            ("virtualmachineclusterinstancetypes", CLUSTER_INSTANCETYPES, ""),
            ("VIRTUALMACHINECLUSTERINSTANCETYPE", CLUSTER_INSTANCETYPES, ""),
            ("VirtualMachineInstancetype", INSTANCETYPES, "demo"),
            ("virtualMachineInstancetypes", INSTANCETYPES, "demo"),
        ],
    )
    def test_live_objects_by_kind(self, kind: str | None, resource: Any, namespace: str) -> None:
        body = review(vm(instancetype={"name": "u1", "kind": kind}))
        key = ObjectKey(resource, namespace, "u1")

        plain = decide(body, known() | {key: Instancetype(spec=InstancetypeSpec())})
        setting = decide(body, known() | {key: Instancetype(spec=InstancetypeSpec("kubevirt"))})

        assert plain.code == reasons.INJECTED
        assert (setting.code, setting.changes) == (reasons.INSTANCETYPE_SETS_SCHEDULER, ())

    @pytest.mark.parametrize(
        "matcher",
        [
            {},
            {"inferFromVolume": "root"},
            {"inferFromVolume": "root", "inferFromVolumeFailurePolicy": "Ignore"},
            {"kind": "VirtualMachineInstancetype"},
            {"name": "u1", "kind": "VirtualMachinePreference"},
            {"name": "u1", "kind": "Flavor"},
        ],
    )
    def test_unresolved_matchers(self, matcher: Json) -> None:
        decision = decide(review(vm(instancetype=matcher)))
        assert (decision.code, decision.changes) == (reasons.INSTANCETYPE_UNRESOLVED, ())

    def test_null_matcher_is_none(self) -> None:
        assert decide(review(vm(instancetype=None))).code == reasons.INJECTED

    def test_missing_object(self) -> None:
        facts = known() | {ObjectKey(CLUSTER_INSTANCETYPES, "", "u1"): None}
        assert decide(review(vm(instancetype={"name": "u1"})), facts).code == reasons.INSTANCETYPE_UNRESOLVED

    @pytest.mark.parametrize("key", [ObjectKey(CLUSTER_INSTANCETYPES, "", "u1"), ObjectKey(REVISIONS, "demo", "r1")])
    def test_unreadable(self, key: Any) -> None:
        matcher = {"name": "u1"} | ({"revisionName": "r1"} if key.resource is REVISIONS else {})
        decision = decide(review(vm(instancetype=matcher)), known() | {key: Unavailable("slow")})

        assert (decision.code, decision.changes) == (reasons.INSTANCETYPE_UNREADABLE, ())
        assert decision.warnings

    @pytest.mark.parametrize(
        ("stored", "code"),
        [
            (captured("VirtualMachineInstancetype", InstancetypeSpec()), reasons.INJECTED),
            (captured("VirtualMachineClusterInstancetype"), reasons.INJECTED),
            (captured("VirtualMachineInstancetype", InstancetypeSpec("x")), reasons.INSTANCETYPE_SETS_SCHEDULER),
            (captured("VirtualMachinePreference"), reasons.INSTANCETYPE_UNRESOLVED),
            (captured(None, InstancetypeSpec()), reasons.INSTANCETYPE_UNRESOLVED),
            # Without labels and owner, any user may have written it.
            (RevisionData("VirtualMachineInstancetype", InstancetypeSpec("x")), reasons.INSTANCETYPE_UNRESOLVED),
            (None, reasons.INSTANCETYPE_UNRESOLVED),
        ],
    )
    def test_by_revision(self, stored: ControllerRevision | RevisionData | None, code: str) -> None:
        revision = stored if isinstance(stored, ControllerRevision) else ControllerRevision(data=stored)
        facts = known() | {ObjectKey(REVISIONS, "demo", "r1"): revision}
        assert decide(review(vm(instancetype={"name": "u1", "revisionName": "r1"})), facts).code == code

    def test_missing_revision(self) -> None:
        facts = known() | {ObjectKey(REVISIONS, "demo", "r1"): None}
        assert decide(review(vm(instancetype={"revisionName": "r1"})), facts).code == reasons.INSTANCETYPE_UNRESOLVED


class TestCarryOver:
    """The one thing that UPDATE adds: what an overwrite of spec and annotations took."""

    def update(self, new: Json, old: Json, facts: dict[Any, object] | None = None, **settings: Any) -> Decision:
        return decide(review(new, operation="UPDATE", oldObject=old), facts, **settings)

    def test_overwrite_keeps_the_choice(self) -> None:
        decision = self.update(vm(), vm("kubevirt", mark="kubevirt"))

        assert decision.code == scheduling.PRESERVED
        assert set(changes(decision).values()) == {"kubevirt"}
        assert len(decision.changes) == 3

    def test_also_while_the_scheduler_is_dead_or_another_is_the_default(self) -> None:
        old = vm("batch", mark="batch")
        assert self.update(vm(), old, known(health=UNAVAILABLE)).code == scheduling.PRESERVED
        assert changes(self.update(vm(), old))[VM_SCHEDULER] == "batch"

    @pytest.mark.parametrize(
        "new", [vm(mark="kubevirt"), vm(mark="kubevirt", template_mark=None), vm(template_mark="kubevirt")]
    )
    def test_owner_who_removes_the_field_alone_means_it(self, new: Json) -> None:
        decision = self.update(new, vm("kubevirt", mark="kubevirt"))
        assert (decision.code, decision.changes) == (scheduling.OWNER_REMOVED, ())

    @pytest.mark.parametrize(
        ("scheduler", "code"), [("default-scheduler", common.OWNER_OPTED_OUT), ("stork", scheduling.OWNER_CHOSE)]
    )
    def test_owner_who_names_another_means_it(self, scheduler: str, code: str) -> None:
        assert self.update(vm(scheduler), vm("kubevirt", mark="kubevirt")).code == code

    def test_unchanged_vm(self) -> None:
        both = vm("kubevirt", mark="kubevirt")
        assert self.update(both, both).code == scheduling.ALREADY_INJECTED

    @pytest.mark.parametrize(
        "old", [vm(), vm("kubevirt"), vm(mark="kubevirt"), vm("stork", mark="kubevirt"), vm("kubevirt", mark="")]
    )
    def test_nothing_is_added_to_a_vm_that_was_not_ours(self, old: Json) -> None:
        decision = self.update(vm(), old)
        assert (decision.code, decision.changes) == (common.NOTHING_TO_PRESERVE, ())

    def test_without_an_old_object(self) -> None:
        assert decide(review(vm(), operation="UPDATE")).code == common.NOTHING_TO_PRESERVE

    def test_a_name_that_is_not_declared_any_more(self) -> None:
        assert self.update(vm(), vm("gone", mark="gone")).code == scheduling.UNDECLARED

    def test_a_new_instancetype_that_sets_a_scheduler(self) -> None:
        new = vm(instancetype={"name": "u1"})
        facts = known() | {ObjectKey(CLUSTER_INSTANCETYPES, "", "u1"): Instancetype(spec=InstancetypeSpec("x"))}
        assert self.update(new, vm("kubevirt", mark="kubevirt"), facts).code == scheduling.INSTANCETYPE_SETS_SCHEDULER

    @pytest.mark.parametrize(
        ("label", "code"), [("u1", scheduling.INSTANCETYPE_SETS_SCHEDULER), ("other", scheduling.PRESERVED)]
    )
    def test_revision_in_the_stored_status_counts_if_its_label_fits(self, label: str, code: str) -> None:
        old = vm("kubevirt", mark="kubevirt", instancetype={"name": "u1"})
        old["status"] = {"instancetypeRef": {"controllerRevisionRef": {"name": "r1"}}}
        revision = captured("VirtualMachineInstancetype", InstancetypeSpec("x"), name=label)
        facts = known() | {
            ObjectKey(REVISIONS, "demo", "r1"): revision,
            ObjectKey(CLUSTER_INSTANCETYPES, "", "u1"): Instancetype(),
        }

        assert self.update(vm(instancetype={"name": "u1"}), old, facts).code == code

    def test_template_metadata_of_any_kind(self) -> None:
        new = vm()
        new["spec"]["template"]["metadata"] = None
        assert self.update(new, vm("kubevirt", mark="kubevirt")).code == scheduling.PRESERVED


@given(
    SCHEDULERS, ANNOTATIONS, ANNOTATIONS, SCHEDULERS, ANNOTATIONS, st.sampled_from([AVAILABLE, UNAVAILABLE, UNKNOWN])
)
def test_update_never_adds_what_was_not_ours(
    new: Any, new_mark: str | None, template_mark: str | None, old: Any, old_mark: str | None, health: Any
) -> None:
    body = review(
        vm(new, mark=new_mark, template_mark=template_mark), operation="UPDATE", oldObject=vm(old, mark=old_mark)
    )
    decision = decide(body, known(health=health))

    made = changes(decision)
    if VM_SCHEDULER in made:
        assert old == old_mark and not new_mark and not template_mark and new in (..., None, "")
        assert set(made.values()) == {old}
    else:
        ours = new in (new_mark, template_mark)
        assert set(made.values()) <= ({new} if ours else {None})
        assert not made or new not in (..., None, "")


class TestOwners:
    """At UPDATE the owner's value counts, and the injected one gives way to it."""

    OURS = vm("kubevirt", mark="kubevirt")

    def update(self, new: Json, old: Json | None = None, facts: Any = None, **settings: Any) -> Decision:
        return decide(review(new, operation="UPDATE", oldObject=old or self.OURS), facts, **settings)

    def declared(self, new: Json, *paths: tuple[str, ...]) -> Json:
        """The VM as a server-side apply has it that declares some fields."""
        fields: Json = {}
        for path in paths:
            inner = fields
            for segment in path:
                inner = inner.setdefault(f"f:{segment}", {})
        new["metadata"]["managedFields"] = [{"manager": "flux", "operation": "Apply", "fieldsV1": fields}]
        return new

    def test_a_name_that_a_manifest_declares_is_the_owners_even_if_it_is_ours(self) -> None:
        new = self.declared(vm("kubevirt", mark="kubevirt"), VM_SCHEDULER)

        decision = self.update(new)

        assert decision.code == scheduling.OWNER_CHOSE
        assert changes(decision) == {POD_MARK_PATH: None, ("spec", "template", *POD_MARK_PATH): None}

    def test_the_stock_scheduler_that_a_manifest_declares_is_an_opt_out(self) -> None:
        decision = self.update(vm("default-scheduler", mark="kubevirt"))
        assert decision.code == common.OWNER_OPTED_OUT
        assert set(changes(decision).values()) == {None}

    def test_a_mark_that_a_manifest_declares_is_left_to_it(self) -> None:
        new = self.declared(vm("stork", mark="kubevirt"), POD_MARK_PATH)
        assert set(changes(self.update(new))) == {("spec", "template", *POD_MARK_PATH)}

    def test_what_was_declared_is_not_put_back(self) -> None:
        old = self.declared(vm("kubevirt", mark="kubevirt"), VM_SCHEDULER)
        assert self.update(vm(), old).code == common.NOTHING_TO_PRESERVE

    def test_the_scheduler_of_an_instancetype_that_the_owner_names_now(self) -> None:
        new = vm("kubevirt", mark="kubevirt", instancetype={"name": "u1"})
        facts = known() | {ObjectKey(CLUSTER_INSTANCETYPES, "", "u1"): Instancetype(spec=InstancetypeSpec("x"))}

        decision = self.update(new, facts=facts)

        assert decision.code == scheduling.SCHEDULER_WITHDRAWN
        assert set(changes(decision)) == {VM_SCHEDULER, POD_MARK_PATH, ("spec", "template", *POD_MARK_PATH)}
        assert set(changes(decision).values()) == {None}
        assert len(decision.warnings) == 1

    def test_an_instancetype_that_nobody_knows_yet_may_set_one_too(self) -> None:
        new = vm("kubevirt", mark="kubevirt", instancetype={"name": "u1"})
        facts = known() | {ObjectKey(CLUSTER_INSTANCETYPES, "", "u1"): None}

        assert self.update(new, facts=facts).code == scheduling.SCHEDULER_WITHDRAWN
        assert self.update(new, new, facts).code == scheduling.ALREADY_INJECTED

    def test_an_instancetype_that_can_not_be_read_changes_nothing(self) -> None:
        new = vm("kubevirt", mark="kubevirt", instancetype={"name": "u1"})
        facts = known() | {ObjectKey(CLUSTER_INSTANCETYPES, "", "u1"): Unavailable("no answer in time")}
        assert self.update(new, facts=facts).code == scheduling.ALREADY_INJECTED

    def test_an_owners_own_scheduler_beside_such_an_instancetype_is_left_to_kubevirt(self) -> None:
        assert not self.update(vm("stork", instancetype={"name": "u1"})).changes


class TestMarks:
    """Clones, restores and tools that rewrite annotations keep an injected scheduler, and drop some annotations."""

    ONLY = builders.scheduling().schedulers
    ALONE = {**ONLY, "kubevirt": msgspec.structs.replace(ONLY["kubevirt"], only_by_webhook=True)}

    @pytest.mark.parametrize("operation", ["CREATE", "UPDATE"])
    @pytest.mark.parametrize(
        ("copied", "missing"),
        [
            (vm("kubevirt", mark="kubevirt", template_mark=None), ("spec", "template", *POD_MARK_PATH)),
            (vm("kubevirt", template_mark="kubevirt"), POD_MARK_PATH),
            (vm("kubevirt", mark="stale", template_mark="kubevirt"), POD_MARK_PATH),
        ],
    )
    def test_a_missing_mark_is_put_back(self, operation: str, copied: Json, missing: tuple[str, ...]) -> None:
        old = vm("kubevirt", mark="kubevirt") if operation == "UPDATE" else None
        decision = decide(review(copied, operation=operation, oldObject=old))
        assert (decision.code, changes(decision)) == (scheduling.ANNOTATION_RESTORED, {missing: "kubevirt"})

    def test_without_any_mark_it_is_the_owners(self) -> None:
        assert decide(review(vm("kubevirt"))).code == scheduling.OWNER_CHOSE

    @pytest.mark.parametrize("operation", ["CREATE", "UPDATE"])
    def test_unless_the_admin_says_that_only_we_ever_choose_it(self, operation: str) -> None:
        old = vm("kubevirt", mark="kubevirt") if operation == "UPDATE" else None

        decision = decide(review(vm("kubevirt"), operation=operation, oldObject=old), schedulers=self.ALONE)

        assert decision.code == scheduling.ANNOTATION_RESTORED
        assert set(changes(decision)) == {POD_MARK_PATH, ("spec", "template", *POD_MARK_PATH)}

    @pytest.mark.parametrize(
        ("health", "code"), [(UNAVAILABLE, scheduling.FELL_BACK), (AVAILABLE, scheduling.ALREADY_INJECTED)]
    )
    def test_then_its_pods_fall_back(self, health: Any, code: str) -> None:
        body = review(launcher_pod(schedulerName="kubevirt"))
        assert decide(body, known(vmi("kubevirt"), health), schedulers=self.ALONE).code == code
        assert decide(body, known(vmi("kubevirt"), health)).code == scheduling.FOREIGN_SCHEDULER

    def test_that_fallback_is_final(self) -> None:
        decision = decide(review(launcher_pod()), known(vmi("kubevirt")), schedulers=self.ALONE)
        assert (decision.code, decision.changes) == (scheduling.ALREADY_FELL_BACK, ())


def test_a_mark_that_is_there_already_is_no_change() -> None:
    assert changes(decide(review(vm(mark="kubevirt")))) == {VM_SCHEDULER: "kubevirt"}
