"""The fidelity check on a real API server, with only the permissions that its documentation names."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.kubevirt.plain import create, run_round
from webhook.admission.audit import FidelityRecord
from webhook.k8s.client.transport import connect
from webhook.kubevirt.config import DEFAULTS
from webhook.server.background.fidelity import FidelityCheck
from webhook.settings.model import FidelitySettings

from .support.access import Access
from .support.rbac import RBAC, grant
from .support.workloads import CLUSTER_INSTANCETYPES, REVISIONS, VMIS, VMS, instancetype, vm

WATCHER = "fidelity-checker"
RIGHTS = [
    {"apiGroups": ["kubevirt.io"], "resources": ["virtualmachines"], "verbs": ["list", "get"]},
    {"apiGroups": ["kubevirt.io"], "resources": ["virtualmachineinstances"], "verbs": ["get"]},
    {"apiGroups": ["apps"], "resources": ["controllerrevisions"], "verbs": ["get"]},
]


@pytest.fixture
def watcher(plane: Access, namespace: str) -> Iterator[str]:
    """The kubeconfig of a user with those permissions."""
    name = f"{WATCHER}-{namespace}"
    grant(plane.admin, name, RIGHTS)
    yield str(plane.kubeconfig_for(name))
    plane.admin.delete(f"{RBAC}/v1/clusterroles", name)


def started(plane: Access, namespace: str, name: str, size: dict[str, Any]) -> dict[str, Any]:
    """A VM that KubeVirt has started: captured, with a VMI, and its status says so."""
    kube = plane.kubevirt_controller
    wanted = {"kind": "VirtualMachineClusterInstancetype", "name": size["metadata"]["name"]}
    stored = plane.admin.create(VMS, vm(name, instancetype=wanted), namespace)
    synced, built = run_round(
        dict(stored), lambda kind, _, __: dict(size) if kind == wanted["kind"] else None, DEFAULTS
    )
    for revision in synced.revisions:
        kube.create(REVISIONS, {"apiVersion": "apps/v1", "kind": "ControllerRevision", **revision}, namespace)
    made: dict[str, Any] = kube.create(VMIS, create(built.to_json(), DEFAULTS, str), namespace)
    status = {"created": True, "instancetypeRef": synced.vm["status"]["instancetypeRef"]}
    now = kube.get(VMS, name, namespace)
    kube.replace(VMS, {**now, "status": status}, subresource="status")
    return made


async def test_a_vmi_that_was_changed_behind_kubevirts_back_is_found(
    plane: Access, namespace: str, watcher: str
) -> None:
    size = plane.admin.create(CLUSTER_INSTANCETYPES, instancetype(f"size-{namespace}"))
    started(plane, namespace, "same", size)
    found = started(plane, namespace, "different", size)
    started(plane, namespace, "changed", size)
    plane.kubevirt_controller.patch(VMIS, "different", {"spec": {"domain": {"cpu": {"cores": 3}}}}, namespace)
    # The captured object counts, and a VM that was changed since is another one.
    plane.admin.delete(CLUSTER_INSTANCETYPES, size["metadata"]["name"])
    plane.admin.patch(VMS, "changed", {"spec": {"template": {"spec": {"hostname": "new"}}}}, namespace)
    records: list[FidelityRecord] = []
    transport = await connect(watcher)
    watch = FidelityCheck(transport, lambda: DEFAULTS, FidelitySettings, records.append)
    try:
        await watch.compare(1000)
    finally:
        await transport.close()

    (record,) = [record for record in records if record.object.namespace == namespace]
    assert (record.object.name, record.uid) == ("different", found["metadata"]["uid"])
    assert [(field.path, field.origin) for field in record.differences] == [("spec.domain.cpu.cores", "instancetype")]
    assert watch.checked["same"] >= 1
    assert watch.checked["skipped"] >= 1
