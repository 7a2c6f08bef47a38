"""The scores by which kube-scheduler chooses among the nodes that a pod fits on, in its own whole numbers.

Sources: k8s.io/kubernetes 1.37, pkg/scheduler/framework/plugins: noderesources (least_allocated.go, most_allocated.go,
balanced_allocation.go, resource_allocation.go), imagelocality, nodeaffinity, tainttoleration, helper
(normalize_score.go). `webhook.placement.pod_rules` has the scores of rules between pods.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, TypeAlias

import msgspec

from webhook.k8s.types.meta import View
from webhook.k8s.types.scheduling import Affinity
from webhook.k8s.types.selectors import NodeSelectorTerm, Term
from webhook.placement.nodes import CPU, EPHEMERAL_STORAGE, MEMORY
from webhook.placement.pod_rules import MAX_SCORE, NodesByNumber, group_by_number
from webhook.placement.profiles import BALANCE, FIT, Profile

# Since this version NodeResourcesBalancedAllocation scores the change that a pod makes (kubernetes/kubernetes#135573).
CHANGE_SCORED_SINCE: Final = (1, 36)
# Since this version ImageLocality scores the images of volumes, too (kubernetes/kubernetes#130231).
IMAGE_VOLUMES_SCORED_SINCE: Final = (1, 36)
# Since this version chance no longer decides among nodes that tie (kubernetes/kubernetes#135231).
TIES_IN_ORDER_SINCE: Final = (1, 35)
# Major and minor version of kube-scheduler.
KubernetesVersion: TypeAlias = tuple[int, int]
NEWEST: Final = (1, 37)

_MIB: Final = 1024 * 1024
_MIN_IMAGE_BYTES: Final = 23 * _MIB
_MAX_IMAGE_BYTES: Final = 1000 * _MIB


class Load(msgspec.Struct, frozen=True):
    """What a pod takes of its node.

    Attributes:
        requests: by resource, in kube-scheduler's unit; each pod is one of ``pods``.
        cpu: what NodeResourcesFit scores, thousandths: an assumed amount for each container that requests none.
        memory: the same in bytes.
    """

    requests: dict[str, int]
    cpu: int
    memory: int

    @classmethod
    def of(cls, requests: dict[str, int]) -> Load:
        """That of a pod whose containers all request CPU and memory."""
        return cls(requests, requests.get(CPU, 0), requests.get(MEMORY, 0))

    def __add__(self, other: Load) -> Load:
        requests = dict(self.requests)
        for name, amount in other.requests.items():
            requests[name] = requests.get(name, 0) + amount
        return Load(requests, self.cpu + other.cpu, self.memory + other.memory)


class NodeResources:
    """What pods can request of one node (``status.allocatable``), and what is left of it.

    Attributes:
        allocatable: what pods could request of the whole node, by resource.
        allocatable_cpu: the CPU among these, thousandths.
        allocatable_memory: the memory among these, bytes.
        free: what is left; less than nothing where pods request more than there is.
        cpu: what NodeResourcesFit counts as requested (kube-scheduler's NonZeroRequested): thousandths.
        memory: the same in bytes.
        balance: how alike the requested shares of CPU and memory are, of 100.
    """

    __slots__ = ("allocatable", "allocatable_cpu", "allocatable_memory", "balance", "cpu", "free", "memory")

    def __init__(self, allocatable: Mapping[str, int]) -> None:
        self.allocatable: Final = allocatable
        self.allocatable_cpu: Final = allocatable.get(CPU, 0)
        self.allocatable_memory: Final = allocatable.get(MEMORY, 0)
        self.free: Final = dict(allocatable)
        self.cpu = 0
        self.memory = 0
        self.balance = self.balance_with(0, 0)

    def take(self, load: Load, number: int = 1) -> None:
        """Have a pod be on the node, or with -1 be gone."""
        for resource, amount in load.requests.items():
            # A pod that was bound before its device was taken out requests what the node no longer has.
            if resource in self.free:
                self.free[resource] -= number * amount
        self.cpu += number * load.cpu
        self.memory += number * load.memory
        self.balance = self.balance_with(0, 0)

    def balance_with(self, cpu: int, memory: int) -> int:
        """How alike the requested shares are with so much more of both, of 100."""
        allocatable_cpu, allocatable_memory = self.allocatable_cpu, self.allocatable_memory
        if not allocatable_cpu or not allocatable_memory:
            return MAX_SCORE
        share = (allocatable_cpu - self.free[CPU] + cpu) / allocatable_cpu
        other = (allocatable_memory - self.free[MEMORY] + memory) / allocatable_memory
        difference = (share if share < 1 else 1.0) - (other if other < 1 else 1.0)
        return int((1 - (difference if difference > 0 else -difference) / 2) * MAX_SCORE)

    def copy(self) -> NodeResources:
        """The same, to try something."""
        node = NodeResources(self.allocatable)
        node.free.update(self.free)
        node.cpu, node.memory, node.balance = self.cpu, self.memory, self.balance
        return node

    def share(self, resource: str) -> float:
        """The requested share of what is allocatable, in percent; 0 where that is nothing."""
        allocatable = self.allocatable.get(resource, 0)
        return 100 * (allocatable - self.free[resource]) / allocatable if allocatable else 0.0


class ResourceScorer:
    """The scores of nodes for one size of pod by what is left of them; it is asked for each node that has changed.

    Args:
        profile: that of the pod's scheduler.
        load: what the pod takes.
        version: that of kube-scheduler.
    """

    def __init__(self, profile: Profile, load: Load, version: KubernetesVersion) -> None:
        weights = dict(profile.resources)
        self._fills: Final = profile.fills
        self._cpu_weight: Final = weights.pop(CPU, 0)
        self._memory_weight: Final = weights.pop(MEMORY, 0)
        self._cpu: Final = load.cpu
        self._memory: Final = load.memory
        # Devices and huge pages count for pods that request them.
        self._others: Final = [
            (name, weight, own)
            for name, weight in weights.items()
            if (own := load.requests.get(name, 0)) or name == EPHEMERAL_STORAGE
        ]
        self._requested_cpu: Final = load.requests.get(CPU, 0)
        self._requested_memory: Final = load.requests.get(MEMORY, 0)
        self._scores_change: Final = version >= CHANGE_SCORED_SINCE
        self.fit_weight: Final = profile.weight(FIT)
        # Of pods that request nothing, it gives all nodes the same.
        self.balance_weight: Final = profile.weight(BALANCE) if self._requested_cpu or self._requested_memory else 0

    def total(self, node: NodeResources) -> int:
        """Both scores of a node together, weighted."""
        points = self.fit_weight * self.fit(node) if self.fit_weight else 0
        return points + self.balance_weight * self.balance(node) if self.balance_weight else points

    def fit(self, node: NodeResources) -> int:
        """NodeResourcesFit: the free share of the node with the pod on it, or the requested one."""
        total = weights = 0
        if allocatable := node.allocatable_cpu:
            requested, weights = node.cpu + self._cpu, self._cpu_weight
            if requested <= allocatable:
                total = weights * ((requested if self._fills else allocatable - requested) * MAX_SCORE // allocatable)
            elif self._fills:
                total = weights * MAX_SCORE
        if allocatable := node.allocatable_memory:
            requested, weight = node.memory + self._memory, self._memory_weight
            weights += weight
            if requested <= allocatable:
                total += weight * ((requested if self._fills else allocatable - requested) * MAX_SCORE // allocatable)
            elif self._fills:
                total += weight * MAX_SCORE
        for name, weight, own in self._others:
            if allocatable := node.allocatable.get(name, 0):
                requested = allocatable - node.free[name] + own
                left = max(0, allocatable - requested)
                total += weight * ((min(requested, allocatable) if self._fills else left) * MAX_SCORE // allocatable)
                weights += weight
        return total // weights if weights else 0

    def balance(self, node: NodeResources) -> int:
        """NodeResourcesBalancedAllocation: how alike the requested shares of CPU and memory are."""
        with_pod = node.balance_with(self._requested_cpu, self._requested_memory)
        if not self._scores_change:
            return with_pod
        # Go rounds towards zero, and nothing here is less than zero.
        return MAX_SCORE // 2 + (MAX_SCORE // 2 + with_pod - node.balance) // 2


def image_score(sizes: Sequence[int], share: float) -> int:
    """ImageLocality's score of a node that lists the images of all containers, which a share of the nodes lists.

    The sizes are in bytes, one for each container.
    """
    return _clamp_images(sum(int(size * share) for size in sizes), len(sizes))


def _clamp_images(scaled: int, containers: int) -> int:
    least, most = _MIN_IMAGE_BYTES, _MAX_IMAGE_BYTES * containers
    return MAX_SCORE * (min(max(scaled, least), most) - least) // (most - least) if containers else 0


class ImageIndex:
    """Which nodes list which images.

    Args:
        listed: of each node its position, and its images by their names, with the size in bytes.
    """

    def __init__(self, listed: Iterable[tuple[int, Mapping[str, int]]]) -> None:
        self._nodes: Final[dict[str, int]] = {}
        self._sizes: Final[dict[str, int]] = {}
        self._listing = 0
        for position, images in listed:
            self._listing |= 1 << position
            for name, size in images.items():
                self._nodes[name] = self._nodes.get(name, 0) | 1 << position
                # kube-scheduler takes the size that it has seen first.
                self._sizes.setdefault(name, size)

    def scores(self, images: Sequence[str], everyone: int) -> NodesByNumber:
        """What ImageLocality gives to nodes for the images of a pod's containers; empty: the same to all."""
        sums: dict[int, int] = {0: everyone}
        total_nodes = (self._listing & everyone).bit_count()
        for image in images:
            name = full_name(image)
            if nodes := self._nodes.get(name, 0) & everyone:
                scaled = int(self._sizes[name] * (nodes.bit_count() / total_nodes))
                parts = [(total + scaled, at & nodes) for total, at in sums.items()]
                rest = [(total, at & ~nodes) for total, at in sums.items()]
                sums = group_by_number(each for each in (*parts, *rest) if each[1])
        scored = group_by_number((_clamp_images(total, len(images)), nodes) for total, nodes in sums.items())
        return scored if len(scored) > 1 else {}


def full_name(image: str) -> str:
    """An image with the tag that a container runtime, and kube-scheduler, would add (normalizedImageName)."""
    return image if ":" in image.rpartition("/")[2] else f"{image}:latest"


def preferred_terms(affinity: Affinity | None) -> tuple[tuple[Term, int], ...]:
    """The preferred terms of node affinity, each with its weight; those that match no node are left out."""
    node = affinity.node_affinity if affinity else None
    found = []
    for written in (node.preferred if node else None) or ():
        try:
            each = msgspec.convert(written, _PreferredTerm)
        except msgspec.ValidationError:
            continue  # the API server accepts none such
        term = each.preference.term("preference")
        if each.weight and not term.hopeless:
            found.append((term, each.weight))
    return tuple(found)


class _PreferredTerm(View, frozen=True):
    """A preferred term of node affinity (core/v1 PreferredSchedulingTerm)."""

    weight: int
    preference: NodeSelectorTerm


def normalize(raw: NodesByNumber, feasible: int, *, reverse: bool = False) -> NodesByNumber:
    """The scores of feasible nodes by their raw ones, as shares of the highest; empty: all have the same."""
    own = {score: nodes & feasible for score, nodes in raw.items() if nodes & feasible}
    most = max(own, default=0)
    if len(own) < 2 or not most:
        return {}
    scores = ((MAX_SCORE * score // most, nodes) for score, nodes in own.items())
    return group_by_number((MAX_SCORE - score if reverse else score, nodes) for score, nodes in scores)
