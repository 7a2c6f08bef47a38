"""VirtualMachineInstanceMigrations, as far as they decide over nodes and caps."""

from __future__ import annotations

from typing import Any, Final

from webhook import names
from webhook.k8s.client.resources import Resource
from webhook.k8s.timestamps import unix_time
from webhook.k8s.views import Object, ObjectMeta, View

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
    end_timestamp: str | None = None


class MigrationSpec(View, frozen=True):
    """``spec`` of a VirtualMachineInstanceMigration."""

    vmi_name: str | None = None
    added_node_selector: dict[str, str] | None = None
    send_to: dict[str, Any] | None = None
    receive: dict[str, Any] | None = None
    priority: str | None = None


class PhaseTransition(View, frozen=True):
    """One of the ``status.phaseTransitionTimestamps`` of a migration."""

    phase: str | None = None
    phase_transition_timestamp: str | None = None


class MigrationStatus(View, frozen=True):
    """``status`` of a VirtualMachineInstanceMigration."""

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
    def added_selector(self) -> dict[str, str]:
        """``spec.addedNodeSelector``; empty where the migration adds no labels."""
        return (self.spec.added_node_selector if self.spec else None) or {}

    @property
    def phase(self) -> str:
        """The migration's phase, for example ``Running``; empty: KubeVirt has not written any."""
        return (self.status.phase if self.status else None) or ""

    @property
    def is_unfinished(self) -> bool:
        """Whether the migration has neither succeeded nor failed."""
        return self.phase not in ENDED_PHASES

    @property
    def ended_at(self) -> float | None:
        """When it ended, in Unix seconds; None where that is not known. One without a target has no end of its own."""
        if self.status is None or self.is_unfinished:
            return None
        state, phases = self.status.migration_state, self.status.phase_transition_timestamps or ()
        entered = (
            transition.phase_transition_timestamp
            for transition in phases
            if transition and transition.phase == self.phase
        )
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
        """Whether it is the sending half of a migration between clusters, which makes no target pod."""
        return self.spec is not None and self.spec.send_to is not None and self.spec.receive is None

    @property
    def receives(self) -> bool:
        """Whether it is the receiving half."""
        return self.spec is not None and self.spec.receive is not None and self.spec.send_to is None


NO_MIGRATION: Final = Migration()


def entries_of(written: dict[str, str] | None, *keys: str) -> dict[str, str]:
    """Of labels or annotations those with certain keys."""
    return {key: written[key] for key in keys if written and key in written}


def _reduce_migration(migration: Migration) -> Migration:
    """What lists keep of a migration: its VMI, its result, and its origin, without the texts that users wrote."""
    meta, spec = migration.meta, migration.spec or MigrationSpec()
    marks = dict.fromkeys(entries_of(meta.annotations, EVACUATION, WORKLOAD_UPDATE), "")
    kept = ObjectMeta(meta.name, None, meta.namespace, meta.uid, None, marks, None, meta.creation_timestamp)
    # That it adds something counts here, not what.
    added = {"": ""} if spec.added_node_selector else None
    priority = "any" if spec.priority else None
    return Migration(kept, MigrationSpec(spec.vmi_name, added, priority=priority), migration.status)


def _reduce_unfinished(migration: Migration) -> Migration | None:
    return _reduce_migration(migration) if migration.is_unfinished else None


_MIGRATION: Final = (names.KUBEVIRT_GROUP, "v1", "virtualmachineinstancemigrations", "VirtualMachineInstanceMigration")
MIGRATIONS: Final = Resource(*_MIGRATION, True, Migration, _reduce_migration)
# Of lists for caps: finished ones, of which KubeVirt keeps five of each VM, would be most of them.
UNFINISHED: Final = Resource(*_MIGRATION, True, Migration, _reduce_unfinished)
