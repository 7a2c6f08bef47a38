"""What KubeVirt's own mutating webhook does to a VMI when it is created (KubeVirt, pkg/virt-api/webhooks).

Left out is what is no part of the machine: presets (deprecated), the phase with its time stamp, and the foreground
finalizer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from webhook.kubevirt.config import AMD64, ARCHITECTURES, ARM64, EVEN_PARITY_ANNOTATION, S390X, ClusterConfig
from webhook.kubevirt.defaults import hyperv, liveupdate, vmi_spec
from webhook.kubevirt.go_json.origins import Note, Origin, ignore
from webhook.kubevirt.go_json.structs import Json, decode, encode
from webhook.kubevirt.instancetype.conflict import Rejection
from webhook.kubevirt.releases.capabilities import (
    DISABLES_SECURE_BOOT_ON_ARM64,
    PCI_TOPOLOGY_BY_ARCHITECTURE,
    PCI_TOPOLOGY_BY_MACHINE_TYPE,
    WRITES_PCI_TOPOLOGY,
    WRITES_QGS_SOCKET_PATH,
)
from webhook.kubevirt.rules import Rules

PCI_TOPOLOGY_ANNOTATION: Final = "kubevirt.io/pci-topology-version"
_PCI_TOPOLOGY: Final = "v3"
_QGS_ANNOTATION: Final = "kubevirt.io/qgs-socket-path"
_NONROOT_USER: Final = 107
_PROBE: Final = {"timeoutSeconds": 1, "periodSeconds": 10, "successThreshold": 1, "failureThreshold": 3}
_TIMERS: Final = ("hpet", "kvm", "pit", "rtc", "hyperv")


def create(vmi: Any, configuration: ClusterConfig, new_uuid: Callable[[], str]) -> Json:
    """A VMI as it is stored, from the VMI as it was posted.

    Args:
        vmi: plain JSON.
        configuration: the cluster's settings.
        new_uuid: makes the firmware's UUID, where the VMI has none.

    Returns:
        A new object that shares nothing with ``vmi``.

    Raises:
        InputError: the VMI is malformed.
        Rejection: KubeVirt would deny it, or its architecture is not one that KubeVirt supports.
    """
    shape = configuration.rules.types.vmi
    created = decode(shape, vmi)
    mutate(created, configuration, new_uuid)
    return encode(shape, created)


def mutate(vmi: Json, configuration: ClusterConfig, new_uuid: Callable[[], str], note: Note = ignore) -> None:
    """What KubeVirt's webhook makes of a decoded VMI, which is changed.

    Args:
        vmi: decoded; changed.
        configuration: the cluster's settings.
        new_uuid: makes the firmware's UUID, where the VMI has none.
        note: runs after each step, with the origin of what has changed.

    Raises:
        Rejection: KubeVirt would deny it, or its architecture is not one that KubeVirt supports.
    """
    spec, rules = vmi["spec"], configuration.rules
    architecture = spec.get("architecture") or configuration.default_architecture
    if architecture not in ARCHITECTURES:
        raise Rejection(
            f"the architecture {architecture} is none of {', '.join(ARCHITECTURES)}, so that KubeVirt's defaults for it"
            " are not known"
        )
    vmi_spec.spec_defaults(spec, configuration, note)
    domain = spec["domain"]
    if architecture == S390X:
        domain.setdefault("features", {}).setdefault("acpi", {}).setdefault("enabled", False)
    _object_defaults(spec, new_uuid)
    hyperv.complete_hyperv(domain)
    _architecture_defaults(domain, architecture, rules)
    note(Origin.KUBEVIRT)
    _cpu_model(domain["cpu"], configuration, note)
    _status(vmi, domain)
    if architecture != ARM64 and configuration.live_update:
        liveupdate.max_sockets(domain["cpu"], configuration, note)
        liveupdate.max_guest(domain, architecture, configuration, note)
    if has_pci_topology(spec, rules):
        annotate_pci_topology(vmi["metadata"])
    aligns = configuration.even_parity and configuration.is_gate_open("AlignCPUs")
    if aligns and domain["cpu"].get("isolateEmulatorThread"):
        vmi["metadata"].setdefault("annotations", {})[EVEN_PARITY_ANNOTATION] = ""
    has_tdx = "tdx" in domain.get("launchSecurity", {})
    if has_tdx and configuration.qgs_socket_path and rules.has(WRITES_QGS_SOCKET_PATH):
        vmi["metadata"].setdefault("annotations", {})[_QGS_ANNOTATION] = configuration.qgs_socket_path
    if not configuration.is_gate_open("Root"):
        vmi["status"]["runtimeUser"] = _NONROOT_USER
    note(Origin.KUBEVIRT)


def has_pci_topology(spec: Json, rules: Rules) -> bool:
    """Whether KubeVirt takes a machine for one with a PCIe topology, whose version it writes down."""
    if not rules.has(WRITES_PCI_TOPOLOGY):
        return False
    if rules.has(PCI_TOPOLOGY_BY_MACHINE_TYPE):
        machine = spec["domain"].get("machine")
        kind = (machine or {}).get("type", "")
        if machine is not None and "q35" not in kind and not kind.startswith("virt"):
            return False
    return not rules.has(PCI_TOPOLOGY_BY_ARCHITECTURE) or spec.get("architecture", "") in ("", AMD64, ARM64)


def annotate_pci_topology(metadata: Json) -> None:
    """The version of the PCIe topology of new machines, unless it is there."""
    metadata.setdefault("annotations", {}).setdefault(PCI_TOPOLOGY_ANNOTATION, _PCI_TOPOLOGY)


def _object_defaults(spec: Json, new_uuid: Callable[[], str]) -> None:
    domain = spec["domain"]
    firmware = domain.setdefault("firmware", {})
    firmware["uuid"] = firmware.get("uuid") or new_uuid()
    hyperv.enable(domain.setdefault("features", {}))
    for disk in domain["devices"].get("disks", ()):
        _disk(disk)
    for device in domain["devices"].get("inputs", ()):
        device["bus"] = device.get("bus") or "usb"
        device["type"] = device.get("type") or "tablet"
    for gpu in domain["devices"].get("gpus", ()):
        frame_buffer = gpu.get("virtualGPUOptions", {}).get("display", {}).get("ramFB")
        if frame_buffer is not None:
            frame_buffer.setdefault("enabled", True)
    for probe in ("livenessProbe", "readinessProbe"):
        for name, value in _PROBE.items() if probe in spec else ():
            if spec[probe].get(name, 0) < 1:
                spec[probe][name] = value
    timers = domain.get("clock", {}).get("timer", {})
    for name in _TIMERS:
        if name in timers:
            timers[name].setdefault("present", True)


def _disk(disk: Json) -> None:
    if not disk.keys() & {"disk", "cdrom", "lun"}:
        disk["disk"] = {}
    if "cdrom" in disk:
        disk["cdrom"].setdefault("readonly", True)
        disk["cdrom"]["tray"] = disk["cdrom"].get("tray") or "closed"
    if "matchVolume" in disk.get("blockSize", {}):
        disk["blockSize"]["matchVolume"].setdefault("enabled", True)


def _architecture_defaults(domain: Json, architecture: str, rules: Rules) -> None:
    if architecture == ARM64:
        domain["cpu"]["model"] = domain["cpu"].get("model") or "host-passthrough"
        own = "bootloader" not in domain["firmware"]
        bootloader = domain["firmware"].setdefault("bootloader", {"efi": {}})
        if "efi" in bootloader and (own or rules.has(DISABLES_SECURE_BOOT_ON_ARM64)):
            bootloader["efi"].setdefault("secureBoot", False)
    bus = "sata" if architecture not in (ARM64, S390X) else "virtio"
    for disk in domain["devices"].get("disks", ()):
        for kind in ("disk", "cdrom", "lun"):
            if kind in disk:
                disk[kind]["bus"] = disk[kind].get("bus") or bus
    watchdog = domain["devices"].get("watchdog")
    if watchdog is not None and architecture != ARM64:
        device = watchdog.setdefault("diag288" if architecture == S390X else "i6300esb", {})
        device["action"] = device.get("action") or "reset"


def _cpu_model(cpu: Json, configuration: ClusterConfig, note: Note) -> None:
    if not cpu.get("model"):
        cpu["model"] = configuration.cpu_model or "host-model"
        note(Origin.CLUSTER if configuration.cpu_model else Origin.KUBEVIRT)


def _status(vmi: Json, domain: Json) -> None:
    guest = domain.get("memory", {}).get("guest")
    if guest is not None:
        vmi["status"]["memory"] = dict.fromkeys(("guestAtBoot", "guestCurrent", "guestRequested"), guest)
    parts = {name: domain["cpu"].get(name, 0) for name in ("sockets", "cores", "threads")}
    vmi["status"].setdefault("currentCPUTopology", {name: number for name, number in parts.items() if number})
