"""The manifests grant what the server uses, and nothing else: by the API server's own audit log."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

from webhook.cluster.parity import ParityWatch
from webhook.cluster.transport import connect
from webhook.kubevirt.configuration import Configuration
from webhook.settings.snapshot import ParitySettings

from . import manifests
from .access import Access
from .audited import AuditLog
from .balancer import Balancer
from .conftest import OwnPlane
from .installed import SETTINGS, Installation
from .kube import ApiError, Json, eventually
from .tenant import Tenant
from .webhook_server import ACCOUNT, DOMAIN, INSTANCETYPES, SCHEDULING
from .workloads import PODS, VMIS, VMS, launcher_of, vm

MIGRATION = f"{DOMAIN}/migration"
MIGRATIONS = "kubevirt.io/v1/virtualmachineinstancemigrations"
# Every capability that asks the API server for something.
EVERYTHING = {
    **SETTINGS,
    "schedulers": {"kubevirt": {"guard": "pods"}, "other": {"guard": "lease other/other"}},
    "migration": {"requireRight": True, "maxUnfinished": 5},
}


def test_every_right_is_used_and_none_is_missing(own_plane: OwnPlane, tmp_path: Path) -> None:
    log = AuditLog(tmp_path, ACCOUNT.user)
    plane = own_plane(apiserver_flags=log.flags)
    with (
        Balancer() as balancer,
        Installation(plane, tmp_path, balancer, "--tls=managed", settings=EVERYTHING) as installed,
    ):
        installed.apply()
        installed.start()
        tenant = Tenant.new(installed.replicas[0], None)
        # The last one last: once the API server knows of it, it knows of all.
        for job in (INSTANCETYPES, MIGRATION, SCHEDULING):
            tenant.label("enforce", job)
        eventually(lambda: tenant.choice() == "kubevirt", what="the API server to call us")

        judge(tenant)
        compare(plane, tenant)
        rotate(installed)

        missing = manifests.granted() - log.used()
        assert missing == set(), "granted, and never used"
        assert log.used() - manifests.granted() == set(), "used, and not granted"
        assert log.refused() == set()


def judge(tenant: Tenant) -> None:
    """Has VMs, pods and migrations judged that take every look-up."""
    tenant.server.ask("/mutate/scheduling/pods/enforce", review("nowhere"))
    owner = tenant.create(vm("web"))
    vmi = tenant.start(owner)
    pod = tenant.launch(vmi)
    # A running VM, so that its pod and node are looked at.
    running = {"phase": "Running", "nodeName": "node-a"}
    tenant.controller.patch(VMIS, "web", {"status": running}, tenant.namespace)
    assert pod["spec"].get("schedulerName") == "kubevirt"
    migration = {
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachineInstanceMigration",
        "metadata": {"name": "away"},
        "spec": {"vmiName": "web", "addedNodeSelector": {"example.com/zone": "a"}},
    }

    def refused() -> bool:
        try:
            tenant.owner.create(MIGRATIONS, migration, tenant.namespace, dryRun="All")
        except ApiError as error:
            return "node" in error.message
        return False

    eventually(refused, what="a migration to be refused, since there are no nodes")
    for kind in ("VirtualMachine", "VirtualMachineCluster"):
        for field, what in (("instancetype", "Instancetype"), ("preference", "Preference")):
            named: Json = {field: {"kind": f"{kind}{what}", "name": "nothing"}}
            tenant.create(vm("named", **named), dryRun="All")
    tenant.create(vm("kept", instancetype={"name": "nothing", "revisionName": "kept"}), dryRun="All")
    tenant.label("off", MIGRATION)
    made = eventually(
        lambda: tenant.owner.create(MIGRATIONS, migration, tenant.namespace), what="a migration of nobody's concern"
    )
    tenant.label("enforce", MIGRATION)
    target = launcher_of(vmi)
    target["metadata"]["labels"]["kubevirt.io/migrationJobUID"] = made["metadata"]["uid"]
    target["metadata"]["annotations"]["kubevirt.io/migrationJobName"] = "away"

    def constrained() -> Json | None:
        found = tenant.controller.create(PODS, target, tenant.namespace, dryRun="All")
        return found if "affinity" in found["spec"] else None

    eventually(constrained, what="a target pod to be constrained")


def compare(plane: Access, tenant: Tenant) -> None:
    """One round of the parity watch, as the server's account."""
    plane.admin.patch(VMS, "web", {"status": {"created": True}}, tenant.namespace, subresource="status")

    async def compared() -> int:
        transport = await connect(str(plane.kubeconfig_for(*ACCOUNT)))
        try:
            watch = ParityWatch(
                transport,
                lambda: Configuration.of_kubevirt({}),
                lambda: ParitySettings(sample=1, every_seconds=60.0),
                lambda _: None,
                chance=random.Random(1),
            )
            await watch.compare(1)
            return sum(watch.checked.values())
        finally:
            await transport.close()

    assert asyncio.run(compared()) == 1


def rotate(installed: Installation) -> None:
    """Has another CA made."""
    ca = installed.secret()["data"]["ca.crt"]
    installed.rotate()
    installed.wait_serving(ca)


def review(namespace: str) -> Json:
    """About a pod in a namespace that nobody has heard of."""
    request = {
        "uid": "1",
        "kind": {"group": "", "version": "v1", "kind": "Pod"},
        "resource": {"group": "", "version": "v1", "resource": "pods"},
        "namespace": namespace,
        "operation": "CREATE",
        "userInfo": {"username": "somebody"},
        "object": {"apiVersion": "v1", "kind": "Pod", "metadata": {}, "spec": {}},
    }
    return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}
