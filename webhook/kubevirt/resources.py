"""Where KubeVirt's kinds live in the API, and the views to decode them with."""

from __future__ import annotations

from typing import Final, TypeVar

from webhook import names
from webhook.k8s.resources import Resource
from webhook.k8s.types.meta import Object, StoredObject, Unstructured
from webhook.kubevirt.types import views

V = TypeVar("V", bound=Object)


def _resource(group: str, version: str, kind: str, view: type[V]) -> Resource[V]:
    """A kind whose plural is its name with an s, cluster-wide if it says so."""
    return Resource(group, version, f"{kind.lower()}s", kind, "Cluster" not in kind, view)


REVISIONS: Final = _resource("apps", "v1", "ControllerRevision", views.ControllerRevision)
KUBEVIRTS: Final = _resource(names.KUBEVIRT_GROUP, "v1", "KubeVirt", views.KubeVirt)
VMIS: Final = _resource(names.KUBEVIRT_GROUP, "v1", "VirtualMachineInstance", views.VirtualMachineInstance)
ACTIVE_VMIS: Final = VMIS.decoded_as(views.ActiveVmi)
_INSTANCETYPE_API: Final = (names.INSTANCETYPE_GROUP, "v1beta1")
INSTANCETYPES: Final = _resource(*_INSTANCETYPE_API, "VirtualMachineInstancetype", views.Instancetype)
CLUSTER_INSTANCETYPES: Final = _resource(*_INSTANCETYPE_API, "VirtualMachineClusterInstancetype", views.Instancetype)
# As plain JSON; a view of the fields that are needed is read by ``.decoded_as(view)``.
UNSTRUCTURED_VMS: Final = _resource(names.KUBEVIRT_GROUP, "v1", "VirtualMachine", Unstructured)
UNSTRUCTURED_VMIS: Final = VMIS.decoded_as(Unstructured)
# As the fidelity check reads them.
STARTED_VMS: Final = UNSTRUCTURED_VMS.decoded_as(views.StartedVm)
STORED_VMS: Final = UNSTRUCTURED_VMS.decoded_as(StoredObject)
STORED_VMIS: Final = VMIS.decoded_as(StoredObject)
# What sizes VMIs by their labels.
PRESETS: Final = _resource(names.KUBEVIRT_GROUP, "v1", "VirtualMachineInstancePreset", Unstructured)
# What KubeVirt's rules look up, by kind.
UNSTRUCTURED: Final = {
    resource.kind: resource
    for resource in (
        *(each.decoded_as(Unstructured) for each in (REVISIONS, INSTANCETYPES, CLUSTER_INSTANCETYPES)),
        _resource(*_INSTANCETYPE_API, "VirtualMachinePreference", Unstructured),
        _resource(*_INSTANCETYPE_API, "VirtualMachineClusterPreference", Unstructured),
    )
}
# What VMs name, or get by their labels, and informers keep: of these only the name, the kind and the ``spec``.
NAMED_BY_VMS: Final = (*(each for each in UNSTRUCTURED.values() if each.kind != REVISIONS.kind), PRESETS)
