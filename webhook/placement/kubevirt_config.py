"""KubeVirt's configuration, as far as it decides over nodes."""

from __future__ import annotations

from typing import Final

import msgspec

from webhook.k8s.views import Object, View
from webhook.releases import gates
from webhook.releases.release import NEWEST, Release

_HYPERV_DIRECT: Final = "hyperv-direct"
# KubeVirt's own.
_PARALLEL_MIGRATIONS: Final = 5
_OUTBOUND_MIGRATIONS: Final = 2
_TIMEOUT_SECONDS_PER_GIB: Final = 150
# The gate of the queue in which migrations wait by their priority.
MIGRATION_QUEUE: Final = "MigrationPriorityQueue"


class Developer(View, frozen=True):
    """``spec.configuration.developerConfiguration`` of a KubeVirt object."""

    node_selectors: dict[str, str] | None = None
    feature_gates: list[str] | None = None
    disabled_feature_gates: list[str] | None = None
    use_emulation: bool | None = None
    cpu_allocation_ratio: int | None = None
    memory_overcommit: int | None = None


class Hypervisor(View, frozen=True):
    """One of the ``spec.configuration.hypervisors`` of a KubeVirt object."""

    name: str | None = None


class Migrations(View, frozen=True):
    """``spec.configuration.migrations`` of a KubeVirt object."""

    parallel_migrations_per_cluster: int | None = None
    parallel_outbound_migrations_per_node: int | None = None
    bandwidth_per_migration: str | int | float | None = None
    completion_timeout_per_gib: int | None = msgspec.field(default=None, name="completionTimeoutPerGiB")
    allow_post_copy: bool | None = None


class PlacementConfiguration(View, frozen=True):
    """``spec.configuration`` of a KubeVirt object."""

    migrations: Migrations | None = None
    default_runtime_class: str | None = None
    developer_configuration: Developer | None = None
    hypervisors: list[Hypervisor | None] | None = None


class PlacementKubeVirtSpec(View, frozen=True):
    """``spec`` of a KubeVirt object."""

    configuration: PlacementConfiguration | None = None


class PlacementKubeVirt(Object, frozen=True):
    """The KubeVirt object, as far as it decides over nodes."""

    spec: PlacementKubeVirtSpec | None = None
    # Which one runs, the object's status or the settings say; `with_release` sets it.
    release: Release = msgspec.field(default=NEWEST, name="kubevirt-webhook/release")

    def with_release(self, release: Release) -> PlacementKubeVirt:
        """A copy with these settings under another release of KubeVirt."""
        return msgspec.structs.replace(self, release=release)

    @property
    def configuration(self) -> PlacementConfiguration:
        """``spec.configuration``; an empty one, so KubeVirt's built-in settings, where it is absent."""
        return (self.spec.configuration if self.spec else None) or PlacementConfiguration()

    @property
    def developer(self) -> Developer:
        """``spec.configuration.developerConfiguration``; an empty one where it is absent."""
        return self.configuration.developer_configuration or Developer()

    @property
    def parallel_migrations(self) -> int:
        """How many migrations may run in the cluster concurrently."""
        migrations = self.configuration.migrations
        number = migrations.parallel_migrations_per_cluster if migrations else None
        return _PARALLEL_MIGRATIONS if number is None else number

    @property
    def outbound_migrations(self) -> int:
        """How many migrations may leave one node concurrently."""
        migrations = self.configuration.migrations
        number = migrations.parallel_outbound_migrations_per_node if migrations else None
        return _OUTBOUND_MIGRATIONS if number is None else number

    @property
    def migration_timeout_seconds_per_gib(self) -> int:
        """After so many seconds for each GiB of a VM's memory KubeVirt aborts its migration, or pauses the VM."""
        migrations = self.configuration.migrations
        number = migrations.completion_timeout_per_gib if migrations else None
        return _TIMEOUT_SECONDS_PER_GIB if number is None else number

    @property
    def needs_kvm(self) -> bool:
        """Whether launcher pods request the device of KVM: not where it is emulated, or by another hypervisor."""
        if self.developer.use_emulation:
            return False
        first = next(iter(self.configuration.hypervisors or ()), None)
        return not (first and first.name == _HYPERV_DIRECT and self.is_enabled("ConfigurableHypervisor"))

    def is_enabled(self, gate: str) -> bool:
        """Whether a feature gate is open."""
        developer = self.developer
        return gates.is_open(self.release, gate, developer.feature_gates or (), developer.disabled_feature_gates or ())


BUILT_IN: Final = PlacementKubeVirt()
