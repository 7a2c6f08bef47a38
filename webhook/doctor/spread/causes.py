"""Why virtual machines pile up on some nodes: what kube-scheduler's scores make of this cluster's nodes."""

from __future__ import annotations

from typing import Final, NamedTuple

from webhook.doctor.spread import scores
from webhook.doctor.spread.estimate import bias, pile
from webhook.doctor.spread.hosts import GuestDemand
from webhook.doctor.spread.inventory import MAX_IMAGES, Inventory
from webhook.doctor.support.finding import Finding, Measurement, pluralize
from webhook.placement import resources

CHECK: Final = "spread"

# KubeVirt's own small VM, where none runs yet.
_USUAL: Final = GuestDemand.of(105, 450 * 2**20, 1)


class Version(NamedTuple):
    """Of the API server, for want of kube-scheduler's own."""

    number: tuple[int, int]

    def __str__(self) -> str:
        return f"{self.number[0]}.{self.number[1]}"


def zones(found: Inventory, wanted: set[str]) -> list[Finding]:
    """A pod's soft constraints count for nothing on nodes that lack one of their topology keys."""
    if not found.unzoned or wanted.isdisjoint({"zone", "both"}):
        return []
    some = f"{found.unzoned} of {pluralize(len(found.open), 'node')} that can take VMs"
    what = f'{some} have no label topology.kubernetes.io/zone, so that the constraints of "zone" and "both" ignore them'
    return [Finding(CHECK, "zones", "warning", what, "label all nodes with their zones, or set spread to hostname")]


def balance(found: Inventory, version: Version) -> Finding:
    """The bias of NodeResourcesBalancedAllocation on this cluster's nodes without VMs."""
    demand = _usual(found)
    biased = [host for host in found.open if bias(host, demand, version.number) > 0]
    what = (
        f"kube-scheduler {version} (by the API server's version) prefers a node with one VM to the same node "
        f"without on {len(biased)} of {pluralize(len(found.open), 'node')}"
    )
    largest = max(found.open, key=lambda host: (host.cpu, host.memory))
    piles = {
        "stock": pile(largest, demand, scores.STOCK, version.number),
        "withoutBalancedAllocation": pile(largest, demand, scores.STOCK._replace(balance=False), version.number),
    }
    cpus = resources.format_request(resources.CPU, largest.cpu)
    what += (
        f"; on a node of {cpus} CPUs, {piles['stock']} VMs of {_size(demand)} come before the first on the next, "
        f"{piles['withoutBalancedAllocation']} without this score"
    )
    figures = {
        "schedulerVersion": str(version),
        "biasedNodes": len(biased),
        "nodes": len(found.open),
        "vm": {"cpuMillis": demand.cpu, "memoryBytes": demand.memory},
        "vmsOnOneNodeFirst": piles,
    }
    return Measurement(CHECK, "NodeResourcesBalancedAllocation", "ok", what, figures=figures)


def _usual(found: Inventory) -> GuestDemand:
    """What a VM of this cluster requests: the one in the middle, by memory."""
    if not found.guests:
        return _USUAL
    return sorted((guest.demand for guest in found.guests), key=lambda one: one.memory)[len(found.guests) // 2]


def _size(demand: GuestDemand) -> str:
    cpu, memory = (
        resources.format_request(resources.CPU, demand.cpu),
        resources.format_request(resources.MEMORY, demand.memory),
    )
    return f"{cpu} CPU and {memory}"


def images(found: Inventory) -> Finding:
    """Which nodes list the launcher's image; a kubelet reports its largest images only."""
    what = f"{found.listing} of {pluralize(len(found.open), 'node')} that can take VMs list {found.image}"
    if found.full:
        what += f", and {found.full} of the others list {MAX_IMAGES} images or more, where a kubelet stops"
    if 0 < found.listing < len(found.open):
        what += f"; ImageLocality prefers those that do by {pluralize(found.points, 'point')} of {scores.MAX_SCORE}"
    figures = {
        "image": found.image,
        "nodes": len(found.open),
        "listing": found.listing,
        "withoutItAndFull": found.full,
        "points": found.points,
    }
    return Measurement(CHECK, "launcher image", "ok", what, figures=figures)
