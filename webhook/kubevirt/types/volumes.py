"""Volumes and networks of a VMI (kubevirt.io/api/core/v1, Volume, Network)."""

from __future__ import annotations

from typing import Final

from webhook.kubevirt.go_json.containers import List
from webhook.kubevirt.go_json.structs import (
    BOOL,
    BOOL_POINTER,
    EMPTY,
    INT32_POINTER,
    QUANTITY_ALWAYS,
    STRING,
    STRING_ALWAYS,
    STRING_POINTER,
    Struct,
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
