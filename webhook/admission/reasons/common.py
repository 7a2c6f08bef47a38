"""Reasons that several policies give, and those of requests that no policy evaluates."""

from __future__ import annotations

from functools import partial
from typing import Final

from webhook import names
from webhook.admission.decision import Reason
from webhook.admission.reasons.catalog import LOG, TEMPLATE, Meaning, about, about_two, define
from webhook.errors import quote
from webhook.names import INSTANCETYPES, SCHEDULING

# By code: what whoever evaluates a review gives for any policy.
FOR_ALL: Final[dict[str, Meaning]] = {}
# By code: what several policies give, each with the ones that its value lists.
SHARED: Final[dict[str, Meaning]] = {}

_skipped: Final = partial(define, FOR_ALL, "skipped")
_failed: Final = partial(define, FOR_ALL, "failed")
_shared: Final = partial(define, SHARED)

# The label by which a policy is switched on, for the policy's name.
_LABEL: Final = names.policy_label("%s")

OUT_OF_SCOPE: Final = _skipped(
    "out-of-scope",
    "The policy does not apply to this object: its namespace does not have the policy's label, or has it with the value"
    " off.",
    f"To switch a policy on, label the namespace, for example `{names.policy_label(SCHEDULING)}=enforce`.",
)
no_namespace: Final = Reason(OUT_OF_SCOPE, "skipped: the object is not in a namespace")
not_opted_in: Final = about(OUT_OF_SCOPE, f"skipped: the namespace does not have the label {_LABEL}")
switched_off: Final = about(OUT_OF_SCOPE, f"skipped: the namespace has the label {_LABEL}=off")
out_of_scope: Final = Reason(OUT_OF_SCOPE, "skipped: the request is out of scope")
EXCLUDED_NAMESPACE: Final = _skipped(
    "excluded-namespace", "The namespace is excluded by the setting excludedNamespaces, or KubeVirt itself runs in it."
)
excluded_namespace: Final = about(EXCLUDED_NAMESPACE, "skipped: namespace %s is excluded")
NAMESPACE_UNREADABLE: Final = _failed(
    "namespace-unreadable",
    "The namespace could not be read, so its mode is not known. The endpoint's failure behavior applies.",
    LOG,
)
namespace_unreadable: Final = about_two(NAMESPACE_UNREADABLE, "namespace %s cannot be read: %s")
UNKNOWN_MODE: Final = _skipped(
    "unknown-mode",
    "The policy's label on the namespace has a value that is not a mode.",
    "Set the label to enforce, warn, audit or off.",
)
unknown_mode: Final = about_two(
    UNKNOWN_MODE,
    f"skipped: label {_LABEL} of the namespace has the invalid value %q; use enforce, warn, audit, or off",
)
SETTINGS_UNREADABLE: Final = _failed(
    "settings-unreadable",
    "`review` or `explain vm` did not evaluate the policy, because your user may not read the installed settings, by"
    " which the server decides. What follows from the namespace's own annotations is shown.",
    "Name a file with the settings by `--config FILE`, or ask your admin for the permission to read their ConfigMap."
    " `review --server-dry-run` asks the cluster itself.",
)
by_settings: Final = Reason(SETTINGS_UNREADABLE, "not evaluated: the installed settings")
more_by_settings: Final = Reason(
    SETTINGS_UNREADABLE, "not evaluated: the installed settings, by which the policy may do more"
)
scope_by_settings: Final = Reason(
    SETTINGS_UNREADABLE, "not evaluated: the installed settings, which may switch the policy on in all namespaces"
)
DISABLED: Final = _shared(
    "skipped",
    "disabled",
    "The settings switch off this part of the policy, for example for VirtualMachines or for spread constraints, or an"
    " annotation of the namespace does.",
    "`kubevirt-webhook config show --config FILE` prints the settings of FILE with their defaults; what a namespace's"
    " annotations say counts before them.",
)
disabled: Final = about(DISABLED, "skipped: %s is off in the settings")
INVALID_OBJECT: Final = _failed(
    "invalid-object",
    "The object, or one that it refers to, cannot be read: a field has the wrong type or is nested too deeply. An"
    " endpoint that validates VMs, VMIs or migrations denies it; any other leaves it unchanged. In `review` and `test`:"
    " the API server would deny it.",
    "Correct the field that the message names, and apply the object again.",
)
DRY_RUN_DENIED: Final = define(
    FOR_ALL,
    "denied",
    "dry-run-denied",
    "`review --server-dry-run` has sent the object to the cluster, where a webhook, an admission policy or a quota"
    " denies it. A denial of kubevirt-webhook itself has its own code before this one.",
    "Change the object as the message says, or ask the admin of what the message names.",
)
BUG: Final = _failed(
    "internal-error",
    "kubevirt-webhook failed while it evaluated the request. The endpoint's failure behavior applies.",
    "Find the request's UID in the log of kubevirt-webhook, and report the traceback.",
)
internal_error: Final = about(BUG, "internal error; see the kubevirt-webhook log for request UID %s")
TOO_COMPLEX: Final = _failed(
    "too-complex",
    "The object has more labels, terms or resources than kubevirt-webhook evaluates in one request. An endpoint that"
    " validates VMs, VMIs or migrations denies it; any other leaves it unchanged.",
    "Remove what the object does not need; the message names what there is too much of.",
)
OVERLOADED: Final = _failed(
    "overloaded",
    "kubevirt-webhook had no memory or time for the request, or its body arrived too slowly or was too large. An"
    " endpoint that denies in mode enforce denies it, whatever its failurePolicy, or overload would be a way around the"
    " policy. Any other endpoint allows it without changes.",
    "Retry. If it happens often, look for clients that send large or slow requests, and add replicas.",
)
overloaded: Final = about(OVERLOADED, "%s")
too_deep: Final = "the object, or one that it refers to, is nested too deeply"


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
    return Reason(reason.code, f"this {kind} was left unchanged: {reason.text}")


BEING_DELETED: Final = _shared("skipped", "being-deleted", "The object, or its VM, is already being deleted.")
being_deleted: Final = about(BEING_DELETED, "skipped: %s is being deleted")
POD_OVER: Final = _shared("skipped", "pod-completed", "The pod has completed, and no VM runs in it.")
pod_completed: Final = about(POD_OVER, "skipped: the pod is in phase %s, and no VM runs in it")
NOT_THE_CURRENT_POD: Final = _shared(
    "skipped",
    "not-the-current-pod",
    "The VM does not run in this pod: it is the source or target of a migration in progress.",
)
not_the_current_pod: Final = Reason(
    NOT_THE_CURRENT_POD, "skipped: the VM does not run in this pod; a migration to or from it is in progress"
)
OTHER_OPERATION: Final = _skipped(
    "other-operation", "The policy does not evaluate this operation or subresource, or another webhook entry does."
)
immutable_after_create: Final = about_two(OTHER_OPERATION, "skipped: %s cannot change after CREATE (this is %s)")
other_operation: Final = about(OTHER_OPERATION, "skipped: the policy does not evaluate %s")


def other_subresource(name: str | None) -> Reason:
    """The webhook is registered for another subresource."""
    target = f"subresource {quote(name)}" if name else "object itself"
    return Reason(OTHER_OPERATION, f"skipped: the policy does not evaluate the {target}")


no_object: Final = about(OTHER_OPERATION, "skipped: the request has no object (%s)")
LOOKUP_FAILED: Final = _failed(
    "lookup-failed",
    "An object that the decision depends on could not be read from the API server, or not before the deadline. With"
    " failurePolicy Ignore the request is allowed without changes, with Fail it is denied.",
    f"Retry. {LOG} A command names what your own user may not read: ask your admin.",
)
lookup_failed: Final = about_two(LOOKUP_FAILED, "%s: %s")
ELIGIBLE: Final = _shared("allowed", "nodes-eligible", "At least one node can take the VM.")


def eligible(count: int, total: int) -> Reason:
    """How many nodes could take the VM."""
    code = ELIGIBLE if count else NO_ELIGIBLE_NODE
    return Reason(code, f"{count}/{total} nodes are available")


NO_ELIGIBLE_NODE: Final = _shared(
    "denied",
    "no-eligible-node",
    "No node meets all requirements of the VM and of the migration. The target pod would stay Pending until KubeVirt"
    " ends the migration.",
    "Change what the message names. `kubevirt-webhook explain migration NAMESPACE/VM` lists every node and the one"
    " change that helps most. Of an eviction, `kubevirt-webhook explain vm NAMESPACE/VM` does: nodes that are being"
    " emptied do not count for it.",
)
HOST_CPU_UNKNOWN: Final = _shared(
    "denied",
    "host-cpu-unknown",
    "The VM has the CPU model host-model, and no label of its node names that model, so that KubeVirt creates no target"
    " pod and its migration stays Pending.",
    "Have virt-handler label the node with its CPU model (host-model-cpu.node.kubevirt.io/…); the annotation"
    " node-labeller.kubevirt.io/skip-node keeps it from that.",
)
host_cpu_unknown: Final = about(HOST_CPU_UNKNOWN, "%s")
BY_KUBEVIRT: Final = _shared(
    "skipped",
    "requested-by-kubevirt",
    "KubeVirt itself sends the request: it migrates the VM, evicts the pod, or writes what was decided before.",
)
OWNER_OPTED_OUT: Final = _shared(
    "skipped",
    "owner-opted-out",
    "The owner of the VM declined the policy: by schedulerName default-scheduler, or by the label or annotation"
    f" {names.policy_label(INSTANCETYPES)}=off.",
)
opted_out: Final = about(OWNER_OPTED_OUT, f"skipped: the owner set {_LABEL}=off on the object")
NOTHING_TO_PRESERVE: Final = _shared(
    "skipped",
    "nothing-to-preserve",
    f"An update of a VM without anything from kubevirt-webhook. {TEMPLATE}",
)
ANNOTATION_INVALID: Final = _shared(
    "denied",
    "namespace-annotation-invalid",
    "The request sets an annotation of a namespace to what the policy cannot read, or switches the policy on in a"
    " namespace that has such an annotation, which would have no effect.",
    "Correct the annotation that the message names. `kubevirt-webhook doctor` reports those that are stored all the"
    " same, because kubevirt-webhook was down or the policy off.",
)
annotation_invalid: Final = about(ANNOTATION_INVALID, "%s")
ANNOTATIONS_VALID: Final = _shared(
    "allowed",
    "namespace-annotations-valid",
    "The policy can read what the request sets in the namespace's annotations.",
)
annotations_valid: Final = Reason(ANNOTATIONS_VALID, "the namespace's annotations can be read")
NOT_LAUNCHER: Final = _shared(
    "skipped",
    "not-a-launcher-pod",
    "The pod is not a virt-launcher pod: it lacks KubeVirt's label.",
)
not_a_launcher_pod: Final = Reason(
    NOT_LAUNCHER, f"skipped: the pod does not have the label {names.APP_LABEL}={names.LAUNCHER_APP}"
)
NO_VMI_OWNER: Final = _shared(
    "skipped",
    "no-vmi-owner",
    "The pod has the label of virt-launcher pods, but no VirtualMachineInstance controls it.",
)
no_vmi_owner: Final = Reason(
    NO_VMI_OWNER,
    "skipped: the pod is labeled as a virt-launcher pod, but its controller is not a VirtualMachineInstance",
)
unnamed_vmi_owner: Final = Reason(
    NO_VMI_OWNER, "skipped: the pod's owner reference lacks the name or UID of its VirtualMachineInstance"
)
NOT_CREATED_BY_KUBEVIRT: Final = _shared(
    "skipped",
    "not-created-by-kubevirt",
    "The pod looks like a virt-launcher pod, but was not created by KubeVirt's controller. Any user can write labels,"
    " so such a pod is left alone.",
)


def not_created_by_kubevirt(username: str) -> Reason:
    """Any user can label a pod; only virt-controller creates launcher pods."""
    maker = quote(username) if username else "an unknown user"
    text = f"skipped: the pod is labeled as a virt-launcher pod but was created by {maker}, not by KubeVirt"
    return Reason(NOT_CREATED_BY_KUBEVIRT, text)


KUBEVIRT_ABSENT: Final = _shared(
    "skipped",
    "kubevirt-absent",
    "The cluster has no KubeVirt object, so nothing can be said about its VMs.",
)
kubevirt_absent: Final = Reason(KUBEVIRT_ABSENT, "skipped: the cluster has no KubeVirt object")
POD_BOUND: Final = _shared("skipped", "pod-already-bound", "The pod names its node, so no scheduler looks at it.")
pod_bound: Final = about(POD_BOUND, "skipped: the pod is already bound to node %q")
VMI_NOT_FOUND: Final = _shared("skipped", "vmi-not-found", "The VirtualMachineInstance does not exist.")
vmi_not_found: Final = about_two(VMI_NOT_FOUND, "skipped: VirtualMachineInstance %s/%s does not exist")
VMI_REPLACED: Final = _shared(
    "skipped",
    "vmi-replaced",
    "There is a VirtualMachineInstance of this name, but not the one that the pod belongs to.",
)
vmi_replaced: Final = about_two(
    VMI_REPLACED, "skipped: VirtualMachineInstance %s/%s is not the pod's own (its UID differs)"
)
