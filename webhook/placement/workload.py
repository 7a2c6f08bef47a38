"""The fields of VMIs, migrations, launcher pods and of KubeVirt's configuration that decide over nodes.

Every field may be absent or null, as in `webhook.objects`.
"""

from __future__ import annotations

from typing import Any, Final

from webhook import names
from webhook.objects import Object, ObjectMeta, Resource, View
from webhook.placement.expression import Expression, Term
from webhook.placement.guest import Cpu, Domain, Machine
from webhook.placement.podrequests import Container, ResourceRequirements
from webhook.placement.resources import Listed
from webhook.times import unix_time

HOST_MODEL: Final = "host-model"
_HYPERV_DIRECT: Final = "hyperv-direct"
# On migrations that KubeVirt makes of evictions, a drain's among them, and of its own updates. Anybody can write them.
EVACUATION: Final = "kubevirt.io/evacuationMigration"
WORKLOAD_UPDATE: Final = "kubevirt.io/workloadUpdateMigration"

# Of a target pod, which keeps them when the migration is over: the migration's UID, a label, and name, an annotation.
JOB_UID: Final = "kubevirt.io/migrationJobUID"
JOB_NAME: Final = "kubevirt.io/migrationJobName"

_OVER: Final = ("Succeeded", "Failed")


class ExpressionView(View, frozen=True):
    key: str | None = None
    operator: str | None = None
    values: list[str] | None = None

    def expression(self) -> Expression:
        return Expression(self.key or "", self.operator or "", tuple(self.values or ()))


class TermView(View, frozen=True):
    match_expressions: list[ExpressionView | None] | None = None
    match_fields: list[ExpressionView | None] | None = None

    @property
    def size(self) -> int:
        """The expressions and their values."""
        views = (*(self.match_expressions or ()), *(self.match_fields or ()))
        return len(views) + sum(len(view.values or ()) for view in views if view)

    def term(self, path: str) -> Term:
        return Term.of(_expressions(self.match_expressions), _expressions(self.match_fields), path)


def _expressions(views: list[ExpressionView | None] | None) -> tuple[Expression, ...]:
    return tuple((view or ExpressionView()).expression() for view in views or ())


class NodeSelector(View, frozen=True):
    node_selector_terms: list[TermView | None] | None = None

    @property
    def size(self) -> int:
        """The terms, their expressions, and the values of those."""
        views = self.node_selector_terms or ()
        return len(views) + sum(view.size for view in views if view)

    def terms(self) -> tuple[Term, ...]:
        """In their order; the empty ones too, which match nothing."""
        views = enumerate(self.node_selector_terms or ())
        return tuple((view or TermView()).term(f"nodeSelectorTerms[{index}]") for index, view in views)


class NodeAffinity(View, frozen=True):
    required_during_scheduling_ignored_during_execution: NodeSelector | None = None

    @property
    def required(self) -> NodeSelector | None:
        return self.required_during_scheduling_ignored_during_execution


class PodAffinity(View, frozen=True):
    required_during_scheduling_ignored_during_execution: list[Any] | None = None

    @property
    def is_required(self) -> bool:
        return bool(self.required_during_scheduling_ignored_during_execution)


class Affinity(View, frozen=True):
    node_affinity: NodeAffinity | None = None
    pod_affinity: PodAffinity | None = None
    pod_anti_affinity: PodAffinity | None = None


class Toleration(View, frozen=True):
    key: str | None = None
    operator: str | None = None
    value: str | None = None
    effect: str | None = None


class Placed(View, frozen=True):
    """What the specs of pods and of VMIs have in common."""

    node_selector: dict[str, str] | None = None
    affinity: Affinity | None = None
    tolerations: list[Toleration | None] | None = None

    @property
    def required_affinity(self) -> NodeSelector | None:
        node = self.affinity.node_affinity if self.affinity else None
        return node.required if node else None


class PodSpec(Placed, frozen=True):
    node_name: str | None = None
    containers: list[Container | None] | None = None
    init_containers: list[Container | None] | None = None
    resources: ResourceRequirements | None = None
    overhead: Listed | None = None
    runtime_class_name: str | None = None
    resource_claims: list[Any] | None = None


class PodStatus(View, frozen=True):
    phase: str | None = None


class LauncherPod(Object, frozen=True):
    spec: PodSpec | None = None
    status: PodStatus | None = None

    @property
    def node_name(self) -> str:
        return (self.spec.node_name if self.spec else None) or ""

    @property
    def phase(self) -> str:
        return (self.status.phase if self.status else None) or ""

    @property
    def node_selector(self) -> dict[str, str]:
        return (self.spec.node_selector if self.spec else None) or {}

    @property
    def is_over(self) -> bool:
        return self.phase in _OVER


class ClaimSource(View, frozen=True):
    claim_name: str | None = None
    hotpluggable: bool | None = None


class DataVolumeSource(View, frozen=True):
    name: str | None = None
    hotpluggable: bool | None = None


class Volume(View, frozen=True):
    name: str | None = None
    persistent_volume_claim: ClaimSource | None = None
    data_volume: DataVolumeSource | None = None

    @property
    def claim(self) -> str:
        """The name of its PersistentVolumeClaim, which a DataVolume shares; empty: it has none."""
        if self.persistent_volume_claim:
            return self.persistent_volume_claim.claim_name or ""
        return (self.data_volume.name if self.data_volume else None) or ""

    @property
    def is_hotplugged(self) -> bool:
        """Whether a pod beside the launcher pod holds it, so that the launcher pod is placed without regard to it."""
        source = self.persistent_volume_claim or self.data_volume
        return bool(source and source.hotpluggable)


class Network(View, frozen=True):
    multus: dict[str, Any] | None = None


class VmiSpec(Placed, frozen=True):
    networks: list[Network | None] | None = None
    architecture: str | None = None
    domain: Domain | None = None
    topology_spread_constraints: list[Any] | None = None
    volumes: list[Volume | None] | None = None
    eviction_strategy: str | None = None


class TopologyHints(View, frozen=True):
    tsc_frequency: int | None = None


class SourceState(View, frozen=True):
    node: str | None = None
    node_selectors: dict[str, str] | None = None


class MigrationState(View, frozen=True):
    source_state: SourceState | None = None
    end_timestamp: str | None = None


class Condition(View, frozen=True):
    type: str | None = None
    status: str | None = None
    reason: str | None = None
    message: str | None = None


class VmiStatus(View, frozen=True):
    phase: str | None = None
    conditions: list[Condition | None] | None = None
    node_name: str | None = None
    machine: Machine | None = None
    topology_hints: TopologyHints | None = None
    migration_state: MigrationState | None = None
    evacuation_node_name: str | None = None


class Vmi(Object, frozen=True):
    """A VirtualMachineInstance: read it, not the VM, because its creation fills in the CPU model."""

    spec: VmiSpec | None = None
    status: VmiStatus | None = None

    @property
    def cpu(self) -> Cpu:
        return self.domain.cpu or Cpu()

    @property
    def domain(self) -> Domain:
        return (self.spec.domain if self.spec else None) or Domain()

    @property
    def machine_type(self) -> str:
        """The one that it runs with, before that the one that it asks for."""
        running = self.status.machine if self.status else None
        return (running.type if running else None) or (self.domain.machine or Machine()).type or ""

    @property
    def node_name(self) -> str:
        """Where it runs; empty: nowhere yet."""
        return (self.status.node_name if self.status else None) or ""

    @property
    def ended(self) -> bool:
        """Whether it has stopped for good (KubeVirt calls it final)."""
        return (self.status.phase if self.status else None) in ("Succeeded", "Failed")

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
        """Whether KubeVirt has found that it can be live-migrated; before it has looked, it can't."""
        found = self.condition("LiveMigratable")
        return found is not None and found.status == "True"

    @property
    def source_state(self) -> SourceState:
        """The sending side of a migration from another cluster or namespace."""
        state = self.status.migration_state if self.status else None
        return (state.source_state if state else None) or SourceState()


class MigrationSpec(View, frozen=True):
    vmi_name: str | None = None
    added_node_selector: dict[str, str] | None = None
    send_to: dict[str, Any] | None = None
    receive: dict[str, Any] | None = None
    priority: str | None = None


class PhaseTransition(View, frozen=True):
    phase: str | None = None
    phase_transition_timestamp: str | None = None


class MigrationStatus(View, frozen=True):
    phase: str | None = None
    migration_state: MigrationState | None = None
    phase_transition_timestamps: list[PhaseTransition | None] | None = None


class Migration(Object, frozen=True):
    """A VirtualMachineInstanceMigration."""

    spec: MigrationSpec | None = None
    status: MigrationStatus | None = None

    @classmethod
    def adding(cls, selector: dict[str, str], *, receives: bool = False) -> Migration:
        """A migration within the cluster, or the receiving half of one into it, that adds this selector."""
        return cls(spec=MigrationSpec(added_node_selector=selector, receive={} if receives else None))

    @property
    def added(self) -> dict[str, str]:
        return (self.spec.added_node_selector if self.spec else None) or {}

    @property
    def phase(self) -> str:
        return (self.status.phase if self.status else None) or ""

    @property
    def unfinished(self) -> bool:
        return self.phase not in _OVER

    @property
    def ended_at(self) -> float | None:
        """When it ended, in Unix seconds; None where that is not known. One without a target has no end of its own."""
        if self.status is None or self.unfinished:
            return None
        state, phases = self.status.migration_state, self.status.phase_transition_timestamps or ()
        entered = (one.phase_transition_timestamp for one in phases if one and one.phase == self.phase)
        told = (state.end_timestamp if state else None, *entered, self.meta.creation_timestamp)
        return next((at for text in told if (at := unix_time(text)) is not None), None)

    @property
    def vmi_name(self) -> str:
        return (self.spec.vmi_name if self.spec else None) or ""

    @property
    def evacuates(self) -> bool:
        """Whether it says that KubeVirt made it of an eviction. Anybody can write that; the VMI knows."""
        return self.meta.annotation(EVACUATION) is not None

    @property
    def is_prioritized(self) -> bool:
        """Whether it has a priority, which virt-api lets nobody write but KubeVirt's controller (1.7 and later)."""
        return bool(self.spec and self.spec.priority)

    @property
    def sends(self) -> bool:
        """Whether it is the sending half of a migration between clusters, which makes no target pod."""
        return self.spec is not None and self.spec.send_to is not None and self.spec.receive is None

    @property
    def receives(self) -> bool:
        """Whether it is the receiving half."""
        return self.spec is not None and self.spec.receive is not None and self.spec.send_to is None


class EvacueeStatus(View, frozen=True):
    phase: str | None = None
    evacuation_node_name: str | None = None


class Evacuee(Object, frozen=True):
    """A VMI as it is asked whether it is being evacuated."""

    status: EvacueeStatus | None = None

    @property
    def is_evacuated(self) -> bool:
        """Whether KubeVirt has marked it for evacuation.

        A VMI's status can be written by its maker at its creation, and afterwards by KubeVirt alone, whose mutating
        webhook puts back what others change. The phase is KubeVirt's from the beginning, so that of one that never
        started the mark proves nothing.
        """
        status = self.status
        return bool(status and status.phase == "Running" and status.evacuation_node_name)


class Developer(View, frozen=True):
    node_selectors: dict[str, str] | None = None
    feature_gates: list[str] | None = None
    use_emulation: bool | None = None
    cpu_allocation_ratio: int | None = None
    memory_overcommit: int | None = None


class Hypervisor(View, frozen=True):
    name: str | None = None


class Configuration(View, frozen=True):
    default_runtime_class: str | None = None
    developer_configuration: Developer | None = None
    hypervisors: list[Hypervisor | None] | None = None


class KubeVirtSpec(View, frozen=True):
    configuration: Configuration | None = None


class KubeVirt(Object, frozen=True):
    """The KubeVirt object."""

    spec: KubeVirtSpec | None = None

    @property
    def configuration(self) -> Configuration:
        return (self.spec.configuration if self.spec else None) or Configuration()

    @property
    def developer(self) -> Developer:
        return self.configuration.developer_configuration or Developer()

    @property
    def needs_kvm(self) -> bool:
        """Whether launcher pods request the device of KVM: not where it is emulated, or by another hypervisor."""
        if self.developer.use_emulation:
            return False
        first = next(iter(self.configuration.hypervisors or ()), None)
        return not (first and first.name == _HYPERV_DIRECT and self.enabled("ConfigurableHypervisor"))

    def enabled(self, gate: str) -> bool:
        """Whether a feature gate is open."""
        return gate in (self.developer.feature_gates or ())


BUILT_IN: Final = KubeVirt()
NO_MIGRATION: Final = Migration()


class VolumeAffinity(View, frozen=True):
    required: NodeSelector | None = None


class VolumeSpec(View, frozen=True):
    node_affinity: VolumeAffinity | None = None


class PersistentVolume(Object, frozen=True):
    spec: VolumeSpec | None = None

    @property
    def terms(self) -> tuple[Term, ...]:
        """Where it can be reached from; empty: from everywhere."""
        affinity = self.spec.node_affinity if self.spec else None
        return affinity.required.terms() if affinity and affinity.required else ()


class ClaimSpec(View, frozen=True):
    volume_name: str | None = None


class Claim(Object, frozen=True):
    """A PersistentVolumeClaim."""

    spec: ClaimSpec | None = None

    @property
    def volume(self) -> str:
        """The PersistentVolume that it is bound to; empty: none yet."""
        return (self.spec.volume_name if self.spec else None) or ""


VMIS: Final = Resource(names.KUBEVIRT_GROUP, "v1", "virtualmachineinstances", "VirtualMachineInstance", True, Vmi)
EVACUEES: Final = Resource(
    names.KUBEVIRT_GROUP, "v1", "virtualmachineinstances", "VirtualMachineInstance", True, Evacuee
)


def _marks(written: dict[str, str] | None, *keys: str) -> dict[str, str]:
    return {key: written[key] for key in keys if written and key in written}


def _kept_migration(migration: Migration) -> Migration:
    """What lists keep of a migration: whose it is, how it ended, and that it is somebody's; not what they wrote."""
    meta, spec = migration.meta, migration.spec or MigrationSpec()
    marks = dict.fromkeys(_marks(meta.annotations, EVACUATION, WORKLOAD_UPDATE), "")
    kept = ObjectMeta(meta.name, None, meta.namespace, meta.uid, None, marks, None, meta.creation_timestamp)
    # That it adds something counts here, not what.
    added = {"": ""} if spec.added_node_selector else None
    priority = "any" if spec.priority else None
    return Migration(kept, MigrationSpec(spec.vmi_name, added, priority=priority), migration.status)


def _kept_unfinished(migration: Migration) -> Migration | None:
    return _kept_migration(migration) if migration.unfinished else None


def _kept_pod(pod: LauncherPod) -> LauncherPod | None:
    """What lists keep of a launcher pod that has not ended. Anybody can label a pod, however large."""
    meta, owner = pod.meta, pod.meta.controller_owner()
    if pod.is_over or owner is None:
        return None
    kept = ObjectMeta(
        name=meta.name,
        namespace=meta.namespace,
        uid=meta.uid,
        labels=_marks(meta.labels, JOB_UID),
        annotations=_marks(meta.annotations, JOB_NAME),
        owner_references=[owner],
        creation_timestamp=meta.creation_timestamp,
    )
    return LauncherPod(kept, pod.spec, pod.status)


_MIGRATION: Final = (names.KUBEVIRT_GROUP, "v1", "virtualmachineinstancemigrations", "VirtualMachineInstanceMigration")
MIGRATIONS: Final = Resource(*_MIGRATION, True, Migration, _kept_migration)
# Of lists for caps: finished ones, of which KubeVirt keeps five of each VM, would be most of them.
UNFINISHED: Final = Resource(*_MIGRATION, True, Migration, _kept_unfinished)
LAUNCHER_PODS: Final = Resource("", "v1", "pods", "Pod", True, LauncherPod, _kept_pod)
CLAIMS: Final = Resource("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim", True, Claim)
VOLUMES: Final = Resource("", "v1", "persistentvolumes", "PersistentVolume", False, PersistentVolume)
