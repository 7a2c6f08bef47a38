"""The reasons of the scheduling policy."""

from __future__ import annotations

from typing import Final

from webhook import names
from webhook.admission.decision import Reason
from webhook.admission.reasons import common
from webhook.admission.reasons.catalog import LOG, OPT_OUT, define
from webhook.errors import quote
from webhook.names import SCHEDULING

_DEFAULT: Final = f'"{names.DEFAULT_SCHEDULER}"'
_UNSET: Final = "schedulerName was not set"


INJECTED: Final = define(
    "scheduler-injected",
    (SCHEDULING,),
    "changed",
    "schedulerName is set, because the owner of the VM set none.",
    f"{OPT_OUT} spec.template.spec.schedulerName to default-scheduler.",
)


def injected(subject: str) -> Reason:
    """The scheduler's name is written, for the owner set none.

    Args:
        subject: sets none: ``the VM``, ``the VMI`` or ``VirtualMachineInstance NAMESPACE/NAME``.
    """
    return Reason(INJECTED, f"schedulerName is set: {subject} sets none")


PRESERVED: Final = define(
    "scheduler-preserved",
    (SCHEDULING,),
    "changed",
    "An update replaced the whole VM, as VirtualMachinePools and `kubectl replace` do, and so removed schedulerName"
    " and the annotation that kubevirt-webhook had set. Both are set again.",
    "To remove schedulerName for good, remove the field and keep the annotation, or set default-scheduler.",
)


def preserved(name: str) -> Reason:
    """A replaced VM lost the name together with its annotations."""
    text = f"schedulerName {quote(name)} is preserved: a replacement of the whole VM removed it and its annotation"
    return Reason(PRESERVED, text)


FELL_BACK: Final = define(
    "scheduler-fell-back",
    (SCHEDULING,),
    "changed",
    "The pod's scheduler was set by kubevirt-webhook and is unavailable, so the pod uses default-scheduler instead.",
    "Check the scheduler's pods and its Lease.",
)


def fell_back(name: str, why: str) -> Reason:
    """The pod has the name, and its scheduler would never look at the pod."""
    text = (
        f"fell back to scheduler {_DEFAULT}: scheduler {quote(name)}, set by kubevirt-webhook, is unavailable ({why})"
    )
    return Reason(FELL_BACK, text)


SCHEDULER_WITHDRAWN: Final = define(
    "scheduler-withdrawn",
    (SCHEDULING,),
    "changed",
    "schedulerName is removed from the VM, because the instancetype that the owner named sets one as well, and"
    " KubeVirt denies a VM that sets what its instancetype sets.",
)


def withdrawn(name: str, why: str) -> Reason:
    """KubeVirt would deny the VM with the name in it."""
    text = f"schedulerName {quote(name)}, set by kubevirt-webhook, is removed: {why}"
    return Reason(SCHEDULER_WITHDRAWN, text)


ANNOTATION_RESTORED: Final = define(
    "annotation-restored",
    (SCHEDULING,),
    "changed",
    "The VM has the schedulerName that kubevirt-webhook set, but lost the annotation"
    f" {names.INJECTED_SCHEDULER_ANNOTATION}, for example in a clone. The annotation is set again.",
)


def annotation_restored(name: str) -> Reason:
    """The name is kubevirt-webhook's, but the annotation that says so is lost."""
    text = (
        f"annotation {names.INJECTED_SCHEDULER_ANNOTATION} is restored: schedulerName {quote(name)} was set by"
        " kubevirt-webhook, and the annotation was removed"
    )
    return Reason(ANNOTATION_RESTORED, text)


ALREADY_INJECTED: Final = define(
    "already-injected",
    (SCHEDULING,),
    "skipped",
    "kubevirt-webhook set schedulerName earlier.",
)


def already_injected(name: str) -> Reason:
    """The object has the name that kubevirt-webhook wrote earlier."""
    return Reason(ALREADY_INJECTED, f"schedulerName is already {quote(name)}, set by kubevirt-webhook")


ALREADY_FELL_BACK: Final = define(
    "already-fell-back",
    (SCHEDULING,),
    "skipped",
    "The pod fell back to default-scheduler earlier in the same request.",
)


def already_fell_back(name: str) -> Reason:
    """The pod's VMI has the name, and the pod was taken back to the default scheduler before."""
    text = f"skipped: the pod fell back from scheduler {quote(name)} to {_DEFAULT} before"
    return Reason(ALREADY_FELL_BACK, text)


def no_longer_declared() -> str:
    """Why a scheduler that was written earlier is not used any more, as a clause."""
    return "the settings no longer declare it"


OWNER_CHOSE: Final = define(
    "owner-chose-scheduler",
    (SCHEDULING,),
    "skipped",
    "The owner of the VM set schedulerName, and keeps it.",
)


def owner_chose(name: str) -> Reason:
    """The owner named a scheduler; the default one is an explicit choice, too."""
    if name == names.DEFAULT_SCHEDULER:
        return Reason(common.OWNER_OPTED_OUT, f"skipped: the owner set schedulerName {_DEFAULT}")
    return Reason(OWNER_CHOSE, f"skipped: the owner set schedulerName {quote(name)}")


OWNER_REMOVED: Final = define(
    "owner-removed-scheduler",
    (SCHEDULING,),
    "skipped",
    f"The owner removed schedulerName and left the annotation {names.INJECTED_SCHEDULER_ANNOTATION}: the VM stays"
    " without.",
    "To have schedulerName set again, remove the annotation and create the VM again, or set the field.",
)


def owner_removed(name: str) -> Reason:
    """The owner took the name out of the VM, whose annotation still has it."""
    text = (
        f"schedulerName {quote(name)} left unset: the owner removed it (annotation"
        f" {names.INJECTED_SCHEDULER_ANNOTATION} is still present)"
    )
    return Reason(OWNER_REMOVED, text)


FOREIGN_SCHEDULER: Final = define(
    "foreign-scheduler",
    (SCHEDULING,),
    "skipped",
    "The pod names a scheduler that kubevirt-webhook did not set, and keeps it.",
)


def foreign_scheduler(name: str) -> Reason:
    """The pod's scheduler was not set by this server."""
    text = f"skipped: the pod has schedulerName {quote(name)}, which kubevirt-webhook did not set"
    return Reason(FOREIGN_SCHEDULER, text)


REWRITTEN: Final = define(
    "scheduler-rewritten",
    (SCHEDULING,),
    "skipped",
    "The VirtualMachineInstance names a scheduler, but another component changed it in the pod before"
    " kubevirt-webhook saw it.",
    "Look for another mutating webhook that changes schedulerName of pods.",
)


def rewritten(where: str, name: str) -> Reason:
    """The VMI names a scheduler, and another webhook took it out of the pod."""
    text = f"skipped: {where} sets schedulerName {quote(name)}, but another component changed it in the pod"
    return Reason(REWRITTEN, text)


KUBEVIRT_UNREADABLE: Final = define(
    "kubevirt-unreadable",
    (SCHEDULING,),
    "failed",
    "Where KubeVirt runs could not be read, so who created the pod is not known.",
    LOG,
)


def kubevirt_unreadable(why: str) -> Reason:
    """Whether KubeVirt created the pod is not known."""
    text = f"{_UNSET}, because kubevirt-webhook cannot check that KubeVirt created the pod: {why}"
    return Reason(KUBEVIRT_UNREADABLE, text)


BOUND: Final = define(
    "already-bound",
    (SCHEDULING,),
    "skipped",
    "The pod names its node, so no scheduler looks at it.",
)


def already_bound(node: str) -> Reason:
    """The pod names its node, so no scheduler will look at it."""
    return Reason(BOUND, f"skipped: the pod is already bound to node {quote(node)}")


VMI_UNREADABLE: Final = define(
    "vmi-unreadable",
    (SCHEDULING,),
    "failed",
    "The VirtualMachineInstance could not be read, so the owner's choice is not known.",
    LOG,
)


def vmi_unreadable(where: str, why: str) -> Reason:
    """What the owner chose is not known."""
    return Reason(VMI_UNREADABLE, f"{_UNSET}, because {where} cannot be read: {why}")


NO_TEMPLATE: Final = define(
    "no-template",
    (SCHEDULING,),
    "skipped",
    "The object has no spec that could name a scheduler.",
)


def no_template() -> Reason:
    """The VM has no template to write into."""
    return Reason(NO_TEMPLATE, "skipped: the VM has no spec.template.spec")


def no_spec() -> Reason:
    """The VMI has no spec to write into."""
    return Reason(NO_TEMPLATE, "skipped: the VMI has no spec")


INSTANCETYPE_SETS_SCHEDULER: Final = define(
    "instancetype-sets-scheduler",
    (SCHEDULING,),
    "skipped",
    "The VM's instancetype sets schedulerName, and KubeVirt denies a VM that sets what its instancetype sets.",
)


def instancetype_sets_scheduler(name: str) -> Reason:
    """KubeVirt denies a VM that sets what its instancetype sets."""
    return Reason(INSTANCETYPE_SETS_SCHEDULER, f"the VM's instancetype sets schedulerName {quote(name)}")


INSTANCETYPE_UNRESOLVED: Final = define(
    "instancetype-unresolved",
    (SCHEDULING,),
    "skipped",
    "The VM's instancetype does not exist yet or is inferred from a volume, so the VM is left alone; its"
    " launcher pod"
    " is evaluated when it is created.",
)


def instancetype_unresolved(why: str) -> Reason:
    """The VM's instancetype is not there yet; the pod is evaluated later."""
    text = f"{_UNSET} in the VM: its instancetype is not known ({why}); its launcher pod is evaluated at creation"
    return Reason(INSTANCETYPE_UNRESOLVED, text)


INSTANCETYPE_UNREADABLE: Final = define(
    "instancetype-unreadable",
    (SCHEDULING,),
    "failed",
    "The VM's instancetype could not be read, so whether it sets schedulerName is not known.",
    LOG,
)


def instancetype_unreadable(why: str) -> Reason:
    """Whether the VM's instancetype sets a scheduler is not known."""
    return Reason(INSTANCETYPE_UNREADABLE, f"{_UNSET}, because the VM's instancetype cannot be read: {why}")


UNDECLARED: Final = define(
    "scheduler-undeclared",
    (SCHEDULING,),
    "skipped",
    "The scheduler that should be set is not declared in the settings.",
    f"Add it to schedulers in the settings, or correct the namespace's annotation {names.SCHEDULER_NAME_ANNOTATION}.",
)


def undeclared(name: str) -> Reason:
    """The namespace names a scheduler that the settings do not have."""
    text = (
        f"{_UNSET}: the settings do not declare scheduler {quote(name)}, which the namespace's annotation"
        f" {names.SCHEDULER_NAME_ANNOTATION} or the settings name"
    )
    return Reason(UNDECLARED, text)


def none_declared() -> Reason:
    """The settings have no scheduler at all."""
    return Reason(UNDECLARED, f"{_UNSET}: the settings declare no scheduler")


def not_preserved(name: str) -> Reason:
    """A replaced VM lost a name that is no longer declared."""
    return Reason(UNDECLARED, f"schedulerName {quote(name)} is not preserved: {no_longer_declared()}")


SCHEDULER_UNAVAILABLE: Final = define(
    "scheduler-unavailable",
    (SCHEDULING,),
    "skipped",
    "The scheduler's Lease has expired, or pods wait for it and it does not look at them. The VM uses"
    " default-scheduler, so that it starts.",
    "Check the scheduler's pods and its Lease; `kubevirt-webhook doctor` shows both.",
)


def unavailable(name: str, why: str) -> Reason:
    """The scheduler's health check failed."""
    text = f"scheduler {quote(name)} is unavailable ({why}); {_UNSET}, the VM uses {_DEFAULT}"
    return Reason(SCHEDULER_UNAVAILABLE, text)


SCHEDULER_HEALTH_UNKNOWN: Final = define(
    "scheduler-health-unknown",
    (SCHEDULING,),
    "skipped",
    "Whether the scheduler runs is not known, because its Lease or the pods could not be read. The VM uses"
    " default-scheduler, so that it starts.",
    "Check the permissions of kubevirt-webhook, or set assumeAlive for this scheduler in the settings.",
)


def health_unknown(name: str, why: str) -> Reason:
    """The scheduler's health check has no answer."""
    text = f"the health of scheduler {quote(name)} is unknown ({why}); {_UNSET}, the VM uses {_DEFAULT}"
    return Reason(SCHEDULER_HEALTH_UNKNOWN, text)


def no_health_check() -> str:
    """Why the health is unknown where nothing is known, as a clause."""
    return "its health check has not answered yet"


SPREAD_INJECTED: Final = define(
    "spread-injected",
    (SCHEDULING,),
    "changed",
    "Soft topologySpreadConstraints are set, because the owner of the VM set none.",
    f"{OPT_OUT} the annotation {names.SPREAD_ANNOTATION}=off on the VM's template.",
)


def spread_injected() -> Reason:
    """Constraints are written, for the owner set none."""
    return Reason(SPREAD_INJECTED, "topologySpreadConstraints are set: the owner sets none")


def spread_hosts_only() -> Reason:
    """Of both constraints only that on nodes is written."""
    text = f"topologySpreadConstraints are set on nodes alone, and the owner sets none: {_ZONES_MISSING}"
    return Reason(SPREAD_INJECTED, text)


_ZONES_MISSING: Final = "the nodes that the VM can use do not all have zones, or have only one"
SPREAD_WITHOUT_ZONES: Final = define(
    "spread-without-zones",
    (SCHEDULING,),
    "skipped",
    "The setting spread is zone, and the nodes that the VM can use do not all have the label"
    " topology.kubernetes.io/zone, or have only one zone. The scheduler would avoid nodes without a zone.",
    "Label all nodes with their zones, or set spread to hostname.",
)


def spread_without_zones() -> Reason:
    """A constraint on zones would have no effect, or a wrong one."""
    return Reason(SPREAD_WITHOUT_ZONES, f"skipped: {_ZONES_MISSING}")


SPREAD_PRESERVED: Final = define(
    "spread-preserved",
    (SCHEDULING,),
    "changed",
    "An update replaced the whole VM and so removed the topologySpreadConstraints and the annotation that"
    " kubevirt-webhook had set. Both are set again.",
)


def spread_preserved(injected_value: object) -> Reason:
    """A replaced VM lost the constraints together with its annotations."""
    text = f"topologySpreadConstraints ({injected_value}) are preserved: a replacement of the whole VM removed them"
    return Reason(SPREAD_PRESERVED, text)


SPREAD_WITHDRAWN: Final = define(
    "spread-withdrawn",
    (SCHEDULING,),
    "changed",
    "The topologySpreadConstraints from kubevirt-webhook are removed, because the owner set others.",
)


def spread_withdrawn() -> Reason:
    """The injected constraints are removed, since the owner has set others."""
    text = "the topologySpreadConstraints set by kubevirt-webhook are removed: the owner set others"
    return Reason(SPREAD_WITHDRAWN, text)


SPREAD_PRESENT: Final = define(
    "spread-already-injected",
    (SCHEDULING,),
    "skipped",
    "kubevirt-webhook set topologySpreadConstraints earlier.",
)


def spread_present(injected_value: object) -> Reason:
    """The object has the constraints that kubevirt-webhook wrote earlier."""
    text = f"topologySpreadConstraints are already those set by kubevirt-webhook ({injected_value})"
    return Reason(SPREAD_PRESENT, text)


SPREAD_CHOSEN: Final = define(
    "owner-chose-spread",
    (SCHEDULING,),
    "skipped",
    "The owner of the VM set topologySpreadConstraints, and keeps them.",
)


def spread_chosen() -> Reason:
    """The owner has constraints of their own."""
    return Reason(SPREAD_CHOSEN, "skipped: the owner set topologySpreadConstraints")


SPREAD_OPTED_OUT: Final = define(
    "owner-opted-out-of-spread",
    (SCHEDULING,),
    "skipped",
    f"The owner of the VM set the annotation {names.SPREAD_ANNOTATION} to off.",
)


def spread_opted_out() -> Reason:
    """The owner declines constraints."""
    return Reason(SPREAD_OPTED_OUT, f'skipped: the owner set annotation {names.SPREAD_ANNOTATION} to "off"')


SPREAD_REMOVED: Final = define(
    "owner-removed-spread",
    (SCHEDULING,),
    "skipped",
    f"The owner removed the topologySpreadConstraints and left the annotation {names.INJECTED_SPREAD_ANNOTATION}.",
)


def spread_removed(injected_value: object) -> Reason:
    """The owner took the constraints out of the VM, whose annotation still has them."""
    text = (
        f"topologySpreadConstraints ({injected_value}) left unset: the owner removed them (annotation"
        f" {names.INJECTED_SPREAD_ANNOTATION} is still present)"
    )
    return Reason(SPREAD_REMOVED, text)


SPREAD_INVALID: Final = define(
    "spread-invalid",
    (SCHEDULING,),
    "skipped",
    f"The annotation {names.SPREAD_ANNOTATION} has an invalid value, so no constraints are set.",
    f"Set it to {', '.join(names.SPREADS[:-1])}, or {names.SPREADS[-1]}.",
)


def spread_invalid(value: str) -> Reason:
    """The annotation has a value that kubevirt-webhook does not know."""
    text = (
        f"topologySpreadConstraints were not set: annotation {names.SPREAD_ANNOTATION} has the invalid value"
        f" {quote(value)}; use {', '.join(names.SPREADS[:-1])}, or {names.SPREADS[-1]}"
    )
    return Reason(SPREAD_INVALID, text)


# Reasons that other policies give too, in this policy's words.


def owner_chose_default(where: str) -> Reason:
    """The VMI of a pod names the default scheduler."""
    return Reason(common.OWNER_OPTED_OUT, f"skipped: {where} sets schedulerName {_DEFAULT}")


def nothing_to_preserve() -> Reason:
    """Nothing new is added to a VM at UPDATE."""
    text = "skipped: schedulerName is added at CREATE only, because a changed template requires a restart of the VM"
    return Reason(common.NOTHING_TO_PRESERVE, text)


def spread_off() -> Reason:
    """Neither the namespace nor the VM requests constraints."""
    text = f"skipped: scheduling.spread is off, and the VM does not have the annotation {names.SPREAD_ANNOTATION}"
    return Reason(common.DISABLED, text)
