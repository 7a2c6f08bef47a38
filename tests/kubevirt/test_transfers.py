from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tests.builders import Json
from webhook.k8s.types.meta import Object
from webhook.kubevirt.transfers import transfer_of

CDI = {"app": "containerized-data-importer"}
IMPORTER = CDI | {"cdi.kubevirt.io": "importer"}
UPLOAD = CDI | {"cdi.kubevirt.io": "cdi-upload-server"}
CLONE = CDI | {"cdi.kubevirt.io": "cdi-clone-source"}
V2V = {"forklift.app": "virt-v2v", "plan": "uid", "vmID": "vm-1"}
EXPORT = {"kubevirt.io.virt-export-service": "virt-export-web"}


def owned(kind: str, api_version: str = "v1", *, controller: bool = True) -> list[Json]:
    return [{"apiVersion": api_version, "kind": kind, "name": "disk", "uid": "u", "controller": controller}]


CLAIM = owned("PersistentVolumeClaim")


@pytest.mark.parametrize(
    ("labels", "owners", "what"),
    [
        (IMPORTER, CLAIM, "CDI importer"),
        # Of an ImageStream.
        (IMPORTER, [], "CDI importer"),
        (UPLOAD, CLAIM, "CDI upload server"),
        (CLONE, [], "CDI clone source"),
        (V2V, [], "virt-v2v conversion"),
        (V2V, owned("Conversion", "forklift.konveyor.io/v1beta1"), "virt-v2v conversion"),
        (EXPORT, owned("VirtualMachineExport", "export.kubevirt.io/v1"), "VM export server"),
        # Its controllers, and what it makes for a moment.
        (CDI | {"cdi.kubevirt.io": "cdi-populator-prep"}, [], None),
        (CDI | {"cdi.kubevirt.io": ""}, owned("ReplicaSet", "apps/v1"), None),
        ({"cdi.kubevirt.io": "importer"}, CLAIM, None),
        (V2V | {"forklift.app": "virt-v2v-inspection"}, [], None),
        # What a user can make of his own workloads.
        (IMPORTER, owned("ReplicaSet", "apps/v1"), None),
        (IMPORTER, owned("PersistentVolumeClaim", "example.com/v1"), None),
        (UPLOAD, [], None),
        (UPLOAD, owned("PersistentVolumeClaim", controller=False), None),
        (EXPORT, [], None),
        (V2V, owned("Job", "batch/v1"), None),
        (IMPORTER | {"kubevirt.io": "virt-launcher"}, CLAIM, None),
        (IMPORTER, owned("VirtualMachineInstance", "kubevirt.io/v1"), None),
    ],
)
def test_pods_that_copy_disks_and_pods_that_only_look_so(
    labels: dict[str, str], owners: list[Json], what: str | None
) -> None:
    meta: Any = {"metadata": {"name": "pod", "labels": labels, "ownerReferences": owners}}
    found = transfer_of(msgspec.convert(meta, Object))
    assert (found.what if found else None) == what
    if found:
        assert found.owner == (f"{owners[0]['kind']} disk" if owners else "")
