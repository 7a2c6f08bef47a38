"""Where KubeVirt's kinds live in the API, and the views to decode them with."""

from __future__ import annotations

from typing import Final

from webhook import names
from webhook.k8s.resources import Resource
from webhook.k8s.types.meta import StoredObject, Unstructured
from webhook.kubevirt.types.views import (
    ActiveVmi,
    ControllerRevision,
    Instancetype,
    KubeVirt,
    StartedVm,
    VirtualMachineInstance,
)

REVISIONS: Final = Resource("apps", "v1", "controllerrevisions", "ControllerRevision", True, ControllerRevision)
KUBEVIRTS: Final = Resource(names.KUBEVIRT_GROUP, "v1", "kubevirts", "KubeVirt", True, KubeVirt)
VMIS: Final = Resource(
    names.KUBEVIRT_GROUP, "v1", "virtualmachineinstances", "VirtualMachineInstance", True, VirtualMachineInstance
)
ACTIVE_VMIS: Final = Resource(
    names.KUBEVIRT_GROUP, "v1", "virtualmachineinstances", "VirtualMachineInstance", True, ActiveVmi
)
INSTANCETYPES: Final = Resource(
    names.INSTANCETYPE_GROUP, "v1beta1", "virtualmachineinstancetypes", "VirtualMachineInstancetype", True, Instancetype
)
CLUSTER_INSTANCETYPES: Final = Resource(
    names.INSTANCETYPE_GROUP,
    "v1beta1",
    "virtualmachineclusterinstancetypes",
    "VirtualMachineClusterInstancetype",
    False,
    Instancetype,
)
# As the background scan reads them.
UNSTRUCTURED_VMS: Final = Resource(names.KUBEVIRT_GROUP, "v1", "virtualmachines", "VirtualMachine", True, Unstructured)
UNSTRUCTURED_VMIS: Final = Resource(
    names.KUBEVIRT_GROUP, "v1", "virtualmachineinstances", "VirtualMachineInstance", True, Unstructured
)
# As the fidelity check reads them.
STARTED_VMS: Final = Resource(names.KUBEVIRT_GROUP, "v1", "virtualmachines", "VirtualMachine", True, StartedVm)
STORED_VMS: Final = Resource(names.KUBEVIRT_GROUP, "v1", "virtualmachines", "VirtualMachine", True, StoredObject)
STORED_VMIS: Final = Resource(
    names.KUBEVIRT_GROUP, "v1", "virtualmachineinstances", "VirtualMachineInstance", True, StoredObject
)


def _whole(group: str, version: str, plural: str, kind: str, *, namespaced: bool) -> Resource[Unstructured]:
    return Resource(group, version, plural, kind, namespaced, Unstructured)


# What sizes VMIs by their labels.
PRESETS: Final = _whole(
    names.KUBEVIRT_GROUP, "v1", "virtualmachineinstancepresets", "VirtualMachineInstancePreset", namespaced=True
)
# What KubeVirt's rules look up, by kind.
UNSTRUCTURED: Final = {
    resource.kind: resource
    for resource in (
        _whole("apps", "v1", "controllerrevisions", "ControllerRevision", namespaced=True),
        *(
            _whole(names.INSTANCETYPE_GROUP, "v1beta1", f"{kind.lower()}s", kind, namespaced="Cluster" not in kind)
            for kind in (
                "VirtualMachineInstancetype",
                "VirtualMachineClusterInstancetype",
                "VirtualMachinePreference",
                "VirtualMachineClusterPreference",
            )
        ),
    )
}
