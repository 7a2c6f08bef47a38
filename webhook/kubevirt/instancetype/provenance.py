"""Which ControllerRevisions KubeVirt made of instancetypes and preferences.

DaemonSets, StatefulSets and other operators keep revisions of the same kind in the same namespaces, and KubeVirt opens
whichever a VM names. A server must not: it reads with its own permissions, and who may name a revision in a VM need not
be allowed to read it.

Every KubeVirt labels the revisions that it makes since 1.1; 1.0 gave them only their VM as the controller
(pkg/instancetype/instancetype.go, pkg/instancetype/revision/store.go). A snapshot's copy is controlled by the
VirtualMachineSnapshot and keeps the labels, and a restore makes its copy before the VM that will own it, so that it has
the labels alone for a while (pkg/storage/snapshot/source.go, restore.go). Backup tools drop owners and keep labels.

A revision of another VM counts, as it does for KubeVirt: restores, clones and copied manifests name such revisions.
"""

from __future__ import annotations

from typing import Final

from webhook import names
from webhook.k8s.views import ObjectMeta

KINDS: Final = frozenset(
    {
        "VirtualMachineInstancetype",
        "VirtualMachineClusterInstancetype",
        "VirtualMachinePreference",
        "VirtualMachineClusterPreference",
    }
)
_CONTROLLERS: Final = frozenset(
    {(names.KUBEVIRT_GROUP, "VirtualMachine"), (names.SNAPSHOT_GROUP, "VirtualMachineSnapshot")}
)


def is_captured(meta: ObjectMeta, kind: object, api_version: object) -> bool:
    """Whether a ControllerRevision holds an instancetype or preference that KubeVirt captured.

    A foreign controller decides against it, whatever the labels say: a DaemonSet's revisions carry the labels of its
    pod template. A VM controls revisions of another content too, which hold its own spec: the data has to say its kind.

    Args:
        meta: the revision's.
        kind: ``kind`` of its data, any JSON value.
        api_version: ``apiVersion`` of its data, any JSON value.
    """
    if not isinstance(kind, str) or kind not in KINDS:
        return False
    if not isinstance(api_version, str) or api_version.partition("/")[0] != names.INSTANCETYPE_GROUP:
        return False
    controller = meta.controller_owner()
    if controller is not None:
        return (controller.group, controller.kind) in _CONTROLLERS
    return bool(meta.label(names.REVISION_OBJECT_NAME_LABEL)) and meta.label(names.REVISION_OBJECT_KIND_LABEL) == kind
