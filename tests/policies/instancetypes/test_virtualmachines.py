"""Defaults for VMs: when they are injected, when they are put back, and when neither."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.builders import Json
from tests.policies.instancetypes.world import (
    FEDORA,
    FEDORA_MARK,
    IT_MARK,
    PREF_MARK,
    SMALL,
    SMALL_MARK,
    applied,
    changes,
    decide,
    facts,
    instancetype,
    preference,
    preset,
    revision,
    vm,
)
from webhook.errors import Unavailable
from webhook.facts import NotRead
from webhook.kubevirt.config import ClusterConfig
from webhook.kubevirt.lookup import among
from webhook.kubevirt.rules import rules_of
from webhook.kubevirt.webhooks import vm_admitter
from webhook.names import Code
from webhook.policies.instancetypes import messages
from webhook.releases.release import release_of
from webhook.releases.version import parse_version

BOTH: dict[str, Any] = {"default_instancetype": "u1.small", "default_preference": "fedora"}
WORLD = [instancetype(), preference()]
INJECTED = {
    ("spec", "instancetype"): SMALL,
    IT_MARK: SMALL_MARK,
    ("spec", "preference"): FEDORA,
    PREF_MARK: FEDORA_MARK,
}


class TestCreate:
    def test_a_vm_that_says_nothing_gets_both_defaults(self) -> None:
        decision = decide(vm(), facts(WORLD), **BOTH)

        assert (decision.code, changes(decision)) == (Code.DEFAULTS_INJECTED, INJECTED)
        assert decision.notes == {"instancetype": SMALL_MARK, "preference": FEDORA_MARK}
        assert not decision.warnings
        got = applied(vm(), decision)
        assert (got["spec"]["instancetype"], got["spec"]["preference"]) == (SMALL, FEDORA)

    def test_both_are_looked_up_at_the_same_time(self) -> None:
        with pytest.raises(NotRead) as missing:
            decide(vm(), facts(), **BOTH)

        assert [getattr(key, "name", "") for key in missing.value.keys] == ["u1.small", "fedora"]

    def test_without_defaults_nothing_is_looked_up(self) -> None:
        assert decide(vm(), facts()).code == Code.NO_DEFAULTS

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

        assert (decision.code, decision.changes, decision.warnings) == (Code.SIZED, (), ())

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
        decision = decide(vm({"cpu": {"cores": 2}}), facts(WORLD), **BOTH, preference_scope="all")

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

        assert (decision.code, decision.changes) == (Code.OWNER_CHOSE_INSTANCETYPE, ())

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
        why = messages.default_conflicts("preference", FEDORA_MARK, messages.inferred_conflict())
        assert decision.warnings == (why,)

    def test_whatever_an_inferred_preference_asks_for_a_vm_of_a_size_offers_more(self) -> None:
        decision = decide(vm(preference={"inferFromVolume": "root"}), facts(WORLD), **BOTH)

        assert set(changes(decision)) == {("spec", "instancetype"), IT_MARK}
        assert not decision.warnings

    def test_beside_an_inferred_preference_the_default_must_still_fit_the_vm(self) -> None:
        obj = vm({"ioThreadsPolicy": "auto"}, preference={"inferFromVolume": "root"})

        decision = decide(obj, facts([instancetype(ioThreadsPolicy="shared")]), default_instancetype="u1.small")

        assert (decision.code, decision.changes) == (Code.DEFAULT_CONFLICTS, ())
        assert "spec.template.spec.domain.ioThreadsPolicy" in decision.warnings[0].text

    @pytest.mark.parametrize("place", ["labels", "annotations"])
    def test_the_owner_may_opt_out(self, place: str) -> None:
        obj = vm()
        obj["metadata"][place] = {"kubevirt-webhook.github.io/instancetypes": "off"}

        assert decide(obj, facts(), **BOTH).code == Code.OWNER_OPTED_OUT

    @pytest.mark.parametrize(("scope", "left"), [("unsized", set()), ("all", {("spec", "preference"), PREF_MARK})])
    def test_what_a_preset_says_is_a_size(self, scope: str, left: set[Any]) -> None:
        obj = vm()
        obj["spec"]["template"]["metadata"] = {"labels": {"size": "large"}}

        decision = decide(obj, facts(WORLD, presets=[preset()]), **BOTH, preference_scope=scope)

        assert set(changes(decision)) == left
        assert Code.SIZED in [reason.code for reason in decision.reasons]
        assert changes(decide(vm(), facts(WORLD, presets=[preset()]), **BOTH)) == INJECTED

    def test_presets_that_can_not_be_read_keep_no_default_away(self) -> None:
        decision = decide(vm(), facts(WORLD, presets=Unavailable("forbidden")), **BOTH)

        assert changes(decision) == INJECTED
        assert [warning.code for warning in decision.warnings] == [Code.LOOKUP_FAILED]
        assert "forbidden" in decision.warnings[0].text

    def test_a_mark_without_its_matcher_says_that_the_owner_removed_it(self) -> None:
        restored = vm(annotations={IT_MARK[2]: SMALL_MARK})

        decision = decide(restored, facts(WORLD), default_instancetype="u1.small")

        assert (decision.code, decision.changes) == (Code.OWNER_REMOVED_INSTANCETYPE, ())

    @pytest.mark.parametrize("text", ["u1 small", "/u1", "Foo/u1", "u1/", "VirtualMachinePreference/u1"])
    def test_a_default_that_is_none(self, text: str) -> None:
        decision = decide(vm(), facts(), default_instancetype=text)

        assert (decision.code, decision.changes) == (Code.DEFAULT_UNUSABLE, ())
        assert "kubevirt-webhook.github.io/default-instancetype" in decision.warnings[0].text

    def test_a_default_that_does_not_exist(self) -> None:
        world = facts([preference()], missing=[("VirtualMachineClusterInstancetype", "u1.small")])

        decision = decide(vm(), world, **BOTH)

        assert set(changes(decision)) == {("spec", "preference"), PREF_MARK}
        assert decision.warnings == (messages.default_missing("instancetype", SMALL_MARK),)

    def test_a_default_that_is_not_allowed(self) -> None:
        decision = decide(vm(), facts(WORLD), **BOTH, allowed=("cx1.*",))

        assert set(changes(decision)) == {("spec", "preference"), PREF_MARK}
        why = messages.not_allowed(SMALL_MARK, "demo", "cx1.*")
        assert decision.warnings == (messages.default_unusable("instancetype", why),)

    def test_a_default_that_can_not_be_read(self) -> None:
        world = facts([preference()], unreadable=[("VirtualMachineClusterInstancetype", "u1.small")])

        decision = decide(vm(), world, **BOTH)

        assert (decision.code, decision.changes) == (Code.LOOKUP_FAILED, ())
        assert "no answer in time" in decision.warnings[0].text

    def test_an_unreadable_configuration(self) -> None:
        decision = decide(vm(), facts(WORLD, configuration=Unavailable("not listed")), **BOTH)

        assert (decision.code, decision.changes) == (Code.LOOKUP_FAILED, ())

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

        assert (decision.code, decision.changes) == (Code.DEFAULT_CONFLICTS, ())

    def test_an_architecture_that_comes_from_a_volume_can_not_be_required(self) -> None:
        templates = [{"metadata": {"name": "root"}, "spec": {"sourceRef": {"kind": "DataSource", "name": "fedora"}}}]
        world = facts([instancetype(), preference(requirements={"architecture": "amd64"})])

        decision = decide(vm(dataVolumeTemplates=templates), world, **BOTH)

        assert set(changes(decision)) == {("spec", "instancetype"), IT_MARK}
        why = messages.default_conflicts("preference", FEDORA_MARK, messages.architecture_conflict())
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
        assert (decision.code, decision.denial.code) == (Code.DENIED, 422)
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

        assert (decision.code, decision.changes) == (Code.INVALID_OBJECT, ())
        assert "spec.template.spec.domain.cpu.sockets" in decision.warnings[0].text

    def test_vms_that_are_being_deleted_and_switches(self) -> None:
        dying = vm()
        dying["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"

        assert decide(dying, {}, **BOTH).code == Code.BEING_DELETED
        assert decide(vm(), {}, **BOTH, virtual_machines=False).code == Code.DISABLED


class TestExpansion:
    def test_what_the_matchers_say_is_written_out(self) -> None:
        obj = vm({"devices": {"disks": [{"name": "root", "disk": {}, "serial": "1"}]}})
        obj["spec"]["unknown"] = {"kept": True}

        decision = decide(obj, facts(WORLD), **BOTH, expand=True)

        got = applied(obj, decision)["spec"]
        assert decision.code == Code.EXPANDED
        assert not {"instancetype", "preference"} & set(got)
        assert got["template"]["spec"]["domain"]["memory"] == {"guest": "4Gi"}
        assert got["template"]["spec"]["domain"]["cpu"] == {"sockets": 2, "cores": 1, "threads": 1}
        assert got["template"]["spec"]["domain"]["devices"]["disks"][0]["disk"] == {"bus": "virtio"}
        assert got["unknown"] == {"kept": True}
        assert decision.notes == {"instancetype": SMALL_MARK, "preference": FEDORA_MARK}

    def test_an_owners_matcher_too(self) -> None:
        got = applied(obj := vm(instancetype=SMALL), decide(obj, facts(WORLD), expand=True))

        assert got["spec"]["template"]["spec"]["domain"]["memory"] == {"guest": "4Gi"}

    def test_a_revision_counts_whatever_kind_stands_beside_it(self) -> None:
        obj = vm(instancetype={"kind": "Nonsense", "name": "x", "revisionName": "r1"})

        decision = decide(obj, facts([revision("r1", instancetype())]), expand=True)

        assert decision.notes == {"instancetype": "ControllerRevision/r1"}
        assert applied(obj, decision)["spec"]["template"]["spec"]["domain"]["memory"] == {"guest": "4Gi"}

    @pytest.mark.parametrize("field", ["instancetype", "preference"])
    @pytest.mark.parametrize("given_", [{"inferFromVolume": "root"}, {"name": "missing"}])
    def test_what_can_not_be_told_stays(self, field: str, given_: Json) -> None:
        kinds = ("VirtualMachineClusterInstancetype", "VirtualMachineClusterPreference")
        world = facts(missing=[(kind, "missing") for kind in kinds])

        decision = decide(vm(**{field: given_}), world, expand=True)

        assert not decision.changes
        assert [warning.code for warning in decision.warnings] == [decision.code]
        assert decision.code == (Code.NOT_INFERRED if "inferFromVolume" in given_ else Code.DENIED)

    @pytest.mark.parametrize(
        ("spec", "settings"),
        [
            ({"instancetype": SMALL, "preference": {"name": "big"}}, {}),
            ({"instancetype": SMALL, "preference": {"name": "thirds"}}, {}),
            ({"instancetype": SMALL}, {"allowed": ("cx1.*",)}),
            ({"instancetype": SMALL | {"revisionName": "r1"}}, {"allowed": ("u1.small",)}),
        ],
    )
    def test_what_the_validation_will_refuse_is_left_to_it(self, spec: Json, settings: dict[str, Any]) -> None:
        big = preference("big", requirements={"cpu": {"guest": 8}})
        thirds = preference("thirds", cpu={"preferredCPUTopology": "spread", "spreadOptions": {"ratio": 3}})
        world = facts([*WORLD, big, thirds, revision("r1", instancetype("u1.large"))])

        decision = decide(vm(**spec), world, expand=True, **settings)
        validated = decide(vm(**spec), world, verb="validate", **settings)

        assert (decision.code, decision.changes, decision.warnings) == (Code.DENIED, (), ())
        assert validated.denial

    def test_an_architecture_that_comes_from_a_volume_is_not_frozen(self) -> None:
        source = {"metadata": {"name": "root"}, "spec": {"sourceRef": {"kind": "DataSource", "name": "fedora"}}}
        obj = vm(instancetype=SMALL, dataVolumeTemplates=[source])

        decision = decide(obj, facts(WORLD), expand=True)

        assert (decision.code, decision.changes) == (Code.NOT_INFERRED, ())
        assert decision.warnings == (messages.not_expanded_architecture(),)
        obj["spec"]["template"]["spec"]["architecture"] = "arm64"
        assert decide(obj, facts(WORLD), expand=True).code == Code.EXPANDED

    def test_the_storage_class_that_kubevirt_fills_in_at_admission(self) -> None:
        world = facts([preference("fast", volumes={"preferredStorageClassName": "fast"})])
        templates = [
            {"metadata": {"name": "a"}, "spec": {"storage": {}, "source": {"blank": {}}}},
            {"metadata": {"name": "b"}, "spec": {"pvc": {"storageClassName": "own"}, "source": {"blank": {}}}},
        ]
        obj = vm(preference={"name": "fast"}, dataVolumeTemplates=templates)

        got = applied(obj, decide(obj, world, expand=True))["spec"]["dataVolumeTemplates"]

        assert got[0]["spec"] == {"storage": {"storageClassName": "fast"}, "source": {"blank": {}}}
        assert got[1] == templates[1]

    def test_only_new_vms_are_expanded(self) -> None:
        assert not decide(
            vm(instancetype=SMALL, runStrategy="Halted"), facts(WORLD), vm(instancetype=SMALL), expand=True
        ).changes

    def test_a_vm_without_matchers_has_nothing_to_expand(self) -> None:
        assert not decide(vm({"cpu": {"cores": 1}}), facts(WORLD), **BOTH, expand=True).changes


_NAMES = st.sampled_from(["u1.small", "u1.large", "odd"])
_ITS = [
    instancetype(),
    instancetype("u1.large", nodeSelector={"zone": "a"}, gpus=[{"name": "g", "deviceName": "nvidia.com/x"}]),
    instancetype(
        "odd", cpu={"guest": 3, "dedicatedCPUPlacement": True}, memory={"guest": "1Gi", "overcommitPercent": 15}
    ),
]
_PREFS = [
    preference(),
    preference("big", requirements={"cpu": {"guest": 3}, "memory": {"guest": "2Gi"}}),
    preference("spread", cpu={"preferredCPUTopology": "spread"}),
    preference("crash", cpu={"preferredCPUFeatures": [{"name": "vmx"}]}),
    preference("arm", requirements={"architecture": "arm64"}, preferredArchitecture="arm64"),
]
_DOMAINS: st.SearchStrategy[Any] = st.fixed_dictionaries(
    {},
    optional={
        "cpu": st.fixed_dictionaries({}, optional={"dedicatedCpuPlacement": st.booleans(), "cores": st.integers(0, 2)}),
        "memory": st.fixed_dictionaries({}, optional={"guest": st.just("1Gi"), "maxGuest": st.just("8Gi")}),
        "ioThreadsPolicy": st.just("auto"),
    },
)


@given(
    domain=_DOMAINS,
    template=st.fixed_dictionaries(
        {}, optional={"nodeSelector": st.just({"zone": "b"}), "architecture": st.just("amd64")}
    ),
    own=st.sampled_from([None, {"name": "odd"}]),
    default=_NAMES,
    preferred=st.sampled_from(["fedora", "big", "spread", "crash", "arm"]),
    scope=st.sampled_from(["unsized", "all"]),
)
def test_nothing_is_injected_that_kubevirt_would_refuse(
    domain: Json, template: Json, own: Json | None, default: str, preferred: str, scope: str
) -> None:
    obj = vm(domain, template=template, **({"instancetype": own} if own else {}))
    world = facts([*_ITS, *_PREFS])

    decision = decide(obj, world, default_instancetype=default, default_preference=preferred, preference_scope=scope)

    assert not decision.denial
    if decision.changes:
        get = among([*_ITS, *_PREFS])
        after = vm_admitter.mutate(applied(obj, decision), get, lambda: "u").vm
        assert vm_admitter.validate(after, get).is_allowed
        again = decide(applied(obj, decision), world, default_instancetype=default, default_preference=preferred)
        assert not again.changes


class TestReleases:
    @staticmethod
    def world(version: str, *objects: Json) -> Any:
        parsed = parse_version(version)
        assert parsed
        return facts(objects, configuration=ClusterConfig.of(None, rules=rules_of(release_of(parsed))))

    @pytest.mark.parametrize("old", [None, vm({"memory": {"guest": "1Gi"}})])
    def test_of_one_that_is_too_old_nothing_is_changed(self, old: Json | None) -> None:
        decision = decide(vm(), self.world("1.5", *WORLD), old, **BOTH)

        assert (decision.code, decision.changes, decision.denial) == (Code.KUBEVIRT_TOO_OLD, (), None)
        assert decision.warnings

    def test_a_default_that_kubevirt_1_6_has_given_a_kind_is_still_ours(self) -> None:
        """It writes the cluster-wide kind in lower case into the matcher that we had left without."""
        matcher = {**SMALL, "kind": "virtualmachineclusterinstancetype"}
        given = vm(annotations={IT_MARK[2]: SMALL_MARK}, instancetype=matcher)
        sized = copy.deepcopy(given)
        sized["spec"]["template"]["spec"]["domain"]["memory"] = {"guest": "8Gi"}

        decision = decide(sized, self.world("1.6", *WORLD), given, **BOTH)

        assert decision.code == Code.DEFAULT_WITHDRAWN
        assert changes(decision)["spec", "instancetype"] is None

    def test_what_fits_one_release_does_not_fit_another(self) -> None:
        hotplug = vm({"memory": {"maxGuest": "16Gi"}})

        assert decide(hotplug, self.world("1.7", *WORLD), **BOTH).code == Code.DEFAULTS_INJECTED
        assert "memory" in decide(hotplug, self.world("1.6", *WORLD), **BOTH).warnings[0].text
