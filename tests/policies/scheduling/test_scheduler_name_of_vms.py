"""The name of the scheduler in VMs, with what their instancetypes say."""

from __future__ import annotations

from typing import Any

import pytest

from tests.builders import UNAVAILABLE, Json, known, review, vm
from tests.policies.scheduling.world import MARK, POD_MARK_PATH, VM_SCHEDULER, captured, changes, decide
from webhook.admission.reasons import common
from webhook.admission.reasons import scheduling as reasons
from webhook.errors import Unavailable
from webhook.facts import ObjectKey
from webhook.kubevirt.resources import CLUSTER_INSTANCETYPES, INSTANCETYPES, REVISIONS
from webhook.kubevirt.types.views import ControllerRevision, Instancetype, InstancetypeSpec, RevisionData


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
