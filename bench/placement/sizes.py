"""What launcher pods of VMs request: a recorded one, and KubeVirt's own rule for the instance types of the U series.

The rule is that of KubeVirt 1.9 for a VM without dedicated CPUs on amd64: a tenth of a CPU for each virtual CPU
(``developerConfiguration.cpuAllocationRatio: 10``; pkg/virt-controller/services/renderresources.go,
WithoutDedicatedCPU), the guest's memory, and the overhead of pkg/hypervisor/kvm/hypervisorbackend.go
(GetMemoryOverhead). The U series' sizes are those of kubevirt/common-instancetypes.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

MIB: Final = 1 << 20
GIB: Final = 1 << 30

CPU_ALLOCATION_RATIO: Final = 10
# virt-launcher-monitor, virt-launcher, virtlogd, virtqemud, QEMU, the I/O thread and the video memory.
_FIXED_OVERHEAD_BYTES: Final = (25 + 100 + 25 + 40 + 30 + 8 + 32) * MIB
_OVERHEAD_PER_VCPU_BYTES: Final = 8 * MIB
# The page tables need one bit for every 512 of the guest's memory.
_PAGE_TABLE_RATIO: Final = 512
# The sidecar that reads the guest's console.
_SIDECAR_MILLICPU: Final = 5
_SIDECAR_MEMORY_BYTES: Final = 35_000_000


@dataclass(frozen=True, slots=True)
class PlacementSize:
    """What the launcher pod of one size of VM requests in all."""

    name: str
    cpu_millis: int
    memory_bytes: int

    @property
    def compute_millis(self) -> int:
        """What its compute container requests, in thousandths of a CPU."""
        return self.cpu_millis - _SIDECAR_MILLICPU

    @property
    def compute_bytes(self) -> int:
        """What its compute container requests of memory."""
        return self.memory_bytes - _SIDECAR_MEMORY_BYTES


def launcher_size(name: str, vcpus: int, guest_bytes: int) -> PlacementSize:
    """What KubeVirt requests for a VM of so many virtual CPUs and so much memory."""
    overhead = _FIXED_OVERHEAD_BYTES + _OVERHEAD_PER_VCPU_BYTES * vcpus + guest_bytes // _PAGE_TABLE_RATIO
    return PlacementSize(
        name,
        1000 * vcpus // CPU_ALLOCATION_RATIO + _SIDECAR_MILLICPU,
        guest_bytes + overhead + _SIDECAR_MEMORY_BYTES,
    )


# As recorded in tests/data/captures/pod-create-launcher.json, less its container disk.
RECORDED: Final = PlacementSize("a small VM", 105, 426240 * 1024 + _SIDECAR_MEMORY_BYTES)
INSTANCE_TYPES: Final[Mapping[str, PlacementSize]] = {
    name: launcher_size(name, vcpus, mebibytes * MIB)
    for name, vcpus, mebibytes in (
        ("u1.nano", 1, 512),
        ("u1.micro", 1, 1 << 10),
        ("u1.small", 1, 2 << 10),
        ("u1.medium", 1, 4 << 10),
        ("u1.large", 2, 8 << 10),
        ("u1.xlarge", 4, 16 << 10),
        ("u1.2xlarge", 8, 32 << 10),
        ("u1.4xlarge", 16, 64 << 10),
        ("u1.8xlarge", 32, 128 << 10),
    )
}
# How many of a hundred VMs have which size: most are small, and the few large ones hold much of the memory.
MIXTURE: Final[Mapping[str, int]] = {
    "u1.nano": 10,
    "u1.micro": 15,
    "u1.small": 20,
    "u1.medium": 20,
    "u1.large": 15,
    "u1.xlarge": 10,
    "u1.2xlarge": 6,
    "u1.4xlarge": 3,
    "u1.8xlarge": 1,
}
SMALL: Final = "small"
MIXED: Final = "mixed"


def draw_sizes(which: str, count: int, seed: int) -> Sequence[PlacementSize]:
    """The sizes of so many VMs, the same for the same seed.

    Args:
        which: ``small``, ``mixed``, or the name of an instance type.
    """
    if which == SMALL:
        return [RECORDED] * count
    if which == MIXED:
        drawn = random.Random(seed).choices([*MIXTURE], [*MIXTURE.values()], k=count)  # noqa: S311 - not for secrets
        return [INSTANCE_TYPES[name] for name in drawn]
    return [INSTANCE_TYPES[which]] * count
