"""Every rule of the scheduling policy."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests import builders
from tests.builders import (
    AVAILABLE,
    CONTROLLER,
    UNAVAILABLE,
    UNKNOWN,
    Json,
    changed,
    known,
    launcher_pod,
    review,
    vm,
    vmi,
)
from tests.policies.decisions import changes, declaring
from tests.policies.decisions import decide_scheduling as decide
from webhook import names
from webhook.admission.decision import Decision, Reason, RepeatedChanges
from webhook.admission.reasons import common
from webhook.errors import Unavailable
from webhook.facts import KubeVirtKey, ObjectKey
from webhook.k8s.types.meta import ObjectMeta, OwnerReference
from webhook.kubevirt.config import KubeVirtInstall
from webhook.kubevirt.resources import CLUSTER_INSTANCETYPES, INSTANCETYPES, REVISIONS
from webhook.kubevirt.types.views import ControllerRevision, Instancetype, InstancetypeSpec, RevisionData
from webhook.policies.scheduling import reasons
from webhook.policies.scheduling.reasons import instancetype_unresolved as unresolved

MARK = names.INJECTED_SCHEDULER_ANNOTATION
POD_MARK_PATH = ("metadata", "annotations", MARK)
VM_SCHEDULER = ("spec", "template", "spec", "schedulerName")
TEMPLATE_MARK = ("spec", "template", *POD_MARK_PATH)
POD_SCHEDULER = ("spec", "schedulerName")
INJECTED = {POD_SCHEDULER: "kubevirt", POD_MARK_PATH: "kubevirt"}
INJECTED_VM = dict.fromkeys((VM_SCHEDULER, POD_MARK_PATH, TEMPLATE_MARK), "kubevirt")
ELSEWHERE = {KubeVirtKey(): KubeVirtInstall(frozenset({"openshift-cnv"}))}
UNREADABLE = {KubeVirtKey(): Unavailable("forbidden")}
OTHER_USERS = (
    "",
    "admin",
    "system:serviceaccount:demo:kubevirt-controller",
    "system:serviceaccount:kubevirt:kubevirt-apiserver",
)
DECLARED = builders.scheduling().schedulers
U1 = ObjectKey(CLUSTER_INSTANCETYPES, "", "u1")
R1, R2 = (ObjectKey(REVISIONS, "demo", name) for name in ("r1", "r2"))
SETTING = Instancetype(spec=InstancetypeSpec("x"))
NAMING, PINNING = {"name": "u1"}, {"revisionName": "r1"}
SETTING_DATA = RevisionData("VirtualMachineInstancetype", InstancetypeSpec("x"))
NO_SPECS: tuple[Json | None, ...] = (None, {}, {"spec": None}, {"metadata": {}})
HEALTHS = st.sampled_from([AVAILABLE, UNAVAILABLE, UNKNOWN, Unavailable("no health check"), None])
SCHEDULERS: st.SearchStrategy[Any] = st.sampled_from([..., None, "", "default-scheduler", "kubevirt", "batch", "x"])
ANNOTATIONS = st.sampled_from([None, "", "kubevirt", "batch", "x"])


def without(obj: Json, *path: str) -> Json:
    inner = obj
    for segment in path[:-1]:
        inner = inner[segment]
    del inner[path[-1]]
    return obj


def pod(scheduler: str | None = "default-scheduler", mark: str | None = None, **metadata: Any) -> Json:
    """A virt-launcher pod; keywords are more labels or annotations, or its owner references."""
    made = launcher_pod(schedulerName=scheduler)
    for field, entries in metadata.items():
        made["metadata"][field] = made["metadata"][field] | entries if entries else entries
    if mark is not None:
        made["metadata"]["annotations"][MARK] = mark
    return made


def owned(**reference: Any) -> Json:
    made = launcher_pod()
    made["metadata"]["ownerReferences"][0] |= reference
    return made


def captured(kind: str | None, spec: InstancetypeSpec | None = None, name: str = "u1") -> ControllerRevision:
    """A revision with the labels of KubeVirt's."""
    labels = {names.REVISION_OBJECT_NAME_LABEL: name, names.REVISION_OBJECT_KIND_LABEL: kind or ""}
    return ControllerRevision(ObjectMeta(labels=labels), RevisionData(kind, spec, "instancetype.kubevirt.io/v1beta1"))


class TestNamesOfPods:
    @pytest.mark.control("forged-launcher-pods")
    @pytest.mark.parametrize(
        ("obj", "of_vmi", "code"),
        [
            *((pod(scheduler), vmi(), reasons.INJECTED) for scheduler in ("default-scheduler", "", None)),
            (pod(), vmi(""), reasons.INJECTED),
            (owned(apiVersion="kubevirt.io/v1alpha3"), vmi(), reasons.INJECTED),
            # What is gated cannot be changed later.
            (launcher_pod(schedulingGates=[{"name": "x"}]), vmi(), reasons.INJECTED),
            (pod(annotations={"kubevirt.io/ephemeral-provisioning": "true"}), vmi(), reasons.INJECTED),
            # The target of a migration of a VM that is older than the webhook.
            (pod(labels={"kubevirt.io/migrationJobUID": "m"}), vmi(), reasons.INJECTED),
            (without(pod(), "metadata", "annotations"), vmi(), reasons.INJECTED),
            (without(pod(), "spec"), vmi(), reasons.INJECTED),
            # What was chosen, or cannot be known, is left alone.
            (pod(), vmi("default-scheduler"), common.OWNER_OPTED_OUT),
            # The pod was set back.
            (pod(), vmi("stork"), reasons.REWRITTEN),
            *((pod(name), vmi(name), reasons.FOREIGN_SCHEDULER) for name in ("stork", "volcano", "kubevirt", "batch")),
            (pod(), None, common.VMI_NOT_FOUND),
            (pod(), vmi(uid="another"), common.VMI_REPLACED),
            (launcher_pod(nodeName="node01"), vmi(), reasons.BOUND),
            # The second pass sees the default again, beside an annotation that names an unknown scheduler.
            (pod(mark="gone"), vmi(), reasons.ALREADY_FELL_BACK),
            *(
                (pod(labels=labels), vmi(), common.NOT_LAUNCHER)
                for labels in (None, {}, {"kubevirt.io": "hotplug-disk"})
            ),
            # Only a controlling VMI makes it a launcher pod.
            *((owned(**{key: value}), vmi(), common.NO_VMI_OWNER) for key, value in (("kind", "Pod"), ("uid", ""))),
            *((owned(apiVersion=version), vmi(), common.NO_VMI_OWNER) for version in ("example.org/v1", "v1")),
            *((owned(controller=value), vmi(), common.NO_VMI_OWNER) for value in (False, None)),
            (owned(name=None), vmi(), common.NO_VMI_OWNER),
            (pod(ownerReferences=None), vmi(), common.NO_VMI_OWNER),
        ],
    )
    def test_injects_where_neither_the_pod_nor_its_vmi_chose(self, obj: Json, of_vmi: Any, code: str) -> None:
        decision = decide(review(obj), known(of_vmi))
        assert (decision.code, changes(decision)) == (code, INJECTED if code == reasons.INJECTED else {})
        if decision.changes:
            assert (decision.warnings, decision.changes[0].old) == ((), obj.get("spec", {}).get("schedulerName"))

    @pytest.mark.control("forged-launcher-pods")
    @pytest.mark.parametrize(
        ("user", "facts", "namespace", "code"),
        [
            *((user, {}, "", common.NOT_CREATED_BY_KUBEVIRT) for user in OTHER_USERS),
            (CONTROLLER, ELSEWHERE, "", common.NOT_CREATED_BY_KUBEVIRT),
            (CONTROLLER, UNREADABLE, "virt", common.NOT_CREATED_BY_KUBEVIRT),
            # KubeVirt in another namespace, or none.
            ("system:serviceaccount:openshift-cnv:kubevirt-controller", ELSEWHERE, "", reasons.INJECTED),
            ("system:serviceaccount:virt:kubevirt-controller", UNREADABLE, "virt", reasons.INJECTED),
            (CONTROLLER, {KubeVirtKey(): None}, "", common.KUBEVIRT_ABSENT),
        ],
    )
    def test_made_by_somebody_else(self, user: str, facts: Any, namespace: str, code: str) -> None:
        decision = decide(review(pod(), user=user), known(vmi()) | facts, kubevirt_namespace=namespace)
        assert (decision.code, changes(decision)) == (code, INJECTED if code == reasons.INJECTED else {})
        body = review(pod(), operation="UPDATE", oldObject=pod())
        assert decide(body, known(vmi())).code == common.OTHER_OPERATION

    @pytest.mark.parametrize(
        ("facts", "code", "said"),
        [
            (known(Unavailable("it took too long")), reasons.VMI_UNREADABLE, "it took too long"),
            (known(vmi()) | UNREADABLE, reasons.KUBEVIRT_UNREADABLE, "forbidden"),
            (known(vmi(), UNAVAILABLE), reasons.SCHEDULER_UNAVAILABLE, UNAVAILABLE.why),
            (known(vmi(), UNKNOWN), reasons.SCHEDULER_HEALTH_UNKNOWN, UNKNOWN.why),
            (known(vmi(), Unavailable("no health check")), reasons.SCHEDULER_HEALTH_UNKNOWN, "no health check"),
        ],
    )
    def test_what_can_not_be_known_or_is_down_is_said_to_the_user(self, facts: Any, code: str, said: str) -> None:
        decision = decide(review(pod()), facts)
        assert (decision.code, decision.changes) == (code, ())
        assert [warning.code for warning in decision.warnings] == [code]
        assert said in decision.warnings[0].text

    @pytest.mark.parametrize(
        ("health", "code"), [(UNKNOWN, reasons.INJECTED), (UNAVAILABLE, reasons.SCHEDULER_UNAVAILABLE)]
    )
    def test_assume_alive_bridges_ignorance_but_not_death(self, health: Any, code: str) -> None:
        trusting = {**DECLARED, "kubevirt": changed(DECLARED["kubevirt"], assume_alive=True)}
        assert decide(review(pod()), known(vmi(), health), schedulers=trusting).code == code

    @pytest.mark.parametrize(
        ("facts", "settings"),
        [
            (known(vmi("default-scheduler"), UNAVAILABLE), {}),
            (known(vmi("default-scheduler"), UNKNOWN), {}),
            (known(vmi("default-scheduler")), {"scheduler_name": "nobody"}),
        ],
    )
    def test_who_opted_out_hears_nothing_of_a_scheduler_that_cannot_be_used(self, facts: Any, settings: Json) -> None:
        decision = decide(review(pod()), facts, **settings)
        assert (decision.code, decision.warnings, decision.changes) == (common.OWNER_OPTED_OUT, (), ())

    def test_declared_schedulers_are_looked_up_by_name(self) -> None:
        undeclared = decide(review(pod()), known(vmi()), scheduler_name="nobody")
        only = {"batch": DECLARED["batch"]}
        declared = decide(review(pod()), known(vmi()), schedulers=only, scheduler_name="batch")
        assert (undeclared.code, undeclared.changes) == (reasons.UNDECLARED, ())
        assert undeclared.warnings == (reasons.undeclared("nobody"),)
        assert changes(declared)[POD_SCHEDULER] == "batch"


@pytest.mark.parametrize(
    ("name", "mark", "health", "user", "code"),
    [
        # While the scheduler is unavailable, or not declared here.
        ("kubevirt", "kubevirt", UNAVAILABLE, CONTROLLER, reasons.FELL_BACK),
        ("elsewhere", "elsewhere", AVAILABLE, CONTROLLER, reasons.FELL_BACK),
        *(
            ("kubevirt", "kubevirt", health, CONTROLLER, reasons.ALREADY_INJECTED)
            for health in (AVAILABLE, UNKNOWN, Unavailable("no health check"))
        ),
        # The owner changed the name but left the annotation.
        ("batch", "kubevirt", UNAVAILABLE, CONTROLLER, reasons.FOREIGN_SCHEDULER),
        ("kubevirt", "kubevirt", UNAVAILABLE, "admin", common.NOT_CREATED_BY_KUBEVIRT),
    ],
)
def test_when_a_pod_falls_back(name: str, mark: str, health: Any, user: str, code: str) -> None:
    """One that has an earlier choice of the webhook, through VM and VMI."""
    decision = decide(review(pod(name, mark), user=user), known(vmi(name), health))
    fell_back = code == reasons.FELL_BACK
    assert (decision.code, bool(decision.warnings)) == (code, fell_back)
    assert changes(decision) == ({POD_SCHEDULER: "default-scheduler"} if fell_back else {})


@pytest.mark.parametrize(
    ("spec", "code", "more"),
    [
        ({"schedulerName": "default-scheduler"}, common.OWNER_OPTED_OUT, {}),
        ({"schedulerName": "stork"}, reasons.OWNER_CHOSE, {}),
        ({}, common.OTHER_OPERATION, {"operation": "UPDATE"}),
        (None, reasons.NO_TEMPLATE, {}),
        ({}, reasons.SCHEDULER_UNAVAILABLE, {"health": UNAVAILABLE}),
        ({}, common.DISABLED, {"on": False}),
        ({}, reasons.INJECTED, {}),
    ],
)
def test_rules_of_vmis(spec: Json | None, code: str, more: Json) -> None:
    kind = {"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance", "metadata": {"name": "v"}}
    body = review({**kind, "spec": spec}, "owner", more.get("operation", "CREATE"))
    # Off is the default.
    settings: Json = {"virtual_machine_instances": True} if more.get("on", True) else {}
    decision = decide(body, known(health=more.get("health", AVAILABLE)), **settings)
    assert (decision.code, changes(decision)) == (code, INJECTED if code == reasons.INJECTED else {})


@pytest.mark.control("annotations-name-things")
@given(SCHEDULERS, ANNOTATIONS, st.sampled_from([None, "", "default-scheduler", "kubevirt", "stork"]), HEALTHS)
def test_only_declared_names_are_ever_written(scheduler: Any, mark: str | None, own: str | None, health: Any) -> None:
    decision = decide(review(pod(None if scheduler is ... else scheduler, mark or "")), known(vmi(own), health))
    written = changes(decision).get(POD_SCHEDULER)
    assert written in (None, "kubevirt", "default-scheduler")
    if written == "kubevirt":
        assert health is AVAILABLE and not own and scheduler in (..., None, "", "default-scheduler")
    if written == "default-scheduler":
        assert mark == scheduler and (health is UNAVAILABLE or scheduler not in DECLARED)


def test_changes_are_kept_only_where_no_tenant_wrote_a_part_of_them() -> None:
    usual = [decide(review(pod()), known(vmi())).changes for _ in range(2)]
    tenants = decide(review(vm(mark="x" * 1000)), known()).changes
    assert usual[0] is usual[1]
    assert isinstance(usual[0], RepeatedChanges)
    assert "x" * 1000 in [change.old for change in tenants]
    assert not isinstance(tenants, RepeatedChanges)


class TestVirtualMachines:
    def test_injects_at_create_and_into_what_was_restored_with_the_mark_alone(self) -> None:
        for obj in (vm(), vm(""), vm(None), vm(instancetype=None)):
            decision = decide(review(obj, user="owner"))
            assert (decision.code, changes(decision)) == (reasons.INJECTED, INJECTED_VM)
        decision = decide(review(vm(mark="batch")))
        assert (decision.code, changes(decision)[POD_MARK_PATH]) == (reasons.INJECTED, "kubevirt")
        assert {change.path: change.old for change in decision.changes}[POD_MARK_PATH] == "batch"
        # One that is there already is no change.
        assert changes(decide(review(vm(mark="kubevirt")))) == {VM_SCHEDULER: "kubevirt"}

    @pytest.mark.parametrize(
        ("obj", "code"),
        [
            (vm("default-scheduler"), common.OWNER_OPTED_OUT),
            (vm("stork"), reasons.OWNER_CHOSE),
            # Without any annotation it is the owner's.
            (vm("kubevirt"), reasons.OWNER_CHOSE),
            (vm("kubevirt", mark="kubevirt"), reasons.ALREADY_INJECTED),
            # A clone whose owner chose otherwise but left the annotation.
            (vm("stork", mark="kubevirt"), reasons.OWNER_CHOSE),
            *((vm() | {"spec": {"template": template}}, reasons.NO_TEMPLATE) for template in NO_SPECS),
            (without(vm(), "spec"), reasons.NO_TEMPLATE),
        ],
    )
    def test_the_owner_has_the_last_word(self, obj: Json, code: str) -> None:
        decision = decide(review(obj))
        assert (decision.code, decision.changes) == (code, ())

    def test_what_is_not_evaluated(self) -> None:
        assert decide(review(vm()), virtual_machines=False).code == common.DISABLED
        for operation in ("DELETE", "CONNECT"):
            assert decide(review(vm(), operation=operation)).code == common.OTHER_OPERATION
        gone = vm()
        gone["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
        for operation in ("CREATE", "UPDATE"):
            assert decide(review(gone, operation=operation, oldObject=OURS)).code == common.BEING_DELETED

    def test_dead_scheduler_is_said_to_the_owner_and_status_at_create_is_only_a_claim(self) -> None:
        decision = decide(review(vm()), known(health=UNAVAILABLE))
        assert (decision.code, decision.changes) == (reasons.SCHEDULER_UNAVAILABLE, ())
        assert decision.warnings == (reasons.unavailable("kubevirt", UNAVAILABLE.why),)
        body = vm(instancetype=NAMING)
        body["status"] = {"instancetypeRef": {"controllerRevisionRef": {"name": "forged"}}}
        assert decide(review(body), known() | {U1: Instancetype()}).code == reasons.INJECTED


class TestInstancetypes:
    """KubeVirt denies a VM that sets what its instancetype sets, even to the same value."""

    @pytest.mark.parametrize(
        ("kind", "resource", "namespace"),
        [
            (None, CLUSTER_INSTANCETYPES, ""),
            ("", CLUSTER_INSTANCETYPES, ""),
            ("VIRTUALMACHINECLUSTERINSTANCETYPE", CLUSTER_INSTANCETYPES, ""),
            ("virtualMachineInstancetypes", INSTANCETYPES, "demo"),
        ],
    )
    def test_live_objects_by_kind(self, kind: str | None, resource: Any, namespace: str) -> None:
        body = review(vm(instancetype={"name": "u1", "kind": kind}))
        key = ObjectKey(resource, namespace, "u1")
        setting = decide(body, known() | {key: Instancetype(spec=InstancetypeSpec("kubevirt"))})
        for without_scheduler in (Instancetype(spec=InstancetypeSpec()), Instancetype()):
            assert decide(body, known() | {key: without_scheduler}).code == reasons.INJECTED
        assert (setting.code, setting.changes) == (reasons.INSTANCETYPE_SETS_SCHEDULER, ())

    @pytest.mark.parametrize(
        ("matcher", "facts", "reason"),
        [
            ({}, {}, unresolved("the matcher names none")),
            ({"inferFromVolume": "root"}, {}, unresolved("it is still to be inferred from a volume")),
            ({"kind": "VirtualMachineInstancetype"}, {}, unresolved("the matcher names none")),
            (NAMING | {"kind": "Flavor"}, {}, unresolved("Flavor is not a kind of instancetype")),
            (NAMING, {U1: None}, unresolved("VirtualMachineClusterInstancetype u1 does not exist")),
            (PINNING, {R1: None}, unresolved("ControllerRevision r1 of an instancetype does not exist")),
            (NAMING, {U1: Unavailable("slow")}, reasons.instancetype_unreadable("slow")),
            (NAMING | PINNING, {R1: Unavailable("slow")}, reasons.instancetype_unreadable("slow")),
        ],
    )
    def test_unresolved_matchers_and_unreadable_objects(self, matcher: Json, facts: Any, reason: Reason) -> None:
        decision = decide(review(vm(instancetype=matcher)), known() | facts)
        assert (decision.reasons, decision.changes) == ((reason,), ())
        assert decision.warnings == ((reason,) if reason.code == reasons.INSTANCETYPE_UNREADABLE else ())

    @pytest.mark.parametrize(
        ("stored", "code"),
        [
            (captured("VirtualMachineInstancetype", InstancetypeSpec()), reasons.INJECTED),
            (captured("VirtualMachineClusterInstancetype"), reasons.INJECTED),
            (captured("VirtualMachineInstancetype", InstancetypeSpec("x")), reasons.INSTANCETYPE_SETS_SCHEDULER),
            (captured("VirtualMachinePreference"), reasons.INSTANCETYPE_UNRESOLVED),
            (captured(None, InstancetypeSpec()), reasons.INSTANCETYPE_UNRESOLVED),
            # Without labels and owner, any user may have written it.
            (ControllerRevision(data=SETTING_DATA), reasons.INSTANCETYPE_UNRESOLVED),
            (ControllerRevision(), reasons.INSTANCETYPE_UNRESOLVED),
        ],
    )
    def test_by_revision(self, stored: ControllerRevision, code: str) -> None:
        body = review(vm(instancetype={"name": "other", "revisionName": "r1"}))
        assert decide(body, known() | {R1: stored}).code == code


OURS = vm("kubevirt", mark="kubevirt")


def update(new: Json, old: Json = OURS, facts: Any = None) -> Decision:
    return decide(review(new, operation="UPDATE", oldObject=old), facts)


class TestCarryOver:
    """The one thing that UPDATE adds: what an overwrite of spec and annotations took."""

    def test_overwrite_keeps_the_choice(self) -> None:
        decision = update(vm())
        assert (decision.code, changes(decision)) == (reasons.PRESERVED, INJECTED_VM)
        # Also while the scheduler is dead, another is the default, or the template's metadata is of any kind.
        old, new = vm("batch", mark="batch"), vm()
        new["spec"]["template"]["metadata"] = None
        assert update(vm(), old, known(health=UNAVAILABLE)).code == update(new).code == reasons.PRESERVED
        assert changes(update(vm(), old))[VM_SCHEDULER] == "batch"
        # An annotation without a value says nothing.
        new["metadata"]["annotations"] = {names.INJECTED_SCHEDULER_ANNOTATION: ""}
        assert update(new).code == reasons.PRESERVED

    @pytest.mark.parametrize(
        ("label", "reference", "matcher", "code"),
        [
            ("u1", {"name": "r1"}, NAMING, reasons.INSTANCETYPE_SETS_SCHEDULER),
            ("other", {"name": "r1"}, NAMING, reasons.PRESERVED),
            ("u1", {}, NAMING, reasons.PRESERVED),
            ("u1", None, NAMING, reasons.PRESERVED),
            ("u1", {"name": "r1"}, {"inferFromVolume": "v"}, reasons.INSTANCETYPE_UNRESOLVED),
            ("", {"name": "r1"}, {"inferFromVolume": "v"}, reasons.INSTANCETYPE_UNRESOLVED),
            # A revision that the matcher names comes first.
            ("u1", {"name": "r1"}, NAMING | {"revisionName": "r2"}, reasons.PRESERVED),
        ],
    )
    def test_revision_in_the_stored_status_counts_if_its_label_fits(
        self, label: str, reference: Json | None, matcher: Json, code: str
    ) -> None:
        old = vm("kubevirt", mark="kubevirt", instancetype=matcher)
        old["status"] = {"instancetypeRef": {"controllerRevisionRef": reference}}
        revision = captured("VirtualMachineInstancetype", InstancetypeSpec("x"), name=label)
        if not label:
            # The VM controls it, whatever its labels say.
            owner = OwnerReference("kubevirt.io/v1", "VirtualMachine", "web01", "u", True)
            revision = ControllerRevision(ObjectMeta(owner_references=[owner]), revision.data)
        world = {R1: revision, R2: captured("VirtualMachineInstancetype"), U1: Instancetype()}
        assert update(vm(instancetype=matcher), old, known() | world).code == code


@given(SCHEDULERS, ANNOTATIONS, ANNOTATIONS, SCHEDULERS, ANNOTATIONS, HEALTHS)
def test_update_never_adds_what_was_not_ours(
    new: Any, new_mark: str | None, template_mark: str | None, old: Any, old_mark: str | None, health: Any
) -> None:
    decision = update(vm(new, mark=new_mark, template_mark=template_mark), vm(old, mark=old_mark), known(health=health))
    made = changes(decision)
    if VM_SCHEDULER in made:
        assert old == old_mark and not new_mark and not template_mark and new in (..., None, "")
        assert set(made.values()) == {old}
    else:
        ours = new in (new_mark, template_mark)
        assert set(made.values()) <= ({new} if ours else {None})
        assert not made or new not in (..., None, "")


MARKS = {POD_MARK_PATH, TEMPLATE_MARK}
MATCHED = vm("kubevirt", mark="kubevirt", instancetype=NAMING)
NOT_OURS = (
    *(vm(), vm("kubevirt"), vm(mark="kubevirt"), vm("stork", mark="kubevirt"), vm("kubevirt", mark=""), None),
    # What was declared is not put back either.
    declaring(vm("kubevirt", mark="kubevirt"), VM_SCHEDULER),
)


@pytest.mark.control("forged-annotations")
@pytest.mark.parametrize(
    ("new", "old", "facts", "code", "removed"),
    [
        # An owner who names another means it, and nothing is added to a VM without a choice of the webhook.
        (vm("default-scheduler"), OURS, {}, common.OWNER_OPTED_OUT, set()),
        (vm("stork"), OURS, {}, reasons.OWNER_CHOSE, set()),
        *((vm(), old, {}, common.NOTHING_TO_PRESERVE, set()) for old in NOT_OURS),
        # An owner who removes the field alone means it.
        *(
            (vm(**marks), OURS, {}, reasons.OWNER_REMOVED, set())
            for marks in (
                {"mark": "kubevirt"},
                {"mark": "kubevirt", "template_mark": None},
                {"template_mark": "kubevirt"},
            )
        ),
        (OURS, OURS, {}, reasons.ALREADY_INJECTED, set()),
        # A name that is not declared any more is not put back, and none beside an instancetype that sets one.
        (vm(), vm("gone", mark="gone"), {}, reasons.UNDECLARED, set()),
        (vm(instancetype=NAMING), OURS, {U1: SETTING}, reasons.INSTANCETYPE_SETS_SCHEDULER, set()),
        # A name that an owner writes is theirs, and the injected one gives way to it.
        (declaring(vm("kubevirt", mark="kubevirt"), VM_SCHEDULER), OURS, {}, reasons.OWNER_CHOSE, MARKS),
        (vm("default-scheduler", mark="kubevirt"), OURS, {}, common.OWNER_OPTED_OUT, MARKS),
        # An annotation that a manifest declares is left to it.
        (declaring(vm("stork", mark="kubevirt"), POD_MARK_PATH), OURS, {}, reasons.OWNER_CHOSE, {TEMPLATE_MARK}),
        # The owner's own scheduler beside an instancetype that sets one is left to KubeVirt.
        (vm("stork", instancetype=NAMING), OURS, {}, reasons.OWNER_CHOSE, set()),
        # The owner names an instancetype now that sets one, or may set one.
        *((MATCHED, OURS, {U1: stored}, reasons.SCHEDULER_WITHDRAWN, set(INJECTED_VM)) for stored in (SETTING, None)),
        # One that was there or can not be read changes nothing.
        (MATCHED, MATCHED, {U1: None}, reasons.ALREADY_INJECTED, set()),
        (MATCHED, OURS, {U1: Unavailable("no answer in time")}, reasons.ALREADY_INJECTED, set()),
    ],
)
def test_what_an_update_leaves_or_removes(new: Json, old: Any, facts: Any, code: str, removed: set[Any]) -> None:
    decision = decide(review(new, operation="UPDATE", oldObject=old), known() | facts)
    assert (decision.code, changes(decision)) == (code, dict.fromkeys(removed))
    assert decision.warnings or code != reasons.SCHEDULER_WITHDRAWN


class TestMarks:
    """Clones, restores and tools that rewrite annotations keep an injected scheduler, and drop some annotations."""

    ALONE = {**DECLARED, "kubevirt": changed(DECLARED["kubevirt"], only_by_webhook=True)}

    @pytest.mark.parametrize("operation", ["CREATE", "UPDATE"])
    @pytest.mark.parametrize(
        ("copied", "missing"),
        [
            (vm("kubevirt", mark="kubevirt", template_mark=None), {TEMPLATE_MARK}),
            (vm("kubevirt", template_mark="kubevirt"), {POD_MARK_PATH}),
            (vm("kubevirt", mark="stale", template_mark="kubevirt"), {POD_MARK_PATH}),
            # The admin says that only the webhook ever chooses it.
            (vm("kubevirt"), {POD_MARK_PATH, TEMPLATE_MARK}),
        ],
    )
    def test_a_missing_mark_is_put_back(self, operation: str, copied: Json, missing: set[Any]) -> None:
        settings: Json = {"schedulers": self.ALONE} if len(missing) > 1 else {}
        body = review(copied, operation=operation, oldObject=OURS if operation == "UPDATE" else None)
        decision = decide(body, **settings)
        assert (decision.code, changes(decision)) == (reasons.ANNOTATION_RESTORED, dict.fromkeys(missing, "kubevirt"))

    @pytest.mark.parametrize(
        ("scheduler", "health", "code"),
        [
            ("kubevirt", UNAVAILABLE, reasons.FELL_BACK),
            ("kubevirt", AVAILABLE, reasons.ALREADY_INJECTED),
            # That fallback is final.
            ("default-scheduler", AVAILABLE, reasons.ALREADY_FELL_BACK),
        ],
    )
    def test_then_its_pods_fall_back(self, scheduler: str, health: Any, code: str) -> None:
        decision = decide(review(pod(scheduler)), known(vmi("kubevirt"), health), schedulers=self.ALONE)
        assert (decision.code, bool(decision.changes)) == (code, code == reasons.FELL_BACK)
        assert decide(review(pod("kubevirt")), known(vmi("kubevirt"), health)).code == reasons.FOREIGN_SCHEDULER
