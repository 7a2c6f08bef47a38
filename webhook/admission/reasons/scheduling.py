"""What the codes of the scheduling policy mean, and what to do about them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from webhook import names
from webhook.admission.reasons.meaning import LOG, OPT_OUT, Meaning
from webhook.names import SCHEDULING, Code

MEANINGS: Final[Mapping[str, Meaning]] = {
    Code.INJECTED: Meaning(
        (SCHEDULING,),
        "changed",
        "schedulerName is set, because the owner of the VM set none.",
        f"{OPT_OUT} spec.template.spec.schedulerName to default-scheduler.",
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
        (SCHEDULING,), "failed", "Where KubeVirt runs could not be read, so who created the pod is not known.", LOG
    ),
    Code.BOUND: Meaning((SCHEDULING,), "skipped", "The pod names its node, so no scheduler looks at it."),
    Code.VMI_UNREADABLE: Meaning(
        (SCHEDULING,),
        "failed",
        "The VirtualMachineInstance could not be read, so the owner's choice is not known.",
        LOG,
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
        LOG,
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
        f"{OPT_OUT} the annotation {names.SPREAD_ANNOTATION}=off on the VM's template.",
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
}
