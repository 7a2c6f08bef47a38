"""What the codes of the instancetypes policy mean, and what to do about them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from webhook import names
from webhook.admission.reasons.meaning import Meaning
from webhook.names import INSTANCETYPES, Code

MEANINGS: Final[Mapping[str, Meaning]] = {
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
}
