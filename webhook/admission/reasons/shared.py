"""What codes that several policies use mean, and what to do about them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from webhook import names
from webhook.admission.reasons.meaning import ALL, LOG, TEMPLATE, Meaning
from webhook.names import EVICTION, INSTANCETYPES, MIGRATION, SCHEDULING, Code

MEANINGS: Final[Mapping[str, Meaning]] = {
    Code.OUT_OF_SCOPE: Meaning(
        ALL,
        "skipped",
        "The policy does not apply to this object: its namespace does not have the policy's label, or has it with the"
        " value off.",
        f"To switch a policy on, label the namespace, for example `{names.policy_label(SCHEDULING)}=enforce`.",
    ),
    Code.EXCLUDED_NAMESPACE: Meaning(
        ALL,
        "skipped",
        "The namespace is excluded by the setting excludedNamespaces, or KubeVirt itself runs in it.",
    ),
    Code.NAMESPACE_UNREADABLE: Meaning(
        ALL,
        "failed",
        "The namespace could not be read, so its mode is not known. The endpoint's failure behavior applies.",
        LOG,
    ),
    Code.UNKNOWN_MODE: Meaning(
        ALL,
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
        ALL,
        "failed",
        "The object, or one that it refers to, cannot be read: a field has the wrong type or is nested too deeply. A"
        " mutating policy leaves it alone, a validating one denies it.",
        "Correct the field that the message names, and apply the object again.",
    ),
    Code.BUG: Meaning(
        ALL,
        "failed",
        "kubevirt-webhook failed while it evaluated the request. The endpoint's failure behavior applies.",
        "Find the request's UID in the log of kubevirt-webhook, and report the traceback.",
    ),
    Code.TOO_COMPLEX: Meaning(
        ALL,
        "failed",
        "The object has more labels, terms or resources than kubevirt-webhook evaluates in one request. A mutating"
        " policy leaves it alone, a validating one denies it.",
        "Remove what the object does not need; the message names what there is too much of.",
    ),
    Code.OVERLOADED: Meaning(
        ALL,
        "failed",
        "kubevirt-webhook had no memory or time for the request, or its body arrived too slowly or was too large. An"
        " endpoint that denies in mode enforce denies it, whatever its failurePolicy, or overload would be a way around"
        " the policy. Any other endpoint allows it without changes.",
        "Retry. If it happens often, look for clients that send large or slow requests, and add replicas.",
    ),
    Code.BEING_DELETED: Meaning(
        (SCHEDULING, INSTANCETYPES, EVICTION), "skipped", "The object, or its VM, is already being deleted."
    ),
    Code.OTHER_OPERATION: Meaning(
        ALL, "skipped", "The policy does not evaluate this operation or subresource, or another webhook entry does."
    ),
    Code.LOOKUP_FAILED: Meaning(
        (INSTANCETYPES, MIGRATION, EVICTION),
        "failed",
        "An object that the decision depends on could not be read from the API server. With failurePolicy Ignore the"
        " request is allowed without changes, with Fail it is denied.",
        f"Retry. {LOG}",
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
        "The pod looks like a virt-launcher pod, but was not created by KubeVirt's controller. Any user can write"
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
        (SCHEDULING, INSTANCETYPES), "skipped", f"An update of a VM without anything from kubevirt-webhook. {TEMPLATE}"
    ),
}
