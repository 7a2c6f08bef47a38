"""What stands in the way of a virtual machine, in KubeVirt's own words where it has some, and looking objects up."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from webhook.errors import InputError
from webhook.kubevirt.go_json.structs import Json

CAUSES_SHOWN: Final = 10
_SENTENCE: Final = "VM field(s) {} conflicts with selected instance type"
# The path of a VMI's spec in the object that the user knows: in a VM's template, and in a VMI.
TEMPLATE_BASE: Final = "spec.template.spec"
VMI_BASE: Final = "spec"


class Rejection(InputError):  # noqa: N818 - an answer, not a fault
    """KubeVirt, or the rules here in its place, would not accept an object; ``what`` is the text for the user."""


class NotFound(Rejection):
    """An object that is needed does not exist; the text is the API server's.

    Args:
        kind: of the object.
        name: its name.
    """

    def __init__(self, kind: str, name: str) -> None:
        super().__init__(f'{_PLURALS[kind]} "{name}" not found')


class Crash(Rejection):
    """KubeVirt would crash on this, which users see as a failed call of its webhook."""


class Cause(Rejection):
    """One cause of a denial, as ``status.details.causes`` of an API answer carries it.

    Args:
        reason: ``FieldValueInvalid``, ``FieldValueNotFound`` or ``FieldValueNotSupported``.
        message: the text for people.
        field: the path, several joined by ``", "``.
    """

    def __init__(self, reason: str, message: str, field: str) -> None:
        super().__init__(message)
        self.reason: Final = reason
        self.field: Final = field


class Conflicts(Rejection):
    """All fields that both the VM and its instancetype set, each a cause in ``conflicts``.

    Args:
        paths: the fields' paths in the object that the user knows, in KubeVirt's order.
        what: the text that a user sees; empty: that of KubeVirt's webhook for VMs.
    """

    def __init__(self, paths: Iterable[str], what: str = "") -> None:
        self.paths: Final = tuple(paths)
        self.conflicts: Final = tuple(Cause("FieldValueInvalid", _SENTENCE.format(path), path) for path in self.paths)
        super().__init__(what or _SENTENCE.format(", ".join(self.paths)))


# Kind, namespace (empty for cluster-wide kinds) and name; None where the API server would say 404.
Get = Callable[[str, str, str], Json | None]

_PLURALS: Final = {
    "ControllerRevision": "controllerrevisions.apps",
    "DataSource": "datasources.cdi.kubevirt.io",
    "DataVolume": "datavolumes.cdi.kubevirt.io",
    "PersistentVolumeClaim": "persistentvolumeclaims",
    "VirtualMachineClusterInstancetype": "virtualmachineclusterinstancetypes.instancetype.kubevirt.io",
    "VirtualMachineClusterPreference": "virtualmachineclusterpreferences.instancetype.kubevirt.io",
    "VirtualMachineInstancetype": "virtualmachineinstancetypes.instancetype.kubevirt.io",
    "VirtualMachinePreference": "virtualmachinepreferences.instancetype.kubevirt.io",
    "VolumeSnapshot": "volumesnapshots.snapshot.storage.k8s.io",
}


def get_required(get: Get, kind: str, namespace: str, name: str) -> Json:
    """An object that has to be there; `NotFound`, in the API server's words, where it is not."""
    stored = get(kind, namespace, name)
    if stored is None:
        raise NotFound(kind, name)
    return stored
