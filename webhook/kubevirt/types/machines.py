"""VirtualMachine and VirtualMachineInstance (kubevirt.io/api/core/v1)."""

from __future__ import annotations

from typing import Any, Final

from webhook.kubevirt.go_json.containers import FREE, List, Map
from webhook.kubevirt.go_json.exact import NEVER
from webhook.kubevirt.go_json.structs import (
    BOOL,
    BOOL_POINTER,
    EMPTY,
    INT64_POINTER,
    QUANTITY,
    STRING,
    STRING_ALWAYS,
    STRING_POINTER,
    UINT64_ALWAYS,
    OrNull,
    Shape,
    Struct,
    Value,
)
from webhook.kubevirt.types.core import (
    AFFINITY,
    DNS_CONFIG,
    LABEL_SELECTOR,
    METADATA,
    PROBE,
    STRING_MAP,
    STRINGS,
    TOLERATION,
    TOPOLOGY_SPREAD,
)
from webhook.kubevirt.types.devices import MAX_DEVICES
from webhook.kubevirt.types.domain import DOMAIN
from webhook.kubevirt.types.volumes import NETWORK, UTILITY_VOLUME, VOLUME

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
_CLAIM: Final[dict[str, Shape]] = {
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
    pvc=Struct(**_CLAIM, volumeAttributesClassName=STRING_POINTER),
    storage=Struct(**_CLAIM),
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
