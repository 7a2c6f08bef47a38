"""VirtualMachine and VirtualMachineInstance with all that they hold (kubevirt.io/api/core/v1)."""

from __future__ import annotations

from typing import Any, Final

from webhook.kubevirt.go_json.scalars import NEVER
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
)

STRINGS: Final = List(STRING_POINTER)
STRING_MAP: Final = Map(STRING_POINTER)

METADATA: Final = Struct(
    name=STRING,
    generateName=STRING,
    namespace=STRING,
    selfLink=STRING,
    uid=STRING,
    resourceVersion=STRING,
    generation=INT64,
    creationTimestamp=STRING,
    deletionTimestamp=STRING,
    deletionGracePeriodSeconds=INT64_POINTER,
    labels=STRING_MAP,
    annotations=STRING_MAP,
    ownerReferences=List(
        Struct(
            apiVersion=STRING_ALWAYS,
            kind=STRING_ALWAYS,
            name=STRING_ALWAYS,
            uid=STRING_ALWAYS,
            controller=BOOL_POINTER,
            blockOwnerDeletion=BOOL_POINTER,
        )
    ),
    finalizers=STRINGS,
    managedFields=List(FREE),
)

_EXPRESSIONS: Final = List(Struct(key=STRING_ALWAYS, operator=STRING_ALWAYS, values=STRINGS))
LABEL_SELECTOR: Final = Struct(matchLabels=STRING_MAP, matchExpressions=_EXPRESSIONS)
_NODE_TERM: Final = Struct(matchExpressions=_EXPRESSIONS, matchFields=_EXPRESSIONS)
_POD_TERM: Final = Struct(
    labelSelector=LABEL_SELECTOR,
    namespaces=STRINGS,
    topologyKey=STRING_ALWAYS,
    namespaceSelector=LABEL_SELECTOR,
    matchLabelKeys=STRINGS,
    mismatchLabelKeys=STRINGS,
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
    podAffinity=_POD_AFFINITY,
    podAntiAffinity=_POD_AFFINITY,
)
TOLERATION: Final = Struct(key=STRING, operator=STRING, value=STRING, effect=STRING, tolerationSeconds=INT64_POINTER)
TOPOLOGY_SPREAD: Final = Struct(
    maxSkew=INT32_ALWAYS,
    topologyKey=STRING_ALWAYS,
    whenUnsatisfiable=STRING_ALWAYS,
    labelSelector=LABEL_SELECTOR,
    minDomains=INT32_POINTER,
    nodeAffinityPolicy=STRING_POINTER,
    nodeTaintsPolicy=STRING_POINTER,
    matchLabelKeys=STRINGS,
)
DNS_CONFIG: Final = Struct(
    nameservers=STRINGS, searches=STRINGS, options=List(Struct(name=STRING, value=STRING_POINTER))
)
PROBE: Final = Struct(
    exec=Struct(command=STRINGS),
    guestAgentPing=EMPTY,
    httpGet=Struct(
        path=STRING,
        port=INT_OR_STRING_ALWAYS,
        host=STRING,
        scheme=STRING,
        httpHeaders=List(Struct(name=STRING_ALWAYS, value=STRING_ALWAYS)),
    ),
    tcpSocket=Struct(port=INT_OR_STRING_ALWAYS, host=STRING),
    initialDelaySeconds=INT32,
    timeoutSeconds=INT32,
    periodSeconds=INT32,
    successThreshold=INT32,
    failureThreshold=INT32,
)


# `maxItems` of KubeVirt's CRDs.
MAX_DEVICES: Final = 256

FEATURE_STATE: Final = Struct(enabled=BOOL_POINTER)

BLOCK_SIZE: Final = Struct(
    custom=Struct(logical=UINT64, physical=UINT64, discardGranularity=UINT64_POINTER), matchVolume=FEATURE_STATE
)
_DISK: Final = Struct(
    name=STRING_ALWAYS,
    disk=Struct(bus=STRING, readonly=BOOL, pciAddress=STRING),
    lun=Struct(bus=STRING, readonly=BOOL, reservation=BOOL),
    cdrom=Struct(bus=STRING, readonly=BOOL_POINTER, tray=STRING),
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
_INTERFACE: Final = Struct(
    name=STRING_ALWAYS,
    model=STRING,
    bridge=EMPTY,
    slirp=EMPTY,
    masquerade=EMPTY,
    sriov=EMPTY,
    macvtap=EMPTY,
    passt=EMPTY,
    passtBinding=EMPTY,
    binding=Struct(name=STRING_ALWAYS),
    ports=List(Struct(name=STRING, protocol=STRING, port=INT32_ALWAYS)),
    portRanges=List(Struct(protocol=STRING_ALWAYS, start=INT32_ALWAYS, end=INT32_ALWAYS)),
    macAddress=STRING,
    bootOrder=UINT64_POINTER,
    pciAddress=STRING,
    dhcpOptions=Struct(
        bootFileName=STRING,
        tftpServerName=STRING,
        ntpServers=STRINGS,
        privateOptions=List(Struct(option=INT64_ALWAYS, value=STRING_ALWAYS)),
    ),
    tag=STRING,
    acpiIndex=INT64,
    state=STRING,
)
VIRTUAL_GPU_OPTIONS: Final = Struct(display=Struct(enabled=BOOL_POINTER, ramFB=FEATURE_STATE))
GPU: Final = Struct(
    name=STRING_ALWAYS,
    deviceName=STRING,
    claimName=STRING,
    requestName=STRING,
    virtualGPUOptions=VIRTUAL_GPU_OPTIONS,
    tag=STRING,
)
HOST_DEVICE: Final = Struct(name=STRING_ALWAYS, deviceName=STRING, claimName=STRING, requestName=STRING, tag=STRING)
TPM: Final = Struct(enabled=BOOL_POINTER, persistent=BOOL_POINTER)
_ACTION: Final = Struct(action=STRING)

DEVICES: Final = Struct(
    useVirtioTransitional=BOOL_POINTER,
    disableHotplug=BOOL,
    disks=List(_DISK, MAX_DEVICES),
    watchdog=Struct(name=STRING_ALWAYS, i6300esb=_ACTION, diag288=_ACTION),
    interfaces=List(_INTERFACE, MAX_DEVICES),
    inputs=List(Struct(bus=STRING, type=STRING_ALWAYS, name=STRING_ALWAYS)),
    autoattachPodInterface=BOOL_POINTER,
    autoattachGraphicsDevice=BOOL_POINTER,
    autoattachSerialConsole=BOOL_POINTER,
    logSerialConsole=BOOL_POINTER,
    autoattachMemBalloon=BOOL_POINTER,
    autoattachInputDevice=BOOL_POINTER,
    autoattachVSOCK=BOOL_POINTER,
    rng=EMPTY,
    blockMultiQueue=BOOL_POINTER,
    networkInterfaceMultiqueue=BOOL_POINTER,
    gpus=List(GPU),
    downwardMetrics=EMPTY,
    panicDevices=List(Struct(model=STRING_POINTER)),
    filesystems=List(Struct(name=STRING_ALWAYS, virtiofs=OrNull(EMPTY))),
    hostDevices=List(HOST_DEVICE),
    clientPassthrough=EMPTY,
    sound=Struct(name=STRING_ALWAYS, model=STRING),
    tpm=TPM,
    video=Struct(type=STRING),
)


_LOCAL_REFERENCE: Final = Struct(name=STRING)
_CLOUD_INIT: Final = Struct(
    secretRef=_LOCAL_REFERENCE,
    userDataBase64=STRING,
    userData=STRING,
    networkDataSecretRef=_LOCAL_REFERENCE,
    networkDataBase64=STRING,
    networkData=STRING,
)
_CLAIM: Final = Struct(claimName=STRING_ALWAYS, readOnly=BOOL, hotpluggable=BOOL)

VOLUME: Final = Struct(
    name=STRING_ALWAYS,
    hostDisk=Struct(path=STRING_ALWAYS, type=STRING_ALWAYS, capacity=QUANTITY_ALWAYS, shared=BOOL_POINTER),
    persistentVolumeClaim=_CLAIM,
    cloudInitNoCloud=_CLOUD_INIT,
    cloudInitConfigDrive=_CLOUD_INIT,
    sysprep=Struct(secret=_LOCAL_REFERENCE, configMap=_LOCAL_REFERENCE),
    containerDisk=Struct(image=STRING_ALWAYS, imagePullSecret=STRING, path=STRING, imagePullPolicy=STRING),
    ephemeral=Struct(persistentVolumeClaim=Struct(claimName=STRING_ALWAYS, readOnly=BOOL)),
    emptyDisk=Struct(capacity=QUANTITY_ALWAYS),
    dataVolume=Struct(name=STRING_ALWAYS, hotpluggable=BOOL),
    configMap=Struct(name=STRING, optional=BOOL_POINTER, volumeLabel=STRING),
    secret=Struct(secretName=STRING, optional=BOOL_POINTER, volumeLabel=STRING),
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
    memoryDump=_CLAIM,
    containerPath=Struct(path=STRING_ALWAYS, readOnly=BOOL_POINTER),
)
UTILITY_VOLUME: Final = Struct(name=STRING_ALWAYS, claimName=STRING_ALWAYS, readOnly=BOOL, type=STRING_POINTER)
NETWORK: Final = Struct(
    name=STRING_ALWAYS,
    pod=Struct(vmNetworkCIDR=STRING, vmIPv6NetworkCIDR=STRING),
    multus=Struct(networkName=STRING_ALWAYS, default=BOOL),
    resourceClaim=Struct(claimName=STRING, requestName=STRING),
)


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


TYPE: Final[dict[str, Shape]] = {"apiVersion": STRING, "kind": STRING}

_SECRET: Final = Value(Struct(secret=Struct(secretName=STRING_ALWAYS)))
_AGENT_USERS: Final = Struct(users=OrNull(STRINGS))
_ACCESS_CREDENTIAL: Final = Struct(
    sshPublicKey=Struct(
        source=_SECRET, propagationMethod=Value(Struct(configDrive=EMPTY, noCloud=EMPTY, qemuGuestAgent=_AGENT_USERS))
    ),
    userPassword=Struct(source=_SECRET, propagationMethod=Value(Struct(qemuGuestAgent=EMPTY))),
)
VMI_SPEC: Final = Struct(
    priorityClassName=STRING,
    domain=Value(DOMAIN),
    nodeSelector=STRING_MAP,
    affinity=AFFINITY,
    schedulerName=STRING,
    tolerations=List(TOLERATION),
    topologySpreadConstraints=List(TOPOLOGY_SPREAD),
    evictionStrategy=STRING_POINTER,
    startStrategy=STRING_POINTER,
    terminationGracePeriodSeconds=INT64_POINTER,
    volumes=List(VOLUME, MAX_DEVICES),
    livenessProbe=PROBE,
    readinessProbe=PROBE,
    hostname=STRING,
    subdomain=STRING,
    networks=List(NETWORK, MAX_DEVICES),
    dnsPolicy=STRING,
    dnsConfig=DNS_CONFIG,
    accessCredentials=List(_ACCESS_CREDENTIAL, MAX_DEVICES),
    architecture=STRING,
    resourceClaims=List(
        Struct(name=STRING_ALWAYS, resourceClaimName=STRING_POINTER, resourceClaimTemplateName=STRING_POINTER)
    ),
    utilityVolumes=List(UTILITY_VOLUME, MAX_DEVICES),
    serviceAccountName=STRING,
)


class _StatusShape(Struct):
    """A status: its own fields by their shapes, everything else copied."""

    exact: Any = NEVER

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
        type=STRING_ALWAYS,
        status=STRING_ALWAYS,
        lastProbeTime=OrNull(STRING_POINTER),
        lastTransitionTime=OrNull(STRING_POINTER),
        reason=STRING,
        message=STRING,
    )
)
VMI: Final = Struct(
    **TYPE,
    metadata=Value(METADATA),
    spec=Value(VMI_SPEC),
    status=Value(
        _StatusShape(
            conditions=_CONDITIONS,
            guestOSInfo=Value(_StatusShape()),
            memory=Struct(
                guestAtBoot=QUANTITY, guestCurrent=QUANTITY, guestRequested=QUANTITY, memoryOverhead=QUANTITY
            ),
            runtimeUser=UINT64_ALWAYS,
        )
    ),
)

_REFERENCE: Final[dict[str, Shape]] = {
    "name": STRING,
    "kind": STRING,
    "inferFromVolume": STRING,
    "inferFromVolumeFailurePolicy": STRING_POINTER,
}
MATCHER: Final = Struct(**_REFERENCE, revisionName=STRING)
STATUS_REF: Final = Struct(**_REFERENCE, controllerRevisionRef=Struct(name=STRING))
_CLAIM_RESOURCES: Final = Value(Struct(requests=Map(QUANTITY), limits=Map(QUANTITY)))
_OBJECT: Final[dict[str, Shape]] = {"apiGroup": OrNull(STRING_POINTER), "kind": STRING_ALWAYS, "name": STRING_ALWAYS}
_CLAIM_SPEC: Final[dict[str, Shape]] = {
    "accessModes": STRINGS,
    "selector": LABEL_SELECTOR,
    "resources": _CLAIM_RESOURCES,
    "volumeName": STRING,
    "storageClassName": STRING_POINTER,
    "volumeMode": STRING_POINTER,
    "dataSource": Struct(**_OBJECT),
    "dataSourceRef": Struct(**_OBJECT, namespace=STRING_POINTER),
}
_NAMED: Final = Struct(namespace=STRING_ALWAYS, name=STRING_ALWAYS)
_FETCHED: Final[dict[str, Shape]] = {"url": STRING_ALWAYS, "secretRef": STRING}
_CERTIFIED: Final[dict[str, Shape]] = {**_FETCHED, "certConfigMap": STRING}
_SOURCE: Final = Struct(
    http=Struct(**_CERTIFIED, extraHeaders=STRINGS, secretExtraHeaders=STRINGS),
    s3=Struct(**_CERTIFIED),
    gcs=Struct(**_FETCHED),
    registry=Struct(
        url=STRING_POINTER,
        imageStream=STRING_POINTER,
        pullMethod=STRING_POINTER,
        secretRef=STRING_POINTER,
        certConfigMap=STRING_POINTER,
        platform=Struct(architecture=STRING),
    ),
    pvc=_NAMED,
    upload=EMPTY,
    blank=EMPTY,
    imageio=Struct(**_CERTIFIED, diskId=STRING_ALWAYS, insecureSkipVerify=BOOL_POINTER),
    vddk=Struct(
        url=STRING,
        uuid=STRING,
        backingFile=STRING,
        thumbprint=STRING,
        secretRef=STRING,
        initImageURL=STRING,
        extraArgs=STRING,
    ),
    snapshot=_NAMED,
)
DATA_VOLUME_SPEC: Final = Struct(
    source=_SOURCE,
    sourceRef=Struct(kind=STRING_ALWAYS, namespace=STRING_POINTER, name=STRING_ALWAYS),
    pvc=Struct(**_CLAIM_SPEC, volumeAttributesClassName=STRING_POINTER),
    storage=Struct(**_CLAIM_SPEC),
    priorityClassName=STRING,
    contentType=STRING,
    checkpoints=List(Struct(previous=STRING_ALWAYS, current=STRING_ALWAYS)),
    finalCheckpoint=BOOL,
    preallocation=BOOL_POINTER,
)
VM: Final = Struct(
    **TYPE,
    metadata=Value(METADATA),
    spec=Value(
        Struct(
            running=BOOL_POINTER,
            runStrategy=STRING_POINTER,
            instancetype=MATCHER,
            preference=MATCHER,
            template=Struct(metadata=Value(METADATA), spec=Value(VMI_SPEC)),
            dataVolumeTemplates=List(
                Struct(**TYPE, metadata=Value(METADATA), spec=Value(DATA_VOLUME_SPEC), status=EMPTY), MAX_DEVICES
            ),
            updateVolumesStrategy=STRING_POINTER,
        )
    ),
    status=Value(_StatusShape(conditions=_CONDITIONS, instancetypeRef=STATUS_REF, preferenceRef=STATUS_REF)),
)
