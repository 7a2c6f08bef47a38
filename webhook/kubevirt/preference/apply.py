"""Applying a preference to a VMI's spec: what the user has set stays (KubeVirt, pkg/instancetype/preference/apply).

Two fields are the exception: a preferred ACPI state and a preferred ``disableHotplug`` overwrite the user's.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from webhook.kubevirt.go_json.structs import Json, copy_json
from webhook.kubevirt.instancetype.conflict import Crash
from webhook.kubevirt.releases.capabilities import ADDS_PREFERRED_PANIC_DEVICE
from webhook.kubevirt.rules import NEWEST, Rules

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
_FEATURES: Final = {
    "preferredApic": "apic",
    "preferredKvm": "kvm",
    "preferredPvspinlock": "pvspinlock",
    "preferredSmm": "smm",
}
_DISK_FIELDS: Final = {
    "preferredDiskCache": "cache",
    "preferredDiskIO": "io",
    "preferredDiskBlockSize": "blockSize",
}


def apply(preference: Json, spec: Json, annotations: dict[str, str], rules: Rules = NEWEST) -> None:
    """Apply a preference's spec to a VMI's, in KubeVirt's order.

    Args:
        preference: the preference's spec, decoded.
        spec: the spec of a VMI or template, decoded; changed.
        annotations: the annotations of the VMI or template; changed.
        rules: the rules of the release that applies it.

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
        _clock(preference["clock"], domain)
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
    networks: dict[str, Json] = {}
    for network in spec.get("networks", ()):
        networks.setdefault(network["name"], network)
    for interface in devices.get("interfaces", ()):
        _interface(preferred, interface, networks)
    for device in devices.get("inputs", ()):
        _fill(device, "bus", preferred.get("preferredInputBus"))
        if preferred.get("preferredInputType"):
            device["type"] = device.get("type") or preferred["preferredInputType"]
    if "preferredPanicDeviceModel" in preferred:
        _panic_devices(preferred["preferredPanicDeviceModel"], devices, rules)


def _panic_devices(model: str, devices: Json, rules: Rules) -> None:
    if rules.has(ADDS_PREFERRED_PANIC_DEVICE):
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
    network = networks.get(interface["name"], {})
    if "pod" in network:
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


def _clock(preferred: Json, domain: Json) -> None:
    clock = domain.setdefault("clock", {})
    if not clock.keys() & {"utc", "timezone"}:
        clock.update(copy_json(preferred.get("preferredClockOffset", {})))
    _fill(clock, "timer", preferred.get("preferredTimer"))
