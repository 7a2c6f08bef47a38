"""Instancetypes and preferences of the API versions v1alpha1 and v1alpha2, converted to v1beta1.

No API server has served them since KubeVirt 1.0, but ControllerRevisions from before still hold them. Conversion copies
what has the same name, so that a shape with the fields of the older type is enough; it writes the zeros of the three
fields of the CPU that v1beta1 has made pointers.
"""

from __future__ import annotations

import base64
import binascii
from functools import lru_cache
from typing import Any, Final

import msgspec

from webhook.errors import InputError
from webhook.kubevirt.go_json.pruning import is_known, replace_fields
from webhook.kubevirt.go_json.structs import BOOL_ALWAYS, STRING, STRING_ALWAYS, Json, Shape, Struct, decode
from webhook.kubevirt.types.released import Types

VERSIONS: Final = ("instancetype.kubevirt.io/v1alpha1", "instancetype.kubevirt.io/v1alpha2")
# What KubeVirt calls an object of which only the spec was kept.
_NAMES: Final = {
    "VirtualMachinePreference": "old-version-of-preference-object",
    "VirtualMachineInstancetype": "old-version-of-instancetype-object",
}
_SPEC_REVISION: Final = frozenset({"apiVersion", "spec"})

_INSTANCETYPE: Final[dict[str, Shape | None]] = {
    "annotations": None,
    "nodeSelector": None,
    "schedulerName": None,
    "cpu.maxSockets": None,
    "memory.maxGuest": None,
    "memory.overcommitPercent": None,
    "cpu.model": STRING_ALWAYS,
    "cpu.dedicatedCPUPlacement": BOOL_ALWAYS,
    "cpu.isolateEmulatorThread": BOOL_ALWAYS,
}
_PREFERENCE: Final[dict[str, Shape | None]] = {
    **dict.fromkeys(
        (
            "annotations",
            "preferSpreadSocketToCoreRatio",
            "preferredSubdomain",
            "preferredTerminationGracePeriodSeconds",
            "requirements",
            "cpu.preferredCPUFeatures",
            "cpu.spreadOptions",
            "devices.preferredInterfaceMasquerade",
            "devices.preferredPanicDeviceModel",
            "firmware.preferredEfi",
        )
    ),
    "cpu.preferredCPUTopology": STRING,
}


def shape_of(kind: str, version: str, types: Types) -> Struct:
    """The type of an older version, of objects of a kind of either scope.

    Args:
        kind: the kind of the object, of either scope.
        version: one of `VERSIONS`.
        types: the types of the release that reads it.
    """
    return _shape("Preference" in kind, version, types)


@lru_cache(maxsize=64)
def _shape(is_preference: bool, version: str, types: Types) -> Struct:
    changes = dict(_PREFERENCE if is_preference else _INSTANCETYPE)
    if is_preference and version == VERSIONS[0]:
        changes["volumes"] = None
    current = types.preference if is_preference else types.instancetype
    return replace_fields(current, {f"spec.{path}": change for path, change in changes.items()})


def read_spec_revision(data: Json, types: Types) -> Json | None:
    """What the oldest revisions hold, the bare spec of a v1alpha1 object; None where this is not one.

    KubeVirt tries a preference first, and takes neither if a member is unknown.

    Args:
        data: ``data`` of the ControllerRevision, plain JSON.
        types: of the release that reads it.

    Returns:
        The whole object, decoded.
    """
    if not data.keys() <= _SPEC_REVISION or not isinstance(data.get("spec"), str):
        return None
    try:
        written = base64.b64decode("".join(data["spec"].split()), validate=True)
        spec: Any = msgspec.json.decode(written)
    except (binascii.Error, ValueError, RecursionError):
        return None
    for kind, name in _NAMES.items():
        shape = shape_of(kind, VERSIONS[0], types)
        whole = {"kind": kind, "metadata": {"name": name}, "spec": spec}
        try:
            if is_known(shape, whole):
                return decode(shape, whole)
        except InputError:
            continue
    return None
