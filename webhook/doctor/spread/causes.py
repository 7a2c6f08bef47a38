"""Why VMs concentrate on some nodes: kube-scheduler's scores of this cluster's nodes."""

from __future__ import annotations

from typing import Final, NamedTuple

from webhook.doctor.spread import scores
from webhook.doctor.spread.estimate import bias, count_piled
from webhook.doctor.spread.hosts import GuestDemand
from webhook.doctor.spread.inventory import MAX_IMAGES, Inventory
from webhook.doctor.support.finding import Finding, Measurement
from webhook.placement.nodes import CPU, MEMORY, format_request
from webhook.text import pluralize

CHECK: Final = "spread"

# KubeVirt's example VM, for clusters without VMs.
_USUAL: Final = GuestDemand.of(105, 450 * 2**20, 1)


class ApiServerVersion(NamedTuple):
    """The API server's, because kube-scheduler does not report its own."""

    number: tuple[int, int]

    def __str__(self) -> str:
        return f"{self.number[0]}.{self.number[1]}"


def zones(inventory: Inventory, wanted: set[str]) -> list[Finding]:
    """Report nodes without a zone: a pod's soft constraints do not apply to nodes that lack a topology key."""
    if not inventory.unzoned or wanted.isdisjoint({"zone", "both"}):
        return []
    what = (
        f"{inventory.unzoned}/{pluralize(len(inventory.open), 'node')} that accept VMs lack the label "
        'topology.kubernetes.io/zone, so the spread constraints "zone" and "both" ignore them'
    )
    todo = "label all nodes with their zones, or set spread to hostname"
    return [Finding(CHECK, "zones-missing", "zones", "warning", what, todo)]


def balance(inventory: Inventory, version: ApiServerVersion) -> Finding:
    """The bias of NodeResourcesBalancedAllocation on this cluster's nodes without VMs."""
    demand = _median_demand(inventory)
    biased = [host for host in inventory.open if bias(host, demand, version.number) > 0]
    what = (
        f"kube-scheduler {version} (the API server's version) prefers a node with one VM to the same node without VMs "
        f"on {len(biased)}/{pluralize(len(inventory.open), 'node')}"
    )
    largest = max(inventory.open, key=lambda host: (host.cpu, host.memory))
    piles = {
        "stock": count_piled(largest, demand, scores.STOCK, version.number),
        "withoutBalancedAllocation": count_piled(largest, demand, scores.STOCK._replace(balance=False), version.number),
    }
    cpus = format_request(CPU, largest.cpu)
    what += (
        f"; on a node with {cpus} CPUs it places {piles['stock']} VMs of {_size(demand)} before it uses the next node "
        f"({piles['withoutBalancedAllocation']} without this score)"
    )
    figures = {
        "schedulerVersion": str(version),
        "biasedNodes": len(biased),
        "nodes": len(inventory.open),
        "vm": {"cpuMillis": demand.cpu, "memoryBytes": demand.memory},
        "vmsOnOneNodeFirst": piles,
    }
    return Measurement(CHECK, "balanced-allocation", "NodeResourcesBalancedAllocation", "ok", what, figures=figures)


def _median_demand(inventory: Inventory) -> GuestDemand:
    """The requests of this cluster's median VM by memory."""
    if not inventory.guests:
        return _USUAL
    demands = sorted((guest.demand for guest in inventory.guests), key=lambda demand: demand.memory)
    return demands[len(demands) // 2]


def _size(demand: GuestDemand) -> str:
    cpu, memory = (
        format_request(CPU, demand.cpu),
        format_request(MEMORY, demand.memory),
    )
    return f"{cpu} CPU and {memory} memory"


def images(inventory: Inventory) -> Finding:
    """Which nodes list the launcher's image; a kubelet reports its largest images only."""
    what = f"{inventory.listing}/{pluralize(len(inventory.open), 'node')} that accept VMs list {inventory.image}"
    if inventory.full:
        what += f"; {inventory.full} of the others list {MAX_IMAGES} or more images, the most that a kubelet reports"
    if 0 < inventory.listing < len(inventory.open):
        points = pluralize(inventory.points, "point")
        what += f"; ImageLocality prefers nodes that list it by {points} of {scores.MAX_SCORE}"
    figures = {
        "image": inventory.image,
        "nodes": len(inventory.open),
        "listing": inventory.listing,
        "withoutItAndFull": inventory.full,
        "points": inventory.points,
    }
    return Measurement(CHECK, "launcher-image", "launcher image", "ok", what, figures=figures)
