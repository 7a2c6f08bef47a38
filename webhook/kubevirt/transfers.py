"""Pods that copy, convert or export disks, often for hours, and whose work is lost when something evicts them."""

from __future__ import annotations

from typing import Final, NamedTuple

from webhook import names
from webhook.k8s.types.meta import Object

_AGAIN: Final = "CDI starts it again from the beginning, except for what the checkpoints of a warm migration keep"
_SENT_AGAIN: Final = "the upload that it receives fails and has to be sent again"
_MIGRATED_AGAIN: Final = "Forklift's migration of this VM fails and has to be started again"
_READ_AGAIN: Final = "downloads from it end and have to be started again"
_CDI: Final = ("app", "containerized-data-importer")
_CDI_PART: Final = "cdi.kubevirt.io"
_CLAIM: Final = ("", "PersistentVolumeClaim")
_EXPORT: Final = ("export.kubevirt.io", "VirtualMachineExport")
_CONVERSION: Final = ("forklift.konveyor.io", "Conversion")


class DiskTransfer(NamedTuple):
    """What a pod does to a disk.

    Attributes:
        what: what the pod is, for example ``CDI importer``.
        owner: what it works for, kind and name; empty: it has no controller, so that `kubectl drain` needs --force.
        loss: what becomes of its work when it is evicted, a clause.
    """

    what: str
    owner: str
    loss: str


class _Kind(NamedTuple):
    labels: tuple[tuple[str, str | None], ...]
    owner: tuple[str, str]
    is_always_owned: bool
    what: str
    loss: str


# By the labels that their controllers write (a value of None: any); CDI 1.66 (pkg/controller, makeImporterPodSpec,
# makeUploadPodSpec, MakeCloneSourcePodSpec), Forklift 2.9 to 2.12 (pkg/controller/plan/kubevirt.go, conversionLabels),
# KubeVirt 1.9 (pkg/storage/export/export/export.go, createExporterPodManifest).
_KINDS: Final = (
    _Kind((_CDI, (_CDI_PART, "importer")), _CLAIM, False, "CDI importer", _AGAIN),
    _Kind((_CDI, (_CDI_PART, "cdi-clone-source")), _CLAIM, False, "CDI clone source", _AGAIN),
    _Kind((_CDI, (_CDI_PART, "cdi-upload-server")), _CLAIM, True, "CDI upload server", _SENT_AGAIN),
    _Kind((("forklift.app", "virt-v2v"),), _CONVERSION, False, "virt-v2v conversion", _MIGRATED_AGAIN),
    _Kind((("kubevirt.io.virt-export-service", None),), _EXPORT, True, "VM export server", _READ_AGAIN),
)


def transfer_of(pod: Object) -> DiskTransfer | None:
    """What a pod does to a disk; None for all other pods, launcher pods with such labels among them.

    Users can write these labels, and owner references, into any pod that they create. So a pod that a workload of
    theirs controls (a ReplicaSet, a Job, a VMI) is none; what is left to them is a pod of their own, by itself.
    """
    meta = pod.meta
    if meta.label(names.APP_LABEL) == names.LAUNCHER_APP:
        return None
    for kind in _KINDS:
        if any((label := meta.label(key)) is None or value not in (None, label) for key, value in kind.labels):
            continue
        owner = meta.controller_owner()
        if kind.is_always_owned if owner is None else (owner.group, owner.kind) != kind.owner:
            return None
        return DiskTransfer(kind.what, f"{owner.kind} {owner.name or ''}" if owner else "", kind.loss)
    return None
