"""The kinds of objects that files may hold."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from webhook import names
from webhook.k8s.nodes import NodeView
from webhook.k8s.pods import PendingPod
from webhook.k8s.views import Lease, Namespace, Object
from webhook.kubevirt.definitions import DEFINITIONS, Definition
from webhook.kubevirt.views import ControllerRevision, Instancetype, KubeVirt, VirtualMachine, VirtualMachineInstance


class Kind(msgspec.Struct, frozen=True):
    """A kind that files may hold.

    Attributes:
        versions: those accepted, as a pattern.
        view: what objects of it are checked against.
    """

    group: str
    name: str
    versions: str = r"v[1-9][0-9]*((alpha|beta)[1-9][0-9]*)?"
    namespaced: bool = True
    view: type[Object] = Object


_KUBEVIRT_VERSIONS: Final = "v1|v1alpha3"
_CDI: Final = "cdi.kubevirt.io"

KINDS: Final[Mapping[str, Kind]] = {
    kind.name: kind
    for kind in (
        Kind("", "Namespace", "v1", False, Namespace),
        Kind("", "Node", "v1", False, NodeView),
        Kind("", "Pod", "v1", view=PendingPod),
        Kind("", "PersistentVolumeClaim", "v1"),
        Kind("", "PersistentVolume", "v1", False),
        Kind("policy", "PodDisruptionBudget", "v1"),
        Kind("node.k8s.io", "RuntimeClass", "v1", False),
        Kind("coordination.k8s.io", "Lease", "v1", view=Lease),
        Kind(DEFINITIONS.group, DEFINITIONS.kind, DEFINITIONS.version, False, Definition),
        Kind("apps", "ControllerRevision", "v1", view=ControllerRevision),
        Kind(names.KUBEVIRT_GROUP, "KubeVirt", _KUBEVIRT_VERSIONS, view=KubeVirt),
        Kind(names.KUBEVIRT_GROUP, "VirtualMachine", _KUBEVIRT_VERSIONS, view=VirtualMachine),
        Kind(names.KUBEVIRT_GROUP, "VirtualMachineInstance", _KUBEVIRT_VERSIONS, view=VirtualMachineInstance),
        Kind(names.KUBEVIRT_GROUP, "VirtualMachineInstanceReplicaSet", _KUBEVIRT_VERSIONS),
        Kind(names.KUBEVIRT_GROUP, "VirtualMachineInstanceMigration", _KUBEVIRT_VERSIONS),
        Kind(names.KUBEVIRT_GROUP, "VirtualMachineInstancePreset", _KUBEVIRT_VERSIONS),
        Kind("pool.kubevirt.io", "VirtualMachinePool"),
        Kind(names.INSTANCETYPE_GROUP, "VirtualMachineInstancetype", view=Instancetype),
        Kind(names.INSTANCETYPE_GROUP, "VirtualMachinePreference"),
        Kind(names.INSTANCETYPE_GROUP, "VirtualMachineClusterInstancetype", namespaced=False, view=Instancetype),
        Kind(names.INSTANCETYPE_GROUP, "VirtualMachineClusterPreference", namespaced=False),
        Kind(_CDI, "DataVolume"),
        Kind(_CDI, "DataSource"),
        Kind("snapshot.storage.k8s.io", "VolumeSnapshot"),
        Kind("migrations.kubevirt.io", "MigrationPolicy", namespaced=False),
    )
}
