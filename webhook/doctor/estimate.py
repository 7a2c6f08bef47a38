"""Where the VMs of a cluster are and would be: nodes and launcher pods, kube-scheduler's scores, and an estimate.

The scores are those by which nodes differ for launcher pods, in kube-scheduler's own whole numbers. Sources:
k8s.io/kubernetes, pkg/scheduler/framework/plugins: noderesources/least_allocated.go,
noderesources/balanced_allocation.go, imagelocality/image_locality.go, podtopologyspread/scoring.go.
"""

from __future__ import annotations

import math
import random
import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import add
from typing import Final, NamedTuple, TypeAlias

from webhook import names
from webhook.admission.decision import Reason
from webhook.k8s.quantity import Nanos, nanos
from webhook.k8s.types.core import Node, NodeSpec, Pod
from webhook.k8s.types.meta import unix_time
from webhook.kubevirt.heartbeat import SCHEDULABLE
from webhook.kubevirt.launcher import vmi_owner
from webhook.placement.demand import is_sidecar, sum_requests
from webhook.placement.nodes import (
    CPU,
    HOSTNAME,
    KVM_DEVICE,
    MEMORY,
    ZONE,
    Departure,
    parse_allocatable,
    to_scheduler_units,
)

MAX_SCORE: Final = 100
# Since this version NodeResourcesBalancedAllocation scores the change that a pod makes (kubernetes/kubernetes#135573).
CHANGE_SCORED_SINCE: Final = (1, 36)
# Major and minor version of kube-scheduler.
Version: TypeAlias = tuple[int, int]
_MIB: Final = 1024 * 1024
_MIN_IMAGE_BYTES: Final = 23 * _MIB
_MAX_IMAGE_BYTES: Final = 1000 * _MIB
_SPREAD_WEIGHT: Final = 2
# What a kubelet reports unless its nodeStatusMaxImages says otherwise.
MAX_IMAGES: Final = 50
_DEFAULT_PODS: Final = 110
# What NodeResourcesFit counts for a container that requests nothing (pkg/scheduler/util, GetNonzeroRequests).
_ASSUMED: Final = {CPU: 100 * 10**6, MEMORY: 200 * 2**20 * 10**9}
# Every VM looks at every node; a larger cluster is estimated by a part of it.
MOST_LOOKS: Final = 60_000
_MOST_AT_ONCE: Final = 1000


class GuestDemand(NamedTuple):
    """What pods request, and what NodeResourcesFit counts for them: an assumed amount where a container requests none.

    In thousandths of a CPU, bytes of memory, and KVM devices.
    """

    cpu: int = 0
    memory: int = 0
    devices: int = 0
    scored_cpu: int = 0
    scored_memory: int = 0

    @classmethod
    def of(cls, cpu: int, memory: int, devices: int = 0) -> GuestDemand:
        """That of a pod whose containers all request CPU and memory."""
        return cls(cpu, memory, devices, cpu, memory)


NO_LABELS: Final[Mapping[str, str]] = {}


@dataclass(frozen=True, slots=True)
class VmGuest:
    """A launcher pod, which a node with the labels of its selector is to be found for.

    One that is spread has a topology spread constraint on host names; the default scheduler places one that is stock.
    """

    namespace: str
    name: str
    demand: GuestDemand
    node: str = ""
    selector: Mapping[str, str] = field(default_factory=dict)
    is_spread: bool = False
    is_stock: bool = True


@dataclass(slots=True)
class Host:
    """A node, and what is on it.

    Attributes:
        cpu: allocatable thousandths of a CPU; so memory in bytes, KVM devices and the number of pods.
        lists_image: its status lists the launcher's image.
        is_open: new VMs can go there.
        used: what its pods request together.
        guests: its launcher pods by namespace.
    """

    name: str
    cpu: int
    memory: int
    devices: int = 0
    pods: int = 110
    lists_image: bool = True
    labels: Mapping[str, str] = field(default_factory=dict)
    is_open: bool = True
    used: GuestDemand = field(default_factory=GuestDemand)
    used_pods: int = 0
    guests: Counter[str] = field(default_factory=Counter)

    def add(self, demand: GuestDemand) -> None:
        """Add a pod's requests to the node."""
        self.used = GuestDemand(*map(add, self.used, demand))
        self.used_pods += 1

    def add_guest(self, guest: VmGuest) -> None:
        """Add a launcher pod to the node."""
        self.add(guest.demand)
        self.guests[guest.namespace] += 1

    def copy(self) -> Host:
        """A copy of the node, to which pods can be added."""
        return replace(self, guests=Counter(self.guests))

    def can_take(self, guest: VmGuest) -> bool:
        """Whether it is open, has room, and has the labels that the pod requires."""
        demand, used = guest.demand, self.used
        return (
            self.is_open
            and self.used_pods < self.pods
            and used.cpu + demand.cpu <= self.cpu
            and used.memory + demand.memory <= self.memory
            and (not demand.devices or used.devices + demand.devices <= self.devices)
            and all(self.labels.get(key) == value for key, value in guest.selector.items())
        )

    @property
    def count(self) -> int:
        """The number of launcher pods on the node."""
        return self.guests.total()


class Profile(NamedTuple):
    """What a scheduler's profile looks at: ImageLocality, NodeResourcesBalancedAllocation, and NodeResourcesFit.

    KVM devices have their own weight in NodeResourcesFit, beside one each of CPU and memory.
    """

    images: bool = True
    balance: bool = True
    fit_weight: int = 1
    devices_weight: int = 0


STOCK: Final = Profile()
# What is assumed of a scheduler whose profile is not seen.
OTHER: Final = Profile(images=False)
# manifests/scheduler/spread.yaml, without and with its lines on KVM devices.
SPREAD: Final = Profile(images=False, balance=False, fit_weight=10)
SPREAD_BY_DEVICES: Final = SPREAD._replace(devices_weight=2)


def fit_score(host: Host, demand: GuestDemand, devices_weight: int = 0) -> int:
    """NodeResourcesFit with its strategy LeastAllocated: the free share of the node with the pod on it."""
    total = _free_score(host.cpu, host.used.scored_cpu + demand.scored_cpu)
    total += _free_score(host.memory, host.used.scored_memory + demand.scored_memory)
    weights = 2
    if devices_weight and demand.devices and host.devices:
        total += devices_weight * _free_score(host.devices, host.used.devices + demand.devices)
        weights += devices_weight
    return total // weights


def balance_score(host: Host, demand: GuestDemand, version: Version) -> int:
    """NodeResourcesBalancedAllocation: how alike the requested shares of CPU and memory are with a pod on the node."""
    with_pod = _balance(host, host.used.cpu + demand.cpu, host.used.memory + demand.memory)
    if version < CHANGE_SCORED_SINCE:
        return with_pod
    without = _balance(host, host.used.cpu, host.used.memory)
    # Go rounds towards zero.
    return MAX_SCORE // 2 + math.trunc((MAX_SCORE // 2 + with_pod - without) / 2)


def image_points(sizes: Sequence[int], share: float) -> int:
    """ImageLocality's score of a node that lists the images of all containers; other nodes have 0.

    The sizes are in bytes, one for each container; a share of the nodes lists the images.
    """
    least, most = _MIN_IMAGE_BYTES, _MAX_IMAGE_BYTES * len(sizes)
    scaled = sum(int(size * share) for size in sizes)
    return MAX_SCORE * (min(max(scaled, least), most) - least) // (most - least) if sizes else 0


def spread_scores(hosts: Sequence[Host], namespace: str) -> list[int]:
    """PodTopologySpread's weighted scores for a pod with one soft constraint on host names, of maxSkew 1."""
    weight = math.log(len(hosts) + 2)
    raw = [round(host.guests[namespace] * weight) for host in hosts]
    least, most = min(raw), max(raw)
    if not most:
        return [_SPREAD_WEIGHT * MAX_SCORE] * len(raw)
    return [_SPREAD_WEIGHT * (MAX_SCORE * (most + least - weighted) // most) for weighted in raw]


def _free_score(allocatable: int, requested: int) -> int:
    return (allocatable - requested) * MAX_SCORE // allocatable if 0 <= requested <= allocatable and allocatable else 0


def _balance(host: Host, cpu: int, memory: int) -> int:
    shares = [min(used / have, 1.0) for used, have in ((cpu, host.cpu), (memory, host.memory)) if have]
    deviation = abs(shares[0] - shares[1]) / 2 if len(shares) == 2 else 0.0
    return int((1 - deviation) * MAX_SCORE)


class Inventory(NamedTuple):
    """What there is.

    Attributes:
        hosts: all nodes, with all pods but those of `guests`.
        guests: launcher pods on open nodes, the oldest first.
        image: that of most launcher pods' first container; empty where no VM runs.
        listing: how many open nodes list that image.
        full: how many open nodes report as many images as a kubelet does at most, and not this one.
        points: what ImageLocality gives to the nodes that list it.
        unzoned: how many open nodes have no label for their zone.
    """

    hosts: tuple[Host, ...]
    guests: tuple[VmGuest, ...]
    image: str
    listing: int
    full: int
    points: int
    unzoned: int

    @property
    def open(self) -> list[Host]:
        """Nodes that new VMs can go to."""
        return [host for host in self.hosts if host.is_open]

    def occupied_hosts(self) -> list[Host]:
        """Nodes that can take VMs, or have some, with everything on them."""
        copies = {host.name: host.copy() for host in self.hosts}
        for guest in self.guests:
            copies[guest.node].add_guest(guest)
        return [host for host in copies.values() if host.is_open or host.count]


def take(
    nodes: Iterable[Node],
    pods: Iterable[Pod],
    will_spread: Callable[[str], bool] = lambda _: False,
    required: Mapping[str, str] = NO_LABELS,
) -> Inventory:
    """Count what all nodes of a cluster offer, and what its pods request.

    Args:
        nodes: all nodes.
        pods: all pods.
        will_spread: whether launcher pods that are made now in a namespace get a constraint on host names.
        required: the labels that KubeVirt's configuration requires of the nodes of all VMs.
    """
    nodes = [node for node in nodes if node.meta.name]
    living = [pod for pod in pods if pod.spec.node_name and pod.status.phase in ("Pending", "Running")]
    launchers = sorted(
        (pod for pod in living if not isinstance(vmi_owner(pod), Reason)),
        key=lambda pod: (unix_time(pod.meta.creation_timestamp) or 0.0, pod.meta.namespace or "", pod.meta.name or ""),
    )
    image, per_image = _image(launchers)
    hosts = {host.name: host for host in (_host(node, image, required) for node in nodes)}
    guests = []
    for pod in launchers:
        host = hosts.get(pod.spec.node_name or "")
        guest = _guest(pod, is_spread=will_spread(pod.meta.namespace or ""))
        if host and host.is_open:
            guests.append(guest)
        elif host:
            host.add_guest(guest)
    for pod in living:
        host = hosts.get(pod.spec.node_name or "")
        if host and isinstance(vmi_owner(pod), Reason):
            host.add(_demand(pod))
    opened = [node for node in nodes if hosts[node.meta.name or ""].is_open]
    sizes = [size for node in nodes if (size := _image_size(node, image)) is not None]
    return Inventory(
        tuple(hosts.values()),
        tuple(guests),
        image,
        sum(hosts[node.meta.name or ""].lists_image for node in opened),
        sum(len(node.images) >= MAX_IMAGES and _image_size(node, image) is None for node in opened),
        image_points([max(sizes)] * per_image, len(sizes) / len(nodes)) if sizes else 0,
        sum(not node.meta.label(ZONE) for node in opened),
    )


def _host(node: Node, image: str, required: Mapping[str, str]) -> Host:
    allocatable, pods = parse_allocatable(node.allocatable), node.allocatable.get("pods")
    spec, departure = node.spec or NodeSpec(), Departure.of(node)
    amount = None if pods is None else nanos(pods)
    cpu, memory, devices = (max(0, allocatable.get(resource, 0)) for resource in (CPU, MEMORY, KVM_DEVICE))
    return Host(
        *(node.meta.name or "", cpu, memory, devices),
        _DEFAULT_PODS if amount is None else amount // 10**9,
        lists_image=_image_size(node, image) is not None,
        labels=node.meta.labels or {},
        is_open=node.meta.label(SCHEDULABLE) == "true"
        and required.items() <= (node.meta.labels or {}).items()
        and not spec.unschedulable
        and not any(taint.effect in ("NoSchedule", "NoExecute") for taint in spec.taints or ())
        # kube-scheduler would use it, and its VMs would not stay: their number is not how VMs are spread.
        and not (departure and departure.is_under_way),
    )


def _guest(pod: Pod, *, is_spread: bool) -> VmGuest:
    spec = pod.spec
    own = spec.topology_spread_constraints or ()
    return VmGuest(
        pod.meta.namespace or "",
        pod.meta.name or "",
        _demand(pod),
        spec.node_name or "",
        spec.node_selector or {},
        # An owner's own constraints, on whatever, keep others from being written.
        is_spread=any(constraint.topology_key == HOSTNAME for constraint in own) if own else is_spread,
        is_stock=spec.scheduler_name in (None, "", names.DEFAULT_SCHEDULER),
    )


def _demand(pod: Pod) -> GuestDemand:
    spec, totals = pod.spec, list[Nanos]()
    pod_level = spec.resources.requests if spec.resources else None
    # What the containers say, and that with what is assumed of those that do not.
    for assumed in ({}, _ASSUMED):
        own = [{**assumed, **container.requests} for container in spec.containers or ()]
        inits = [({**assumed, **each.requests}, is_sidecar(each)) for each in spec.init_containers or ()]
        totals.append(sum_requests(own, inits, pod_level=pod_level, overhead=spec.overhead))
    requested, scored = totals
    fields = (*((requested, name) for name in (CPU, MEMORY, KVM_DEVICE)), (scored, CPU), (scored, MEMORY))
    return GuestDemand(*(max(0, to_scheduler_units(name, amounts.get(name, 0))) for amounts, name in fields))


def _image(launchers: Sequence[Pod]) -> tuple[str, int]:
    """The image of most launcher pods' containers, and in how many containers of such a pod it is."""
    counts: Counter[tuple[str, int]] = Counter()
    for spec in (pod.spec for pod in launchers):
        for container in (spec.containers or ())[:1]:
            images = [other.image for other in (*(spec.init_containers or ()), *(spec.containers or ()))]
            if container.image:
                counts[container.image, images.count(container.image)] += 1
    return counts.most_common(1)[0][0] if counts else ("", 0)


def _image_size(node: Node, image: str) -> int | None:
    """The size of an image as a node lists it; None: it does not."""
    if not image:
        return None
    # kube-scheduler itself adds the tag that a container runtime would (imagelocality, normalizedImageName).
    full_name = image if ":" in image.rpartition("/")[2] else f"{image}:latest"
    return next((listed.size_bytes or 0 for listed in node.images if full_name in (listed.names or ())), None)


class Conditions(NamedTuple):
    """What the VMs are started under.

    Attributes:
        points: what ImageLocality gives to nodes that list the launcher's image.
        profile: the profile of the scheduler that places all VMs; None: each VM keeps its own.
        is_spread: whether launcher pods have the constraint; None: those that have it now.
    """

    version: Version
    points: int
    profile: Profile | None = None
    is_spread: bool | None = None


class SpreadEstimate(NamedTuple):
    """How evenly VMs lie on nodes: VMs, and percent of requested CPU and memory, of each node in the nodes' order.

    For VMs that are unplaced there was no room.
    """

    counts: tuple[int, ...]
    cpu: tuple[float, ...]
    memory: tuple[float, ...]
    unplaced: int = 0

    @classmethod
    def of(cls, hosts: Sequence[Host], unplaced: int = 0) -> SpreadEstimate:
        """The estimate from nodes to which the VMs have been added."""
        cpu = tuple(100 * host.used.cpu / host.cpu if host.cpu else 0.0 for host in hosts)
        memory = tuple(100 * host.used.memory / host.memory if host.memory else 0.0 for host in hosts)
        return cls(tuple(host.count for host in hosts), cpu, memory, unplaced)

    @property
    def empty(self) -> int:
        """The number of nodes without a VM."""
        return self.counts.count(0)


def estimate(hosts: Sequence[Host], guests: Sequence[VmGuest], conditions: Conditions) -> SpreadEstimate:
    """Place the VMs on the nodes, each where its scores are highest, in the order in which they are started.

    Nodes that tie are chosen from at random, but the one that the VM before went to comes first: so kube-scheduler 1.36
    was measured to place equal VMs one after the other (docs/spread.md). The nodes, without these VMs, stay the same.
    """
    chance = random.Random(1)  # noqa: S311 - not for secrets
    copies = [host.copy() for host in hosts]
    last: Host | None = None
    unplaced = 0
    for guest in guests:
        usable = [host for host in copies if host.can_take(guest)]
        if not usable:
            unplaced += 1
            continue
        points = _total_scores(usable, guest, conditions)
        best = max(points)
        tied = [host for host, score in zip(usable, points, strict=True) if score == best]
        last = last if last is not None and any(host is last for host in tied) else chance.choice(tied)
        last.add_guest(guest)
    return SpreadEstimate.of([host for host in copies if host.is_open], unplaced)


def _total_scores(hosts: Sequence[Host], guest: VmGuest, conditions: Conditions) -> list[int]:
    """The nodes' scores for a launcher pod, without those plugins that score all nodes alike."""
    profile = conditions.profile or (STOCK if guest.is_stock else OTHER)
    is_spread = guest.is_spread if conditions.is_spread is None else conditions.is_spread
    spread = spread_scores(hosts, guest.namespace) if is_spread else [0] * len(hosts)
    images = conditions.points if profile.images else 0
    return [
        score + _resource_score(host, guest.demand, profile, conditions.version) + (images if host.lists_image else 0)
        for host, score in zip(hosts, spread, strict=True)
    ]


def sample(hosts: Sequence[Host], guests: Sequence[VmGuest]) -> tuple[list[Host], list[VmGuest]]:
    """As much of a cluster as can be estimated in a moment: an even sample of its nodes and VMs."""
    step = 1
    while (len(hosts) // step) * (len(guests) // step) > MOST_LOOKS:
        step += 1
    return list(hosts[::step]), list(guests[::step])


def count_piled(host: Host, demand: GuestDemand, profile: Profile, version: Version) -> int:
    """How many equal VMs the scheduler puts on one of two equal nodes without VMs before the other one looks better."""
    used, other = host.copy(), _resource_score(host, demand, profile, version)
    for number in range(1, _MOST_AT_ONCE):
        used.add(demand)
        if _resource_score(used, demand, profile, version) < other:
            return number
    return _MOST_AT_ONCE


def bias(host: Host, demand: GuestDemand, version: Version) -> int:
    """How much more NodeResourcesBalancedAllocation scores a node with one such VM than the node without it."""
    used = host.copy()
    used.add(demand)
    return balance_score(used, demand, version) - balance_score(host, demand, version)


def _resource_score(host: Host, demand: GuestDemand, profile: Profile, version: Version) -> int:
    points = profile.fit_weight * fit_score(host, demand, profile.devices_weight)
    return points + balance_score(host, demand, version) if profile.balance else points


def deviation(values: Sequence[float]) -> float:
    """The standard deviation; 0.0 without values."""
    return statistics.pstdev(values) if values else 0.0
