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
from webhook.placement.pod_rules import MAX_SCORE, Levels, join_levels
from webhook.placement.profiles import Profile

# Since this version NodeResourcesBalancedAllocation scores the change that a pod makes (kubernetes/kubernetes#135573).
CHANGE_SCORED_SINCE: Final = (1, 36)
# Major and minor version of kube-scheduler.
Version: TypeAlias = tuple[int, int]
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


class Room:
    """What one node offers to pods, and what is left of it.

    Attributes:
        offers: what pods could request of the whole node, by resource.
        free: what is left; less than nothing where pods request more than there is.
        cpu: what NodeResourcesFit counts as requested: thousandths.
        memory: the same in bytes.
    """

    __slots__ = ("cpu", "free", "memory", "offers")

    def __init__(self, offers: Mapping[str, int]) -> None:
        self.offers: Final = offers
        self.free: Final = dict(offers)
        self.cpu = 0
        self.memory = 0


def fit_score(profile: Profile, room: Room, load: Load) -> int:
    """NodeResourcesFit: the free share of the node with the pod on it, or the requested one."""
    total = weights = 0
    for resource, weight in profile.resources:
        offered = room.offers.get(resource, 0)
        if not offered:
            continue
        if resource == CPU:
            requested = room.cpu + load.cpu
        elif resource == MEMORY:
            requested = room.memory + load.memory
        else:
            own = load.requests.get(resource, 0)
            if not own and resource != EPHEMERAL_STORAGE:
                continue  # devices and huge pages count for pods that request them
            requested = offered - room.free[resource] + own
        if profile.fills:
            total += weight * (min(requested, offered) * MAX_SCORE // offered)
        elif requested <= offered:
            total += weight * ((offered - requested) * MAX_SCORE // offered)
        weights += weight
    return total // weights if weights else 0


def balance_score(room: Room, load: Load, version: Version) -> int:
    """NodeResourcesBalancedAllocation: how alike the requested shares of CPU and memory are with a pod on the node."""
    cpu, memory = load.requests.get(CPU, 0), load.requests.get(MEMORY, 0)
    if not cpu and not memory:
        return 0  # as every node
    with_pod = _balance(room, cpu, memory)
    if version < CHANGE_SCORED_SINCE:
        return with_pod
    # Go rounds towards zero, and nothing here is less than zero.
    return MAX_SCORE // 2 + (MAX_SCORE // 2 + with_pod - _balance(room, 0, 0)) // 2


def _balance(room: Room, cpu: int, memory: int) -> int:
    offers, free = room.offers, room.free
    amounts = ((CPU, cpu), (MEMORY, memory))
    shares = [min((have - free[name] + more) / have, 1.0) for name, more in amounts if (have := offers.get(name))]
    deviation = abs(shares[0] - shares[1]) / 2 if len(shares) == 2 else 0.0
    return int((1 - deviation) * MAX_SCORE)


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
        self._total = 0
        for position, images in listed:
            self._total += 1
            for name, size in images.items():
                self._nodes[name] = self._nodes.get(name, 0) | 1 << position
                # kube-scheduler takes the size that it has seen first.
                self._sizes.setdefault(name, size)

    def scores(self, images: Sequence[str], everyone: int) -> Levels:
        """What ImageLocality gives to nodes for the images of a pod's containers; empty: the same to all."""
        sums: dict[int, int] = {0: everyone}
        for image in images:
            name = full_name(image)
            if nodes := self._nodes.get(name):
                scaled = int(self._sizes[name] * (nodes.bit_count() / self._total))
                parts = [(total + scaled, at & nodes) for total, at in sums.items()]
                rest = [(total, at & ~nodes) for total, at in sums.items()]
                sums = join_levels(each for each in (*parts, *rest) if each[1])
        levels = join_levels((_clamp_images(total, len(images)), nodes) for total, nodes in sums.items())
        return levels if len(levels) > 1 else {}


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


def normalize(raw: Levels, candidates: int, *, reverse: bool = False) -> Levels:
    """The scores of candidates by their raw ones, as shares of the highest; empty: all have the same."""
    own = {score: nodes & candidates for score, nodes in raw.items() if nodes & candidates}
    most = max(own, default=0)
    if len(own) < 2 or not most:
        return {}
    scores = ((MAX_SCORE * score // most, nodes) for score, nodes in own.items())
    return join_levels((MAX_SCORE - score if reverse else score, nodes) for score, nodes in scores)
