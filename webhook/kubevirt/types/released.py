"""The types of KubeVirt's API as one release has them."""

from __future__ import annotations

from typing import Final

from webhook.kubevirt.go_json.pruning import replace_fields
from webhook.kubevirt.go_json.structs import STRING_POINTER, UINT64_ALWAYS, Shape, Struct
from webhook.kubevirt.releases import fields
from webhook.kubevirt.releases.capabilities import OMITS_EMPTY_CLAIMS, OMITS_ZERO_BLOCK_SIZES
from webhook.kubevirt.releases.release import Release
from webhook.kubevirt.types import instancetypes, machines

_DEVICES: Final = ("gpus", "hostDevices")
_CLAIM: Final = ("claimName", "requestName")
_BLOCK_SIZE: Final = Struct(logical=UINT64_ALWAYS, physical=UINT64_ALWAYS)

_Changes = dict[str, Shape | None]


class Types:
    """The types of one release.

    Args:
        release: the release, by whose capabilities the fields differ.

    Attributes:
        vm: the type of a whole VirtualMachine.
        vmi: the type of a whole VirtualMachineInstance.
        instancetype: the type of whole instancetypes of both scopes.
        preference: the type of whole preferences of both scopes.
        by_kind: the types of the four kinds of instancetypes and preferences.
    """

    __slots__ = ("by_kind", "instancetype", "preference", "vm", "vmi")

    def __init__(self, release: Release) -> None:
        formats = _formats(release, fields.MACHINE)
        template = {f"template.spec.{path}": change for path, change in formats.items()}
        self.vmi: Final = _change_fields(machines.VMI, formats | _unknown(release, fields.MACHINE))
        self.vm: Final = _change_fields(machines.VM, template | _unknown(release, fields.VIRTUAL_MACHINE))
        self.instancetype: Final = _change_fields(
            instancetypes.INSTANCETYPE,
            _formats(release, fields.INSTANCETYPE)
            | _unknown(release, fields.INSTANCETYPE)
            | _unknown(release, fields.CLUSTER_INSTANCETYPE),
        )
        self.preference: Final = _change_fields(
            instancetypes.PREFERENCE,
            _formats(release, fields.PREFERENCE)
            | _unknown(release, fields.PREFERENCE)
            | _unknown(release, fields.CLUSTER_PREFERENCE),
        )
        self.by_kind: Final = {
            fields.INSTANCETYPE: self.instancetype,
            fields.CLUSTER_INSTANCETYPE: self.instancetype,
            fields.PREFERENCE: self.preference,
            fields.CLUSTER_PREFERENCE: self.preference,
        }


def _change_fields(shape: Struct, changes: _Changes) -> Struct:
    return replace_fields(shape, {f"spec.{path}": change for path, change in changes.items()})


def _unknown(release: Release, kind: str) -> _Changes:
    return dict.fromkeys(release.unknown_fields(kind))


def _formats(release: Release, kind: str) -> _Changes:
    return _block_sizes(release).get(kind, {}) | _claims(release).get(kind, {})


def _block_sizes(release: Release) -> dict[str, _Changes]:
    if release.has(OMITS_ZERO_BLOCK_SIZES):
        return {}
    return {
        fields.MACHINE: {"domain.devices.disks.blockSize.custom": _BLOCK_SIZE},
        fields.PREFERENCE: {"devices.preferredDiskBlockSize.custom": _BLOCK_SIZE},
    }


def _claims(release: Release) -> dict[str, _Changes]:
    if release.has(OMITS_EMPTY_CLAIMS):
        return {}
    paths = [f"{device}.{name}" for device in _DEVICES for name in _CLAIM]
    return {
        fields.MACHINE: {f"domain.devices.{path}": STRING_POINTER for path in paths},
        fields.INSTANCETYPE: dict.fromkeys(paths, STRING_POINTER),
    }
