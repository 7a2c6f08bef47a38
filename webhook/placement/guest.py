"""The fields of a VMI's ``spec.domain``: the hardware of its guest, by which nodes are chosen."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any, Final

from webhook.k8s.views import View
from webhook.placement.podrequests import Nanos, ResourceRequirements


class Hugepages(View, frozen=True):
    """``spec.domain.memory.hugepages`` of a VMI."""

    page_size: str | None = None


class ReservedOverhead(View, frozen=True):
    """``spec.domain.memory.reservedOverhead`` of a VMI."""

    added_overhead: str | int | float | None = None


class Memory(View, frozen=True):
    """``spec.domain.memory`` of a VMI; the amounts are quantities."""

    guest: str | int | float | None = None
    hugepages: Hugepages | None = None
    reserved_overhead: ReservedOverhead | None = None


class GuestResources(ResourceRequirements, frozen=True):
    """``spec.domain.resources`` of a VMI."""

    overcommit_guest_overhead: bool | None = None


class IoThreads(View, frozen=True):
    """``spec.domain.ioThreads`` of a VMI."""

    supplemental_pool_thread_count: int | None = None


class HostDevice(View, frozen=True):
    """One of ``gpus`` or ``hostDevices``; one with a claim's name comes from a DRA driver, not from a device plugin."""

    device_name: str | None = None
    claim_name: str | None = None


class Lun(View, frozen=True):
    """``lun`` of one of a VMI's disks."""

    reservation: bool | None = None


class Disk(View, frozen=True):
    """One of the ``spec.domain.devices.disks`` of a VMI."""

    lun: Lun | None = None


class Devices(View, frozen=True):
    """``spec.domain.devices`` of a VMI, as far as they need resources of a node."""

    disks: list[Disk | None] | None = None
    gpus: list[HostDevice | None] | None = None
    host_devices: list[HostDevice | None] | None = None

    def by_resource(self) -> Counter[str]:
        """How many devices of each resource the guest has; KubeVirt's ``permittedHostDevices`` name the resources."""
        devices = (*(self.gpus or ()), *(self.host_devices or ()))
        return Counter(each.device_name for each in devices if each and each.device_name and not each.claim_name)

    @property
    def reserves_persistently(self) -> bool:
        """Whether a disk takes a persistent reservation of its LUN."""
        return any(disk and disk.lun and disk.lun.reservation for disk in self.disks or ())

    def requests(self) -> Nanos:
        """What KubeVirt requests for them."""
        if not (self.gpus or self.host_devices):
            return {}
        return {resource: count * 10**9 for resource, count in self.by_resource().items()}


class CpuFeature(View, frozen=True):
    """One of the ``spec.domain.cpu.features`` of a VMI."""

    name: str | None = None
    policy: str | None = None


class Cpu(View, frozen=True):
    """``spec.domain.cpu`` of a VMI."""

    cores: int | None = None
    sockets: int | None = None
    threads: int | None = None
    model: str | None = None
    dedicated_cpu_placement: bool | None = None
    features: list[CpuFeature] | None = None
    realtime: dict[str, Any] | None = None

    @property
    def vcpus(self) -> int:
        """The product of what is given; 0: nothing is (KubeVirt, pkg/util/hardware, GetNumberOfVCPUs)."""
        given = [count for count in (self.cores, self.sockets, self.threads) if count]
        return math.prod(given) if given else 0

    def features_with(self, *policies: str) -> list[str]:
        """The names of the features that have one of these policies; ``""`` for none."""
        if not self.features:
            return []
        return [feature.name or "" for feature in self.features or () if (feature.policy or "") in policies]


NO_CPU: Final = Cpu()


class Machine(View, frozen=True):
    """``spec.domain.machine`` or ``status.machine`` of a VMI."""

    type: str | None = None


class FeatureState(View, frozen=True):
    """The state of one Hyper-V feature (KubeVirt, FeatureState); ``enabled`` may be absent."""

    enabled: bool | None = None


class DomainFeatures(View, frozen=True):
    """``spec.domain.features`` of a VMI, with the Hyper-V features by their JSON names."""

    hyperv: dict[str, FeatureState | None] | None = None


class SevPolicy(View, frozen=True):
    """``spec.domain.launchSecurity.sev.policy`` of a VMI."""

    encrypted_state: bool | None = None


class Sev(View, frozen=True):
    """``spec.domain.launchSecurity.sev`` of a VMI."""

    policy: SevPolicy | None = None


class LaunchSecurity(View, frozen=True):
    """``spec.domain.launchSecurity`` of a VMI; of SNP and TDX only their presence counts."""

    sev: Sev | None = None
    snp: dict[str, Any] | None = None
    tdx: dict[str, Any] | None = None


class Domain(View, frozen=True):
    """``spec.domain`` of a VMI (KubeVirt, api/core/v1, DomainSpec)."""

    cpu: Cpu | None = None
    memory: Memory | None = None
    resources: GuestResources | None = None
    io_threads: IoThreads | None = None
    devices: Devices | None = None
    machine: Machine | None = None
    features: DomainFeatures | None = None
    launch_security: LaunchSecurity | None = None


NO_DOMAIN: Final = Domain()
