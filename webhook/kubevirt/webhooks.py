"""What KubeVirt's own webhooks do with VMs, VMIs and instancetypes (KubeVirt, pkg/virt-api/webhooks)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from webhook.kubevirt import defaults
from webhook.kubevirt.config import AMD64, ARCHITECTURES, ARM64, EVEN_PARITY_ANNOTATION, S390X, ClusterConfig
from webhook.kubevirt.go_json.origins import FieldOrigin, Note, ignore
from webhook.kubevirt.go_json.structs import Json, copy_written, decode
from webhook.kubevirt.instancetype import infer, preferences
from webhook.kubevirt.instancetype.apply import apply_instancetype, copy_domain_and_annotations
from webhook.kubevirt.instancetype.find import MATCHERS, PREFERENCE_MATCHER, Matcher
from webhook.kubevirt.instancetype.preferences import CORES_THREADS, DEPRECATED, SPREAD
from webhook.kubevirt.rejection import CAUSES_SHOWN, TEMPLATE_BASE, Cause, Conflicts, Crash, Get, Rejection
from webhook.kubevirt.releases.capabilities import (
    ARCHITECTURE_FROM_DATA_SOURCE,
    DISABLES_SECURE_BOOT_ON_ARM64,
    FILLS_MATCHER_KIND,
    PCI_TOPOLOGY_BY_ARCHITECTURE,
    PCI_TOPOLOGY_BY_MACHINE_TYPE,
    WARNS_OF_LAUNCH_SECURITY,
    WRITES_FIRMWARE_SERIAL,
    WRITES_PCI_TOPOLOGY,
    WRITES_QGS_SOCKET_PATH,
)
from webhook.kubevirt.rules import NEWEST, Rules

PCI_TOPOLOGY_ANNOTATION: Final = "kubevirt.io/pci-topology-version"
_PCI_TOPOLOGY: Final = "v3"
_QGS_ANNOTATION: Final = "kubevirt.io/qgs-socket-path"
_NONROOT_USER: Final = 107
_PROBE: Final = {"timeoutSeconds": 1, "periodSeconds": 10, "successThreshold": 1, "failureThreshold": 3}
_TIMERS: Final = ("hpet", "kvm", "pit", "rtc", "hyperv")


def mutate_vmi(vmi: Json, configuration: ClusterConfig, new_uuid: Callable[[], str], note: Note = ignore) -> None:
    """What KubeVirt's webhook makes of a decoded VMI, which is changed.

    ``new_uuid`` makes the firmware's UUID where the VMI has none, and ``note`` runs after each step, with the origin of
    what has changed.

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
    defaults.spec_defaults(spec, configuration, note)
    domain = spec["domain"]
    if architecture == S390X:
        domain.setdefault("features", {}).setdefault("acpi", {}).setdefault("enabled", False)
    _object_defaults(spec, new_uuid)
    defaults.complete_hyperv(domain)
    _architecture_defaults(domain, architecture, rules)
    note(FieldOrigin.KUBEVIRT)
    if not domain["cpu"].get("model"):
        domain["cpu"]["model"] = configuration.cpu_model or "host-model"
        note(FieldOrigin.CLUSTER if configuration.cpu_model else FieldOrigin.KUBEVIRT)
    guest = domain.get("memory", {}).get("guest")
    if guest is not None:
        vmi["status"]["memory"] = dict.fromkeys(("guestAtBoot", "guestCurrent", "guestRequested"), guest)
    parts = {name: domain["cpu"].get(name, 0) for name in ("sockets", "cores", "threads")}
    vmi["status"].setdefault("currentCPUTopology", {name: number for name, number in parts.items() if number})
    if architecture != ARM64 and configuration.live_update:
        defaults.max_sockets(domain["cpu"], configuration, note)
        defaults.max_guest(domain, architecture, configuration, note)
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
    note(FieldOrigin.KUBEVIRT)


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
    defaults.enable(domain.setdefault("features", {}))
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


# The spec of what a decoded VM names; None where it is missing.
Find = Callable[[Matcher, Json], Json | None]

_ARCHITECTURE_LABEL: Final = "template.kubevirt.io/architecture"


@dataclass(frozen=True, slots=True)
class VmAdmission:
    """KubeVirt's answer.

    Attributes:
        code: HTTP's, 200 where allowed.
        message: why not; empty where allowed.
        causes: one by one, at most ten; none where the denial has no field.
        warnings: texts for the user, whatever the answer.
    """

    code: int = 200
    message: str = ""
    causes: Sequence[Cause] = ()
    warnings: Sequence[str] = ()

    @property
    def is_allowed(self) -> bool:
        """Whether the webhook allows the VM."""
        return self.code == 200


def deny(causes: Sequence[Cause]) -> VmAdmission:
    """A denial with its causes, as KubeVirt answers it: the first ten, and how many more there are."""
    message = ", ".join(cause.what for cause in causes[:CAUSES_SHOWN])
    more = len(causes) - CAUSES_SHOWN
    text = f"{message}, and {more} more validation errors" if more > 0 else message
    return VmAdmission(422, text, tuple(causes[:CAUSES_SHOWN]))


def amend_vm(  # noqa: PLR0913 - the arguments of KubeVirt's own function
    vm: Json,
    get: Get,
    new_uuid: Callable[[], str],
    configuration: ClusterConfig,
    old: Json | None = None,
    note: Note = ignore,
    find: Find | None = None,
) -> VmAdmission:
    """What KubeVirt's mutating webhook makes of a decoded VM, which is changed.

    ``get`` looks up preferences, revisions, and whatever inference needs; ``find``, what a matcher names, and remembers
    it (None: a new look-up for each). ``new_uuid`` makes the UUID and the serial number of a new machine's firmware.
    ``old`` is the VM before an update, decoded; None for a creation. ``note`` is as of `mutate_vmi`.

    Raises:
        InputError: an object is malformed.
    """
    rules = configuration.rules
    if "deletionTimestamp" in vm["metadata"]:
        return VmAdmission()
    for matcher in MATCHERS:
        if old is not None and (causes := matcher.stale_revision(vm, old)):
            return deny(causes)
    for matcher in MATCHERS:
        if causes := matcher.mistakes(vm, rules):
            return deny(causes)
    try:
        infer.infer(vm, get, rules)
    except Rejection as rejection:
        return VmAdmission(400, rejection.what)
    template = vm["spec"]["template"]
    _prefer(vm, (find or remember_specs(get, rules))(PREFERENCE_MATCHER, vm))
    note(FieldOrigin.PREFERENCE)
    if old is None:
        firmware = template["spec"]["domain"].setdefault("firmware", {})
        for name in ("uuid", "serial") if rules.has(WRITES_FIRMWARE_SERIAL) else ("uuid",):
            firmware[name] = firmware.get(name) or new_uuid()
    note(FieldOrigin.KUBEVIRT)
    _architecture(vm, get, configuration, note)
    defaults.machine_type(template["spec"], configuration, note)
    if old is None and has_pci_topology(template["spec"], rules):
        annotate_pci_topology(template["metadata"])
    for matcher in MATCHERS if rules.has(FILLS_MATCHER_KIND) else ():
        if matcher.field in vm["spec"]:
            vm["spec"][matcher.field].setdefault("kind", matcher.cluster.lower())
    note(FieldOrigin.KUBEVIRT)
    return VmAdmission()


def remember_specs(get: Get, rules: Rules) -> Find:
    """Finds the specs of what a VM names, each once: nothing in a webhook changes matchers that are there.

    KubeVirt only logs what is missing, and goes on without it.
    """
    specs: dict[Matcher, Json | None] = {}

    def find(matcher: Matcher, vm: Json) -> Json | None:
        if matcher not in specs:
            try:
                specs[matcher] = matcher.find_spec(vm, get, rules)
            except Rejection:
                specs[matcher] = None
        return specs[matcher]

    return find


def _prefer(vm: Json, preference: Json | None) -> None:
    if preference is not None:
        spec = vm["spec"]["template"]["spec"]
        preferences.architecture(preference, spec)
        preferences.machine_type(preference, spec["domain"])
        preferences.storage_class(preference, vm["spec"].get("dataVolumeTemplates", []))


def _architecture(vm: Json, get: Get, configuration: ClusterConfig, note: Note) -> None:
    spec = vm["spec"]["template"]["spec"]
    if spec.get("architecture"):
        return
    sources = [template["spec"].get("sourceRef", {}) for template in vm["spec"].get("dataVolumeTemplates", ())]
    labels = (
        _source_label(source, vm["metadata"].get("namespace", ""), get)
        for source in sources
        if source.get("kind", "").lower() == "datasource"
    )
    architecture = None
    if configuration.rules.has(ARCHITECTURE_FROM_DATA_SOURCE):
        architecture = next((label for label in labels if label in ARCHITECTURES), None)
    spec["architecture"] = architecture or configuration.default_architecture
    note(FieldOrigin.KUBEVIRT if architecture else FieldOrigin.CLUSTER)


def _source_label(reference: Json, namespace: str, get: Get) -> str | None:
    source = get("DataSource", reference.get("namespace") or namespace, reference["name"])
    if source is None:
        return None
    read = decode(infer.DATA_SOURCE, source, f"DataSource {reference['name']}")
    further = read["spec"]["source"].get("dataSource")
    if further is not None:
        source = get("DataSource", further.get("namespace", ""), further.get("name", ""))
        if source is None:
            return None
        read = decode(infer.DATA_SOURCE, source, f"DataSource {further.get('name', '')}")
    label: str | None = read["metadata"].get("labels", {}).get(_ARCHITECTURE_LABEL)
    return label


def evaluate_vm(vm: Json, get: Get, configuration: ClusterConfig, find: Find | None = None) -> VmAdmission:
    """What KubeVirt's validating webhook says of a VM's instancetype and preference.

    The decoded VM is changed: on success it is the expanded copy that KubeVirt goes on to validate. ``find`` looks up
    what a matcher names, and remembers it; None: a new look-up for each.

    Raises:
        Crash: KubeVirt would crash.
        InputError: an instancetype, preference or revision is malformed.
    """
    rules = configuration.rules
    find = find or remember_specs(get, rules)
    instancetype, preference = (find(matcher, vm) for matcher in MATCHERS)
    template = vm["spec"]["template"]
    annotations = template["metadata"].setdefault("annotations", {})
    try:
        if instancetype is not None:
            preferences.check_divisible(instancetype["cpu"]["guest"], preference)
        apply_instancetype(instancetype, preference, template["spec"], annotations, TEMPLATE_BASE, rules=rules)
        defaults.spec_defaults(template["spec"], configuration)
        preferences.check_requirements(instancetype, preference, template["spec"])
    except Crash:
        raise
    except Conflicts as rejection:
        return deny(rejection.conflicts)
    except Cause as cause:
        return deny([cause])
    except Rejection as rejection:
        return VmAdmission(400, rejection.what)
    return VmAdmission()


def find_denial(vm: Json, get: Get, configuration: ClusterConfig, find: Find) -> Rejection | None:
    """What KubeVirt's two webhooks, one after the other, have against the creation of a VM; None for nothing.

    The VM is as `share_vm` returns it, and stays so.

    Returns:
        The denial, a `Crash` where KubeVirt would crash.

    Raises:
        InputError: an object is malformed.
    """
    changed = _copy(vm)
    try:
        # Neither webhook looks at the UUID.
        answer = amend_vm(changed, get, lambda: "new", configuration, find=find)
        if answer.is_allowed:
            # The second webhook reads what the first has written. Neither it nor the owner leaves anything empty in
            # this VM, which would be gone by then; so there is no need to write and read it.
            answer = evaluate_vm(changed, get, configuration, find)
    except Crash as crash:
        return crash
    return None if answer.is_allowed else Rejection(answer.message)


def _copy(vm: Json) -> Json:
    """A VM that shares with the given one what neither webhook changes."""
    spec = vm["spec"]
    own: Json = {matcher.field: dict(spec[matcher.field]) for matcher in MATCHERS if matcher.field in spec}
    if "dataVolumeTemplates" in spec:
        own["dataVolumeTemplates"] = copy_written(spec["dataVolumeTemplates"])
    return {**vm, "spec": {**spec, **own, "template": copy_domain_and_annotations(spec["template"])}}


_INVALID: Final = "FieldValueInvalid"
_OVERCOMMIT: Final = "spec.memory.overcommitPercent"
_HUGEPAGES: Final = "spec.memory.hugepages"
_LAUNCH_SECURITY: Final = (
    "launchSecurity is deprecated and will be removed in a future release. Use preference instead."
)


def admit_instancetype(instancetype: Any, rules: Rules = NEWEST) -> VmAdmission:
    """The answer to an instancetype of either scope, plain JSON; an `InputError` where it is malformed."""
    spec = decode(rules.instancetype, instancetype)["spec"]
    percent, causes = spec["memory"].get("overcommitPercent", 0), []
    if not 0 <= percent <= 100:
        text = f"{_OVERCOMMIT} '{percent}': must be in range between 0 and 100."
        causes.append(Cause(_INVALID, text, _OVERCOMMIT))
    if percent and "hugepages" in spec["memory"]:
        text = f"{_OVERCOMMIT} and {_HUGEPAGES} should not be requested together."
        causes.append(Cause(_INVALID, text, _OVERCOMMIT))
    warns = "launchSecurity" in spec and rules.has(WARNS_OF_LAUNCH_SECURITY)
    return _answer(causes, [_LAUNCH_SECURITY] if warns else [])


def admit_preference(preference: Any, rules: Rules = NEWEST) -> VmAdmission:
    """The answer to a preference of either scope, plain JSON; an `InputError` where it is malformed."""
    spec = decode(rules.preference, preference)["spec"]
    name = spec.get("cpu", {}).get("preferredCPUTopology")
    topology = preferences.preferred_topology(spec)
    if topology is None:
        return deny([Cause(_INVALID, f"unknown preferredCPUTopology {name}", "spec.cpu.preferredCPUTopology")])
    causes = _check_spread(spec) if topology == SPREAD else []
    warnings = []
    if name in DEPRECATED:
        warnings.append(
            f"PreferredCPUTopology {name} is deprecated for removal in a future release, please use "
            f"{DEPRECATED[name]} instead"
        )
    return _answer(causes, warnings)


def _check_spread(spec: Json) -> list[Cause]:
    across, ratio = preferences.preferred_spread(spec)
    if across not in preferences.ACROSS:
        return [Cause(_INVALID, f"across {across} is not supported", "spec.cpu.spreadOptions.across")]
    if across == CORES_THREADS and ratio != 2:
        text = "only a ratio of 2 (1 core 2 threads) is allowed when spreading vCPUs over cores and threads"
        return [Cause(_INVALID, text, "spec.cpu.spreadOptions.ratio")]
    return []


def _answer(causes: list[Cause], warnings: list[str]) -> VmAdmission:
    # KubeVirt warns only of what it allows.
    return deny(causes) if causes else VmAdmission(warnings=warnings)
