"""What KubeVirt puts into a VMI's spec where the user says nothing (KubeVirt, pkg/defaults, pkg/network/vmispec).

All functions change the spec that they are given; see `instancetype`.
"""

from __future__ import annotations

from typing import Final

from webhook.errors import InputError
from webhook.k8s import quantity
from webhook.k8s.quantity import Computed, Quantity
from webhook.kubevirt.config import ClusterConfig
from webhook.kubevirt.go_json.origins import Note, Origin, ignore
from webhook.kubevirt.go_json.structs import Json, copy_json
from webhook.kubevirt.instancetype.conflict import Rejection
from webhook.kubevirt.releases.capabilities import REQUESTS_GUEST_MEMORY

_NETWORK: Final = "default"
_INPUT: Final = "default-0"
_NO_OVERCOMMIT: Final = 100
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
    """An input device, still without bus and type, where ``autoattachInputDevice`` is true and no device is there.

    Args:
        spec: the spec of a VMI, decoded; changed.
    """
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
        note(Origin.CLUSTER)
    machine_type(spec, configuration, note)
    _resources(spec["domain"], configuration, note)
    _memory(spec["domain"])
    _cpu_topology(spec["domain"])
    _pull_policies(spec)
    note(Origin.KUBEVIRT)
    if spec.setdefault("evictionStrategy", configuration.eviction_strategy) is not None:
        note(configuration.origin("eviction_strategy"))
    network_interface(spec, configuration)
    note(configuration.origin("network_interface"))
    disks(spec)
    note(Origin.KUBEVIRT)


def size_defaults(spec: Json, configuration: ClusterConfig) -> Json:
    """Architecture, CPU, memory and resources of a spec as `spec_defaults` leaves them; the spec itself stays as it is.

    Args:
        spec: the spec of a VMI, decoded.
        configuration: the cluster's settings.
    """
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
        note(Origin.KUBEVIRT)
    if configuration.rules.has(REQUESTS_GUEST_MEMORY):
        _request_memory(domain, configuration.memory_overcommit)
        note(configuration.origin("memory_overcommit"))
    dedicated = domain.get("cpu", {}).get("dedicatedCpuPlacement")
    if configuration.requests_cpu and not dedicated and "cpu" not in resources.get("requests", {}):
        resources.setdefault("requests", {})["cpu"] = str(configuration.cpu_request)
        note(Origin.CLUSTER)


def _request_memory(domain: Json, overcommit: int) -> None:
    """Request what the limit is, or else the guest's memory, which may be one huge page.

    Args:
        domain: ``spec.domain`` of a VMI, decoded; changed.
        overcommit: the guest's memory as a percentage of its request.
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
        share = guest if overcommit == _NO_OVERCOMMIT else Quantity.of(_share(guest.value, overcommit), guest.format)
        resources.setdefault("requests", {})["memory"] = Computed(share)


def _share(guest: int, overcommit: int) -> int:
    """The request, in bytes, as int64 in Go: the product wraps around, and the division drops the fraction."""
    product = quantity.int64(guest * 100)
    share = abs(product) // overcommit
    return share if product >= 0 else -share


def _memory(domain: Json) -> None:
    memory = domain.setdefault("memory", {})
    if "guest" in memory:
        return
    for kind in ("requests", "limits"):
        if _amount(domain["resources"], kind, "memory"):
            memory["guest"] = domain["resources"][kind]["memory"]
            return
    try:
        memory["guest"] = str(quantity.parse(memory.get("hugepages", {}).get("pageSize", "")))
    except InputError:
        return


def _cpu_topology(domain: Json) -> None:
    cpu = domain.setdefault("cpu", {})
    if any(cpu.get(name) for name in ("cores", "sockets", "threads")):
        return
    resources = domain["resources"]
    amounts = (_amount(resources, "limits", "cpu"), _amount(resources, "requests", "cpu"))
    sockets = next((amount.value for amount in amounts if amount is not None), 1)
    cpu.update(sockets=sockets % 2**32, cores=1, threads=1)


def _pull_policies(spec: Json) -> None:
    volumes = spec.get("volumes", ())
    if any("containerDisk" in volume for volume in volumes):
        spec["volumes"] = [_with_pull_policy(volume) for volume in volumes]


def _with_pull_policy(volume: Json) -> Json:
    """A volume whose image has a policy; a volume without an image, or with a policy, itself."""
    disk = volume.get("containerDisk")
    if disk is None or disk.get("imagePullPolicy"):
        return volume
    image = disk["image"]
    # A registry's port is taken for a tag, as in KubeVirt.
    latest = image.endswith(":latest") or not set(image) & set(":@")
    return {**volume, "containerDisk": {**disk, "imagePullPolicy": "Always" if latest else "IfNotPresent"}}
