"""Where the present virtual machines would be if all were started anew, one by one, under other conditions."""

from __future__ import annotations

import random
import statistics
from collections.abc import Sequence
from typing import Final, NamedTuple

from webhook.doctor.spread import scores
from webhook.doctor.spread.hosts import GuestDemand, Host, VmGuest

# Every VM looks at every node; a larger cluster is estimated by a part of it.
MOST_LOOKS: Final = 60_000
_MOST_AT_ONCE: Final = 1000
_SEED: Final = 1


class Conditions(NamedTuple):
    """What the VMs are started under.

    Attributes:
        version: major and minor version of kube-scheduler.
        points: what ImageLocality gives to nodes that list the launcher's image.
        profile: the profile of the scheduler that places all VMs; None: each VM keeps its own.
        is_spread: whether launcher pods have the constraint; None: those that have it now.
    """

    version: tuple[int, int]
    points: int
    profile: scores.Profile | None = None
    is_spread: bool | None = None


class SpreadEstimate(NamedTuple):
    """How evenly VMs lie on nodes.

    Attributes:
        counts: the VMs on each node, in the nodes' order.
        cpu: the requested CPU of each node, in percent.
        memory: the requested memory of each node, in percent.
        unplaced: VMs for which there was no room.
    """

    counts: tuple[int, ...]
    cpu: tuple[float, ...]
    memory: tuple[float, ...]
    unplaced: int = 0

    @classmethod
    def of(cls, hosts: Sequence[Host], unplaced: int = 0) -> SpreadEstimate:
        """The estimate from nodes to which the VMs have been added."""
        return cls(
            tuple(host.count for host in hosts),
            tuple(host.cpu_percent for host in hosts),
            tuple(host.memory_percent for host in hosts),
            unplaced,
        )

    @property
    def mean(self) -> float:
        """The mean number of VMs per node."""
        return statistics.fmean(self.counts) if self.counts else 0.0

    @property
    def deviation(self) -> float:
        """The standard deviation of VMs per node."""
        return _deviation(self.counts)

    @property
    def cpu_deviation(self) -> float:
        """The standard deviation of the requested CPU, in percentage points."""
        return _deviation(self.cpu)

    @property
    def memory_deviation(self) -> float:
        """The standard deviation of the requested memory, in percentage points."""
        return _deviation(self.memory)

    @property
    def empty(self) -> int:
        """The number of nodes without a VM."""
        return self.counts.count(0)


def estimate(hosts: Sequence[Host], guests: Sequence[VmGuest], conditions: Conditions) -> SpreadEstimate:
    """Place the VMs on the nodes, each where its scores are highest.

    Nodes that tie are chosen from at random, but the one that the VM before went to comes first: so kube-scheduler 1.36
    was measured to place equal VMs one after the other (docs/spread.md).

    Args:
        hosts: the nodes without these VMs; they stay as they are.
        guests: the VMs in the order in which they are started.
        conditions: the conditions under which they are started.
    """
    chance = random.Random(_SEED)  # noqa: S311 - not for secrets
    copies = [host.copy() for host in hosts]
    last: Host | None = None
    unplaced = 0
    for guest in guests:
        usable = [host for host in copies if host.can_take(guest)]
        if not usable:
            unplaced += 1
            continue
        points = _scores(usable, guest, conditions)
        best = max(points)
        tied = [host for host, score in zip(usable, points, strict=True) if score == best]
        last = last if last is not None and any(host is last for host in tied) else chance.choice(tied)
        last.add_guest(guest)
    return SpreadEstimate.of([host for host in copies if host.is_open], unplaced)


def _scores(hosts: Sequence[Host], guest: VmGuest, conditions: Conditions) -> list[int]:
    profile = conditions.profile or (scores.STOCK if guest.is_stock else scores.OTHER)
    is_spread = guest.is_spread if conditions.is_spread is None else conditions.is_spread
    return scores.total(hosts, guest, profile, conditions.version, conditions.points, is_spread=is_spread)


def sample(hosts: Sequence[Host], guests: Sequence[VmGuest]) -> tuple[list[Host], list[VmGuest]]:
    """As much of a cluster as can be estimated in a moment: an even sample of its nodes and VMs."""
    step = 1
    while (len(hosts) // step) * (len(guests) // step) > MOST_LOOKS:
        step += 1
    return list(hosts[::step]), list(guests[::step])


def count_piled(host: Host, demand: GuestDemand, profile: scores.Profile, version: tuple[int, int]) -> int:
    """How many equal VMs the scheduler puts on one of two equal nodes before the other one looks better.

    Args:
        host: a node without VMs.
        demand: what each VM requests.
        profile: the scheduler's profile, with the weights of its scores.
        version: major and minor version of kube-scheduler.
    """
    other = host.copy()
    used = host.copy()
    number = 0
    while number < _MOST_AT_ONCE:
        used.add(demand)
        number += 1
        if _score(used, demand, profile, version) < _score(other, demand, profile, version):
            break
    return number


def bias(host: Host, demand: GuestDemand, version: tuple[int, int]) -> int:
    """How much more NodeResourcesBalancedAllocation scores a node with one such VM than the node without it."""
    used = host.copy()
    used.add(demand)
    return scores.balance(used, demand, version) - scores.balance(host, demand, version)


def _score(host: Host, demand: GuestDemand, profile: scores.Profile, version: tuple[int, int]) -> int:
    points = profile.fit_weight * scores.fit(host, demand, profile.devices_weight)
    return points + scores.balance(host, demand, version) if profile.balance else points


def _deviation(values: Sequence[float]) -> float:
    return statistics.pstdev(values) if values else 0.0
