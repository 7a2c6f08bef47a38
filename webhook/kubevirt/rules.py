"""KubeVirt's rules as one release has them: what it does, and the types that it does it to."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final

from webhook.errors import InputError
from webhook.kubevirt.go_json.structs import (
    STRING_POINTER,
    UINT64_ALWAYS,
    Json,
    Shape,
    Struct,
    check_size,
    decode,
    replace_fields,
    share,
)
from webhook.kubevirt.releases import fields
from webhook.kubevirt.releases import release as releases
from webhook.kubevirt.releases.capabilities import OMITS_EMPTY_CLAIMS, OMITS_ZERO_BLOCK_SIZES, Capability
from webhook.kubevirt.releases.release import Release
from webhook.kubevirt.types import core, instancetypes

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
        self.vmi: Final = _change_fields(core.VMI, formats | _unknown(release, fields.MACHINE))
        self.vm: Final = _change_fields(core.VM, template | _unknown(release, fields.VIRTUAL_MACHINE))
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


class Rules:
    """What a rule has to know of the release whose rule it is; made once for each release.

    Attributes:
        release: the release.
        types: the types of the objects that it reads and writes.
    """

    __slots__ = ("_capabilities", "release", "types")

    def __init__(self, release: Release) -> None:
        self.release: Final = release
        self.types: Final = Types(release)
        self._capabilities: Final = release.capabilities

    def has(self, capability: Capability) -> bool:
        """Whether the release has a capability."""
        return capability in self._capabilities


@lru_cache(maxsize=64)
def rules_of(release: Release) -> Rules:
    """The rules of a release."""
    return Rules(release)


NEWEST: Final = rules_of(releases.NEWEST)


def read_vm(vm: Any, rules: Rules = NEWEST) -> Json:
    """A VM as KubeVirt reads it, with the template that its schema demands.

    Raises:
        InputError: it is malformed.
    """
    return _with_template(decode(rules.types.vm, vm))


def share_vm(vm: Any, rules: Rules) -> Json:
    """A VM as KubeVirt writes what it has read, which shares with the given one whatever stays as it is.

    For those who change nothing of it.

    Raises:
        InputError: it is malformed.
    """
    check_size(vm)
    return _with_template(share(rules.types.vm, vm))


def _with_template(vm: Json) -> Json:
    if "template" not in vm["spec"]:
        raise InputError("is missing", "spec.template")
    return vm
