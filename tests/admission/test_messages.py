"""The messages of policies: an example of every message, held in ``tests/golden/messages-*.txt``."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Mapping
from types import ModuleType
from typing import Any, Final

import msgspec
import pytest

from hack import messages as page
from tests import golden_files
from tests.cli.runner import run
from webhook import names
from webhook.admission.decision import MAX_MESSAGE, MAX_WARNING, Reason, compose
from webhook.admission.reasons import catalog, common
from webhook.forecast import report
from webhook.k8s.types.selectors import Expression
from webhook.names import Mode
from webhook.placement.nodes import HOSTNAME
from webhook.placement.requirements import Contradiction, Elsewhere, Label, Origin
from webhook.policies.common import migration_targets
from webhook.policies.defaults import reasons as defaults
from webhook.policies.eviction import reasons as eviction
from webhook.policies.groups import reasons as groups
from webhook.policies.headroom import reasons as headroom
from webhook.policies.instancetypes import reasons as instancetypes
from webhook.policies.meanings import MEANINGS, meanings_of, similar
from webhook.policies.migration import reasons as migration
from webhook.policies.naming import reasons as naming
from webhook.policies.preemption import reasons as preemption
from webhook.policies.registry import BY_NAME, POLICIES
from webhook.policies.scheduling import reasons as scheduling
from webhook.policies.sizes import reasons as sizes

Arguments = tuple[Any, ...]
# The arguments of each sentence, by its name.
Examples = Mapping[str, tuple[Arguments, ...]]

SMALL: Final = "VirtualMachineClusterInstancetype/u1.small"
LARGE: Final = "VirtualMachineClusterInstancetype/u1.large"
GONE: Final = 'virtualmachineclusterinstancetypes.instancetype.kubevirt.io "u1.gone" not found'
FEDORA: Final = "VirtualMachineClusterPreference/fedora"
NO_ANSWER: Final = "VirtualMachineInstance shop/web cannot be read: the request to the API server timed out after 3s"
# KubeVirt's own words.
CONFLICT: Final = "VM field(s) spec.template.spec.domain.memory.guest conflicts with selected instance type"
LEASE: Final = "Lease kubevirt-scheduler/kubevirt-scheduler expired 12s ago"
STATE_NOT_FOUND: Final = (
    "KubeVirt 1.8.1 cannot migrate this VM: it does not find the persistent state (TPM, EFI) of a VM whose name has"
    " more than 37 characters"
)
VM_UID: Final = "705ab4f5-6393-11e8-b7cc-42010a800002"
# Of a sentence that is always the same.
NOTHING: Final[tuple[Arguments, ...]] = ()


def _zones(origin: str, value: str) -> Label:
    return Label(origin, Expression.equals("zone", value))


ZONES: Final = Contradiction((_zones(Origin.ADDED, "b"), _zones(Origin.VM, "a")))
PINNED: Final = Contradiction(
    (Label(Origin.VM, Expression.equals(HOSTNAME, "node-1")), Elsewhere(Origin.SOURCE_NODE, "node-1"))
)

COMMON: Final[Examples] = {
    "pod_completed": (("Succeeded",),),
    "not_the_current_pod": NOTHING,
    "being_deleted": (("the VM",),),
    "disabled": (("scheduling.virtualMachines",),),
    "immutable_after_create": (("a migration's spec", "UPDATE"),),
    "other_operation": (("DELETE",),),
    "lookup_failed": (("the VM's instancetype was not validated", NO_ANSWER),),
    "not_created_by_kubevirt": (("mallory",), ("",)),
    "kubevirt_absent": NOTHING,
    "pod_bound": (("node01",),),
    "vmi_not_found": (("shop", "web"),),
    "vmi_replaced": (("shop", "web"),),
    "eligible": ((2, 6), (0, 6)),
    "host_cpu_unknown": (("KubeVirt creates no target pod, because the VM has the CPU model host-model",),),
    "opted_out": ((names.SCHEDULING,),),
    "annotation_invalid": (
        ("annotation kubevirt-webhook.github.io/size-limits: it is not JSON (expected ':' in line 2, column 9)",),
    ),
    "annotations_valid": NOTHING,
    **dict.fromkeys(("not_a_launcher_pod", "no_vmi_owner", "unnamed_vmi_owner", "no_namespace"), NOTHING),
    "excluded_namespace": (("kube-system",),),
    "namespace_unreadable": (("shop", "the request to the API server timed out after 3s"),),
    "not_opted_in": ((names.SCHEDULING,),),
    "switched_off": ((names.SCHEDULING,),),
    "unknown_mode": ((names.SCHEDULING, "on"),),
    "out_of_scope": NOTHING,
    **dict.fromkeys(("by_settings", "more_by_settings", "scope_by_settings"), NOTHING),
    "other_subresource": (("status",), (None,)),
    "no_object": (("DELETE",),),
    "internal_error": ((VM_UID,),),
    "overloaded": (("kubevirt-webhook has more reviews than it can evaluate",),),
    "too_deep": NOTHING,
    "not_evaluable": (("VirtualMachine", common.too_deep, common.INVALID_OBJECT),),
    "correct_the_object": ((common.not_evaluable("VirtualMachine", common.too_deep, common.INVALID_OBJECT),),),
    "not_evaluated_now": ((common.internal_error(VM_UID),),),
    "allowed_unchanged": (("VirtualMachine", common.namespace_unreadable("shop", "403 Forbidden")),),
}

SCHEDULING: Final[Examples] = {
    "injected": (("the VM",), ("VirtualMachineInstance shop/web",)),
    "already_injected": (("kubevirt",),),
    "annotation_restored": (("kubevirt",),),
    "preserved": (("kubevirt",),),
    "withdrawn": (
        ("kubevirt", scheduling.no_longer_declared),
        ("kubevirt", scheduling.instancetype_sets_scheduler("batch").text),
        ("kubevirt", scheduling.instancetype_unresolved("its revision does not hold an instancetype").text),
    ),
    "fell_back": (("kubevirt", LEASE), ("kubevirt", scheduling.no_longer_declared)),
    "already_fell_back": (("kubevirt",),),
    "no_longer_declared": NOTHING,
    "undeclared": (("batch",),),
    "none_declared": NOTHING,
    "not_preserved": (("batch",),),
    "unavailable": (("kubevirt", LEASE),),
    "health_unknown": (("kubevirt", scheduling.no_health_check),),
    "no_health_check": NOTHING,
    "already_bound": (("node-1",),),
    "foreign_scheduler": (("stork",),),
    "rewritten": (("VirtualMachineInstance shop/web", "kubevirt"),),
    "owner_chose": (("stork",), (names.DEFAULT_SCHEDULER,)),
    "owner_chose_default": (("VirtualMachineInstance shop/web",),),
    "owner_removed": (("kubevirt",),),
    **dict.fromkeys(("nothing_to_preserve", "no_template", "no_spec"), NOTHING),
    "kubevirt_unreadable": (("KubeVirt's namespace cannot be read: 403 Forbidden",),),
    "vmi_unreadable": (("VirtualMachineInstance shop/web", "403 Forbidden"),),
    "instancetype_unreadable": ((f"{SMALL} cannot be read: 403 Forbidden",),),
    "instancetype_unresolved": ((f"{SMALL} does not exist",),),
    "instancetype_sets_scheduler": (("batch",),),
    **dict.fromkeys(("spread_off", "spread_injected", "spread_hosts_only", "spread_without_zones"), NOTHING),
    "spread_present": (("hostname",),),
    "spread_preserved": (("hostname",),),
    **dict.fromkeys(("spread_withdrawn", "spread_chosen", "spread_opted_out"), NOTHING),
    "spread_removed": (("hostname",),),
    "spread_invalid": (("rack",),),
    "spread_withdrawn_for": (("off",),),
}

INSTANCETYPES: Final[Examples] = {
    "owner_chose": (("instancetype",),),
    "owner_removed": (("instancetype",), ("preference",)),
    "owner_removed_name": (("instancetype",),),
    "owner_declined": (("preference",),),
    "sized": (
        ("instancetype", instancetypes.vm_size("memory.guest")),
        ("instancetype", instancetypes.vmi_size("cpu.cores")),
        ("preference", instancetypes.preset_size("large", "memory.guest")),
    ),
    "vm_size": (("memory.guest",),),
    "vmi_size": (("cpu.cores",),),
    "preset_size": (("large", "memory.guest"),),
    "preset_unknown": (("403 Forbidden",),),
    **dict.fromkeys(("no_defaults", "nothing_requested", "no_default_applied", "no_matcher", "unchanged"), NOTHING),
    **dict.fromkeys(("spec_unchanged", "defaults_kept", "nothing_to_preserve", "owned_by_a_vm"), NOTHING),
    "already_applied": (("instancetype", SMALL),),
    "defaults_injected": (((("instancetype", SMALL), ("preference", FEDORA)),), ((("preference", FEDORA),),)),
    "defaults_preserved": (((("instancetype", SMALL), ("preference", FEDORA)),), ((("instancetype", SMALL),),)),
    "defaults_withdrawn": (
        ((("instancetype", SMALL), ("preference", FEDORA)), (instancetypes.vm_size("memory.guest"),)),
        ((("instancetype", SMALL),), (instancetypes.vm_size("memory.guest"),)),
    ),
    "default_replaced": (("instancetype",),),
    "default_assumed": ((instancetypes.assumed_same_kind("instancetype", "u1.large", LARGE),),),
    "assumed_cluster_wide": (("instancetype", "u1.large", LARGE, "VirtualMachineInstancetype/u1.large"),),
    "assumed_same_kind": (("instancetype", "u1.large", "VirtualMachineInstancetype/u1.large"),),
    "expanded": (({"instancetype": SMALL, "preference": FEDORA},), ({"instancetype": SMALL},)),
    "applied": (({"instancetype": SMALL, "preference": FEDORA},), ({"instancetype": SMALL},)),
    "default_conflicts": (
        (f"instancetype {SMALL}", CONFLICT),
        (f"preference {FEDORA}", instancetypes.inferred_conflict),
    ),
    "default_needs_instancetype": ((f"preference {FEDORA}",),),
    "default_unusable": (
        ("instancetype", instancetypes.not_allowed(SMALL, "shop", "cx1.*, u1.large")),
        ('instancetype "u1.small"', "VMI conflicts with instancetype spec in fields: [spec.domain.cpu.cores]"),
    ),
    "default_missing": (("instancetype", SMALL),),
    "not_expanded_inferred": NOTHING,
    "not_validated_inferred": NOTHING,
    "not_expanded_architecture": NOTHING,
    "not_expanded": ((CONFLICT,),),
    "size_removed": NOTHING,
    "memory_missing": NOTHING,
    "had_default": (("instancetype",),),
    "way_out_of_copied": (("instancetype", "kubevirt-webhook.github.io/injected-instancetype"),),
    "not_evaluated": (("spec.template.spec.domain.cpu.sockets must be a number, not a string",),),
    "vmi_not_filled": (("spec.domain.cpu must be an object, not an array",),),
    "kubevirt_too_old": (
        ("the VM's instancetype was not validated", "KubeVirt 1.5.0 is older than 1.6, the oldest known release"),
    ),
    "missing": (
        ("spec.instancetype", GONE, True),
        ("spec.instancetype", "got unexpected kind in InstancetypeMatcher: Foo", False),
    ),
    "valid": NOTHING,
    "names_nothing": (("instancetype", "instancetype.kubevirt.io/default-instancetype"),),
    "not_allowed": ((SMALL, "shop", "cx1.*, u1.large"),),
    "not_captured": (("web-u1.small-1", "shop", "cx1.*, u1.large"),),
    "lookup_failed": ((f"{SMALL} cannot be read: 403 Forbidden",),),
    "way_out_at_create": ((SMALL,),),
    "way_out_at_update": (({"instancetype": SMALL},), ({"instancetype": SMALL, "preference": FEDORA},)),
    "inferred_conflict": NOTHING,
    "architecture_conflict": NOTHING,
}

AVAILABLE: Final = common.eligible(0, 6).text
MIGRATION: Final[Examples] = {
    "no_added_selector": NOTHING,
    "nothing_to_constrain": (("m1",),),
    "inbound_limited": (
        (["node-1", "node-2"], 0, 1),
        ([f"node-{number}" for number in range(9)], 2, 2),
        ([], 1, 1),
    ),
    "inbound_exceeded": ((2,),),
    "inbound_unknown": ((NO_ANSWER,),),
    **dict.fromkeys(("validated_elsewhere", "on_sending_side", "ignored_on_sending_side", "by_kubevirt"), NOTHING),
    "left_to_groups": NOTHING,
    "lookup_failed": ((NO_ANSWER,),),
    "pinned": (((PINNED,),),),
    "selector_conflict": tuple(
        (each, ["zone"] * (ZONES in each), AVAILABLE) for each in ((ZONES,), (ZONES, PINNED), (PINNED,))
    ),
    "conflict_warning": (((ZONES,),),),
    "pending": ((common.NO_ELIGIBLE_NODE, AVAILABLE),),
    "describe": (((ZONES, PINNED),), ((ZONES,) * 12,)),
    "reserved_name": (("kubevirt-evacuation-1",),),
    "too_many_keys": ((257, 256),),
    "selector_invalid": ((("key \"a/b/c\" has more than one '/'", "key \"/x\" has no prefix before its '/'"),),),
    "reserved_keys": (
        (("kubevirt.io/schedulable",),),
        (("kubevirt.io/schedulable", "cpu-vendor.node.kubevirt.io/AMD"),),
    ),
    "via_virtctl": NOTHING,
    "node_choice_forbidden": (
        ("jane", "shop", "use", "migrationtargets.kubevirt-webhook.github.io"),
        ("", "shop", "use", "migrationtargets.kubevirt-webhook.github.io"),
    ),
    "too_many": ((3, 2, "shop"), (1, 1, "shop")),
    "not_a_target": NOTHING,
    "migration_not_found": (("m1",),),
    "requirements_unknown": ((NO_ANSWER,),),
    "constrained": (("zone=b and disk=ssd", "m1"),),
    "already_constrained": (("zone=b and disk=ssd",), ("",)),
}

EVICTION: Final[Examples] = {
    "other_requester": ((("sigs.k8s.io/descheduler", "rebalancer"),), ((),)),
    "by_kubevirt": NOTHING,
    "quota": (("exceeded quota: vms, requested: pods=1, used: pods=4, limited: pods=4",),),
    "quota_not_known": (("whether ResourceQuotas allow the target pod is not known, because X",),),
    "pod_not_found": (("virt-launcher-web-x7k2p",),),
    **dict.fromkeys(("being_deleted", "no_configuration"), NOTHING),
    "external_strategy": (("shop/web",),),
    "unknown_strategy": (("shop/web", "LiveMigrateTomorrow"),),
    "will_stop": (("shop/web", eviction.strategy_none), ("shop/web", eviction.strategy_if_possible)),
    "strategy_none": NOTHING,
    "strategy_if_possible": NOTHING,
    "not_migratable": (("shop/web",),),
    "already_evacuating": (("shop/web",),),
    "already_marked": (("shop/web", "node-1"),),
    "stale_evacuation": (("shop/web", "node-2"),),
    "name_too_long": (
        (str(migration_targets.name_problem("v" * 64)),),
        (STATE_NOT_FOUND,),
    ),
    "held_back": (("while its backup runs",), ("while its backup runs and until its utility volumes are detached",)),
    "blackout": (("Fri, Sat from 22:00 to 12:01 UTC",),),
    "cool_down": ((300, 1, 60, 240), (600, 2, 60, 540)),
    "too_many": ((3, 2, "namespace shop"), (1, 1, "the cluster")),
    "transfer": (("CDI importer", 86_400, 7_200),),
    "cap_not_applied": (("the list of virtualmachineinstancemigrations is too large to be read",),),
}

NAMING: Final[Examples] = {
    "too_long": ((str(migration_targets.name_problem("v" * 64)),),),
    "state_not_found": (("1.8.1", "37"),),
    "migratable": NOTHING,
}

SIZES: Final[Examples] = {
    "out_of_limits": (("16 vCPUs are more than 8", "1 to 8 vCPUs, 1Gi to 64Gi memory in steps of 512Mi"),),
    "instancetype_required": (
        ("spec.template.spec.domain.cpu.cores", "an instancetype"),
        ("spec.domain.memory.guest", "an allowed instancetype (u1.small, u1.medium)"),
    ),
    "within_limits": NOTHING,
    "no_inline_size": NOTHING,
    "has_instancetype": NOTHING,
    "written_by_a_webhook": NOTHING,
    "size_unchanged": NOTHING,
    "no_size_limits": NOTHING,
    "limits_invalid": (("annotation kubevirt-webhook.github.io/size-limits: cpu.maxx: unknown setting",),),
    "by_kubevirt": NOTHING,
    "owned_by_a_vm": NOTHING,
    "invalid": (("spec.domain.memory.guest is not a valid quantity; use for example 4Gi, 1500m or 2e9",),),
    "lookup_failed": (("where KubeVirt runs cannot be read: no answer",),),
}

# The policy that speaks in the examples; what more than one policy says has the first.
DEFAULTS: Final[Examples] = {
    "injected": (("evictionStrategy",),),
    "merged": (("tolerations",),),
    "recorded": (("nodeSelector",),),
    "not_recorded": (("nodeSelector",),),
    "present": (("tolerations",),),
    "owner_chose": (("evictionStrategy",),),
    "opted_out": NOTHING,
    "none": NOTHING,
    "invalid": (("annotation kubevirt-webhook.github.io/default-tolerations: must be a list",),),
    "unusable": (("priorityClassName", "PriorityClass vms does not exist"),),
    "received": NOTHING,
}

GROUPS: Final[Examples] = {
    "injected": (("db",),),
    "recorded": (("db",),),
    "present": NOTHING,
    "no_group": NOTHING,
    "without_rule": (("dbs", '; there are rules for "db"'), ("dbs", "")),
    "misplaced": NOTHING,
    "joined": (("db",),),
    "invalid": (("annotation kubevirt-webhook.github.io/group-rules: db: a group has no rule",),),
    "broken": (
        (
            "db",
            "on nodes with license=oracle",
            "",
            "0/3 nodes are available: 3 node(s) without license=oracle (required by the VM's group)",
        ),
        (
            "db",
            "apart by node",
            '"db-1", "db-2"',
            "0/3 nodes are available: 2 node(s) where another VM of its group runs, 1 node(s) cordoned",
        ),
    ),
    "nothing_required": (("db",),),
    "not_moved": NOTHING,
    "nowhere_anyway": NOTHING,
    "between_clusters": NOTHING,
    "by_kubevirt": NOTHING,
}

HEADROOM: Final[Examples] = {
    "no_place": (
        ("node01", "node02", [("shop", "web"), ("bank", "db")], "shop", "free 4Gi of memory on node03, or add a node"),
        ("node01", "node01", [("shop", "web")], "shop", 'uncordon node "node03"'),
    ),
    "no_place_unnamed": ((1, "free some memory, or add a node"), (3, "uncordon a node"), (0, "add a node")),
    "no_place_together": (
        ("node01", "its VMs request 96Gi of memory, and all other nodes have 80Gi free", "add a node like node01"),
    ),
    "no_room": (("shop/web", "free 4Gi of memory on node03, or add a node"),),
    "no_node": (
        (
            "shop/web",
            '0/4 nodes are available: 3 node(s) without zone=b, 1 node(s) where another VM of group "database" runs',
            "let the VM run on more nodes, stop another VM of its group on node01, or take the VM out of the group",
        ),
        (
            "shop/web",
            'it may run on none that has room, because of its nodeSelector and group "database"',
            "let the VM run on more nodes, stop another VM of its group, or take the VM out of the group",
        ),
    ),
    "no_migration": (
        ("VM shop/web", "exceeded quota: q, requested: requests.memory=4Gi, used: requests.memory=6Gi, limited: X"),
    ),
    "restarts": (("shop", "web"),),
    **dict.fromkeys(("kept", "not_proven", "migrates", "not_rendered"), NOTHING),
}
PREEMPTION: Final[Examples] = {
    "requested": (("shop/web", "node01", 300),),
    "waits": (("shop/web", "node01", 240),),
    "preemptor_unknown": (("node01",),),
    "preemptor_gone": (("node01",),),
    **dict.fromkeys(("ended", "being_deleted"), NOTHING),
    "overdue": (("shop/web", "301"),),
    "not_aborted": (("shop/web", 31),),
    "waited": (("node01", 301),),
    "no_room": (("shop/web",),),
    "recent": (("shop/web",),),
    "not_begun": (("shop/web", "30"),),
    "not_requested": (("shop/web",),),
    "cannot_move": (("shop/web", "KubeVirt says that it is not live-migratable"),),
    "node_down": (("shop/web", "node01"),),
    "too_many": ((10, 10),),
    "urgent": (("2000000000", "node01"),),
    "synchronous": (("node01",),),
    "other_user": (("admin",),),
    "unknown_user": (("system:serviceaccount:kube-system:my-scheduler", "schedulers"),),
    "not_disrupted": (("PreemptionByScheduler",),),
}

CATALOGUES: Final[Mapping[str, tuple[ModuleType, names.PolicyName, Examples]]] = {
    "common": (common, names.SCHEDULING, COMMON),
    "scheduling": (scheduling, names.SCHEDULING, SCHEDULING),
    "instancetypes": (instancetypes, names.INSTANCETYPES, INSTANCETYPES),
    "migration": (migration, names.MIGRATION, MIGRATION),
    "eviction": (eviction, names.EVICTION, EVICTION),
    "naming": (naming, "naming", NAMING),
    "sizes": (sizes, "sizes", SIZES),
    "defaults": (defaults, "defaults", DEFAULTS),
    "groups": (groups, "groups", GROUPS),
    "preemption": (preemption, "preemption", PREEMPTION),
    "headroom": (headroom, "headroom", HEADROOM),
}
each_catalogue = pytest.mark.parametrize("name", CATALOGUES)


def test_every_policy_has_examples_of_its_sentences() -> None:
    assert {*CATALOGUES} == {"common", *BY_NAME}, "CATALOGUES has the reasons of each policy, with examples"


def _is_sentence(catalogue: ModuleType, name: str, value: object) -> bool:
    is_ours = inspect.isfunction(value) and value.__module__ in (catalogue.__name__, catalog.__name__)
    return name.islower() and (is_ours or isinstance(value, Reason | str)) and not name.startswith("_")


def _public(catalogue: ModuleType) -> set[str]:
    return {name for name, value in vars(catalogue).items() if _is_sentence(catalogue, name, value)} - vars(
        catalog
    ).keys()


def _parts(made: object) -> list[Reason | str]:
    """The texts of a result: a reason, a clause, or several of them."""
    if isinstance(made, Reason | str):
        return [made]
    assert isinstance(made, tuple), made
    return [part for each in made for part in _parts(each)]


def _made(name: str) -> list[tuple[str, Reason | str]]:
    """The text of each sentence of a catalogue for its examples, in their order."""
    catalogue, _, examples = CATALOGUES[name]
    return [
        (sentence, part)
        for sentence, given in examples.items()
        for made in ([getattr(catalogue, sentence)(*each) for each in given] or [getattr(catalogue, sentence)])
        for part in _parts(made)
    ]


def _compose(policy: str, part: Reason | str, mode: Mode = names.ENFORCE) -> str:
    if isinstance(part, str):
        return f"… {part}"
    return compose(policy, part.text, part.code, mode, most=MAX_MESSAGE)


@each_catalogue
def test_no_reason_repeats_the_decision_that_it_stands_beside(name: str) -> None:
    texts = [part.text for _, part in _made(name) if isinstance(part, Reason)]
    assert not [text for text in texts if text.startswith(("allowed", "denied", "patched"))]


@pytest.mark.golden
@each_catalogue
def test_messages(name: str) -> None:
    """A line for each example as users read it; what begins with an ellipsis is a part of other messages."""
    catalogue, policy, examples = CATALOGUES[name]
    made = _made(name)
    lines = [f"{function}: {_compose(policy, part)}" for function, part in made]
    function, reason = next((function, part) for function, part in made if isinstance(part, Reason))
    lines.append(f"{function} in mode warn: {_compose(policy, reason, names.WARN)}")
    without = sorted(_public(catalogue) - examples.keys())
    assert without == [], f"add an example of each to those of {name} in tests/admission/test_messages.py"
    golden_files.check(f"messages-{name}.txt", "\n".join(lines))


@each_catalogue
def test_messages_have_documented_codes(name: str) -> None:
    for _, part in _made(name):
        assert isinstance(part, str) or part.code in MEANINGS


CODES = sorted(MEANINGS)
PLANNED = sorted({code for codes in report.CODES.values() for code in codes})


def test_what_a_user_wrote_is_quoted_where_the_sentence_says_so() -> None:
    hostile = 'a"\nb'
    assert catalog.about("c", "%s and %q")(hostile).text == 'a"\nb and "a\\"\\nb"'
    assert catalog.about_two("c", "%q, %s")("x%s", "%q").text == '"x%s", %q'
    for template in ('"%s"', "%d", "100%"):
        with pytest.raises(ValueError, match="%q for one that is quoted"):
            catalog.about("c", template)


def test_a_code_is_defined_once() -> None:
    code, meaning = next(iter(common.SHARED.items()))
    with pytest.raises(ValueError, match=code):
        catalog.define(common.SHARED, "skipped", code, "Another meaning.")
    assert common.SHARED[code] is meaning
    for taken in (CODES[0], code, *POLICIES[1].reasons):
        again = msgspec.structs.replace(POLICIES[0], reasons={taken: meaning})
        with pytest.raises(ValueError, match=taken):
            meanings_of([again, *POLICIES])


def test_what_a_policy_shares_is_among_what_can_be_shared() -> None:
    shared = [set(policy.shared_reasons) for policy in POLICIES]
    assert set.union(*shared) == common.SHARED.keys()
    # A code that one policy gives is the policy's own.
    assert all(len(MEANINGS[code].policies) > 1 for code in common.SHARED)


def test_a_policy_that_goes_takes_its_codes_along() -> None:
    for gone in POLICIES:
        rest = meanings_of([policy for policy in POLICIES if policy is not gone])
        assert not rest.keys() & gone.reasons.keys()
        assert not [code for code, meaning in rest.items() if gone.name in meaning.policies or not meaning.policies]


def test_a_denial_says_what_to_do() -> None:
    for code, meaning in MEANINGS.items():
        assert meaning.policies, code
        assert meaning.remedy or meaning.kind not in {"denied", "failed"}, code


def test_codes_of_plans_are_explained_beside_those_of_policies() -> None:
    """Both stand in the same brackets, and some are the same word with two meanings."""
    assert report.MEANINGS.keys() == set(PLANNED)
    listed = {each["code"]: each for each in json.loads(run("explain", "reason", "-o", "json").output)}
    assert {code for code, each in listed.items() if "plan" in each} == set(PLANNED)
    assert {code for code, each in listed.items() if each["policies"]} == set(CODES)
    for code in PLANNED:
        shown = run("explain", "reason", code)
        assert (shown.exit_code, shown.output.count(f"{code} (")) == (0, 1 + (code in MEANINGS))
        assert listed[code]["plan"]["outcomes"] == [outcome for outcome, codes in report.CODES.items() if code in codes]
        assert report.MEANINGS[code].endswith(".")
        assert json.loads(run("explain", "reason", code, "-o", "json").output) == listed[code]
    assert "pods-apart" in run("explain", "reason", "pod-apart").output


def test_a_long_name_cuts_off_no_advice() -> None:
    long = "n" * 253
    missing = instancetypes.missing("spec.instancetype", f'instancetypes "{long}" not found', may_come=True)
    text = compose("instancetypes", missing.text, missing.code, "warn", most=MAX_WARNING)
    assert (len(text), "is corrected, or what does not exist is created" in text) == (MAX_WARNING, True)


def test_the_page_is_what_the_code_says() -> None:
    assert page.PAGE.read_text() == page.render(), "`make messages` writes docs/messages.md"


def test_explain_reason_leads_to_the_paragraph_of_the_page_that_says_the_same() -> None:
    written = page.render()
    for code in {*MEANINGS, *report.MEANINGS}:
        said = run("explain", "reason", code).output
        assert said.endswith(f"\nOn a page:\n{names.SITE}/messages#{code}\n")
        (paragraph,) = re.findall(rf"^### `{code}`\n(.*?)(?=^##|\Z)", written, re.MULTILINE | re.DOTALL)
        meanings = [MEANINGS[code].meaning, MEANINGS[code].remedy] if code in MEANINGS else []
        for text in (*meanings, report.MEANINGS.get(code, "")):
            assert text in paragraph
            assert text in " ".join(said.split())


def test_codes_are_listed_and_explained_with_or_without_brackets() -> None:
    plain, quoted = run("explain", "reason", "no-eligible-node"), run("explain", "reason", "[no-eligible-node]")
    assert (plain.exit_code, plain.output) == (0, quoted.output)
    assert max(map(len, plain.output.splitlines())) <= 80
    assert [line.split()[0] for line in run("explain", "reason").output.splitlines()] == sorted({*CODES, *PLANNED})
    mistyped = run("explain", "reason", "no-elligible-nodes")
    assert (mistyped.exit_code, "no-eligible-node" in mistyped.output, similar("zzz")) == (2, True, [])
    # Of what is similar to no code as a whole, a word counts.
    assert "quota" in similar("is-the-quota-of-this-namespace-used-up")
    # One that has two of the words is nearer than one that has a rare one.
    assert similar("sizes-out")[0] == "size-out-of-limits"
