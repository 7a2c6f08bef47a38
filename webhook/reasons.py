"""What each reason code means, and what to do about it: for ``kubevirt-webhook explain reason`` and docs/messages.md.

The sentences that carry the codes are in the policies' ``messages`` modules; here stands what does not change with the
object that a sentence is about.
"""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from typing import Final, Literal

import msgspec

from webhook import names
from webhook.names import EVICTION, INSTANCETYPES, MIGRATION, SCHEDULING, Code, Policy

# What a code stands for: a change, a denial, a request that is left alone, or a fault on the way to a decision.
Kind = Literal["changed", "denied", "allowed", "skipped", "failed"]

_ALL: Final = (SCHEDULING, INSTANCETYPES, MIGRATION, EVICTION)


class Meaning(msgspec.Struct, frozen=True):
    """A reason code for people.

    Attributes:
        policies: the policies that use the code.
        kind: what the policy does in mode ``enforce``; a setting may make a denial a warning.
        meaning: what happened, in a sentence or two.
        remedy: what to do about it; empty where nothing needs to be done.
    """

    policies: tuple[Policy, ...]
    kind: Kind
    meaning: str
    remedy: str = ""


_TEMPLATE: Final = (
    "A changed template requires a restart of a running VM, so nothing new is added to a VM after CREATE."
)
_OPT_OUT: Final = "To keep kubevirt-webhook from setting one, set"
_LOG: Final = "See the log of kubevirt-webhook; `kubevirt-webhook doctor` shows what it cannot read."

MEANINGS: Final[Mapping[str, Meaning]] = {
    # Any policy.
    Code.OUT_OF_SCOPE: Meaning(
        _ALL,
        "skipped",
        "The policy does not apply to this object: its namespace does not have the policy's label, or has it with the"
        " value off.",
        f"To switch a policy on, label the namespace, for example `{names.policy_label(SCHEDULING)}=enforce`.",
    ),
    Code.EXCLUDED_NAMESPACE: Meaning(
        _ALL,
        "skipped",
        "The namespace is excluded by the setting excludedNamespaces, or KubeVirt itself runs in it.",
    ),
    Code.NAMESPACE_UNREADABLE: Meaning(
        _ALL,
        "failed",
        "The namespace could not be read, so its mode is not known. The endpoint's failure behavior applies.",
        _LOG,
    ),
    Code.UNKNOWN_MODE: Meaning(
        _ALL,
        "skipped",
        "The policy's label on the namespace has a value that is not a mode.",
        "Set the label to enforce, warn, audit or off.",
    ),
    Code.DISABLED: Meaning(
        (SCHEDULING, INSTANCETYPES),
        "skipped",
        "The settings switch off this part of the policy, for example for VirtualMachines or for spread constraints.",
        "`kubevirt-webhook config show` prints the settings.",
    ),
    Code.INVALID_OBJECT: Meaning(
        _ALL,
        "failed",
        "The object, or one that it refers to, cannot be read: a field has the wrong type or is nested too deeply. A"
        " mutating policy leaves it alone, a validating one denies it.",
        "Correct the field that the message names, and apply the object again.",
    ),
    Code.BUG: Meaning(
        _ALL,
        "failed",
        "kubevirt-webhook failed while it evaluated the request. The endpoint's failure behavior applies.",
        "Find the request's UID in the log of kubevirt-webhook, and report the traceback.",
    ),
    Code.TOO_COMPLEX: Meaning(
        _ALL,
        "failed",
        "The object has more labels, terms or resources than kubevirt-webhook evaluates in one request. A mutating"
        " policy leaves it alone, a validating one denies it.",
        "Remove what the object does not need; the message names what there is too much of.",
    ),
    Code.BEING_DELETED: Meaning(
        (SCHEDULING, INSTANCETYPES, EVICTION), "skipped", "The object, or its VM, is already being deleted."
    ),
    Code.OTHER_OPERATION: Meaning(
        _ALL, "skipped", "The policy does not evaluate this operation or subresource, or another webhook entry does."
    ),
    Code.LOOKUP_FAILED: Meaning(
        (INSTANCETYPES, MIGRATION, EVICTION),
        "failed",
        "An object that the decision depends on could not be read from the API server. With failurePolicy Ignore the"
        " request is allowed without changes, with Fail it is denied.",
        f"Retry. {_LOG}",
    ),
    Code.KUBEVIRT_TOO_OLD: Meaning(
        (INSTANCETYPES,),
        "skipped",
        "KubeVirt in this cluster is older than 1.6, the first release whose rules for instancetypes are known to"
        " kubevirt-webhook. The policy allows everything without changes.",
        "Upgrade KubeVirt to 1.6 or newer, or switch the policy off. If the version is detected wrongly, set"
        " kubevirt.version in the settings.",
    ),
    Code.OWNER_OPTED_OUT: Meaning(
        (SCHEDULING, INSTANCETYPES),
        "skipped",
        "The owner of the VM declined the policy: by schedulerName default-scheduler, or by the label or annotation"
        f" {names.policy_label(INSTANCETYPES)}=off.",
    ),
    Code.KUBEVIRT_ABSENT: Meaning(
        (SCHEDULING, EVICTION), "skipped", "The cluster has no KubeVirt object, so nothing can be said about its VMs."
    ),
    Code.NOT_LAUNCHER: Meaning(
        (SCHEDULING, MIGRATION, EVICTION), "skipped", "The pod is not a virt-launcher pod: it lacks KubeVirt's label."
    ),
    Code.NO_VMI_OWNER: Meaning(
        (SCHEDULING, MIGRATION, EVICTION),
        "skipped",
        "The pod has the label of virt-launcher pods, but no VirtualMachineInstance controls it.",
    ),
    Code.NOT_CREATED_BY_KUBEVIRT: Meaning(
        (SCHEDULING, MIGRATION),
        "skipped",
        "The pod looks like a virt-launcher pod, but was not created by KubeVirt's controller. Anybody can write"
        " labels,"
        " so such a pod is left alone.",
    ),
    Code.VMI_NOT_FOUND: Meaning(
        (SCHEDULING, MIGRATION, EVICTION), "skipped", "The VirtualMachineInstance does not exist."
    ),
    Code.VMI_REPLACED: Meaning(
        (SCHEDULING, EVICTION),
        "skipped",
        "There is a VirtualMachineInstance of this name, but not the one that the pod belongs to.",
    ),
    Code.NOTHING_TO_PRESERVE: Meaning(
        (SCHEDULING, INSTANCETYPES), "skipped", f"An update of a VM without anything from kubevirt-webhook. {_TEMPLATE}"
    ),
    # Scheduling.
    Code.INJECTED: Meaning(
        (SCHEDULING,),
        "changed",
        "schedulerName is set, because the owner of the VM set none.",
        f"{_OPT_OUT} spec.template.spec.schedulerName to default-scheduler.",
    ),
    Code.PRESERVED: Meaning(
        (SCHEDULING,),
        "changed",
        "An update replaced the whole VM, as VirtualMachinePools and `kubectl replace` do, and so removed schedulerName"
        " and the annotation that kubevirt-webhook had set. Both are set again.",
        "To remove schedulerName for good, remove the field and keep the annotation, or set default-scheduler.",
    ),
    Code.FELL_BACK: Meaning(
        (SCHEDULING,),
        "changed",
        "The pod's scheduler was set by kubevirt-webhook and is unavailable, so the pod uses default-scheduler"
        " instead.",
        "Check the scheduler's pods and its Lease.",
    ),
    Code.SCHEDULER_WITHDRAWN: Meaning(
        (SCHEDULING,),
        "changed",
        "schedulerName is removed from the VM, because the instancetype that the owner named sets one as well, and"
        " KubeVirt denies a VM that sets what its instancetype sets.",
    ),
    Code.ANNOTATION_RESTORED: Meaning(
        (SCHEDULING,),
        "changed",
        "The VM has the schedulerName that kubevirt-webhook set, but lost the annotation"
        f" {names.INJECTED_SCHEDULER_ANNOTATION}, for example in a clone. The annotation is set again.",
    ),
    Code.ALREADY_INJECTED: Meaning((SCHEDULING,), "skipped", "kubevirt-webhook set schedulerName earlier."),
    Code.ALREADY_FELL_BACK: Meaning(
        (SCHEDULING,), "skipped", "The pod fell back to default-scheduler earlier in the same request."
    ),
    Code.OWNER_CHOSE: Meaning((SCHEDULING,), "skipped", "The owner of the VM set schedulerName, and keeps it."),
    Code.OWNER_REMOVED: Meaning(
        (SCHEDULING,),
        "skipped",
        f"The owner removed schedulerName and left the annotation {names.INJECTED_SCHEDULER_ANNOTATION}: the VM stays"
        " without.",
        "To have schedulerName set again, remove the annotation and create the VM again, or set the field.",
    ),
    Code.FOREIGN_SCHEDULER: Meaning(
        (SCHEDULING,), "skipped", "The pod names a scheduler that kubevirt-webhook did not set, and keeps it."
    ),
    Code.REWRITTEN: Meaning(
        (SCHEDULING,),
        "skipped",
        "The VirtualMachineInstance names a scheduler, but another component changed it in the pod before"
        " kubevirt-webhook saw it.",
        "Look for another mutating webhook that changes schedulerName of pods.",
    ),
    Code.KUBEVIRT_UNREADABLE: Meaning(
        (SCHEDULING,), "failed", "Where KubeVirt runs could not be read, so who created the pod is not known.", _LOG
    ),
    Code.BOUND: Meaning((SCHEDULING,), "skipped", "The pod names its node, so no scheduler looks at it."),
    Code.VMI_UNREADABLE: Meaning(
        (SCHEDULING,),
        "failed",
        "The VirtualMachineInstance could not be read, so the owner's choice is not known.",
        _LOG,
    ),
    Code.NO_TEMPLATE: Meaning((SCHEDULING,), "skipped", "The object has no spec that could name a scheduler."),
    Code.INSTANCETYPE_SETS_SCHEDULER: Meaning(
        (SCHEDULING,),
        "skipped",
        "The VM's instancetype sets schedulerName, and KubeVirt denies a VM that sets what its instancetype sets.",
    ),
    Code.INSTANCETYPE_UNRESOLVED: Meaning(
        (SCHEDULING,),
        "skipped",
        "The VM's instancetype does not exist yet or is inferred from a volume, so the VM is left alone; its"
        " launcher pod"
        " is evaluated when it is created.",
    ),
    Code.INSTANCETYPE_UNREADABLE: Meaning(
        (SCHEDULING,),
        "failed",
        "The VM's instancetype could not be read, so whether it sets schedulerName is not known.",
        _LOG,
    ),
    Code.UNDECLARED: Meaning(
        (SCHEDULING,),
        "skipped",
        "The scheduler that should be set is not declared in the settings.",
        "Add it to schedulers in the settings, or correct the namespace's annotation"
        f" {names.SCHEDULER_NAME_ANNOTATION}.",
    ),
    Code.SCHEDULER_UNAVAILABLE: Meaning(
        (SCHEDULING,),
        "skipped",
        "The scheduler's Lease has expired, or pods wait for it and it does not look at them. The VM uses"
        " default-scheduler, so that it starts.",
        "Check the scheduler's pods and its Lease; `kubevirt-webhook doctor` shows both.",
    ),
    Code.SCHEDULER_HEALTH_UNKNOWN: Meaning(
        (SCHEDULING,),
        "skipped",
        "Whether the scheduler runs is not known, because its Lease or the pods could not be read. The VM uses"
        " default-scheduler, so that it starts.",
        "Check the permissions of kubevirt-webhook, or set assumeAlive for this scheduler in the settings.",
    ),
    Code.SPREAD_INJECTED: Meaning(
        (SCHEDULING,),
        "changed",
        "Soft topologySpreadConstraints are set, because the owner of the VM set none.",
        f"{_OPT_OUT} the annotation {names.SPREAD_ANNOTATION}=off on the VM's template.",
    ),
    Code.SPREAD_PRESERVED: Meaning(
        (SCHEDULING,),
        "changed",
        "An update replaced the whole VM and so removed the topologySpreadConstraints and the annotation that"
        " kubevirt-webhook had set. Both are set again.",
    ),
    Code.SPREAD_WITHDRAWN: Meaning(
        (SCHEDULING,),
        "changed",
        "The topologySpreadConstraints from kubevirt-webhook are removed, because the owner set others.",
    ),
    Code.SPREAD_PRESENT: Meaning((SCHEDULING,), "skipped", "kubevirt-webhook set topologySpreadConstraints earlier."),
    Code.SPREAD_CHOSEN: Meaning(
        (SCHEDULING,), "skipped", "The owner of the VM set topologySpreadConstraints, and keeps them."
    ),
    Code.SPREAD_OPTED_OUT: Meaning(
        (SCHEDULING,), "skipped", f"The owner of the VM set the annotation {names.SPREAD_ANNOTATION} to off."
    ),
    Code.SPREAD_REMOVED: Meaning(
        (SCHEDULING,),
        "skipped",
        f"The owner removed the topologySpreadConstraints and left the annotation {names.INJECTED_SPREAD_ANNOTATION}.",
    ),
    Code.SPREAD_INVALID: Meaning(
        (SCHEDULING,),
        "skipped",
        f"The annotation {names.SPREAD_ANNOTATION} has an invalid value, so no constraints are set.",
        f"Set it to {', '.join(names.SPREADS[:-1])}, or {names.SPREADS[-1]}.",
    ),
    # Instancetypes.
    Code.DEFAULTS_INJECTED: Meaning(
        (INSTANCETYPES,),
        "changed",
        "The VM gets the default instancetype, preference, or both, because its owner set neither them nor a size.",
        "To leave a default out, set another instancetype, a size, or the label"
        f" {names.policy_label(INSTANCETYPES)}=off on the VM.",
    ),
    Code.DEFAULTS_PRESERVED: Meaning(
        (INSTANCETYPES,),
        "changed",
        "An update replaced the whole VM and so removed the defaults and the annotations that kubevirt-webhook had set."
        " Both are set again.",
        "To remove a default for good, remove the field and keep the annotation.",
    ),
    Code.DEFAULT_WITHDRAWN: Meaning(
        (INSTANCETYPES,),
        "changed",
        "A default that kubevirt-webhook set is removed, because the owner now sets a size or another object, or"
        " because KubeVirt would deny the update with it.",
    ),
    Code.EXPANDED: Meaning(
        (INSTANCETYPES,),
        "changed",
        "What the instancetype and preference say is written out in the VM, as the namespace's annotation"
        f" {names.EXPAND_INSTANCETYPES_ANNOTATION} or the settings request.",
    ),
    Code.APPLIED: Meaning(
        (INSTANCETYPES,),
        "changed",
        "The VirtualMachineInstance is filled with what the instancetype and preference say.",
    ),
    Code.ALREADY_APPLIED: Meaning((INSTANCETYPES,), "skipped", "The VirtualMachineInstance was filled before."),
    Code.VALID: Meaning((INSTANCETYPES,), "allowed", "KubeVirt accepts the VM with its instancetype and preference."),
    Code.DENIED: Meaning(
        (INSTANCETYPES,),
        "denied",
        "KubeVirt would deny the VM, fail to start it, or crash on it. The message is KubeVirt's own where it has one.",
        "Correct the field that the message names: remove it from the VM, or choose another instancetype or"
        " preference.",
    ),
    Code.NOT_ALLOWED: Meaning(
        (INSTANCETYPES,),
        "denied",
        "The namespace or the settings list the instancetypes that VMs may use, and this one is not among them.",
        "Choose one from the list in the message, or ask an administrator to extend the namespace's annotation"
        f" {names.ALLOWED_INSTANCETYPES_ANNOTATION}.",
    ),
    Code.MISSING: Meaning(
        (INSTANCETYPES,),
        "denied",
        "The instancetype, preference or revision that the VM names does not exist. KubeVirt accepts such a VM but"
        " cannot"
        " start it.",
        "Create the object first, or name another. The setting instancetypes.missing makes this a warning.",
    ),
    Code.UNSIZED: Meaning(
        (INSTANCETYPES,),
        "allowed",
        "The update removes the VM's size, so the VM can no longer start.",
        "Set spec.instancetype or a memory size.",
    ),
    Code.NO_DEFAULTS: Meaning((INSTANCETYPES,), "skipped", "Neither the namespace nor the settings have a default."),
    Code.OWNER_CHOSE_INSTANCETYPE: Meaning(
        (INSTANCETYPES,), "skipped", "The owner of the VM set an instancetype or preference, and keeps it."
    ),
    Code.OWNER_REMOVED_INSTANCETYPE: Meaning(
        (INSTANCETYPES,),
        "skipped",
        "The owner removed a default and left its annotation: the VM stays without.",
    ),
    Code.SIZED: Meaning(
        (INSTANCETYPES,), "skipped", "The VM, or a VirtualMachineInstancePreset, sets a size, so no default is added."
    ),
    Code.DEFAULT_UNUSABLE: Meaning(
        (INSTANCETYPES,),
        "skipped",
        "The default does not exist, is not a valid reference, or is not allowed in the namespace.",
        "Correct the namespace's annotation or the settings; `kubevirt-webhook doctor` lists such defaults.",
    ),
    Code.DEFAULT_CONFLICTS: Meaning(
        (INSTANCETYPES,),
        "skipped",
        "KubeVirt would deny the VM with the default, so the default is left out.",
        "Remove what conflicts from the VM if it should have the default.",
    ),
    Code.NOT_INFERRED: Meaning(
        (INSTANCETYPES,),
        "skipped",
        "The VM infers its instancetype, preference or architecture from a volume. kubevirt-webhook cannot read"
        " volumes,"
        " so the VM is not expanded.",
    ),
    Code.NO_MATCHER: Meaning((INSTANCETYPES,), "skipped", "The VM has neither an instancetype nor a preference."),
    Code.OWNED_BY_A_VM: Meaning(
        (INSTANCETYPES,), "skipped", "A VirtualMachine owns the VMI, and KubeVirt has applied the VM's instancetype."
    ),
    Code.UNCHANGED: Meaning(
        (INSTANCETYPES,), "skipped", "The update changes neither the instancetype nor the preference nor the template."
    ),
    # Migration.
    Code.ELIGIBLE: Meaning((MIGRATION, EVICTION), "allowed", "At least one node can take the VM."),
    Code.NO_ELIGIBLE_NODE: Meaning(
        (MIGRATION, EVICTION),
        "denied",
        "No node meets all requirements of the VM and of the migration. The target pod would stay Pending until"
        " KubeVirt"
        " ends the migration.",
        "Change what the message names. `kubevirt-webhook explain migration NAMESPACE/VM` lists every node and the one"
        " change that helps most.",
    ),
    Code.SELECTOR_CONFLICT: Meaning(
        (MIGRATION,),
        "denied",
        "addedNodeSelector and the VM require different values of one label. KubeVirt silently drops such a key and"
        " migrates elsewhere.",
        "Remove the key from addedNodeSelector, or change the VM. The setting migration.collision makes this a"
        " warning.",
    ),
    Code.SELECTOR_INVALID: Meaning(
        (MIGRATION,),
        "denied",
        "addedNodeSelector has a key or a value that no label can have, or too many keys.",
        "Correct the keys that the message names.",
    ),
    Code.RESERVED_NAME: Meaning(
        (MIGRATION,),
        "denied",
        "The migration's name begins as those of KubeVirt's own migrations, which never have an addedNodeSelector.",
        "Choose another name.",
    ),
    Code.RESERVED_KEYS: Meaning(
        (MIGRATION,),
        "denied",
        "addedNodeSelector has keys with which KubeVirt itself selects nodes. They would disable one of its safety"
        " checks, remain for later migrations, or be dropped.",
        "Remove them. An administrator can allow them with the setting migration.reservedKeys.",
    ),
    Code.ON_SENDING_SIDE: Meaning(
        (MIGRATION,),
        "denied",
        "addedNodeSelector has no effect on the sending side of a decentralized migration.",
        "Set it in the migration on the receiving side.",
    ),
    Code.NODE_CHOICE_FORBIDDEN: Meaning(
        (MIGRATION,),
        "denied",
        "The setting migration.requireRight is on, and the user lacks the permission to choose nodes, or uses virtctl,"
        " which hides who the user is.",
        "Ask an administrator for the verb use on migrationtargets, or migrate without addedNodeSelector.",
    ),
    Code.TOO_MANY_MIGRATIONS: Meaning(
        (MIGRATION,),
        "denied",
        "The namespace has as many migrations in progress as the settings allow.",
        "Retry later.",
    ),
    Code.PINNED: Meaning(
        (MIGRATION,),
        "allowed",
        "What the VM requires can only be met by the node on which it runs, or by none, so every migration fails.",
        "Remove the requirement that the message names, for example a nodeSelector on kubernetes.io/hostname.",
    ),
    Code.CONSTRAINED: Meaning(
        (MIGRATION,), "changed", "The node affinity of the migration's target pod requires what addedNodeSelector says."
    ),
    Code.ALREADY_CONSTRAINED: Meaning(
        (MIGRATION,), "skipped", "The target pod already requires what addedNodeSelector says."
    ),
    Code.NO_ADDED_SELECTOR: Meaning((MIGRATION,), "skipped", "The migration has no addedNodeSelector."),
    Code.NOT_A_TARGET: Meaning((MIGRATION,), "skipped", "The launcher pod is not the target of a migration."),
    Code.MIGRATION_NOT_FOUND: Meaning((MIGRATION,), "skipped", "The migration that the pod names does not exist."),
    # Eviction.
    Code.BLACKOUT: Meaning(
        (EVICTION,),
        "denied",
        "The settings forbid evictions by the descheduler at this time.",
        "Retry after the blackout.",
    ),
    Code.COOL_DOWN: Meaning(
        (EVICTION,),
        "denied",
        "The VM was migrated recently and is held on its node for a while, so that the descheduler does not move it"
        " back"
        " and forth.",
        "Retry after the time in the message.",
    ),
    Code.TOO_MANY_EVACUATIONS: Meaning(
        (EVICTION,), "denied", "As many VMs are being evacuated as the settings allow.", "Retry later."
    ),
    Code.NAME_TOO_LONG: Meaning(
        (EVICTION,),
        "denied",
        "KubeVirt labels migrations with the VM's name, and this name is not a valid label value, so KubeVirt can"
        " create"
        " no migration.",
        "Give the VM a name of at most 63 characters.",
    ),
    Code.WILL_STOP: Meaning(
        (EVICTION,),
        "allowed",
        "The eviction stops the VM instead of migrating it, because of its eviction strategy.",
        "Set evictionStrategy LiveMigrate if the VM should be migrated.",
    ),
    Code.OTHER_REQUESTER: Meaning(
        (EVICTION,), "skipped", "The eviction was not requested by a component in the setting eviction.requesters."
    ),
    Code.BY_KUBEVIRT: Meaning((MIGRATION, EVICTION), "skipped", "KubeVirt itself migrates the VM or evicts the pod."),
    Code.POD_NOT_FOUND: Meaning((EVICTION,), "skipped", "The pod does not exist."),
    Code.POD_OVER: Meaning((EVICTION,), "skipped", "The pod has completed, and no VM runs in it."),
    Code.NOT_THE_CURRENT_POD: Meaning(
        (EVICTION,),
        "skipped",
        "The VM does not run in this pod: it is the source or target of a migration in progress.",
    ),
    Code.EXTERNAL: Meaning(
        (EVICTION,), "skipped", "The VM's eviction strategy is External: a component other than KubeVirt migrates it."
    ),
    Code.UNKNOWN_STRATEGY: Meaning(
        (EVICTION,),
        "skipped",
        "The VM has an eviction strategy that this version of kubevirt-webhook does not support.",
    ),
    Code.NOT_MIGRATABLE: Meaning(
        (EVICTION,), "skipped", "The VM is not live-migratable, and KubeVirt denies its eviction by itself."
    ),
    Code.EVACUATING: Meaning((EVICTION,), "skipped", "The VM is already being migrated."),
}


def similar(code: str) -> list[str]:
    """The codes that a mistyped one may mean, the most similar first; at most three."""
    return get_close_matches(code, MEANINGS, n=3, cutoff=0.4)
