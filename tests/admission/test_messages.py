"""The messages of policies: an example of every message, held in ``tests/golden/messages-*.txt``."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any, Final

import pytest

from tests import golden_files, wording
from webhook import names
from webhook.admission.decision import MAX_MESSAGE, Reason, compose
from webhook.admission.reasons import MEANINGS, common, eviction, instancetypes, migration, scheduling
from webhook.k8s.types.selectors import Expression
from webhook.names import Mode
from webhook.placement.nodes import HOSTNAME
from webhook.placement.requirements import Contradiction, Elsewhere, Label, Origin
from webhook.policies.common import migration_targets

Arguments = tuple[Any, ...]
Examples = Mapping[Callable[..., Any], tuple[Arguments, ...]]

SMALL: Final = "VirtualMachineClusterInstancetype/u1.small"
FEDORA: Final = "VirtualMachineClusterPreference/fedora"
NO_ANSWER: Final = "VirtualMachineInstance shop/web cannot be read: the request to the API server timed out after 3s"
CONFLICT: Final = (
    "VM field(s) spec.template.spec.domain.memory.guest conflicts with selected instance type"  # KubeVirt's own words
)
LEASE: Final = "Lease kubevirt-scheduler/kubevirt-scheduler expired 12s ago"
VM_UID: Final = "705ab4f5-6393-11e8-b7cc-42010a800002"
NOTHING: Final[tuple[Arguments, ...]] = ((),)


def _zones(origin: str, value: str) -> Label:
    return Label(origin, Expression.equals("zone", value))


ZONES: Final = Contradiction((_zones(Origin.ADDED, "b"), _zones(Origin.VM, "a")))
PINNED: Final = Contradiction(
    (Label(Origin.VM, Expression.equals(HOSTNAME, "node-1")), Elsewhere(Origin.SOURCE_NODE, "node-1"))
)

COMMON: Final[Examples] = {
    common.being_deleted: (("the VM",),),
    common.disabled: (("scheduling.virtualMachines",),),
    common.immutable_after_create: (("a migration's spec", "UPDATE"),),
    common.other_operation: (("DELETE",),),
    common.lookup_failed: (("the VM's instancetype was not validated", NO_ANSWER),),
    common.not_created_by_kubevirt: (("mallory",), ("",)),
    common.kubevirt_absent: NOTHING,
    common.vmi_not_found: (("shop", "web"),),
    common.vmi_replaced: (("shop", "web"),),
    common.eligible: ((2, 6), (0, 6)),
    common.opted_out: ((names.SCHEDULING,),),
    common.not_a_launcher_pod: NOTHING,
    common.no_vmi_owner: NOTHING,
    common.unnamed_vmi_owner: NOTHING,
    common.no_namespace: NOTHING,
    common.excluded_namespace: (("kube-system",),),
    common.namespace_unreadable: (("shop", "the request to the API server timed out after 3s"),),
    common.not_opted_in: ((names.SCHEDULING,),),
    common.switched_off: ((names.SCHEDULING,),),
    common.unknown_mode: ((names.SCHEDULING, "on"),),
    common.out_of_scope: NOTHING,
    common.other_subresource: (("status",), (None,)),
    common.no_object: (("DELETE",),),
    common.internal_error: ((VM_UID,),),
    common.overloaded: (("kubevirt-webhook has more reviews than it can evaluate",),),
    common.too_deep: NOTHING,
    common.not_evaluable: (("VirtualMachine", common.too_deep(), common.INVALID_OBJECT),),
    common.correct_the_object: ((common.not_evaluable("VirtualMachine", common.too_deep(), common.INVALID_OBJECT),),),
    common.not_evaluated_now: ((common.internal_error(VM_UID),),),
    common.allowed_unchanged: (("VirtualMachine", common.namespace_unreadable("shop", "403 Forbidden")),),
}

SCHEDULING: Final[Examples] = {
    scheduling.injected: (("the VM",), ("VirtualMachineInstance shop/web",)),
    scheduling.already_injected: (("kubevirt",),),
    scheduling.annotation_restored: (("kubevirt",),),
    scheduling.preserved: (("kubevirt",),),
    scheduling.withdrawn: (
        ("kubevirt", scheduling.no_longer_declared()),
        ("kubevirt", scheduling.instancetype_sets_scheduler("batch").text),
    ),
    scheduling.fell_back: (("kubevirt", LEASE), ("kubevirt", scheduling.no_longer_declared())),
    scheduling.already_fell_back: (("kubevirt",),),
    scheduling.no_longer_declared: NOTHING,
    scheduling.undeclared: (("batch",),),
    scheduling.none_declared: NOTHING,
    scheduling.not_preserved: (("batch",),),
    scheduling.unavailable: (("kubevirt", LEASE),),
    scheduling.health_unknown: (("kubevirt", scheduling.no_health_check()),),
    scheduling.no_health_check: NOTHING,
    scheduling.already_bound: (("node-1",),),
    scheduling.foreign_scheduler: (("stork",),),
    scheduling.rewritten: (("VirtualMachineInstance shop/web", "kubevirt"),),
    scheduling.owner_chose: (("stork",), (names.DEFAULT_SCHEDULER,)),
    scheduling.owner_chose_default: (("VirtualMachineInstance shop/web",),),
    scheduling.owner_removed: (("kubevirt",),),
    scheduling.nothing_to_preserve: NOTHING,
    scheduling.no_template: NOTHING,
    scheduling.no_spec: NOTHING,
    scheduling.kubevirt_unreadable: (("KubeVirt's namespace cannot be read: 403 Forbidden",),),
    scheduling.vmi_unreadable: (("VirtualMachineInstance shop/web", "403 Forbidden"),),
    scheduling.instancetype_unreadable: ((f"{SMALL} cannot be read: 403 Forbidden",),),
    scheduling.instancetype_unresolved: ((f"{SMALL} does not exist",),),
    scheduling.instancetype_sets_scheduler: (("batch",),),
    scheduling.spread_off: NOTHING,
    scheduling.spread_injected: NOTHING,
    scheduling.spread_hosts_only: NOTHING,
    scheduling.spread_without_zones: NOTHING,
    scheduling.spread_present: (("hostname",),),
    scheduling.spread_preserved: (("hostname",),),
    scheduling.spread_withdrawn: NOTHING,
    scheduling.spread_chosen: NOTHING,
    scheduling.spread_opted_out: NOTHING,
    scheduling.spread_removed: (("hostname",),),
    scheduling.spread_invalid: (("rack",),),
}

INSTANCETYPES: Final[Examples] = {
    instancetypes.owner_chose: (("instancetype",),),
    instancetypes.owner_removed: (("instancetype",), ("preference",)),
    instancetypes.owner_removed_name: (("instancetype",),),
    instancetypes.owner_declined: (("preference",),),
    instancetypes.sized: (
        (instancetypes.vm_size("memory.guest"), "instancetype"),
        (instancetypes.vmi_size("cpu.cores"), "instancetype"),
        (instancetypes.preset_size("large", "memory.guest"), "preference"),
    ),
    instancetypes.vm_size: (("memory.guest",),),
    instancetypes.vmi_size: (("cpu.cores",),),
    instancetypes.preset_size: (("large", "memory.guest"),),
    instancetypes.preset_unknown: (("403 Forbidden",),),
    instancetypes.no_defaults: NOTHING,
    instancetypes.nothing_requested: NOTHING,
    instancetypes.no_default_applied: NOTHING,
    instancetypes.no_matcher: NOTHING,
    instancetypes.unchanged: NOTHING,
    instancetypes.spec_unchanged: NOTHING,
    instancetypes.defaults_kept: NOTHING,
    instancetypes.nothing_to_preserve: NOTHING,
    instancetypes.owned_by_a_vm: NOTHING,
    instancetypes.already_applied: (("instancetype", SMALL),),
    instancetypes.defaults_injected: (
        ((("instancetype", SMALL), ("preference", FEDORA)),),
        ((("preference", FEDORA),),),
    ),
    instancetypes.defaults_preserved: (
        ((("instancetype", SMALL), ("preference", FEDORA)),),
        ((("instancetype", SMALL),),),
    ),
    instancetypes.defaults_withdrawn: (
        ((("instancetype", SMALL), ("preference", FEDORA)), (instancetypes.vm_size("memory.guest"),)),
        ((("instancetype", SMALL),), (instancetypes.vm_size("memory.guest"),)),
    ),
    instancetypes.default_replaced: (("instancetype",),),
    instancetypes.default_assumed: (
        (instancetypes.assumed_same_kind("instancetype", "u1.large", "VirtualMachineClusterInstancetype/u1.large"),),
    ),
    instancetypes.assumed_cluster_wide: (
        (
            "instancetype",
            "u1.large",
            "VirtualMachineClusterInstancetype/u1.large",
            "VirtualMachineInstancetype/u1.large",
        ),
    ),
    instancetypes.assumed_same_kind: (("instancetype", "u1.large", "VirtualMachineInstancetype/u1.large"),),
    instancetypes.expanded: (({"instancetype": SMALL, "preference": FEDORA},), ({"instancetype": SMALL},)),
    instancetypes.applied: (({"instancetype": SMALL, "preference": FEDORA},), ({"instancetype": SMALL},)),
    instancetypes.default_conflicts: (
        ("instancetype", SMALL, CONFLICT),
        ("preference", FEDORA, instancetypes.inferred_conflict()),
    ),
    instancetypes.default_unusable: (("instancetype", instancetypes.not_allowed(SMALL, "shop", "cx1.*, u1.large")),),
    instancetypes.default_missing: (("instancetype", SMALL),),
    instancetypes.vmi_default_unusable: (
        ("instancetype", "u1.small", "VMI conflicts with instancetype spec in fields: [spec.domain.cpu.cores]"),
    ),
    instancetypes.not_expanded_inferred: NOTHING,
    instancetypes.not_expanded_architecture: NOTHING,
    instancetypes.not_expanded: ((CONFLICT,),),
    instancetypes.size_removed: NOTHING,
    instancetypes.not_evaluated: (("spec.template.spec.domain.cpu.sockets must be a number, not a string",),),
    instancetypes.vmi_not_filled: (("spec.domain.cpu must be an object, not an array",),),
    instancetypes.kubevirt_too_old: (
        (
            "the VM's instancetype was not validated",
            "KubeVirt 1.5.0 is older than 1.6, the oldest known release",
        ),
    ),
    instancetypes.missing: (
        (
            (
                ('virtualmachineclusterinstancetypes.instancetype.kubevirt.io "u1.gone" not found', True),
                ("got unexpected kind in InstancetypeMatcher: Foo", False),
            ),
        ),
    ),
    instancetypes.valid: NOTHING,
    instancetypes.names_nothing: (("instancetype", "instancetype.kubevirt.io/default-instancetype"),),
    instancetypes.not_allowed: ((SMALL, "shop", "cx1.*, u1.large"),),
    instancetypes.not_captured: (("web-u1.small-1", "shop", "cx1.*, u1.large"),),
    instancetypes.lookup_failed: ((f"{SMALL} cannot be read: 403 Forbidden",),),
    instancetypes.way_out_at_create: ((SMALL,),),
    instancetypes.way_out_at_update: (
        ({"instancetype": SMALL},),
        ({"instancetype": SMALL, "preference": FEDORA},),
    ),
    instancetypes.inferred_conflict: NOTHING,
    instancetypes.architecture_conflict: NOTHING,
}

AVAILABLE: Final = common.eligible(0, 6).text
MIGRATION: Final[Examples] = {
    migration.no_added_selector: NOTHING,
    migration.nothing_to_constrain: (("m1",),),
    migration.validated_elsewhere: NOTHING,
    migration.on_sending_side: NOTHING,
    migration.ignored_on_sending_side: NOTHING,
    migration.by_kubevirt: NOTHING,
    migration.lookup_failed: ((NO_ANSWER,),),
    migration.pinned: (((PINNED,),),),
    migration.selector_conflict: (((ZONES,), AVAILABLE), ((ZONES, PINNED), AVAILABLE), ((PINNED,), AVAILABLE)),
    migration.pending: ((migration.SELECTOR_CONFLICT, migration.describe((ZONES,))),),
    migration.describe: (((ZONES, PINNED),), ((ZONES,) * 12,)),
    migration.reserved_name: (("kubevirt-evacuation-1",),),
    migration.too_many_keys: ((257, 256),),
    migration.selector_invalid: (
        (("key \"a/b/c\" has more than one '/'", "key \"/x\" has no prefix before its '/'"),),
    ),
    migration.reserved_keys: (
        (("kubevirt.io/schedulable",),),
        (("kubevirt.io/schedulable", "cpu-vendor.node.kubevirt.io/AMD"),),
    ),
    migration.via_virtctl: NOTHING,
    migration.node_choice_forbidden: (
        ("jane", "shop", "use", "migrationtargets.kubevirt-webhook.github.io"),
        ("", "shop", "use", "migrationtargets.kubevirt-webhook.github.io"),
    ),
    migration.too_many: ((3, 2, "shop"), (1, 1, "shop")),
    migration.not_a_target: NOTHING,
    migration.migration_not_found: (("m1",),),
    migration.guards_unknown: ((NO_ANSWER,),),
    migration.constrained: (("m1", "zone=b and disk=ssd"),),
    migration.already_constrained: (("zone=b and disk=ssd",), ("",)),
}

EVICTION: Final[Examples] = {
    eviction.other_requester: ((("sigs.k8s.io/descheduler", "rebalancer"),), ((),)),
    eviction.by_kubevirt: NOTHING,
    eviction.quota: (("exceeded quota: vms, requested: pods=1, used: pods=4, limited: pods=4",),),
    eviction.quota_not_known: (("whether ResourceQuotas allow the target pod is not known, because X",),),
    eviction.pod_not_found: (("virt-launcher-web-x7k2p",),),
    eviction.pod_completed: (("Succeeded",),),
    eviction.being_deleted: NOTHING,
    eviction.not_the_current_pod: NOTHING,
    eviction.no_configuration: NOTHING,
    eviction.external_strategy: (("shop/web",),),
    eviction.unknown_strategy: (("shop/web", "LiveMigrateTomorrow"),),
    eviction.will_stop: (
        ("shop/web", eviction.strategy_none()),
        ("shop/web", eviction.strategy_if_possible()),
    ),
    eviction.strategy_none: NOTHING,
    eviction.strategy_if_possible: NOTHING,
    eviction.not_migratable: (("shop/web",),),
    eviction.already_evacuating: (("shop/web",),),
    eviction.name_too_long: ((str(migration_targets.name_problem("v" * 64)),),),
    eviction.held_back: (
        (("while its backup runs",),),
        (("while its backup runs", "until its utility volumes are detached"),),
    ),
    eviction.blackout: (("Fri, Sat from 22:00 to 12:01 UTC",),),
    eviction.cool_down: ((300, 1, 60, 240), (600, 2, 60, 540)),
    eviction.too_many: ((3, 2, "namespace shop"), (1, 1, "the cluster")),
    eviction.cap_not_applied: (("the list of virtualmachineinstancemigrations is too large to be read",),),
}

# The policy that speaks in the examples; what more than one policy says has the first.
CATALOGUES: Final[Mapping[str, tuple[ModuleType, names.Policy, Examples]]] = {
    "common": (common, names.SCHEDULING, COMMON),
    "scheduling": (scheduling, names.SCHEDULING, SCHEDULING),
    "instancetypes": (instancetypes, names.INSTANCETYPES, INSTANCETYPES),
    "migration": (migration, names.MIGRATION, MIGRATION),
    "eviction": (eviction, names.EVICTION, EVICTION),
}
each_catalogue = pytest.mark.parametrize("name", CATALOGUES)


def _public(catalogue: ModuleType) -> set[str]:
    found = inspect.getmembers(catalogue, inspect.isfunction)
    return {name for name, function in found if not name.startswith("_") and function.__module__ == catalogue.__name__}


def _parts(made: object) -> list[Reason | str]:
    """The texts of a result: a reason, a clause, or several of them."""
    if isinstance(made, Reason | str):
        return [made]
    assert isinstance(made, tuple), made
    return [part for each in made for part in _parts(each)]


def _made(examples: Examples) -> list[tuple[str, Reason | str]]:
    """The text of each function for its examples, in their order."""
    return [
        (function.__name__, part)
        for function, given in examples.items()
        for arguments in given
        for part in _parts(function(*arguments))
    ]


def _compose(policy: str, part: Reason | str, mode: Mode = names.ENFORCE) -> str:
    if isinstance(part, str):
        return f"… {part}"
    return compose(policy, part.text, part.code, mode, most=MAX_MESSAGE)


@each_catalogue
def test_every_message_has_an_example(name: str) -> None:
    catalogue, _, examples = CATALOGUES[name]

    assert {function.__name__ for function in examples} == _public(catalogue)


@pytest.mark.golden
@each_catalogue
def test_messages(name: str) -> None:
    """A line for each example as users read it; what begins with an ellipsis is a part of other messages."""
    _, policy, examples = CATALOGUES[name]
    made = _made(examples)
    lines = [f"{function}: {_compose(policy, part)}" for function, part in made]
    function, reason = next((function, part) for function, part in made if isinstance(part, Reason))
    lines.append(f"{function} in mode warn: {_compose(policy, reason, names.WARN)}")

    golden_files.check(f"messages-{name}.txt", "\n".join(lines))


@each_catalogue
def test_messages_are_worded_as_kubernetes_words_them(name: str) -> None:
    for function, part in _made(CATALOGUES[name][2]):
        text = part if isinstance(part, str) else part.text
        assert wording.mistakes(text) == [], f"{function}: {text}"


@each_catalogue
def test_every_code_is_a_documented_one(name: str) -> None:
    assert {part.code for _, part in _made(CATALOGUES[name][2]) if isinstance(part, Reason)} <= MEANINGS.keys()


@pytest.mark.parametrize(
    "text",
    ["we do", "told by nobody", "it can't be", "x is no label", "the job", "an end.", "REFUSED", "a  b", "that's it"],
)
def test_bad_wording_is_found(text: str) -> None:
    assert wording.mistakes(text)
