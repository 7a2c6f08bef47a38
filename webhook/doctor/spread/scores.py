"""The scores of kube-scheduler by which nodes differ for launcher pods, in its own whole numbers.

Sources: k8s.io/kubernetes, pkg/scheduler/framework/plugins: noderesources/least_allocated.go,
noderesources/balanced_allocation.go, imagelocality/image_locality.go, podtopologyspread/scoring.go.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final, NamedTuple

from webhook.doctor.spread.hosts import GuestDemand, Host, VmGuest

MAX_SCORE: Final = 100
# Since this version NodeResourcesBalancedAllocation scores the change that a pod makes (kubernetes/kubernetes#135573).
CHANGE_SCORED_SINCE: Final = (1, 36)

_MIB: Final = 1024 * 1024
_MIN_IMAGE_BYTES: Final = 23 * _MIB
_MAX_IMAGE_BYTES: Final = 1000 * _MIB
_SPREAD_WEIGHT: Final = 2


class Profile(NamedTuple):
    """What a scheduler's profile looks at.

    Attributes:
        images: ImageLocality is on.
        balance: NodeResourcesBalancedAllocation is on.
        fit_weight: the weight of NodeResourcesFit.
        devices_weight: the weight of KVM devices in NodeResourcesFit, beside one each of CPU and memory.
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


def fit(host: Host, demand: GuestDemand, devices_weight: int = 0) -> int:
    """NodeResourcesFit with its strategy LeastAllocated: the free share of the node with the pod on it."""
    total = _free_score(host.cpu, host.scored_cpu + demand.scored_cpu)
    total += _free_score(host.memory, host.scored_memory + demand.scored_memory)
    weights = 2
    if devices_weight and demand.devices and host.devices:
        total += devices_weight * _free_score(host.devices, host.used_devices + demand.devices)
        weights += devices_weight
    return total // weights


def balance(host: Host, demand: GuestDemand, version: tuple[int, int]) -> int:
    """NodeResourcesBalancedAllocation: how alike the requested shares of CPU and memory are.

    Args:
        host: the node, with what its pods request.
        demand: what the pod requests.
        version: major and minor version of kube-scheduler.
    """
    with_pod = _balance(host, host.used_cpu + demand.cpu, host.used_memory + demand.memory)
    if version < CHANGE_SCORED_SINCE:
        return with_pod
    without = _balance(host, host.used_cpu, host.used_memory)
    # Go rounds towards zero.
    return MAX_SCORE // 2 + math.trunc((MAX_SCORE // 2 + with_pod - without) / 2)


def image_points(sizes: Sequence[int], share: float) -> int:
    """ImageLocality's score of a node that lists the images of all containers; other nodes have 0.

    Args:
        sizes: size of the image of each container, in bytes.
        share: the share of the nodes that list them.
    """
    least, most = _MIN_IMAGE_BYTES, _MAX_IMAGE_BYTES * len(sizes)
    scaled = sum(int(size * share) for size in sizes)
    return MAX_SCORE * (min(max(scaled, least), most) - least) // (most - least) if sizes else 0


def topology(hosts: Sequence[Host], namespace: str) -> list[int]:
    """PodTopologySpread's weighted scores for a pod with one soft constraint on host names, of maxSkew 1."""
    weight = math.log(len(hosts) + 2)
    raw = [round(host.guests[namespace] * weight) for host in hosts]
    least, most = min(raw), max(raw)
    if not most:
        return [_SPREAD_WEIGHT * MAX_SCORE] * len(raw)
    return [_SPREAD_WEIGHT * (MAX_SCORE * (most + least - weighted) // most) for weighted in raw]


def total(
    hosts: Sequence[Host], guest: VmGuest, profile: Profile, version: tuple[int, int], points: int, *, is_spread: bool
) -> list[int]:
    """The nodes' scores for a launcher pod, without those plugins that score all nodes alike.

    Args:
        hosts: the nodes to score.
        guest: the VM of the launcher pod.
        profile: the scheduler's profile, with the weights of its scores.
        version: major and minor version of kube-scheduler.
        points: `image_points` of the launcher's image, on the nodes that list it.
        is_spread: whether the pod has a topology spread constraint.
    """
    spread = topology(hosts, guest.namespace) if is_spread else [0] * len(hosts)
    scores = []
    for host, score in zip(hosts, spread, strict=True):
        node_score = score + profile.fit_weight * fit(host, guest.demand, profile.devices_weight)
        if profile.balance:
            node_score += balance(host, guest.demand, version)
        if profile.images and host.lists_image:
            node_score += points
        scores.append(node_score)
    return scores


def _free_score(allocatable: int, requested: int) -> int:
    return (allocatable - requested) * MAX_SCORE // allocatable if 0 <= requested <= allocatable and allocatable else 0


def _balance(host: Host, cpu: int, memory: int) -> int:
    shares = [min(used / have, 1.0) for used, have in ((cpu, host.cpu), (memory, host.memory)) if have]
    deviation = abs(shares[0] - shares[1]) / 2 if len(shares) == 2 else 0.0
    return int((1 - deviation) * MAX_SCORE)
