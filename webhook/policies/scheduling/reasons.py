"""The reasons of the scheduling policy."""

from __future__ import annotations

from functools import partial
from typing import Final

from webhook import names
from webhook.admission.decision import Reason
from webhook.admission.reasons import common
from webhook.admission.reasons.catalog import LOG, OPT_OUT, Meaning, about, about_two, define
from webhook.errors import quote

# By code.
REASONS: Final[dict[str, Meaning]] = {}
# Codes of several policies that this one gives, too.
SHARED_REASONS: Final = (
    common.DISABLED,
    common.BEING_DELETED,
    common.OWNER_OPTED_OUT,
    common.NOTHING_TO_PRESERVE,
    common.NOT_LAUNCHER,
    common.NO_VMI_OWNER,
    common.NOT_CREATED_BY_KUBEVIRT,
    common.KUBEVIRT_ABSENT,
    common.VMI_NOT_FOUND,
    common.VMI_REPLACED,
)

_changed: Final = partial(define, REASONS, "changed")
_skipped: Final = partial(define, REASONS, "skipped")
_failed: Final = partial(define, REASONS, "failed")

_DEFAULT: Final = f'"{names.DEFAULT_SCHEDULER}"'
# A review, which knows less of the scheduler than the server, leaves it out.
UNSET: Final = "schedulerName was not set"
_UNSET_IN_VM: Final = f"{UNSET} in the VM: "
_ZONES_MISSING: Final = "the nodes that the VM can use do not all have zones, or have only one"
_SPREADS: Final = f"{', '.join(names.SPREADS[:-1])}, or {names.SPREADS[-1]}"

INJECTED: Final = _changed(
    "scheduler-injected",
    "schedulerName is set, because the owner of the VM set none.",
    f"{OPT_OUT} spec.template.spec.schedulerName to the one that you want; default-scheduler is Kubernetes' own.",
)
injected: Final = about(INJECTED, "schedulerName is set: %s sets none")
PRESERVED: Final = _changed(
    "scheduler-preserved",
    "An update replaced the whole VM, as VirtualMachinePools and `kubectl replace` do, and so removed schedulerName and"
    " the annotation that kubevirt-webhook had set. Both are set again.",
    "To remove schedulerName for good, remove the field and keep the annotation, or set default-scheduler.",
)
preserved: Final = about(
    PRESERVED, "schedulerName %q is preserved: a replacement of the whole VM removed it and its annotation"
)
FELL_BACK: Final = _changed(
    "scheduler-fell-back",
    "The pod's scheduler was set by kubevirt-webhook and is unavailable, so the pod uses default-scheduler instead.",
    "Check the scheduler's pods and its Lease.",
)
fell_back: Final = about_two(
    FELL_BACK, f"fell back to scheduler {_DEFAULT}: scheduler %q, set by kubevirt-webhook, is unavailable (%s)"
)
SCHEDULER_WITHDRAWN: Final = _changed(
    "scheduler-withdrawn",
    "schedulerName is removed from the VM, because the instancetype that the owner named sets one as well, and KubeVirt"
    " denies a VM that sets what its instancetype sets, or because it does not exist yet.",
)


def withdrawn(name: str, why: str) -> Reason:
    """An injected scheduler is removed, for the reason, a sentence, for which a new VM would get none."""
    because = why.removeprefix(_UNSET_IN_VM)
    return Reason(SCHEDULER_WITHDRAWN, f"schedulerName {quote(name)}, set by kubevirt-webhook, is removed: {because}")


ANNOTATION_RESTORED: Final = _changed(
    "annotation-restored",
    "The VM has the schedulerName that kubevirt-webhook set, but lost the annotation"
    f" {names.INJECTED_SCHEDULER_ANNOTATION}, for example in a clone. The annotation is set again.",
)
annotation_restored: Final = about(
    ANNOTATION_RESTORED,
    f"annotation {names.INJECTED_SCHEDULER_ANNOTATION} is restored: schedulerName %q was set by kubevirt-webhook, and"
    " the annotation was removed",
)
ALREADY_INJECTED: Final = _skipped("already-injected", "kubevirt-webhook set schedulerName earlier.")
already_injected: Final = about(ALREADY_INJECTED, "schedulerName is already %q, set by kubevirt-webhook")
ALREADY_FELL_BACK: Final = _skipped(
    "already-fell-back", "The pod fell back to default-scheduler earlier in the same request."
)
already_fell_back: Final = about(
    ALREADY_FELL_BACK, f"skipped: the pod fell back from scheduler %q to {_DEFAULT} before"
)
no_longer_declared: Final = "the settings no longer declare it"
OWNER_CHOSE: Final = _skipped("owner-chose-scheduler", "The owner of the VM set schedulerName, and keeps it.")


def owner_chose(name: str) -> Reason:
    """The owner named a scheduler; the default one is an explicit choice, too."""
    if name == names.DEFAULT_SCHEDULER:
        return Reason(common.OWNER_OPTED_OUT, f"skipped: the owner set schedulerName {_DEFAULT}")
    return Reason(OWNER_CHOSE, f"skipped: the owner set schedulerName {quote(name)}")


OWNER_REMOVED: Final = _skipped(
    "owner-removed-scheduler",
    f"The owner removed schedulerName and left the annotation {names.INJECTED_SCHEDULER_ANNOTATION}: the VM stays"
    " without.",
    "To have schedulerName set again, remove the annotation and create the VM again, or set the field.",
)
owner_removed: Final = about(
    OWNER_REMOVED,
    f"schedulerName %q left unset: the owner removed it (annotation {names.INJECTED_SCHEDULER_ANNOTATION} is still"
    " present)",
)
FOREIGN_SCHEDULER: Final = _skipped(
    "foreign-scheduler", "The pod names a scheduler that kubevirt-webhook did not set, and keeps it."
)
foreign_scheduler: Final = about(
    FOREIGN_SCHEDULER, "skipped: the pod has schedulerName %q, which kubevirt-webhook did not set"
)
REWRITTEN: Final = _skipped(
    "scheduler-rewritten",
    "The VirtualMachineInstance names a scheduler, but another component changed it in the pod before kubevirt-webhook"
    " saw it.",
    "Look for another mutating webhook that changes schedulerName of pods.",
)
rewritten: Final = about_two(
    REWRITTEN, "skipped: %s sets schedulerName %q, but another component changed it in the pod"
)
KUBEVIRT_UNREADABLE: Final = _failed(
    "kubevirt-unreadable", "Where KubeVirt runs could not be read, so who created the pod is not known.", LOG
)
kubevirt_unreadable: Final = about(
    KUBEVIRT_UNREADABLE, f"{UNSET}, because kubevirt-webhook cannot check that KubeVirt created the pod: %s"
)
BOUND: Final = _skipped("already-bound", "The pod names its node, so no scheduler looks at it.")
already_bound: Final = about(BOUND, "skipped: the pod is already bound to node %q")
VMI_UNREADABLE: Final = _failed(
    "vmi-unreadable", "The VirtualMachineInstance could not be read, so the owner's choice is not known.", LOG
)
vmi_unreadable: Final = about_two(VMI_UNREADABLE, f"{UNSET}, because %s cannot be read: %s")
NO_TEMPLATE: Final = _skipped("no-template", "The object has no spec that could name a scheduler.")
no_template: Final = Reason(NO_TEMPLATE, "skipped: the VM has no spec.template.spec")
no_spec: Final = Reason(NO_TEMPLATE, "skipped: the VMI has no spec")
INSTANCETYPE_SETS_SCHEDULER: Final = _skipped(
    "instancetype-sets-scheduler",
    "The VM's instancetype sets schedulerName, and KubeVirt denies a VM that sets what its instancetype sets.",
)
instancetype_sets_scheduler: Final = about(INSTANCETYPE_SETS_SCHEDULER, "the VM's instancetype sets schedulerName %q")
INSTANCETYPE_UNRESOLVED: Final = _skipped(
    "instancetype-unresolved",
    "The VM's instancetype does not exist yet or is inferred from a volume, so the VM is left alone; its launcher pod"
    " is evaluated when it is created.",
)
instancetype_unresolved: Final = about(
    INSTANCETYPE_UNRESOLVED,
    f"{_UNSET_IN_VM}the VM's instancetype is not known (%s); its launcher pod is evaluated at creation",
)
INSTANCETYPE_UNREADABLE: Final = _failed(
    "instancetype-unreadable",
    "The VM's instancetype could not be read, so whether it sets schedulerName is not known.",
    LOG,
)
instancetype_unreadable: Final = about(
    INSTANCETYPE_UNREADABLE, f"{UNSET}, because the VM's instancetype cannot be read: %s"
)
UNDECLARED: Final = _skipped(
    "scheduler-undeclared",
    "The scheduler that should be set is not declared in the settings.",
    f"Add it to schedulers in the settings, or correct the namespace's annotation {names.SCHEDULER_NAME_ANNOTATION}. If"
    " you want no scheduler for VMs, nothing; scheduling.spread spreads them without one.",
)
undeclared: Final = about(
    UNDECLARED,
    f"{UNSET}: the settings do not declare scheduler %q, which the namespace's annotation"
    f" {names.SCHEDULER_NAME_ANNOTATION} or the settings name",
)
none_declared: Final = Reason(UNDECLARED, f"{UNSET}: the settings declare no scheduler")
not_preserved: Final = about(UNDECLARED, f"schedulerName %q is not preserved: {no_longer_declared}")
SCHEDULER_UNAVAILABLE: Final = _skipped(
    "scheduler-unavailable",
    "The scheduler's Lease has expired, or pods wait for it and it does not look at them. The VM uses"
    " default-scheduler, so that it starts.",
    "Nothing, as the owner of a VM. As an admin, check the scheduler's pods and its Lease; `kubevirt-webhook doctor`"
    " shows both. If you want no scheduler for VMs, the settings need `schedulers: {}`.",
)
unavailable: Final = about_two(
    SCHEDULER_UNAVAILABLE, f"scheduler %q is unavailable (%s); {UNSET}, the VM uses {_DEFAULT}"
)
SCHEDULER_HEALTH_UNKNOWN: Final = _skipped(
    "scheduler-health-unknown",
    "Whether the scheduler runs is not known, because its Lease or the pods could not be read. The VM uses"
    " default-scheduler, so that it starts.",
    "Nothing, as the owner of a VM. As an admin, check the permissions of kubevirt-webhook, or set assumeAlive for this"
    " scheduler in the settings.",
)
health_unknown: Final = about_two(
    SCHEDULER_HEALTH_UNKNOWN, f"the health of scheduler %q is unknown (%s); {UNSET}, the VM uses {_DEFAULT}"
)
no_health_check: Final = "its health check has not answered yet"
SPREAD_INJECTED: Final = _changed(
    "spread-injected",
    "Soft topologySpreadConstraints are set, because the owner of the VM set none.",
    f"To keep kubevirt-webhook from setting any, set the annotation {names.SPREAD_ANNOTATION}=off on the VM's"
    " template.",
)
spread_injected: Final = Reason(SPREAD_INJECTED, "topologySpreadConstraints are set: the owner sets none")
spread_hosts_only: Final = Reason(
    SPREAD_INJECTED, f"topologySpreadConstraints are set on nodes alone, and the owner sets none: {_ZONES_MISSING}"
)
SPREAD_WITHOUT_ZONES: Final = _skipped(
    "spread-without-zones",
    "The setting spread is zone, and the nodes that the VM can use do not all have the label"
    " topology.kubernetes.io/zone, or have only one zone. The scheduler would avoid nodes without a zone.",
    "Label all nodes with their zones, or set spread to hostname.",
)
spread_without_zones: Final = Reason(SPREAD_WITHOUT_ZONES, f"skipped: {_ZONES_MISSING}")
SPREAD_PRESERVED: Final = _changed(
    "spread-preserved",
    "An update replaced the whole VM and so removed the topologySpreadConstraints and the annotation that"
    " kubevirt-webhook had set. Both are set again.",
)
spread_preserved: Final = about(
    SPREAD_PRESERVED, "topologySpreadConstraints (%s) are preserved: a replacement of the whole VM removed them"
)
SPREAD_WITHDRAWN: Final = _changed(
    "spread-withdrawn",
    "The topologySpreadConstraints from kubevirt-webhook are removed, because the owner set others, or asks for others"
    f" or none with the annotation {names.SPREAD_ANNOTATION}.",
)
spread_withdrawn: Final = Reason(
    SPREAD_WITHDRAWN, "the topologySpreadConstraints set by kubevirt-webhook are removed: the owner set others"
)
spread_withdrawn_for: Final = about(
    SPREAD_WITHDRAWN,
    "the topologySpreadConstraints set by kubevirt-webhook are removed: the annotation"
    f" {names.SPREAD_ANNOTATION} of the template is %s",
)
SPREAD_PRESENT: Final = _skipped("spread-already-injected", "kubevirt-webhook set topologySpreadConstraints earlier.")
spread_present: Final = about(
    SPREAD_PRESENT, "topologySpreadConstraints are already those set by kubevirt-webhook (%s)"
)
SPREAD_CHOSEN: Final = _skipped(
    "owner-chose-spread", "The owner of the VM set topologySpreadConstraints, and keeps them."
)
spread_chosen: Final = Reason(SPREAD_CHOSEN, "skipped: the owner set topologySpreadConstraints")
SPREAD_OPTED_OUT: Final = _skipped(
    "owner-opted-out-of-spread", f"The owner of the VM set the annotation {names.SPREAD_ANNOTATION} to off."
)
spread_opted_out: Final = Reason(
    SPREAD_OPTED_OUT, f'skipped: the owner set annotation {names.SPREAD_ANNOTATION} to "off"'
)
SPREAD_REMOVED: Final = _skipped(
    "owner-removed-spread",
    f"The owner removed the topologySpreadConstraints and left the annotation {names.INJECTED_SPREAD_ANNOTATION}.",
)
spread_removed: Final = about(
    SPREAD_REMOVED,
    f"topologySpreadConstraints (%s) left unset: the owner removed them (annotation {names.INJECTED_SPREAD_ANNOTATION}"
    " is still present)",
)
SPREAD_INVALID: Final = _skipped(
    "spread-invalid",
    f"The annotation {names.SPREAD_ANNOTATION} has an invalid value, so no constraints are set.",
    f"Set it to {_SPREADS}.",
)
spread_invalid: Final = about(
    SPREAD_INVALID,
    f"topologySpreadConstraints were not set: annotation {names.SPREAD_ANNOTATION} has the invalid value %q; use"
    f" {_SPREADS}",
)
# Reasons that other policies give too, in this policy's words.
owner_chose_default: Final = about(common.OWNER_OPTED_OUT, f"skipped: %s sets schedulerName {_DEFAULT}")
nothing_to_preserve: Final = Reason(
    common.NOTHING_TO_PRESERVE,
    "skipped: schedulerName is added at CREATE only, because a changed template requires a restart of the VM",
)
spread_off: Final = Reason(
    common.DISABLED,
    f"skipped: constraints are off here (annotation {names.SPREAD_ANNOTATION} of the namespace, or else"
    " scheduling.spread), and the VM does not have that annotation",
)
