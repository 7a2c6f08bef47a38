"""Updates: what was injected is preserved, what an owner writes is left alone, and annotations follow."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests import builders
from tests.builders import AVAILABLE, UNAVAILABLE, UNKNOWN, Json, known, launcher_pod, review, vm, vmi
from tests.policies.scheduling.world import (
    ANNOTATIONS,
    POD_MARK_PATH,
    SCHEDULERS,
    VM_SCHEDULER,
    captured,
    changes,
    decide,
)
from webhook.admission.decision import Decision
from webhook.admission.reasons import common, scheduling
from webhook.errors import Unavailable
from webhook.facts import ObjectKey
from webhook.kubevirt.resources import CLUSTER_INSTANCETYPES, REVISIONS
from webhook.kubevirt.types.views import Instancetype, InstancetypeSpec


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

        decision = self.update(new, vm("kubevirt", mark="kubevirt"))

        assert decision.code == scheduling.PRESERVED


@given(
    SCHEDULERS, ANNOTATIONS, ANNOTATIONS, SCHEDULERS, ANNOTATIONS, st.sampled_from([AVAILABLE, UNAVAILABLE, UNKNOWN])
)
def test_update_never_adds_what_was_not_ours(
    new: Any, new_mark: str | None, template_mark: str | None, old: Any, old_mark: str | None, health: Any
) -> None:
    body = review(
        vm(new, mark=new_mark, template_mark=template_mark),
        operation="UPDATE",
        oldObject=vm(old, mark=old_mark),
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
    decision = decide(review(vm(mark="kubevirt")))

    assert changes(decision) == {VM_SCHEDULER: "kubevirt"}
