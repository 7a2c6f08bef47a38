"""Where VMs run, why they concentrate on some nodes, and the least change that would spread them."""

from __future__ import annotations

import itertools
import math
import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from webhook import names
from webhook.doctor import estimate
from webhook.doctor.estimate import Conditions, Host, Inventory, SpreadEstimate, deviation
from webhook.doctor.installation import Installation
from webhook.errors import FileGap, InputError, Unavailable
from webhook.findings import Finding, check, measured, ok, readable, unreadable, warning
from webhook.forecast.profiles import read_profiles
from webhook.k8s.resources import NAMESPACES, NODES_WITH_IMAGES, PODS
from webhook.kubevirt.config import ClusterConfig, find_in_use
from webhook.kubevirt.heartbeat import SCHEDULABLE
from webhook.kubevirt.hyperconverged import HyperConverged
from webhook.kubevirt.resources import KUBEVIRTS
from webhook.kubevirt.types.views import KubeVirt
from webhook.placement.nodes import CPU, KVM_DEVICE, MEMORY, POD_SLOTS, ZONE, format_amount
from webhook.placement.pod_rules import MAX_SCORE
from webhook.placement.profiles import BALANCE, SHIPPED, SHIPPED_WITHOUT_DEVICES, STOCK
from webhook.placement.scores import KubernetesVersion, Load
from webhook.text import abbreviate, pluralize

# KubeVirt's example VM, for clusters without VMs.
_USUAL: Final = Load.of({POD_SLOTS: 1, CPU: 105, MEMORY: 450 * 2**20, KVM_DEVICE: 1})
_NAMESPACES: Final = 5
_NAMESPACES_IN_FIGURES: Final = 50
_MOST_BARS: Final = 8
RESTART: Final = "restart"
# With so many a VM is about a point of the score.
_DEVICES: Final = "virtualMachineInstancesPerNode"
_FEW_DEVICES: Final = 110
# So much worse than the best cure is as good: percentage points of memory, or VMs, of many a share.
_MEMORY_TOLERANCE: Final = 2.0
_VMS_TOLERANCE: Final = 1.0
_VMS_SHARE: Final = 0.07
# Nodes and VMs that differ by less are alike.
_ALIKE: Final = 1.25
_ANNOTATION: Final = "set scheduling.spread to hostname, where namespaces are labeled enforce"
_PROFILE: Final = "run manifests/scheduler/spread.yaml as a scheduler and declare it under schedulers"
_LINES: Final = "without its lines for devices.kubevirt.io/kvm"


@check("spread")
async def check_spread(installation: Installation) -> list[Finding]:
    """Look at nodes and the pods on them."""
    nodes = readable("VMs", await installation.reader.all(NODES_WITH_IMAGES))
    pods = readable("VMs", await installation.reader.all(PODS))
    namespaces = readable("VMs", await installation.reader.all(NAMESPACES))
    # The values of the spread setting for launcher pods.
    spreads = {namespace.meta.name or "": installation.spread(namespace) for namespace in namespaces}
    kubevirts = await installation.reader.all(KUBEVIRTS)
    kubevirt = None if isinstance(kubevirts, Unavailable) else find_in_use(kubevirts)
    required = _required_labels(kubevirt)
    labels_of = {namespace.meta.name or "": namespace.meta.labels or {} for namespace in namespaces}
    profiles = await read_profiles(installation.reader)
    inventory = estimate.take(nodes, pods, lambda name: spreads.get(name, names.OFF), required, profiles, labels_of)
    if not inventory.open:
        labels = ", ".join(f"{key}={value}" for key, value in {SCHEDULABLE: "true", **required}.items())
        what = f"0/{pluralize(len(nodes), 'node')} accept VMs: labeled {labels}, not cordoned"
        what += ", not being emptied, and without a NoSchedule or NoExecute taint"
        return [ok("no-nodes", "nodes", what)]
    findings: list[Finding] = []
    # A pod's soft constraints do not apply to nodes that lack a topology key.
    if inventory.unzoned and not {"zone", "both"}.isdisjoint(spreads.values()):
        what = f"{inventory.unzoned}/{pluralize(len(inventory.open), 'node')} that accept VMs lack the label"
        what += f' {ZONE}, so spread "both" sets a constraint on nodes alone, and "zone" sets none'
        todo = "label all nodes with their zones, or set spread to hostname"
        findings.append(warning("zones-missing", "zones", what, todo))
    version = await installation.kubernetes_version()
    if isinstance(version, FileGap):
        findings.append(unreadable("estimate", version))
    elif isinstance(version, Unavailable):
        return [*findings, unreadable("VMs", version)]
    else:
        findings.append(_check_balance(inventory, version))
    if not inventory.guests:
        return [*findings, ok("no-vms", "VMs", "0 VMs run on nodes that accept VMs")]
    findings += [_check_images(inventory), *_count_vms(inventory)]
    if isinstance(version, Unavailable):
        return findings
    owner = HyperConverged.owning(kubevirt) if kubevirt else None
    return [*findings, *_describe_cures(inventory, estimate_cures(inventory, version, owner))]


def _required_labels(kubevirt: KubeVirt | None) -> Mapping[str, str]:
    """The labels that KubeVirt's configuration requires of the nodes of all VMs."""
    try:
        return ClusterConfig.of_kubevirt(kubevirt).node_selectors if kubevirt else estimate.NO_LABELS
    except InputError:
        return estimate.NO_LABELS  # which the check of KubeVirt reports


def _describe_cures(inventory: Inventory, outlook: Outlook) -> list[Finding]:
    """The estimate of each change, and the least change that is sufficient."""
    part = ""
    if outlook.nodes < len(inventory.open):
        part = f", estimated on a sample of {pluralize(outlook.nodes, 'node')} and {pluralize(outlook.vms, 'VM')}"
    how = (
        "standard deviation of VMs per node and of requested memory after a restart of all VMs, by kube-scheduler's "
        f"scores of load, images and constraints{part}"
    )
    # By these kube-scheduler sends pods elsewhere than the estimate does.
    profiles = [guest.pod.profile for guest in inventory.guests]
    unknown = sorted({each for profile in profiles for each in profile.unknown})
    if unknown:
        how += f", without these parts of schedulers' profiles, which are not evaluated ({abbreviate(unknown)})"
    if any(profile.assumed for profile in profiles):
        how += ", with an assumed profile where a scheduler's was not found"
    texts = [f"no change: {_short(outlook.now)}", *(f"{cure.title}: {_short(cure.spread)}" for cure in outlook.cures)]
    figures = {
        "estimatedNodes": outlook.nodes,
        "estimatedVms": outlook.vms,
        "notEvaluated": unknown,
        "asNow": _estimate_figures(outlook.now),
        "cures": [{"cure": cure.key, **_estimate_figures(cure.spread)} for cure in outlook.cures],
        "measure": outlook.measure,
        "cheapest": outlook.cheapest.key if outlook.cheapest else None,
    }
    finding = measured("estimate", "estimate", f"{how}: {'; '.join(texts)}", figures)
    cheapest = outlook.cheapest
    if cheapest is None:
        what = "none needed: VMs are spread as evenly as after any of the estimated changes"
        return [finding, ok("even", "cure", what)]
    what, todo = f"the least change that is sufficient is: {cheapest.title}", cheapest.todo
    if cheapest.key == RESTART:
        what = "VMs that start now are spread evenly, but running VMs were placed earlier"
        todo = "live-migrate VMs from the fullest nodes, or wait until they restart"
    return [finding, warning(f"uneven:{cheapest.key}", "cure", what, todo)]


def _short(spread: SpreadEstimate) -> str:
    unplaced = f", {pluralize(spread.unplaced, 'VM')} without a node" if spread.unplaced else ""
    empty = f", {pluralize(spread.empty, 'node')} without VMs" if spread.empty else ""
    points = f"{deviation(spread.memory):.1f} percentage points"
    return f"{deviation(spread.counts):.1f} VMs, {points}{empty}{unplaced}"


def _estimate_figures(spread: SpreadEstimate) -> dict[str, Any]:
    return {
        "vmsStandardDeviation": round(deviation(spread.counts), 3),
        "requestedCpuStandardDeviation": round(deviation(spread.cpu), 3),
        "requestedMemoryStandardDeviation": round(deviation(spread.memory), 3),
        "nodesWithoutVms": spread.empty,
        "vmsWithoutRoom": spread.unplaced,
    }


def _check_balance(inventory: Inventory, version: KubernetesVersion) -> Finding:
    """The bias of NodeResourcesBalancedAllocation on this cluster's nodes without VMs."""
    # Of the cluster's median VM by memory.
    loads = sorted((guest.pod.load for guest in inventory.guests), key=lambda load: load.requests.get(MEMORY, 0))
    load = loads[len(loads) // 2] if loads else _USUAL
    resources = [host.resources for host in inventory.open_hosts()]
    biased = sum(estimate.bias(node, load, version) > 0 for node in resources)
    largest = max(resources, key=lambda node: (node.allocatable.get(CPU, 0), node.allocatable.get(MEMORY, 0)))
    profiles = {"stock": STOCK, "withoutBalancedAllocation": STOCK.without(BALANCE)}
    piles = {key: estimate.count_piled(largest, load, profile, version) for key, profile in profiles.items()}
    shown = ".".join(map(str, version))
    cpu, memory = load.requests.get(CPU, 0), load.requests.get(MEMORY, 0)
    size = f"{format_amount(CPU, cpu)} CPU and {format_amount(MEMORY, memory)} memory"
    cpus = format_amount(CPU, largest.allocatable.get(CPU, 0))
    what = (
        f"kube-scheduler {shown} (the API server's version) prefers a node with one VM to the same node without VMs "
        f"on {biased}/{pluralize(len(inventory.open), 'node')}"
        f"; on a node with {cpus} CPUs it places {piles['stock']} VMs of {size} before it "
        f"uses the next node ({piles['withoutBalancedAllocation']} without this score)"
    )
    figures = {
        "schedulerVersion": shown,
        "biasedNodes": biased,
        "nodes": len(inventory.open),
        "vm": {"cpuMillis": cpu, "memoryBytes": memory},
        "vmsOnOneNodeFirst": piles,
    }
    return measured("balanced-allocation", "NodeResourcesBalancedAllocation", what, figures)


def _check_images(inventory: Inventory) -> Finding:
    """Which nodes list the launcher's image; a kubelet reports its largest images only."""
    what = f"{inventory.listing}/{pluralize(len(inventory.open), 'node')} that accept VMs list {inventory.image}"
    if inventory.full:
        number = f"{estimate.MAX_IMAGES} or more images, the most that a kubelet reports"
        what += f"; {inventory.full} of the others list {number}"
    if 0 < inventory.listing < len(inventory.open):
        points = pluralize(inventory.points, "point")
        what += f"; ImageLocality prefers nodes that list it by {points} of {MAX_SCORE}"
    figures = {
        "image": inventory.image,
        "nodes": len(inventory.open),
        "listing": inventory.listing,
        "withoutItAndFull": inventory.full,
        "points": inventory.points,
    }
    return measured("launcher-image", "launcher image", what, figures)


def _count_vms(inventory: Inventory) -> list[Finding]:
    """VMs and requests per node, then the largest namespaces."""
    hosts = inventory.occupied_hosts()
    spread = SpreadEstimate.of(hosts)
    total = sum(spread.counts)
    empty = f", {pluralize(spread.empty, 'node')} without VMs" if spread.empty else ""
    what = (
        f"{pluralize(total, 'VM')} on {pluralize(len(hosts), 'node')} ({histogram(spread.counts)}), "
        f"standard deviation {deviation(spread.counts):.1f} VMs, "
        f"{deviation(spread.cpu):.1f} percentage points of requested CPU, "
        f"{deviation(spread.memory):.1f} percentage points of requested memory{empty}; "
        f"requested CPU {histogram(spread.cpu, '%')}; requested memory {histogram(spread.memory, '%')}"
    )
    figures = {
        "vms": total,
        "nodes": len(hosts),
        "vmsPerNode": _distribution(spread.counts),
        "vmsStandardDeviation": round(deviation(spread.counts), 3),
        "requestedCpuPercentPerNode": _summary(spread.cpu),
        "requestedMemoryPercentPerNode": _summary(spread.memory),
        "nodesWithoutVms": spread.empty,
    }
    findings: list[Finding] = [measured("vms-by-node", "VMs", what, figures)]
    sizes = Counter(itertools.chain.from_iterable(host.vms.elements() for host in hosts))
    return [*findings, _count_namespaces(inventory, hosts, sizes)] if len(sizes) > 1 else findings


def _count_namespaces(inventory: Inventory, hosts: Sequence[Host], sizes: Counter[str]) -> Finding:
    texts, figures = [], []
    ordered = sorted(sizes, key=lambda name: (-sizes[name], name))
    # CPU and memory that the VMs of each namespace request, by node.
    cpu, memory = Counter[tuple[str, str]](), Counter[tuple[str, str]]()
    for guest in inventory.guests:
        requests = guest.pod.requests
        cpu[guest.namespace, guest.node] += requests.get(CPU, 0)
        memory[guest.namespace, guest.node] += requests.get(MEMORY, 0)
    for index, name in enumerate(ordered[:_NAMESPACES_IN_FIGURES]):
        counts = [host.vms[name] for host in hosts]
        if index < _NAMESPACES:
            size = pluralize(sizes[name], "VM")
            texts.append(f"{name}: {size} ({histogram(counts)}), standard deviation {deviation(counts):.1f}")
        figures.append(
            {
                "namespace": name,
                "vms": sizes[name],
                "vmsPerNode": _distribution(counts),
                "vmsStandardDeviation": round(deviation(counts), 3),
                "requestedCpuMillisPerNode": _summary([cpu[name, host.name] for host in hosts]),
                "requestedMemoryBytesPerNode": _summary([memory[name, host.name] for host in hosts]),
            }
        )
    if len(ordered) > _NAMESPACES:
        texts.append(f"{len(ordered) - _NAMESPACES} more namespaces")
    whole = {"namespaces": len(ordered), "largest": figures}
    return measured("vms-by-namespace", "namespaces", "; ".join(texts), whole)


def _summary(values: Sequence[float]) -> dict[str, float]:
    ends = {"least": min(values), "most": max(values), "mean": round(statistics.fmean(values), 3)}
    return {**ends, "standardDeviation": round(deviation(values), 3)}


def _distribution(counts: Sequence[int]) -> list[dict[str, int]]:
    """How many nodes have how many VMs, the fewest first."""
    return [{"vms": vms, "nodes": nodes} for vms, nodes in sorted(Counter(counts).items())]


def histogram(values: Sequence[float], unit: str = "") -> str:
    """How many nodes have which values, at least one, the least first, as ``0 on 10 nodes, 5 to 9 on 10``."""
    whole = [math.floor(value) for value in values]
    widths = (step * 10**exponent for exponent in itertools.count() for step in (1, 2, 5))
    width = next(width for width in widths if len({value // width for value in whole}) <= _MOST_BARS)
    texts: list[str] = []
    for bar, nodes in sorted(Counter(value // width for value in whole).items()):
        least = bar * width
        shown = f"{least}{unit}" if width == 1 else f"{least} to {least + width - 1}{unit}"
        texts.append(f"{shown} on {nodes}" if texts else f"{shown} on {pluralize(nodes, 'node')}")
    return ", ".join(texts)


class Cure(NamedTuple):
    """A change, and its estimate: a short name for programs, a noun phrase for people, and what to do."""

    key: str
    title: str
    todo: str
    spread: SpreadEstimate


class Outlook(NamedTuple):
    """The estimates of all changes, the least change first, over so many nodes and VMs.

    Attributes:
        now: the estimate without a change.
        measure: what should be even: ``vms``, or ``memory`` where nodes or VMs differ.
        cheapest: the first that is sufficient; None if no change is needed.
    """

    now: SpreadEstimate
    cures: tuple[Cure, ...]
    measure: str
    cheapest: Cure | None
    nodes: int
    vms: int


def estimate_cures(inventory: Inventory, version: KubernetesVersion, owner: HyperConverged | None = None) -> Outlook:
    """Estimate every cure of an inventory with at least one VM on an open node; the owner is KubeVirt's."""
    part = estimate.sample(inventory)
    stock = Conditions(version)
    now = estimate.estimate(part, stock)
    profile, both = stock._replace(profile=SHIPPED_WITHOUT_DEVICES), f"{_ANNOTATION}; {_PROFILE}"
    changes = [
        ("constraint", "constraint", _ANNOTATION, stock._replace(is_spread=True)),
        ("profile", "profile", f"{_PROFILE}, {_LINES}", profile),
        ("constraintAndProfile", "constraint and profile", f"{both}, {_LINES}", profile._replace(is_spread=True)),
    ]
    if 0 < inventory.listing < len(inventory.open):
        todo = "set nodeStatusMaxImages: -1 in the configuration of every kubelet"
        changes.insert(0, ("nodeStatusMaxImages", "nodeStatusMaxImages", todo, stock._replace(images=False)))
    cures = [Cure(key, title, todo, estimate.estimate(part, conditions)) for key, title, todo, conditions in changes]
    if len({guest.namespace for guest in part.guests}) != 1:
        limit = f"{_DEVICES}: {_FEW_DEVICES}"
        setting = owner.set(_DEVICES, _FEW_DEVICES) if owner else f"set {limit} in the KubeVirt CR"
        by_devices = stock._replace(profile=SHIPPED, is_spread=True, most={KVM_DEVICE: _FEW_DEVICES})
        key, title = "constraintAndProfileByDevices", f"constraint and profile with {limit}"
        cures.append(Cure(key, title, f"{both}, and {setting}", estimate.estimate(part, by_devices)))
    # Where nodes and VMs are so alike, the same number of VMs on each node is the even spread.
    resources = [host.resources for host in inventory.open_hosts()]
    free = [[node.free.get(resource, 0) for node in resources] for resource in (MEMORY, CPU)]
    measured = (*free, [guest.pod.requests.get(MEMORY, 0) for guest in part.guests])
    measure = "vms" if all(max(values) <= _ALIKE * min(values) for values in measured) else "memory"
    present = SpreadEstimate.of([host for host in inventory.occupied_hosts() if host.name not in inventory.closed])
    nodes, vms = len(part.open), len(part.guests)
    return Outlook(now, tuple(cures), measure, _cheapest(present, now, cures, measure), nodes, vms)


def _cheapest(present: SpreadEstimate, now: SpreadEstimate, cures: Sequence[Cure], measure: str) -> Cure | None:
    """The first cure that is about as good as the best."""

    def measured(spread: SpreadEstimate) -> float:
        return deviation(spread.counts if measure == "vms" else spread.memory)

    placed = [cure for cure in cures if cure.spread.unplaced <= now.unplaced]
    best = min((measured(cure.spread) for cure in placed), default=0.0)
    tolerance = _MEMORY_TOLERANCE
    if measure == "vms":
        tolerance = max(_VMS_TOLERANCE, _VMS_SHARE * statistics.fmean(present.counts))
    enough = best + tolerance
    if measured(present) <= enough:
        return None
    if measured(now) <= enough:
        return Cure(RESTART, "", "", now)
    return next((cure for cure in placed if measured(cure.spread) <= enough), None)
