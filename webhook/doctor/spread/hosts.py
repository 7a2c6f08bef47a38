"""Nodes and launcher pods as kube-scheduler's scores look at them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class GuestDemand:
    """What a pod requests, and what NodeResourcesFit counts for it.

    Attributes:
        cpu: requested thousandths of a CPU.
        memory: requested bytes.
        devices: KVM devices.
        scored_cpu: the sum of CPU requests, with an assumed amount for containers that request none.
        scored_memory: the sum of memory requests, with an assumed amount for containers that request none.
    """

    cpu: int
    memory: int
    devices: int = 0
    scored_cpu: int = 0
    scored_memory: int = 0

    @classmethod
    def of(cls, cpu: int, memory: int, devices: int = 0) -> GuestDemand:
        """That of a pod whose containers all request CPU and memory."""
        return cls(cpu, memory, devices, cpu, memory)


@dataclass(frozen=True, slots=True)
class VmGuest:
    """A launcher pod, which a node is to be found for.

    Attributes:
        node: where it is now.
        selector: the labels that it requires of its node.
        is_spread: it has a topology spread constraint on host names.
        is_stock: the default scheduler places it.
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
        cpu: allocatable thousandths of a CPU.
        memory: allocatable bytes.
        devices: allocatable KVM devices; 0 for none.
        pods: how many pods it takes.
        lists_image: its status lists the launcher's image.
        is_open: new VMs can go there.
    """

    name: str
    cpu: int
    memory: int
    devices: int = 0
    pods: int = 110
    lists_image: bool = True
    labels: Mapping[str, str] = field(default_factory=dict)
    is_open: bool = True
    used_cpu: int = 0
    used_memory: int = 0
    used_devices: int = 0
    used_pods: int = 0
    scored_cpu: int = 0
    scored_memory: int = 0
    guests: Counter[str] = field(default_factory=Counter)

    def add(self, demand: GuestDemand) -> None:
        """Add a pod's requests to the node."""
        self.used_cpu += demand.cpu
        self.used_memory += demand.memory
        self.used_devices += demand.devices
        self.used_pods += 1
        self.scored_cpu += demand.scored_cpu
        self.scored_memory += demand.scored_memory

    def add_guest(self, guest: VmGuest) -> None:
        """Add a launcher pod to the node."""
        self.add(guest.demand)
        self.guests[guest.namespace] += 1

    def copy(self) -> Host:
        """A copy of the node, to which other pods can be added."""
        return Host(
            *(self.name, self.cpu, self.memory, self.devices, self.pods, self.lists_image, self.labels, self.is_open),
            *(self.used_cpu, self.used_memory, self.used_devices, self.used_pods),
            *(self.scored_cpu, self.scored_memory),
            Counter(self.guests),
        )

    def can_take(self, guest: VmGuest) -> bool:
        """Whether it is open, has room, and has the labels that the pod requires."""
        demand = guest.demand
        return (
            self.is_open
            and self.used_pods < self.pods
            and self.used_cpu + demand.cpu <= self.cpu
            and self.used_memory + demand.memory <= self.memory
            and (not demand.devices or self.used_devices + demand.devices <= self.devices)
            and all(self.labels.get(key) == value for key, value in guest.selector.items())
        )

    @property
    def count(self) -> int:
        """The number of launcher pods on the node."""
        return self.guests.total()

    @property
    def cpu_percent(self) -> float:
        """Its requested CPU, as a percentage of what it offers."""
        return 100 * self.used_cpu / self.cpu if self.cpu else 0.0

    @property
    def memory_percent(self) -> float:
        """Its requested memory, as a percentage of what it offers."""
        return 100 * self.used_memory / self.memory if self.memory else 0.0
