"""The reasons of the headroom policy."""

from __future__ import annotations

from collections.abc import Collection
from functools import partial
from typing import Final

from webhook.admission.decision import Reason
from webhook.admission.reasons import common
from webhook.admission.reasons.catalog import Meaning, about_two, define
from webhook.k8s.resources import NamespacedName
from webhook.text import abbreviate, pluralize

# By code.
REASONS: Final[dict[str, Meaning]] = {}
# Codes of several policies that this one gives, too.
SHARED_REASONS: Final = (common.DISABLED, common.NOT_LAUNCHER, common.NO_VMI_OWNER, common.POD_BOUND, common.POD_OVER)

_denied: Final = partial(define, REASONS, "denied")
_allowed: Final = partial(define, REASONS, "allowed")
_skipped: Final = partial(define, REASONS, "skipped")

NO_PLACE: Final = _denied(
    "no-place-after-loss",
    "With this VM, the loss of a node would leave VMs down that it does not leave down now.",
    "Do what the message says, or stop a VM; KubeVirt tries the start again by itself. Your admin's `explain loss --any"
    " 1` shows what the loss of each node leads to.",
)
NO_ROOM: Final = _denied(
    "no-room-for-start",
    "No node can take the VM even now: none has room, or those that have some are not for it, by its node selector, its"
    " affinity, its group, or their taints. It would start as soon as one can take it, without another look at what is"
    " left.",
    "Do what the message says; KubeVirt tries the start again by itself. The message counts each node once, by what"
    " kube-scheduler looks at first, and offers only what would help by itself.",
)
NO_MIGRATION: Final = _denied(
    "no-room-for-migration",
    "A migrating VM has two pods. With this VM, the namespace's ResourceQuota would have no room for the second pod of"
    " one of its VMs, so that it could not leave its node. The message is about the largest that could not.",
    "Raise the ResourceQuota to what the message calls requested and used, together, or stop a VM; KubeVirt tries the"
    " start again by itself.",
)


def no_place(node: str, lost: str, vms: Collection[NamespacedName], namespace: str, fix: str) -> Reason:
    """A start on one node after which the loss of another, or of the same, leaves VMs down; names its own alone."""
    named = [f"{each[0]}/{each[1]}" for each in vms if each[0] == namespace]
    others = len(vms) - len(named)
    more = [pluralize(others, "VM") + " of other namespaces"] if others else []
    text = f"if it starts on node {node} and node {lost} is lost, these find no place: {abbreviate([*named, *more])}"
    return Reason(NO_PLACE, f"{text}; {fix}")


def no_place_together(lost: str, shortage: str, fix: str) -> Reason:
    """A start after which all other nodes together have too little for the VMs of a lost one."""
    return Reason(NO_PLACE, f"if it starts and node {lost} is lost, {shortage}; {fix}")


def no_place_unnamed(vms: int, fix: str) -> Reason:
    """The same for those who may not know nodes and VMs, of which there are so many; 0: that is not known."""
    who = f"{pluralize(vms, 'VM')} {'finds' if vms == 1 else 'find'}" if vms else "some VMs find"
    return Reason(NO_PLACE, f"if it starts and one of the nodes is lost, {who} no place; {fix}")


def no_node(vm: str, why: str, fix: str) -> Reason:
    """A start that no node can take, where something else than room keeps the VM from some."""
    return Reason(NO_ROOM, f"no node can take VM {vm}: {why}; {fix}")


no_room: Final = about_two(NO_ROOM, "no node has room for VM %s; %s")
no_migration: Final = about_two(NO_MIGRATION, "%s could not migrate then: %s")

KEPT: Final = _allowed("headroom-kept", "Any node may still be lost of which that was true, and each VM may migrate.")
kept: Final = Reason(KEPT, "any one node may still be lost, and quotas leave room to migrate")
NOT_PROVEN: Final = _allowed(
    "headroom-not-proven",
    "To find out whether any node may still be lost takes more steps than a review may take, or longer. It does not"
    " deny: most such starts are harmless, and a cluster in which no VM starts is not.",
    "See with `explain loss --any 1`, which may take longer.",
)
not_proven: Final = Reason(NOT_PROVEN, "whether any one node may still be lost takes too long to find out")
RESTARTS: Final = _allowed("vm-restarts", "The VM was running a moment ago, and its place is kept for it.")
restarts: Final = about_two(RESTARTS, "VM %s/%s starts again")
MIGRATES: Final = _skipped("migration-target", "The pod is that of a migration, which no headroom is asked of.")
migrates: Final = Reason(MIGRATES, "skipped: the pod is the target of a migration")
NOT_RENDERED: Final = _skipped(
    "pod-not-rendered",
    "The pod has no containers, so that nothing says what the VM requests: it was written by hand, or `explain vm`"
    " could not read what the VM's pod is made of.",
    "See with `explain loss --any 1` how much headroom there is.",
)
not_rendered: Final = Reason(NOT_RENDERED, "skipped: what the VM's pod requests is not known")
