"""VirtualMachineInstances, their guests, volumes, launcher pods, and migrations, as far as placements depend on them.

Every field may be absent or null, as in `webhook.k8s.types.meta`.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from webhook import names
from webhook.k8s.quantity import ResourceList, nanos
from webhook.k8s.resources import PODS, Resource
from webhook.k8s.types.core import ContainerRequests, ResourceRequirements
from webhook.k8s.types.meta import Condition, Object, ObjectMeta, View, unix_time
from webhook.k8s.types.scheduling import Placed, TopologySpreadConstraint
from webhook.k8s.types.selectors import DOES_NOT_EXIST, IN, Expression, NodeSelector, Term
from webhook.placement.nodes import REGION, ZONE

# On migrations that KubeVirt makes of evictions, a drain's among them, and of its own updates. Any user can write them.
EVACUATION: Final = "kubevirt.io/evacuationMigration"
WORKLOAD_UPDATE: Final = "kubevirt.io/workloadUpdateMigration"
ENDED_PHASES: Final = ("Succeeded", "Failed")


class SourceState(View, frozen=True):
    """``status.migrationState.sourceState`` of a migration or a VMI: the pod that the VM migrates from."""

    node: str | None = None
    node_selectors: dict[str, str] | None = None


class MigrationState(View, frozen=True):
    """``status.migrationState`` of a migration or a VMI."""

    source_state: SourceState | None = None
    start_timestamp: str | None = None
    end_timestamp: str | None = None


class ResolvedOptions(View, frozen=True):
    """``status.migrationState.migrationConfiguration`` of a VMI: KubeVirt's, with the MigrationPolicy that applies."""

    allow_post_copy: bool | None = None
    allow_workload_disruption: bool | None = None
    completion_timeout_per_gib: int | None = msgspec.field(default=None, name="completionTimeoutPerGiB")
    experimental: dict[str, Any] | None = None


class MigrationStateOfVmi(MigrationState, frozen=True):
    """``status.migrationState`` of a VMI: of its last migration, which may have ended."""

    migration_uid: str | None = None
    completed: bool | None = None
    migration_configuration: ResolvedOptions | None = None


class _MigrationSpec(View, frozen=True):
    vmi_name: str | None = None
    added_node_selector: dict[str, str] | None = None
    send_to: dict[str, Any] | None = None
    receive: dict[str, Any] | None = None
    priority: str | None = None


class _ListedMigrationSpec(_MigrationSpec, frozen=True):
    """What lists keep of a ``spec``: that it adds a selector, not which, and nothing of migrations between clusters."""

    adds_selector: bool = False


class _PhaseTransition(View, frozen=True):
    phase: str | None = None
    phase_transition_timestamp: str | None = None


class MigrationStatus(View, frozen=True):
    """``status`` of a VirtualMachineInstanceMigration."""

    phase: str | None = None
    conditions: list[Condition | None] | None = None
    migration_state: MigrationState | None = None
    phase_transition_timestamps: list[_PhaseTransition | None] | None = None


class Migration(Object, frozen=True):
    """A VirtualMachineInstanceMigration; what lists do not keep of it raises a `TypeError`."""

    spec: _MigrationSpec | None = None
    status: MigrationStatus | None = None

    @classmethod
    def adding(cls, selector: dict[str, str], *, receives: bool = False) -> Migration:
        """A migration within the cluster, or the receiving half of one into it, that adds this selector."""
        return cls(spec=_MigrationSpec(added_node_selector=selector, receive={} if receives else None))

    @property
    def added_selector(self) -> dict[str, str]:
        """``spec.addedNodeSelector``; empty where the migration adds no labels. Lists do not keep it."""
        spec = self._whole_spec
        return (spec.added_node_selector if spec else None) or {}

    @property
    def adds_selector(self) -> bool:
        """Whether the migration adds labels."""
        return self.spec.adds_selector if isinstance(self.spec, _ListedMigrationSpec) else bool(self.added_selector)

    @property
    def _whole_spec(self) -> _MigrationSpec | None:
        if isinstance(self.spec, _ListedMigrationSpec):
            raise TypeError("a list does not keep this field of a migration")
        return self.spec

    @property
    def phase(self) -> str:
        """The migration's phase, for example ``Running``; empty: KubeVirt has not written any."""
        return (self.status.phase if self.status else None) or ""

    @property
    def is_unfinished(self) -> bool:
        """Whether the migration has neither succeeded nor failed."""
        return self.phase not in ENDED_PHASES

    @property
    def is_denied_by_quota(self) -> bool:
        """Whether it waits because a quota denied its target pod, as KubeVirt has written into it."""
        conditions = [each for each in (self.status.conditions if self.status else None) or () if each]
        true = [each.type for each in conditions if each.status == "True"]
        return "migrationRejectedByResourceQuota" in true and self.is_unfinished

    @property
    def ended_at(self) -> float | None:
        """When it ended, in Unix seconds; None where that is not known. One without a target has no end of its own."""
        if self.status is None or self.is_unfinished:
            return None
        state, phases = self.status.migration_state, self.status.phase_transition_timestamps or ()
        entered = (each.phase_transition_timestamp for each in phases if each and each.phase == self.phase)
        times = (state.end_timestamp if state else None, *entered, self.meta.creation_timestamp)
        return next((at for text in times if (at := unix_time(text)) is not None), None)

    @property
    def vmi_name(self) -> str:
        """The name of the VMI that migrates; empty where the migration names none."""
        return (self.spec.vmi_name if self.spec else None) or ""

    @property
    def evacuates(self) -> bool:
        """Whether it says that KubeVirt made it of an eviction. Any user can write that; the VMI proves it."""
        return self.meta.annotation(EVACUATION) is not None

    @property
    def is_prioritized(self) -> bool:
        """Whether it has a priority, which virt-api accepts from KubeVirt's controller alone (1.7 and later)."""
        return bool(self.spec and self.spec.priority)

    @property
    def sends(self) -> bool:
        """Whether it is the sending half of a migration between clusters, which makes no target pod. Not in lists."""
        spec = self._whole_spec
        return spec is not None and spec.send_to is not None and spec.receive is None

    @property
    def receives(self) -> bool:
        """Whether it is the receiving half. Not in lists."""
        spec = self._whole_spec
        return spec is not None and spec.receive is not None and spec.send_to is None


NO_MIGRATION: Final = Migration()


def entries_of(written: dict[str, str] | None, *keys: str) -> dict[str, str]:
    """Of labels or annotations those with certain keys."""
    return {key: written[key] for key in keys if written and key in written}


def _reduce_migration(migration: Migration) -> Migration:
    """What lists keep of a migration: its VMI, its result, and its origin, without the texts that users wrote."""
    meta, spec = migration.meta, migration.spec or _MigrationSpec()
    marks = dict.fromkeys(entries_of(meta.annotations, EVACUATION, WORKLOAD_UPDATE), "")
    kept = ObjectMeta(meta.name, None, meta.namespace, meta.uid, None, marks, None, meta.creation_timestamp)
    priority, adds = "any" if spec.priority else None, bool(spec.added_node_selector)
    return Migration(kept, _ListedMigrationSpec(spec.vmi_name, priority=priority, adds_selector=adds), migration.status)


_MIGRATION: Final = (names.KUBEVIRT_GROUP, "v1", "virtualmachineinstancemigrations", "VirtualMachineInstanceMigration")
MIGRATIONS: Final = Resource(*_MIGRATION, True, Migration, _reduce_migration)
# Of lists for caps: finished ones, of which KubeVirt keeps five of each VM, would be most of them.
UNFINISHED: Final = Resource(
    *(*_MIGRATION, True, Migration), lambda migration: _reduce_migration(migration) if migration.is_unfinished else None
)

# Of a target pod, which keeps them when the migration is over: the migration's UID, a label, and name, an annotation.
JOB_UID: Final = "kubevirt.io/migrationJobUID"
JOB_NAME: Final = "kubevirt.io/migrationJobName"
# What the admission plugin LimitRanger wrote into the pod's containers, an annotation.
LIMIT_RANGER: Final = "kubernetes.io/limit-ranger"
# Labels of pods whose VMs may reserve a LUN, each with the UID of its claim; any user can write more into a pod.
_RESERVATION: Final = "pr.kubevirt.io/"
MOST_RESERVATIONS: Final = 8
_ATTACHMENT_APP: Final = "hotplug-disk"


class LauncherPodSpec(Placed, frozen=True):
    """``spec`` of a launcher pod."""

    node_name: str | None = None
    containers: Sequence[ContainerRequests | None] | None = None
    init_containers: Sequence[ContainerRequests | None] | None = None
    resources: ResourceRequirements | None = None
    overhead: ResourceList | None = None
    priority_class_name: str | None = None
    priority: int | None = None
    preemption_policy: str | None = None
    resource_claims: list[Any] | None = None
    topology_spread_constraints: list[TopologySpreadConstraint | None] | None = None


class _LauncherPodStatus(View, frozen=True):
    phase: str | None = None
    start_time: str | None = None
    conditions: list[Condition | None] | None = None


class LauncherPod(Object, frozen=True):
    """A Pod (core/v1) in which KubeVirt runs a VM."""

    spec: LauncherPodSpec | None = None
    status: _LauncherPodStatus | None = None

    @property
    def node_name(self) -> str:
        """The node to which the pod is bound; empty: none yet."""
        return (self.spec.node_name if self.spec else None) or ""

    @property
    def phase(self) -> str:
        """The pod's phase, for example ``Running``; empty: the kubelet has not written any."""
        return (self.status.phase if self.status else None) or ""

    @property
    def is_ready(self) -> bool:
        """Whether the kubelet says that the pod is ready; lists of launcher pods do not keep that."""
        conditions = (self.status.conditions if self.status else None) or ()
        return any(each.status == "True" for each in conditions if each and each.type == "Ready")

    @property
    def ignores_budgets(self) -> bool:
        """Whether the API server evicts it whatever PodDisruptionBudgets say (``canIgnorePDB``)."""
        return self.is_over or self.phase == "Pending" or self.meta.deletion_timestamp is not None

    @property
    def started_at(self) -> float | None:
        """When a kubelet began to start it, in Unix seconds; None: none has."""
        return unix_time(self.status.start_time) if self.status else None

    @property
    def node_selector(self) -> dict[str, str]:
        """The pod's ``nodeSelector``; empty where it has none."""
        return (self.spec.node_selector if self.spec else None) or {}

    @property
    def reservations(self) -> tuple[str, ...]:
        """The labels of the LUNs that the VM may reserve, sorted; at most `MOST_RESERVATIONS`."""
        labels = sorted(each for each in self.meta.labels or () if each.startswith(_RESERVATION))
        return tuple(labels[:MOST_RESERVATIONS])

    @property
    def launcher(self) -> str:
        """The launcher pod whose hotplugged volumes it attaches, by name (virt-api, ``isHotplugPod``); empty: none."""
        owners = self.meta.owner_references or []
        is_attachment = self.meta.label(names.APP_LABEL) == _ATTACHMENT_APP and len(owners) == 1
        return (owners[0].name or "") if is_attachment else ""

    @property
    def is_over(self) -> bool:
        """Whether all containers of the pod have ended, so that it no longer takes anything of its node."""
        return self.phase in ENDED_PHASES


# What this server has written into a pod alone: into all others of its VM it may write something else.
_INJECTED: Final = (
    names.INJECTED_TOLERATIONS_ANNOTATION,
    names.INJECTED_PREFERENCES_ANNOTATION,
    names.INJECTED_GROUP_ANNOTATION,
)


def _reduce_pod(pod: LauncherPod) -> LauncherPod | None:
    """What lists keep of a launcher pod that has not ended. Any user can label a pod, however large."""
    meta, owner = pod.meta, pod.meta.controller_owner()
    if pod.is_over or owner is None:
        return None
    kept = ObjectMeta(
        name=meta.name,
        namespace=meta.namespace,
        uid=meta.uid,
        labels=entries_of(meta.labels, names.APP_LABEL, JOB_UID, *pod.reservations),
        annotations=entries_of(meta.annotations, JOB_NAME, LIMIT_RANGER, *_INJECTED),
        owner_references=[owner],
        creation_timestamp=meta.creation_timestamp,
    )
    return LauncherPod(kept, pod.spec, pod.status and replace(pod.status, conditions=None))


LAUNCHER_PODS: Final = PODS.decoded_as(LauncherPod, _reduce_pod)


class _VolumeAffinity(View, frozen=True):
    required: NodeSelector | None = None


class _VolumeSpec(View, frozen=True):
    node_affinity: _VolumeAffinity | None = None


# The labels by which a PersistentVolume names its zones (kube-scheduler, plugin VolumeZone), as nodes are labeled now.
_TOPOLOGY_LABELS: Final = {
    "failure-domain.beta.kubernetes.io/zone": ZONE,
    "failure-domain.beta.kubernetes.io/region": REGION,
    ZONE: ZONE,
    REGION: REGION,
}
_VALUES_SEPARATOR: Final = "__"


class PersistentVolume(Object, frozen=True):
    """A PersistentVolume (core/v1), by the nodes from which it can be reached."""

    spec: _VolumeSpec | None = None

    @property
    def terms(self) -> tuple[Term, ...]:
        """Where it can be reached from, by its node affinity and its labels; empty: from everywhere.

        kube-scheduler compares the labels only with nodes that have any such label.
        """
        affinity = self.spec.node_affinity if self.spec else None
        required = affinity.required.terms() if affinity and affinity.required else ()
        labels = self.meta.labels or {}
        zones = tuple(
            Expression(key, IN, tuple(labels[written].split(_VALUES_SEPARATOR)))
            for written, key in _TOPOLOGY_LABELS.items()
            if written in labels
        )
        if not zones:
            return required
        unlabeled = tuple(Expression(key, DOES_NOT_EXIST) for key in _TOPOLOGY_LABELS)
        return tuple(
            Term((*term.expressions, *more), term.fields, term.problems)
            for term in required or (Term(),)
            for more in (zones, unlabeled)
        )


class _NamedVolume(View, frozen=True):
    """One of the ``status.migratedVolumes`` of a VMI."""

    volume_name: str | None = None


class _ClaimSpec(View, frozen=True):
    volume_name: str | None = None
    access_modes: list[str | None] | None = None
    storage_class_name: str | None = None


class _ClaimStatus(View, frozen=True):
    phase: str | None = None


class Claim(Object, frozen=True):
    """A PersistentVolumeClaim (core/v1), by the volume to which it is bound, or is to be bound."""

    spec: _ClaimSpec | None = None
    status: _ClaimStatus | None = None

    @property
    def volume(self) -> str:
        """The PersistentVolume that it is bound to; empty: none yet."""
        return (self.spec.volume_name if self.spec else None) or ""

    @property
    def storage_class(self) -> str:
        """Its StorageClass; empty: it has none."""
        before = self.meta.annotation("volume.beta.kubernetes.io/storage-class")
        return before or (self.spec.storage_class_name if self.spec else None) or ""

    @property
    def selected_node(self) -> str:
        """The node for which its volume is being provisioned; empty: none was chosen."""
        return self.meta.annotation("volume.kubernetes.io/selected-node") or ""

    @property
    def is_for_one_pod(self) -> bool:
        """Whether kube-scheduler places no pod that uses it while another one does (plugin VolumeRestrictions)."""
        return "ReadWriteOncePod" in ((self.spec.access_modes if self.spec else None) or ())

    @property
    def is_for_one_node(self) -> bool:
        """Whether its volume has to be detached from one node before another can attach it."""
        modes = (self.spec.access_modes if self.spec else None) or ()
        return bool(modes) and {"ReadOnlyMany", "ReadWriteMany"}.isdisjoint(modes)

    @property
    def is_lost(self) -> bool:
        """Whether the PersistentVolume that it was bound to is gone for good."""
        return (self.status.phase if self.status else None) == "Lost"


class _TopologyExpression(View, frozen=True):
    key: str | None = None
    values: list[str] | None = None


class _TopologyTerm(View, frozen=True):
    match_label_expressions: list[_TopologyExpression | None] | None = None


class StorageClass(Object, frozen=True):
    """A StorageClass (storage.k8s.io/v1), by when and where it provisions volumes."""

    provisioner: str | None = None
    volume_binding_mode: str | None = None
    allowed_topologies: list[_TopologyTerm | None] | None = None

    @property
    def waits_for_consumer(self) -> bool:
        """Whether a claim stays unbound until a pod that uses it has got a node."""
        return self.volume_binding_mode == "WaitForFirstConsumer"

    @property
    def provisions(self) -> bool:
        """Whether it makes volumes; else an administrator does."""
        return self.provisioner not in (None, "", "kubernetes.io/no-provisioner")

    @property
    def is_default(self) -> bool:
        """Whether claims get it that name none."""
        return self.meta.annotation("storageclass.kubernetes.io/is-default-class") == "true"

    @property
    def is_default_for_vms(self) -> bool:
        """Whether CDI prefers it to the default one for the DataVolumes of VMs."""
        return self.meta.annotation("storageclass.kubevirt.io/is-default-virt-class") == "true"

    @property
    def terms(self) -> tuple[Term, ...]:
        """The nodes for which it provisions volumes (component-helpers, MatchTopologySelectorTerms); empty: all."""
        return tuple(
            Term(
                tuple(
                    Expression(each.key or "", IN, tuple(each.values or ()))
                    for each in (term.match_label_expressions if term else None) or ()
                    if each
                )
            )
            for term in self.allowed_topologies or ()
        )


CLAIMS: Final = Resource("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim", True, Claim)
VOLUMES: Final = Resource("", "v1", "persistentvolumes", "PersistentVolume", False, PersistentVolume)
STORAGE_CLASSES: Final = Resource("storage.k8s.io", "v1", "storageclasses", "StorageClass", False, StorageClass)


class _Hugepages(View, frozen=True):
    page_size: str | None = None


class _ReservedOverhead(View, frozen=True):
    added_overhead: str | int | float | None = None


class Memory(View, frozen=True):
    """``spec.domain.memory`` of a VMI; the amounts are quantities."""

    guest: str | int | float | None = None
    hugepages: _Hugepages | None = None
    reserved_overhead: _ReservedOverhead | None = None


class GuestResources(ResourceRequirements, frozen=True):
    """``spec.domain.resources`` of a VMI."""

    overcommit_guest_overhead: bool | None = None


class _IoThreads(View, frozen=True):
    supplemental_pool_thread_count: int | None = None


class _HostDevice(View, frozen=True):
    """One of ``gpus`` or ``hostDevices``; one with a claim's name comes from a DRA driver, not from a device plugin."""

    device_name: str | None = None
    claim_name: str | None = None


class _Lun(View, frozen=True):
    reservation: bool | None = None


class _Disk(View, frozen=True):
    lun: _Lun | None = None


class _Interface(View, frozen=True):
    model: str | None = None


class _Tpm(View, frozen=True):
    enabled: bool | None = None
    persistent: bool | None = None


class Devices(View, frozen=True):
    """``spec.domain.devices`` of a VMI, as far as they need resources of a node."""

    autoattach_graphics_device: bool | None = None
    autoattach_pod_interface: bool | None = None
    autoattach_vsock: bool | None = msgspec.field(default=None, name="autoattachVSOCK")
    interfaces: list[_Interface | None] | None = None
    disks: list[_Disk | None] | None = None
    tpm: _Tpm | None = None
    gpus: list[_HostDevice | None] | None = None
    host_devices: list[_HostDevice | None] | None = None

    def by_resource(self) -> Mapping[str, int]:
        """How many devices of each resource the guest has; KubeVirt's ``permittedHostDevices`` name the resources."""
        devices = (*(self.gpus or ()), *(self.host_devices or ()))
        if not devices:
            return {}
        return Counter(each.device_name for each in devices if each and each.device_name and not each.claim_name)

    @property
    def claims_devices(self) -> bool:
        """Whether a device comes from a DRA driver, by a ResourceClaim."""
        return any(each and each.claim_name for each in (*(self.gpus or ()), *(self.host_devices or ())))

    @property
    def reserves_persistently(self) -> bool:
        """Whether a disk takes a persistent reservation of its LUN."""
        return any(disk and disk.lun and disk.lun.reservation for disk in self.disks or ())

    def requests(self) -> dict[str, int]:
        """What KubeVirt requests for them, in billionths."""
        return {resource: number * 10**9 for resource, number in self.by_resource().items()}


class _CpuFeature(View, frozen=True):
    name: str | None = None
    policy: str | None = None


class Cpu(View, frozen=True):
    """``spec.domain.cpu`` of a VMI."""

    cores: int | None = None
    sockets: int | None = None
    threads: int | None = None
    model: str | None = None
    dedicated_cpu_placement: bool | None = None
    isolate_emulator_thread: bool | None = None
    features: list[_CpuFeature] | None = None
    realtime: dict[str, Any] | None = None
    numa: dict[str, Any] | None = None

    @property
    def decided_by_kubelet(self) -> tuple[str, ...]:
        """What the guest has of which the kubelet decides by NUMA node or by core, and kube-scheduler knows the sum.

        Its CPU and topology managers may reject a pod that was bound (``TopologyAffinityError``,
        ``SMTAlignmentError``, ``UnexpectedAdmissionError``).
        """
        has = (
            ("dedicated CPUs", self.dedicated_cpu_placement),
            ("NUMA pass-through", self.numa is not None and "guestMappingPassthrough" in self.numa),
            ("realtime CPUs", self.realtime is not None),
        )
        return tuple(name for name, counts in has if counts)

    @property
    def vcpus(self) -> int:
        """The product of what is given; 0: nothing is (KubeVirt, pkg/util/hardware, GetNumberOfVCPUs)."""
        counts = [count for count in (self.cores, self.sockets, self.threads) if count]
        return math.prod(counts) if counts else 0

    def features_with(self, *policies: str) -> list[str]:
        """The names of the features that have one of these policies; ``""`` for none."""
        return [feature.name or "" for feature in self.features or () if (feature.policy or "") in policies]


NO_CPU: Final = Cpu()


class _Machine(View, frozen=True):
    type: str | None = None


class FeatureState(View, frozen=True):
    """The state of one Hyper-V feature (KubeVirt, FeatureState); ``enabled`` may be absent."""

    enabled: bool | None = None


class _DomainFeatures(View, frozen=True):
    hyperv: dict[str, FeatureState | None] | None = None


class _SevPolicy(View, frozen=True):
    encrypted_state: bool | None = None


class _Sev(View, frozen=True):
    policy: _SevPolicy | None = None


class _Efi(View, frozen=True):
    persistent: bool | None = None


class _Bootloader(View, frozen=True):
    efi: _Efi | None = None


class _Firmware(View, frozen=True):
    bootloader: _Bootloader | None = None


class LaunchSecurity(View, frozen=True):
    """``spec.domain.launchSecurity`` of a VMI; of SNP and TDX only their presence counts."""

    sev: _Sev | None = None
    snp: dict[str, Any] | None = None
    tdx: dict[str, Any] | None = None


class Domain(View, frozen=True):
    """``spec.domain`` of a VMI (KubeVirt, api/core/v1, DomainSpec)."""

    cpu: Cpu | None = None
    memory: Memory | None = None
    resources: GuestResources | None = None
    io_threads: _IoThreads | None = None
    devices: Devices | None = None
    machine: _Machine | None = None
    features: _DomainFeatures | None = None
    launch_security: LaunchSecurity | None = None
    firmware: _Firmware | None = None

    @property
    def has_state(self) -> bool:
        """Whether KubeVirt keeps its TPM or EFI variables in a claim (KubeVirt, IsBackendStorageNeeded)."""
        tpm = self.devices.tpm if self.devices else None
        bootloader = self.firmware.bootloader if self.firmware else None
        efi = bootloader.efi if bootloader else None
        return bool((tpm and tpm.enabled is not False and tpm.persistent) or (efi and efi.persistent))


_NO_DOMAIN: Final = Domain()

HOST_MODEL: Final = "host-model"


class _ClaimSource(View, frozen=True):
    """A source of one of a VMI's volumes that has a claim; ``dataVolume`` has a name of its own."""

    claim_name: str | None = None
    name: str | None = None
    hotpluggable: bool | None = None


class _EphemeralSource(View, frozen=True):
    persistent_volume_claim: _ClaimSource | None = None


class Volume(View, frozen=True):
    """One of the ``spec.volumes`` of a VMI."""

    name: str | None = None
    persistent_volume_claim: _ClaimSource | None = None
    data_volume: _ClaimSource | None = None
    ephemeral: _EphemeralSource | None = None
    memory_dump: _ClaimSource | None = None

    @property
    def claim(self) -> str:
        """The name of its PersistentVolumeClaim, which a DataVolume shares; empty: it has none."""
        if self.data_volume and not self.persistent_volume_claim:
            return self.data_volume.name or ""
        return (self._source.claim_name if self._source else None) or ""

    @property
    def is_hotplugged(self) -> bool:
        """Whether a pod beside the launcher pod holds it, so that the launcher pod is placed without regard to it."""
        return bool(self._source and self._source.hotpluggable)

    @property
    def _source(self) -> _ClaimSource | None:
        of_ephemeral = self.ephemeral.persistent_volume_claim if self.ephemeral else None
        return self.persistent_volume_claim or self.data_volume or of_ephemeral or self.memory_dump


class _Network(View, frozen=True):
    multus: dict[str, Any] | None = None


class PlacedVmiSpec(Placed, frozen=True):
    """``spec`` of a VMI, as far as it decides over nodes."""

    networks: list[_Network | None] | None = None
    architecture: str | None = None
    domain: Domain | None = None
    topology_spread_constraints: list[Any] | None = None
    volumes: list[Volume | None] | None = None
    eviction_strategy: str | None = None
    priority_class_name: str | None = None
    scheduler_name: str | None = None
    utility_volumes: list[Any] | None = None


class TopologyHints(View, frozen=True):
    """``status.topologyHints`` of a VMI, which virt-controller writes before it makes a pod."""

    tsc_frequency: int | None = None


# The label of the claim for a VM's TPM and EFI variables, with the VM's name, and how its volume's name begins.
STATE_PREFIX: Final = "persistent-state-for"


class _BackupStatus(View, frozen=True):
    backup_name: str | None = None
    completed: bool | None = None


class _BlockTracking(View, frozen=True):
    """``status.changedBlockTracking`` of a VMI; KubeVirt holds migrations back during a backup."""

    backup_status: _BackupStatus | None = None


class _ClaimInfo(View, frozen=True):
    claim_name: str | None = None
    access_modes: list[str] | None = None


class VolumeStatus(View, frozen=True):
    """One of the ``status.volumeStatus`` of a VMI; ``hotplug_volume`` is there where a pod of its own holds it."""

    name: str | None = None
    persistent_volume_claim_info: _ClaimInfo | None = None
    hotplug_volume: dict[str, Any] | None = None

    @property
    def is_shared(self) -> bool:
        """Whether it does not keep its VM from another node; KubeVirt takes the VM's persistent state along."""
        return self.persistent_volume_claim_info is None or self.is_state or self.has_several_users

    @property
    def is_state(self) -> bool:
        """Whether it is the one in which KubeVirt keeps the VM's TPM and EFI variables."""
        return (self.name or "").startswith(STATE_PREFIX)

    @property
    def claim(self) -> str:
        """The name of its claim; empty: it has none."""
        return (self.persistent_volume_claim_info.claim_name if self.persistent_volume_claim_info else None) or ""

    @property
    def has_several_users(self) -> bool:
        """Whether several nodes can mount its claim."""
        claim = self.persistent_volume_claim_info
        return not {"ReadOnlyMany", "ReadWriteMany"}.isdisjoint((claim.access_modes if claim else None) or ())


class VmiStatus(View, frozen=True):
    """``status`` of a VMI, as far as it decides over nodes."""

    changed_block_tracking: _BlockTracking | None = None
    phase: str | None = None
    conditions: list[Condition | None] | None = None
    node_name: str | None = None
    machine: _Machine | None = None
    topology_hints: TopologyHints | None = None
    migration_state: MigrationStateOfVmi | None = None
    evacuation_node_name: str | None = None
    migration_method: str | None = None
    volume_status: list[VolumeStatus | None] | None = None
    migrated_volumes: list[_NamedVolume | None] | None = None


_CPU_HOTPLUG: Final = "HotVCPUChange"
_HOTPLUG_CONDITIONS: Final = (_CPU_HOTPLUG, "HotMemoryChange", "VolumesChange", "MigrationRequired")


class Vmi(Object, frozen=True):
    """A VirtualMachineInstance: read it, not the VM, because its creation fills in the CPU model."""

    spec: PlacedVmiSpec | None = None
    status: VmiStatus | None = None

    @property
    def cpu(self) -> Cpu:
        """``spec.domain.cpu``; an empty one where it is absent."""
        domain = self.spec.domain if self.spec else None
        return (domain.cpu if domain else None) or NO_CPU

    @property
    def domain(self) -> Domain:
        """``spec.domain``; an empty one where it is absent."""
        return (self.spec.domain if self.spec else None) or _NO_DOMAIN

    @property
    def machine_type(self) -> str:
        """The machine type that it runs with; before it runs, the one in its spec."""
        running = self.status.machine if self.status else None
        if running and running.type:
            return running.type
        machine = self.domain.machine
        return (machine.type if machine else None) or ""

    @property
    def node_name(self) -> str:
        """Where it runs; empty: nowhere yet."""
        return (self.status.node_name if self.status else None) or ""

    @property
    def has_ended(self) -> bool:
        """Whether it has stopped for good (KubeVirt calls it final)."""
        return (self.status.phase if self.status else None) in ENDED_PHASES

    @property
    def waits_for_source(self) -> bool:
        """Whether a migration from another cluster or namespace is to fill it: it starts nowhere by itself."""
        waits = (self.status.phase if self.status else None) == "WaitingForSync"
        return not self.node_name and (waits or bool(self.source_state.node))

    def condition(self, kind: str) -> Condition | None:
        """Its condition of a type; None: it has none."""
        conditions = (self.status.conditions if self.status else None) or ()
        return next((each for each in conditions if each and each.type == kind), None)

    @property
    def migratable(self) -> bool:
        """Whether KubeVirt has found that it can be live-migrated; before it has looked, it cannot."""
        condition = self.condition("LiveMigratable")
        return condition is not None and condition.status == "True"

    @property
    def hotplug_conditions(self) -> tuple[str, ...]:
        """The conditions that say that a change of the VM takes effect in a migration; empty: none waits for one.

        KubeVirt's workload updater looks for them (``isHotplugInProgress`` and ``isVolumesUpdateInProgress``), of CPUs
        whatever the condition's status is.
        """
        found = ((kind, self.condition(kind)) for kind in _HOTPLUG_CONDITIONS)
        return tuple(
            kind for kind, condition in found if condition and (condition.status == "True" or kind == _CPU_HOTPLUG)
        )

    @property
    def attached_volumes(self) -> frozenset[str | None]:
        """The names of volumes that a pod beside its launcher pod attaches (KubeVirt, VMIHasHotplugVolumes)."""
        volumes = (self.spec.volumes if self.spec else None) or ()
        attached = (self.status.volume_status if self.status else None) or ()
        declared = {each.name for each in volumes if each and each.is_hotplugged}
        return frozenset({*declared, *(each.name for each in attached if each and each.hotplug_volume is not None)})

    @property
    def state_volumes(self) -> tuple[str, ...]:
        """The volumes in its status that hold its persistent state (TPM, EFI, changed block tracking).

        KubeVirt (pkg/storage/backend-storage) adds them to those that the spec declares.
        """
        volumes = (self.spec.volumes if self.spec else None) or ()
        declared = {each.name for each in volumes if each}
        attached = (self.status.volume_status if self.status else None) or ()
        named = [each.name for each in attached if each and each.name and each.name.startswith(STATE_PREFIX)]
        return tuple([name for name in named if name not in declared])

    @property
    def state_volume(self) -> VolumeStatus | None:
        """The volume in which KubeVirt keeps its TPM and EFI variables, as far as it has run; None: there is none."""
        attached = (self.status.volume_status if self.status else None) or ()
        return next((each for each in attached if each and each.is_state), None)

    @property
    def migrates_volumes(self) -> bool:
        """Whether a migration copies its volumes to others, so that it need not be migratable by itself.

        All volumes are copied that only one node can mount (KubeVirt, volumemigration.ValidateVolumesUpdateMigration).
        """
        copied = {each.volume_name for each in (self.status.migrated_volumes if self.status else None) or () if each}
        condition = self.condition("StorageLiveMigratable")
        if not copied or (condition and condition.status == "False"):
            return False
        attached = (self.status.volume_status if self.status else None) or ()
        return all(not each or each.name in copied or each.is_shared for each in attached)

    @property
    def copied_bytes(self) -> int | None:
        """The bytes by which KubeVirt counts the time of its migrations (getVMIMigrationDataSize); None: not known.

        The size of disks that are copied, too, is in no object.
        """
        status, domain = self.status, self.domain
        if status and (status.migration_method == "BlockMigration" or status.migrated_volumes):
            return None
        guest = domain.memory.guest if domain.memory else None
        own = (domain.resources.requests if domain.resources else None) or {}
        amount = nanos(guest if guest is not None else own.get("memory") or 0)
        return None if amount is None else -(-amount // 10**9)

    @property
    def is_backed_up(self) -> bool:
        """Whether a backup of it runs."""
        tracking = self.status.changed_block_tracking if self.status else None
        backup = tracking.backup_status if tracking else None
        return backup is not None and bool(backup.backup_name) and not backup.completed

    @property
    def source_state(self) -> SourceState:
        """The sending side of a migration from another cluster or namespace."""
        state = self.status.migration_state if self.status else None
        return (state.source_state if state else None) or SourceState()


class _EvacueeStatus(View, frozen=True):
    phase: str | None = None
    evacuation_node_name: str | None = None


class Evacuee(Object, frozen=True):
    """A VMI, read only for whether KubeVirt evacuates it."""

    status: _EvacueeStatus | None = None

    @property
    def is_evacuated(self) -> bool:
        """Whether KubeVirt is to evacuate it.

        A VMI's status can be written by its maker at its creation, and afterwards by KubeVirt alone, whose mutating
        webhook puts back what others change. The phase is KubeVirt's from the beginning, so that of one that never
        started the field proves nothing.
        """
        status = self.status
        return bool(status and status.phase == "Running" and status.evacuation_node_name)


PLACED_VMIS: Final = Resource(
    names.KUBEVIRT_GROUP, "v1", "virtualmachineinstances", "VirtualMachineInstance", True, Vmi
)
EVACUEES: Final = PLACED_VMIS.decoded_as(Evacuee)
