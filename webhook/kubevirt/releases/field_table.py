"""The fields that releases have brought: paths below ``spec``, through lists without an index.

Written by ``python -m hack.kubevirt_types`` from the CustomResourceDefinitions of the releases in ``definitions``.
"""

from __future__ import annotations

from typing import Final

PATHS: Final[dict[tuple[str, str], list[str]]] = {
    ("VirtualMachineInstancetype", "1.7.0"): [
        "ioThreads",
        "launchSecurity.snp",
        "launchSecurity.tdx",
    ],
    ("VirtualMachinePreference", "1.7.0"): [
        "devices.preferredDiskBlockSize.custom.discardGranularity",
        "requirements.architecture",
        "preferredArchitecture",
    ],
    ("VirtualMachinePreference", "1.8.0"): [
        "features.preferredHyperv.tlbflush.direct",
        "features.preferredHyperv.tlbflush.extended",
    ],
    ("VirtualMachinePreference", "1.9.0"): [
        "devices.preferredVideoType",
        "preferredLaunchSecurity",
    ],
    ("VirtualMachineInstance", "1.7.0"): [
        "domain.devices.disks.blockSize.custom.discardGranularity",
        "domain.devices.disks.changedBlockTracking",
        "domain.launchSecurity.snp",
        "domain.launchSecurity.tdx",
    ],
    ("VirtualMachineInstance", "1.8.0"): [
        "domain.memory.reservedOverhead",
        "domain.features.hyperv.tlbflush.direct",
        "domain.features.hyperv.tlbflush.extended",
        "domain.devices.interfaces.passtBinding",
        "domain.rebootPolicy",
        "volumes.containerPath",
        "utilityVolumes",
    ],
    ("VirtualMachineInstance", "1.9.0"): [
        "domain.devices.interfaces.portRanges",
        "serviceAccountName",
        "networks.resourceClaim",
    ],
    ("VirtualMachine", "1.7.0"): [
        "dataVolumeTemplates.spec.source.registry.platform",
        "dataVolumeTemplates.spec.source.vddk.extraArgs",
    ],
    ("VirtualMachine", "1.8.0"): [
        "dataVolumeTemplates.spec.source.imageio.insecureSkipVerify",
    ],
}
