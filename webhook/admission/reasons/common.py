"""Reasons that several policies give, and those of requests that no policy evaluates."""

from __future__ import annotations

from typing import Final

from webhook import names
from webhook.admission.decision import Reason
from webhook.admission.reasons.catalog import ALL, LOG, TEMPLATE, define
from webhook.errors import quote
from webhook.names import EVICTION, INSTANCETYPES, MIGRATION, SCHEDULING, Policy

OUT_OF_SCOPE: Final = define(
    "out-of-scope",
    ALL,
    "skipped",
    "The policy does not apply to this object: its namespace does not have the policy's label, or has it with the"
    " value off.",
    f"To switch a policy on, label the namespace, for example `{names.policy_label(SCHEDULING)}=enforce`.",
)


def no_namespace() -> Reason:
    """Policies are switched on by namespaces' labels."""
    return Reason(OUT_OF_SCOPE, "skipped: the object is not in a namespace")


def not_opted_in(policy: Policy) -> Reason:
    """The namespace does not have the policy's label."""
    label = names.policy_label(policy)
    return Reason(OUT_OF_SCOPE, f"skipped: the namespace does not have the label {label}")


def switched_off(policy: Policy) -> Reason:
    """The namespace's label says off."""
    return Reason(OUT_OF_SCOPE, f"skipped: the namespace has the label {names.policy_label(policy)}=off")


def out_of_scope() -> Reason:
    """The request is for none of the policy's objects."""
    return Reason(OUT_OF_SCOPE, "skipped: the request is out of scope")


EXCLUDED_NAMESPACE: Final = define(
    "excluded-namespace",
    ALL,
    "skipped",
    "The namespace is excluded by the setting excludedNamespaces, or KubeVirt itself runs in it.",
)


def excluded_namespace(namespace: str) -> Reason:
    """The settings exclude the namespace, or KubeVirt runs in it."""
    return Reason(EXCLUDED_NAMESPACE, f"skipped: namespace {namespace} is excluded")


NAMESPACE_UNREADABLE: Final = define(
    "namespace-unreadable",
    ALL,
    "failed",
    "The namespace could not be read, so its mode is not known. The endpoint's failure behavior applies.",
    LOG,
)


def namespace_unreadable(namespace: str, why: str) -> Reason:
    """Whether the namespace has opted in is not known."""
    return Reason(NAMESPACE_UNREADABLE, f"namespace {namespace} cannot be read: {why}")


UNKNOWN_MODE: Final = define(
    "unknown-mode",
    ALL,
    "skipped",
    "The policy's label on the namespace has a value that is not a mode.",
    "Set the label to enforce, warn, audit or off.",
)


def unknown_mode(policy: Policy, value: str) -> Reason:
    """The namespace's label has a value that is not a mode."""
    label = names.policy_label(policy)
    text = (
        f"skipped: label {label} of the namespace has the invalid value {quote(value)};"
        " use enforce, warn, audit, or off"
    )
    return Reason(UNKNOWN_MODE, text)


DISABLED: Final = define(
    "disabled",
    (SCHEDULING, INSTANCETYPES),
    "skipped",
    "The settings switch off this part of the policy, for example for VirtualMachines or for spread constraints.",
    "`kubevirt-webhook config show` prints the settings.",
)


def disabled(setting: str) -> Reason:
    """The settings switch this part of the policy off."""
    return Reason(DISABLED, f"skipped: {setting} is off in the settings")


INVALID_OBJECT: Final = define(
    "invalid-object",
    ALL,
    "failed",
    "The object, or one that it refers to, cannot be read: a field has the wrong type or is nested too deeply. A"
    " mutating policy leaves it alone, a validating one denies it. In `review` and `test`: the API server"
    " would deny it.",
    "Correct the field that the message names, and apply the object again.",
)

DRY_RUN_DENIED: Final = define(
    "dry-run-denied",
    ALL,
    "denied",
    "`review --server-dry-run` has sent the object to the cluster, where another webhook, an admission policy or a"
    " quota denies it.",
    "Change the object as the message says, or ask the admin of what the message names.",
)

BUG: Final = define(
    "internal-error",
    ALL,
    "failed",
    "kubevirt-webhook failed while it evaluated the request. The endpoint's failure behavior applies.",
    "Find the request's UID in the log of kubevirt-webhook, and report the traceback.",
)


def internal_error(uid: str) -> Reason:
    """An exception of kubevirt-webhook's own code; its log has the traceback."""
    return Reason(BUG, f"internal error; see the kubevirt-webhook log for request UID {uid}")


TOO_COMPLEX: Final = define(
    "too-complex",
    ALL,
    "failed",
    "The object has more labels, terms or resources than kubevirt-webhook evaluates in one request. A mutating"
    " policy leaves it alone, a validating one denies it.",
    "Remove what the object does not need; the message names what there is too much of.",
)

OVERLOADED: Final = define(
    "overloaded",
    ALL,
    "failed",
    "kubevirt-webhook had no memory or time for the request, or its body arrived too slowly or was too large. An"
    " endpoint that denies in mode enforce denies it, whatever its failurePolicy, or overload would be a way around"
    " the policy. Any other endpoint allows it without changes.",
    "Retry. If it happens often, look for clients that send large or slow requests, and add replicas.",
)


def overloaded(why: str) -> Reason:
    """The request was not read, or had no turn in time."""
    return Reason(OVERLOADED, why)


def too_deep() -> str:
    """Why an object cannot be evaluated, as a clause."""
    return "the object, or one that it refers to, is nested too deeply"


def not_evaluable(kind: str, why: str, code: str) -> Reason:
    """The object cannot be evaluated, however often it is sent."""
    return Reason(code, f"this {kind} cannot be evaluated: {why}")


def correct_the_object(reason: Reason) -> str:
    """The text of the denial for an object that cannot be evaluated."""
    return f"{reason.text}; correct the object and retry"


def not_evaluated_now(reason: Reason) -> str:
    """The text of the denial where kubevirt-webhook itself is at fault."""
    return f"this request cannot be evaluated now: {reason.text}; retry later"


def allowed_unchanged(kind: str, reason: Reason) -> Reason:
    """The warning about an object that was not evaluated and is let into the cluster as it is."""
    return Reason(reason.code, f"this {kind} was allowed without changes: {reason.text}")


BEING_DELETED: Final = define(
    "being-deleted",
    (SCHEDULING, INSTANCETYPES, EVICTION),
    "skipped",
    "The object, or its VM, is already being deleted.",
)


def being_deleted(subject: str) -> Reason:
    """The object is on its way out, so nothing that it says matters any more."""
    return Reason(BEING_DELETED, f"skipped: {subject} is being deleted")


OTHER_OPERATION: Final = define(
    "other-operation",
    ALL,
    "skipped",
    "The policy does not evaluate this operation or subresource, or another webhook entry does.",
)


def immutable_after_create(subject: str, operation: str) -> Reason:
    """What the policy would write can only be written at CREATE."""
    return Reason(OTHER_OPERATION, f"skipped: {subject} cannot change after CREATE (this is {operation})")


def other_operation(operation: str) -> Reason:
    """The policy has nothing to do with this operation."""
    return Reason(OTHER_OPERATION, f"skipped: the policy does not evaluate {operation}")


def other_subresource(name: str | None) -> Reason:
    """The webhook is registered for another subresource."""
    target = f"subresource {quote(name)}" if name else "object itself"
    return Reason(OTHER_OPERATION, f"skipped: the policy does not evaluate the {target}")


def no_object(operation: str) -> Reason:
    """The request carries nothing to evaluate."""
    return Reason(OTHER_OPERATION, f"skipped: the request has no object ({operation})")


LOOKUP_FAILED: Final = define(
    "lookup-failed",
    (INSTANCETYPES, MIGRATION, EVICTION),
    "failed",
    "An object that the decision depends on could not be read from the API server. With failurePolicy Ignore the"
    " request is allowed without changes, with Fail it is denied.",
    f"Retry. {LOG}",
)


def lookup_failed(consequence: str, why: str) -> Reason:
    """A fact could not be read.

    Args:
        consequence: what was therefore not done, as a clause.
        why: what could not be read, and its cause.
    """
    return Reason(LOOKUP_FAILED, f"{consequence}: {why}")


ELIGIBLE: Final = define(
    "nodes-eligible",
    (MIGRATION, EVICTION),
    "allowed",
    "At least one node can take the VM.",
)


def eligible(count: int, total: int) -> Reason:
    """How many nodes could take the VM."""
    code = ELIGIBLE if count else NO_ELIGIBLE_NODE
    return Reason(code, f"{count}/{total} nodes are available")


NO_ELIGIBLE_NODE: Final = define(
    "no-eligible-node",
    (MIGRATION, EVICTION),
    "denied",
    "No node meets all requirements of the VM and of the migration. The target pod would stay Pending until"
    " KubeVirt"
    " ends the migration.",
    "Change what the message names. `kubevirt-webhook explain migration NAMESPACE/VM` lists every node and the one"
    " change that helps most.",
)

BY_KUBEVIRT: Final = define(
    "requested-by-kubevirt",
    (MIGRATION, EVICTION),
    "skipped",
    "KubeVirt itself migrates the VM or evicts the pod.",
)

OWNER_OPTED_OUT: Final = define(
    "owner-opted-out",
    (SCHEDULING, INSTANCETYPES),
    "skipped",
    "The owner of the VM declined the policy: by schedulerName default-scheduler, or by the label or annotation"
    f" {names.policy_label(INSTANCETYPES)}=off.",
)


def opted_out(policy: str) -> Reason:
    """The owner declines the policy by a label or an annotation of the object."""
    return Reason(OWNER_OPTED_OUT, f"skipped: the owner set {names.policy_label(policy)}=off on the object")


NOTHING_TO_PRESERVE: Final = define(
    "nothing-to-preserve",
    (SCHEDULING, INSTANCETYPES),
    "skipped",
    f"An update of a VM without anything from kubevirt-webhook. {TEMPLATE}",
)

NOT_LAUNCHER: Final = define(
    "not-a-launcher-pod",
    (SCHEDULING, MIGRATION, EVICTION),
    "skipped",
    "The pod is not a virt-launcher pod: it lacks KubeVirt's label.",
)


def not_a_launcher_pod() -> Reason:
    """The pod carries no VM."""
    text = f"skipped: the pod does not have the label {names.APP_LABEL}={names.LAUNCHER_APP}"
    return Reason(NOT_LAUNCHER, text)


NO_VMI_OWNER: Final = define(
    "no-vmi-owner",
    (SCHEDULING, MIGRATION, EVICTION),
    "skipped",
    "The pod has the label of virt-launcher pods, but no VirtualMachineInstance controls it.",
)


def no_vmi_owner() -> Reason:
    """The pod has the label of launcher pods alone."""
    text = "skipped: the pod is labeled as a virt-launcher pod, but its controller is not a VirtualMachineInstance"
    return Reason(NO_VMI_OWNER, text)


def unnamed_vmi_owner() -> Reason:
    """The pod's owner reference does not say which VMI it means."""
    text = "skipped: the pod's owner reference lacks the name or UID of its VirtualMachineInstance"
    return Reason(NO_VMI_OWNER, text)


NOT_CREATED_BY_KUBEVIRT: Final = define(
    "not-created-by-kubevirt",
    (SCHEDULING, MIGRATION),
    "skipped",
    "The pod looks like a virt-launcher pod, but was not created by KubeVirt's controller. Any user can write"
    " labels,"
    " so such a pod is left alone.",
)


def not_created_by_kubevirt(username: str) -> Reason:
    """Any user can label a pod; only virt-controller creates launcher pods."""
    maker = quote(username) if username else "an unknown user"
    text = f"skipped: the pod is labeled as a virt-launcher pod but was created by {maker}, not by KubeVirt"
    return Reason(NOT_CREATED_BY_KUBEVIRT, text)


KUBEVIRT_ABSENT: Final = define(
    "kubevirt-absent",
    (SCHEDULING, EVICTION),
    "skipped",
    "The cluster has no KubeVirt object, so nothing can be said about its VMs.",
)


def kubevirt_absent() -> Reason:
    """There is no KubeVirt object."""
    return Reason(KUBEVIRT_ABSENT, "skipped: the cluster has no KubeVirt object")


VMI_NOT_FOUND: Final = define(
    "vmi-not-found",
    (SCHEDULING, MIGRATION, EVICTION),
    "skipped",
    "The VirtualMachineInstance does not exist.",
)


def vmi_not_found(namespace: str, name: str) -> Reason:
    """The VMI does not exist; KubeVirt reports that to the user."""
    return Reason(VMI_NOT_FOUND, f"skipped: VirtualMachineInstance {namespace}/{name} does not exist")


VMI_REPLACED: Final = define(
    "vmi-replaced",
    (SCHEDULING, EVICTION),
    "skipped",
    "There is a VirtualMachineInstance of this name, but not the one that the pod belongs to.",
)


def vmi_replaced(namespace: str, name: str) -> Reason:
    """There is a VMI of the name, with another UID than the pod's owner reference has."""
    text = f"skipped: VirtualMachineInstance {namespace}/{name} is not the pod's own (its UID differs)"
    return Reason(VMI_REPLACED, text)
