"""Instancetypes and preferences that set everything there is to set."""

from __future__ import annotations

from .kube import Json

# Every field that there is, but for those that exclude each other; the second ones have the rest.
INSTANCETYPE_SPECS: list[Json] = [
    {
        "annotations": {"example.com/it": "1"},
        "cpu": {
            "guest": 4,
            "model": "Skylake-Server",
            "dedicatedCPUPlacement": True,
            "isolateEmulatorThread": True,
            "numa": {"guestMappingPassthrough": {}},
            "realtime": {"mask": "0-1"},
            "maxSockets": 8,
        },
        "memory": {"guest": "4Gi", "hugepages": {"pageSize": "2Mi"}, "maxGuest": "8Gi"},
        "gpus": [
            {
                "name": "gpu",
                "deviceName": "nvidia.com/T4",
                "tag": "a",
                "virtualGPUOptions": {"display": {"enabled": True, "ramFB": {"enabled": False}}},
            },
            {"name": "claimed", "claimName": "gpus", "requestName": "one"},
        ],
        "hostDevices": [
            {"name": "nic", "deviceName": "intel.com/qat", "tag": "b"},
            {"name": "claimed", "claimName": "devices", "requestName": "one"},
        ],
        "ioThreads": {"supplementalPoolThreadCount": 4},
        "ioThreadsPolicy": "supplementalPool",
        "launchSecurity": {
            "sev": {"attestation": {}, "dhCert": "AA", "policy": {"encryptedState": True}, "session": "BB"}
        },
        "nodeSelector": {"example.com/zone": "a"},
        "schedulerName": "volcano",
    },
    {
        "cpu": {"guest": 8},
        "memory": {"guest": "1536Mi", "overcommitPercent": 15},
        "launchSecurity": {"snp": {}},
    },
]
PREFERENCE_SPECS: list[Json] = [
    {
        "annotations": {"example.com/preference": "1"},
        "clock": {
            "preferredClockOffset": {"timezone": "Europe/Berlin"},
            "preferredTimer": {
                "hpet": {"present": False, "tickPolicy": "delay"},
                "hyperv": {"present": True},
                "kvm": {"present": True},
                "pit": {"present": True, "tickPolicy": "discard"},
                "rtc": {"present": True, "tickPolicy": "catchup", "track": "guest"},
            },
        },
        "cpu": {
            "preferredCPUTopology": "spread",
            "spreadOptions": {"across": "SocketsCoresThreads", "ratio": 2},
            "preferredCPUFeatures": [{"name": "vmx", "policy": "require"}],
        },
        "devices": {
            "preferredAutoattachGraphicsDevice": False,
            "preferredAutoattachInputDevice": True,
            "preferredAutoattachMemBalloon": False,
            "preferredAutoattachPodInterface": True,
            "preferredAutoattachSerialConsole": False,
            "preferredBlockMultiQueue": True,
            "preferredCdromBus": "sata",
            "preferredDisableHotplug": True,
            "preferredDiskBlockSize": {"custom": {"logical": 512, "physical": 512, "discardGranularity": 512}},
            "preferredDiskBus": "virtio",
            "preferredDiskCache": "none",
            "preferredDiskDedicatedIoThread": True,
            "preferredDiskIO": "native",
            "preferredInputBus": "virtio",
            "preferredInputType": "tablet",
            "preferredInterfaceMasquerade": {},
            "preferredInterfaceModel": "virtio",
            "preferredLunBus": "scsi",
            "preferredNetworkInterfaceMultiQueue": True,
            "preferredPanicDeviceModel": "hyperv",
            "preferredRng": {},
            "preferredSoundModel": "ich9",
            "preferredTPM": {"persistent": True, "enabled": True},
            "preferredUseVirtioTransitional": False,
            "preferredVideoType": "virtio",
            "preferredVirtualGPUOptions": {"display": {"enabled": True, "ramFB": {"enabled": True}}},
        },
        "features": {
            "preferredAcpi": {"enabled": True},
            "preferredApic": {"enabled": True, "endOfInterrupt": True},
            "preferredHyperv": {
                **{
                    name: {"enabled": True}
                    for name in (
                        *("evmcs", "frequencies", "ipi", "reenlightenment", "relaxed", "reset"),
                        *("runtime", "synic", "vapic", "vpindex"),
                    )
                },
                "spinlocks": {"enabled": True, "spinlocks": 8191},
                "synictimer": {"enabled": True, "direct": {"enabled": True}},
                "tlbflush": {"enabled": True, "direct": {"enabled": True}, "extended": {"enabled": True}},
                "vendorid": {"enabled": True, "vendorid": "example"},
            },
            "preferredKvm": {"hidden": True},
            "preferredPvspinlock": {"enabled": False},
            "preferredSmm": {"enabled": True},
        },
        "firmware": {"preferredEfi": {"persistent": True, "secureBoot": True}},
        "machine": {"preferredMachineType": "pc-q35-rhel9.4.0"},
        "preferSpreadSocketToCoreRatio": 2,
        "preferredArchitecture": "amd64",
        "preferredLaunchSecurity": {"tdx": {}},
        "preferredSubdomain": "vms",
        "preferredTerminationGracePeriodSeconds": 180,
        "requirements": {"architecture": "amd64", "cpu": {"guest": 4}, "memory": {"guest": "1Gi"}},
        "volumes": {"preferredStorageClassName": "fast"},
    },
    {
        "clock": {"preferredClockOffset": {"utc": {"offsetSeconds": 3600}}},
        "devices": {"preferredDiskBlockSize": {"matchVolume": {"enabled": True}}},
        "firmware": {
            "preferredUseBios": False,
            "preferredUseEfi": True,
            "preferredUseSecureBoot": True,
            "preferredUseBiosSerial": True,
        },
    },
]
