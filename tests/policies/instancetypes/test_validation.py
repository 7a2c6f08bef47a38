"""Early denials: conflicts, requirements, missing objects, and objects that the settings do not allow."""

from __future__ import annotations

from typing import Any

import pytest

from tests.builders import Json
from tests.policies.instancetypes.world import (
    FEDORA,
    FEDORA_MARK,
    IT_MARK,
    PREF_MARK,
    SMALL,
    SMALL_MARK,
    decide,
    facts,
    instancetype,
    preference,
    revision,
    vm,
)
from webhook.admission.decision import Decision, Reason
from webhook.admission.reasons import common
from webhook.admission.reasons import instancetypes as reasons

WORLD = [instancetype(), preference()]
MISSING = ("VirtualMachineClusterInstancetype", "u1.gone")
IT_TO_NULL = {"instancetype": SMALL_MARK}
PREF_TO_NULL = {"preference": FEDORA_MARK}
BOTH_TO_NULL = IT_TO_NULL | PREF_TO_NULL


def evaluate(obj: Json, world: dict[Any, object] | None = None, old: Json | None = None, **settings: Any) -> Decision:
    decision = decide(obj, facts(WORLD) if world is None else world, old, "validate", **settings)
    assert not decision.changes
    return decision


def test_a_vm_that_fits() -> None:
    assert evaluate(vm(instancetype=SMALL, preference={"name": "fedora"})).code == reasons.VALID


def test_a_vm_without_matchers_is_not_looked_at() -> None:
    assert evaluate(vm(), {}).code == reasons.NO_MATCHER
    assert evaluate(vm(instancetype=None), {}).code == reasons.NO_MATCHER


def test_conflicts_in_kubevirts_order_and_words() -> None:
    domain = {"cpu": {"sockets": 1, "cores": 1}, "memory": {"guest": "1Gi"}, "resources": {"requests": {"cpu": "1"}}}

    denial = evaluate(vm(domain, instancetype=SMALL)).denial

    assert denial
    fields = ["resources.requests.cpu", "cpu.sockets", "cpu.cores", "memory.guest"]
    assert [cause.field for cause in denial.causes] == [f"spec.template.spec.domain.{field}" for field in fields]
    assert denial.code == 422
    assert denial.message == ", ".join(
        f"VM field(s) spec.template.spec.domain.{field} conflicts with selected instance type" for field in fields
    )


def test_requirements() -> None:
    world = facts([instancetype(), preference(requirements={"cpu": {"guest": 8}})])

    denial = evaluate(vm(instancetype=SMALL, preference={"name": "fedora"}), world).denial

    assert denial
    assert [(cause.reason, cause.field) for cause in denial.causes] == [("FieldValueNotFound", "spec.instancetype")]
    assert denial.message.startswith("failure checking preference requirements: insufficient CPU resources of 2 vCPU")


def test_a_crash() -> None:
    world = facts([preference(cpu={"preferredCPUFeatures": [{"name": "vmx"}]})])

    denial = evaluate(vm(preference={"name": "fedora"}), world).denial

    assert denial
    assert (denial.code, denial.causes[0].field) == (422, "spec.preference")


@pytest.mark.parametrize(("missing", "denied"), [("warn", False), ("deny", True)])
@pytest.mark.parametrize(
    ("matcher", "said", "found_later"),
    [
        ({"name": "u1.gone"}, 'virtualmachineclusterinstancetypes.instancetype.kubevirt.io "u1.gone" not found', True),
        ({"name": "x", "kind": "Foo"}, "got unexpected kind in InstancetypeMatcher: Foo", False),
        ({"name": "x", "revisionName": "gone"}, 'controllerrevisions.apps "gone" not found', True),
    ],
)
def test_what_is_not_there(matcher: Json, said: str, found_later: bool, missing: str, denied: bool) -> None:
    world = facts(WORLD, missing=[MISSING, ("ControllerRevision", "gone")])

    decision = evaluate(vm(instancetype=matcher), world, missing=missing)

    assert decision.code == reasons.MISSING
    if denied:
        assert decision.denial
        assert decision.denial.message == said
        (cause,) = decision.denial.causes
        assert cause.field == "spec.instancetype"
        assert cause.reason == ("FieldValueNotFound" if found_later else "FieldValueInvalid")
    else:
        assert not decision.denial
        assert decision.warnings == reasons.missing([(said, found_later)])
        assert said in decision.warnings[0].text


@pytest.mark.parametrize(("mark", "ours"), [(SMALL_MARK, True), ("VirtualMachineClusterInstancetype/other", False)])
def test_who_runs_into_a_default_is_told_how_to_get_rid_of_it(mark: str, ours: bool) -> None:
    now = vm({"memory": {"guest": "1Gi"}}, instancetype=SMALL, annotations={IT_MARK[2]: mark})

    decision = evaluate(now, facts(WORLD), vm(instancetype=SMALL, annotations={IT_MARK[2]: mark}))

    assert decision.denial
    way_out = Reason(reasons.DENIED, reasons.way_out_at_update({"instancetype": SMALL_MARK}))
    assert decision.warnings == ((way_out,) if ours else ())


@pytest.mark.parametrize(
    ("domain", "matchers", "said"),
    [
        # Too little for the preference, whatever becomes of the instancetype.
        ({"memory": {"guest": "1Gi"}}, {"instancetype": SMALL, "preference": FEDORA}, BOTH_TO_NULL),
        ({"memory": {"guest": "4Gi"}}, {"instancetype": SMALL, "preference": FEDORA}, IT_TO_NULL),
        ({}, {"preference": FEDORA}, PREF_TO_NULL),
        ({}, {"instancetype": {"name": "u1.tiny"}, "preference": FEDORA}, PREF_TO_NULL),
        ({"memory": {"guest": "4Gi"}}, {"instancetype": {"name": "u1.tiny"}, "preference": FEDORA}, None),
    ],
)
def test_whoever_runs_into_defaults_is_told_which_of_them_stand_in_the_way(
    domain: Json, matchers: Json, said: dict[str, str] | None
) -> None:
    tiny = instancetype("u1.tiny", memory={"guest": "1Gi"})
    world = facts([instancetype(), tiny, preference(requirements={"memory": {"guest": "2Gi"}})])
    marks = {IT_MARK[2]: SMALL_MARK, PREF_MARK[2]: FEDORA_MARK}
    before = vm(instancetype=SMALL, preference=FEDORA, annotations=marks)

    decision = evaluate(vm(domain, annotations=marks, **matchers), world, before)

    assert decision.denial
    assert decision.warnings == ((Reason(reasons.DENIED, reasons.way_out_at_update(said)),) if said else ())


def test_no_way_out_is_one_on_which_kubevirt_would_crash() -> None:
    features = {"preferredCPUFeatures": [{"name": "vmx"}]}
    world = facts([instancetype(), preference(cpu=features)])
    marks = {IT_MARK[2]: SMALL_MARK}
    before = vm(instancetype=SMALL, preference=FEDORA, annotations=marks)

    decision = evaluate(
        vm({"memory": {"guest": "1Gi"}}, instancetype=SMALL, preference=FEDORA, annotations=marks), world, before
    )

    assert decision.denial
    assert decision.warnings == ()


def test_a_new_vm_that_a_default_does_not_fit_is_told_what_to_do_then() -> None:
    marks = {IT_MARK[2]: SMALL_MARK}
    world = facts([instancetype(), preference(requirements={"cpu": {"guest": 8}})])

    # As KubeVirt leaves one whose preference was inferred.
    decision = evaluate(vm(instancetype=SMALL, preference={"name": "fedora"}, annotations=marks), world)

    assert decision.denial
    assert decision.warnings == (Reason(reasons.DENIED, reasons.way_out_at_create(SMALL_MARK)),)


@pytest.mark.parametrize(("missing", "denied"), [("warn", False), ("deny", True)])
@pytest.mark.parametrize("given", [{}, {"kind": "VirtualMachineInstancetype"}])
def test_a_matcher_that_was_inferred_from_an_empty_label(given: Json, missing: str, denied: bool) -> None:
    decision = evaluate(vm(instancetype=given), facts(), missing=missing)

    said = reasons.names_nothing("instancetype", "instancetype.kubevirt.io/default-instancetype")
    assert decision.code == reasons.MISSING
    assert (decision.denial is not None) == denied
    assert said in decision.reasons[0].text
    assert denied or decision.warnings == reasons.missing([(said, False)])


def test_a_refusal_shows_a_long_allow_list_only_in_part() -> None:
    patterns = tuple(f"cx{number}.*" for number in range(10_000))

    denial = evaluate(vm(instancetype=SMALL), allowed=patterns).denial

    assert denial
    assert ": cx0.*, cx1.*" in denial.message
    assert denial.message.endswith("…")
    assert len(denial.message) < 700


def test_a_missing_preference_beside_a_conflict() -> None:
    world = facts(WORLD, missing=[("VirtualMachineClusterPreference", "gone")])

    decision = evaluate(vm({"cpu": {"cores": 1}}, instancetype=SMALL, preference={"name": "gone"}), world)

    assert decision.denial
    assert "cpu.cores" in decision.denial.message


def test_what_is_to_be_inferred_is_not_missing() -> None:
    assert evaluate(vm(instancetype={"inferFromVolume": "root"}), facts(), missing="deny").code == reasons.VALID


class TestUpdates:
    OLD = vm({"cpu": {"cores": 1}}, instancetype=SMALL)

    def test_what_was_admitted_once_stays_editable(self) -> None:
        new = vm({"cpu": {"cores": 1}}, instancetype=SMALL, runStrategy="Halted")

        assert evaluate(new, {}, self.OLD).code == reasons.UNCHANGED

    def test_a_changed_template_is_judged(self) -> None:
        assert evaluate(vm({"cpu": {"cores": 2}}, instancetype=SMALL), old=self.OLD).denial

    def test_a_changed_matcher_is_judged(self) -> None:
        new = vm({"cpu": {"cores": 1}}, instancetype=SMALL, preference={"name": "fedora"})

        assert evaluate(new, old=self.OLD).denial

    def test_a_matcher_that_stays_may_be_missing_and_disallowed(self) -> None:
        old, new = vm(instancetype={"name": "u1.gone"}), vm({"rng": {}}, instancetype={"name": "u1.gone"})

        decision = evaluate(new, facts(missing=[MISSING]), old, missing="deny", allowed=("cx1.*",))

        assert not decision.denial

    def test_the_stored_revision_counts(self) -> None:
        new = vm(instancetype={"name": "u1.small"}, template={"nodeSelector": {"a": "b"}})
        new["status"] = {"instancetypeRef": {"name": "u1.small", "controllerRevisionRef": {"name": "r1"}}}
        world = facts([revision("r1", instancetype(nodeSelector={"c": "d"}))])

        decision = evaluate(new, world, vm(instancetype={"name": "u1.small"}))

        assert decision.denial
        assert "nodeSelector" in decision.denial.message

    def test_a_revision_of_another_kind_does_not_stand_for_what_is_not_there(self) -> None:
        captured = {"name": "u1.small", "kind": "VirtualMachineClusterInstancetype"}
        new = vm(instancetype=captured | {"kind": "VirtualMachineInstancetype"})
        new["status"] = {"instancetypeRef": captured | {"controllerRevisionRef": {"name": "r1"}}}
        world = facts([revision("r1", instancetype())], missing=[("VirtualMachineInstancetype", "u1.small")])

        denial = evaluate(new, world, vm(instancetype=captured), missing="deny").denial

        assert denial
        assert denial.message == 'virtualmachineinstancetypes.instancetype.kubevirt.io "u1.small" not found'

    def test_nobody_holds_up_a_deletion(self) -> None:
        dying = vm({"cpu": {"cores": 2}}, instancetype=SMALL)
        dying["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"

        assert evaluate(dying, {}, self.OLD).code == common.BEING_DELETED


class TestAllowList:
    @pytest.mark.parametrize(
        ("allowed", "denied"),
        [
            (("u1.small",), False),
            (("u1.*",), False),
            (("*",), False),
            (("virtualmachineclusterinstancetypes/u1.small",), False),
            (("cx1.*", "u1.large"), True),
            (("VirtualMachineInstancetype/*",), True),
            (("Foo/u1.small",), True),
            (("u1.[s]mall", "u1.smal?"), True),
            ((), True),
        ],
    )
    def test_patterns(self, allowed: tuple[str, ...], denied: bool) -> None:
        decision = evaluate(vm(instancetype=SMALL), allowed=allowed)

        assert bool(decision.denial) is denied
        if decision.denial:
            assert (decision.code, decision.denial.code) == (reasons.NOT_ALLOWED, 403)
            assert decision.denial.causes[0].field == "spec.instancetype.name"

    def test_the_list_is_about_instancetypes(self) -> None:
        assert not evaluate(vm(preference={"name": "fedora"}), allowed=()).denial

    @pytest.mark.parametrize("labels", [{}, {"object-name": "other"}])
    @pytest.mark.parametrize("kind", [{}, {"kind": "Nonsense"}])
    def test_a_revision_of_another_one_is_no_way_around(self, labels: dict[str, str], kind: dict[str, str]) -> None:
        world = facts([*WORLD, revision("r1", instancetype("u1.large"), **labels)])
        matcher = {"name": "u1.small", "revisionName": "r1"} | kind

        decision = evaluate(vm(instancetype=matcher), world, allowed=("u1.small",))

        assert decision.code == reasons.NOT_ALLOWED
        assert decision.denial

    @pytest.mark.parametrize("kind", [{}, {"kind": "Nonsense"}])
    def test_a_revision_of_what_is_allowed(self, kind: dict[str, str]) -> None:
        world = facts([revision("r1", instancetype())])
        matcher = {"name": "u1.small", "revisionName": "r1"} | kind

        decision = evaluate(vm(instancetype=matcher), world, allowed=("u1.small",))

        assert not decision.denial

    def test_a_vm_too_large_to_be_judged_is_no_way_around(self) -> None:
        large = vm(instancetype=SMALL)
        large["spec"]["template"]["metadata"] = {"annotations": {str(number): "" for number in range(5001)}}

        assert [evaluate(large, allowed=(name,)).code for name in ("u1.large", "u1.small")] == [
            reasons.NOT_ALLOWED,
            common.INVALID_OBJECT,
        ]

    def test_a_kind_that_is_none_is_missing(self) -> None:
        decision = evaluate(vm(instancetype={"name": "x", "kind": "Foo"}), allowed=("u1.small",))

        assert (decision.code, decision.denial) == (reasons.MISSING, None)


def test_what_can_not_be_read_is_admitted_with_a_warning() -> None:
    world = facts(unreadable=[("VirtualMachineClusterInstancetype", "u1.small")])

    decision = evaluate(vm(instancetype=SMALL), world, missing="deny")

    assert (decision.code, decision.denial, len(decision.warnings)) == (common.LOOKUP_FAILED, None, 1)


def test_what_can_not_be_read_is_denied_where_the_admin_wants_it_so() -> None:
    world = facts(unreadable=[("VirtualMachineClusterInstancetype", "u1.small")])

    decision = evaluate(vm(instancetype=SMALL), world, failure_policy="Fail")

    assert decision.denial
    assert (decision.code, decision.denial.code, decision.warnings) == (common.LOOKUP_FAILED, 503, ())


@pytest.mark.parametrize("matcher", [5, "u1.small", [], {"name": 5}, {"name": "u1.small", "revisionName": {}}])
def test_a_matcher_that_can_not_be_read_is_denied(matcher: Any) -> None:
    decision = evaluate(vm(instancetype=matcher), allowed=("u1.large",))

    assert decision.denial
    assert (decision.code, decision.denial.code) == (common.INVALID_OBJECT, 422)
    assert [cause.field for cause in decision.denial.causes] == ["spec.instancetype"]


def test_what_a_sender_claims_as_status_is_not_believed() -> None:
    claimed = {"instancetypeRef": {"controllerRevisionRef": {"name": "stored"}}}
    big = preference(requirements={"cpu": {"guest": 8}})
    forged = revision("stored", instancetype(cpu={"guest": 8}))
    obj = vm(instancetype=SMALL, preference={"name": "fedora"}) | {"status": claimed}

    decision = evaluate(obj, facts([instancetype(), big, forged]))

    assert decision.denial
    assert "insufficient CPU resources of 2 vCPU" in decision.denial.message


def test_malformed_and_switched_off() -> None:
    assert evaluate(vm({"cpu": 1}, instancetype=SMALL)).code == common.INVALID_OBJECT
    assert evaluate(vm(instancetype=SMALL), {}, virtual_machines=False).code == common.DISABLED
