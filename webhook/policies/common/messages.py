"""What more than one policy says. Each function makes one sentence, with the reason code that explains it."""

from __future__ import annotations

from webhook import names
from webhook.admission.decision import Reason
from webhook.errors import quote
from webhook.kubevirt.launcher import NotLauncher
from webhook.names import Code


def being_deleted(what: str) -> Reason:
    """The object is on its way out, so nothing that it says matters any more."""
    return Reason(Code.BEING_DELETED, f"skipped: {what} is being deleted")


def disabled(setting: str) -> Reason:
    """The settings switch this part of the policy off."""
    return Reason(Code.DISABLED, f"skipped: {setting} is off in the settings")


def immutable_after_create(what: str, operation: str) -> Reason:
    """What the policy would write can only be written at CREATE."""
    return Reason(Code.OTHER_OPERATION, f"skipped: {what} cannot change after CREATE (this is {operation})")


def other_operation(operation: str) -> Reason:
    """The policy has nothing to do with this operation."""
    return Reason(Code.OTHER_OPERATION, f"skipped: the policy does not evaluate {operation}")


def lookup_failed(consequence: str, why: str) -> Reason:
    """A fact could not be read.

    Args:
        consequence: what was therefore not done, as a clause.
        why: what could not be read, and its cause.
    """
    return Reason(Code.LOOKUP_FAILED, f"{consequence}: {why}")


def not_created_by_kubevirt(username: str) -> Reason:
    """Any user can label a pod; only virt-controller creates launcher pods."""
    maker = quote(username) if username else "an unknown user"
    text = f"skipped: the pod is labeled as a virt-launcher pod but was created by {maker}, not by KubeVirt"
    return Reason(Code.NOT_CREATED_BY_KUBEVIRT, text)


def kubevirt_absent() -> Reason:
    """There is no KubeVirt object."""
    return Reason(Code.KUBEVIRT_ABSENT, "skipped: the cluster has no KubeVirt object")


def vmi_not_found(namespace: str, name: str) -> Reason:
    """The VMI does not exist; KubeVirt reports that to the user."""
    return Reason(Code.VMI_NOT_FOUND, f"skipped: VirtualMachineInstance {namespace}/{name} does not exist")


def vmi_replaced(namespace: str, name: str) -> Reason:
    """There is a VMI of the name, with another UID than the pod's owner reference has."""
    text = f"skipped: VirtualMachineInstance {namespace}/{name} is not the pod's own (its UID differs)"
    return Reason(Code.VMI_REPLACED, text)


def eligible(count: int, total: int) -> Reason:
    """How many nodes could take the VM."""
    code = Code.ELIGIBLE if count else Code.NO_ELIGIBLE_NODE
    return Reason(code, f"{count}/{total} nodes are available")


def opted_out(policy: str) -> Reason:
    """The owner declines the policy by a label or an annotation of the object."""
    return Reason(Code.OWNER_OPTED_OUT, f"skipped: the owner set {names.policy_label(policy)}=off on the object")


def not_a_launcher_pod(found: NotLauncher) -> Reason:
    """The pod carries no VM."""
    return Reason(found.code, found.text)
