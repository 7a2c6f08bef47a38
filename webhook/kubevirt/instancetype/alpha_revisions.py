"""Instancetypes and preferences of v1alpha1 and v1alpha2, as older ControllerRevisions hold them.

No API server has served these API versions since KubeVirt 1.0. Conversion to v1beta1 copies what has the same name, so
that a shape with the fields of the older type is enough; it writes the zeros of the three fields of the CPU that
v1beta1 has made pointers.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final

import msgspec

from webhook.errors import InputError
from webhook.kubevirt.go_json.structs import (
    BOOL_ALWAYS,
    STRING,
    STRING_ALWAYS,
    Json,
    Shape,
    Struct,
    decode,
    is_known,
    members,
    replace_fields,
)
from webhook.kubevirt.rules import Rules

VERSIONS: Final = ("instancetype.kubevirt.io/v1alpha1", "instancetype.kubevirt.io/v1alpha2")
# What KubeVirt calls an object of which only the spec was kept.
_NAMES: Final = {
    "VirtualMachinePreference": "old-version-of-preference-object",
    "VirtualMachineInstancetype": "old-version-of-instancetype-object",
}
_SPEC_REVISION: Final = frozenset({"apiVersion", "spec"})

# How the types of the older versions differ from v1beta1's, by the path below ``spec``; None: they lack the field.
_INSTANCETYPE: Final[Mapping[str, Shape | None]] = {
    **members(None, "annotations nodeSelector schedulerName cpu.maxSockets memory.maxGuest memory.overcommitPercent"),
    "cpu.model": STRING_ALWAYS,
    **members(BOOL_ALWAYS, "cpu.dedicatedCPUPlacement cpu.isolateEmulatorThread"),
}
_PREFERENCE: Final[Mapping[str, Shape | None]] = {
    **members(
        None,
        "annotations preferSpreadSocketToCoreRatio preferredSubdomain preferredTerminationGracePeriodSeconds "
        "requirements cpu.preferredCPUFeatures cpu.spreadOptions devices.preferredInterfaceMasquerade "
        "devices.preferredPanicDeviceModel firmware.preferredEfi",
    ),
    "cpu.preferredCPUTopology": STRING,
}


@lru_cache(maxsize=64)
def shape_of(kind: str, version: str, rules: Rules) -> Struct:
    """The type of an object of a kind of either scope in an older version, one of `VERSIONS`."""
    is_preference = "Preference" in kind
    changes = dict(_PREFERENCE if is_preference else _INSTANCETYPE)
    if is_preference and version == VERSIONS[0]:
        changes["volumes"] = None
    current = rules.preference if is_preference else rules.instancetype
    return replace_fields(current, {f"spec.{path}": change for path, change in changes.items()})


def read_spec_revision(data: Json, rules: Rules) -> Json | None:
    """The whole object of which the oldest revisions hold the spec alone, of v1alpha1; None where this is not one.

    KubeVirt tries a preference first, and takes neither if a member is unknown.
    """
    if not data.keys() <= _SPEC_REVISION or not isinstance(data.get("spec"), str):
        return None
    try:
        written = base64.b64decode("".join(data["spec"].split()), validate=True)
        spec: Any = msgspec.json.decode(written)
    except (binascii.Error, ValueError, RecursionError):
        return None
    for kind, name in _NAMES.items():
        shape = shape_of(kind, VERSIONS[0], rules)
        whole = {"kind": kind, "metadata": {"name": name}, "spec": spec}
        try:
            if is_known(shape, whole):
                return decode(shape, whole)
        except InputError:
            continue
    return None
