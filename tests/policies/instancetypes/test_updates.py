"""Defaults at UPDATE: whatever an owner writes, in whatever way, makes the VM that it would make anew."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.builders import Json
from tests.owners import CLUSTER_WIDE, OF_THE_NAMESPACE, OPTIONS, WAYS, WrittenField, manifest_of, marks_of
from tests.policies.instancetypes.api_server import ApiServer, Refused
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
    revision,
    vm,
)
from webhook.admission.reasons import common, instancetypes

INJECTED_ANNOTATIONS = {IT_MARK[2]: SMALL_MARK, PREF_MARK[2]: FEDORA_MARK}
# Changes that remove a default.
GONE = {("spec", "instancetype"): None, IT_MARK: None}
PREFERENCE_GONE = {("spec", "preference"): None, PREF_MARK: None}
OURS = vm(annotations=INJECTED_ANNOTATIONS, instancetype=SMALL, preference=FEDORA)
OWN = {"kind": "VirtualMachineInstancetype", "name": "own"}
OWN_MARK = "VirtualMachineInstancetype/own"


def declared(obj: Json, field: str, *members: str) -> Json:
    """A VM as a server-side apply leaves it that declares members of a matcher."""
    fields: Json = {"f:spec": {f"f:{field}": {f"f:{member}": {} for member in members}}}
    obj["metadata"]["managedFields"] = [{"manager": "flux", "operation": "Apply", "fieldsV1": fields}]
    return obj


class TestWhatIsPutBack:
    OLD = vm(annotations={IT_MARK[2]: SMALL_MARK, PREF_MARK[2]: FEDORA_MARK}, instancetype=SMALL, preference=FEDORA)

    def test_an_overwrite_by_a_pool_is_repaired_whoever_asks(self) -> None:
        new = vm(annotations={"pool": "x"}, runStrategy="Halted")

        decision = decide(new, facts(WORLD), self.OLD)

        assert (decision.code, changes(decision)) == (instancetypes.DEFAULTS_PRESERVED, INJECTED)
        assert applied(new, decision)["metadata"]["annotations"]["pool"] == "x"

    def test_what_is_put_back_is_what_was_there(self) -> None:
        old = copy.deepcopy(self.OLD)
        old["spec"]["instancetype"] = {**SMALL, "revisionName": "r1"}
        world = facts([*WORLD, revision("r1", instancetype())])

        decision = decide(vm(runStrategy="Halted"), world, old)

        assert changes(decision)["spec", "instancetype"] == {**SMALL, "revisionName": "r1"}

    def test_a_default_that_is_gone_counts_by_its_revision(self) -> None:
        old = copy.deepcopy(self.OLD)
        old["status"] = {
            "instancetypeRef": {"name": "u1.small", "controllerRevisionRef": {"name": "r1"}},
            "preferenceRef": {"name": "fedora", "controllerRevisionRef": {"name": "r2"}},
        }
        world = facts([revision("r1", instancetype()), revision("r2", preference())])

        assert changes(decide(vm(runStrategy="Halted"), world, old)) == INJECTED

    @pytest.mark.parametrize("field", ["instancetype", "preference"])
    def test_an_owner_who_names_another_or_leaves_the_mark_means_it(self, field: str) -> None:
        other = vm(runStrategy="Halted", **{field: {"name": "other"}})
        world = facts([*WORLD, instancetype("other"), preference("other")])
        marked = vm(annotations={(IT_MARK if field == "instancetype" else PREF_MARK)[2]: "x"}, runStrategy="Halted")

        assert ("spec", field) not in changes(decide(other, world, self.OLD))
        assert ("spec", field) not in changes(decide(marked, world, self.OLD))

    def test_an_owner_who_now_says_a_size_means_it(self) -> None:
        decision = decide(vm({"cpu": {"cores": 4}}), facts(WORLD), self.OLD)
        assert (decision.code, decision.changes) == (instancetypes.SIZED, ())

    def test_a_preference_beside_a_size_stays_whatever_the_scope_is_now(self) -> None:
        old = vm({"cpu": {"cores": 2}}, annotations={PREF_MARK[2]: FEDORA_MARK}, preference=FEDORA)
        decision = decide(vm({"cpu": {"cores": 4}}), facts(WORLD), old)
        assert changes(decision) == {("spec", "preference"): FEDORA, PREF_MARK: FEDORA_MARK}

    def test_an_owner_may_opt_out_in_the_same_update(self) -> None:
        off = vm(annotations={"kubevirt-webhook.github.io/instancetypes": "off"}, runStrategy="Halted")
        assert not decide(off, facts(WORLD), self.OLD).changes

    def test_a_mark_that_does_not_fit_its_matcher_is_not_ours(self) -> None:
        old = copy.deepcopy(self.OLD)
        old["spec"]["instancetype"] = {"name": "chosen-later"}
        assert ("spec", "instancetype") not in changes(decide(vm(runStrategy="Halted"), facts(WORLD), old))

    def test_nothing_new_is_ever_added(self) -> None:
        decision = decide(vm(runStrategy="Halted"), facts(WORLD), vm(), **BOTH)
        assert (decision.code, decision.changes) == (common.NOTHING_TO_PRESERVE, ())

    def test_a_changed_default_does_not_reach_old_vms(self) -> None:
        decision = decide(vm(runStrategy="Halted"), facts(WORLD), self.OLD, default_instancetype="u1.large")
        assert changes(decision)["spec", "instancetype"] == SMALL

    def test_what_kubevirt_would_refuse_is_not_put_back(self) -> None:
        world = facts([instancetype(nodeSelector={"a": "b"}), preference()])

        decision = decide(vm(template={"nodeSelector": {"c": "d"}}), world, self.OLD)

        assert ("spec", "instancetype") not in changes(decision)
        assert "nodeSelector conflicts" in decision.warnings[0].text

    def test_an_inference_that_was_merged_into_our_default_wins(self) -> None:
        merged = vm(annotations=self.OLD["metadata"]["annotations"], instancetype={**SMALL, "inferFromVolume": "root"})

        decision = decide(merged, facts(WORLD), self.OLD)

        assert decision.code == instancetypes.DEFAULT_WITHDRAWN
        got = applied(merged, decision)
        assert got["spec"]["instancetype"] == {"inferFromVolume": "root"}
        assert set(got["metadata"]["annotations"]) == {PREF_MARK[2]}

    @pytest.mark.parametrize("mark", [None, "VirtualMachineClusterInstancetype/other"])
    def test_an_inference_beside_an_owners_own_name_is_left_to_kubevirt(self, mark: str | None) -> None:
        old = vm(annotations={IT_MARK[2]: mark} if mark else {}, instancetype=SMALL)
        merged = vm(annotations=old["metadata"]["annotations"], instancetype={**SMALL, "inferFromVolume": "root"})
        assert not decide(merged, facts(WORLD), old).changes

    def test_an_unchanged_spec_is_not_looked_at(self) -> None:
        assert decide(self.OLD, {}, self.OLD).code == instancetypes.UNCHANGED

    def test_a_crash_by_update_is_refused(self) -> None:
        crashing = preference("crash", cpu={"preferredCPUFeatures": [{"name": "vmx"}]})
        assert decide(vm(preference={"name": "crash"}), facts([crashing]), vm()).denial


class TestGivingWay:
    """A default that stands in the way of what its owner writes leaves in the same request."""

    def test_a_size(self) -> None:
        new = vm({"memory": {"guest": "8Gi"}}, annotations=INJECTED_ANNOTATIONS, instancetype=SMALL, preference=FEDORA)

        decision = decide(new, facts(WORLD), OURS)

        assert decision.code == instancetypes.DEFAULT_WITHDRAWN
        assert changes(decision) == GONE | PREFERENCE_GONE
        assert len(decision.warnings) == 1

    def test_beside_which_a_preference_may_stand(self) -> None:
        new = vm({"memory": {"guest": "8Gi"}}, annotations=INJECTED_ANNOTATIONS, instancetype=SMALL, preference=FEDORA)
        assert changes(decide(new, facts(WORLD), OURS, default_preference_scope="all")) == GONE

    def test_what_conflicts_without_being_a_size(self) -> None:
        new = vm(
            annotations=INJECTED_ANNOTATIONS,
            instancetype=SMALL,
            preference=FEDORA,
            template={"nodeSelector": {"zone": "a"}},
        )
        world = facts([instancetype(nodeSelector={"zone": "b"}), preference()])

        decision = decide(new, world, OURS)

        assert changes(decision) == GONE
        assert "nodeSelector" in decision.warnings[0].text
        assert decision.reasons[-1].code == instancetypes.UNSIZED

    def test_what_did_not_fit_before_is_not_the_owners_doing(self) -> None:
        demanding = preference(requirements={"cpu": {"guest": 64}})
        new = vm(
            annotations=INJECTED_ANNOTATIONS,
            instancetype=SMALL,
            preference=FEDORA,
            template={"terminationGracePeriodSeconds": 5},
        )
        assert not decide(new, facts([instancetype(), demanding]), OURS).changes

    def test_nothing_is_looked_up_where_nothing_that_matters_changes(self) -> None:
        new = vm(annotations={IT_MARK[2]: SMALL_MARK}, instancetype=SMALL, runStrategy="Halted")
        old = vm(annotations={IT_MARK[2]: SMALL_MARK}, instancetype=SMALL)
        assert decide(new, facts(), old).code == instancetypes.UNCHANGED

    def test_what_a_manifest_declares_is_the_owners_and_stays(self) -> None:
        new = vm({"memory": {"guest": "8Gi"}}, annotations=INJECTED_ANNOTATIONS, instancetype=SMALL, preference=FEDORA)
        old = declared(copy.deepcopy(OURS), "instancetype", "name")
        assert ("spec", "instancetype") not in changes(decide(declared(new, "instancetype", "name"), facts(WORLD), old))

    def test_our_own_scheduler_is_nobodys_conflict(self) -> None:
        mark = "kubevirt-webhook.github.io/injected-scheduler"
        annotations = {PREF_MARK[2]: FEDORA_MARK, mark: "kubevirt"}
        ours = {"schedulerName": "kubevirt"}
        old = vm(annotations=annotations, preference=FEDORA, template=ours)
        new = vm(annotations=annotations, preference=FEDORA, template=ours, instancetype={"name": "placed"})

        assert not decide(new, facts([*WORLD, instancetype("placed", schedulerName="volcano")]), old).changes

    def test_what_can_not_be_read_keeps_only_the_rest(self) -> None:
        new = vm({"memory": {"guest": "8Gi"}}, annotations=INJECTED_ANNOTATIONS, instancetype=SMALL, preference=FEDORA)
        world = facts(unreadable=[("VirtualMachineClusterPreference", "fedora")])

        decision = decide(new, world, OURS, default_preference_scope="all")

        assert changes(decision) == GONE
        assert "no answer in time" in decision.warnings[0].text

    def test_what_can_not_be_read_at_all_changes_nothing(self) -> None:
        new = vm(
            annotations=INJECTED_ANNOTATIONS,
            instancetype=SMALL,
            preference=FEDORA,
            template={"terminationGracePeriodSeconds": 5},
        )
        world = facts([preference()], unreadable=[("VirtualMachineClusterInstancetype", "u1.small")])
        assert decide(new, world, OURS).code == common.LOOKUP_FAILED


class TestSize:
    """An owner who removes the only size of a VM gets a warning."""

    @pytest.mark.parametrize(
        "old",
        [
            vm(instancetype=SMALL),
            vm({"memory": {"guest": "1Gi"}}),
            vm({"resources": {"limits": {"memory": "1Gi"}}}),
            vm({"memory": {"hugepages": {"pageSize": "2Mi"}}}),
        ],
    )
    def test_it_warns(self, old: Json) -> None:
        decision = decide(vm({"cpu": {"cores": 2}}), facts(WORLD), old)
        assert (decision.code, decision.changes, len(decision.warnings)) == (instancetypes.UNSIZED, (), 1)

    @pytest.mark.parametrize(
        ("old", "new"),
        [
            (vm({"cpu": {"cores": 2}}), vm()),
            (vm({"memory": {"guest": "1Gi"}}), vm(instancetype=SMALL)),
            (vm(instancetype=SMALL), vm({"memory": {"guest": "1Gi"}})),
            (vm({"memory": {"guest": "1Gi"}}), vm({"resources": {"requests": {"memory": "1Gi"}}})),
        ],
    )
    def test_where_there_was_none_or_is_another_it_does_not(self, old: Json, new: Json) -> None:
        assert not decide(new, facts(WORLD), old).warnings

    def test_nor_where_a_preset_gives_one(self) -> None:
        new = vm()
        new["spec"]["template"]["metadata"] = {"labels": {"size": "large"}}
        assert not decide(new, facts(WORLD, presets=[preset()]), vm(instancetype=SMALL)).warnings


class TestExpanded:
    """A default that KubeVirt or the webhook has expanded survives the overwrite of a pool all the same."""

    DOMAIN = {"cpu": {"sockets": 2, "cores": 1, "threads": 1}, "memory": {"guest": "4Gi"}}

    def expanded(self, *managers: str, annotations: Json | None = None) -> Json:
        """A VM as it is stored; managers are those who wrote the guest's memory."""
        made = vm(self.DOMAIN, annotations=INJECTED_ANNOTATIONS if annotations is None else annotations)
        fields: Json = {}
        inner = fields
        for segment in ("spec", "template", "spec", "domain", "memory", "guest"):
            inner = inner.setdefault(f"f:{segment}", {})
        entries = [{"manager": manager, "operation": "Update", "fieldsV1": fields} for manager in managers]
        made["metadata"]["managedFields"] = entries
        return made

    @pytest.mark.parametrize("managers", [(), ("virt-controller",)])
    def test_both_are_put_back(self, managers: tuple[str, ...]) -> None:
        decision = decide(vm(runStrategy="Halted"), facts(WORLD), self.expanded(*managers))
        assert (decision.code, changes(decision)) == (instancetypes.DEFAULTS_PRESERVED, INJECTED)
        assert not decision.warnings

    @pytest.mark.parametrize("managers", [("kubectl-edit",), ("virt-controller", "flux")])
    def test_a_size_that_its_owner_wrote_is_none_of_ours(self, managers: tuple[str, ...]) -> None:
        decision = decide(vm(runStrategy="Halted"), facts(WORLD), self.expanded(*managers))
        assert (decision.code, decision.changes) == (instancetypes.UNSIZED, ())

    def test_while_the_marks_stay_nothing_was_overwritten(self) -> None:
        new = self.expanded()
        new["spec"]["runStrategy"] = "Halted"
        assert decide(new, facts(WORLD), self.expanded()).code == common.NOTHING_TO_PRESERVE

    def test_an_overwrite_that_says_a_size_gets_neither(self) -> None:
        decision = decide(vm({"memory": {"guest": "1Gi"}}), facts(WORLD), self.expanded())
        assert (decision.code, decision.changes) == (instancetypes.SIZED, ())

    def test_a_preference_alone_was_not_expanded(self) -> None:
        old = self.expanded(annotations={PREF_MARK[2]: FEDORA_MARK})
        assert not decide(vm({"memory": {"guest": "4Gi"}}), facts(WORLD), old).changes

    def test_a_mark_that_names_nothing_is_none(self) -> None:
        old = self.expanded(annotations={IT_MARK[2]: "any thing"})
        assert decide(vm(), facts(WORLD), old).code == instancetypes.UNSIZED


CHOICES: Any = st.fixed_dictionaries({part: st.sampled_from(options) for part, options in OPTIONS.items()})


def written(server: ApiServer, way: str, after: Json, before: Json | None = None) -> Json | None:
    try:
        return server.write(way, after, before)
    except Refused:
        return None


@given(
    first=CHOICES,
    second=CHOICES,
    way=st.sampled_from(WAYS),
    defaults=st.sampled_from([CLUSTER_WIDE, OF_THE_NAMESPACE]),
    scope=st.sampled_from(["unsized", "all"]),
)
def test_the_second_manifest_makes_the_vm_that_it_would_make_anew(
    first: Json, second: Json, way: str, defaults: tuple[str, str], scope: str
) -> None:
    server = ApiServer(default_instancetype=defaults[0], default_preference=defaults[1], default_preference_scope=scope)
    before, after = manifest_of(first), manifest_of(second)
    there = written(server, way, before)
    if there is None:
        return

    stored = written(server, way, after, before)
    created = written(server, way, manifest_of(second, "new"))

    assert list(WrittenField(way, after, there, stored, created).surprises()) == []
    if stored is not None:
        again = written(server, way, after, after)
        assert again is not None
        assert (again["spec"], marks_of(again)) == (stored["spec"], marks_of(stored))


class TestMerging:
    """The policy distinguishes what an applier or a patch merged into an injected default from that default."""

    OLD = vm(annotations={IT_MARK[2]: OWN_MARK}, instancetype=OWN)
    OBJECTS = (instancetype("own", kind="VirtualMachineInstancetype"), instancetype("big"))

    def merged(self, **matcher: Any) -> Json:
        return vm(annotations={IT_MARK[2]: OWN_MARK}, instancetype={**OWN, **matcher})

    def test_a_declared_name_comes_without_our_kind(self) -> None:
        new = declared(self.merged(name="big"), "instancetype", "name")

        decision = decide(new, facts(self.OBJECTS), self.OLD)

        assert (decision.code, decision.warnings) == (instancetypes.DEFAULT_WITHDRAWN, ())
        assert changes(decision) == {("spec", "instancetype"): {"name": "big"}, IT_MARK: None}

    def test_the_very_name_of_the_default_too(self) -> None:
        new = declared(self.merged(), "instancetype", "name")
        new["spec"]["runStrategy"] = "Halted"
        assert changes(decide(new, facts(), self.OLD))["spec", "instancetype"] == {"name": "own"}

    def test_what_is_declared_in_full_only_loses_the_mark(self) -> None:
        new = declared(self.merged(), "instancetype", "name", "kind")
        new["spec"]["runStrategy"] = "Halted"
        assert {path: new for path, new in changes(decide(new, facts(), self.OLD)).items() if path != IT_MARK} == {
            ("spec", "instancetype"): OWN
        }

    @pytest.mark.parametrize(
        ("objects", "expected"),
        [
            ([instancetype("big")], {"name": "big"}),
            ([instancetype("big", kind="VirtualMachineInstancetype")], {**OWN, "name": "big"}),
            ([instancetype("big"), instancetype("big", kind="VirtualMachineInstancetype")], {**OWN, "name": "big"}),
            ([], {"name": "big"}),
        ],
    )
    def test_of_a_patched_name_the_objects_that_there_are_decide(self, objects: list[Json], expected: Json) -> None:
        kinds = {"VirtualMachineInstancetype", "VirtualMachineClusterInstancetype"}
        missing = [(kind, "big") for kind in kinds - {found["kind"] for found in objects}]

        decision = decide(self.merged(name="big"), facts(objects, missing), self.OLD)

        assert changes(decision)["spec", "instancetype"] == expected
        assert len(decision.warnings) == 1

    def test_a_cluster_wide_kind_of_ours_goes_without_a_question(self) -> None:
        explicit = {"kind": "VirtualMachineClusterInstancetype", **SMALL}
        old = vm(annotations={IT_MARK[2]: SMALL_MARK}, instancetype=explicit)
        new = vm(annotations={IT_MARK[2]: SMALL_MARK}, instancetype={**explicit, "name": "big"})

        decision = decide(new, facts([instancetype("big")]), old)

        assert changes(decision)["spec", "instancetype"] == {"name": "big"}
        assert not decision.warnings

    @pytest.mark.parametrize("name", [5, None, {"a": 1}])
    def test_a_name_that_is_none_is_left_to_the_api_server(self, name: Any) -> None:
        new = self.merged(name=name)
        assert decide(new, facts(), self.OLD).code in (common.INVALID_OBJECT, instancetypes.OWNER_REMOVED_INSTANCETYPE)

    @pytest.mark.parametrize("given", ["own", [], 5, True])
    def test_a_matcher_of_another_type_is_left_to_the_api_server(self, given: Any) -> None:
        new = vm(annotations={IT_MARK[2]: OWN_MARK}, instancetype=given)
        assert decide(new, facts(), self.OLD).code == common.INVALID_OBJECT

    def test_without_its_mark_a_matcher_was_written_anew(self) -> None:
        assert not decide(vm(instancetype={**OWN, "name": "big"}), facts(self.OBJECTS), self.OLD).changes

    def test_a_revision_of_ours_goes_with_the_name_and_one_that_is_added_stays(self) -> None:
        pinned = copy.deepcopy(self.OLD)
        pinned["spec"]["instancetype"]["revisionName"] = "r1"
        objects = [*self.OBJECTS, revision("r1", instancetype("own"))]

        named = decide(
            declared(self.merged(name="big", revisionName="r1"), "instancetype", "name"), facts(objects), pinned
        )
        restored = decide(self.merged(revisionName="r1"), facts(objects), self.OLD)

        assert changes(named)["spec", "instancetype"] == {"name": "big"}
        assert (restored.code, restored.changes) == (instancetypes.UNCHANGED, ())

    def test_what_is_left_of_ours_without_a_name_is_nothing(self) -> None:
        new = vm(annotations={IT_MARK[2]: OWN_MARK}, instancetype={"kind": "VirtualMachineInstancetype"})

        decision = decide(new, facts(), self.OLD)

        assert changes(decision) == {("spec", "instancetype"): None}
        assert decision.reasons[0].code == instancetypes.OWNER_REMOVED_INSTANCETYPE

    def test_a_mark_that_a_manifest_declares_stays(self) -> None:
        new = declared(self.merged(name="big"), "instancetype", "name")
        new["metadata"]["managedFields"][0]["fieldsV1"]["f:metadata"] = {"f:annotations": {f"f:{IT_MARK[2]}": {}}}
        assert IT_MARK not in changes(decide(new, facts(self.OBJECTS), self.OLD))
