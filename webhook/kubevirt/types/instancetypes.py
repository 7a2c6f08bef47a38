"""Instancetypes and preferences (kubevirt.io/api/instancetype/v1beta1)."""

from __future__ import annotations

from typing import Final

from webhook.kubevirt.go_json.structs import (
    BOOL_POINTER,
    EMPTY,
    INT64,
    INT64_POINTER,
    QUANTITY,
    QUANTITY_ALWAYS,
    STRING,
    STRING_POINTER,
    UINT32,
    UINT32_ALWAYS,
    UINT32_POINTER,
    List,
    Struct,
    Value,
)
from webhook.kubevirt.types.core import (
    APIC,
    BLOCK_SIZE,
    CLOCK_OFFSET,
    CPU_FEATURES,
    EFI,
    FEATURE_STATE,
    GPU,
    HOST_DEVICE,
    HUGEPAGES,
    HYPERV,
    IO_THREADS,
    KVM,
    LAUNCH_SECURITY,
    METADATA,
    NUMA,
    REALTIME,
    STRING_MAP,
    TIMER,
    TPM,
    TYPE,
    VIRTUAL_GPU_OPTIONS,
)

_INSTANCETYPE_SPEC: Final = Struct(
    nodeSelector=STRING_MAP,
    schedulerName=STRING,
    cpu=Value(
        Struct(
            guest=UINT32_ALWAYS,
            model=STRING_POINTER,
            dedicatedCPUPlacement=BOOL_POINTER,
            numa=NUMA,
            isolateEmulatorThread=BOOL_POINTER,
            realtime=REALTIME,
            maxSockets=UINT32_POINTER,
        )
    ),
    memory=Value(Struct(guest=QUANTITY_ALWAYS, hugepages=HUGEPAGES, overcommitPercent=INT64, maxGuest=QUANTITY)),
    gpus=List(GPU),
    hostDevices=List(HOST_DEVICE),
    ioThreadsPolicy=STRING_POINTER,
    ioThreads=IO_THREADS,
    launchSecurity=LAUNCH_SECURITY,
    annotations=STRING_MAP,
)
_DEVICES: Final = Struct(
    preferredAutoattachGraphicsDevice=BOOL_POINTER,
    preferredAutoattachMemBalloon=BOOL_POINTER,
    preferredAutoattachPodInterface=BOOL_POINTER,
    preferredAutoattachSerialConsole=BOOL_POINTER,
    preferredAutoattachInputDevice=BOOL_POINTER,
    preferredDisableHotplug=BOOL_POINTER,
    preferredVirtualGPUOptions=VIRTUAL_GPU_OPTIONS,
    preferredSoundModel=STRING,
    preferredUseVirtioTransitional=BOOL_POINTER,
    preferredInputBus=STRING,
    preferredInputType=STRING,
    preferredDiskBus=STRING,
    preferredLunBus=STRING,
    preferredCdromBus=STRING,
    preferredDiskDedicatedIoThread=BOOL_POINTER,
    preferredDiskCache=STRING,
    preferredDiskIO=STRING,
    preferredDiskBlockSize=BLOCK_SIZE,
    preferredInterfaceModel=STRING,
    preferredInterfaceMasquerade=EMPTY,
    preferredRng=EMPTY,
    preferredBlockMultiQueue=BOOL_POINTER,
    preferredNetworkInterfaceMultiQueue=BOOL_POINTER,
    preferredTPM=TPM,
    preferredPanicDeviceModel=STRING_POINTER,
    preferredVideoType=STRING_POINTER,
)
_PREFERENCE_SPEC: Final = Struct(
    clock=Struct(preferredClockOffset=Struct(**CLOCK_OFFSET), preferredTimer=TIMER),
    cpu=Struct(
        preferredCPUTopology=STRING_POINTER,
        spreadOptions=Struct(across=STRING_POINTER, ratio=UINT32_POINTER),
        preferredCPUFeatures=CPU_FEATURES,
    ),
    devices=_DEVICES,
    features=Struct(
        preferredAcpi=FEATURE_STATE,
        preferredApic=APIC,
        preferredHyperv=HYPERV,
        preferredKvm=KVM,
        preferredPvspinlock=FEATURE_STATE,
        preferredSmm=FEATURE_STATE,
    ),
    firmware=Struct(
        preferredUseBios=BOOL_POINTER,
        preferredUseBiosSerial=BOOL_POINTER,
        preferredUseEfi=BOOL_POINTER,
        preferredUseSecureBoot=BOOL_POINTER,
        preferredEfi=EFI,
    ),
    machine=Struct(preferredMachineType=STRING),
    volumes=Struct(preferredStorageClassName=STRING),
    preferredSubdomain=STRING_POINTER,
    preferredTerminationGracePeriodSeconds=INT64_POINTER,
    requirements=Struct(
        cpu=Struct(guest=UINT32_ALWAYS), memory=Struct(guest=QUANTITY_ALWAYS), architecture=STRING_POINTER
    ),
    annotations=STRING_MAP,
    preferSpreadSocketToCoreRatio=UINT32,
    preferredArchitecture=STRING_POINTER,
    preferredLaunchSecurity=LAUNCH_SECURITY,
)

INSTANCETYPE: Final = Struct(**TYPE, metadata=Value(METADATA), spec=Value(_INSTANCETYPE_SPEC))
PREFERENCE: Final = Struct(**TYPE, metadata=Value(METADATA), spec=Value(_PREFERENCE_SPEC))
