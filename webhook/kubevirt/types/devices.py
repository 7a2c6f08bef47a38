"""The devices of a domain: disks, interfaces, GPUs and the rest (kubevirt.io/api/core/v1, Devices)."""

from __future__ import annotations

from typing import Final

from webhook.kubevirt.go_json.containers import List
from webhook.kubevirt.go_json.structs import (
    BOOL,
    BOOL_POINTER,
    EMPTY,
    INT32_ALWAYS,
    INT64,
    INT64_ALWAYS,
    STRING,
    STRING_ALWAYS,
    STRING_POINTER,
    UINT64,
    UINT64_POINTER,
    OrNull,
    Struct,
)
from webhook.kubevirt.types.core import STRINGS

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
