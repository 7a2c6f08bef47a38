"""The reasons of the preemption policy."""

from __future__ import annotations

from functools import partial
from typing import Final

from webhook.admission.decision import Reason
from webhook.admission.reasons import common
from webhook.admission.reasons.catalog import Meaning, about, about_two, define
from webhook.text import pluralize

# By code.
REASONS: Final[dict[str, Meaning]] = {}
# Codes of several policies that this one gives, too.
SHARED_REASONS: Final = (
    common.BEING_DELETED,
    common.POD_OVER,
    common.NOT_THE_CURRENT_POD,
    common.NO_ELIGIBLE_NODE,
    common.HOST_CPU_UNKNOWN,
    common.NOT_LAUNCHER,
    common.NO_VMI_OWNER,
    common.VMI_NOT_FOUND,
    common.VMI_REPLACED,
)

_denied: Final = partial(define, REASONS, "denied")
_allowed: Final = partial(define, REASONS, "allowed")
_skipped: Final = partial(define, REASONS, "skipped")

MIGRATION_REQUESTED: Final = _denied(
    "migration-requested",
    "The VM can be migrated, and a migration is requested for it; its pod stays meanwhile.",
    "Nothing: the scheduler or the taint controller asks again.",
)
WAITS: Final = _denied(
    "waits-for-migration",
    "The VM is being migrated; its pod stays until it has moved, the migration has failed or the time is over that"
    " preemption.deadlineSeconds sets.",
    "Nothing: the scheduler or the taint controller asks again.",
)


def requested(vm: str, node: str, seconds: int) -> Reason:
    """A migration of a VM away from its node is requested, after which its pod stays for so long at most."""
    return Reason(MIGRATION_REQUESTED, f"VM {vm} is to move away from node {node}, which may take {seconds}s")


def waits(vm: str, node: str, left: int) -> Reason:
    """A VM is moving away from its node, and may take so many seconds more."""
    return Reason(WAITS, f"VM {vm} is moving away from node {node}, which may take {left}s more")


PREEMPTOR_UNKNOWN: Final = _denied(
    "preemptor-not-known",
    "No pod is nominated to the node yet. A scheduler writes that at the same time as it deletes, so that it is looked"
    " for once more.",
    "Nothing: the scheduler asks again in a second.",
)
preemptor_unknown: Final = about(PREEMPTOR_UNKNOWN, "no pod is nominated to node %s yet")
PREEMPTOR_GONE: Final = _denied(
    "preemptor-gone",
    "The pod that the VM was to make room for no longer waits for it: it was deleted, or has a place elsewhere.",
    "Nothing: the VM need not make room.",
)
preemptor_gone: Final = about(PREEMPTOR_GONE, "no pod waits for room on node %s any more")
ENDED: Final = _denied(
    "victim-ended",
    "The VM has left the pod, so that its room is free. The denial makes the scheduler look again at the pods that wait"
    " for it: the deletion of a pod that has ended would not.",
    "Nothing: the scheduler tries the waiting pods again.",
)
ended: Final = Reason(ENDED, "the pod has ended, and its room is free; schedule again")

OVERDUE: Final = _allowed(
    "migration-overdue",
    "The migration takes longer than preemption.deadlineSeconds, together with those of the VM that have failed within"
    " preemption.windowSeconds, and since its room was first asked for. Or it takes longer than KubeVirt gives a VM of"
    " its size (completionTimeoutPerGiB), and KubeVirt has not ended it. Or the waiting pod has waited so long for"
    " other VMs that had to move for it.",
    "Raise the setting if VMs of this size take longer; see how fast they migrate in KubeVirt's metrics.",
)
overdue: Final = about_two(OVERDUE, "VM %s has not moved after %ss, which is the deadline or longer")


def not_aborted(vm: str, ago: int) -> Reason:
    """KubeVirt should have aborted a VM's migration so many seconds ago, and has not."""
    text = f"the migration of VM {vm} goes on {ago}s after completionTimeoutPerGiB, by which KubeVirt should end it"
    return Reason(OVERDUE, text)


def waited(node: str, seconds: int) -> Reason:
    """A pod has waited so many seconds for room on a node, for other VMs."""
    return Reason(OVERDUE, f"a pod has waited for room on node {node} for {seconds}s, which is the deadline or longer")


NO_ROOM: Final = _allowed(
    "no-room-elsewhere",
    "The target pod of the VM's migration waits for room itself: no other node has any.",
    "Keep room free for the largest VM, or give the VM a higher priority than what preempts it.",
)
no_room: Final = about(NO_ROOM, "no other node has room for VM %s")
RECENT: Final = _allowed(
    "migration-was-requested",
    "A migration that was requested for the VM has ended within preemption.windowSeconds: it has failed, or the VM has"
    " moved and is in the way again. Or it was for the same pod, for which none is requested a second time.",
)
recent: Final = about(RECENT, "a migration was requested for VM %s a while ago, and has ended")
NOT_BEGUN: Final = _allowed(
    "migration-not-begun",
    "No migration of the VM has appeared since its deletion was put off.",
    "Look in the log of kubevirt-webhook for why it could not create one, such as a missing permission.",
)
not_begun: Final = about_two(NOT_BEGUN, "no migration of VM %s has begun in %ss")
NOT_REQUESTED: Final = _allowed(
    "migration-not-requested",
    "The VM could be migrated, and no migration of it is under way; none is requested, because"
    " preemption.requestMigrations is off. So the VM is killed.",
    "The VM's owner: ask an administrator. An administrator: switch the setting on, with the role that it needs.",
)
not_requested: Final = about(
    NOT_REQUESTED, "VM %s could move, and is killed, because the setting preemption.requestMigrations is off"
)
CANNOT_MOVE: Final = _allowed(
    "vm-cannot-move", "KubeVirt cannot migrate the VM now, so that it would wait for nothing."
)
cannot_move: Final = about_two(CANNOT_MOVE, "VM %s cannot be migrated: %s")
NODE_DOWN: Final = _allowed("node-down", "The VM's node does not answer, so that nothing can migrate from it.")
node_down: Final = about_two(
    NODE_DOWN, "VM %s cannot leave node %s, which has the taint of a node that does not answer"
)
TOO_MANY: Final = _allowed(
    "too-many-requested-migrations",
    "As many migrations that were requested are unfinished as preemption.maxPerCluster allows.",
)


def too_many(count: int, limit: int) -> Reason:
    """So many requested migrations are unfinished, as many as the settings allow or more."""
    return Reason(TOO_MANY, f"{pluralize(count, 'requested migration')} in progress (limit {limit})")


URGENT: Final = _allowed(
    "urgent-preemptor", "A pod of a higher priority than preemption.maxPriority waits for the VM's room."
)
urgent: Final = about_two(URGENT, "a pod of priority %s waits for room on node %s")
SYNCHRONOUS: Final = _allowed(
    "preemptor-not-nominated",
    "No pod is nominated to the node: the scheduler deletes before it nominates, and would schedule no other pod while"
    " it waits. Its feature gate SchedulerAsyncPreemption is off, or it is older than 1.33.",
)
synchronous: Final = about(
    SYNCHRONOUS, "no pod is nominated to node %s, so the scheduler may be waiting for this answer"
)
OTHER_USER: Final = _skipped(
    "other-user", "Neither a scheduler nor a taint controller of the settings deletes the pod."
)
other_user: Final = about(OTHER_USER, "skipped: %q is neither a scheduler nor a taint controller of the settings")
UNKNOWN_USER: Final = _allowed(
    "user-not-known",
    "A user whom the settings do not name deletes a pod that a scheduler or the taint controller has just chosen: it is"
    " most likely that one.",
    "Add the user to preemption.schedulers or preemption.taintControllers, as the reason says.",
)
unknown_user: Final = about_two(
    UNKNOWN_USER, "user %q, who is not in preemption.%s, deletes a pod that was chosen for it a moment ago"
)
NOT_DISRUPTED: Final = _skipped(
    "not-disrupted",
    "The pod does not have the condition DisruptionTarget with the reason of a preemption or a taint, so that it is"
    " deleted for something else.",
)
not_disrupted: Final = about(
    NOT_DISRUPTED, "skipped: the pod does not have the condition DisruptionTarget with reason %s"
)
being_deleted: Final = Reason(
    common.BEING_DELETED, "skipped: the pod or its VirtualMachineInstance is already being deleted"
)
