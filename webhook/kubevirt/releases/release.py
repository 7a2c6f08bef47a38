"""A release of KubeVirt: which one runs in a cluster, what it can do, and which feature gates are open in it."""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final

from webhook.kubevirt.releases import capabilities as versions
from webhook.kubevirt.releases import fields
from webhook.kubevirt.releases.capabilities import CAPABILITIES, OPENS_BETA_GATES, Capability, Version, parse_version
from webhook.kubevirt.releases.fields import Definitions


@dataclass(frozen=True, slots=True, eq=False)
class Release:
    """One release in one cluster; of equal ones there is one object, so that what is derived from it can be kept by it.

    Attributes:
        version: of a version newer than any known one its own, with the newest rules.
        rules_version: the version whose rules count: of a newer one than the known ones what is known of the unreleased
            one.
        capabilities: those that it has.
        definitions: what the cluster's CustomResourceDefinitions know; None: the tables of the version count.
    """

    version: Version
    rules_version: Version
    capabilities: frozenset[Capability]
    definitions: Definitions | None = None

    def has(self, capability: Capability) -> bool:
        """Whether the release has a capability."""
        return capability in self.capabilities

    def unknown_fields(self, kind: str) -> frozenset[str]:
        """The paths below ``spec`` of a kind that the cluster does not know, though rules here do."""
        table = fields.unknown_fields(self.rules_version, kind)
        return table if self.definitions is None else self.definitions.unknown_fields(kind, table)

    @property
    def is_newer(self) -> bool:
        """Whether it is of a minor version that came after all known ones."""
        return self.version.line > versions.NEWEST.line

    @property
    def is_supported(self) -> bool:
        """Whether its rules are known, or it is newer than those that are."""
        return self.version >= versions.OLDEST

    @property
    def support(self) -> str:
        """Whether its rules are known: ``known``, ``newer`` (the newest ones count) or ``too-old``."""
        if not self.is_supported:
            return "too-old"
        return "newer" if self.is_newer else "known"

    def __str__(self) -> str:
        return str(self.version)


@lru_cache(maxsize=64)
def release_of(version: Version, definitions: Definitions | None = None) -> Release:
    """The release of a version, in a cluster with such definitions."""
    basis = min(version, versions.UNRELEASED) if version.line > versions.NEWEST.line else version
    return Release(version, basis, frozenset(each for each in CAPABILITIES.values() if each.is_in(basis)), definitions)


NEWEST: Final = release_of(versions.NEWEST)


def detect(observed: str, target: str, operator: str, definitions: Definitions | None = None) -> Release | None:
    """The release whose rules count; None where nothing shows which one that is.

    During an update the components of both versions run. The older one's rules count until it is done: what it admits
    the newer one admits, and what it does not know is not written.

    Args:
        observed: ``observedKubeVirtVersion``, which follows when an update is done.
        target: ``targetKubeVirtVersion``, which is ahead during an update.
        operator: ``operatorVersion``; it counts where a vendor's build writes digests of images into the other two.
        definitions: what the cluster's definitions know; they show the release where none of the texts names one.
    """
    named = [version for text in (observed, target) if (version := parse_version(text))]
    version = min(named) if named else parse_version(operator)
    if version is None and definitions is not None:
        version = definitions.version
    if version is None:
        return None
    # While KubeVirt is updated, not all components are of the version that its operator installs.
    is_updating = bool(observed and target) and observed != target
    return release_of(version, definitions and replace(definitions, is_settled=not is_updating))


def declare(version: Version, named: Release | None, definitions: Definitions | None) -> Release:
    """The release that the settings declare, whatever the KubeVirt object says.

    ``named`` is the release that the object names, None where it names none.
    """
    if definitions is None:
        return release_of(version)
    shown = named.version if named else definitions.version
    is_updated = named is None or named.definitions is None or named.definitions.is_settled
    is_settled = is_updated and (shown is None or shown.line == version.line)
    return release_of(version, replace(definitions, is_settled=is_settled))


# The gate of the queue in which migrations wait by their priority.
MIGRATION_QUEUE: Final = "MigrationPriorityQueue"

# The first releases that know a gate which not all of them know.
_ALPHA: Final = {
    "ConfigurableHypervisor": Version(1, 8, 0),
    "CrossArchitectureVirtualization": Version(1, 9, 0),
    "IOMMUFD": Version(1, 9, 0),
    MIGRATION_QUEUE: Version(1, 7, 0),
}
# The first releases in which a gate is in beta, and in which it has become generally available; any other is in alpha.
_BETA: Final = {
    "DecentralizedLiveMigration": Version(1, 10, 0),
    "DeclarativeHotplugVolumes": Version(1, 9, 0),
    "GPUsWithDRA": Version(1, 9, 0),
    "HostDevicesWithDRA": Version(1, 9, 0),
    "ImageVolume": Version(1, 7, 0),
    MIGRATION_QUEUE: Version(1, 8, 0),
    "VmiMemoryOverheadReport": Version(1, 9, 0),
    "WorkloadEncryptionSEV": Version(1, 9, 0),
}
_GENERALLY_AVAILABLE: Final = {
    MIGRATION_QUEUE: Version(1, 9, 0),
    "PanicDevices": Version(1, 9, 0),
    "LibvirtHooksServerAndClient": Version(1, 10, 0),
    "VideoConfig": Version(1, 9, 0),
    "VmiMemoryOverheadReport": Version(1, 10, 0),
}


# Every review of a migration asks for the same few.
@lru_cache(maxsize=256)
def is_open(release: Release, gate: str, enabled: AbstractSet[str], disabled: AbstractSet[str]) -> bool:
    """Whether a feature gate is open (pkg/virt-config/featuregate).

    What ``developerConfiguration.featureGates`` enables counts more than what ``disabledFeatureGates`` disables.
    """
    version = release.rules_version
    if version < _ALPHA.get(gate, version):
        return False
    if gate in enabled or (gate in _GENERALLY_AVAILABLE and version >= _GENERALLY_AVAILABLE[gate]):
        return True
    in_beta = gate in _BETA and version >= _BETA[gate]
    return in_beta and release.has(OPENS_BETA_GATES) and gate not in disabled
