"""KubeVirt's rules as one release has them: what it does, and the types that it does it to."""

from __future__ import annotations

from collections.abc import Mapping
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
    members,
    replace_fields,
    share,
)
from webhook.kubevirt.releases import fields
from webhook.kubevirt.releases import release as releases
from webhook.kubevirt.releases.capabilities import OMITS_EMPTY_CLAIMS, OMITS_ZERO_BLOCK_SIZES
from webhook.kubevirt.releases.release import Release
from webhook.kubevirt.types import core


class Rules:
    """What a rule has to know of the release whose rule it is; made once for each release.

    Attributes:
        release: the release.
        vm, vmi, instancetype, preference: the types of whole objects; the latter two are those of both scopes.
        by_kind: the types of the four kinds of instancetypes and preferences.
        has: whether the release has a capability.
    """

    __slots__ = ("by_kind", "has", "instancetype", "preference", "release", "vm", "vmi")

    def __init__(self, release: Release) -> None:
        self.release: Final = release
        self.has: Final = release.has
        # What the release writes otherwise, by paths below ``spec``, each of which is of one kind alone.
        formats: dict[str, Shape] = {}
        if not release.has(OMITS_ZERO_BLOCK_SIZES):
            paths = "domain.devices.disks.blockSize.custom devices.preferredDiskBlockSize.custom"
            formats |= members(Struct(logical=UINT64_ALWAYS, physical=UINT64_ALWAYS), paths)
        if not release.has(OMITS_EMPTY_CLAIMS):
            for devices in ("gpus", "hostDevices", "domain.devices.gpus", "domain.devices.hostDevices"):
                formats |= members(STRING_POINTER, f"{devices}.claimName {devices}.requestName")
        of_template = {f"template.spec.{path}": shape for path, shape in formats.items()}
        self.vmi: Final = _type_in(release, core.VMI, formats, fields.VMI)
        self.vm: Final = _type_in(release, core.VM, of_template, fields.VIRTUAL_MACHINE)
        instancetypes = (fields.INSTANCETYPE, fields.CLUSTER_INSTANCETYPE)
        preferences = (fields.PREFERENCE, fields.CLUSTER_PREFERENCE)
        self.instancetype: Final = _type_in(release, core.INSTANCETYPE, formats, *instancetypes)
        self.preference: Final = _type_in(release, core.PREFERENCE, formats, *preferences)
        self.by_kind: Final = dict.fromkeys(instancetypes, self.instancetype) | dict.fromkeys(
            preferences, self.preference
        )


def _type_in(release: Release, shape: Struct, formats: Mapping[str, Shape], *kinds: str) -> Struct:
    """A type with the formats of a release, and without the fields that some kinds do not have in it."""
    unknown = dict.fromkeys(path for kind in kinds for path in release.unknown_fields(kind))
    return replace_fields(shape, {f"spec.{path}": change for path, change in {**formats, **unknown}.items()})


@lru_cache(maxsize=64)
def rules_of(release: Release) -> Rules:
    """The rules of a release."""
    return Rules(release)


NEWEST: Final = rules_of(releases.NEWEST)


def read_vm(vm: Any, rules: Rules = NEWEST) -> Json:
    """A VM as KubeVirt reads it, with the template that its schema demands; an `InputError` where it is malformed."""
    return _with_template(decode(rules.vm, vm))


def share_vm(vm: Any, rules: Rules) -> Json:
    """A VM as KubeVirt writes what it has read, sharing with the given one what stays; it is not to be changed.

    Raises:
        InputError: it is malformed.
    """
    check_size(vm)
    return _with_template(share(rules.vm, vm))


def _with_template(vm: Json) -> Json:
    if "template" not in vm["spec"]:
        raise InputError("is missing", "spec.template")
    return vm
