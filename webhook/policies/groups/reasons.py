"""The reasons of the groups policy."""

from __future__ import annotations

from functools import partial
from typing import Final

from webhook.admission.decision import Reason
from webhook.admission.reasons import common
from webhook.admission.reasons.catalog import Meaning, about, about_two, define

# By code.
REASONS: Final[dict[str, Meaning]] = {}
# Codes of several policies that this one gives, too.
SHARED_REASONS: Final = (
    common.ANNOTATION_INVALID,
    common.ANNOTATIONS_VALID,
    common.NOT_LAUNCHER,
    common.NO_VMI_OWNER,
    common.NOT_CREATED_BY_KUBEVIRT,
    common.KUBEVIRT_ABSENT,
    common.POD_BOUND,
    common.BY_KUBEVIRT,
    common.ELIGIBLE,
    common.VMI_NOT_FOUND,
    common.VMI_REPLACED,
)

_changed: Final = partial(define, REASONS, "changed")
_skipped: Final = partial(define, REASONS, "skipped")
_denied: Final = partial(define, REASONS, "denied")
_allowed: Final = partial(define, REASONS, "allowed")

INJECTED: Final = _changed(
    "group-rules-set",
    "The launcher pod follows the rules of its VM's group: affinity is added to what the owner of the VM set, all of"
    " which stays.",
    "To take a VM out of its group, remove the label kubevirt-webhook.github.io/group from its template, and restart"
    " the VM.",
)
injected: Final = about(INJECTED, "the rules of group %s are added to the affinity of the launcher pod")
RECORDED: Final = _changed(
    "group-rules-recorded",
    "What the VM's group requires is recorded in an annotation of the new VMI, so that all of its launcher pods follow"
    " it.",
)
recorded: Final = about(RECORDED, "the rules of group %s are recorded: the VMI's launcher pods follow them")
PRESENT: Final = _skipped("group-rules-already-set", "What the group's rules say is there already.")
present: Final = Reason(PRESENT, "the rules of the group are there already")
NO_GROUP: Final = _skipped("no-group", "The VM is in no group.")
no_group: Final = Reason(NO_GROUP, "skipped: the VM has no label kubevirt-webhook.github.io/group")
WITHOUT_RULE: Final = _skipped(
    "group-without-rule",
    "The VM names a group that neither the namespace nor the settings have for VMs of this namespace, so that the label"
    " means nothing.",
    "Correct the label in the VM's template and restart the VM, or ask your admin for the group: it is made by the"
    " annotation kubevirt-webhook.github.io/group-rules of the namespace, or by the setting groups.rules.",
)
without_rule: Final = about_two(
    WITHOUT_RULE, "the VM is in group %q, for which there are no rules%s; correct the label, or ask your admin"
)
MISPLACED: Final = _skipped(
    "group-label-misplaced",
    "The label kubevirt-webhook.github.io/group is on the VM and not on its template. KubeVirt copies only the"
    " template's labels.",
    "Move the label to spec.template.metadata.labels, and restart the VM if it runs.",
)
misplaced: Final = Reason(
    MISPLACED, "the label kubevirt-webhook.github.io/group has to be on the VM's template: on the VM, it means nothing"
)
JOINED: Final = _allowed(
    "group-has-rules", "The VM names a group that has rules, which its pods follow from its next start on."
)
joined: Final = about(JOINED, "the VM is in group %s, whose rules its pods follow from its next start on")
INVALID: Final = define(
    REASONS,
    "warned",
    "group-rules-invalid",
    "The namespace's annotation kubevirt-webhook.github.io/group-rules cannot be read; the groups of the settings"
    " count.",
    "Correct the annotation; `kubevirt-webhook doctor` shows what is wrong with it.",
)
invalid: Final = about(INVALID, "the groups of the settings count, because of the namespace's %s")

BROKEN: Final = _denied(
    "group-rules-leave-no-node",
    "What the VM's group requires leaves no node for a migration of the VM: other VMs of the group run where it would"
    " have to, the nodes that the group runs on are full of them, or none of those is left. Without the group's rules,"
    " there would be a node.",
    "The message says how many nodes each reason keeps out. Where it ends with `the only reason is`, that reason alone"
    " keeps so many nodes out, and need not be the group's rule; `kubevirt-webhook explain migration` names the nodes."
    " Stop another VM of the group there, wait for another node, or ask your admin to prefer the rule instead of"
    " requiring it: where VMs are apart, that counts once the others have restarted. Of a drain, uncordon another node"
    " first. `kubevirt-webhook doctor` lists groups with more VMs than places.",
)


def broken(group: str, rules: str, others: str, why: str) -> Reason:
    """What a VM's group requires leaves it no node.

    Args:
        group: its name.
        rules: what is required, in a few words.
        others: the names of its other VMs in the namespace, each quoted; empty: there are none.
        why: what keeps each node out, a clause.
    """
    beside = f" ({rules}; its other VMs: {others})" if others else f" ({rules})"
    todo = "wait for a node, or ask your admin to prefer the rule"
    return Reason(BROKEN, f'the rules of group "{group}"{beside} leave the VM no node; {todo}: {why}')


NOTHING_REQUIRED: Final = _skipped(
    "group-requires-nothing", "The VM's group has no rule that is required of it, so that it may run anywhere."
)
nothing_required: Final = about(NOTHING_REQUIRED, "skipped: group %s requires nothing of the VM")
NOT_MOVED: Final = _skipped(
    "not-moved-by-the-eviction",
    "The eviction does not have KubeVirt migrate a VM: its pod is gone or carries no VM, it has another eviction"
    " strategy, or cannot be migrated. What virt-api answers, it answers as always.",
)
not_moved: Final = Reason(NOT_MOVED, "skipped: no VM is migrated for this eviction")
NOWHERE_ANYWAY: Final = _skipped(
    "no-node-without-the-group-either",
    "No node can take the VM, whatever its group requires. The policies migration and eviction say why.",
)
nowhere_anyway: Final = Reason(NOWHERE_ANYWAY, "skipped: no node can take the VM, whatever its group requires")
BETWEEN_CLUSTERS: Final = _skipped(
    "migration-between-clusters",
    "The migration is from or to another cluster or namespace, where the VM's group is another one.",
)
between_clusters: Final = Reason(BETWEEN_CLUSTERS, "skipped: the migration is from or to elsewhere")

# Reasons that other policies give too, in this policy's words.
by_kubevirt: Final = Reason(common.BY_KUBEVIRT, "skipped: KubeVirt itself sends the request")
