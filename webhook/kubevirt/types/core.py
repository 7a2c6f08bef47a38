"""VirtualMachine and VirtualMachineInstance with all that they hold, instancetypes and preferences.

Written by ``python -m hack.kubevirt_types`` from the Go types of KubeVirt v1.9.0: kubevirt.io/api, and what it takes
of k8s.io/api and of the containerized data importer. Each constant is a struct of Go, as JSON shows it.
"""

from __future__ import annotations

from typing import Final

from webhook.kubevirt.go_json.structs import (
    BOOL,
    BOOL_POINTER,
    EMPTY,
    FREE,
    INT32,
    INT32_ALWAYS,
    INT32_POINTER,
    INT64,
    INT64_ALWAYS,
    INT64_POINTER,
    INT_OR_STRING_ALWAYS,
    QUANTITY,
    QUANTITY_ALWAYS,
    QUANTITY_COMPUTED,
    STRING,
    STRING_ALWAYS,
    STRING_POINTER,
    UINT32,
    UINT32_ALWAYS,
    UINT32_POINTER,
    UINT64,
    UINT64_ALWAYS,
    UINT64_POINTER,
    List,
    Map,
    OrNull,
    Status,
    Struct,
    Value,
)

STRINGS: Final = List(STRING_POINTER)
STRING_MAP: Final = Map(STRING_POINTER)

# k8s.io/apimachinery/pkg/apis/meta/v1.OwnerReference.
OWNER_REFERENCE: Final = Struct(
    apiVersion=STRING_ALWAYS,
    kind=STRING_ALWAYS,
    name=STRING_ALWAYS,
    uid=STRING_ALWAYS,
    controller=BOOL_POINTER,
    blockOwnerDeletion=BOOL_POINTER,
)

# k8s.io/apimachinery/pkg/apis/meta/v1.ObjectMeta.
METADATA: Final = Struct(
    name=STRING,
    generateName=STRING,
    namespace=STRING,
    selfLink=STRING,
    uid=STRING,
    resourceVersion=STRING,
    generation=INT64,
    # Older releases write null, which nobody reads.
    creationTimestamp=STRING,
    deletionTimestamp=STRING,
    deletionGracePeriodSeconds=INT64_POINTER,
    labels=STRING_MAP,
    annotations=STRING_MAP,
    ownerReferences=List(OWNER_REFERENCE),
    finalizers=STRINGS,
    # It is the API server's, and handed on as it is.
    managedFields=List(FREE),
)

# kubevirt.io/api/core/v1.NUMAGuestMappingPassthrough.
NUMA_GUEST_MAPPING_PASSTHROUGH: Final = EMPTY

# kubevirt.io/api/core/v1.NUMA.
NUMA: Final = Struct(
    guestMappingPassthrough=NUMA_GUEST_MAPPING_PASSTHROUGH,
)

# kubevirt.io/api/core/v1.Realtime.
REALTIME: Final = Struct(
    mask=STRING,
)

# kubevirt.io/api/instancetype/v1beta1.CPUInstancetype.
CPU_INSTANCETYPE: Final = Struct(
    guest=UINT32_ALWAYS,
    model=STRING_POINTER,
    dedicatedCPUPlacement=BOOL_POINTER,
    numa=NUMA,
    isolateEmulatorThread=BOOL_POINTER,
    realtime=REALTIME,
    maxSockets=UINT32_POINTER,
)

# kubevirt.io/api/core/v1.Hugepages.
HUGEPAGES: Final = Struct(
    pageSize=STRING,
)

# kubevirt.io/api/instancetype/v1beta1.MemoryInstancetype.
MEMORY_INSTANCETYPE: Final = Struct(
    guest=QUANTITY_ALWAYS,
    hugepages=HUGEPAGES,
    overcommitPercent=INT64,
    maxGuest=QUANTITY,
)

# kubevirt.io/api/core/v1.FeatureState.
FEATURE_STATE: Final = Struct(
    enabled=BOOL_POINTER,
)

# kubevirt.io/api/core/v1.VGPUDisplayOptions.
VGPU_DISPLAY_OPTIONS: Final = Struct(
    enabled=BOOL_POINTER,
    ramFB=FEATURE_STATE,
)

# kubevirt.io/api/core/v1.VGPUOptions.
VGPU_OPTIONS: Final = Struct(
    display=VGPU_DISPLAY_OPTIONS,
)

# kubevirt.io/api/core/v1.GPU.
GPU: Final = Struct(
    name=STRING_ALWAYS,
    deviceName=STRING,
    claimName=STRING,
    requestName=STRING,
    virtualGPUOptions=VGPU_OPTIONS,
    tag=STRING,
)

# kubevirt.io/api/core/v1.HostDevice.
HOST_DEVICE: Final = Struct(
    name=STRING_ALWAYS,
    deviceName=STRING,
    claimName=STRING,
    requestName=STRING,
    tag=STRING,
)

# kubevirt.io/api/core/v1.DiskIOThreads.
DISK_IO_THREADS: Final = Struct(
    supplementalPoolThreadCount=UINT32_POINTER,
)

# kubevirt.io/api/core/v1.SEVPolicy.
SEV_POLICY: Final = Struct(
    encryptedState=BOOL_POINTER,
)

# kubevirt.io/api/core/v1.SEVAttestation.
SEV_ATTESTATION: Final = EMPTY

# kubevirt.io/api/core/v1.SEV.
SEV: Final = Struct(
    policy=SEV_POLICY,
    attestation=SEV_ATTESTATION,
    session=STRING,
    dhCert=STRING,
)

# kubevirt.io/api/core/v1.SEVSNP.
SEVSNP: Final = EMPTY

# kubevirt.io/api/core/v1.TDX.
TDX: Final = EMPTY

# kubevirt.io/api/core/v1.LaunchSecurity.
LAUNCH_SECURITY: Final = Struct(
    sev=SEV,
    snp=SEVSNP,
    tdx=TDX,
)

# kubevirt.io/api/instancetype/v1beta1.VirtualMachineInstancetypeSpec.
VIRTUAL_MACHINE_INSTANCETYPE_SPEC: Final = Struct(
    nodeSelector=STRING_MAP,
    schedulerName=STRING,
    cpu=Value(CPU_INSTANCETYPE),
    memory=Value(MEMORY_INSTANCETYPE),
    gpus=List(GPU),
    hostDevices=List(HOST_DEVICE),
    ioThreadsPolicy=STRING_POINTER,
    ioThreads=DISK_IO_THREADS,
    launchSecurity=LAUNCH_SECURITY,
    annotations=STRING_MAP,
)

# kubevirt.io/api/instancetype/v1beta1.VirtualMachineInstancetype.
INSTANCETYPE: Final = Struct(
    kind=STRING,
    apiVersion=STRING,
    metadata=Value(METADATA),
    spec=Value(VIRTUAL_MACHINE_INSTANCETYPE_SPEC),
)

# kubevirt.io/api/core/v1.ClockOffsetUTC.
CLOCK_OFFSET_UTC: Final = Struct(
    offsetSeconds=INT64_POINTER,
)

# kubevirt.io/api/core/v1.ClockOffset.
CLOCK_OFFSET: Final = Struct(
    utc=CLOCK_OFFSET_UTC,
    timezone=STRING_POINTER,
)

# kubevirt.io/api/core/v1.HPETTimer.
HPET_TIMER: Final = Struct(
    tickPolicy=STRING,
    present=BOOL_POINTER,
)

# kubevirt.io/api/core/v1.KVMTimer.
KVM_TIMER: Final = Struct(
    present=BOOL_POINTER,
)

# kubevirt.io/api/core/v1.PITTimer.
PIT_TIMER: Final = Struct(
    tickPolicy=STRING,
    present=BOOL_POINTER,
)

# kubevirt.io/api/core/v1.RTCTimer.
RTC_TIMER: Final = Struct(
    tickPolicy=STRING,
    present=BOOL_POINTER,
    track=STRING,
)

# kubevirt.io/api/core/v1.HypervTimer.
HYPERV_TIMER: Final = Struct(
    present=BOOL_POINTER,
)

# kubevirt.io/api/core/v1.Timer.
TIMER: Final = Struct(
    hpet=HPET_TIMER,
    kvm=KVM_TIMER,
    pit=PIT_TIMER,
    rtc=RTC_TIMER,
    hyperv=HYPERV_TIMER,
)

# kubevirt.io/api/instancetype/v1beta1.ClockPreferences.
CLOCK_PREFERENCES: Final = Struct(
    preferredClockOffset=CLOCK_OFFSET,
    preferredTimer=TIMER,
)

# kubevirt.io/api/instancetype/v1beta1.SpreadOptions.
SPREAD_OPTIONS: Final = Struct(
    across=STRING_POINTER,
    ratio=UINT32_POINTER,
)

# kubevirt.io/api/core/v1.CPUFeature.
CPU_FEATURE: Final = Struct(
    name=STRING_ALWAYS,
    policy=STRING,
)

# kubevirt.io/api/instancetype/v1beta1.CPUPreferences.
CPU_PREFERENCES: Final = Struct(
    preferredCPUTopology=STRING_POINTER,
    spreadOptions=SPREAD_OPTIONS,
    preferredCPUFeatures=List(CPU_FEATURE),
)

# kubevirt.io/api/core/v1.CustomBlockSize.
CUSTOM_BLOCK_SIZE: Final = Struct(
    logical=UINT64,
    physical=UINT64,
    discardGranularity=UINT64_POINTER,
)

# kubevirt.io/api/core/v1.BlockSize.
BLOCK_SIZE: Final = Struct(
    custom=CUSTOM_BLOCK_SIZE,
    matchVolume=FEATURE_STATE,
)

# kubevirt.io/api/core/v1.Rng.
RNG: Final = EMPTY

# kubevirt.io/api/core/v1.TPMDevice.
TPM_DEVICE: Final = Struct(
    enabled=BOOL_POINTER,
    persistent=BOOL_POINTER,
)

# kubevirt.io/api/core/v1.InterfaceMasquerade.
INTERFACE_MASQUERADE: Final = EMPTY

# kubevirt.io/api/instancetype/v1beta1.DevicePreferences.
DEVICE_PREFERENCES: Final = Struct(
    preferredAutoattachGraphicsDevice=BOOL_POINTER,
    preferredAutoattachMemBalloon=BOOL_POINTER,
    preferredAutoattachPodInterface=BOOL_POINTER,
    preferredAutoattachSerialConsole=BOOL_POINTER,
    preferredAutoattachInputDevice=BOOL_POINTER,
    preferredDisableHotplug=BOOL_POINTER,
    preferredVirtualGPUOptions=VGPU_OPTIONS,
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
    preferredRng=RNG,
    preferredBlockMultiQueue=BOOL_POINTER,
    preferredNetworkInterfaceMultiQueue=BOOL_POINTER,
    preferredTPM=TPM_DEVICE,
    preferredInterfaceMasquerade=INTERFACE_MASQUERADE,
    preferredPanicDeviceModel=STRING_POINTER,
    preferredVideoType=STRING_POINTER,
)

# kubevirt.io/api/core/v1.FeatureAPIC.
FEATURE_APIC: Final = Struct(
    enabled=BOOL_POINTER,
    endOfInterrupt=BOOL,
)

# kubevirt.io/api/core/v1.FeatureSpinlocks.
FEATURE_SPINLOCKS: Final = Struct(
    enabled=BOOL_POINTER,
    spinlocks=UINT32_POINTER,
)

# kubevirt.io/api/core/v1.SyNICTimer.
SY_NIC_TIMER: Final = Struct(
    enabled=BOOL_POINTER,
    direct=FEATURE_STATE,
)

# kubevirt.io/api/core/v1.FeatureVendorID.
FEATURE_VENDOR_ID: Final = Struct(
    enabled=BOOL_POINTER,
    vendorid=STRING,
)

# kubevirt.io/api/core/v1.TLBFlush.
TLB_FLUSH: Final = Struct(
    enabled=BOOL_POINTER,
    direct=FEATURE_STATE,
    extended=FEATURE_STATE,
)

# kubevirt.io/api/core/v1.FeatureHyperv.
FEATURE_HYPERV: Final = Struct(
    relaxed=FEATURE_STATE,
    vapic=FEATURE_STATE,
    spinlocks=FEATURE_SPINLOCKS,
    vpindex=FEATURE_STATE,
    runtime=FEATURE_STATE,
    synic=FEATURE_STATE,
    synictimer=SY_NIC_TIMER,
    reset=FEATURE_STATE,
    vendorid=FEATURE_VENDOR_ID,
    frequencies=FEATURE_STATE,
    reenlightenment=FEATURE_STATE,
    tlbflush=TLB_FLUSH,
    ipi=FEATURE_STATE,
    evmcs=FEATURE_STATE,
)

# kubevirt.io/api/core/v1.FeatureKVM.
FEATURE_KVM: Final = Struct(
    hidden=BOOL,
)

# kubevirt.io/api/instancetype/v1beta1.FeaturePreferences.
FEATURE_PREFERENCES: Final = Struct(
    preferredAcpi=FEATURE_STATE,
    preferredApic=FEATURE_APIC,
    preferredHyperv=FEATURE_HYPERV,
    preferredKvm=FEATURE_KVM,
    preferredPvspinlock=FEATURE_STATE,
    preferredSmm=FEATURE_STATE,
)

# kubevirt.io/api/core/v1.EFI.
EFI: Final = Struct(
    secureBoot=BOOL_POINTER,
    persistent=BOOL_POINTER,
)

# kubevirt.io/api/instancetype/v1beta1.FirmwarePreferences.
FIRMWARE_PREFERENCES: Final = Struct(
    preferredUseBios=BOOL_POINTER,
    preferredUseBiosSerial=BOOL_POINTER,
    preferredUseEfi=BOOL_POINTER,
    preferredUseSecureBoot=BOOL_POINTER,
    preferredEfi=EFI,
)

# kubevirt.io/api/instancetype/v1beta1.MachinePreferences.
MACHINE_PREFERENCES: Final = Struct(
    preferredMachineType=STRING,
)

# kubevirt.io/api/instancetype/v1beta1.VolumePreferences.
VOLUME_PREFERENCES: Final = Struct(
    preferredStorageClassName=STRING,
)

# kubevirt.io/api/instancetype/v1beta1.CPUPreferenceRequirement.
CPU_PREFERENCE_REQUIREMENT: Final = Struct(
    guest=UINT32_ALWAYS,
)

# kubevirt.io/api/instancetype/v1beta1.MemoryPreferenceRequirement.
MEMORY_PREFERENCE_REQUIREMENT: Final = Struct(
    guest=QUANTITY_ALWAYS,
)

# kubevirt.io/api/instancetype/v1beta1.PreferenceRequirements.
PREFERENCE_REQUIREMENTS: Final = Struct(
    cpu=CPU_PREFERENCE_REQUIREMENT,
    memory=MEMORY_PREFERENCE_REQUIREMENT,
    architecture=STRING_POINTER,
)

# kubevirt.io/api/instancetype/v1beta1.VirtualMachinePreferenceSpec.
VIRTUAL_MACHINE_PREFERENCE_SPEC: Final = Struct(
    clock=CLOCK_PREFERENCES,
    cpu=CPU_PREFERENCES,
    devices=DEVICE_PREFERENCES,
    features=FEATURE_PREFERENCES,
    firmware=FIRMWARE_PREFERENCES,
    machine=MACHINE_PREFERENCES,
    volumes=VOLUME_PREFERENCES,
    preferredSubdomain=STRING_POINTER,
    preferredTerminationGracePeriodSeconds=INT64_POINTER,
    requirements=PREFERENCE_REQUIREMENTS,
    annotations=STRING_MAP,
    preferSpreadSocketToCoreRatio=UINT32,
    preferredArchitecture=STRING_POINTER,
    preferredLaunchSecurity=LAUNCH_SECURITY,
)

# kubevirt.io/api/instancetype/v1beta1.VirtualMachinePreference.
PREFERENCE: Final = Struct(
    kind=STRING,
    apiVersion=STRING,
    metadata=Value(METADATA),
    spec=Value(VIRTUAL_MACHINE_PREFERENCE_SPEC),
)

# kubevirt.io/api/core/v1.ResourceRequirements.
RESOURCE_REQUIREMENTS: Final = Struct(
    # Steps of KubeVirt compute it.
    requests=Map(QUANTITY_COMPUTED),
    # Steps of KubeVirt compute it.
    limits=Map(QUANTITY_COMPUTED),
    overcommitGuestOverhead=BOOL,
)

# kubevirt.io/api/core/v1.CPU.
CPU: Final = Struct(
    cores=UINT32,
    sockets=UINT32,
    maxSockets=UINT32,
    threads=UINT32,
    model=STRING,
    features=List(CPU_FEATURE),
    dedicatedCpuPlacement=BOOL,
    numa=NUMA,
    isolateEmulatorThread=BOOL,
    realtime=REALTIME,
)

# kubevirt.io/api/core/v1.ReservedOverhead.
RESERVED_OVERHEAD: Final = Struct(
    addedOverhead=QUANTITY,
    memLock=STRING_POINTER,
)

# kubevirt.io/api/core/v1.Memory.
MEMORY: Final = Struct(
    hugepages=HUGEPAGES,
    # Steps of KubeVirt compute it.
    guest=QUANTITY_COMPUTED,
    # Steps of KubeVirt compute it.
    maxGuest=QUANTITY_COMPUTED,
    reservedOverhead=RESERVED_OVERHEAD,
)

# kubevirt.io/api/core/v1.Machine.
MACHINE: Final = Struct(
    type=STRING_ALWAYS,
)

# kubevirt.io/api/core/v1.BIOS.
BIOS: Final = Struct(
    useSerial=BOOL_POINTER,
)

# kubevirt.io/api/core/v1.Bootloader.
BOOTLOADER: Final = Struct(
    bios=BIOS,
    efi=EFI,
)

# kubevirt.io/api/core/v1.KernelBootContainer.
KERNEL_BOOT_CONTAINER: Final = Struct(
    image=STRING_ALWAYS,
    imagePullSecret=STRING,
    imagePullPolicy=STRING,
    kernelPath=STRING,
    initrdPath=STRING,
)

# kubevirt.io/api/core/v1.KernelBoot.
KERNEL_BOOT: Final = Struct(
    kernelArgs=STRING,
    container=KERNEL_BOOT_CONTAINER,
)

# kubevirt.io/api/core/v1.ACPI.
ACPI: Final = Struct(
    slicNameRef=STRING,
    msdmNameRef=STRING,
)

# kubevirt.io/api/core/v1.Firmware.
FIRMWARE: Final = Struct(
    uuid=STRING,
    bootloader=BOOTLOADER,
    serial=STRING,
    kernelBoot=KERNEL_BOOT,
    acpi=ACPI,
)

# kubevirt.io/api/core/v1.Clock.
CLOCK: Final = Struct(
    utc=CLOCK_OFFSET_UTC,
    timezone=STRING_POINTER,
    timer=TIMER,
)

# kubevirt.io/api/core/v1.HyperVPassthrough.
HYPER_V_PASSTHROUGH: Final = Struct(
    enabled=BOOL_POINTER,
)

# kubevirt.io/api/core/v1.Features.
FEATURES: Final = Struct(
    # People leave it out.
    acpi=Value(FEATURE_STATE, left_out=True),
    apic=FEATURE_APIC,
    hypervPassthrough=HYPER_V_PASSTHROUGH,
    hyperv=FEATURE_HYPERV,
    smm=FEATURE_STATE,
    kvm=FEATURE_KVM,
    pvspinlock=FEATURE_STATE,
)

# kubevirt.io/api/core/v1.DiskTarget.
DISK_TARGET: Final = Struct(
    bus=STRING,
    readonly=BOOL,
    pciAddress=STRING,
)

# kubevirt.io/api/core/v1.LunTarget.
LUN_TARGET: Final = Struct(
    bus=STRING,
    readonly=BOOL,
    reservation=BOOL,
)

# kubevirt.io/api/core/v1.CDRomTarget.
CD_ROM_TARGET: Final = Struct(
    bus=STRING,
    readonly=BOOL_POINTER,
    tray=STRING,
)

# kubevirt.io/api/core/v1.Disk.
DISK: Final = Struct(
    name=STRING_ALWAYS,
    disk=DISK_TARGET,
    lun=LUN_TARGET,
    cdrom=CD_ROM_TARGET,
    bootOrder=UINT64_POINTER,
    serial=STRING,
    dedicatedIOThread=BOOL_POINTER,
    cache=STRING,
    io=STRING,
    tag=STRING,
    blockSize=BLOCK_SIZE,
    shareable=BOOL_POINTER,
    errorPolicy=STRING_POINTER,
    changedBlockTracking=BOOL_POINTER,
)

# kubevirt.io/api/core/v1.I6300ESBWatchdog.
I6300_ESB_WATCHDOG: Final = Struct(
    action=STRING,
)

# kubevirt.io/api/core/v1.Diag288Watchdog.
DIAG288_WATCHDOG: Final = Struct(
    action=STRING,
)

# kubevirt.io/api/core/v1.Watchdog.
WATCHDOG: Final = Struct(
    name=STRING_ALWAYS,
    i6300esb=I6300_ESB_WATCHDOG,
    diag288=DIAG288_WATCHDOG,
)

# kubevirt.io/api/core/v1.InterfaceBridge.
INTERFACE_BRIDGE: Final = EMPTY

# kubevirt.io/api/core/v1.DeprecatedInterfaceSlirp.
DEPRECATED_INTERFACE_SLIRP: Final = EMPTY

# kubevirt.io/api/core/v1.InterfaceSRIOV.
INTERFACE_SRIOV: Final = EMPTY

# kubevirt.io/api/core/v1.DeprecatedInterfaceMacvtap.
DEPRECATED_INTERFACE_MACVTAP: Final = EMPTY

# kubevirt.io/api/core/v1.DeprecatedInterfacePasst.
DEPRECATED_INTERFACE_PASST: Final = EMPTY

# kubevirt.io/api/core/v1.InterfacePasstBinding.
INTERFACE_PASST_BINDING: Final = EMPTY

# kubevirt.io/api/core/v1.PluginBinding.
PLUGIN_BINDING: Final = Struct(
    name=STRING_ALWAYS,
)

# kubevirt.io/api/core/v1.Port.
PORT: Final = Struct(
    name=STRING,
    protocol=STRING,
    port=INT32_ALWAYS,
)

# kubevirt.io/api/core/v1.PortRange.
PORT_RANGE: Final = Struct(
    protocol=STRING_ALWAYS,
    start=INT32_ALWAYS,
    end=INT32_ALWAYS,
)

# kubevirt.io/api/core/v1.DHCPPrivateOptions.
DHCP_PRIVATE_OPTIONS: Final = Struct(
    option=INT64_ALWAYS,
    value=STRING_ALWAYS,
)

# kubevirt.io/api/core/v1.DHCPOptions.
DHCP_OPTIONS: Final = Struct(
    bootFileName=STRING,
    tftpServerName=STRING,
    ntpServers=STRINGS,
    privateOptions=List(DHCP_PRIVATE_OPTIONS),
)

# kubevirt.io/api/core/v1.Interface.
INTERFACE: Final = Struct(
    name=STRING_ALWAYS,
    model=STRING,
    bridge=INTERFACE_BRIDGE,
    slirp=DEPRECATED_INTERFACE_SLIRP,
    masquerade=INTERFACE_MASQUERADE,
    sriov=INTERFACE_SRIOV,
    macvtap=DEPRECATED_INTERFACE_MACVTAP,
    passt=DEPRECATED_INTERFACE_PASST,
    passtBinding=INTERFACE_PASST_BINDING,
    binding=PLUGIN_BINDING,
    ports=List(PORT),
    portRanges=List(PORT_RANGE),
    macAddress=STRING,
    bootOrder=UINT64_POINTER,
    pciAddress=STRING,
    dhcpOptions=DHCP_OPTIONS,
    tag=STRING,
    acpiIndex=INT64,
    state=STRING,
)

# kubevirt.io/api/core/v1.Input.
INPUT: Final = Struct(
    bus=STRING,
    type=STRING_ALWAYS,
    name=STRING_ALWAYS,
)

# kubevirt.io/api/core/v1.DownwardMetrics.
DOWNWARD_METRICS: Final = EMPTY

# kubevirt.io/api/core/v1.PanicDevice.
PANIC_DEVICE: Final = Struct(
    model=STRING_POINTER,
)

# kubevirt.io/api/core/v1.FilesystemVirtiofs.
FILESYSTEM_VIRTIOFS: Final = EMPTY

# kubevirt.io/api/core/v1.Filesystem.
FILESYSTEM: Final = Struct(
    name=STRING_ALWAYS,
    virtiofs=OrNull(FILESYSTEM_VIRTIOFS),
)

# kubevirt.io/api/core/v1.ClientPassthroughDevices.
CLIENT_PASSTHROUGH_DEVICES: Final = EMPTY

# kubevirt.io/api/core/v1.SoundDevice.
SOUND_DEVICE: Final = Struct(
    name=STRING_ALWAYS,
    model=STRING,
)

# kubevirt.io/api/core/v1.VideoDevice.
VIDEO_DEVICE: Final = Struct(
    type=STRING,
)

# kubevirt.io/api/core/v1.Devices.
DEVICES: Final = Struct(
    useVirtioTransitional=BOOL_POINTER,
    disableHotplug=BOOL,
    disks=List(DISK, 256),
    watchdog=WATCHDOG,
    interfaces=List(INTERFACE, 256),
    inputs=List(INPUT),
    autoattachPodInterface=BOOL_POINTER,
    autoattachGraphicsDevice=BOOL_POINTER,
    autoattachSerialConsole=BOOL_POINTER,
    logSerialConsole=BOOL_POINTER,
    autoattachMemBalloon=BOOL_POINTER,
    autoattachInputDevice=BOOL_POINTER,
    autoattachVSOCK=BOOL_POINTER,
    rng=RNG,
    blockMultiQueue=BOOL_POINTER,
    networkInterfaceMultiqueue=BOOL_POINTER,
    gpus=List(GPU),
    downwardMetrics=DOWNWARD_METRICS,
    panicDevices=List(PANIC_DEVICE),
    filesystems=List(FILESYSTEM),
    hostDevices=List(HOST_DEVICE),
    clientPassthrough=CLIENT_PASSTHROUGH_DEVICES,
    sound=SOUND_DEVICE,
    tpm=TPM_DEVICE,
    video=VIDEO_DEVICE,
)

# kubevirt.io/api/core/v1.Chassis.
CHASSIS: Final = Struct(
    manufacturer=STRING,
    version=STRING,
    serial=STRING,
    asset=STRING,
    sku=STRING,
)

# kubevirt.io/api/core/v1.DomainSpec.
DOMAIN: Final = Struct(
    # People leave it out.
    resources=Value(RESOURCE_REQUIREMENTS, left_out=True),
    cpu=CPU,
    memory=MEMORY,
    machine=MACHINE,
    firmware=FIRMWARE,
    clock=CLOCK,
    features=FEATURES,
    devices=Value(DEVICES),
    ioThreadsPolicy=STRING_POINTER,
    ioThreads=DISK_IO_THREADS,
    chassis=CHASSIS,
    launchSecurity=LAUNCH_SECURITY,
    rebootPolicy=STRING_POINTER,
)

# k8s.io/api/core/v1.NodeSelectorRequirement.
NODE_SELECTOR_REQUIREMENT: Final = Struct(
    key=STRING_ALWAYS,
    operator=STRING_ALWAYS,
    values=STRINGS,
)

# k8s.io/api/core/v1.NodeSelectorTerm.
NODE_SELECTOR_TERM: Final = Struct(
    matchExpressions=List(NODE_SELECTOR_REQUIREMENT),
    matchFields=List(NODE_SELECTOR_REQUIREMENT),
)

# k8s.io/api/core/v1.NodeSelector.
NODE_SELECTOR: Final = Struct(
    nodeSelectorTerms=OrNull(List(NODE_SELECTOR_TERM)),
)

# k8s.io/api/core/v1.PreferredSchedulingTerm.
PREFERRED_SCHEDULING_TERM: Final = Struct(
    weight=INT32_ALWAYS,
    preference=Value(NODE_SELECTOR_TERM),
)

# k8s.io/api/core/v1.NodeAffinity.
NODE_AFFINITY: Final = Struct(
    requiredDuringSchedulingIgnoredDuringExecution=NODE_SELECTOR,
    preferredDuringSchedulingIgnoredDuringExecution=List(PREFERRED_SCHEDULING_TERM),
)

# k8s.io/apimachinery/pkg/apis/meta/v1.LabelSelectorRequirement.
LABEL_SELECTOR_REQUIREMENT: Final = Struct(
    key=STRING_ALWAYS,
    operator=STRING_ALWAYS,
    values=STRINGS,
)

# k8s.io/apimachinery/pkg/apis/meta/v1.LabelSelector.
LABEL_SELECTOR: Final = Struct(
    matchLabels=STRING_MAP,
    matchExpressions=List(LABEL_SELECTOR_REQUIREMENT),
)

# k8s.io/api/core/v1.PodAffinityTerm.
POD_AFFINITY_TERM: Final = Struct(
    labelSelector=LABEL_SELECTOR,
    namespaces=STRINGS,
    topologyKey=STRING_ALWAYS,
    namespaceSelector=LABEL_SELECTOR,
    matchLabelKeys=STRINGS,
    mismatchLabelKeys=STRINGS,
)

# k8s.io/api/core/v1.WeightedPodAffinityTerm.
WEIGHTED_POD_AFFINITY_TERM: Final = Struct(
    weight=INT32_ALWAYS,
    podAffinityTerm=Value(POD_AFFINITY_TERM),
)

# k8s.io/api/core/v1.PodAffinity.
POD_AFFINITY: Final = Struct(
    requiredDuringSchedulingIgnoredDuringExecution=List(POD_AFFINITY_TERM),
    preferredDuringSchedulingIgnoredDuringExecution=List(WEIGHTED_POD_AFFINITY_TERM),
)

# k8s.io/api/core/v1.PodAntiAffinity.
POD_ANTI_AFFINITY: Final = Struct(
    requiredDuringSchedulingIgnoredDuringExecution=List(POD_AFFINITY_TERM),
    preferredDuringSchedulingIgnoredDuringExecution=List(WEIGHTED_POD_AFFINITY_TERM),
)

# k8s.io/api/core/v1.Affinity.
AFFINITY: Final = Struct(
    nodeAffinity=NODE_AFFINITY,
    podAffinity=POD_AFFINITY,
    podAntiAffinity=POD_ANTI_AFFINITY,
)

# k8s.io/api/core/v1.Toleration.
TOLERATION: Final = Struct(
    key=STRING,
    operator=STRING,
    value=STRING,
    effect=STRING,
    tolerationSeconds=INT64_POINTER,
)

# k8s.io/api/core/v1.TopologySpreadConstraint.
TOPOLOGY_SPREAD_CONSTRAINT: Final = Struct(
    maxSkew=INT32_ALWAYS,
    topologyKey=STRING_ALWAYS,
    whenUnsatisfiable=STRING_ALWAYS,
    labelSelector=LABEL_SELECTOR,
    minDomains=INT32_POINTER,
    nodeAffinityPolicy=STRING_POINTER,
    nodeTaintsPolicy=STRING_POINTER,
    matchLabelKeys=STRINGS,
)

# kubevirt.io/api/core/v1.HostDisk.
HOST_DISK: Final = Struct(
    path=STRING_ALWAYS,
    type=STRING_ALWAYS,
    capacity=QUANTITY_ALWAYS,
    shared=BOOL_POINTER,
)

# kubevirt.io/api/core/v1.PersistentVolumeClaimVolumeSource.
PERSISTENT_VOLUME_CLAIM_VOLUME_SOURCE: Final = Struct(
    claimName=STRING_ALWAYS,
    readOnly=BOOL,
    hotpluggable=BOOL,
)

# k8s.io/api/core/v1.LocalObjectReference.
LOCAL_OBJECT_REFERENCE: Final = Struct(
    name=STRING,
)

# kubevirt.io/api/core/v1.CloudInitNoCloudSource.
CLOUD_INIT_NO_CLOUD_SOURCE: Final = Struct(
    secretRef=LOCAL_OBJECT_REFERENCE,
    userDataBase64=STRING,
    userData=STRING,
    networkDataSecretRef=LOCAL_OBJECT_REFERENCE,
    networkDataBase64=STRING,
    networkData=STRING,
)

# kubevirt.io/api/core/v1.CloudInitConfigDriveSource.
CLOUD_INIT_CONFIG_DRIVE_SOURCE: Final = Struct(
    secretRef=LOCAL_OBJECT_REFERENCE,
    userDataBase64=STRING,
    userData=STRING,
    networkDataSecretRef=LOCAL_OBJECT_REFERENCE,
    networkDataBase64=STRING,
    networkData=STRING,
)

# kubevirt.io/api/core/v1.SysprepSource.
SYSPREP_SOURCE: Final = Struct(
    secret=LOCAL_OBJECT_REFERENCE,
    configMap=LOCAL_OBJECT_REFERENCE,
)

# kubevirt.io/api/core/v1.ContainerDiskSource.
CONTAINER_DISK_SOURCE: Final = Struct(
    image=STRING_ALWAYS,
    imagePullSecret=STRING,
    path=STRING,
    imagePullPolicy=STRING,
)

# k8s.io/api/core/v1.PersistentVolumeClaimVolumeSource.
CORE_PERSISTENT_VOLUME_CLAIM_VOLUME_SOURCE: Final = Struct(
    claimName=STRING_ALWAYS,
    readOnly=BOOL,
)

# kubevirt.io/api/core/v1.EphemeralVolumeSource.
EPHEMERAL_VOLUME_SOURCE: Final = Struct(
    persistentVolumeClaim=CORE_PERSISTENT_VOLUME_CLAIM_VOLUME_SOURCE,
)

# kubevirt.io/api/core/v1.EmptyDiskSource.
EMPTY_DISK_SOURCE: Final = Struct(
    capacity=QUANTITY_ALWAYS,
)

# kubevirt.io/api/core/v1.DataVolumeSource.
DATA_VOLUME_SOURCE: Final = Struct(
    name=STRING_ALWAYS,
    hotpluggable=BOOL,
)

# kubevirt.io/api/core/v1.ConfigMapVolumeSource.
CONFIG_MAP_VOLUME_SOURCE: Final = Struct(
    name=STRING,
    optional=BOOL_POINTER,
    volumeLabel=STRING,
)

# kubevirt.io/api/core/v1.SecretVolumeSource.
SECRET_VOLUME_SOURCE: Final = Struct(
    secretName=STRING,
    optional=BOOL_POINTER,
    volumeLabel=STRING,
)

# k8s.io/api/core/v1.ObjectFieldSelector.
OBJECT_FIELD_SELECTOR: Final = Struct(
    apiVersion=STRING,
    fieldPath=STRING_ALWAYS,
)

# k8s.io/api/core/v1.ResourceFieldSelector.
RESOURCE_FIELD_SELECTOR: Final = Struct(
    containerName=STRING,
    resource=STRING_ALWAYS,
    divisor=QUANTITY_ALWAYS,
)

# k8s.io/api/core/v1.DownwardAPIVolumeFile.
DOWNWARD_API_VOLUME_FILE: Final = Struct(
    path=STRING_ALWAYS,
    fieldRef=OBJECT_FIELD_SELECTOR,
    resourceFieldRef=RESOURCE_FIELD_SELECTOR,
    mode=INT32_POINTER,
)

# kubevirt.io/api/core/v1.DownwardAPIVolumeSource.
DOWNWARD_API_VOLUME_SOURCE: Final = Struct(
    fields=List(DOWNWARD_API_VOLUME_FILE),
    volumeLabel=STRING,
)

# kubevirt.io/api/core/v1.ServiceAccountVolumeSource.
SERVICE_ACCOUNT_VOLUME_SOURCE: Final = Struct(
    serviceAccountName=STRING,
)

# kubevirt.io/api/core/v1.DownwardMetricsVolumeSource.
DOWNWARD_METRICS_VOLUME_SOURCE: Final = EMPTY

# kubevirt.io/api/core/v1.MemoryDumpVolumeSource.
MEMORY_DUMP_VOLUME_SOURCE: Final = Struct(
    claimName=STRING_ALWAYS,
    readOnly=BOOL,
    hotpluggable=BOOL,
)

# kubevirt.io/api/core/v1.ContainerPathVolumeSource.
CONTAINER_PATH_VOLUME_SOURCE: Final = Struct(
    path=STRING_ALWAYS,
    readOnly=BOOL_POINTER,
)

# kubevirt.io/api/core/v1.Volume.
VOLUME: Final = Struct(
    name=STRING_ALWAYS,
    hostDisk=HOST_DISK,
    persistentVolumeClaim=PERSISTENT_VOLUME_CLAIM_VOLUME_SOURCE,
    cloudInitNoCloud=CLOUD_INIT_NO_CLOUD_SOURCE,
    cloudInitConfigDrive=CLOUD_INIT_CONFIG_DRIVE_SOURCE,
    sysprep=SYSPREP_SOURCE,
    containerDisk=CONTAINER_DISK_SOURCE,
    ephemeral=EPHEMERAL_VOLUME_SOURCE,
    emptyDisk=EMPTY_DISK_SOURCE,
    dataVolume=DATA_VOLUME_SOURCE,
    configMap=CONFIG_MAP_VOLUME_SOURCE,
    secret=SECRET_VOLUME_SOURCE,
    downwardAPI=DOWNWARD_API_VOLUME_SOURCE,
    serviceAccount=SERVICE_ACCOUNT_VOLUME_SOURCE,
    downwardMetrics=DOWNWARD_METRICS_VOLUME_SOURCE,
    memoryDump=MEMORY_DUMP_VOLUME_SOURCE,
    containerPath=CONTAINER_PATH_VOLUME_SOURCE,
)

# k8s.io/api/core/v1.ExecAction.
EXEC_ACTION: Final = Struct(
    command=STRINGS,
)

# kubevirt.io/api/core/v1.GuestAgentPing.
GUEST_AGENT_PING: Final = EMPTY

# k8s.io/api/core/v1.HTTPHeader.
HTTP_HEADER: Final = Struct(
    name=STRING_ALWAYS,
    value=STRING_ALWAYS,
)

# k8s.io/api/core/v1.HTTPGetAction.
HTTP_GET_ACTION: Final = Struct(
    path=STRING,
    port=INT_OR_STRING_ALWAYS,
    host=STRING,
    scheme=STRING,
    httpHeaders=List(HTTP_HEADER),
)

# k8s.io/api/core/v1.TCPSocketAction.
TCP_SOCKET_ACTION: Final = Struct(
    port=INT_OR_STRING_ALWAYS,
    host=STRING,
)

# kubevirt.io/api/core/v1.Probe.
PROBE: Final = Struct(
    exec=EXEC_ACTION,
    guestAgentPing=GUEST_AGENT_PING,
    httpGet=HTTP_GET_ACTION,
    tcpSocket=TCP_SOCKET_ACTION,
    initialDelaySeconds=INT32,
    timeoutSeconds=INT32,
    periodSeconds=INT32,
    successThreshold=INT32,
    failureThreshold=INT32,
)

# kubevirt.io/api/core/v1.PodNetwork.
POD_NETWORK: Final = Struct(
    vmNetworkCIDR=STRING,
    vmIPv6NetworkCIDR=STRING,
)

# kubevirt.io/api/core/v1.MultusNetwork.
MULTUS_NETWORK: Final = Struct(
    networkName=STRING_ALWAYS,
    default=BOOL,
)

# kubevirt.io/api/core/v1.ClaimRequest.
CLAIM_REQUEST: Final = Struct(
    claimName=STRING,
    requestName=STRING,
)

# kubevirt.io/api/core/v1.Network.
NETWORK: Final = Struct(
    name=STRING_ALWAYS,
    pod=POD_NETWORK,
    multus=MULTUS_NETWORK,
    resourceClaim=CLAIM_REQUEST,
)

# k8s.io/api/core/v1.PodDNSConfigOption.
POD_DNS_CONFIG_OPTION: Final = Struct(
    name=STRING,
    value=STRING_POINTER,
)

# k8s.io/api/core/v1.PodDNSConfig.
POD_DNS_CONFIG: Final = Struct(
    nameservers=STRINGS,
    searches=STRINGS,
    options=List(POD_DNS_CONFIG_OPTION),
)

# kubevirt.io/api/core/v1.AccessCredentialSecretSource.
ACCESS_CREDENTIAL_SECRET_SOURCE: Final = Struct(
    secretName=STRING_ALWAYS,
)

# kubevirt.io/api/core/v1.SSHPublicKeyAccessCredentialSource.
SSH_PUBLIC_KEY_ACCESS_CREDENTIAL_SOURCE: Final = Struct(
    secret=ACCESS_CREDENTIAL_SECRET_SOURCE,
)

# kubevirt.io/api/core/v1.ConfigDriveSSHPublicKeyAccessCredentialPropagation.
CONFIG_DRIVE_SSH_PUBLIC_KEY_ACCESS_CREDENTIAL_PROPAGATION: Final = EMPTY

# kubevirt.io/api/core/v1.NoCloudSSHPublicKeyAccessCredentialPropagation.
NO_CLOUD_SSH_PUBLIC_KEY_ACCESS_CREDENTIAL_PROPAGATION: Final = EMPTY

# kubevirt.io/api/core/v1.QemuGuestAgentSSHPublicKeyAccessCredentialPropagation.
QEMU_GUEST_AGENT_SSH_PUBLIC_KEY_ACCESS_CREDENTIAL_PROPAGATION: Final = Struct(
    users=OrNull(STRINGS),
)

# kubevirt.io/api/core/v1.SSHPublicKeyAccessCredentialPropagationMethod.
SSH_PUBLIC_KEY_ACCESS_CREDENTIAL_PROPAGATION_METHOD: Final = Struct(
    configDrive=CONFIG_DRIVE_SSH_PUBLIC_KEY_ACCESS_CREDENTIAL_PROPAGATION,
    noCloud=NO_CLOUD_SSH_PUBLIC_KEY_ACCESS_CREDENTIAL_PROPAGATION,
    qemuGuestAgent=QEMU_GUEST_AGENT_SSH_PUBLIC_KEY_ACCESS_CREDENTIAL_PROPAGATION,
)

# kubevirt.io/api/core/v1.SSHPublicKeyAccessCredential.
SSH_PUBLIC_KEY_ACCESS_CREDENTIAL: Final = Struct(
    source=Value(SSH_PUBLIC_KEY_ACCESS_CREDENTIAL_SOURCE),
    propagationMethod=Value(SSH_PUBLIC_KEY_ACCESS_CREDENTIAL_PROPAGATION_METHOD),
)

# kubevirt.io/api/core/v1.UserPasswordAccessCredentialSource.
USER_PASSWORD_ACCESS_CREDENTIAL_SOURCE: Final = Struct(
    secret=ACCESS_CREDENTIAL_SECRET_SOURCE,
)

# kubevirt.io/api/core/v1.QemuGuestAgentUserPasswordAccessCredentialPropagation.
QEMU_GUEST_AGENT_USER_PASSWORD_ACCESS_CREDENTIAL_PROPAGATION: Final = EMPTY

# kubevirt.io/api/core/v1.UserPasswordAccessCredentialPropagationMethod.
USER_PASSWORD_ACCESS_CREDENTIAL_PROPAGATION_METHOD: Final = Struct(
    qemuGuestAgent=QEMU_GUEST_AGENT_USER_PASSWORD_ACCESS_CREDENTIAL_PROPAGATION,
)

# kubevirt.io/api/core/v1.UserPasswordAccessCredential.
USER_PASSWORD_ACCESS_CREDENTIAL: Final = Struct(
    source=Value(USER_PASSWORD_ACCESS_CREDENTIAL_SOURCE),
    propagationMethod=Value(USER_PASSWORD_ACCESS_CREDENTIAL_PROPAGATION_METHOD),
)

# kubevirt.io/api/core/v1.AccessCredential.
ACCESS_CREDENTIAL: Final = Struct(
    sshPublicKey=SSH_PUBLIC_KEY_ACCESS_CREDENTIAL,
    userPassword=USER_PASSWORD_ACCESS_CREDENTIAL,
)

# kubevirt.io/api/core/v1.VirtualMachineInstanceResourceClaim.
VIRTUAL_MACHINE_INSTANCE_RESOURCE_CLAIM: Final = Struct(
    name=STRING_ALWAYS,
    resourceClaimName=STRING_POINTER,
    resourceClaimTemplateName=STRING_POINTER,
)

# kubevirt.io/api/core/v1.UtilityVolume.
UTILITY_VOLUME: Final = Struct(
    name=STRING_ALWAYS,
    claimName=STRING_ALWAYS,
    readOnly=BOOL,
    type=STRING_POINTER,
)

# kubevirt.io/api/core/v1.VirtualMachineInstanceSpec.
VMI_SPEC: Final = Struct(
    priorityClassName=STRING,
    domain=Value(DOMAIN),
    nodeSelector=STRING_MAP,
    affinity=AFFINITY,
    schedulerName=STRING,
    serviceAccountName=STRING,
    tolerations=List(TOLERATION),
    topologySpreadConstraints=List(TOPOLOGY_SPREAD_CONSTRAINT),
    evictionStrategy=STRING_POINTER,
    startStrategy=STRING_POINTER,
    terminationGracePeriodSeconds=INT64_POINTER,
    volumes=List(VOLUME, 256),
    livenessProbe=PROBE,
    readinessProbe=PROBE,
    hostname=STRING,
    subdomain=STRING,
    networks=List(NETWORK, 256),
    dnsPolicy=STRING,
    dnsConfig=POD_DNS_CONFIG,
    accessCredentials=List(ACCESS_CREDENTIAL, 256),
    architecture=STRING,
    resourceClaims=List(VIRTUAL_MACHINE_INSTANCE_RESOURCE_CLAIM),
    utilityVolumes=List(UTILITY_VOLUME, 256),
)

# kubevirt.io/api/core/v1.VirtualMachineInstanceCondition.
VIRTUAL_MACHINE_INSTANCE_CONDITION: Final = Struct(
    type=STRING_ALWAYS,
    status=STRING_ALWAYS,
    lastProbeTime=OrNull(STRING_POINTER),
    lastTransitionTime=OrNull(STRING_POINTER),
    reason=STRING,
    message=STRING,
)

# kubevirt.io/api/core/v1.VirtualMachineInstanceGuestOSInfo; it is copied: no rule reads it.
VIRTUAL_MACHINE_INSTANCE_GUEST_OS_INFO: Final = Status()

# kubevirt.io/api/core/v1.MemoryStatus.
MEMORY_STATUS: Final = Struct(
    guestAtBoot=QUANTITY,
    guestCurrent=QUANTITY,
    guestRequested=QUANTITY,
    memoryOverhead=QUANTITY,
)

# kubevirt.io/api/core/v1.VirtualMachineInstanceStatus; the rest is copied: no rule reads it.
VIRTUAL_MACHINE_INSTANCE_STATUS: Final = Status(
    conditions=List(VIRTUAL_MACHINE_INSTANCE_CONDITION),
    guestOSInfo=VIRTUAL_MACHINE_INSTANCE_GUEST_OS_INFO,
    runtimeUser=UINT64_ALWAYS,
    memory=MEMORY_STATUS,
)

# kubevirt.io/api/core/v1.VirtualMachineInstance.
VMI: Final = Struct(
    kind=STRING,
    apiVersion=STRING,
    metadata=Value(METADATA),
    spec=Value(VMI_SPEC),
    status=VIRTUAL_MACHINE_INSTANCE_STATUS,
)

# kubevirt.io/api/core/v1.InstancetypeMatcher.
MATCHER: Final = Struct(
    name=STRING,
    kind=STRING,
    revisionName=STRING,
    inferFromVolume=STRING,
    inferFromVolumeFailurePolicy=STRING_POINTER,
)

# kubevirt.io/api/core/v1.PreferenceMatcher.
PREFERENCE_MATCHER: Final = Struct(
    name=STRING,
    kind=STRING,
    revisionName=STRING,
    inferFromVolume=STRING,
    inferFromVolumeFailurePolicy=STRING_POINTER,
)

# kubevirt.io/api/core/v1.VirtualMachineInstanceTemplateSpec.
VIRTUAL_MACHINE_INSTANCE_TEMPLATE_SPEC: Final = Struct(
    metadata=Value(METADATA),
    spec=Value(VMI_SPEC),
)

# kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1.DataVolumeSourceHTTP.
DATA_VOLUME_SOURCE_HTTP: Final = Struct(
    url=STRING_ALWAYS,
    secretRef=STRING,
    certConfigMap=STRING,
    extraHeaders=STRINGS,
    secretExtraHeaders=STRINGS,
)

# kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1.DataVolumeSourceS3.
DATA_VOLUME_SOURCE_S3: Final = Struct(
    url=STRING_ALWAYS,
    secretRef=STRING,
    certConfigMap=STRING,
)

# kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1.DataVolumeSourceGCS.
DATA_VOLUME_SOURCE_GCS: Final = Struct(
    url=STRING_ALWAYS,
    secretRef=STRING,
)

# kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1.PlatformOptions.
PLATFORM_OPTIONS: Final = Struct(
    architecture=STRING,
)

# kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1.DataVolumeSourceRegistry.
DATA_VOLUME_SOURCE_REGISTRY: Final = Struct(
    url=STRING_POINTER,
    imageStream=STRING_POINTER,
    pullMethod=STRING_POINTER,
    secretRef=STRING_POINTER,
    certConfigMap=STRING_POINTER,
    platform=PLATFORM_OPTIONS,
)

# kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1.DataVolumeSourcePVC.
DATA_VOLUME_SOURCE_PVC: Final = Struct(
    namespace=STRING_ALWAYS,
    name=STRING_ALWAYS,
)

# kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1.DataVolumeSourceUpload.
DATA_VOLUME_SOURCE_UPLOAD: Final = EMPTY

# kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1.DataVolumeBlankImage.
DATA_VOLUME_BLANK_IMAGE: Final = EMPTY

# kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1.DataVolumeSourceImageIO.
DATA_VOLUME_SOURCE_IMAGE_IO: Final = Struct(
    url=STRING_ALWAYS,
    diskId=STRING_ALWAYS,
    secretRef=STRING,
    certConfigMap=STRING,
    insecureSkipVerify=BOOL_POINTER,
)

# kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1.DataVolumeSourceVDDK.
DATA_VOLUME_SOURCE_VDDK: Final = Struct(
    url=STRING,
    uuid=STRING,
    backingFile=STRING,
    thumbprint=STRING,
    secretRef=STRING,
    initImageURL=STRING,
    extraArgs=STRING,
)

# kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1.DataVolumeSourceSnapshot.
DATA_VOLUME_SOURCE_SNAPSHOT: Final = Struct(
    namespace=STRING_ALWAYS,
    name=STRING_ALWAYS,
)

# kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1.DataVolumeSource.
CORE_DATA_VOLUME_SOURCE: Final = Struct(
    http=DATA_VOLUME_SOURCE_HTTP,
    s3=DATA_VOLUME_SOURCE_S3,
    gcs=DATA_VOLUME_SOURCE_GCS,
    registry=DATA_VOLUME_SOURCE_REGISTRY,
    pvc=DATA_VOLUME_SOURCE_PVC,
    upload=DATA_VOLUME_SOURCE_UPLOAD,
    blank=DATA_VOLUME_BLANK_IMAGE,
    imageio=DATA_VOLUME_SOURCE_IMAGE_IO,
    vddk=DATA_VOLUME_SOURCE_VDDK,
    snapshot=DATA_VOLUME_SOURCE_SNAPSHOT,
)

# kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1.DataVolumeSourceRef.
DATA_VOLUME_SOURCE_REF: Final = Struct(
    kind=STRING_ALWAYS,
    namespace=STRING_POINTER,
    name=STRING_ALWAYS,
)

# k8s.io/api/core/v1.VolumeResourceRequirements.
VOLUME_RESOURCE_REQUIREMENTS: Final = Struct(
    limits=Map(QUANTITY),
    requests=Map(QUANTITY),
)

# k8s.io/api/core/v1.TypedLocalObjectReference.
TYPED_LOCAL_OBJECT_REFERENCE: Final = Struct(
    apiGroup=OrNull(STRING_POINTER),
    kind=STRING_ALWAYS,
    name=STRING_ALWAYS,
)

# k8s.io/api/core/v1.TypedObjectReference.
TYPED_OBJECT_REFERENCE: Final = Struct(
    apiGroup=OrNull(STRING_POINTER),
    kind=STRING_ALWAYS,
    name=STRING_ALWAYS,
    namespace=STRING_POINTER,
)

# k8s.io/api/core/v1.PersistentVolumeClaimSpec.
PERSISTENT_VOLUME_CLAIM_SPEC: Final = Struct(
    accessModes=STRINGS,
    selector=LABEL_SELECTOR,
    resources=Value(VOLUME_RESOURCE_REQUIREMENTS),
    volumeName=STRING,
    storageClassName=STRING_POINTER,
    volumeMode=STRING_POINTER,
    dataSource=TYPED_LOCAL_OBJECT_REFERENCE,
    dataSourceRef=TYPED_OBJECT_REFERENCE,
    volumeAttributesClassName=STRING_POINTER,
)

# kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1.StorageSpec.
STORAGE_SPEC: Final = Struct(
    accessModes=STRINGS,
    selector=LABEL_SELECTOR,
    resources=Value(VOLUME_RESOURCE_REQUIREMENTS),
    volumeName=STRING,
    storageClassName=STRING_POINTER,
    volumeMode=STRING_POINTER,
    dataSource=TYPED_LOCAL_OBJECT_REFERENCE,
    dataSourceRef=TYPED_OBJECT_REFERENCE,
)

# kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1.DataVolumeCheckpoint.
DATA_VOLUME_CHECKPOINT: Final = Struct(
    previous=STRING_ALWAYS,
    current=STRING_ALWAYS,
)

# kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1.DataVolumeSpec.
DATA_VOLUME_SPEC: Final = Struct(
    source=CORE_DATA_VOLUME_SOURCE,
    sourceRef=DATA_VOLUME_SOURCE_REF,
    pvc=PERSISTENT_VOLUME_CLAIM_SPEC,
    storage=STORAGE_SPEC,
    priorityClassName=STRING,
    contentType=STRING,
    checkpoints=List(DATA_VOLUME_CHECKPOINT),
    finalCheckpoint=BOOL,
    preallocation=BOOL_POINTER,
)

# kubevirt.io/api/core/v1.DataVolumeTemplateDummyStatus.
DATA_VOLUME_TEMPLATE_DUMMY_STATUS: Final = EMPTY

# kubevirt.io/api/core/v1.DataVolumeTemplateSpec.
DATA_VOLUME_TEMPLATE_SPEC: Final = Struct(
    kind=STRING,
    apiVersion=STRING,
    metadata=Value(METADATA),
    spec=Value(DATA_VOLUME_SPEC),
    status=DATA_VOLUME_TEMPLATE_DUMMY_STATUS,
)

# kubevirt.io/api/core/v1.VirtualMachineSpec.
VIRTUAL_MACHINE_SPEC: Final = Struct(
    running=BOOL_POINTER,
    runStrategy=STRING_POINTER,
    instancetype=MATCHER,
    preference=PREFERENCE_MATCHER,
    # The schema demands it, so that it is never written as null.
    template=VIRTUAL_MACHINE_INSTANCE_TEMPLATE_SPEC,
    dataVolumeTemplates=List(DATA_VOLUME_TEMPLATE_SPEC),
    updateVolumesStrategy=STRING_POINTER,
)

# kubevirt.io/api/core/v1.VirtualMachineCondition.
VIRTUAL_MACHINE_CONDITION: Final = Struct(
    type=STRING_ALWAYS,
    status=STRING_ALWAYS,
    lastProbeTime=OrNull(STRING_POINTER),
    lastTransitionTime=OrNull(STRING_POINTER),
    reason=STRING,
    message=STRING,
)

# kubevirt.io/api/core/v1.ControllerRevisionRef.
CONTROLLER_REVISION_REF: Final = Struct(
    name=STRING,
)

# kubevirt.io/api/core/v1.InstancetypeStatusRef.
INSTANCETYPE_STATUS_REF: Final = Struct(
    name=STRING,
    kind=STRING,
    controllerRevisionRef=CONTROLLER_REVISION_REF,
    inferFromVolume=STRING,
    inferFromVolumeFailurePolicy=STRING_POINTER,
)

# kubevirt.io/api/core/v1.VirtualMachineStatus; the rest is copied: no rule reads it.
VIRTUAL_MACHINE_STATUS: Final = Status(
    conditions=List(VIRTUAL_MACHINE_CONDITION),
    instancetypeRef=INSTANCETYPE_STATUS_REF,
    preferenceRef=INSTANCETYPE_STATUS_REF,
)

# kubevirt.io/api/core/v1.VirtualMachine.
VM: Final = Struct(
    kind=STRING,
    apiVersion=STRING,
    metadata=Value(METADATA),
    spec=Value(VIRTUAL_MACHINE_SPEC),
    status=VIRTUAL_MACHINE_STATUS,
)
