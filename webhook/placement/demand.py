"""What a pod requests of its node, and what the target pod of a migration requests, as far as it is certain.

The sum over a pod's containers is that of k8s.io/component-helpers (resource, ``PodRequests``).

The VM's present pod shows what the target pod requests: the requests of all its containers, the overhead of its
RuntimeClass, devices and the resources of its networks. KubeVirt renders the target pod again, though, from the VMI and
the settings of that moment (pkg/virt-controller/services, ``renderresources.go``), and both can have changed since:
CPUs and memory are hotplugged by a migration, admins change the overcommitment, and a network interface can have been
removed. What KubeVirt computes from these is therefore computed here too, and replaces what the present pod shows.
Where only a bound is certain, it is the lower one: a node must never be ruled out by a request that the target pod does
not make.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

import msgspec

from webhook.k8s.quantity import Nanos, ResourceList, nanos, read_resource_list
from webhook.k8s.types.core import ContainerRequests, PodSpec
from webhook.kubevirt.config import DEFAULTS, MEMORY_OVERCOMMIT, ClusterConfig
from webhook.kubevirt.releases.capabilities import REQUESTS_RESERVED_OVERHEAD, REQUESTS_TDX_DEVICE, UNRELEASED
from webhook.placement import machines
from webhook.placement.nodes import (
    CPU,
    HUGEPAGES,
    MEMORY,
    POD_SLOTS,
    Node,
    is_counted_resource,
    is_extended_resource,
    to_scheduler_units,
)
from webhook.placement.scores import Load

_POD_LEVEL: Final = (CPU, MEMORY)
# What kube-scheduler counts of anything, at most.
_MOST: Final = 2**63 - 1
# What NodeResourcesFit scores for a container that requests nothing (pkg/scheduler/util, pod_resources.go), billionths.
_ASSUMED: Final = {CPU: 100 * 10**6, MEMORY: 200 * 2**20 * 10**9}


NOTHING: Final[Nanos] = {}


def sum_requests(
    containers: Iterable[Nanos],
    init_containers: Iterable[tuple[Nanos, bool]] = (),
    *,
    pod_level: ResourceList | None = None,
    overhead: ResourceList | None = None,
) -> Nanos:
    """The sum of what runs together, or what an init container needs where that is more.

    Args:
        containers: the requests of each container, in billionths by resource.
        init_containers: their requests in order, each with whether it is a sidecar (restartPolicy Always).
        pod_level: the pod's own requests, which replace those of its containers: CPU, memory and huge pages.
        overhead: the overhead of the pod's RuntimeClass, as quantities.
    """
    whole: Nanos = {}
    for each in containers:
        _add(whole, each)
    sidecars: Nanos = {}
    most: Nanos = {}
    for each, is_sidecar in init_containers:
        for name, value in each.items():
            needed = sidecars.get(name, 0) + value
            most[name] = max(most.get(name, 0), needed)
            if is_sidecar:
                sidecars[name] = needed
                whole[name] = whole.get(name, 0) + value
    for name, needed in most.items():
        whole[name] = max(whole.get(name, 0), needed)
    replaced = read_resource_list(pod_level or {})
    whole |= {name: value for name, value in replaced.items() if name in _POD_LEVEL or name.startswith(HUGEPAGES)}
    _add(whole, read_resource_list(overhead or {}))
    return whole


def is_sidecar(container: ContainerRequests) -> bool:
    """Whether an init container keeps running beside the containers."""
    return container.restart_policy == "Always"


def pod_requests(
    spec: machines.LauncherPodSpec | PodSpec, compute: Nanos | None = None, assumed: Nanos = NOTHING
) -> Nanos:
    """What a pod requests, in billionths by resource.

    Args:
        spec: of the pod.
        compute: replaces the requests of the guest's container.
        assumed: what counts for a container that does not request it.
    """
    containers = [each for each in spec.containers or () if each]
    own = [each.requests if compute is None or each.name != COMPUTE else compute for each in containers]
    inits = [(assumed | each.requests, is_sidecar(each)) for each in spec.init_containers or () if each]
    pod_level = spec.resources.requests if spec.resources else None
    return sum_requests([assumed | each for each in own], inits, pod_level=pod_level, overhead=spec.overhead)


NO_LOAD: Final = Load({POD_SLOTS: 1}, 0, 0)


def load_of(spec: machines.LauncherPodSpec | PodSpec | None) -> Load:
    """What a pod takes of its node."""
    if spec is None:
        return NO_LOAD
    requested, scored = pod_requests(spec), count_units(pod_requests(spec, assumed=_ASSUMED))
    positive = {name: min(amount, _MOST) for name, amount in count_units(requested).items() if amount > 0}
    cpu, memory = (min(max(0, scored.get(name, 0)), _MOST) for name in (CPU, MEMORY))
    return Load({POD_SLOTS: 1, **positive}, cpu, memory)


def load_of_target(requests: Mapping[str, int], source: Load | None) -> Load:
    """What a target pod takes of its node: requests by resource, and for scores what is assumed beside them.

    ``source`` is the load of the pod that the VM runs in, in which the same containers request nothing; None: unknown.
    """
    assumed = count_units(_ASSUMED) if source is None else {}
    cpu, memory = requests.get(CPU) or assumed.get(CPU, 0), requests.get(MEMORY) or assumed.get(MEMORY, 0)
    if source is not None:
        cpu += source.cpu - source.requests.get(CPU, 0)
        memory += source.memory - source.requests.get(MEMORY, 0)
    return Load({POD_SLOTS: 1, **requests}, cpu, memory)


def count_units(requests: Nanos) -> dict[str, int]:
    """What kube-scheduler counts of requests, in its unit."""
    return {name: to_scheduler_units(name, value) for name, value in requests.items() if is_counted_resource(name)}


def _add(whole: Nanos, more: Mapping[str, int]) -> None:
    for name, value in more.items():
        whole[name] = whole.get(name, 0) + value


# The container in which KubeVirt runs the guest.
COMPUTE: Final = "compute"
KUBEVIRT_DEVICES: Final = "devices.kubevirt.io/"
_TDX: Final = f"{KUBEVIRT_DEVICES}tdx"
_VIRTIO: Final = "virtio"
_IOMMUFD: Final = f"{KUBEVIRT_DEVICES}iommufd"
# What KubeVirt's release and gates of now decide: the present pod may have been made by others.
_BY_SETTINGS: Final = frozenset({_TDX, _IOMMUFD})
# On pods of KubeVirt 1.9, and before where the feature gate VmiMemoryOverheadReport is open.
MEMORY_OVERHEAD: Final = "kubevirt.io/memory-overhead-bytes"
_NANOS: Final = 10**9
# 50Mi instead of 30Mi (pkg/hypervisor, QemuOverhead, in main). No known release has it, so it is no capability.
_QEMU_GROWTH: Final = 20 * 2**20
# A launcher pod requests about a dozen. A tenant can write thousands into a pod, and each is looked up.
_MOST_RESOURCES: Final = 64


class Demand(msgspec.Struct, frozen=True):
    """What a target pod requests of its node.

    Attributes:
        requests: amounts by resource, in kube-scheduler's unit; sorted by name, without what is zero.
    """

    requests: dict[str, int]
    gaps: tuple[str, ...] = ()


def target_pod_demand(
    vmi: machines.Vmi,
    pod: machines.LauncherPod | None = None,
    node: Node | None = None,
    configuration: ClusterConfig = DEFAULTS,
    reports: Callable[[str], bool] = lambda _: False,
) -> Demand:
    """What the target pod of a VMI requests at least; without the pod that the VM runs in, what follows from the VMI.

    Args:
        vmi: the VMI.
        pod: the pod that the VM runs in; None: there is none, or it is not known.
        node: where that pod runs; None: not known.
        configuration: KubeVirt's.
        reports: whether any node reports a resource. Without a pod KubeVirt's devices count only where one does: where
            none does, what is known of the nodes is not complete.
    """
    if pod is None or pod.spec is None or not pod.spec.containers:
        rendered = _render_requests(vmi, {}, None, configuration)
        devices = {name: _NANOS for name in _kubevirt_devices(vmi, configuration) if reports(name)}
        return _within_bounds(count_units(devices | rendered), [])
    present = pod_requests(pod.spec)
    compute = next((each.requests for each in pod.spec.containers if each and each.name == COMPUTE), {})
    rendered = _render_requests(vmi, compute, pod, configuration)
    if not compute.keys().isdisjoint(_BY_SETTINGS):
        own = (vmi.domain.resources or machines.GuestResources()).requests or {}
        compute = {name: amount for name, amount in compute.items() if name not in _BY_SETTINGS or name in own}
    requests = pod_requests(pod.spec, {**compute, **rendered})
    if MEMORY in requests and not (vmi.domain.resources and vmi.domain.resources.overcommit_guest_overhead):
        requests[MEMORY] += qemu_growth(configuration) * _NANOS
    amounts, gaps = count_units(requests), []
    for resource, shown, explained in _explain(vmi, count_units(present)):
        if node is not None and node.lacks(resource, shown):
            amounts.pop(resource, None)
            gaps.append(f"the VM's pod requests more {resource} than its current node offers, so that is not evaluated")
        elif shown > explained:
            amounts[resource] = explained
            gaps.append(f"the VM's pod requests more {resource} than the VM's devices and networks explain")
    if pod.spec.resource_claims:
        gaps.append("the VM's pod claims devices through ResourceClaims, which are not evaluated here")
    return _within_bounds(amounts, gaps)


def qemu_growth(configuration: ClusterConfig) -> int:
    """By how many bytes more the release of now requests for QEMU than the one that made a launcher pod."""
    before, now = configuration.launchers_of or configuration.release, configuration.release
    if not before.version < UNRELEASED <= now.version:
        return 0
    try:
        return int(_QEMU_GROWTH * float(configuration.overhead_ratio or 1))
    except (ValueError, OverflowError):
        return _QEMU_GROWTH


def _within_bounds(amounts: Mapping[str, int], gaps: list[str]) -> Demand:
    positive = sorted([each for each in amounts.items() if each[1] > 0])
    if more := positive[_MOST_RESOURCES:]:
        gaps.append(f"the VM's pod requests {len(more)} more resources, which are not evaluated here")
    return Demand(dict(positive[:_MOST_RESOURCES]), tuple(gaps[:_MOST_RESOURCES]))


def _render_requests(
    vmi: machines.Vmi, compute: Nanos, pod: machines.LauncherPod | None, configuration: ClusterConfig
) -> Nanos:
    """What KubeVirt renders into the container of the guest now, as far as it follows from the VMI.

    ``compute`` has the requests of that container in the present pod, in billionths by resource.
    """
    domain = vmi.domain
    own = domain.resources or machines.GuestResources()
    explicit = read_resource_list(own.requests or {})
    rendered = {} if pod else {**(domain.devices.requests() if domain.devices else {}), **explicit}
    rendered |= _of_release(domain, configuration)
    is_dedicated = domain.cpu is not None and bool(domain.cpu.dedicated_cpu_placement)
    if is_dedicated and pod is None:
        rendered |= _pinned(vmi.cpu)
    elif not is_dedicated and CPU not in explicit and CPU not in (own.limits or {}):
        rendered |= _cpu(domain, compute.get(CPU), configuration.cpu_allocation_ratio)
    memory = domain.memory or machines.Memory()
    overcommit = configuration.memory_overcommit
    guest = _guest(memory)
    base = explicit.get(MEMORY) or (read_resource_list(own.limits).get(MEMORY) if own.limits else None)
    is_overcommitted = not base and overcommit > MEMORY_OVERCOMMIT
    if not base and guest:
        base = to_scheduler_units(MEMORY, guest) * 100 // overcommit * _NANOS
    if not base:
        return rendered
    overhead = 0 if pod else _least_overhead(vmi, explicit.get(MEMORY, 0), configuration)
    if memory.hugepages:
        rendered.pop(MEMORY, None)
        if overhead:
            rendered[MEMORY] = overhead + max(0, base - (guest or base))
        return {**rendered, HUGEPAGES + (memory.hugepages.page_size or ""): min(base, guest or base)}
    if own.overcommit_guest_overhead:
        return {**rendered, MEMORY: base}
    if pod is None:
        return {**rendered, MEMORY: base + overhead}
    with_overhead = _memory(base, compute.get(MEMORY, 0), guest if is_overcommitted else None, pod)
    return {**rendered, MEMORY: max(base + _reserved_overhead(vmi, configuration), with_overhead)}


def _kubevirt_devices(vmi: machines.Vmi, configuration: ClusterConfig) -> Iterator[str]:
    """KubeVirt's devices beside KVM that a new pod requests, one each (``getRequiredResources``, and its options)."""
    devices, security = vmi.domain.devices or machines.Devices(), vmi.domain.launch_security
    interfaces = [each for each in devices.interfaces or () if each]
    if interfaces or devices.autoattach_pod_interface is not False:
        yield f"{KUBEVIRT_DEVICES}tun"
    if not configuration.use_emulation and any((each.model or _VIRTIO) == _VIRTIO for each in interfaces):
        yield f"{KUBEVIRT_DEVICES}vhost-net"
    if devices.autoattach_vsock:
        yield f"{KUBEVIRT_DEVICES}vhost-vsock"
    if security and (security.sev is not None or security.snp is not None):
        yield f"{KUBEVIRT_DEVICES}sev"
    if devices.reserves_persistently:
        yield f"{KUBEVIRT_DEVICES}pr-helper"


def _of_release(domain: machines.Domain, configuration: ClusterConfig) -> Nanos:
    """The devices that some releases request: an older one may have made the present pod, without them."""
    security, devices = domain.launch_security, {}
    if security and security.tdx is not None and configuration.release.has(REQUESTS_TDX_DEVICE):
        devices[_TDX] = _NANOS
    if configuration.is_gate_open("IOMMUFD"):
        devices[_IOMMUFD] = _NANOS
    return devices


def _guest(memory: machines.Memory) -> int | None:
    """The guest's memory, which is one huge page where nothing else is said."""
    size = memory.guest
    if size is None and memory.hugepages:
        size = memory.hugepages.page_size
    return None if size is None else nanos(size)


def _cpu(domain: machines.Domain, present: int | None, ratio: int) -> Nanos:
    """The vCPUs by the allocation ratio. Only newer KubeVirts count the threads of an I/O pool: either is possible."""
    vcpus = domain.cpu.vcpus if domain.cpu else 1
    threads = domain.io_threads
    least = vcpus * _NANOS // ratio
    most = -(-(vcpus + ((threads.supplemental_pool_thread_count if threads else None) or 0)) * _NANOS // ratio)
    amount = least if present is None else min(max(present, least), most)
    return {CPU: amount} if amount else {}


def _pinned(cpu: machines.Cpu) -> Nanos:
    """The CPUs of a guest with dedicated ones, and at least one for the emulator where it has its own."""
    vcpus = cpu.vcpus
    return {CPU: (vcpus + bool(cpu.isolate_emulator_thread)) * _NANOS} if vcpus else {}


def _reserved_overhead(vmi: machines.Vmi, configuration: ClusterConfig) -> int:
    """The overhead that the VM's owner has reserved, in billionths."""
    reserved = vmi.domain.memory.reserved_overhead if vmi.domain.memory else None
    added = reserved.added_overhead if reserved else None
    if added is None or not configuration.release.has(REQUESTS_RESERVED_OVERHEAD):
        return 0
    return nanos(added) or 0


_MEBI: Final = 2**20
# virt-launcher-monitor, virt-launcher, virtlogd, virtqemud and QEMU, the same from 1.6 on.
_PROCESSES: Final = (25 + 100 + 25 + 40 + 30) * _MEBI
_OF_IO_THREAD: Final = 8 * _MEBI
_OF_VCPU: Final = 8 * _MEBI
_OF_GRAPHICS: Final = 32 * _MEBI
_OF_HOST_DEVICES: Final = 1024 * _MEBI
_OF_DEDICATED_CPUS: Final = 100 * _MEBI
_PER_PAGETABLE_BYTE: Final = 512


def _least_overhead(vmi: machines.Vmi, requested: int, configuration: ClusterConfig) -> int:
    """The memory beside the guest's that KubeVirt requests at least, in billionths (pkg/hypervisor, GetMemoryOverhead).

    What only some guests have (probes, TPM, SEV, downward metrics, network plugins) is left out. ``requested`` is the
    memory that the VM itself requests, in billionths.
    """
    cpu, devices = vmi.cpu, vmi.domain.devices or machines.Devices()
    overhead = _PROCESSES + _OF_IO_THREAD + max(cpu.vcpus, 1) * _OF_VCPU + requested // _NANOS // _PER_PAGETABLE_BYTE
    if devices.autoattach_graphics_device is not False:
        overhead += _OF_GRAPHICS
    if devices.gpus or devices.host_devices:
        overhead += _OF_HOST_DEVICES
    if cpu.dedicated_cpu_placement:
        overhead += _OF_DEDICATED_CPUS
    overhead += _reserved_overhead(vmi, configuration) // _NANOS
    try:
        ratio = float(configuration.overhead_ratio or 1)
        # KubeVirt multiplies thousands of bytes.
        return max(0, int(overhead * ratio) - 1000 * (ratio != 1)) * _NANOS
    except (ValueError, OverflowError):
        return overhead * _NANOS


def _memory(base: int, present: int, overcommitted: int | None, pod: machines.LauncherPod) -> int:
    """The memory that KubeVirt requests for the guest, with its overhead, which the present pod's request has too.

    The VM requests ``base`` now, without overhead. Where the settings request less than the guest's memory, that is
    ``overcommitted``. They may have been stricter when the present pod was created, so the overhead is then known only
    where an annotation states it.
    """
    annotation = pod.meta.annotation(MEMORY_OVERHEAD)
    overhead = nanos(annotation) if annotation else None
    if overhead:
        return base + overhead
    if overcommitted is None:
        return max(base, present)
    return max(base, min(present, base + max(0, present - overcommitted)))


def _explain(vmi: machines.Vmi, present: Mapping[str, int]) -> Iterator[tuple[str, int, int]]:
    """What the present pod requests of each extended resource, and how much of it KubeVirt requests again.

    A device plugin's resource comes from the guest's devices, from its own requests, or from a network's
    NetworkAttachmentDefinition, each network one. A network that was removed since is not requested again.
    """
    own, spec = vmi.domain.resources, vmi.spec or machines.PlacedVmiSpec()
    explicit = read_resource_list((own.requests if own else None) or {})
    devices = (vmi.domain.devices or machines.Devices()).by_resource()
    networks = len([each for each in spec.networks or () if each and each.multus is not None])
    for resource, shown in present.items():
        if not is_extended_resource(resource) and not resource.startswith(HUGEPAGES):
            continue
        if resource.startswith((KUBEVIRT_DEVICES, HUGEPAGES)):
            yield resource, shown, shown
        else:
            written = explicit.get(resource)
            certain = devices.get(resource, 0) if written is None else to_scheduler_units(resource, written)
            yield resource, shown, min(shown, certain + networks)
