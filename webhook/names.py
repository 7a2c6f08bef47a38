"""Names that other programs rely on: labels, annotations, configurations and reason codes.

They are public: a change of one breaks the namespace labels, dashboards or scripts of users.
"""

from __future__ import annotations

from typing import Final, Literal

DOMAIN: Final = "kubevirt-webhook.github.io"

# A policy's name is its namespace label, its policy module, its settings section and its page in docs/.
Policy = Literal["scheduling", "migration", "instancetypes", "eviction"]
SCHEDULING: Final = "scheduling"
INSTANCETYPES: Final = "instancetypes"
MIGRATION: Final = "migration"
EVICTION: Final = "eviction"

# The values of a policy's namespace label, in PodSecurity's manner.
Mode = Literal["enforce", "warn", "audit", "off"]
ENFORCE: Final = "enforce"
WARN: Final = "warn"
AUDIT: Final = "audit"
OFF: Final = "off"

# The last segment of a path: a webhook entry each, because a namespaceSelector can't OR two labels.
Stage = Literal["enforce", "observe"]
OBSERVE: Final = "observe"


def policy_label(policy: str) -> str:
    """The namespace label that opts a namespace in to ``policy``; its value is a `Mode`."""
    return f"{DOMAIN}/{policy}"


# Parameters of a namespace, as annotations.
SCHEDULER_NAME_ANNOTATION: Final = f"{DOMAIN}/scheduler-name"
# Of a namespace, and of a VM's template or a VMI, where its owner's value counts before the namespace's.
SPREAD_ANNOTATION: Final = f"{DOMAIN}/spread"
# Its values, and the setting's.
Spread = Literal["off", "hostname", "zone", "both"]
SPREADS: Final[tuple[Spread, ...]] = ("off", "hostname", "zone", "both")

DEFAULT_INSTANCETYPE_ANNOTATION: Final = f"{DOMAIN}/default-instancetype"
DEFAULT_PREFERENCE_ANNOTATION: Final = f"{DOMAIN}/default-preference"
DEFAULT_PREFERENCE_SCOPE_ANNOTATION: Final = f"{DOMAIN}/default-preference-scope"
ALLOWED_INSTANCETYPES_ANNOTATION: Final = f"{DOMAIN}/allowed-instancetypes"
EXPAND_INSTANCETYPES_ANNOTATION: Final = f"{DOMAIN}/expand-instancetypes"

# What the owner of a VMI that no VM stands behind asks for, as annotations: its API has no field for it.
INSTANCETYPE_ANNOTATION: Final = f"{DOMAIN}/instancetype"
PREFERENCE_ANNOTATION: Final = f"{DOMAIN}/preference"

# Records the scheduler name that kubevirt-webhook set. It is on the VM and on its template, so that it reaches the VMI
# and its pods; a schedulerName was injected only while this annotation has the same value.
INJECTED_SCHEDULER_ANNOTATION: Final = f"{DOMAIN}/injected-scheduler"
# The same for topology spread constraints: the value of the setting that they were made from.
INJECTED_SPREAD_ANNOTATION: Final = f"{DOMAIN}/injected-spread"
# The same for instancetypes and preferences, ``KIND/NAME``; they are on VMs, and on the VMIs that kubevirt-webhook
# fills.
INJECTED_INSTANCETYPE_ANNOTATION: Final = f"{DOMAIN}/injected-instancetype"
INJECTED_PREFERENCE_ANNOTATION: Final = f"{DOMAIN}/injected-preference"

# What KubeVirt calls things (staging/src/kubevirt.io/api/core/v1/types.go).
KUBEVIRT_GROUP: Final = "kubevirt.io"
INSTANCETYPE_GROUP: Final = "instancetype.kubevirt.io"
SNAPSHOT_GROUP: Final = "snapshot.kubevirt.io"
APP_LABEL: Final = "kubevirt.io"
LAUNCHER_APP: Final = "virt-launcher"
CONTROLLER_ACCOUNT: Final = "kubevirt-controller"
API_ACCOUNT: Final = "kubevirt-apiserver"
# How KubeVirt names the migrations of drains and of its own updates; they never add a selector.
OWN_MIGRATIONS: Final = ("kubevirt-evacuation-", "kubevirt-workload-update-")
# Of a migration; KubeVirt writes it into each that is created.
VMI_NAME_LABEL: Final = "kubevirt.io/vmi-name"
REVISION_OBJECT_NAME_LABEL: Final = "instancetype.kubevirt.io/object-name"
REVISION_OBJECT_KIND_LABEL: Final = "instancetype.kubevirt.io/object-kind"

# The API server writes this name into every pod that has none, before any webhook runs.
DEFAULT_SCHEDULER: Final = "default-scheduler"

# Mutating configurations run in the order of their names: the first sorts before `virt-api-mutator`, the second after
# it and after the webhooks of other schedulers, which so get the first say.
FIRST_CONFIGURATION: Final = "kubevirt-webhook"
LAST_CONFIGURATION: Final = "zz-kubevirt-webhook"


class Code:
    """Reason codes of decisions: in audit lines, metrics and audit annotations. A closed, documented set."""

    # Why a request was not evaluated at all.
    OUT_OF_SCOPE: Final = "out-of-scope"
    EXCLUDED_NAMESPACE: Final = "excluded-namespace"
    NAMESPACE_UNREADABLE: Final = "namespace-unreadable"
    UNKNOWN_MODE: Final = "unknown-mode"
    DISABLED: Final = "disabled"
    INVALID_OBJECT: Final = "invalid-object"
    BUG: Final = "internal-error"
    TOO_COMPLEX: Final = "too-complex"
    OVERLOADED: Final = "overloaded"
    BEING_DELETED: Final = "being-deleted"
    OTHER_OPERATION: Final = "other-operation"

    # Instancetypes: what was done.
    DEFAULTS_INJECTED: Final = "defaults-injected"
    DEFAULTS_PRESERVED: Final = "defaults-preserved"
    DEFAULT_WITHDRAWN: Final = "default-withdrawn"
    EXPANDED: Final = "instancetype-expanded"
    ALREADY_APPLIED: Final = "instancetype-already-applied"
    APPLIED: Final = "instancetype-applied"
    VALID: Final = "instancetype-valid"
    DENIED: Final = "instancetype-denied"
    NOT_ALLOWED: Final = "instancetype-not-allowed"
    MISSING: Final = "instancetype-missing"
    UNSIZED: Final = "size-removed"

    # Instancetypes: why nothing was done.
    NO_DEFAULTS: Final = "no-defaults"
    OWNER_CHOSE_INSTANCETYPE: Final = "owner-chose-instancetype"
    OWNER_REMOVED_INSTANCETYPE: Final = "owner-removed-instancetype"
    SIZED: Final = "sized-by-owner"
    DEFAULT_UNUSABLE: Final = "default-unusable"
    DEFAULT_CONFLICTS: Final = "default-conflicts"
    NOT_INFERRED: Final = "not-inferred"
    NO_MATCHER: Final = "no-instancetype"
    OWNED_BY_A_VM: Final = "vmi-owned-by-a-vm"
    UNCHANGED: Final = "instancetype-unchanged"
    LOOKUP_FAILED: Final = "lookup-failed"
    KUBEVIRT_TOO_OLD: Final = "kubevirt-too-old"

    # Migration: what was said and done.
    ELIGIBLE: Final = "nodes-eligible"
    NO_ELIGIBLE_NODE: Final = "no-eligible-node"
    SELECTOR_CONFLICT: Final = "selector-conflict"
    SELECTOR_INVALID: Final = "selector-invalid"
    RESERVED_NAME: Final = "migration-name-reserved"
    RESERVED_KEYS: Final = "selector-reserved"
    ON_SENDING_SIDE: Final = "selector-on-sending-side"
    NODE_CHOICE_FORBIDDEN: Final = "node-choice-forbidden"
    TOO_MANY_MIGRATIONS: Final = "too-many-migrations"
    PINNED: Final = "vm-pinned-to-its-node"
    CONSTRAINED: Final = "target-constrained"
    ALREADY_CONSTRAINED: Final = "target-already-constrained"
    NO_ADDED_SELECTOR: Final = "no-added-selector"
    NOT_A_TARGET: Final = "not-a-target-pod"
    MIGRATION_NOT_FOUND: Final = "migration-not-found"

    # Eviction: why it was denied, beside no-eligible-node.
    BLACKOUT: Final = "blackout"
    COOL_DOWN: Final = "cool-down"
    TOO_MANY_EVACUATIONS: Final = "too-many-evacuations"
    NAME_TOO_LONG: Final = "name-too-long"
    HELD_BACK: Final = "migration-held-back"

    # Eviction: why it was allowed, beside nodes-eligible.
    WILL_STOP: Final = "vm-will-stop"
    OTHER_REQUESTER: Final = "other-requester"
    BY_KUBEVIRT: Final = "requested-by-kubevirt"
    POD_NOT_FOUND: Final = "pod-not-found"
    POD_OVER: Final = "pod-completed"
    NOT_THE_CURRENT_POD: Final = "not-the-current-pod"
    EXTERNAL: Final = "external-eviction-strategy"
    UNKNOWN_STRATEGY: Final = "unknown-eviction-strategy"
    NOT_MIGRATABLE: Final = "not-migratable"
    EVACUATING: Final = "already-evacuating"

    # Scheduling: what was done.
    INJECTED: Final = "scheduler-injected"
    PRESERVED: Final = "scheduler-preserved"
    FELL_BACK: Final = "scheduler-fell-back"
    SCHEDULER_WITHDRAWN: Final = "scheduler-withdrawn"
    ANNOTATION_RESTORED: Final = "annotation-restored"

    # Scheduling: why nothing was done.
    ALREADY_INJECTED: Final = "already-injected"
    ALREADY_FELL_BACK: Final = "already-fell-back"
    OWNER_CHOSE: Final = "owner-chose-scheduler"
    OWNER_OPTED_OUT: Final = "owner-opted-out"
    OWNER_REMOVED: Final = "owner-removed-scheduler"
    NOTHING_TO_PRESERVE: Final = "nothing-to-preserve"
    FOREIGN_SCHEDULER: Final = "foreign-scheduler"
    REWRITTEN: Final = "scheduler-rewritten"
    NOT_LAUNCHER: Final = "not-a-launcher-pod"
    NO_VMI_OWNER: Final = "no-vmi-owner"
    NOT_CREATED_BY_KUBEVIRT: Final = "not-created-by-kubevirt"
    KUBEVIRT_ABSENT: Final = "kubevirt-absent"
    KUBEVIRT_UNREADABLE: Final = "kubevirt-unreadable"
    BOUND: Final = "already-bound"
    VMI_NOT_FOUND: Final = "vmi-not-found"
    VMI_REPLACED: Final = "vmi-replaced"
    VMI_UNREADABLE: Final = "vmi-unreadable"
    NO_TEMPLATE: Final = "no-template"
    INSTANCETYPE_SETS_SCHEDULER: Final = "instancetype-sets-scheduler"
    INSTANCETYPE_UNRESOLVED: Final = "instancetype-unresolved"
    INSTANCETYPE_UNREADABLE: Final = "instancetype-unreadable"
    UNDECLARED: Final = "scheduler-undeclared"
    SCHEDULER_UNAVAILABLE: Final = "scheduler-unavailable"
    SCHEDULER_HEALTH_UNKNOWN: Final = "scheduler-health-unknown"

    # Scheduling: topology spread constraints.
    SPREAD_INJECTED: Final = "spread-injected"
    SPREAD_PRESERVED: Final = "spread-preserved"
    SPREAD_WITHDRAWN: Final = "spread-withdrawn"
    SPREAD_PRESENT: Final = "spread-already-injected"
    SPREAD_CHOSEN: Final = "owner-chose-spread"
    SPREAD_OPTED_OUT: Final = "owner-opted-out-of-spread"
    SPREAD_REMOVED: Final = "owner-removed-spread"
    SPREAD_INVALID: Final = "spread-invalid"
