"""Preferences: how they divide vCPUs, what they set in a VMI, and what they require of a VM.

KubeVirt, pkg/instancetype/apply/cpu.go, pkg/instancetype/preference/apply and pkg/instancetype/preference/requirements.
What the user has set stays. Two fields are the exception: a preferred ACPI state and a preferred ``disableHotplug``
overwrite the user's.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Final, Literal, NamedTuple, TypeAlias, get_args

from webhook.k8s import quantity
from webhook.kubevirt.go_json.structs import Json, copy_json
from webhook.kubevirt.rejection import TEMPLATE_BASE, Cause, Crash
from webhook.kubevirt.releases.capabilities import ADDS_PREFERRED_PANIC_DEVICE
from webhook.kubevirt.rules import NEWEST, Rules

GUEST_FIELD: Final = "instancetype.spec.cpu.guest"

# The preferred topology, by KubeVirt's current names.
Topology: TypeAlias = Literal["sockets", "cores", "threads", "spread", "any"]
SPREAD: Final = "spread"
_TOPOLOGIES: Final[tuple[Topology, ...]] = get_args(Topology)
# The names that these replace.
DEPRECATED: Final = {f"prefer{topology.capitalize()}": topology for topology in _TOPOLOGIES}
_NAMES: Final = {each: each for each in _TOPOLOGIES} | DEPRECATED

SOCKETS_CORES: Final = "SocketsCores"
CORES_THREADS: Final = "CoresThreads"
SOCKETS_CORES_THREADS: Final = "SocketsCoresThreads"
# Over which parts of the topology vCPUs can be spread.
ACROSS: Final = {
    SOCKETS_CORES: ("sockets", "cores"),
    CORES_THREADS: ("cores", "threads"),
    SOCKETS_CORES_THREADS: ("sockets", "cores", "threads"),
}


class VcpuSpread(NamedTuple):
    """How vCPUs are spread: over which parts of the topology, and with how many cores to a socket."""

    across: str
    ratio: int


def preferred_topology(preference: Json | None) -> Topology | None:
    """The topology that a preference's spec names, sockets where it names none; None for an unknown name."""
    name = (preference or {}).get("cpu", {}).get("preferredCPUTopology")
    return "sockets" if name is None else _NAMES.get(name)


def preferred_spread(preference: Json | None) -> VcpuSpread:
    """How a preference's spec spreads vCPUs."""
    preference = preference or {}
    options = preference.get("cpu", {}).get("spreadOptions", {})
    ratio = preference.get("preferSpreadSocketToCoreRatio") or 2
    return VcpuSpread(options.get("across", SOCKETS_CORES), options.get("ratio", ratio))


def divide(guest: int, preference: Json | None) -> tuple[int, int, int]:
    """Sockets, cores and threads for a number of vCPUs. What does not divide is lost, as in KubeVirt.

    Raises:
        Crash: the ratio of a spread is zero.
    """
    if guest == 1:
        return 1, 1, 1
    topology = preferred_topology(preference)
    if topology == "cores":
        return 1, guest, 1
    if topology == "threads":
        return 1, 1, guest
    if topology != SPREAD:
        return (1, 1, 1) if topology is None else (guest, 1, 1)
    spread = preferred_spread(preference)
    if spread.across not in ACROSS:
        return 1, 1, 1
    _reject_zero(spread)
    if spread.across == CORES_THREADS:
        return 1, guest // spread.ratio, spread.ratio
    if spread.across == SOCKETS_CORES:
        return guest // spread.ratio, spread.ratio, 1
    return guest // 2 // spread.ratio, spread.ratio, 2


def _reject_zero(spread: VcpuSpread) -> None:
    if not spread.ratio:
        raise Crash("the preference spreads vCPUs with a ratio of 0, by which KubeVirt would divide")


def check_divisible(guest: int, preference: Json | None) -> None:
    """Make sure that an instancetype's vCPUs can be spread as a preference wants.

    Only KubeVirt's admission of VMs checks this; virt-controller does not.

    Raises:
        Cause: they cannot.
        Crash: the ratio is zero.
    """
    if preferred_topology(preference) != SPREAD:
        return
    spread = preferred_spread(preference)
    across, ratio = spread
    threads = "not divisible by the number of threads per core"
    ratios = "Spec.PreferSpreadSocketToCoreRatio or Spec.CPU.PreferSpreadOptions.Ratio of"
    text = ""
    if across == SOCKETS_CORES_THREADS:
        if guest % 2 or _indivisible(guest // 2, spread):
            text = f"are {threads} 2 and {ratios} {ratio}"
    elif across == CORES_THREADS and _indivisible(guest, spread):
        text = f"are {threads} {ratio}"
    elif across == SOCKETS_CORES and _indivisible(guest, spread):
        text = f"are not divisible by the {ratios} {ratio} provided by the preference"
    if text:
        raise Cause("FieldValueInvalid", f"{guest} vCPUs provided by the instance type {text}", GUEST_FIELD)


def _indivisible(guest: int, spread: VcpuSpread) -> bool:
    _reject_zero(spread)
    return guest % spread.ratio != 0


BINDINGS: Final = ("bridge", "slirp", "masquerade", "sriov", "macvtap", "passt", "passtBinding", "binding")
_AUTOATTACH: Final = {
    f"preferredAutoattach{device}": f"autoattach{device}"
    for device in ("GraphicsDevice", "MemBalloon", "PodInterface", "SerialConsole", "InputDevice")
}
# Only where the VMI has none. The JSON name of the last but two is KubeVirt's.
_DEVICES: Final = {
    "preferredUseVirtioTransitional": "useVirtioTransitional",
    "preferredBlockMultiQueue": "blockMultiQueue",
    "preferredNetworkInterfaceMultiQueue": "networkInterfaceMultiqueue",
    "preferredRng": "rng",
    "preferredTPM": "tpm",
}
_FEATURES: Final = {f"preferred{name.capitalize()}": name for name in ("apic", "kvm", "pvspinlock", "smm")}
_DISK_FIELDS: Final = {"preferredDiskCache": "cache", "preferredDiskIO": "io", "preferredDiskBlockSize": "blockSize"}


def apply(preference: Json, spec: Json, annotations: dict[str, str], rules: Rules = NEWEST) -> None:
    """Apply a preference's spec to the spec and annotations of a VMI or template, decoded, in KubeVirt's order.

    Raises:
        Crash: it prefers CPU features, and neither the VM nor its instancetype has a ``cpu`` to hold them.
    """
    domain = spec["domain"]
    _cpu_features(preference, domain)
    if "devices" in preference:
        _devices(preference["devices"], spec, rules)
    if "features" in preference:
        _features(preference["features"], domain)
    if "firmware" in preference:
        _firmware(preference["firmware"], domain)
    if "preferredMachineType" in preference.get("machine", {}):
        machine_type(preference, domain)
    if "clock" in preference:
        clock, preferred = domain.setdefault("clock", {}), preference["clock"]
        if not clock.keys() & {"utc", "timezone"}:
            clock.update(copy_json(preferred.get("preferredClockOffset", {})))
        _fill(clock, "timer", preferred.get("preferredTimer"))
    _fill(spec, "subdomain", preference.get("preferredSubdomain"))
    _fill(spec, "terminationGracePeriodSeconds", preference.get("preferredTerminationGracePeriodSeconds"))
    architecture(preference, spec)
    for key, value in preference.get("annotations", {}).items():
        annotations.setdefault(key, value)
    _fill(domain, "launchSecurity", preference.get("preferredLaunchSecurity"))


def _fill(target: Json, name: str, value: object) -> None:
    """Set what is not set; an object that was decoded holds no zeros that would count as absent."""
    if value is not None and name not in target:
        target[name] = copy_json(value)


def _fill_each(target: Json, names: Mapping[str, str], preferred: Json) -> None:
    """Set what is preferred and not set, under the target's names of the preferences."""
    # Most preferences name few of them: no call for the others.
    for source, name in names.items():
        if source in preferred:
            _fill(target, name, preferred[source])


def machine_type(preference: Json, domain: Json) -> None:
    """The preferred machine type, where the domain has none."""
    preferred = preference.get("machine", {}).get("preferredMachineType")
    if preferred:
        machine = domain.setdefault("machine", {})
        machine["type"] = machine.get("type") or preferred


def architecture(preference: Json, spec: Json) -> None:
    """The preferred architecture, where the spec has none."""
    preferred = preference.get("preferredArchitecture")
    if preferred:
        _fill(spec, "architecture", preferred)


def autoattach(preference: Json | None, spec: Json) -> None:
    """The five preferences about devices that are attached automatically.

    virt-controller applies them once more, early, because default devices depend on them.
    """
    _fill_each(spec["domain"]["devices"], _AUTOATTACH, (preference or {}).get("devices", {}))


def storage_class(preference: Json, templates: list[Json]) -> None:
    """The preferred storage class, in DataVolume templates that name none; an empty name is one."""
    preferred = preference.get("volumes", {}).get("preferredStorageClassName")
    if preferred:
        for template in templates:
            for kind in ("pvc", "storage"):
                if kind in template["spec"]:
                    _fill(template["spec"][kind], "storageClassName", preferred)


def _cpu_features(preference: Json, domain: Json) -> None:
    preferred = preference.get("cpu", {}).get("preferredCPUFeatures")
    if not preferred:
        return
    if "cpu" not in domain:
        raise Crash(
            "the preference names CPU features, but neither the VM nor an instancetype sets any CPU to have them, on "
            "which KubeVirt would crash; set spec.template.spec.domain.cpu"
        )
    features = domain["cpu"].get("features", [])
    # The names are those from before: what a preference names twice is added twice.
    names = {feature["name"] for feature in features}
    added = [copy_json(feature) for feature in preferred if feature["name"] not in names]
    if added:
        domain["cpu"]["features"] = features + added


def _devices(preferred: Json, spec: Json, rules: Rules) -> None:
    devices = spec["domain"]["devices"]
    _fill_each(devices, _DEVICES, preferred)
    if "preferredDisableHotplug" in preferred:
        devices["disableHotplug"] = preferred["preferredDisableHotplug"]
    if "sound" in devices:
        _fill(devices["sound"], "model", preferred.get("preferredSoundModel"))
    if "preferredVideoType" in preferred:
        _fill(devices.setdefault("video", {}), "type", preferred["preferredVideoType"])
    autoattach({"devices": preferred}, spec)
    for disk in devices.get("disks", ()):
        _disk(preferred, disk)
    # Of several networks of a name, the first.
    networks = {network["name"]: network for network in reversed(spec.get("networks", ()))}
    for interface in devices.get("interfaces", ()):
        _interface(preferred, interface, networks)
    for device in devices.get("inputs", ()):
        _fill(device, "bus", preferred.get("preferredInputBus"))
        if preferred.get("preferredInputType"):
            device["type"] = device.get("type") or preferred["preferredInputType"]
    model = preferred.get("preferredPanicDeviceModel")
    if model is not None and rules.has(ADDS_PREFERRED_PANIC_DEVICE):
        devices["panicDevices"] = devices.get("panicDevices") or [{}]
    for device in devices.get("panicDevices", ()):
        _fill(device, "model", model)


def _disk(preferred: Json, disk: Json) -> None:
    if not disk.keys() & {"disk", "cdrom", "lun"}:
        disk["disk"] = {}
    if "disk" not in disk:
        kind, name = ("cdrom", "Cdrom") if "cdrom" in disk else ("lun", "Lun")
        _fill(disk[kind], "bus", preferred.get(f"preferred{name}Bus"))
        return
    _fill(disk["disk"], "bus", preferred.get("preferredDiskBus"))
    _fill_each(disk, _DISK_FIELDS, preferred)
    # The bus that the disk has by now; the bus that KubeVirt sets by default comes later and is none of these.
    if disk["disk"].get("bus") == "virtio":
        _fill(disk, "dedicatedIOThread", preferred.get("preferredDiskDedicatedIoThread"))


def _interface(preferred: Json, interface: Json, networks: dict[str, Json]) -> None:
    _fill(interface, "model", preferred.get("preferredInterfaceModel"))
    if "preferredInterfaceMasquerade" not in preferred or any(binding in interface for binding in BINDINGS):
        return
    if "pod" in networks.get(interface["name"], {}):
        interface["masquerade"] = copy_json(preferred["preferredInterfaceMasquerade"])


def _features(preferred: Json, domain: Json) -> None:
    features = domain.setdefault("features", {})
    if "preferredAcpi" in preferred:
        features["acpi"] = copy_json(preferred["preferredAcpi"])
    _fill_each(features, _FEATURES, preferred)
    if "preferredHyperv" in preferred:
        hyperv = features.setdefault("hyperv", {})
        for name, state in preferred["preferredHyperv"].items():
            _fill(hyperv, name, state)


def _firmware(preferred: Json, domain: Json) -> None:
    bootloader = domain.setdefault("firmware", {}).setdefault("bootloader", {})
    if preferred.get("preferredUseBios") and not bootloader.keys() & {"bios", "efi"}:
        bootloader["bios"] = {}
    if "bios" in bootloader:
        _fill(bootloader["bios"], "useSerial", preferred.get("preferredUseBiosSerial"))
    if not bootloader.keys() & {"bios", "efi"}:
        if "preferredEfi" in preferred:
            bootloader["efi"] = copy_json(preferred["preferredEfi"])
            return
        if preferred.get("preferredUseEfi"):
            bootloader["efi"] = {}
    if "efi" in bootloader:
        _fill(bootloader["efi"], "secureBoot", preferred.get("preferredUseSecureBoot"))


_INSTANCETYPE: Final = "spec.instancetype"


def check_requirements(instancetype: Json | None, preference: Json | None, spec: Json) -> None:
    """Make sure that the requirements are met, in the order CPU, memory, architecture.

    The spec is the VM's template's, after both and KubeVirt's defaults were applied.

    Raises:
        Cause: the first one that is not.
    """
    required = (preference or {}).get("requirements", {})
    if "cpu" in required:
        _check_cpu(required["cpu"]["guest"], instancetype, preference, spec["domain"])
    if "memory" in required:
        _check_memory(required["memory"]["guest"], instancetype, spec["domain"])
    expected, actual = required.get("architecture"), spec.get("architecture", "")
    if expected is not None and expected != actual:
        text = f"preference requires architecture {expected} but {actual} is being requested"
        raise _unmet(text, f"{TEMPLATE_BASE}.architecture")


def _unmet(text: str, *fields: str) -> Cause:
    return Cause("FieldValueNotFound", f"failure checking preference requirements: {text}", ", ".join(fields))


def _check_cpu(required: int, instancetype: Json | None, preference: Json | None, domain: Json) -> None:
    if instancetype is not None:
        provided = instancetype["cpu"]["guest"]
        if provided < required:
            text = f"insufficient CPU resources of {provided} vCPU provided by instance type, preference requires"
            raise _unmet(f"{text} {required} vCPU", _INSTANCETYPE)
        return
    if "cpu" not in domain:
        text = f"no CPU resources provided by VirtualMachine, preference requires {required} vCPU"
        raise _unmet(text, f"{TEMPLATE_BASE}.domain.cpu")
    parts, name = _parts(preference)
    # uint32 in Go, which wraps around.
    provided = prod(domain["cpu"].get(part, 0) for part in parts) % 2**32 if parts else 0
    if parts is not None and provided < required:
        text = f"insufficient CPU resources of {provided} vCPU provided by VirtualMachine, preference requires"
        fields = (f"{TEMPLATE_BASE}.domain.cpu.{part}" for part in parts)
        raise _unmet(f"{text} {required} vCPU provided as {name}", *fields)


def _parts(preference: Json | None) -> tuple[tuple[str, ...] | None, str]:
    """The parts of the topology that count, and their name; None where KubeVirt does not count at all."""
    topology = preferred_topology(preference)
    if topology is None:
        return None, ""
    if topology == SPREAD:
        across = preferred_spread(preference).across
        return ACROSS.get(across, ()), across
    if topology == "any":
        return ("cores", "sockets", "threads"), "cores, sockets and threads"
    return (topology,), topology


def _check_memory(required: str, instancetype: Json | None, domain: Json) -> None:
    provided, needed = (quantity.parse(text) for text in (domain.get("memory", {}).get("guest", "0"), required))
    if provided >= needed:
        return
    source, field = "VirtualMachine", f"{TEMPLATE_BASE}.domain.memory"
    if instancetype is not None:
        source, field = "instance type", _INSTANCETYPE
    text = f"insufficient Memory resources of {provided} provided by {source}, preference requires {needed}"
    raise _unmet(text, field)
