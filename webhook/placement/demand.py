"""What the target pod of a migration requests, as far as it is certain.

The VM's present pod shows it: the requests of all its containers, the overhead of its RuntimeClass, devices and the
resources of its networks. KubeVirt renders the target pod anew, though, from the VMI and the settings of that moment
(pkg/virt-controller/services, ``renderresources.go``), and both can have changed since: CPUs and memory are hotplugged
by a migration, admins change the overcommitment, and a network interface can have been removed. What KubeVirt computes
from these is therefore computed here too, and replaces what the present pod shows. Where only a bound is certain, it is
the lower one: a node must never be ruled out by a request that the target pod does not make.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

import msgspec

from webhook.kubevirt.config import DEFAULTS, MEMORY_OVERCOMMIT, ClusterConfig
from webhook.kubevirt.releases.capabilities import REQUESTS_RESERVED_OVERHEAD, REQUESTS_TDX_DEVICE
from webhook.placement import podrequests, resources
from webhook.placement.guest import Devices, Domain, GuestResources, Memory
from webhook.placement.launcher_pods import LauncherPod, LauncherPodSpec
from webhook.placement.node import Node
from webhook.placement.podrequests import Nanos
from webhook.placement.resources import CPU, HUGEPAGES, MEMORY
from webhook.placement.vmis import PlacedVmiSpec, Vmi

_COMPUTE: Final = "compute"
_KUBEVIRT_DEVICES: Final = "devices.kubevirt.io/"
_TDX: Final = f"{_KUBEVIRT_DEVICES}tdx"
_IOMMUFD: Final = f"{_KUBEVIRT_DEVICES}iommufd"
# What KubeVirt's release and gates of now decide: the present pod may have been made by others.
_BY_SETTINGS: Final = frozenset({_TDX, _IOMMUFD})
# On pods of KubeVirt 1.9, and before where the feature gate VmiMemoryOverheadReport is open.
_OVERHEAD: Final = "kubevirt.io/memory-overhead-bytes"
_NANOS: Final = 10**9
# A launcher pod requests about a dozen. A tenant can write thousands into a pod, and each is looked up.
_MOST_RESOURCES: Final = 64


class Demand(msgspec.Struct, frozen=True):
    """What a target pod requests of its node.

    Attributes:
        requests: amounts by resource, in kube-scheduler's unit; sorted by name, without what is zero.
        gaps: what could not be taken into account, clauses.
    """

    requests: dict[str, int]
    gaps: tuple[str, ...] = ()


def of(
    vmi: Vmi, pod: LauncherPod | None = None, node: Node | None = None, configuration: ClusterConfig = DEFAULTS
) -> Demand:
    """What the target pod of a VMI requests at least.

    Args:
        vmi: the VMI that migrates.
        pod: the one that the VM runs in; None: what follows from the VMI alone.
        node: the node where that pod runs; None: it is not known.
        configuration: the cluster's configuration of KubeVirt.
    """
    if pod is None or pod.spec is None or not pod.spec.containers:
        return _within_bounds(_count_units(_render_requests(vmi, {}, None, configuration)), [])
    present = _total(pod.spec, None)
    compute = next((each.requests for each in pod.spec.containers if each and each.name == _COMPUTE), {})
    rendered = _render_requests(vmi, compute, pod, configuration)
    if not compute.keys().isdisjoint(_BY_SETTINGS):
        own = (vmi.domain.resources or GuestResources()).requests or {}
        compute = {name: amount for name, amount in compute.items() if name not in _BY_SETTINGS or name in own}
    wanted = _total(pod.spec, {**compute, **rendered})
    amounts, gaps = _count_units(wanted), []
    again = _Again(vmi)
    for resource, shown in _count_units(present).items():
        if not resources.is_extended(resource) and not resource.startswith(HUGEPAGES):
            continue
        if node is not None and node.lacks(resource, shown):
            amounts.pop(resource, None)
            gaps.append(f"the VM's pod requests more {resource} than its current node offers, so that is not evaluated")
        elif shown > (explained := again.of(resource, shown)):
            amounts[resource] = explained
            gaps.append(f"the VM's pod requests more {resource} than the VM's devices and networks explain")
    if pod.spec.resource_claims:
        gaps.append("the VM's pod claims devices through ResourceClaims, which are not evaluated here")
    return _within_bounds(amounts, gaps)


def _within_bounds(amounts: Mapping[str, int], gaps: list[str]) -> Demand:
    requested = sorted([each for each in amounts.items() if each[1] > 0])
    if more := requested[_MOST_RESOURCES:]:
        gaps.append(f"the VM's pod requests {len(more)} more resources, which are not evaluated here")
    return Demand(dict(requested[:_MOST_RESOURCES]), tuple(gaps[:_MOST_RESOURCES]))


def _count_units(wanted: Nanos) -> dict[str, int]:
    return {
        name: resources.to_scheduler_units(name, value) for name, value in wanted.items() if resources.is_counted(name)
    }


def _total(spec: LauncherPodSpec, compute: Nanos | None) -> Nanos:
    """What a pod requests.

    Args:
        spec: the ``spec`` of the pod.
        compute: requests that replace those of the guest's container, in billionths by resource; None: nothing is
            replaced.
    """
    return podrequests.total(
        [
            compute if compute is not None and each.name == _COMPUTE else each.requests
            for each in spec.containers or ()
            if each
        ],
        [(each.requests, podrequests.is_sidecar(each)) for each in spec.init_containers or () if each],
        pod_level=spec.resources.requests if spec.resources else None,
        overhead=spec.overhead,
    )


def _render_requests(vmi: Vmi, compute: Nanos, pod: LauncherPod | None, configuration: ClusterConfig) -> Nanos:
    """What KubeVirt renders into the container of the guest now, as far as it follows from the VMI.

    Args:
        vmi: the VMI that the container runs.
        compute: the requests of that container in the present pod, in billionths by resource; empty: there is no
            present pod.
        pod: the present launcher pod; None: there is none.
        configuration: the cluster's configuration of KubeVirt.
    """
    domain = vmi.domain
    own = domain.resources or GuestResources()
    explicit = podrequests.read(own.requests or {})
    rendered = {} if pod else {**(domain.devices.requests() if domain.devices else {}), **explicit}
    rendered |= _of_release(domain, configuration)
    is_dedicated = domain.cpu is not None and domain.cpu.dedicated_cpu_placement
    if not is_dedicated and CPU not in explicit and CPU not in (own.limits or {}):
        rendered |= _cpu(domain, compute.get(CPU), configuration.cpu_allocation_ratio)
    memory = domain.memory or Memory()
    overcommit = configuration.memory_overcommit
    guest = _guest(memory)
    asked = explicit.get(MEMORY) or (podrequests.read(own.limits).get(MEMORY) if own.limits else None)
    is_overcommitted = not asked and overcommit > MEMORY_OVERCOMMIT
    if not asked and guest:
        asked = resources.to_scheduler_units(MEMORY, guest) * 100 // overcommit * _NANOS
    if not asked:
        return rendered
    if memory.hugepages:
        rendered.pop(MEMORY, None)
        return {**rendered, HUGEPAGES + (memory.hugepages.page_size or ""): min(asked, guest or asked)}
    if own.overcommit_guest_overhead:
        return {**rendered, MEMORY: asked}
    requested = _memory(asked, compute.get(MEMORY, 0), guest if is_overcommitted else None, pod)
    return {**rendered, MEMORY: max(asked + _reserved_overhead(memory, configuration), requested)}


def _of_release(domain: Domain, configuration: ClusterConfig) -> Nanos:
    """The devices that some releases request: an older one may have made the present pod, without them."""
    security, requested = domain.launch_security, {}
    if security and security.tdx is not None and configuration.release.has(REQUESTS_TDX_DEVICE):
        requested[_TDX] = _NANOS
    if configuration.is_gate_open("IOMMUFD"):
        requested[_IOMMUFD] = _NANOS
    return requested


def _reserved_overhead(memory: Memory, configuration: ClusterConfig) -> int:
    """The overhead that the VM's owner has reserved."""
    added = memory.reserved_overhead.added_overhead if memory.reserved_overhead else None
    if added is None or not configuration.release.has(REQUESTS_RESERVED_OVERHEAD):
        return 0
    return resources.nanos(added) or 0


def _guest(memory: Memory) -> int | None:
    """The guest's memory, which is one huge page where nothing else is said."""
    size = memory.guest
    if size is None and memory.hugepages:
        size = memory.hugepages.page_size
    return None if size is None else resources.nanos(size)


def _cpu(domain: Domain, present: int | None, ratio: int) -> Nanos:
    """The vCPUs by the allocation ratio. Only newer KubeVirts count the threads of an I/O pool: either is possible."""
    vcpus = domain.cpu.vcpus if domain.cpu else 1
    threads = domain.io_threads
    least = vcpus * _NANOS // ratio
    most = -(-(vcpus + ((threads.supplemental_pool_thread_count if threads else None) or 0)) * _NANOS // ratio)
    amount = least if present is None else min(max(present, least), most)
    return {CPU: amount} if amount else {}


def _memory(asked: int, present: int, overcommitted: int | None, pod: LauncherPod | None) -> int:
    """The memory that KubeVirt requests for the guest, with its overhead, which the present pod shows.

    Args:
        asked: the memory that the VM requests now, without overhead.
        present: the memory that the present pod requests, with overhead.
        overcommitted: the guest's memory where the settings request less of it, else None. The settings may have been
            stricter when the present pod was created, so the overhead is known only where an annotation states it.
        pod: the present launcher pod; None: there is none.
    """
    annotation = pod.meta.annotation(_OVERHEAD) if pod else None
    told = resources.nanos(annotation) if annotation else None
    if told:
        return asked + told
    if overcommitted is None:
        return max(asked, present)
    return max(asked, min(present, asked + max(0, present - overcommitted)))


class _Again:
    """How much of each extended resource KubeVirt requests again.

    A device plugin's resource comes from the guest's devices, from its own requests, or from a network's
    NetworkAttachmentDefinition, each network one. A network that was removed since is not requested again. All of it
    is read once: a tenant's VMI may name thousands of resources.
    """

    def __init__(self, vmi: Vmi) -> None:
        own = vmi.domain.resources
        self._explicit: Final = podrequests.read((own.requests if own else None) or {})
        self._devices: Final = (vmi.domain.devices or Devices()).by_resource()
        self._networks: Final = sum(1 for _ in _networks(vmi.spec or PlacedVmiSpec()))

    def of(self, resource: str, shown: int) -> int:
        """So much of a resource of which the present pod requests ``shown``, in kube-scheduler's unit."""
        if resource.startswith((_KUBEVIRT_DEVICES, HUGEPAGES)):
            return shown
        explicit = self._explicit.get(resource)
        certain = self._devices[resource] if explicit is None else resources.to_scheduler_units(resource, explicit)
        return min(shown, certain + self._networks)


def _networks(spec: PlacedVmiSpec) -> Iterator[object]:
    return (each.multus for each in spec.networks or () if each and each.multus is not None)
