"""Where the VMs of a cluster are and would be: nodes and launcher pods, and an estimate by the simulated scheduler."""

from __future__ import annotations

import random
import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

import msgspec
from msgspec.structs import replace

from webhook import names
from webhook.admission.decision import Reason
from webhook.k8s.types.core import Node as NodeWithImages
from webhook.k8s.types.core import NodeSpec, Pod
from webhook.k8s.types.meta import unix_time
from webhook.k8s.types.scheduling import Placed, TopologySpreadConstraint
from webhook.kubevirt.heartbeat import SCHEDULABLE
from webhook.kubevirt.launcher import vmi_owner
from webhook.placement.eligibility import Eligibility, Failure
from webhook.placement.index import NodeIndex
from webhook.placement.nodes import CPU, MEMORY, ZONE, Departure, Node, bitset_positions
from webhook.placement.pod_rules import preferences_of
from webhook.placement.profiles import IMAGES, SHIPPED_PROFILES, STOCK, Profile, Profiles
from webhook.placement.requirements import Origin, Requirements, Staying
from webhook.placement.running_pods import incoming
from webhook.placement.scores import (
    NEWEST,
    TIES_IN_ORDER_SINCE,
    KubernetesVersion,
    Load,
    NodeResources,
    ResourceScorer,
    full_name,
    image_score,
)
from webhook.placement.simulate import SimulatedPod, Simulation
from webhook.placement.target_pods import own_requirements
from webhook.policies.scheduling import spread

# What a kubelet reports unless its nodeStatusMaxImages says otherwise.
MAX_IMAGES: Final = 50
# A larger cluster is estimated by a part of it: so many nodes times VMs.
MOST_LOOKS: Final = 1_000_000
NO_LABELS: Final[Mapping[str, str]] = {}
_NO_AMOUNTS: Final[Mapping[str, int]] = {}
_MOST_AT_ONCE: Final = 1000
_ALIVE: Final = ("Pending", "Running")
_NO_NAMESPACES: Final[Mapping[str, Mapping[str, str]]] = {}


class VmGuest(msgspec.Struct, frozen=True):
    """A VM by its launcher pod, as that would be made now.

    Attributes:
        node: where it runs, by name.
        requirements: what the pod requires of nodes.
        has_constraints: whether it has topology spread constraints, of its owner or by the settings.
    """

    pod: SimulatedPod
    node: str
    requirements: Requirements = ()
    has_constraints: bool = False

    @property
    def namespace(self) -> str:
        """The VM's namespace."""
        return self.pod.info.namespace

    def spread_over_nodes(self) -> SimulatedPod:
        """The pod with the constraint on host names, unless it has constraints already."""
        return self.pod if self.has_constraints else _with_constraints(self.pod, "hostname")


class Host(NamedTuple):
    """A node, what is left of it, and the namespaces of the VMs on it."""

    name: str
    resources: NodeResources
    vms: Counter[str]


class Inventory(NamedTuple):
    """What there is.

    Attributes:
        nodes: all nodes by name.
        closed: those that new VMs cannot go to, by name.
        others: all pods on nodes but those of `guests`, each with its node.
        guests: launcher pods on open nodes, the oldest first.
        settled: the launcher pods on other nodes: their namespaces, with the nodes.
        image: that of most launcher pods' first container; empty where no VM runs.
        listing: how many open nodes list that image.
        full: how many open nodes report as many images as a kubelet does at most, and not this one.
        points: what ImageLocality gives to the nodes that list it.
        unzoned: how many open nodes have no label for their zone.
    """

    nodes: Mapping[str, NodeWithImages]
    closed: frozenset[str]
    others: tuple[tuple[SimulatedPod, str], ...]
    guests: tuple[VmGuest, ...]
    settled: tuple[tuple[str, str], ...]
    image: str = ""
    listing: int = 0
    full: int = 0
    points: int = 0
    unzoned: int = 0

    @property
    def open(self) -> list[str]:
        """Nodes that new VMs can go to."""
        return [name for name in self.nodes if name not in self.closed]

    def open_hosts(self) -> list[Host]:
        """The open nodes without their VMs."""
        return _Cluster(self).hosts(self.open)

    def occupied_hosts(self) -> list[Host]:
        """The nodes that can take VMs, or have some, with everything on them."""
        cluster = _Cluster(self)
        for guest in self.guests:
            cluster.add(guest.pod, cluster.position(guest.node))
        for namespace, node in self.settled:
            cluster.vms[cluster.position(node)][namespace] += 1
        return [host for host in cluster.hosts(self.nodes) if host.vms or host.name not in self.closed]


class Conditions(NamedTuple):
    """What the VMs are started under.

    Attributes:
        images: whether ImageLocality tells nodes apart.
        profile: the profile of the scheduler that places all VMs; None: each VM keeps its own.
        is_spread: whether launcher pods without constraints get the one on host names.
        most: of some resources, no more than so much of each node counts as allocatable.
    """

    version: KubernetesVersion
    images: bool = True
    profile: Profile | None = None
    is_spread: bool = False
    most: Mapping[str, int] = _NO_AMOUNTS

    def pod_of(self, guest: VmGuest) -> SimulatedPod:
        """A VM's launcher pod under these conditions."""
        pod = guest.spread_over_nodes() if self.is_spread else guest.pod
        profile = self.profile or pod.profile
        return replace(pod, profile=profile if self.images else profile.without(IMAGES))


class _Cluster:
    """The nodes of an inventory, without its VMs at first."""

    def __init__(
        self, inventory: Inventory, conditions: Conditions | None = None, pods: Iterable[SimulatedPod] = ()
    ) -> None:
        self._index: Final = NodeIndex(map(Node.of, inventory.nodes.values()))
        version, most = (conditions.version, conditions.most) if conditions else (NEWEST, _NO_AMOUNTS)
        self.simulation: Final = Simulation(self._index, inventory.nodes, version, most)
        self.vms: Final = {self.position(name): Counter[str]() for name in inventory.nodes}
        closed = sum(1 << self.position(name) for name in inventory.closed)
        # kube-scheduler would use some of them, and their VMs would not stay.
        self._closed: Final = (Failure(Staying(Origin.DEPARTURE), None, closed),)
        self._eligible: Final[dict[Requirements, Eligibility]] = {}
        for pod in (*(each for each, _ in inventory.others), *pods):
            self.simulation.rules.track(pod.info)
        for pod, node in inventory.others:
            self.simulation.bind(pod, self.position(node))

    def position(self, node: str) -> int:
        position = self._index.position(node)
        if position is None:
            raise KeyError(node)
        return position

    def eligible(self, guest: VmGuest) -> Eligibility:
        """The open nodes that meet what a VM requires."""
        if guest.requirements not in self._eligible:
            self._eligible[guest.requirements] = self._index.review(guest.requirements).failing(self._closed)
        return self._eligible[guest.requirements]

    def add(self, pod: SimulatedPod, position: int) -> None:
        """Have a VM run on a node."""
        self.simulation.bind(pod, position)
        self.vms[position][pod.info.namespace] += 1

    def hosts(self, nodes: Iterable[str]) -> list[Host]:
        positions = ((name, self.position(name)) for name in nodes)
        return [Host(name, self.simulation.resources(at), self.vms[at]) for name, at in positions]


def bias(node: NodeResources, load: Load, version: KubernetesVersion) -> int:
    """How much more NodeResourcesBalancedAllocation scores a node with one such VM than the node without it."""
    used, scorer = node.copy(), ResourceScorer(STOCK, load, version)
    used.take(load)
    return scorer.balance(used) - scorer.balance(node)


def count_piled(node: NodeResources, load: Load, profile: Profile, version: KubernetesVersion) -> int:
    """How many equal VMs the scheduler puts on one of two equal nodes without VMs before the other one looks better."""
    used, scorer = node.copy(), ResourceScorer(profile, load, version)
    other = scorer.total(node)
    for number in range(1, _MOST_AT_ONCE):
        used.take(load)
        if scorer.total(used) < other:
            return number
    return _MOST_AT_ONCE


def take(
    nodes: Iterable[NodeWithImages],
    pods: Iterable[Pod],
    spreads: Callable[[str], str] = lambda _: names.OFF,
    required: Mapping[str, str] = NO_LABELS,
    profiles: Profiles = SHIPPED_PROFILES,
    namespaces: Mapping[str, Mapping[str, str]] = _NO_NAMESPACES,
) -> Inventory:
    """Count what all nodes of a cluster offer, and what its pods request.

    Args:
        nodes: all nodes.
        pods: all pods.
        spreads: the constraints that launcher pods without any get now in a namespace, as `names.Spread` has them.
        required: the labels that KubeVirt's configuration requires of the nodes of all VMs.
        profiles: those of schedulers that are known.
        namespaces: the labels of namespaces.
    """
    views = {node.meta.name: node for node in nodes if node.meta.name}
    closed = frozenset(name for name, node in views.items() if not _is_open(node, required))
    opened = [node for name, node in views.items() if name not in closed]
    unzoned = sum(not node.meta.label(ZONE) for node in opened)
    living = [pod for pod in pods if pod.spec.node_name in views and pod.status.phase in _ALIVE]
    launchers = sorted(
        (pod for pod in living if not isinstance(vmi_owner(pod), Reason)),
        key=lambda pod: (unix_time(pod.meta.creation_timestamp) or 0.0, pod.meta.namespace or "", pod.meta.name or ""),
    )
    image, per_image = _image(launchers)
    guests, settled, others = [], [], []
    for pod in launchers:
        node, namespace = pod.spec.node_name or "", pod.meta.namespace or ""
        if node in closed:
            settled.append((namespace, node))
            others.append((incoming(pod, namespaces, profiles), node))
        else:
            value = spreads(namespace)
            # Where nodes have no zone, the constraint is on nodes alone.
            kept = {"both": "hostname", "zone": names.OFF}.get(value, value) if unzoned else value
            guests.append(_guest(pod, kept, profiles, namespaces))
    others += [
        (incoming(pod, namespaces, profiles), pod.spec.node_name or "")
        for pod in living
        if isinstance(vmi_owner(pod), Reason)
    ]
    sizes = [size for node in views.values() if (size := _image_size(node, image)) is not None]
    return Inventory(
        views,
        closed,
        tuple(others),
        tuple(guests),
        tuple(settled),
        image,
        sum(_image_size(node, image) is not None for node in opened),
        sum(len(node.images) >= MAX_IMAGES and _image_size(node, image) is None for node in opened),
        image_score([max(sizes)] * per_image, len(sizes) / len(views)) if sizes else 0,
        unzoned,
    )


def _is_open(node: NodeWithImages, required: Mapping[str, str]) -> bool:
    """Whether new VMs can go to a node."""
    spec, departure = node.spec or NodeSpec(), Departure.of(node)
    return (
        node.meta.label(SCHEDULABLE) == "true"
        and required.items() <= (node.meta.labels or {}).items()
        and not spec.unschedulable
        and not any(taint.effect in ("NoSchedule", "NoExecute") for taint in spec.taints or ())
        # kube-scheduler would use it, and its VMs would not stay: their number is not how VMs are spread.
        and not (departure and departure.is_under_way)
    )


def _guest(pod: Pod, value: str, profiles: Profiles, namespaces: Mapping[str, Mapping[str, str]]) -> VmGuest:
    spec = pod.spec
    simulated, has_own = incoming(pod, namespaces, profiles), bool(spec.topology_spread_constraints)
    # It is started again, whatever happens to it now.
    simulated = replace(simulated, info=replace(simulated.info, is_terminating=False))
    # An owner's own constraints, on whatever, keep others from being written.
    if not has_own and value != names.OFF:
        simulated = _with_constraints(simulated, value)
    placed = Placed(spec.node_selector, spec.affinity, spec.tolerations)
    return VmGuest(simulated, spec.node_name or "", tuple(own_requirements(placed)), has_own or value != names.OFF)


def _with_constraints(pod: SimulatedPod, value: str) -> SimulatedPod:
    """A pod with the constraints that the webhook writes."""
    written = msgspec.convert(spread.constraints(value), list[TopologySpreadConstraint | None])
    info = pod.info
    rules = preferences_of(None, written, info.namespace, info.labels, _NO_NAMESPACES).spread
    return replace(pod, info=replace(info, preferences=replace(info.preferences, spread=rules)))


def _image(launchers: Sequence[Pod]) -> tuple[str, int]:
    """The image of most launcher pods' containers, and in how many containers of such a pod it is."""
    counts: Counter[tuple[str, int]] = Counter()
    for spec in (pod.spec for pod in launchers):
        for container in (spec.containers or ())[:1]:
            images = [other.image for other in (*(spec.init_containers or ()), *(spec.containers or ()))]
            if container.image:
                counts[container.image, images.count(container.image)] += 1
    return counts.most_common(1)[0][0] if counts else ("", 0)


def _image_size(node: NodeWithImages, image: str) -> int | None:
    """The size of an image as a node lists it; None: it does not."""
    if not image:
        return None
    name = full_name(image)
    return next((listed.size_bytes or 0 for listed in node.images if name in (listed.names or ())), None)


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
        cpu = tuple(host.resources.share(CPU) for host in hosts)
        memory = tuple(host.resources.share(MEMORY) for host in hosts)
        return cls(tuple(host.vms.total() for host in hosts), cpu, memory, unplaced)

    @property
    def empty(self) -> int:
        """The number of nodes without a VM."""
        return self.counts.count(0)


def estimate(inventory: Inventory, conditions: Conditions) -> SpreadEstimate:
    """Place the VMs on the open nodes as the scheduler would, in the order in which they are started.

    Nodes that tie are chosen from at random. Since Kubernetes 1.35 the one that the VM before went to comes first: so
    kube-scheduler 1.36 was measured to place equal VMs one after the other (docs/spread.md). Where an extender scores
    nodes, chance decides in all versions.
    """
    chance = random.Random(1)  # noqa: S311 - not for secrets
    pods = [conditions.pod_of(guest) for guest in inventory.guests]
    cluster = _Cluster(inventory, conditions, pods)
    last, unplaced = -1, 0

    def by_chance(ties: int) -> int:
        return chance.choice([*bitset_positions(ties)])

    def in_order(ties: int) -> int:
        return last if last >= 0 and ties >> last & 1 else by_chance(ties)

    for guest, pod in zip(inventory.guests, pods, strict=True):
        is_ordered = conditions.version >= TIES_IN_ORDER_SINCE and not pod.profile.has_scoring_extender
        tie_break = in_order if is_ordered else by_chance
        result = cluster.simulation.schedule(pod, cluster.eligible(guest), tie_break)
        if result is None:
            unplaced += 1
        else:
            last = result.position
            cluster.add(pod, last)
    return SpreadEstimate.of(cluster.hosts(inventory.open), unplaced)


def sample(inventory: Inventory) -> Inventory:
    """As much of a cluster as can be estimated in a moment: an even sample of its open nodes and its VMs."""
    opened, guests, step = inventory.open, inventory.guests, 1
    while (len(opened) // step) * (len(guests) // step) > MOST_LOOKS:
        step += 1
    if step == 1:
        return inventory
    nodes = {name: inventory.nodes[name] for name in opened[::step]}
    others = tuple(each for each in inventory.others if each[1] in nodes)
    return inventory._replace(nodes=nodes, closed=frozenset(), others=others, guests=guests[::step], settled=())


def deviation(values: Sequence[float]) -> float:
    """The standard deviation; 0.0 without values."""
    return statistics.pstdev(values) if values else 0.0
