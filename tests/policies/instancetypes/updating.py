"""VMs with injected defaults, and what an update changes of them."""

from __future__ import annotations

from tests.builders import Json
from tests.policies.instancetypes.world import (
    FEDORA,
    FEDORA_MARK,
    IT_MARK,
    PREF_MARK,
    SMALL,
    SMALL_MARK,
    vm,
)

INJECTED_ANNOTATIONS = {IT_MARK[2]: SMALL_MARK, PREF_MARK[2]: FEDORA_MARK}
# Changes that remove a default.
GONE = {("spec", "instancetype"): None, IT_MARK: None}
PREFERENCE_GONE = {("spec", "preference"): None, PREF_MARK: None}
OURS = vm(annotations=INJECTED_ANNOTATIONS, instancetype=SMALL, preference=FEDORA)
OWN = {"kind": "VirtualMachineInstancetype", "name": "own"}
OWN_MARK = "VirtualMachineInstancetype/own"


def declared(obj: Json, field: str, *members: str) -> Json:
    """A VM as a server-side apply leaves it that declares members of a matcher."""
    fields: Json = {"f:spec": {f"f:{field}": {f"f:{member}": {} for member in members}}}
    obj["metadata"]["managedFields"] = [{"manager": "flux", "operation": "Apply", "fieldsV1": fields}]
    return obj
