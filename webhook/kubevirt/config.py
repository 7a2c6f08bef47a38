"""The cluster's settings as KubeVirt sees them: its built-in ones, overlaid with the KubeVirt object's.

KubeVirt ignores an invalid configuration as a whole (pkg/virt-config).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, Final, get_origin, get_type_hints

from webhook.errors import InputError, Unavailable
from webhook.k8s import quantity
from webhook.k8s.json_tree import member
from webhook.k8s.quantity import Quantity
from webhook.kubevirt.go_json.origins import FieldOrigin
from webhook.kubevirt.go_json.structs import (
    BOOL,
    BOOL_POINTER,
    INT64,
    INT64_POINTER,
    QUANTITY,
    STRING,
    STRING_POINTER,
    UINT32,
    UINT32_POINTER,
    Json,
    List,
    Struct,
    encode,
    members,
)
from webhook.kubevirt.hyperconverged import HyperConverged
from webhook.kubevirt.releases import release
from webhook.kubevirt.releases.capabilities import CONFIGURES_S390X_MACHINE_TYPE, KNOWS_PPC64LE, Version, parse_version
from webhook.kubevirt.releases.fields import Definitions
from webhook.kubevirt.releases.release import Release, declare, detect, release_of
from webhook.kubevirt.rules import NEWEST, Rules, rules_of
from webhook.kubevirt.types.core import STRING_MAP, STRINGS
from webhook.kubevirt.types.views import KubeVirt, WorkloadUpdateStrategy

_CONFIGURATION: Final = Struct(
    **members(STRING_POINTER, "evictionStrategy vmRolloutStrategy"),
    **members(STRING, "machineType cpuModel defaultRuntimeClass imagePullPolicy"),
    additionalGuestMemoryOverheadRatio=STRING_POINTER,
    cpuRequest=QUANTITY,
    instancetype=Struct(referencePolicy=STRING_POINTER),
    network=Struct(defaultNetworkInterface=STRING, permitBridgeInterfaceOnPodNetwork=BOOL_POINTER),
    architectureConfiguration=Struct(**members(Struct(machineType=STRING), "amd64 arm64 s390x ppc64le")),
    liveUpdateConfiguration=Struct(maxCpuSockets=UINT32_POINTER, maxGuest=QUANTITY, maxHotplugRatio=UINT32),
    migrations=Struct(
        **members(UINT32_POINTER, "parallelMigrationsPerCluster parallelOutboundMigrationsPerNode"),
        bandwidthPerMigration=QUANTITY,
        completionTimeoutPerGiB=INT64_POINTER,
        **members(BOOL_POINTER, "allowPostCopy allowWorkloadDisruption"),
        nodeDrainTaintKey=STRING_POINTER,
    ),
    hypervisors=List(Struct(name=STRING)),
    developerConfiguration=Struct(
        nodeSelectors=STRING_MAP,
        useEmulation=BOOL,
        **members(STRINGS, "featureGates disabledFeatureGates"),
        **members(INT64, "memoryOvercommit cpuAllocationRatio pvcTolerateLessSpaceUpToPercent"),
    ),
    confidentialCompute=Struct(tdx=Struct(attestation=Struct(qgsSocketPath=STRING_POINTER))),
)
_PATH: Final = "spec.configuration"
EVEN_PARITY_ANNOTATION: Final = "alpha.kubevirt.io/EmulatorThreadCompleteToEvenParity"

AMD64: Final = "amd64"
ARM64: Final = "arm64"
S390X: Final = "s390x"
_PPC64LE: Final = "ppc64le"
ARCHITECTURES: Final = (AMD64, ARM64, S390X)
_MACHINE_TYPES: Final = {AMD64: "q35", ARM64: "virt", S390X: "s390-ccw-virtio", _PPC64LE: "pseries"}
_PULL_POLICIES: Final = ("", "Always", "IfNotPresent", "Never")
_INTERFACES: Final = ("", "bridge", "masquerade", "slirp")
_CPU_REQUEST: Final = quantity.parse("100m")
# In percent: the guest gets as much memory as is requested for it.
MEMORY_OVERCOMMIT: Final = 100
_HYPERV_DIRECT: Final = "hyperv-direct"
_AMOUNTS: Final = ("cpu_request", "max_guest", "migration_bandwidth")


@dataclass(frozen=True, slots=True)
class ClusterConfig:
    """KubeVirt's configuration of a cluster, as far as policies depend on it; the defaults are KubeVirt's.

    An attribute that one member of the configuration sets is annotated with that member's path below
    `spec.configuration`.

    Attributes:
        default_architecture: the architecture of VMs that name none: that of KubeVirt's control plane.
        machine_types: the default machine type by architecture.
        cpu_request: the CPU request of VMIs without one; applied only where it is not KubeVirt's own default.
        cpu_model: the CPU model of VMIs that name none; empty: ``host-model``.
        live_update: whether VMIs are made ready for hotplug of CPUs and memory.
        max_hotplug_ratio: how many times more sockets and memory a VMI may get than it starts with.
        memory_overcommit: the guest's memory in percent of what is requested for it.
        cpu_allocation_ratio: how many vCPUs share one CPU that is requested.
        overhead_ratio: by what the memory is multiplied that launcher pods request beside the guest's, as it is
            written; empty: by 1.
        node_selectors: the labels that the cluster's administrator requires of the nodes of all VMs.
        use_emulation: whether VMs run without KVM where a node does not have it.
        hypervisor: the name of the hypervisor that is configured first; empty: KVM.
        default_runtime_class: the RuntimeClass of all launcher pods; empty: none.
        parallel_migrations: how many migrations may run in the cluster concurrently.
        outbound_migrations: how many migrations may leave one node concurrently.
        migration_bandwidth: the bytes per second that a migration may copy; None or 0: as many as it can.
        migration_timeout_seconds_per_gib: after so many seconds for each GiB of a VM's memory KubeVirt aborts its
            migration, or pauses the VM.
        drain_taint: the key of the taint (NoSchedule) by which KubeVirt evacuates all VMs of a node.
        allow_post_copy: a migration past its time is switched to post-copy.
        allow_workload_disruption: the guest of a migration past its time is paused; None: as ``allow_post_copy``.
        detects_stalls: the experimental stall detection is configured.
        limits_cpus_by_namespace: KubeVirt limits the CPUs of VMs in namespaces with certain labels.
        feature_gates: those that the administrator has opened.
        disabled_gates: those that the administrator has closed.
        qgs_socket_path: the socket of the host's quote generation service, for VMIs with TDX.
        minimum_tsc_frequency: the TSC frequency in Hz of VMs that need a fixed one; None: the lowest of the nodes.
        permitted_devices: the resources of devices that VMs may have from their hosts; None: all.
        workload_update_methods: how KubeVirt's workload updater replaces launcher pods; None: not known.
        even_parity: the annotation that completes emulator threads to an even number of CPUs is set.
        set_by_admin: the names of the attributes that the cluster's administrator has set.
        rules: those of the release of KubeVirt that runs in the cluster.
        is_release_assumed: nothing says which release that is, so that it is taken for the newest.
        owner: what overwrites the KubeVirt object; None: its administrator sets its fields.
        launchers_of: the release that made the launcher pods, where a plan is about an update; None: ``rules``'.
    """

    default_architecture: str = AMD64
    machine_types: dict[str, str] = field(default_factory=lambda: _machine_types(NEWEST))
    reference_policy: Annotated[str, "instancetype.referencePolicy"] = "reference"
    network_interface: Annotated[str, "network.defaultNetworkInterface"] = "bridge"
    permit_bridge: Annotated[bool, "network.permitBridgeInterfaceOnPodNetwork"] = True
    cpu_request: Annotated[Quantity, "cpuRequest"] = _CPU_REQUEST
    cpu_model: Annotated[str, "cpuModel"] = ""
    eviction_strategy: Annotated[str, "evictionStrategy"] = "None"
    live_update: bool = True
    max_cpu_sockets: Annotated[int, "liveUpdateConfiguration.maxCpuSockets"] = 0
    max_guest: Annotated[Quantity | None, "liveUpdateConfiguration.maxGuest"] = None
    max_hotplug_ratio: Annotated[int, "liveUpdateConfiguration.maxHotplugRatio"] = 4
    memory_overcommit: Annotated[int, "developerConfiguration.memoryOvercommit"] = MEMORY_OVERCOMMIT
    cpu_allocation_ratio: Annotated[int, "developerConfiguration.cpuAllocationRatio"] = 10
    overhead_ratio: Annotated[str, "additionalGuestMemoryOverheadRatio"] = ""
    node_selectors: Annotated[Mapping[str, str], "developerConfiguration.nodeSelectors"] = field(default_factory=dict)
    use_emulation: Annotated[bool, "developerConfiguration.useEmulation"] = False
    hypervisor: str = ""
    default_runtime_class: Annotated[str, "defaultRuntimeClass"] = ""
    parallel_migrations: Annotated[int, "migrations.parallelMigrationsPerCluster"] = 5
    outbound_migrations: Annotated[int, "migrations.parallelOutboundMigrationsPerNode"] = 2
    migration_bandwidth: Annotated[Quantity | None, "migrations.bandwidthPerMigration"] = None
    migration_timeout_seconds_per_gib: Annotated[int, "migrations.completionTimeoutPerGiB"] = 150
    drain_taint: Annotated[str, "migrations.nodeDrainTaintKey"] = "kubevirt.io/drain"
    allow_post_copy: Annotated[bool, "migrations.allowPostCopy"] = False
    allow_workload_disruption: Annotated[bool | None, "migrations.allowWorkloadDisruption"] = None
    detects_stalls: bool = False
    limits_cpus_by_namespace: bool = False
    feature_gates: frozenset[str] = frozenset()
    disabled_gates: frozenset[str] = frozenset()
    qgs_socket_path: Annotated[str, "confidentialCompute.tdx.attestation.qgsSocketPath"] = "/var/run/tdx-qgs/qgs.socket"
    minimum_tsc_frequency: int | None = None
    permitted_devices: frozenset[str] | None = None
    workload_update_methods: frozenset[str] | None = None
    even_parity: bool = False
    set_by_admin: frozenset[str] = frozenset()
    rules: Rules = NEWEST
    is_release_assumed: bool = False
    owner: HyperConverged | None = None
    launchers_of: Release | None = None

    @classmethod
    def of(cls, configuration: Any, default_architecture: str = AMD64, rules: Rules = NEWEST) -> ClusterConfig:
        """The settings of a KubeVirt object's ``spec.configuration``, plain JSON; None: the built-in ones.

        Raises:
            InputError: a value has the wrong type, which the API server would not have accepted; not of a newer release
                than the known ones, which may have changed it.
        """
        is_newer, read = rules.release.is_newer, {} if configuration is None else configuration
        settings = encode(_CONFIGURATION, _readable(read) if is_newer else read, _PATH)
        if not _is_valid(settings, is_newer=is_newer):
            settings = read = {}
        values = {name: member(settings, path) for name, path in _MEMBERS.items()}
        for name in _AMOUNTS:
            values[name] = None if values[name] is None else quantity.parse(values[name])
        hypervisors = settings.get("hypervisors")
        values |= {name: read_as(member(read, path)) for name, (path, read_as) in _PLAIN.items()}
        values |= {
            "live_update": settings.get("vmRolloutStrategy", "LiveUpdate") == "LiveUpdate",
            "hypervisor": hypervisors[0].get("name") if hypervisors else None,
            "feature_gates": frozenset(member(settings, "developerConfiguration.featureGates") or ()),
            "disabled_gates": frozenset(member(settings, "developerConfiguration.disabledFeatureGates") or ()),
        }
        chosen = {name: value for name, value in values.items() if value is not None}
        configured, legacy = settings.get("architectureConfiguration", {}), settings.get("machineType")
        types = {name: legacy or configured.get(name, {}).get("machineType") for name in _machine_types(rules)}
        if not rules.has(CONFIGURES_S390X_MACHINE_TYPE):
            types[S390X] = legacy
        machine_types = {name: machine_type for name, machine_type in types.items() if machine_type}
        return cls(
            **chosen,
            machine_types=_machine_types(rules) | machine_types,
            default_architecture=default_architecture,
            set_by_admin=frozenset([*chosen, "machine_types"] if machine_types else chosen),
            rules=rules,
        )

    @classmethod
    def of_kubevirt(
        cls, kubevirt: KubeVirt, release: Release | None = None, definitions: Definitions | None = None
    ) -> ClusterConfig:
        """The settings of a cluster's KubeVirt object, which does not count until KubeVirt's operator has taken it up.

        The release runs, whatever the object says; None: the one that the object names, with what the cluster's
        definitions know, or else the newest.

        Raises:
            InputError: its configuration is malformed.
        """
        named = release or detect(*kubevirt.versions, definitions)
        read = cls.of(
            kubevirt.spec.configuration if kubevirt.is_in_use and kubevirt.spec else None,
            (kubevirt.status.default_architecture if kubevirt.status else None) or AMD64,
            rules_of(named or release_of(NEWEST.release.version, definitions)),
        )
        even_parity = kubevirt.is_in_use and kubevirt.meta.annotation(EVEN_PARITY_ANNOTATION) is not None
        strategy = (kubevirt.spec.workload_update_strategy if kubevirt.spec else None) or WorkloadUpdateStrategy()
        return replace(
            read,
            workload_update_methods=frozenset(strategy.workload_update_methods or ()),
            even_parity=even_parity,
            is_release_assumed=named is None,
            owner=HyperConverged.owning(kubevirt),
        )

    def machine_type(self, architecture: str) -> str:
        """The machine type of VMs of an architecture; of an unknown one amd64's."""
        return self.machine_types.get(architecture) or self.machine_types[AMD64]

    def is_gate_open(self, name: str) -> bool:
        """Whether a feature gate is open."""
        return release.is_open(self.rules.release, name, self.feature_gates, self.disabled_gates)

    @property
    def release(self) -> Release:
        """The release of KubeVirt whose rules count."""
        return self.rules.release

    @property
    def needs_kvm(self) -> bool:
        """Whether launcher pods request the device of KVM: not where it is emulated, or by another hypervisor."""
        if self.use_emulation:
            return False
        return not (self.hypervisor == _HYPERV_DIRECT and self.is_gate_open("ConfigurableHypervisor"))

    @property
    def requests_cpu(self) -> bool:
        """Whether ``cpu_request`` is written into VMIs: only a value that is not KubeVirt's own default."""
        return self.cpu_request != _CPU_REQUEST

    def origin(self, attribute: str) -> FieldOrigin:
        """Where a value that comes from this attribute comes from."""
        return FieldOrigin.CLUSTER if attribute in self.set_by_admin else FieldOrigin.KUBEVIRT


def _machine_types(rules: Rules) -> dict[str, str]:
    """KubeVirt's own machine types, by architecture."""
    architectures = (*ARCHITECTURES, _PPC64LE) if rules.has(KNOWS_PPC64LE) else ARCHITECTURES
    return {name: _MACHINE_TYPES[name] for name in architectures}


DEFAULTS: Final = ClusterConfig()
# The attributes that a member of the configuration sets, and its path.
_MEMBERS: Final = {
    name: hint.__metadata__[0]
    for name, hint in get_type_hints(ClusterConfig, include_extras=True).items()
    if get_origin(hint) is Annotated
}


def _is_there(value: object) -> bool | None:
    """True for any value, an empty one too; None where there is none."""
    return True if value is not None else None


def _positive(value: object) -> int | None:
    return value if type(value) is int and value > 0 else None


def _permitted(devices: object) -> frozenset[str] | None:
    """The resource names of ``permittedHostDevices``; None where nothing is set."""
    if not isinstance(devices, dict):
        return None
    lists = (devices.get(kind) for kind in ("pciHostDevices", "mediatedDevices", "usb"))
    listed = [each for some in lists if isinstance(some, list) for each in some if isinstance(each, dict)]
    return frozenset(name for each in listed if isinstance(name := each.get("resourceName"), str))


# The attributes that members set which no type here knows: each member's path, and how it is read.
_PLAIN: Final[Mapping[str, tuple[str, Callable[[object], Any]]]] = {
    "detects_stalls": ("migrations.experimental.stallDetector", _is_there),
    "limits_cpus_by_namespace": ("autoCPULimitNamespaceLabelSelector", _is_there),
    "minimum_tsc_frequency": ("developerConfiguration.minimumClusterTSCFrequency", _positive),
    "permitted_devices": ("permittedHostDevices", _permitted),
}


def _is_valid(settings: Json, *, is_newer: bool) -> bool:
    """Whether KubeVirt accepts a configuration, of which a newer release may know other names."""
    developer = settings.get("developerConfiguration", {})
    overcommit: int = developer.get("memoryOvercommit", 100)
    ratio: int = developer.get("cpuAllocationRatio", 10)
    if overcommit <= 0 or ratio <= 0 or not 0 <= developer.get("pvcTolerateLessSpaceUpToPercent", 10) <= 100:
        return False
    interface = member(settings, "network.defaultNetworkInterface") or ""
    return is_newer or (settings.get("imagePullPolicy", "") in _PULL_POLICIES and interface in _INTERFACES)


def _readable(configuration: Any) -> Json:
    """A newer release's configuration, plain JSON, without the members whose types are other ones there."""
    kept: Json = {}
    for section, value in configuration.items() if isinstance(configuration, dict) else ():
        for part in [{}, *({name: each} for name, each in value.items())] if isinstance(value, dict) else [value]:
            with suppress(InputError):
                encode(_CONFIGURATION, {section: part}, _PATH)
                kept[section] = kept.get(section, {}) | part if isinstance(part, dict) else part
    return kept


@dataclass(frozen=True, slots=True)
class KubeVirtInstall:
    """KubeVirt's installation in a cluster.

    Attributes:
        namespaces: the namespaces that hold a KubeVirt object: ``kubevirt`` upstream, ``openshift-cnv`` on OpenShift,
            ``harvester-system`` on Harvester; empty where only the settings say which release counts.
        configuration: KubeVirt's configuration; `Unavailable` where it cannot be decoded.
    """

    namespaces: frozenset[str]
    configuration: ClusterConfig | Unavailable = DEFAULTS

    @classmethod
    def of(
        cls, kubevirts: Iterable[KubeVirt], declared: Version | None = None, definitions: Definitions | None = None
    ) -> KubeVirtInstall | None:
        """The installation that all KubeVirt objects of a cluster describe; None where there is nothing to go by.

        A declared version counts, whatever the objects say. ``definitions`` are what the cluster's
        CustomResourceDefinitions know; None: the tables of the version count.
        """
        objects = tuple(kubevirts)
        kubevirt = find_in_use(objects)
        if kubevirt is None:
            release = declared and declare(declared, None, definitions)
            return cls(frozenset(), ClusterConfig.of(None, rules=rules_of(release))) if release else None
        namespaces = frozenset(each.meta.namespace or "" for each in objects)
        release = declared and declare(declared, detect(*kubevirt.versions, definitions), definitions)
        try:
            return cls(namespaces, ClusterConfig.of_kubevirt(kubevirt, release, definitions))
        except InputError as error:
            return cls(namespaces, Unavailable(str(error)))


def find_in_use(kubevirts: Iterable[KubeVirt]) -> KubeVirt | None:
    """The KubeVirt object that KubeVirt's operator has taken up, else the first one; None where there is none."""
    objects = tuple(kubevirts)
    return next((each for each in objects if each.is_in_use), objects[0] if objects else None)


class InstallReader:
    """Reads KubeVirt objects once, and again when they, the definitions or the declared version have changed.

    Args:
        version: the KubeVirt version whose rules count, whatever the objects say; empty: the one that they name.
        definitions: what the cluster's CustomResourceDefinitions know; None: the tables of the version count.
        learns: whether `learn` is called with the definitions each time the objects name other versions.
    """

    def __init__(self, version: str = "", definitions: Definitions | None = None, *, learns: bool = False) -> None:
        self._objects: tuple[KubeVirt, ...] = ()
        self._definitions = definitions
        self._learns: Final = learns
        self._learned_at: tuple[str, str, str] | None = None
        self.use(version)

    def use(self, version: str) -> None:
        """Let another version count from now on."""
        self._declared = parse_version(version)
        self._build()

    def learn(self, versions: tuple[str, str, str], definitions: Definitions | None) -> None:
        """Let definitions count, None where they could not be read, that were read when the object named versions."""
        self._learned_at, self._definitions = versions, definitions
        self._build()

    def read(self, kubevirts: Iterable[KubeVirt]) -> KubeVirtInstall | None:
        """The installation that all KubeVirt objects of the cluster describe; the same one until they change.

        While the definitions of another version are being read, the former installation counts: a review goes by the
        rules and the fields of one release.
        """
        objects = tuple(kubevirts)
        # An informer replaces an object that has changed, so identity shows it, without comparing configurations.
        if list(map(id, objects)) != list(map(id, self._objects)):
            self._objects = objects
            if self._install is None or self._knows_definitions:
                self._build()
        return self._install

    @property
    def _knows_definitions(self) -> bool:
        kubevirt = find_in_use(self._objects)
        return not self._learns or kubevirt is None or kubevirt.versions == self._learned_at

    def _build(self) -> None:
        definitions = self._definitions if self._knows_definitions else None
        self._install = KubeVirtInstall.of(self._objects, self._declared, definitions)
