"""Launcher pods, and pods that copy disks."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tests.builders import Json, launcher_pod
from webhook.admission.decision import Reason
from webhook.admission.reasons import common
from webhook.k8s.types.core import SchedulingPod
from webhook.k8s.types.meta import Object, OwnerReference
from webhook.kubevirt.launcher import controller_account, vmi_owner
from webhook.kubevirt.transfers import transfer_of


def owner(pod: Json) -> OwnerReference | Reason:
    return vmi_owner(msgspec.convert(pod, SchedulingPod))


def test_the_owner_of_a_launcher_pod() -> None:
    pod = launcher_pod()
    # A second owner, which controls nothing.
    pod["metadata"]["ownerReferences"].insert(0, {"apiVersion": "v1", "kind": "ConfigMap", "name": "x", "uid": "y"})
    for each in (launcher_pod(), pod):
        found = owner(each)
        assert isinstance(found, OwnerReference)
        assert (found.kind, found.name) == ("VirtualMachineInstance", "web01")


@pytest.mark.parametrize(
    ("app", "reason"), [("hotplug-disk", common.not_a_launcher_pod), ("virt-launcher", common.no_vmi_owner)]
)
def test_hotplug_attachment_pods_belong_to_a_pod(app: str, reason: Reason) -> None:
    pod = launcher_pod()
    its = {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u", "controller": True}
    pod["metadata"] |= {"labels": {"kubevirt.io": app}, "ownerReferences": [its]}
    assert owner(pod) == reason


def test_account() -> None:
    assert controller_account("openshift-cnv") == "system:serviceaccount:openshift-cnv:kubevirt-controller"


CDI = {"app": "containerized-data-importer"}
IMPORTER = CDI | {"cdi.kubevirt.io": "importer"}
UPLOAD = CDI | {"cdi.kubevirt.io": "cdi-upload-server"}
V2V = {"forklift.app": "virt-v2v", "plan": "uid", "vmID": "vm-1"}
EXPORT = {"kubevirt.io.virt-export-service": "virt-export-web"}


def owned(kind: str, api_version: str = "v1", *, controller: bool = True) -> list[Json]:
    return [{"apiVersion": api_version, "kind": kind, "name": "disk", "uid": "u", "controller": controller}]


CLAIM = owned("PersistentVolumeClaim")


@pytest.mark.control("forged-disk-transfers")
@pytest.mark.parametrize(
    ("labels", "owners", "what"),
    [
        (IMPORTER, CLAIM, "CDI importer"),
        # Of an ImageStream.
        (IMPORTER, [], "CDI importer"),
        (UPLOAD, CLAIM, "CDI upload server"),
        (CDI | {"cdi.kubevirt.io": "cdi-clone-source"}, [], "CDI clone source"),
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
def test_pods_that_copy_disks_and_pods_that_only_look_so(labels: Json, owners: list[Json], what: str | None) -> None:
    meta: Any = {"metadata": {"name": "pod", "labels": labels, "ownerReferences": owners}}
    found = transfer_of(msgspec.convert(meta, Object))
    assert (found.what if found else None) == what
    if found:
        assert found.owner == (f"{owners[0]['kind']} disk" if owners else "")
