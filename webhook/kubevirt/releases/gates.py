"""KubeVirt's feature gates, as far as rules here depend on them (KubeVirt, pkg/virt-config/featuregate)."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from functools import lru_cache
from typing import Final

from webhook.kubevirt.releases.capabilities import OPENS_BETA_GATES
from webhook.kubevirt.releases.capability import is_reached, releases
from webhook.kubevirt.releases.release import Release
from webhook.kubevirt.releases.version import Version

# The gate of the queue in which migrations wait by their priority.
MIGRATION_QUEUE: Final = "MigrationPriorityQueue"

# The first releases that know a gate which not all of them know.
_KNOWN: Final[Mapping[str, tuple[Version, ...]]] = {
    name: releases(first)
    for name, first in {
        "ConfigurableHypervisor": "1.8.0",
        "CrossArchitectureVirtualization": "1.9.0",
        "IOMMUFD": "1.9.0",
        MIGRATION_QUEUE: "1.7.0",
    }.items()
}
# The first releases in which a gate is in beta, and in which it has become generally available; any other is in alpha.
_BETA: Final[Mapping[str, tuple[Version, ...]]] = {
    name: releases(first)
    for name, first in {
        "DeclarativeHotplugVolumes": "1.9.0",
        "GPUsWithDRA": "1.9.0",
        "HostDevicesWithDRA": "1.9.0",
        "ImageVolume": "1.7.0",
        MIGRATION_QUEUE: "1.8.0",
        "VmiMemoryOverheadReport": "1.9.0",
        "WorkloadEncryptionSEV": "1.9.0",
    }.items()
}
_GENERALLY_AVAILABLE: Final[Mapping[str, tuple[Version, ...]]] = {
    name: releases(first)
    for name, first in {
        MIGRATION_QUEUE: "1.9.0",
        "PanicDevices": "1.9.0",
        "VideoConfig": "1.9.0",
    }.items()
}


# Every review of a migration asks for the same few.
@lru_cache(maxsize=256)
def is_open(release: Release, gate: str, enabled: AbstractSet[str], disabled: AbstractSet[str]) -> bool:
    """Whether a feature gate is open.

    Args:
        release: the release of KubeVirt.
        gate: the name of the feature gate.
        enabled: what ``developerConfiguration.featureGates`` names, which counts more.
        disabled: what ``disabledFeatureGates`` names.
    """
    version = release.rules_version
    if gate in _KNOWN and not is_reached(_KNOWN[gate], version):
        return False
    if gate in enabled or is_reached(_GENERALLY_AVAILABLE.get(gate, ()), version):
        return True
    in_beta = release.has(OPENS_BETA_GATES) and is_reached(_BETA.get(gate, ()), version)
    return in_beta and gate not in disabled
