"""What the scheduling policy says. Each function makes one sentence, with the reason code that explains it."""

from __future__ import annotations

from typing import Final

from webhook import names
from webhook.admission.decision import Reason
from webhook.errors import quote
from webhook.names import Code

_DEFAULT: Final = f'"{names.DEFAULT_SCHEDULER}"'
_UNSET: Final = "schedulerName was not set"


def injected(subject: str) -> Reason:
    """The scheduler's name is written, for the owner set none.

    Args:
        subject: sets none: ``the VM``, ``the VMI`` or ``VirtualMachineInstance NAMESPACE/NAME``.
    """
    return Reason(Code.INJECTED, f"schedulerName is set: {subject} sets none")


def already_injected(name: str) -> Reason:
    """The object has the name that kubevirt-webhook wrote earlier."""
    return Reason(Code.ALREADY_INJECTED, f"schedulerName is already {quote(name)}, set by kubevirt-webhook")


def annotation_restored(name: str) -> Reason:
    """The name is kubevirt-webhook's, but the annotation that says so is lost."""
    text = (
        f"annotation {names.INJECTED_SCHEDULER_ANNOTATION} is restored: schedulerName {quote(name)} was set by"
        " kubevirt-webhook, and the annotation was removed"
    )
    return Reason(Code.ANNOTATION_RESTORED, text)


def preserved(name: str) -> Reason:
    """A replaced VM lost the name together with its annotations."""
    text = f"schedulerName {quote(name)} is preserved: a replacement of the whole VM removed it and its annotation"
    return Reason(Code.PRESERVED, text)


def withdrawn(name: str, why: str) -> Reason:
    """KubeVirt would deny the VM with the name in it."""
    text = f"schedulerName {quote(name)}, set by kubevirt-webhook, is removed: {why}"
    return Reason(Code.SCHEDULER_WITHDRAWN, text)


def fell_back(name: str, why: str) -> Reason:
    """The pod has the name, and its scheduler would never look at the pod."""
    text = (
        f"fell back to scheduler {_DEFAULT}: scheduler {quote(name)}, set by kubevirt-webhook, is unavailable ({why})"
    )
    return Reason(Code.FELL_BACK, text)


def already_fell_back(name: str) -> Reason:
    """The pod's VMI has the name, and the pod was taken back to the default scheduler before."""
    text = f"skipped: the pod fell back from scheduler {quote(name)} to {_DEFAULT} before"
    return Reason(Code.ALREADY_FELL_BACK, text)


def no_longer_declared() -> str:
    """Why a scheduler that was written earlier is not used any more, as a clause."""
    return "the settings no longer declare it"


def undeclared(name: str) -> Reason:
    """The namespace names a scheduler that the settings do not have."""
    text = (
        f"{_UNSET}: the settings do not declare scheduler {quote(name)}, which the namespace's annotation"
        f" {names.SCHEDULER_NAME_ANNOTATION} or the settings name"
    )
    return Reason(Code.UNDECLARED, text)


def none_declared() -> Reason:
    """The settings have no scheduler at all."""
    return Reason(Code.UNDECLARED, f"{_UNSET}: the settings declare no scheduler")


def not_preserved(name: str) -> Reason:
    """A replaced VM lost a name that is no longer declared."""
    return Reason(Code.UNDECLARED, f"schedulerName {quote(name)} is not preserved: {no_longer_declared()}")


def unavailable(name: str, why: str) -> Reason:
    """The scheduler's health check failed."""
    text = f"scheduler {quote(name)} is unavailable ({why}); {_UNSET}, the VM uses {_DEFAULT}"
    return Reason(Code.SCHEDULER_UNAVAILABLE, text)


def health_unknown(name: str, why: str) -> Reason:
    """The scheduler's health check has no answer."""
    text = f"the health of scheduler {quote(name)} is unknown ({why}); {_UNSET}, the VM uses {_DEFAULT}"
    return Reason(Code.SCHEDULER_HEALTH_UNKNOWN, text)


def no_health_check() -> str:
    """Why the health is unknown where nothing is known, as a clause."""
    return "its health check has not answered yet"


def already_bound(node: str) -> Reason:
    """The pod names its node, so no scheduler will look at it."""
    return Reason(Code.BOUND, f"skipped: the pod is already bound to node {quote(node)}")


def foreign_scheduler(name: str) -> Reason:
    """The pod's scheduler was not set by this server."""
    text = f"skipped: the pod has schedulerName {quote(name)}, which kubevirt-webhook did not set"
    return Reason(Code.FOREIGN_SCHEDULER, text)


def rewritten(where: str, name: str) -> Reason:
    """The VMI names a scheduler, and another webhook took it out of the pod."""
    text = f"skipped: {where} sets schedulerName {quote(name)}, but another component changed it in the pod"
    return Reason(Code.REWRITTEN, text)


def owner_chose(name: str) -> Reason:
    """The owner named a scheduler; the default one is an explicit choice, too."""
    if name == names.DEFAULT_SCHEDULER:
        return Reason(Code.OWNER_OPTED_OUT, f"skipped: the owner set schedulerName {_DEFAULT}")
    return Reason(Code.OWNER_CHOSE, f"skipped: the owner set schedulerName {quote(name)}")


def owner_chose_default(where: str) -> Reason:
    """The VMI of a pod names the default scheduler."""
    return Reason(Code.OWNER_OPTED_OUT, f"skipped: {where} sets schedulerName {_DEFAULT}")


def owner_removed(name: str) -> Reason:
    """The owner took the name out of the VM, whose annotation still has it."""
    text = (
        f"schedulerName {quote(name)} left unset: the owner removed it (annotation"
        f" {names.INJECTED_SCHEDULER_ANNOTATION} is still present)"
    )
    return Reason(Code.OWNER_REMOVED, text)


def nothing_to_preserve() -> Reason:
    """Nothing new is added to a VM at UPDATE."""
    text = "skipped: schedulerName is added at CREATE only, because a changed template requires a restart of the VM"
    return Reason(Code.NOTHING_TO_PRESERVE, text)


def no_template() -> Reason:
    """The VM has no template to write into."""
    return Reason(Code.NO_TEMPLATE, "skipped: the VM has no spec.template.spec")


def no_spec() -> Reason:
    """The VMI has no spec to write into."""
    return Reason(Code.NO_TEMPLATE, "skipped: the VMI has no spec")


def kubevirt_unreadable(why: str) -> Reason:
    """Whether KubeVirt created the pod is not known."""
    text = f"{_UNSET}, because kubevirt-webhook cannot check that KubeVirt created the pod: {why}"
    return Reason(Code.KUBEVIRT_UNREADABLE, text)


def vmi_unreadable(where: str, why: str) -> Reason:
    """What the owner chose is not known."""
    return Reason(Code.VMI_UNREADABLE, f"{_UNSET}, because {where} cannot be read: {why}")


def instancetype_unreadable(why: str) -> Reason:
    """Whether the VM's instancetype sets a scheduler is not known."""
    return Reason(Code.INSTANCETYPE_UNREADABLE, f"{_UNSET}, because the VM's instancetype cannot be read: {why}")


def instancetype_unresolved(why: str) -> Reason:
    """The VM's instancetype is not there yet; the pod is evaluated later."""
    text = f"{_UNSET} in the VM: its instancetype is not known ({why}); its launcher pod is evaluated at creation"
    return Reason(Code.INSTANCETYPE_UNRESOLVED, text)


def instancetype_sets_scheduler(name: str) -> Reason:
    """KubeVirt denies a VM that sets what its instancetype sets."""
    return Reason(Code.INSTANCETYPE_SETS_SCHEDULER, f"the VM's instancetype sets schedulerName {quote(name)}")


def spread_off() -> Reason:
    """Neither the namespace nor the VM requests constraints."""
    text = f"skipped: scheduling.spread is off, and the VM does not have the annotation {names.SPREAD_ANNOTATION}"
    return Reason(Code.DISABLED, text)


def spread_injected() -> Reason:
    """Constraints are written, for the owner set none."""
    return Reason(Code.SPREAD_INJECTED, "topologySpreadConstraints are set: the owner sets none")


def spread_present(injected_value: object) -> Reason:
    """The object has the constraints that kubevirt-webhook wrote earlier."""
    text = f"topologySpreadConstraints are already those set by kubevirt-webhook ({injected_value})"
    return Reason(Code.SPREAD_PRESENT, text)


def spread_preserved(injected_value: object) -> Reason:
    """A replaced VM lost the constraints together with its annotations."""
    text = f"topologySpreadConstraints ({injected_value}) are preserved: a replacement of the whole VM removed them"
    return Reason(Code.SPREAD_PRESERVED, text)


def spread_withdrawn() -> Reason:
    """The injected constraints are removed, since the owner has set others."""
    text = "the topologySpreadConstraints set by kubevirt-webhook are removed: the owner set others"
    return Reason(Code.SPREAD_WITHDRAWN, text)


def spread_chosen() -> Reason:
    """The owner has constraints of their own."""
    return Reason(Code.SPREAD_CHOSEN, "skipped: the owner set topologySpreadConstraints")


def spread_opted_out() -> Reason:
    """The owner declines constraints."""
    return Reason(Code.SPREAD_OPTED_OUT, f'skipped: the owner set annotation {names.SPREAD_ANNOTATION} to "off"')


def spread_removed(injected_value: object) -> Reason:
    """The owner took the constraints out of the VM, whose annotation still has them."""
    text = (
        f"topologySpreadConstraints ({injected_value}) left unset: the owner removed them (annotation"
        f" {names.INJECTED_SPREAD_ANNOTATION} is still present)"
    )
    return Reason(Code.SPREAD_REMOVED, text)


def spread_invalid(value: str) -> Reason:
    """The annotation has a value that kubevirt-webhook does not know."""
    text = (
        f"topologySpreadConstraints were not set: annotation {names.SPREAD_ANNOTATION} has the invalid value"
        f" {quote(value)}; use {', '.join(names.SPREADS[:-1])}, or {names.SPREADS[-1]}"
    )
    return Reason(Code.SPREAD_INVALID, text)
