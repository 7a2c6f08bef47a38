"""Reading other objects: the one thing that KubeVirt's rules need from outside."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from webhook.kubevirt.go_json.structs import Json
from webhook.kubevirt.instancetype.conflict import NotFound, Rejection

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
    """An object that has to be there.

    Raises:
        NotFound: it is not, in the API server's words.
    """
    stored = get(kind, namespace, name)
    if stored is None:
        raise not_found(kind, name)
    return stored


def not_found(kind: str, name: str) -> NotFound:
    """That an object of a kind is not there, in the API server's words."""
    return NotFound(_PLURALS[kind], name)


def already_exists(kind: str, name: str) -> Rejection:
    """That an object of a kind is there already, in the API server's words."""
    return Rejection(f'{_PLURALS[kind]} "{name}" already exists')
