"""VirtualMachineInstances, as far as they decide over nodes.

Every field may be absent or null, as in `webhook.k8s.views`.
"""

from __future__ import annotations

from typing import Any, Final

from webhook import names
from webhook.k8s.client.resources import Resource
from webhook.k8s.views import Condition, Object, View
from webhook.placement.affinity import Placed
from webhook.placement.guest import NO_CPU, NO_DOMAIN, Cpu, Domain, Machine
from webhook.placement.migrations import MigrationState, SourceState

HOST_MODEL: Final = "host-model"


class ClaimSource(View, frozen=True):
    """``persistentVolumeClaim`` of one of a VMI's volumes."""

    claim_name: str | None = None
    hotpluggable: bool | None = None


class DataVolumeSource(View, frozen=True):
    """``dataVolume`` of one of a VMI's volumes."""

    name: str | None = None
    hotpluggable: bool | None = None


class Volume(View, frozen=True):
    """One of the ``spec.volumes`` of a VMI."""

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
    """One of the ``spec.networks`` of a VMI."""

    multus: dict[str, Any] | None = None


class PlacedVmiSpec(Placed, frozen=True):
    """``spec`` of a VMI, as far as it decides over nodes."""

    networks: list[Network | None] | None = None
    architecture: str | None = None
    domain: Domain | None = None
    topology_spread_constraints: list[Any] | None = None
    volumes: list[Volume | None] | None = None
    eviction_strategy: str | None = None
    utility_volumes: list[Any] | None = None


class TopologyHints(View, frozen=True):
    """``status.topologyHints`` of a VMI: the frequency of the time stamp counter, in Hz."""

    tsc_frequency: int | None = None


class BackupStatus(View, frozen=True):
    """``status.changedBlockTracking.backupStatus`` of a VMI."""

    backup_name: str | None = None
    completed: bool | None = None


class BlockTracking(View, frozen=True):
    """``status.changedBlockTracking`` of a VMI; KubeVirt denies migrations during a backup."""

    backup_status: BackupStatus | None = None


class VmiStatus(View, frozen=True):
    """``status`` of a VMI, as far as it decides over nodes."""

    changed_block_tracking: BlockTracking | None = None
    phase: str | None = None
    conditions: list[Condition | None] | None = None
    node_name: str | None = None
    machine: Machine | None = None
    topology_hints: TopologyHints | None = None
    migration_state: MigrationState | None = None
    evacuation_node_name: str | None = None


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
        return (self.spec.domain if self.spec else None) or NO_DOMAIN

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
        """Whether KubeVirt has found that it can be live-migrated; before it has looked, it cannot."""
        found = self.condition("LiveMigratable")
        return found is not None and found.status == "True"

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


class EvacueeStatus(View, frozen=True):
    """``status`` of a VMI, as far as it shows an evacuation."""

    phase: str | None = None
    evacuation_node_name: str | None = None


class Evacuee(Object, frozen=True):
    """A VMI, read only for whether KubeVirt evacuates it."""

    status: EvacueeStatus | None = None

    @property
    def is_evacuated(self) -> bool:
        """Whether KubeVirt is to evacuate it.

        A VMI's status can be written by its maker at its creation, and afterwards by KubeVirt alone, whose mutating
        webhook puts back what others change. The phase is KubeVirt's from the beginning, so that of one that never
        started the field proves nothing.
        """
        status = self.status
        return bool(status and status.phase == "Running" and status.evacuation_node_name)


VMIS: Final = Resource(names.KUBEVIRT_GROUP, "v1", "virtualmachineinstances", "VirtualMachineInstance", True, Vmi)
EVACUEES: Final = Resource(
    names.KUBEVIRT_GROUP, "v1", "virtualmachineinstances", "VirtualMachineInstance", True, Evacuee
)
