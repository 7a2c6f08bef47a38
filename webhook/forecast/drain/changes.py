"""What one change would free most: for each VM that blocks, the single changes after which it would not."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from webhook.errors import quote
from webhook.forecast.drain import report
from webhook.forecast.drain.movers import Mover
from webhook.forecast.drain.packing import Candidates
from webhook.forecast.drain.report import Remedy
from webhook.forecast.drain.room import Amounts
from webhook.forecast.drain.snapshot import Place
from webhook.placement import requirement
from webhook.placement.requirement import Elsewhere, Uncordoned
from webhook.placement.verdict import Group
from webhook.placement.vmis import Vmi
from webhook.policies.migration.explanation import change_of

_MOST: Final = 10
_MIGRATABLE: Final = "LiveMigratable"
# What KubeVirt writes as the reason of the condition LiveMigratable.
_BY_REASON: Final = {
    "DisksNotLiveMigratable": "give the VMs whose disks cannot be migrated shared volumes (ReadWriteMany)",
    "InterfaceNotLiveMigratable": "give the VMs whose interfaces cannot be migrated a binding that can",
    "HostDeviceNotLiveMigratable": "remove the host devices of the VMs that have any",
    "HotplugNotLiveMigratable": "unplug the hotplugged volumes that cannot be migrated",
    "CPUModeLiveMigratable": "give the VMs whose CPU model cannot be migrated one that can",
    "SecureExecutionNotLiveMigratable": "shut down the VMs with secure execution yourself",
    "SEVNotLiveMigratable": "shut down the VMs with SEV yourself",
}
_SHUT_DOWN: Final = "set evictionStrategy LiveMigrateIfPossible on VMs that cannot be migrated; they then shut down"


class Blocked(msgspec.Struct, frozen=True):
    """A VM that blocks a drain.

    Attributes:
        code: one of `report.CODES`.
        mover: what it requires; None: its eviction already leads to no migration.
        alone: the nodes for it before any other VM moved; None like ``mover``.
        offers: what the node that is drained could give; None: more room would not help.
        node: the node that is drained.
        position: that node's, in `bits`.
    """

    place: Place
    code: str
    vmi: Vmi
    mover: Mover | None = None
    alone: Candidates | None = None
    offers: Amounts | None = None
    node: str = ""
    position: int = 0


def rank(blocked: Sequence[Blocked], drained: frozenset[str]) -> tuple[Remedy, ...]:
    """The changes that free VMs, those first that free most.

    Args:
        blocked: the VMs.
        drained: nodes that must stay cordoned.
    """
    freed: dict[str, set[Place]] = {}
    for each in blocked:
        for change in _changes(each, drained):
            freed.setdefault(change, set()).add(each.place)
    for change, places in _another_node(blocked):
        freed.setdefault(change, set()).update(places)
    ranked = sorted(freed.items(), key=lambda item: (-len(item[1]), item[0]))
    return tuple(
        Remedy(change, tuple(f"{namespace}/{name}" for namespace, name in sorted(places)))
        for change, places in ranked[:_MOST]
    )


def _changes(blocked: Blocked, drained: frozenset[str]) -> Iterator[str]:
    """The single changes after which this VM would not block."""
    match blocked.code:
        case report.NO_ELIGIBLE_NODE:
            yield from _openings(blocked, drained)
        case report.NOT_MIGRATABLE:
            condition = blocked.vmi.condition(_MIGRATABLE)
            known = _BY_REASON.get((condition.reason if condition else None) or "")
            if known:
                yield known
            yield _SHUT_DOWN
        case report.EXTERNAL_STRATEGY:
            yield "have the controller move its VMs for which they have evictionStrategy External"
        case report.MIGRATION_STUCK:
            yield "delete the migrations that never end"
        case report.NO_MIGRATIONS:
            yield "raise the limits of migrations in KubeVirt's configuration"
        case report.DISRUPTION_BUDGET:
            yield "have PodDisruptionBudgets allow disruptions of VMs that shut down"
        case report.NAME_TOO_LONG:
            yield "shut down the VMs with names that are too long for a migration yourself"
        case report.UNKNOWN_STRATEGY:
            yield "set an evictionStrategy that KubeVirt knows"
        case report.PODS_APART:
            yield "relax the rules between pods (affinity, anti-affinity, topology spread) of the VMs that they block"


def _openings(blocked: Blocked, drained: frozenset[str]) -> Iterator[str]:
    """The changes of a requirement that open a node with room."""
    alone = blocked.alone
    if alone is None:
        return
    for opening in alone.verdict.openings():
        required = opening.failure.requirement
        usable = opening.nodes & alone.room & ~alone.forbidden
        if isinstance(required, Elsewhere) or not usable:
            continue
        if required.origin == requirement.CORDONED:
            # The nodes that are being drained are cordoned, too.
            reached = alone.verdict.names(Group((), usable))
            others = [name for name in reached if name not in drained | {blocked.node}]
            if others:
                yield f"uncordon {quote(others[0])}" if len(others) == 1 else "uncordon a node that is not drained"
        elif change := change_of(opening.failure):
            yield change


def _fits_beside(blocked: Blocked) -> bool:
    """Whether nothing but room keeps a VM from a node like the one that it is on."""
    mover, alone, here = blocked.mover, blocked.alone, 1 << blocked.position
    if mover is None or alone is None or mover.pod.rules or alone.forbidden & here:
        return False
    failing = (failure.requirement for failure in alone.verdict.failures if failure.nodes & here)
    return all(isinstance(required, Elsewhere | Uncordoned) for required in failing)


def _another_node(blocked: Sequence[Blocked]) -> Iterator[tuple[str, set[Place]]]:
    """A further, empty node like each of those that are drained, and the VMs that it would hold."""
    by_node: dict[str, list[Blocked]] = {}
    for each in blocked:
        if each.code == report.NO_ROOM and _fits_beside(each):
            by_node.setdefault(each.node, []).append(each)
    for node, vms in by_node.items():
        free = dict(vms[0].offers or {})
        held = set()
        for each in vms:
            requests = each.mover.requests if each.mover else {}
            if all(free.get(resource, 0) >= amount for resource, amount in requests.items()):
                held.add(each.place)
                for resource, amount in requests.items():
                    free[resource] -= amount
        if held:
            yield f"add an empty node like {node}", held
