"""Defaults at UPDATE: whatever an owner writes, in whatever way, makes the VM that it would make anew."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.builders import Json
from tests.owners import CLUSTER_WIDE, OF_THE_NAMESPACE, OPTIONS, WAYS, WrittenField, manifest_of, marks_of
from tests.policies.decisions import changes, declaring, patched
from tests.policies.instancetypes.api_server import ApiServer, Refused
from tests.policies.instancetypes.world import (
    BOTH,
    CRASHING,
    FEDORA,
    FEDORA_MARK,
    INJECTED,
    IT_MARK,
    PREF_MARK,
    SMALL,
    SMALL_MARK,
    WORLD,
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
PINNED = OURS | {"spec": OURS["spec"] | {"instancetype": {**SMALL, "revisionName": "r1"}}}
OWN = {"kind": "VirtualMachineInstancetype", "name": "own"}
OWN_MARK = "VirtualMachineInstancetype/own"


def declared(obj: Json, *members: str) -> Json:
    """A VM as a server-side apply leaves it that declares members of the instancetype's matcher."""
    return declaring(obj, *(("spec", "instancetype", member) for member in members))


def halted(**more: Any) -> Json:
    return vm(runStrategy="Halted", **more)


class TestWhatIsPutBack:
    def test_an_overwrite_by_a_pool_is_repaired_whoever_asks(self) -> None:
        new = halted(annotations={"pool": "x"})
        decision = decide(new, facts(WORLD), OURS)

        assert (decision.code, changes(decision)) == (instancetypes.DEFAULTS_PRESERVED, INJECTED)
        assert patched(new, decision)["metadata"]["annotations"]["pool"] == "x"

    def test_what_is_put_back_is_what_was_there(self) -> None:
        world = facts([*WORLD, revision("r1", instancetype())])
        for old, there in ((OURS, SMALL), (PINNED, PINNED["spec"]["instancetype"])):
            decision = decide(halted(), world, old, default_instancetype="u1.large")
            assert changes(decision)["spec", "instancetype"] == there

    def test_a_default_that_is_gone_counts_by_its_revision(self) -> None:
        references = {"instancetype": SMALL, "preference": FEDORA}
        status = {
            f"{field}Ref": name | {"controllerRevisionRef": {"name": field}} for field, name in references.items()
        }
        world = facts([revision("instancetype", instancetype()), revision("preference", preference())])
        assert changes(decide(halted(), world, OURS | {"status": status})) == INJECTED

    @pytest.mark.parametrize("field", ["instancetype", "preference"])
    def test_an_owner_who_names_another_or_leaves_the_mark_means_it(self, field: str) -> None:
        world = facts([*WORLD, instancetype("other"), preference("other")])
        marked = halted(annotations={(IT_MARK if field == "instancetype" else PREF_MARK)[2]: "x"})

        for new in (halted(**{field: {"name": "other"}}), marked):
            assert ("spec", field) not in changes(decide(new, world, OURS))

    def test_a_preference_beside_a_size_stays_whatever_the_scope_is_now(self) -> None:
        old = vm({"cpu": {"cores": 2}}, annotations={PREF_MARK[2]: FEDORA_MARK}, preference=FEDORA)
        decision = decide(vm({"cpu": {"cores": 4}}), facts(WORLD), old)
        assert changes(decision) == {("spec", "preference"): FEDORA, PREF_MARK: FEDORA_MARK}

    @pytest.mark.parametrize(
        ("new", "old", "settings", "code"),
        [
            # An owner who now says a size means it.
            (vm({"cpu": {"cores": 4}}), OURS, {}, instancetypes.SIZED),
            (halted(annotations={"kubevirt-webhook.github.io/instancetypes": "off"}), OURS, {}, None),
            # Nothing new is ever added.
            (halted(), vm(), BOTH, common.NOTHING_TO_PRESERVE),
            # An unchanged spec is not looked at.
            (OURS, OURS, {}, instancetypes.UNCHANGED),
        ],
        ids=["size", "opt-out", "nothing to put back", "unchanged"],
    )
    def test_what_is_not_put_back(self, new: Json, old: Json, settings: dict[str, Any], code: str | None) -> None:
        decision = decide(new, facts(WORLD), old, **settings)

        assert decision.changes == ()
        assert code in (decision.code, None)

    def test_a_mark_that_does_not_fit_its_matcher_is_not_ours(self) -> None:
        old = OURS | {"spec": OURS["spec"] | {"instancetype": {"name": "chosen-later"}}}
        assert ("spec", "instancetype") not in changes(decide(halted(), facts(WORLD), old))

    def test_what_kubevirt_would_refuse_is_not_put_back(self) -> None:
        world = facts([instancetype(nodeSelector={"a": "b"}), preference()])
        decision = decide(vm(template={"nodeSelector": {"c": "d"}}), world, OURS)

        assert ("spec", "instancetype") not in changes(decision)
        assert "nodeSelector conflicts" in decision.warnings[0].text

    def test_an_inference_that_was_merged_into_our_default_wins(self) -> None:
        merged = vm(annotations=INJECTED_ANNOTATIONS, instancetype={**SMALL, "inferFromVolume": "root"})
        decision = decide(merged, facts(WORLD), OURS)

        assert decision.code == instancetypes.DEFAULT_WITHDRAWN
        assert changes(decision) == {("spec", "instancetype"): {"inferFromVolume": "root"}, IT_MARK: None}

    @pytest.mark.parametrize("annotations", [{}, {IT_MARK[2]: "VirtualMachineClusterInstancetype/other"}])
    def test_an_inference_beside_an_owners_own_name_is_left_to_kubevirt(self, annotations: Json) -> None:
        merged = vm(annotations=annotations, instancetype={**SMALL, "inferFromVolume": "root"})
        assert not decide(merged, facts(WORLD), vm(annotations=annotations, instancetype=SMALL)).changes

    def test_a_crash_by_update_is_refused(self) -> None:
        assert decide(vm(preference=FEDORA), facts([CRASHING]), vm()).denial


def marked(domain: Json | None = None, **template: Any) -> Json:
    """The VM with both defaults as its owner now writes it."""
    matchers: Json = {"instancetype": SMALL, "preference": FEDORA}
    return vm(domain, annotations=INJECTED_ANNOTATIONS, template=template or None, **matchers)


LARGE = {"memory": {"guest": "8Gi"}}


class TestGivingWay:
    """A default that stands in the way of what its owner writes leaves in the same request."""

    @pytest.mark.parametrize(("scope", "gone"), [("unsized", GONE | PREFERENCE_GONE), ("all", GONE)])
    def test_a_size(self, scope: str, gone: Any) -> None:
        decision = decide(marked(LARGE), facts(WORLD), OURS, default_preference_scope=scope)

        assert (decision.code, changes(decision)) == (instancetypes.DEFAULT_WITHDRAWN, gone)
        assert len(decision.warnings) == 1

    def test_what_conflicts_without_being_a_size(self) -> None:
        world = facts([instancetype(nodeSelector={"zone": "b"}), preference()])
        decision = decide(marked(nodeSelector={"zone": "a"}), world, OURS)

        assert changes(decision) == GONE
        assert "nodeSelector" in decision.warnings[0].text
        assert decision.reasons[-1].code == instancetypes.UNSIZED

    def test_what_did_not_fit_before_is_not_the_owners_doing(self) -> None:
        world = facts([instancetype(), preference(requirements={"cpu": {"guest": 64}})])
        assert not decide(marked(terminationGracePeriodSeconds=5), world, OURS).changes

    def test_nothing_is_looked_up_where_nothing_that_matters_changes(self) -> None:
        ours: Json = {"annotations": {IT_MARK[2]: SMALL_MARK}, "instancetype": SMALL}
        assert decide(halted(**ours), facts(), vm(**ours)).code == instancetypes.UNCHANGED

    def test_what_a_manifest_declares_is_the_owners_and_stays(self) -> None:
        new, old = (declared(copy.deepcopy(obj), "name") for obj in (marked(LARGE), OURS))
        assert ("spec", "instancetype") not in changes(decide(new, facts(WORLD), old))

    def test_our_own_scheduler_is_nobodys_conflict(self) -> None:
        annotations = {PREF_MARK[2]: FEDORA_MARK, "kubevirt-webhook.github.io/injected-scheduler": "kubevirt"}
        ours: Json = {"annotations": annotations, "preference": FEDORA, "template": {"schedulerName": "kubevirt"}}
        world = facts([*WORLD, instancetype("placed", schedulerName="volcano")])
        assert not decide(vm(**ours, instancetype={"name": "placed"}), world, vm(**ours)).changes

    def test_what_can_not_be_read_keeps_only_the_rest(self) -> None:
        world = facts(unreadable=[("VirtualMachineClusterPreference", "fedora")])
        decision = decide(marked(LARGE), world, OURS, default_preference_scope="all")

        assert changes(decision) == GONE
        assert "no answer in time" in decision.warnings[0].text

    def test_what_can_not_be_read_at_all_changes_nothing(self) -> None:
        world = facts([preference()], unreadable=[("VirtualMachineClusterInstancetype", "u1.small")])
        assert decide(marked(terminationGracePeriodSeconds=5), world, OURS).code == common.LOOKUP_FAILED


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

    def expanded(self, *managers: str, annotations: Json = INJECTED_ANNOTATIONS) -> Json:
        """A VM as it is stored; managers are those who wrote the guest's memory."""
        sized = {"cpu": {"sockets": 2, "cores": 1, "threads": 1}, "memory": {"guest": "4Gi"}}
        made = declaring(vm(sized, annotations=annotations), ("spec", "template", "spec", "domain", "memory", "guest"))
        (entry,) = made["metadata"]["managedFields"]
        updates = [entry | {"manager": manager, "operation": "Update"} for manager in managers]
        made["metadata"]["managedFields"] = updates
        return made

    @pytest.mark.parametrize("managers", [(), ("virt-controller",)])
    def test_both_are_put_back(self, managers: tuple[str, ...]) -> None:
        decision = decide(halted(), facts(WORLD), self.expanded(*managers))

        assert (decision.code, changes(decision)) == (instancetypes.DEFAULTS_PRESERVED, INJECTED)
        assert not decision.warnings

    @pytest.mark.parametrize("managers", [("kubectl-edit",), ("virt-controller", "flux")])
    def test_a_size_that_its_owner_wrote_is_none_of_ours(self, managers: tuple[str, ...]) -> None:
        decision = decide(halted(), facts(WORLD), self.expanded(*managers))
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
        new = declared(self.merged(name="big"), "name")

        decision = decide(new, facts(self.OBJECTS), self.OLD)

        assert (decision.code, decision.warnings) == (instancetypes.DEFAULT_WITHDRAWN, ())
        assert changes(decision) == {("spec", "instancetype"): {"name": "big"}, IT_MARK: None}

    @pytest.mark.parametrize(("members", "left"), [(("name",), {"name": "own"}), (("name", "kind"), OWN)])
    def test_of_the_default_what_is_declared_stays(self, members: tuple[str, ...], left: Json) -> None:
        new = declared(self.merged(), *members)
        new["spec"]["runStrategy"] = "Halted"
        assert changes(decide(new, facts(), self.OLD)) == {("spec", "instancetype"): left, IT_MARK: None}

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
        world, pinned = facts([*self.OBJECTS, revision("r1", instancetype("own"))]), self.merged(revisionName="r1")

        named = decide(declared(self.merged(name="big", revisionName="r1"), "name"), world, pinned)
        restored = decide(pinned, world, self.OLD)

        assert changes(named)["spec", "instancetype"] == {"name": "big"}
        assert (restored.code, restored.changes) == (instancetypes.UNCHANGED, ())

    def test_what_is_left_of_ours_without_a_name_is_nothing(self) -> None:
        new = vm(annotations={IT_MARK[2]: OWN_MARK}, instancetype={"kind": "VirtualMachineInstancetype"})

        decision = decide(new, facts(), self.OLD)

        assert changes(decision) == {("spec", "instancetype"): None}
        assert decision.reasons[0].code == instancetypes.OWNER_REMOVED_INSTANCETYPE

    def test_a_mark_that_a_manifest_declares_stays(self) -> None:
        new = declaring(self.merged(name="big"), ("spec", "instancetype", "name"), IT_MARK)
        assert IT_MARK not in changes(decide(new, facts(self.OBJECTS), self.OLD))
