"""A cluster as it is once some manifests are applied to it: they are reviewed together, and count for each other."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, TypeVar, cast

import msgspec

from webhook.cluster.files import FilesCluster
from webhook.cluster.source import Cluster
from webhook.errors import Unavailable
from webhook.facts import NOT_READ, Key, KubeVirtKey, ListKey, NamespaceKey, ObjectKey
from webhook.k8s.types.meta import Namespace, Object

T = TypeVar("T")

# What other objects refer to. Machines and pods are not among them: what runs is not what a manifest says.
COUNTED_KINDS: Final = frozenset(
    {
        *("Namespace", "KubeVirt", "MigrationPolicy", "VirtualMachineInstancePreset", "ControllerRevision"),
        *("VirtualMachineInstancetype", "VirtualMachineClusterInstancetype"),
        *("VirtualMachinePreference", "VirtualMachineClusterPreference"),
        *("DataVolume", "DataSource", "PersistentVolumeClaim", "VolumeSnapshot"),
    }
)


class AppliedTogether(Cluster):
    """A cluster and manifests of `COUNTED_KINDS`, which come before what the cluster has of the same name.

    Args:
        manifests: the objects of the manifests.
        cluster: what everything else is read from.
    """

    def __init__(self, manifests: FilesCluster, cluster: Cluster) -> None:
        self._manifests: Final = manifests
        self._cluster: Final = cluster
        self._has_kubevirt: Final = any(each.is_in_use for each in manifests.kubevirts)
        self.answers_at_once = cluster.answers_at_once

    def peek(self, key: Key[Any]) -> object:
        """The answer where no look-up is needed for it."""
        own = self._own(key)
        if own is not None and not isinstance(key, NamespaceKey | ListKey):
            return own
        below = self._cluster.peek(key)
        return below if below is NOT_READ else _joined(own, below)

    async def read(self, key: Key[T], deadline: float) -> T | None | Unavailable:
        """The answer, of the cluster where no manifest has it."""
        own = self._own(key)
        if own is not None and not isinstance(key, NamespaceKey | ListKey):
            return cast("T", own)
        below: T | None | Unavailable = await self._cluster.read(key, deadline)
        return cast("T | None | Unavailable", _joined(own, below))

    def ages(self, keys: Iterable[Key[Any]]) -> Mapping[str, float]:
        """Those of the cluster."""
        return self._cluster.ages(keys)

    def _own(self, key: Key[Any]) -> object:
        """What the manifests say; None for nothing."""
        match key:
            case NamespaceKey():
                return self._manifests.peek(key)
            case KubeVirtKey():
                return self._manifests.peek(key) if self._has_kubevirt else None
            case ObjectKey() | ListKey() if key.resource.kind in COUNTED_KINDS:
                own = self._manifests.peek(key)
                # A kind of another group that has the same name.
                return None if isinstance(own, Unavailable) else own
        return None


def _joined(own: object, below: object) -> object:
    """What the manifests and the cluster say together."""
    if own is None or isinstance(below, Unavailable):
        return below if own is None or own == () else own
    if isinstance(own, Namespace) and isinstance(below, Namespace):
        # Applying a manifest leaves the labels of others as they are.
        labels = {**(below.meta.labels or {}), **(own.meta.labels or {})}
        annotations = {**(below.meta.annotations or {}), **(own.meta.annotations or {})}
        metadata = msgspec.structs.replace(below.meta, labels=labels, annotations=annotations)
        return msgspec.structs.replace(below, metadata=metadata)
    if isinstance(own, tuple) and isinstance(below, tuple):
        names = {_place(each) for each in own}
        return (*own, *(each for each in below if _place(each) not in names))
    return own


def _place(obj: Object) -> tuple[str, str]:
    return obj.meta.namespace or "", obj.meta.name or ""
