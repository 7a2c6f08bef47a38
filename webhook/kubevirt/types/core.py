"""VirtualMachine and VirtualMachineInstance with all that they hold, instancetypes and preferences.

The types of kubevirt.io/api/core/v1, kubevirt.io/api/instancetype/v1beta1 and k8s.io/api, as far as JSON shows them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

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
    NEVER,
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
    Shape,
    Struct,
    Value,
    members,
)

STRINGS: Final = List(STRING_POINTER)
STRING_MAP: Final = Map(STRING_POINTER)
TYPE: Final = members(STRING, "apiVersion kind")

METADATA: Final = Struct(
    **members(STRING, "name generateName namespace selfLink uid resourceVersion creationTimestamp deletionTimestamp"),
    generation=INT64,
    deletionGracePeriodSeconds=INT64_POINTER,
    labels=STRING_MAP,
    annotations=STRING_MAP,
    ownerReferences=List(
        Struct(
            **members(STRING_ALWAYS, "apiVersion kind name uid"),
            **members(BOOL_POINTER, "controller blockOwnerDeletion"),
        )
    ),
    finalizers=STRINGS,
    managedFields=List(FREE),
)

_EXPRESSIONS: Final = List(Struct(**members(STRING_ALWAYS, "key operator"), values=STRINGS))
LABEL_SELECTOR: Final = Struct(matchLabels=STRING_MAP, matchExpressions=_EXPRESSIONS)
_NODE_TERM: Final = Struct(matchExpressions=_EXPRESSIONS, matchFields=_EXPRESSIONS)
_POD_TERM: Final = Struct(
    topologyKey=STRING_ALWAYS,
    **members(LABEL_SELECTOR, "labelSelector namespaceSelector"),
    **members(STRINGS, "namespaces matchLabelKeys mismatchLabelKeys"),
)
_POD_AFFINITY: Final = Struct(
    requiredDuringSchedulingIgnoredDuringExecution=List(_POD_TERM),
    preferredDuringSchedulingIgnoredDuringExecution=List(Struct(weight=INT32_ALWAYS, podAffinityTerm=Value(_POD_TERM))),
)
AFFINITY: Final = Struct(
    nodeAffinity=Struct(
        requiredDuringSchedulingIgnoredDuringExecution=Struct(nodeSelectorTerms=OrNull(List(_NODE_TERM))),
        preferredDuringSchedulingIgnoredDuringExecution=List(Struct(weight=INT32_ALWAYS, preference=Value(_NODE_TERM))),
    ),
    **members(_POD_AFFINITY, "podAffinity podAntiAffinity"),
)
TOLERATION: Final = Struct(**members(STRING, "key operator value effect"), tolerationSeconds=INT64_POINTER)
TOPOLOGY_SPREAD: Final = Struct(
    maxSkew=INT32_ALWAYS,
    **members(STRING_ALWAYS, "topologyKey whenUnsatisfiable"),
    labelSelector=LABEL_SELECTOR,
    minDomains=INT32_POINTER,
    **members(STRING_POINTER, "nodeAffinityPolicy nodeTaintsPolicy"),
    matchLabelKeys=STRINGS,
)
DNS_CONFIG: Final = Struct(
    **members(STRINGS, "nameservers searches"), options=List(Struct(name=STRING, value=STRING_POINTER))
)
PROBE: Final = Struct(
    exec=Struct(command=STRINGS),
    guestAgentPing=EMPTY,
    httpGet=Struct(
        **members(STRING, "path host scheme"),
        port=INT_OR_STRING_ALWAYS,
        httpHeaders=List(Struct(**members(STRING_ALWAYS, "name value"))),
    ),
    tcpSocket=Struct(port=INT_OR_STRING_ALWAYS, host=STRING),
    **members(INT32, "initialDelaySeconds timeoutSeconds periodSeconds successThreshold failureThreshold"),
)

# `maxItems` of KubeVirt's CRDs.
MAX_DEVICES: Final = 256

FEATURE_STATE: Final = Struct(enabled=BOOL_POINTER)
BLOCK_SIZE: Final = Struct(
    custom=Struct(**members(UINT64, "logical physical"), discardGranularity=UINT64_POINTER), matchVolume=FEATURE_STATE
)
_DISK: Final = Struct(
    name=STRING_ALWAYS,
    disk=Struct(**members(STRING, "bus pciAddress"), readonly=BOOL),
    lun=Struct(bus=STRING, **members(BOOL, "readonly reservation")),
    cdrom=Struct(**members(STRING, "bus tray"), readonly=BOOL_POINTER),
    bootOrder=UINT64_POINTER,
    blockSize=BLOCK_SIZE,
    **members(STRING, "serial cache io tag"),
    **members(BOOL_POINTER, "dedicatedIOThread shareable changedBlockTracking"),
    errorPolicy=STRING_POINTER,
)
_INTERFACE: Final = Struct(
    name=STRING_ALWAYS,
    **members(STRING, "model macAddress pciAddress tag state"),
    **members(EMPTY, "bridge slirp masquerade sriov macvtap passt passtBinding"),
    binding=Struct(name=STRING_ALWAYS),
    ports=List(Struct(**members(STRING, "name protocol"), port=INT32_ALWAYS)),
    portRanges=List(Struct(protocol=STRING_ALWAYS, **members(INT32_ALWAYS, "start end"))),
    bootOrder=UINT64_POINTER,
    dhcpOptions=Struct(
        **members(STRING, "bootFileName tftpServerName"),
        ntpServers=STRINGS,
        privateOptions=List(Struct(option=INT64_ALWAYS, value=STRING_ALWAYS)),
    ),
    acpiIndex=INT64,
)
VIRTUAL_GPU_OPTIONS: Final = Struct(display=Struct(enabled=BOOL_POINTER, ramFB=FEATURE_STATE))
_HOST_DEVICE: Final = {"name": STRING_ALWAYS, **members(STRING, "deviceName claimName requestName tag")}
HOST_DEVICE: Final = Struct(**_HOST_DEVICE)
GPU: Final = Struct(**_HOST_DEVICE, virtualGPUOptions=VIRTUAL_GPU_OPTIONS)
TPM: Final = Struct(**members(BOOL_POINTER, "enabled persistent"))
_ACTION: Final = Struct(action=STRING)

DEVICES: Final = Struct(
    disableHotplug=BOOL,
    **members(
        BOOL_POINTER,
        "useVirtioTransitional autoattachPodInterface autoattachGraphicsDevice autoattachSerialConsole autoattachVSOCK "
        "autoattachMemBalloon autoattachInputDevice logSerialConsole blockMultiQueue networkInterfaceMultiqueue",
    ),
    disks=List(_DISK, MAX_DEVICES),
    watchdog=Struct(name=STRING_ALWAYS, **members(_ACTION, "i6300esb diag288")),
    interfaces=List(_INTERFACE, MAX_DEVICES),
    inputs=List(Struct(bus=STRING, **members(STRING_ALWAYS, "type name"))),
    **members(EMPTY, "rng downwardMetrics clientPassthrough"),
    gpus=List(GPU),
    panicDevices=List(Struct(model=STRING_POINTER)),
    filesystems=List(Struct(name=STRING_ALWAYS, virtiofs=OrNull(EMPTY))),
    hostDevices=List(HOST_DEVICE),
    sound=Struct(name=STRING_ALWAYS, model=STRING),
    tpm=TPM,
    video=Struct(type=STRING),
)

_LOCAL_REFERENCE: Final = Struct(name=STRING)
_CLOUD_INIT: Final = Struct(
    **members(_LOCAL_REFERENCE, "secretRef networkDataSecretRef"),
    **members(STRING, "userDataBase64 userData networkDataBase64 networkData"),
)
_CLAIM: Final = Struct(claimName=STRING_ALWAYS, **members(BOOL, "readOnly hotpluggable"))
VOLUME: Final = Struct(
    name=STRING_ALWAYS,
    hostDisk=Struct(**members(STRING_ALWAYS, "path type"), capacity=QUANTITY_ALWAYS, shared=BOOL_POINTER),
    **members(_CLAIM, "persistentVolumeClaim memoryDump"),
    **members(_CLOUD_INIT, "cloudInitNoCloud cloudInitConfigDrive"),
    sysprep=Struct(**members(_LOCAL_REFERENCE, "secret configMap")),
    containerDisk=Struct(image=STRING_ALWAYS, **members(STRING, "imagePullSecret path imagePullPolicy")),
    ephemeral=Struct(persistentVolumeClaim=Struct(claimName=STRING_ALWAYS, readOnly=BOOL)),
    emptyDisk=Struct(capacity=QUANTITY_ALWAYS),
    dataVolume=Struct(name=STRING_ALWAYS, hotpluggable=BOOL),
    configMap=Struct(**members(STRING, "name volumeLabel"), optional=BOOL_POINTER),
    secret=Struct(**members(STRING, "secretName volumeLabel"), optional=BOOL_POINTER),
    downwardAPI=Struct(
        fields=List(
            Struct(
                path=STRING_ALWAYS,
                fieldRef=Struct(apiVersion=STRING, fieldPath=STRING_ALWAYS),
                resourceFieldRef=Struct(containerName=STRING, resource=STRING_ALWAYS, divisor=QUANTITY_ALWAYS),
                mode=INT32_POINTER,
            )
        ),
        volumeLabel=STRING,
    ),
    serviceAccount=Struct(serviceAccountName=STRING),
    downwardMetrics=EMPTY,
    containerPath=Struct(path=STRING_ALWAYS, readOnly=BOOL_POINTER),
)
UTILITY_VOLUME: Final = Struct(**members(STRING_ALWAYS, "name claimName"), readOnly=BOOL, type=STRING_POINTER)
NETWORK: Final = Struct(
    name=STRING_ALWAYS,
    pod=Struct(**members(STRING, "vmNetworkCIDR vmIPv6NetworkCIDR")),
    multus=Struct(networkName=STRING_ALWAYS, default=BOOL),
    resourceClaim=Struct(**members(STRING, "claimName requestName")),
)

NUMA: Final = Struct(guestMappingPassthrough=EMPTY)
REALTIME: Final = Struct(mask=STRING)
HUGEPAGES: Final = Struct(pageSize=STRING)
IO_THREADS: Final = Struct(supplementalPoolThreadCount=UINT32_POINTER)
LAUNCH_SECURITY: Final = Struct(
    sev=Struct(policy=Struct(encryptedState=BOOL_POINTER), attestation=EMPTY, **members(STRING, "session dhCert")),
    **members(EMPTY, "snp tdx"),
)
CPU_FEATURES: Final = List(Struct(name=STRING_ALWAYS, policy=STRING))
CPU: Final = Struct(
    **members(UINT32, "cores sockets maxSockets threads"),
    model=STRING,
    features=CPU_FEATURES,
    **members(BOOL, "dedicatedCpuPlacement isolateEmulatorThread"),
    numa=NUMA,
    realtime=REALTIME,
)
MEMORY: Final = Struct(
    hugepages=HUGEPAGES,
    **members(QUANTITY_COMPUTED, "guest maxGuest"),
    reservedOverhead=Struct(addedOverhead=QUANTITY, memLock=STRING_POINTER),
)
EFI: Final = Struct(**members(BOOL_POINTER, "secureBoot persistent"))
_FIRMWARE: Final = Struct(
    **members(STRING, "uuid serial"),
    bootloader=Struct(bios=Struct(useSerial=BOOL_POINTER), efi=EFI),
    kernelBoot=Struct(
        kernelArgs=STRING,
        container=Struct(
            image=STRING_ALWAYS, **members(STRING, "imagePullSecret imagePullPolicy kernelPath initrdPath")
        ),
    ),
    acpi=Struct(**members(STRING, "slicNameRef msdmNameRef")),
)
CLOCK_OFFSET: Final[dict[str, Shape]] = {"utc": Struct(offsetSeconds=INT64_POINTER), "timezone": STRING_POINTER}
TIMER: Final = Struct(
    **members(Struct(tickPolicy=STRING, present=BOOL_POINTER), "hpet pit"),
    **members(Struct(present=BOOL_POINTER), "kvm hyperv"),
    rtc=Struct(**members(STRING, "tickPolicy track"), present=BOOL_POINTER),
)
APIC: Final = Struct(enabled=BOOL_POINTER, endOfInterrupt=BOOL)
KVM: Final = Struct(hidden=BOOL)
HYPERV: Final = Struct(
    **members(FEATURE_STATE, "relaxed vapic vpindex runtime synic reset frequencies reenlightenment ipi evmcs"),
    spinlocks=Struct(enabled=BOOL_POINTER, spinlocks=UINT32_POINTER),
    synictimer=Struct(enabled=BOOL_POINTER, direct=FEATURE_STATE),
    vendorid=Struct(enabled=BOOL_POINTER, vendorid=STRING),
    tlbflush=Struct(enabled=BOOL_POINTER, **members(FEATURE_STATE, "direct extended")),
)
_FEATURES: Final = Struct(
    acpi=Value(FEATURE_STATE, left_out=True),
    apic=APIC,
    hyperv=HYPERV,
    kvm=KVM,
    **members(FEATURE_STATE, "hypervPassthrough smm pvspinlock"),
)
_RESOURCES: Final = Struct(**members(Map(QUANTITY_COMPUTED), "requests limits"), overcommitGuestOverhead=BOOL)

DOMAIN: Final = Struct(
    resources=Value(_RESOURCES, left_out=True),
    cpu=CPU,
    memory=MEMORY,
    machine=Struct(type=STRING_ALWAYS),
    firmware=_FIRMWARE,
    clock=Struct(**CLOCK_OFFSET, timer=TIMER),
    features=_FEATURES,
    devices=Value(DEVICES),
    ioThreads=IO_THREADS,
    chassis=Struct(**members(STRING, "manufacturer version serial asset sku")),
    launchSecurity=LAUNCH_SECURITY,
    **members(STRING_POINTER, "ioThreadsPolicy rebootPolicy"),
)

_SECRET: Final = Value(Struct(secret=Struct(secretName=STRING_ALWAYS)))
_AGENT_USERS: Final = Struct(users=OrNull(STRINGS))
_ACCESS_CREDENTIAL: Final = Struct(
    sshPublicKey=Struct(
        source=_SECRET,
        propagationMethod=Value(Struct(**members(EMPTY, "configDrive noCloud"), qemuGuestAgent=_AGENT_USERS)),
    ),
    userPassword=Struct(source=_SECRET, propagationMethod=Value(Struct(qemuGuestAgent=EMPTY))),
)
VMI_SPEC: Final = Struct(
    **members(STRING, "priorityClassName schedulerName hostname subdomain dnsPolicy architecture serviceAccountName"),
    domain=Value(DOMAIN),
    nodeSelector=STRING_MAP,
    affinity=AFFINITY,
    tolerations=List(TOLERATION),
    topologySpreadConstraints=List(TOPOLOGY_SPREAD),
    **members(STRING_POINTER, "evictionStrategy startStrategy"),
    terminationGracePeriodSeconds=INT64_POINTER,
    volumes=List(VOLUME, MAX_DEVICES),
    **members(PROBE, "livenessProbe readinessProbe"),
    networks=List(NETWORK, MAX_DEVICES),
    dnsConfig=DNS_CONFIG,
    accessCredentials=List(_ACCESS_CREDENTIAL, MAX_DEVICES),
    resourceClaims=List(
        Struct(name=STRING_ALWAYS, **members(STRING_POINTER, "resourceClaimName resourceClaimTemplateName"))
    ),
    utilityVolumes=List(UTILITY_VOLUME, MAX_DEVICES),
)


class _StatusShape(Value):
    """A status: its own fields by their shapes, everything else copied."""

    exact: Any = NEVER

    def __init__(self, **fields: Shape) -> None:
        super().__init__(Struct(**fields))

    def with_fields(self, fields: Mapping[str, Shape]) -> _StatusShape:
        return _StatusShape(**fields)

    def share(self, value: object, live: bool) -> dict[str, object]:
        return self.take(value, live)

    def take(self, value: object, live: bool, *, shared: bool = False) -> dict[str, object]:
        taken = super().take(value, live, shared=shared)
        assert isinstance(value, dict)
        if not value:
            return taken
        rest = {key: item for key, item in value.items() if key not in self.fields}
        return {key: item for key, item in FREE.take(rest, live).items() if item not in ("", 0, [], {})} | taken


_CONDITIONS: Final = List(
    Struct(
        **members(STRING_ALWAYS, "type status"),
        **members(OrNull(STRING_POINTER), "lastProbeTime lastTransitionTime"),
        **members(STRING, "reason message"),
    )
)
VMI: Final = Struct(
    **TYPE,
    metadata=Value(METADATA),
    spec=Value(VMI_SPEC),
    status=_StatusShape(
        conditions=_CONDITIONS,
        guestOSInfo=_StatusShape(),
        memory=Struct(**members(QUANTITY, "guestAtBoot guestCurrent guestRequested memoryOverhead")),
        runtimeUser=UINT64_ALWAYS,
    ),
)

_REFERENCE: Final = {**members(STRING, "name kind inferFromVolume"), "inferFromVolumeFailurePolicy": STRING_POINTER}
MATCHER: Final = Struct(**_REFERENCE, revisionName=STRING)
STATUS_REF: Final = Struct(**_REFERENCE, controllerRevisionRef=Struct(name=STRING))
_OBJECT: Final[dict[str, Shape]] = {"apiGroup": OrNull(STRING_POINTER), **members(STRING_ALWAYS, "kind name")}
_CLAIM_SPEC: Final[dict[str, Shape]] = {
    "accessModes": STRINGS,
    "selector": LABEL_SELECTOR,
    "resources": Value(Struct(**members(Map(QUANTITY), "requests limits"))),
    "volumeName": STRING,
    **members(STRING_POINTER, "storageClassName volumeMode"),
    "dataSource": Struct(**_OBJECT),
    "dataSourceRef": Struct(**_OBJECT, namespace=STRING_POINTER),
}
_FETCHED: Final = {"url": STRING_ALWAYS, "secretRef": STRING}
_CERTIFIED: Final = {**_FETCHED, "certConfigMap": STRING}
_SOURCE: Final = Struct(
    http=Struct(**_CERTIFIED, **members(STRINGS, "extraHeaders secretExtraHeaders")),
    s3=Struct(**_CERTIFIED),
    gcs=Struct(**_FETCHED),
    registry=Struct(
        **members(STRING_POINTER, "url imageStream pullMethod secretRef certConfigMap"),
        platform=Struct(architecture=STRING),
    ),
    imageio=Struct(**_CERTIFIED, diskId=STRING_ALWAYS, insecureSkipVerify=BOOL_POINTER),
    vddk=Struct(**members(STRING, "url uuid backingFile thumbprint secretRef initImageURL extraArgs")),
    **members(Struct(**members(STRING_ALWAYS, "namespace name")), "pvc snapshot"),
    **members(EMPTY, "upload blank"),
)
DATA_VOLUME_SPEC: Final = Struct(
    source=_SOURCE,
    sourceRef=Struct(**members(STRING_ALWAYS, "kind name"), namespace=STRING_POINTER),
    pvc=Struct(**_CLAIM_SPEC, volumeAttributesClassName=STRING_POINTER),
    storage=Struct(**_CLAIM_SPEC),
    **members(STRING, "priorityClassName contentType"),
    checkpoints=List(Struct(**members(STRING_ALWAYS, "previous current"))),
    finalCheckpoint=BOOL,
    preallocation=BOOL_POINTER,
)
_DATA_VOLUME_TEMPLATE: Final = Struct(**TYPE, metadata=Value(METADATA), spec=Value(DATA_VOLUME_SPEC), status=EMPTY)
VM: Final = Struct(
    **TYPE,
    metadata=Value(METADATA),
    spec=Value(
        Struct(
            running=BOOL_POINTER,
            **members(MATCHER, "instancetype preference"),
            template=Struct(metadata=Value(METADATA), spec=Value(VMI_SPEC)),
            dataVolumeTemplates=List(_DATA_VOLUME_TEMPLATE, MAX_DEVICES),
            **members(STRING_POINTER, "runStrategy updateVolumesStrategy"),
        )
    ),
    status=_StatusShape(conditions=_CONDITIONS, **members(STATUS_REF, "instancetypeRef preferenceRef")),
)

_INSTANCETYPE_SPEC: Final = Struct(
    nodeSelector=STRING_MAP,
    schedulerName=STRING,
    cpu=Value(
        Struct(
            guest=UINT32_ALWAYS,
            model=STRING_POINTER,
            **members(BOOL_POINTER, "dedicatedCPUPlacement isolateEmulatorThread"),
            numa=NUMA,
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
_PREFERRED_DEVICES: Final = Struct(
    **members(
        BOOL_POINTER,
        "preferredAutoattachGraphicsDevice preferredAutoattachMemBalloon preferredAutoattachPodInterface "
        "preferredAutoattachSerialConsole preferredAutoattachInputDevice preferredDisableHotplug "
        "preferredUseVirtioTransitional preferredDiskDedicatedIoThread preferredBlockMultiQueue "
        "preferredNetworkInterfaceMultiQueue",
    ),
    **members(
        STRING,
        "preferredSoundModel preferredInputBus preferredInputType preferredDiskBus preferredLunBus preferredCdromBus "
        "preferredDiskCache preferredDiskIO preferredInterfaceModel",
    ),
    preferredVirtualGPUOptions=VIRTUAL_GPU_OPTIONS,
    preferredDiskBlockSize=BLOCK_SIZE,
    **members(EMPTY, "preferredInterfaceMasquerade preferredRng"),
    preferredTPM=TPM,
    **members(STRING_POINTER, "preferredPanicDeviceModel preferredVideoType"),
)
_PREFERENCE_SPEC: Final = Struct(
    clock=Struct(preferredClockOffset=Struct(**CLOCK_OFFSET), preferredTimer=TIMER),
    cpu=Struct(
        preferredCPUTopology=STRING_POINTER,
        spreadOptions=Struct(across=STRING_POINTER, ratio=UINT32_POINTER),
        preferredCPUFeatures=CPU_FEATURES,
    ),
    devices=_PREFERRED_DEVICES,
    features=Struct(
        **members(FEATURE_STATE, "preferredAcpi preferredPvspinlock preferredSmm"),
        preferredApic=APIC,
        preferredHyperv=HYPERV,
        preferredKvm=KVM,
    ),
    firmware=Struct(
        **members(BOOL_POINTER, "preferredUseBios preferredUseBiosSerial preferredUseEfi preferredUseSecureBoot"),
        preferredEfi=EFI,
    ),
    machine=Struct(preferredMachineType=STRING),
    volumes=Struct(preferredStorageClassName=STRING),
    **members(STRING_POINTER, "preferredSubdomain preferredArchitecture"),
    preferredTerminationGracePeriodSeconds=INT64_POINTER,
    requirements=Struct(
        cpu=Struct(guest=UINT32_ALWAYS), memory=Struct(guest=QUANTITY_ALWAYS), architecture=STRING_POINTER
    ),
    annotations=STRING_MAP,
    preferSpreadSocketToCoreRatio=UINT32,
    preferredLaunchSecurity=LAUNCH_SECURITY,
)
INSTANCETYPE: Final = Struct(**TYPE, metadata=Value(METADATA), spec=Value(_INSTANCETYPE_SPEC))
PREFERENCE: Final = Struct(**TYPE, metadata=Value(METADATA), spec=Value(_PREFERENCE_SPEC))
