"""What KubeVirt sets by default in the spec of a VMI (KubeVirt, pkg/defaults, pkg/liveupdate)."""

from __future__ import annotations

from contextlib import suppress
from typing import Final

from webhook.errors import InputError
from webhook.k8s import quantity
from webhook.k8s.quantity import Computed, Format, Quantity, int64
from webhook.kubevirt.config import AMD64, MEMORY_OVERCOMMIT, ClusterConfig
from webhook.kubevirt.go_json.origins import FieldOrigin, Note, ignore
from webhook.kubevirt.go_json.structs import Json, copy_json
from webhook.kubevirt.rejection import Rejection
from webhook.kubevirt.releases.capabilities import REQUESTS_GUEST_MEMORY

_SPINLOCK_RETRIES: Final = 4096
_VMX: Final = "vmx"
# Which feature needs which, in KubeVirt's order: a dependency may itself depend on one below.
_DEPENDENCIES: Final = (
    ("evmcs", "vapic"),
    ("ipi", "vpindex"),
    ("tlbflush", "vpindex"),
    ("synictimer", "synic"),
    ("synic", "vpindex"),
)


def enable(features: Json) -> None:
    """Every feature that is mentioned without saying whether it is enabled is; ACPI always."""
    hyperv = features.get("hyperv", {})
    states = [features.setdefault("acpi", {})]
    states += [features[name] for name in ("apic", "smm", "pvspinlock") if name in features]
    states += hyperv.values()
    for name, members in (("synictimer", ("direct",)), ("tlbflush", ("direct", "extended"))):
        states += [hyperv[name][member] for member in members if member in hyperv.get(name, {})]
    for state in states:
        state.setdefault("enabled", True)
    if hyperv.get("spinlocks", {}).get("enabled"):
        hyperv["spinlocks"].setdefault("spinlocks", _SPINLOCK_RETRIES)


def complete_hyperv(domain: Json) -> None:
    """Enable what enabled Hyper-V features need. One that is disabled on purpose ends the matter, as in KubeVirt."""
    hyperv = domain["features"].get("hyperv")
    if hyperv is None:
        return
    for feature, dependency in _DEPENDENCIES:
        if not hyperv.get(feature, {}).get("enabled"):
            continue
        if hyperv.setdefault(dependency, {}).setdefault("enabled", True) is False:
            return
    if hyperv.get("evmcs", {}).get("enabled", "evmcs" in hyperv):
        features = domain.setdefault("cpu", {}).setdefault("features", [])
        vmx = next((feature for feature in features if feature["name"] == _VMX), None)
        if vmx is None:
            vmx = {"name": _VMX}
            features.append(vmx)
        vmx["policy"] = "require"


_MAX_VCPUS: Final = 512
_MIB: Final = 2**20
_GIB: Final = 2**30


def max_sockets(cpu: Json, configuration: ClusterConfig, note: Note) -> None:
    """The most sockets that the VMI may get, where the user has not said so."""
    if cpu.get("maxSockets"):
        return
    sockets = cpu.get("sockets", 0)
    if configuration.max_cpu_sockets:
        cpu["maxSockets"] = max(configuration.max_cpu_sockets, sockets)
        note(FieldOrigin.CLUSTER)
        return
    # uint32 in Go, which wraps around.
    most = sockets * configuration.max_hotplug_ratio % 2**32
    siblings = cpu.get("cores", 0) * cpu.get("threads", 0) % 2**32
    if most * siblings % 2**32 > _MAX_VCPUS:
        most = max(_MAX_VCPUS // siblings, sockets)
    cpu["maxSockets"] = most
    note(configuration.origin("max_hotplug_ratio"))


def max_guest(domain: Json, architecture: str, configuration: ClusterConfig, note: Note) -> None:
    """The most memory that the guest may get, where the user has not said so and memory can be plugged at all."""
    memory = domain.get("memory", {})
    if "guest" not in memory or "maxGuest" in memory:
        return
    guest = quantity.parse(memory["guest"])
    most, origin = configuration.max_guest, FieldOrigin.CLUSTER
    if most is None:
        most = Quantity.of(int64(guest.value * configuration.max_hotplug_ratio), Format.BINARY_SI)
        origin = configuration.origin("max_hotplug_ratio")
    if architecture == AMD64 and _pluggable(domain, guest, most):
        memory["maxGuest"] = str(most)
        note(origin)


def _pluggable(domain: Json, guest: Quantity, most: Quantity) -> bool:
    cpu = domain.get("cpu", {})
    if "realtime" in cpu or "guestMappingPassthrough" in cpu.get("numa", {}) or "launchSecurity" in domain:
        return False
    page = domain["memory"].get("hugepages", {}).get("pageSize")
    block = _GIB if page == "1Gi" else 2 * _MIB
    aligned = guest.value % block == 0 and most.value % block == 0
    return aligned and guest.value >= _GIB and guest <= most


_NETWORK: Final = "default"
_INPUT: Final = "default-0"
# What a VMI's ``spec.domain`` says about its size.
_SIZES: Final = ("cpu", "memory", "resources")


def disks(spec: Json) -> None:
    """A disk, without device or bus, for every volume that no disk and no filesystem is named after.

    The names are those from before: a volume that is there twice gets two disks.
    """
    devices, volumes = spec["domain"]["devices"], spec.get("volumes", [])
    names = {device["name"] for kind in ("disks", "filesystems") for device in devices.get(kind, ())}
    added = [{"name": volume["name"]} for volume in volumes if volume["name"] not in names]
    if added:
        devices["disks"] = devices.get("disks", []) + added


def network_interface(spec: Json, configuration: ClusterConfig) -> None:
    """An interface on the pod network, where there is neither network nor interface and none is declined.

    Raises:
        Rejection: the cluster's settings forbid the interface that is their default.
    """
    devices = spec["domain"]["devices"]
    if devices.get("autoattachPodInterface") is False or spec.get("networks") or devices.get("interfaces"):
        return
    kind = configuration.network_interface
    if kind == "slirp":
        raise Rejection("slirp interface is deprecated as of v1.3")
    if kind == "bridge" and not configuration.permit_bridge:
        raise Rejection("bridge interface is not enabled in kubevirt-config")
    devices["interfaces"] = [{"name": _NETWORK, kind: {}}]
    spec["networks"] = [{"name": _NETWORK, "pod": {}}]


def input_device(spec: Json) -> None:
    """An input device, still without bus and type, where ``autoattachInputDevice`` is true and no device is there."""
    devices = spec["domain"]["devices"]
    if devices.get("autoattachInputDevice") and not devices.get("inputs"):
        devices["inputs"] = [{"name": _INPUT}]


def spec_defaults(spec: Json, configuration: ClusterConfig, note: Note = ignore) -> None:
    """What KubeVirt sets in a VMI's spec: at admission of a VM, in expansion and when a VMI is created.

    Raises:
        Rejection: the cluster's settings forbid the interface that is their default.
    """
    if not spec.get("architecture"):
        spec["architecture"] = configuration.default_architecture
        note(FieldOrigin.CLUSTER)
    machine_type(spec, configuration, note)
    _resources(spec["domain"], configuration, note)
    _memory(spec["domain"])
    _cpu_topology(spec["domain"])
    volumes = spec.get("volumes", ())
    if any("containerDisk" in volume for volume in volumes):
        spec["volumes"] = [_with_pull_policy(volume) for volume in volumes]
    note(FieldOrigin.KUBEVIRT)
    if spec.setdefault("evictionStrategy", configuration.eviction_strategy) is not None:
        note(configuration.origin("eviction_strategy"))
    network_interface(spec, configuration)
    note(configuration.origin("network_interface"))
    disks(spec)
    note(FieldOrigin.KUBEVIRT)


def size_defaults(spec: Json, configuration: ClusterConfig) -> Json:
    """Architecture, CPU, memory and resources of a decoded spec as `spec_defaults` leaves them; it stays as it is."""
    domain = {name: copy_json(spec["domain"][name]) for name in _SIZES if name in spec["domain"]}
    _resources(domain, configuration, ignore)
    _memory(domain)
    _cpu_topology(domain)
    return {"architecture": spec.get("architecture") or configuration.default_architecture, "domain": domain}


def machine_type(spec: Json, configuration: ClusterConfig, note: Note = ignore) -> None:
    """The machine type of the spec's architecture."""
    machine = spec["domain"].setdefault("machine", {})
    machine["type"] = machine.get("type") or configuration.machine_type(spec["architecture"])
    note(configuration.origin("machine_types"))


def _amount(resources: Json, kind: str, name: str) -> Quantity | None:
    text = resources.get(kind, {}).get(name)
    return None if text is None else quantity.parse(text)


def _resources(domain: Json, configuration: ClusterConfig, note: Note) -> None:
    resources = domain["resources"]
    if _amount(resources, "limits", "cpu") and not _amount(resources, "requests", "cpu"):
        resources.setdefault("requests", {})["cpu"] = resources["limits"]["cpu"]
        note(FieldOrigin.KUBEVIRT)
    if configuration.rules.has(REQUESTS_GUEST_MEMORY):
        _request_memory(domain, configuration.memory_overcommit)
        note(configuration.origin("memory_overcommit"))
    dedicated = domain.get("cpu", {}).get("dedicatedCpuPlacement")
    if configuration.requests_cpu and not dedicated and "cpu" not in resources.get("requests", {}):
        resources.setdefault("requests", {})["cpu"] = str(configuration.cpu_request)
        note(FieldOrigin.CLUSTER)


def _request_memory(domain: Json, overcommit: int) -> None:
    """Request what the limit is, or else the guest's memory, which may be one huge page.

    The guest gets ``overcommit`` percent of what is requested for it.
    """
    resources, memory = domain["resources"], domain.get("memory", {})
    if _amount(resources, "limits", "memory") and not _amount(resources, "requests", "memory"):
        resources.setdefault("requests", {})["memory"] = resources["limits"]["memory"]
    if "memory" in resources.get("requests", {}):
        return
    text = memory.get("guest", memory.get("hugepages", {}).get("pageSize", ""))
    try:
        guest = quantity.parse(text)
    except InputError:
        return
    if guest.value > 0:
        if overcommit != MEMORY_OVERCOMMIT:
            # int64 in Go: the product wraps around, and the division drops the fraction.
            product = quantity.int64(guest.value * 100)
            share = abs(product) // overcommit
            guest = Quantity.of(share if product >= 0 else -share, guest.format)
        resources.setdefault("requests", {})["memory"] = Computed(guest)


def _memory(domain: Json) -> None:
    memory = domain.setdefault("memory", {})
    if "guest" in memory:
        return
    for kind in ("requests", "limits"):
        if _amount(domain["resources"], kind, "memory"):
            memory["guest"] = domain["resources"][kind]["memory"]
            return
    with suppress(InputError):
        memory["guest"] = str(quantity.parse(memory.get("hugepages", {}).get("pageSize", "")))


def _cpu_topology(domain: Json) -> None:
    cpu = domain.setdefault("cpu", {})
    if any(cpu.get(name) for name in ("cores", "sockets", "threads")):
        return
    resources = domain["resources"]
    amounts = (_amount(resources, "limits", "cpu"), _amount(resources, "requests", "cpu"))
    sockets = next((amount.value for amount in amounts if amount is not None), 1)
    cpu.update(sockets=sockets % 2**32, cores=1, threads=1)


def _with_pull_policy(volume: Json) -> Json:
    """A volume whose image has a policy; a volume without an image, or with a policy, itself."""
    disk = volume.get("containerDisk")
    if disk is None or disk.get("imagePullPolicy"):
        return volume
    image = disk["image"]
    # A registry's port is taken for a tag, as in KubeVirt.
    latest = image.endswith(":latest") or not set(image) & set(":@")
    return {**volume, "containerDisk": {**disk, "imagePullPolicy": "Always" if latest else "IfNotPresent"}}
