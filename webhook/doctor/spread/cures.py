"""Changes that would spread the VMs of a cluster, the least one first, with an estimate of each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from webhook.doctor.spread import scores
from webhook.doctor.spread.estimate import Conditions, SpreadEstimate, estimate, sample
from webhook.doctor.spread.hosts import Host, VmGuest
from webhook.doctor.spread.inventory import Inventory

RESTART: Final = "restart"
# virtualMachineInstancesPerNode with which a VM is about a point of the score.
_FEW_DEVICES: Final = 110
# So much worse than the best cure is as good: percentage points of memory, or VMs, of many a share.
_MEMORY_TOLERANCE: Final = 2.0
_VMS_TOLERANCE: Final = 1.0
_VMS_SHARE: Final = 0.07
# Nodes and VMs that differ by less are alike.
_ALIKE: Final = 1.25


class Cure(NamedTuple):
    """A change, and its estimate.

    Attributes:
        key: a short name for programs.
        title: a noun phrase for people.
        todo: a clause in the imperative.
    """

    key: str
    title: str
    todo: str
    spread: SpreadEstimate


class Outlook(NamedTuple):
    """The estimates of all changes.

    Attributes:
        now: the estimate without a change.
        cures: the least change first.
        measure: what should be even: ``vms``, or ``memory`` where nodes or VMs differ.
        cheapest: the first that is sufficient; None if no change is needed.
        nodes: the number of nodes in the estimate.
        vms: the number of VMs in the estimate.
    """

    now: SpreadEstimate
    cures: tuple[Cure, ...]
    measure: str
    cheapest: Cure | None
    nodes: int
    vms: int


_ANNOTATION: Final = "set scheduling.spread to hostname, where namespaces are labeled enforce"
_PROFILE: Final = "run manifests/scheduler/spread.yaml as a scheduler and declare it under schedulers"
_LINES: Final = "without its lines for devices.kubevirt.io/kvm"


def outlook(inventory: Inventory, version: tuple[int, int]) -> Outlook:
    """Estimate every cure.

    Args:
        inventory: the nodes and VMs, with at least one VM on an open node.
        version: major and minor version of kube-scheduler.
    """
    hosts, guests = sample(inventory.open, inventory.guests)
    stock = Conditions(version, inventory.points)
    now = estimate(hosts, guests, stock)
    cures = [
        Cure(key, title, todo, estimate(change(hosts), guests, conditions))
        for key, title, todo, change, conditions in _cures(stock, some_list=0 < inventory.listing < len(inventory.open))
    ]
    if len({guest.namespace for guest in guests}) == 1:
        cures.pop()  # it is for many namespaces
    measure = "vms" if _are_alike(inventory.open, guests) else "memory"
    present = SpreadEstimate.of([host for host in inventory.occupied_hosts() if host.is_open])
    return Outlook(now, tuple(cures), measure, _cheapest(present, now, cures, measure), len(hosts), len(guests))


_Change = Callable[[Sequence[Host]], Sequence[Host]]


def _cures(stock: Conditions, *, some_list: bool) -> list[tuple[str, str, str, _Change, Conditions]]:
    """All of them: key, title, what to do, what changes on nodes, and the conditions."""
    profile = stock._replace(profile=scores.SPREAD)
    images = (
        "nodeStatusMaxImages",
        "nodeStatusMaxImages",
        "set nodeStatusMaxImages: -1 in the configuration of every kubelet",
        _identity,
        stock._replace(points=0),
    )
    return [
        *([images] if some_list else []),
        ("constraint", "constraint", _ANNOTATION, _identity, stock._replace(is_spread=True)),
        ("profile", "profile", f"{_PROFILE}, {_LINES}", _identity, profile),
        (
            "constraintAndProfile",
            "constraint and profile",
            f"{_ANNOTATION}; {_PROFILE}, {_LINES}",
            _identity,
            profile._replace(is_spread=True),
        ),
        (
            "constraintAndProfileByDevices",
            f"constraint and profile with virtualMachineInstancesPerNode: {_FEW_DEVICES}",
            f"{_ANNOTATION}; {_PROFILE}, and set virtualMachineInstancesPerNode: {_FEW_DEVICES} in the KubeVirt CR",
            _reduce_devices,
            stock._replace(profile=scores.SPREAD_BY_DEVICES, is_spread=True),
        ),
    ]


def _identity(hosts: Sequence[Host]) -> Sequence[Host]:
    return hosts


def _reduce_devices(hosts: Sequence[Host]) -> Sequence[Host]:
    changed = [host.copy() for host in hosts]
    for host in changed:
        host.devices = min(host.devices, _FEW_DEVICES)
    return changed


def _cheapest(present: SpreadEstimate, now: SpreadEstimate, cures: Sequence[Cure], measure: str) -> Cure | None:
    """The first cure that is about as good as the best."""
    placed = [cure for cure in cures if cure.spread.unplaced <= now.unplaced]
    best = min((_measure(cure.spread, measure) for cure in placed), default=0.0)
    enough = best + (max(_VMS_TOLERANCE, _VMS_SHARE * present.mean) if measure == "vms" else _MEMORY_TOLERANCE)
    if _measure(present, measure) <= enough:
        return None
    if _measure(now, measure) <= enough:
        return Cure(RESTART, "", "", now)
    return next((cure for cure in placed if _measure(cure.spread, measure) <= enough), None)


def _measure(spread: SpreadEstimate, measure: str) -> float:
    return spread.deviation if measure == "vms" else spread.memory_deviation


def _are_alike(hosts: Sequence[Host], guests: Sequence[VmGuest]) -> bool:
    """Whether nodes and VMs are so alike that the same number of VMs on each node is the even spread."""
    return all(
        max(values) <= _ALIKE * min(values)
        for values in (
            [host.memory - host.used_memory for host in hosts],
            [host.cpu - host.used_cpu for host in hosts],
            [guest.demand.memory for guest in guests],
        )
    )
