"""Where KubeVirt's kinds live in the API, and the views to decode them with."""

from __future__ import annotations

from typing import Final, TypeVar

from webhook import names
from webhook.k8s.resources import Resource
from webhook.k8s.types.meta import Object, StoredObject, Unstructured
from webhook.kubevirt.types.views import (
    ActiveVmi,
    ControllerRevision,
    Instancetype,
    KubeVirt,
    StartedVm,
    VirtualMachineInstance,
)

V = TypeVar("V", bound=Object)


def _resource(group: str, version: str, kind: str, view: type[V]) -> Resource[V]:
    """A kind whose plural is its name with an s, cluster-wide if it says so."""
    return Resource(group, version, f"{kind.lower()}s", kind, "Cluster" not in kind, view)


REVISIONS: Final = _resource("apps", "v1", "ControllerRevision", ControllerRevision)
KUBEVIRTS: Final = _resource(names.KUBEVIRT_GROUP, "v1", "KubeVirt", KubeVirt)
VMIS: Final = _resource(names.KUBEVIRT_GROUP, "v1", "VirtualMachineInstance", VirtualMachineInstance)
ACTIVE_VMIS: Final = VMIS.decoded_as(ActiveVmi)
INSTANCETYPES: Final = _resource(names.INSTANCETYPE_GROUP, "v1beta1", "VirtualMachineInstancetype", Instancetype)
CLUSTER_INSTANCETYPES: Final = _resource(
    names.INSTANCETYPE_GROUP, "v1beta1", "VirtualMachineClusterInstancetype", Instancetype
)
# As the background scan reads them.
UNSTRUCTURED_VMS: Final = _resource(names.KUBEVIRT_GROUP, "v1", "VirtualMachine", Unstructured)
UNSTRUCTURED_VMIS: Final = VMIS.decoded_as(Unstructured)
# As the fidelity check reads them.
STARTED_VMS: Final = UNSTRUCTURED_VMS.decoded_as(StartedVm)
STORED_VMS: Final = UNSTRUCTURED_VMS.decoded_as(StoredObject)
STORED_VMIS: Final = VMIS.decoded_as(StoredObject)
# What sizes VMIs by their labels.
PRESETS: Final = _resource(names.KUBEVIRT_GROUP, "v1", "VirtualMachineInstancePreset", Unstructured)
_PREFERENCES: Final = [
    _resource(names.INSTANCETYPE_GROUP, "v1beta1", kind, Unstructured)
    for kind in ("VirtualMachinePreference", "VirtualMachineClusterPreference")
]
# What KubeVirt's rules look up, by kind.
UNSTRUCTURED: Final = {
    resource.kind: resource
    for resource in (
        *(each.decoded_as(Unstructured) for each in (REVISIONS, INSTANCETYPES, CLUSTER_INSTANCETYPES)),
        *_PREFERENCES,
    )
}
