"""Where virtual machines are: how many, and what is requested, on each node and by namespace."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

from webhook.doctor.spread.causes import CHECK
from webhook.doctor.spread.estimate import SpreadEstimate
from webhook.doctor.spread.hosts import Host
from webhook.doctor.spread.inventory import Inventory
from webhook.doctor.support.finding import Finding, Measurement
from webhook.doctor.support.histogram import histogram
from webhook.text import pluralize

_NAMESPACES: Final = 5
_NAMESPACES_IN_FIGURES: Final = 50


def count_vms(inventory: Inventory) -> list[Finding]:
    """VMs and requests per node, then the largest namespaces."""
    hosts = inventory.occupied_hosts()
    spread = SpreadEstimate.of(hosts)
    total = sum(spread.counts)
    what = (
        f"{pluralize(total, 'VM')} on {pluralize(len(hosts), 'node')} ({histogram(spread.counts)}), "
        f"{_deviations(spread)}; "
        f"requested CPU {histogram(spread.cpu, '%')}; requested memory {histogram(spread.memory, '%')}"
    )
    figures = {"vms": total, "nodes": len(hosts), **_figures(spread)}
    findings: list[Finding] = [Measurement(CHECK, "vms-by-node", "VMs", "ok", what, figures=figures)]
    sizes: Counter[str] = Counter()
    for host in hosts:
        sizes.update(host.guests)
    ordered = sorted(sizes, key=lambda name: (-sizes[name], name))
    if len(ordered) > 1:
        findings.append(_namespaces(inventory, hosts, sizes, ordered))
    return findings


def _namespaces(inventory: Inventory, hosts: Sequence[Host], sizes: Counter[str], ordered: Sequence[str]) -> Finding:
    texts, figures = [], []
    requests = _requests(inventory)
    for index, name in enumerate(ordered[:_NAMESPACES_IN_FIGURES]):
        counts = [host.guests[name] for host in hosts]
        deviation = statistics.pstdev(counts)
        if index < _NAMESPACES:
            size = pluralize(sizes[name], "VM")
            texts.append(f"{name}: {size} ({histogram(counts)}), standard deviation {deviation:.1f}")
        cpu, memory = requests[name]
        figures.append(
            {
                "namespace": name,
                "vms": sizes[name],
                "vmsPerNode": _distribution(counts),
                "vmsStandardDeviation": round(deviation, 3),
                "requestedCpuMillisPerNode": _summary([cpu[host.name] for host in hosts]),
                "requestedMemoryBytesPerNode": _summary([memory[host.name] for host in hosts]),
            }
        )
    if len(ordered) > _NAMESPACES:
        texts.append(f"{len(ordered) - _NAMESPACES} more namespaces")
    whole = {"namespaces": len(ordered), "largest": figures}
    return Measurement(CHECK, "vms-by-namespace", "namespaces", "ok", "; ".join(texts), figures=whole)


def _requests(inventory: Inventory) -> dict[str, tuple[Counter[str], Counter[str]]]:
    """CPU and memory that the VMs of each namespace request, by node."""
    requests: dict[str, tuple[Counter[str], Counter[str]]] = {}
    for host in inventory.hosts:
        for name in host.guests:
            requests.setdefault(name, (Counter(), Counter()))
    for guest in inventory.guests:
        cpu, memory = requests.setdefault(guest.namespace, (Counter(), Counter()))
        cpu[guest.node] += guest.demand.cpu
        memory[guest.node] += guest.demand.memory
    return requests


def _summary(values: Sequence[float]) -> dict[str, float]:
    return {
        "least": min(values),
        "most": max(values),
        "mean": round(statistics.fmean(values), 3),
        "standardDeviation": round(statistics.pstdev(values), 3),
    }


def _distribution(counts: Sequence[int]) -> list[dict[str, int]]:
    """How many nodes have how many VMs, the fewest first."""
    return [{"vms": vms, "nodes": nodes} for vms, nodes in sorted(Counter(counts).items())]


def _figures(spread: SpreadEstimate) -> dict[str, Any]:
    return {
        "vmsPerNode": _distribution(spread.counts),
        "vmsStandardDeviation": round(spread.deviation, 3),
        "requestedCpuPercentPerNode": _summary(spread.cpu),
        "requestedMemoryPercentPerNode": _summary(spread.memory),
        "nodesWithoutVms": spread.empty,
    }


def _deviations(spread: SpreadEstimate) -> str:
    empty = f", {pluralize(spread.empty, 'node')} without VMs" if spread.empty else ""
    return (
        f"standard deviation {spread.deviation:.1f} VMs, "
        f"{spread.cpu_deviation:.1f} percentage points of requested CPU, "
        f"{spread.memory_deviation:.1f} percentage points of requested memory{empty}"
    )
