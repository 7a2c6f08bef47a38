"""The domain of a VMI: CPU, memory, firmware, features, clock (kubevirt.io/api/core/v1, DomainSpec)."""

from __future__ import annotations

from typing import Final

from webhook.kubevirt.go_json.containers import List, Map
from webhook.kubevirt.go_json.structs import (
    BOOL,
    BOOL_POINTER,
    EMPTY,
    INT64_POINTER,
    QUANTITY,
    QUANTITY_COMPUTED,
    STRING,
    STRING_ALWAYS,
    STRING_POINTER,
    UINT32,
    UINT32_POINTER,
    Shape,
    Struct,
    Value,
)
from webhook.kubevirt.types.devices import DEVICES, FEATURE_STATE

NUMA: Final = Struct(guestMappingPassthrough=EMPTY)
REALTIME: Final = Struct(mask=STRING)
HUGEPAGES: Final = Struct(pageSize=STRING)
IO_THREADS: Final = Struct(supplementalPoolThreadCount=UINT32_POINTER)
LAUNCH_SECURITY: Final = Struct(
    sev=Struct(policy=Struct(encryptedState=BOOL_POINTER), attestation=EMPTY, session=STRING, dhCert=STRING),
    snp=EMPTY,
    tdx=EMPTY,
)
CPU_FEATURES: Final = List(Struct(name=STRING_ALWAYS, policy=STRING))
CPU: Final = Struct(
    cores=UINT32,
    sockets=UINT32,
    maxSockets=UINT32,
    threads=UINT32,
    model=STRING,
    features=CPU_FEATURES,
    dedicatedCpuPlacement=BOOL,
    numa=NUMA,
    isolateEmulatorThread=BOOL,
    realtime=REALTIME,
)
MEMORY: Final = Struct(
    hugepages=HUGEPAGES,
    guest=QUANTITY_COMPUTED,
    maxGuest=QUANTITY_COMPUTED,
    reservedOverhead=Struct(addedOverhead=QUANTITY, memLock=STRING_POINTER),
)
EFI: Final = Struct(secureBoot=BOOL_POINTER, persistent=BOOL_POINTER)
_FIRMWARE: Final = Struct(
    uuid=STRING,
    bootloader=Struct(bios=Struct(useSerial=BOOL_POINTER), efi=EFI),
    serial=STRING,
    kernelBoot=Struct(
        kernelArgs=STRING,
        container=Struct(
            image=STRING_ALWAYS,
            imagePullSecret=STRING,
            imagePullPolicy=STRING,
            kernelPath=STRING,
            initrdPath=STRING,
        ),
    ),
    acpi=Struct(slicNameRef=STRING, msdmNameRef=STRING),
)
CLOCK_OFFSET: Final[dict[str, Shape]] = {"utc": Struct(offsetSeconds=INT64_POINTER), "timezone": STRING_POINTER}
_PRESENT: Final = Struct(present=BOOL_POINTER)
_TICKING: Final = Struct(tickPolicy=STRING, present=BOOL_POINTER)
TIMER: Final = Struct(
    hpet=_TICKING,
    kvm=_PRESENT,
    pit=_TICKING,
    rtc=Struct(tickPolicy=STRING, present=BOOL_POINTER, track=STRING),
    hyperv=_PRESENT,
)
APIC: Final = Struct(enabled=BOOL_POINTER, endOfInterrupt=BOOL)
KVM: Final = Struct(hidden=BOOL)
HYPERV: Final = Struct(
    relaxed=FEATURE_STATE,
    vapic=FEATURE_STATE,
    spinlocks=Struct(enabled=BOOL_POINTER, spinlocks=UINT32_POINTER),
    vpindex=FEATURE_STATE,
    runtime=FEATURE_STATE,
    synic=FEATURE_STATE,
    synictimer=Struct(enabled=BOOL_POINTER, direct=FEATURE_STATE),
    reset=FEATURE_STATE,
    vendorid=Struct(enabled=BOOL_POINTER, vendorid=STRING),
    frequencies=FEATURE_STATE,
    reenlightenment=FEATURE_STATE,
    tlbflush=Struct(enabled=BOOL_POINTER, direct=FEATURE_STATE, extended=FEATURE_STATE),
    ipi=FEATURE_STATE,
    evmcs=FEATURE_STATE,
)
_FEATURES: Final = Struct(
    acpi=Value(FEATURE_STATE, left_out=True),
    apic=APIC,
    hypervPassthrough=FEATURE_STATE,
    hyperv=HYPERV,
    smm=FEATURE_STATE,
    kvm=KVM,
    pvspinlock=FEATURE_STATE,
)
_RESOURCE_LIST: Final = Map(QUANTITY_COMPUTED)

DOMAIN: Final = Struct(
    resources=Value(
        Struct(requests=_RESOURCE_LIST, limits=_RESOURCE_LIST, overcommitGuestOverhead=BOOL), left_out=True
    ),
    cpu=CPU,
    memory=MEMORY,
    machine=Struct(type=STRING_ALWAYS),
    firmware=_FIRMWARE,
    clock=Struct(**CLOCK_OFFSET, timer=TIMER),
    features=_FEATURES,
    devices=Value(DEVICES),
    ioThreadsPolicy=STRING_POINTER,
    ioThreads=IO_THREADS,
    chassis=Struct(manufacturer=STRING, version=STRING, serial=STRING, asset=STRING, sku=STRING),
    launchSecurity=LAUNCH_SECURITY,
    rebootPolicy=STRING_POINTER,
)
