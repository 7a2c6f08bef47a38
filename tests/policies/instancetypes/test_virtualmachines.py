"""Defaults for VMs: when they are injected, when they are put back, and when neither."""

from __future__ import annotations

from typing import Any

import pytest

from tests.builders import Json
from tests.policies.instancetypes.world import (
    BOTH,
    FEDORA,
    FEDORA_MARK,
    INJECTED,
    IT_MARK,
    PREF_MARK,
    SMALL,
    SMALL_MARK,
    WORLD,
    applied,
    changes,
    decide,
    facts,
    instancetype,
    preference,
    preset,
    vm,
)
from webhook.admission.reasons import common
from webhook.admission.reasons import instancetypes as reasons
from webhook.errors import Unavailable
from webhook.facts import NotRead
from webhook.kubevirt.config import ClusterConfig


class TestCreate:
    def test_a_vm_that_says_nothing_gets_both_defaults(self) -> None:
        decision = decide(vm(), facts(WORLD), **BOTH)

        assert (decision.code, changes(decision)) == (reasons.DEFAULTS_INJECTED, INJECTED)
        assert decision.notes == {"instancetype": SMALL_MARK, "preference": FEDORA_MARK}
        assert not decision.warnings
        got = applied(vm(), decision)
        assert (got["spec"]["instancetype"], got["spec"]["preference"]) == (SMALL, FEDORA)

    def test_both_are_looked_up_at_the_same_time(self) -> None:
        with pytest.raises(NotRead) as missing:
            decide(vm(), facts(), **BOTH)

        assert [getattr(key, "name", "") for key in missing.value.keys] == ["u1.small", "fedora"]

    def test_without_defaults_nothing_is_looked_up(self) -> None:
        assert decide(vm(), facts()).code == reasons.NO_DEFAULTS

    @pytest.mark.parametrize(
        ("text", "kind", "namespace"),
        [
            ("VirtualMachineInstancetype/u1.small", "VirtualMachineInstancetype", "demo"),
            ("virtualmachineinstancetypes/u1.small", "VirtualMachineInstancetype", "demo"),
            ("virtualmachineclusterinstancetype/u1.small", "VirtualMachineClusterInstancetype", ""),
        ],
    )
    def test_kinds_of_defaults(self, text: str, kind: str, namespace: str) -> None:
        world = facts([instancetype(kind=kind)])

        decision = decide(vm(), world, default_instancetype=text)

        named = {"name": "u1.small"} | ({"kind": kind} if namespace else {})
        assert changes(decision)["spec", "instancetype"] == named

    @pytest.mark.parametrize(
        "domain",
        [
            {"cpu": {"sockets": 1}},
            {"cpu": {"cores": 2}},
            {"cpu": {"threads": 2}},
            {"cpu": {"model": "host-passthrough"}},
            {"resources": {"requests": {"cpu": "1"}}},
            {"resources": {"requests": {"memory": "1Gi"}}},
            {"resources": {"limits": {"cpu": "0"}}},
            {"resources": {"limits": {"memory": "1Gi"}}},
            {"memory": {"guest": "1Gi"}},
            {"memory": {"hugepages": {"pageSize": "2Mi"}}},
        ],
    )
    def test_a_sized_vm_gets_neither(self, domain: Json) -> None:
        decision = decide(vm(domain), facts(WORLD), **BOTH)

        assert (decision.code, decision.changes, decision.warnings) == (reasons.SIZED, (), ())

    @pytest.mark.parametrize(
        "domain",
        [
            {"cpu": {"sockets": 0, "model": ""}},
            {"cpu": {"dedicatedCpuPlacement": False}},
            {"cpu": {}, "memory": {}, "resources": {"requests": {}}},
            {"cpu": None, "memory": {"guest": None}},
            {"machine": {"type": "q35"}, "ioThreadsPolicy": "auto"},
        ],
    )
    def test_zeros_and_other_fields_are_no_size(self, domain: Json) -> None:
        assert changes(decide(vm(domain), facts(WORLD), **BOTH)) == INJECTED

    def test_a_sized_vm_gets_the_preference_where_the_scope_is_all(self) -> None:
        decision = decide(vm({"cpu": {"cores": 2}}), facts(WORLD), **BOTH, default_preference_scope="all")

        assert set(changes(decision)) == {("spec", "preference"), PREF_MARK}

    def test_beside_a_matcher_that_kubevirt_refuses_nothing_is_injected(self) -> None:
        decision = decide(vm(instancetype={}), facts(WORLD), **BOTH)

        assert not decision.changes
        # KubeVirt's own words.
        assert "Either Name or InferFromVolume" in decision.warnings[0].text

    @pytest.mark.parametrize("given_", [{"name": "mine"}, {"inferFromVolume": "root"}, {}])
    def test_a_matcher_of_the_owners_is_kept(self, given_: Json) -> None:
        world = facts([*WORLD, instancetype("mine")])

        decision = decide(vm(instancetype=given_), world, default_instancetype="u1.small")

        assert (decision.code, decision.changes) == (reasons.OWNER_CHOSE_INSTANCETYPE, ())

    def test_an_empty_matcher_is_one_and_null_is_none(self) -> None:
        assert changes(decide(vm(instancetype=None, preference=None), facts(WORLD), **BOTH)) == INJECTED

    def test_a_vm_with_an_instancetype_gets_the_preference(self) -> None:
        decision = decide(vm(instancetype={"name": "mine"}), facts([*WORLD, instancetype("mine")]), **BOTH)

        assert set(changes(decision)) == {("spec", "preference"), PREF_MARK}

    def test_an_inferred_instancetype_goes_with_a_preference_that_asks_for_nothing(self) -> None:
        decision = decide(vm(instancetype={"inferFromVolume": "root"}), facts(WORLD), **BOTH)

        assert set(changes(decision)) == {("spec", "preference"), PREF_MARK}

    @pytest.mark.parametrize(
        "spec",
        [
            {"requirements": {"cpu": {"guest": 1}}},
            {"cpu": {"preferredCPUTopology": "spread"}},
            {"cpu": {"preferredCPUFeatures": [{"name": "vmx"}]}},
        ],
    )
    def test_an_inferred_instancetype_can_not_be_checked_against_one_that_does(self, spec: Json) -> None:
        world = facts([preference(**spec)])

        decision = decide(vm(instancetype={"inferFromVolume": "root"}), world, default_preference="fedora")

        assert not decision.changes
        why = reasons.default_conflicts("preference", FEDORA_MARK, reasons.inferred_conflict)
        assert decision.warnings == (why,)

    def test_whatever_an_inferred_preference_asks_for_a_vm_of_a_size_offers_more(self) -> None:
        decision = decide(vm(preference={"inferFromVolume": "root"}), facts(WORLD), **BOTH)

        assert set(changes(decision)) == {("spec", "instancetype"), IT_MARK}
        assert not decision.warnings

    def test_beside_an_inferred_preference_the_default_must_still_fit_the_vm(self) -> None:
        obj = vm({"ioThreadsPolicy": "auto"}, preference={"inferFromVolume": "root"})

        decision = decide(obj, facts([instancetype(ioThreadsPolicy="shared")]), default_instancetype="u1.small")

        assert (decision.code, decision.changes) == (reasons.DEFAULT_CONFLICTS, ())
        assert "spec.template.spec.domain.ioThreadsPolicy" in decision.warnings[0].text

    @pytest.mark.parametrize("place", ["labels", "annotations"])
    def test_the_owner_may_opt_out(self, place: str) -> None:
        obj = vm()
        obj["metadata"][place] = {"kubevirt-webhook.github.io/instancetypes": "off"}

        assert decide(obj, facts(), **BOTH).code == common.OWNER_OPTED_OUT

    @pytest.mark.parametrize(("scope", "left"), [("unsized", set()), ("all", {("spec", "preference"), PREF_MARK})])
    def test_what_a_preset_says_is_a_size(self, scope: str, left: set[Any]) -> None:
        obj = vm()
        obj["spec"]["template"]["metadata"] = {"labels": {"size": "large"}}

        decision = decide(obj, facts(WORLD, presets=[preset()]), **BOTH, default_preference_scope=scope)

        assert set(changes(decision)) == left
        assert reasons.SIZED in [reason.code for reason in decision.reasons]
        assert changes(decide(vm(), facts(WORLD, presets=[preset()]), **BOTH)) == INJECTED

    def test_presets_that_can_not_be_read_keep_no_default_away(self) -> None:
        decision = decide(vm(), facts(WORLD, presets=Unavailable("forbidden")), **BOTH)

        assert changes(decision) == INJECTED
        assert [warning.code for warning in decision.warnings] == [common.LOOKUP_FAILED]
        assert "forbidden" in decision.warnings[0].text

    def test_a_mark_without_its_matcher_says_that_the_owner_removed_it(self) -> None:
        restored = vm(annotations={IT_MARK[2]: SMALL_MARK})

        decision = decide(restored, facts(WORLD), default_instancetype="u1.small")

        assert (decision.code, decision.changes) == (reasons.OWNER_REMOVED_INSTANCETYPE, ())

    @pytest.mark.parametrize("text", ["u1 small", "/u1", "Foo/u1", "u1/", "VirtualMachinePreference/u1"])
    def test_a_default_that_is_none(self, text: str) -> None:
        decision = decide(vm(), facts(), default_instancetype=text)

        assert (decision.code, decision.changes) == (reasons.DEFAULT_UNUSABLE, ())
        assert "kubevirt-webhook.github.io/default-instancetype" in decision.warnings[0].text

    def test_a_default_that_does_not_exist(self) -> None:
        world = facts([preference()], missing=[("VirtualMachineClusterInstancetype", "u1.small")])

        decision = decide(vm(), world, **BOTH)

        assert set(changes(decision)) == {("spec", "preference"), PREF_MARK}
        assert decision.warnings == (reasons.default_missing("instancetype", SMALL_MARK),)

    def test_a_default_that_is_not_allowed(self) -> None:
        decision = decide(vm(), facts(WORLD), **BOTH, allowed=("cx1.*",))

        assert set(changes(decision)) == {("spec", "preference"), PREF_MARK}
        why = reasons.not_allowed(SMALL_MARK, "demo", "cx1.*")
        assert decision.warnings == (reasons.default_unusable("instancetype", why),)

    def test_a_default_that_can_not_be_read(self) -> None:
        world = facts([preference()], unreadable=[("VirtualMachineClusterInstancetype", "u1.small")])

        decision = decide(vm(), world, **BOTH)

        assert (decision.code, decision.changes) == (common.LOOKUP_FAILED, ())
        assert "no answer in time" in decision.warnings[0].text

    def test_an_unreadable_configuration(self) -> None:
        decision = decide(vm(), facts(WORLD, configuration=Unavailable("not listed")), **BOTH)

        assert (decision.code, decision.changes) == (common.LOOKUP_FAILED, ())

    def test_a_cluster_without_kubevirt_has_its_defaults(self) -> None:
        assert changes(decide(vm(), facts(WORLD, configuration=None), **BOTH)) == INJECTED

    def test_a_conflict_leaves_the_vm_alone_and_warns(self) -> None:
        world = facts([instancetype(nodeSelector={"a": "b"}), preference()])

        decision = decide(vm(template={"nodeSelector": {"a": "b"}}), world, **BOTH)

        assert set(changes(decision)) == {("spec", "preference"), PREF_MARK}
        assert "spec.template.spec.nodeSelector conflicts with selected instance type" in decision.warnings[0].text

    def test_a_requirement_that_is_not_met_leaves_the_preference_out(self) -> None:
        world = facts([instancetype(), preference(requirements={"cpu": {"guest": 8}})])

        decision = decide(vm(), world, **BOTH)

        assert set(changes(decision)) == {("spec", "instancetype"), IT_MARK}
        assert "preference requires 8 vCPU" in decision.warnings[0].text

    def test_a_spread_that_does_not_divide_leaves_the_preference_out(self) -> None:
        spread = preference(cpu={"preferredCPUTopology": "spread"})
        world = facts([instancetype(cpu={"guest": 3}), spread])

        assert set(changes(decide(vm(), world, **BOTH))) == {("spec", "instancetype"), IT_MARK}

    def test_a_preference_alone_that_would_crash_kubevirt_is_left_out(self) -> None:
        world = facts([preference(cpu={"preferredCPUFeatures": [{"name": "vmx"}]})])

        decision = decide(vm(), world, default_preference="fedora")

        assert (decision.code, decision.changes) == (reasons.DEFAULT_CONFLICTS, ())

    def test_an_architecture_that_comes_from_a_volume_can_not_be_required(self) -> None:
        templates = [{"metadata": {"name": "root"}, "spec": {"sourceRef": {"kind": "DataSource", "name": "fedora"}}}]
        world = facts([instancetype(), preference(requirements={"architecture": "amd64"})])

        decision = decide(vm(dataVolumeTemplates=templates), world, **BOTH)

        assert set(changes(decision)) == {("spec", "instancetype"), IT_MARK}
        why = reasons.default_conflicts("preference", FEDORA_MARK, reasons.architecture_conflict)
        assert decision.warnings == (why,)
        assert changes(decide(vm(), world, **BOTH)) == INJECTED

    def test_the_clusters_configuration_counts(self) -> None:
        forbidden = ClusterConfig.of({"network": {"permitBridgeInterfaceOnPodNetwork": False}})

        decision = decide(vm(), facts(WORLD, configuration=forbidden), **BOTH)

        assert not decision.changes
        assert "bridge interface is not enabled" in decision.warnings[0].text

    def test_what_a_sender_claims_as_status_is_not_believed(self) -> None:
        obj = vm(instancetype=SMALL)
        obj["status"] = {"instancetypeRef": {"name": "u1.small", "controllerRevisionRef": {"name": "forged"}}}

        assert not decide(obj, facts(WORLD)).denial

    @pytest.mark.parametrize("feature", ["vmx", "svm"])
    def test_a_vm_on_which_kubevirt_would_crash_is_refused(self, feature: str) -> None:
        crashing = preference("crash", cpu={"preferredCPUFeatures": [{"name": feature}]})

        decision = decide(vm(preference={"name": "crash"}), facts([crashing]))

        assert decision.denial
        assert (decision.code, decision.denial.code) == (reasons.DENIED, 422)
        assert decision.denial.causes[0].field == "spec.preference"

    def test_a_division_by_zero_is_refused(self) -> None:
        zero = preference("zero", cpu={"preferredCPUTopology": "spread", "spreadOptions": {"ratio": 0}})

        decision = decide(vm(preference={"name": "zero"}, instancetype=SMALL), facts([instancetype(), zero]))

        assert decision.denial
        assert "ratio of 0" in decision.denial.message

    def test_other_refusals_are_left_to_the_validation(self) -> None:
        demanding = preference("big", requirements={"cpu": {"guest": 64}})

        decision = decide(vm(preference={"name": "big"}, instancetype=SMALL), facts([instancetype(), demanding]))

        assert (decision.denial, decision.changes) == (None, ())

    def test_malformed_vms_are_left_to_the_api_server(self) -> None:
        decision = decide(vm({"cpu": {"sockets": "two"}}), facts(WORLD), **BOTH)

        assert (decision.code, decision.changes) == (common.INVALID_OBJECT, ())
        assert "spec.template.spec.domain.cpu.sockets" in decision.warnings[0].text

    def test_vms_that_are_being_deleted_and_switches(self) -> None:
        dying = vm()
        dying["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"

        assert decide(dying, {}, **BOTH).code == common.BEING_DELETED
        assert decide(vm(), {}, **BOTH, virtual_machines=False).code == common.DISABLED
