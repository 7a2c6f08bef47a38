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
from tests.policies.scheduling.world import ANNOTATIONS, MARK, POD_MARK_PATH, SCHEDULERS, changes, decide
from webhook.admission.decision import RepeatedChanges
from webhook.admission.reasons import common
from webhook.admission.reasons import scheduling as reasons
from webhook.errors import Unavailable
from webhook.facts import KubeVirtKey, SchedulerKey
from webhook.kubevirt.config import KubeVirtInstall
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
