"""The manifests grant what the server uses, and nothing else: by the API server's own audit log."""

from __future__ import annotations

import asyncio
from functools import partial
from http import HTTPStatus
from pathlib import Path

import yaml

from tests.builders import launcher_pod, review
from tests.cluster.fake_apiserver import FakeClock
from webhook.k8s.client.transport import connect
from webhook.kubevirt.config import DEFAULTS
from webhook.server.background.drift import Reports
from webhook.server.background.events import WINDOW_SECONDS, Event, EventWriter
from webhook.server.background.fidelity import FidelityCheck
from webhook.settings.model import FidelitySettings

from .conftest import OwnPlane
from .support import manifests
from .support.access import Access
from .support.balancer import Balancer
from .support.fetch import fetch
from .support.foreign_webhook import eviction
from .support.installed import SETTINGS, LiveInstallation
from .support.kube import Json, Kube, denial, eventually
from .support.objects import make_node, obj
from .support.processes import free_port
from .support.sizes import SIZED_TEMPLATE
from .support.tenant import Tenant
from .support.webhook_server import ACCOUNT, DOMAIN, INSTANCETYPES, SCHEDULING
from .support.workloads import MIGRATIONS, PODS, VMIS, VMS, launcher_of, vm

MIGRATION = f"{DOMAIN}/migration"
EVICTION = f"{DOMAIN}/eviction"
POLICY_REPORTS = "wgpolicyk8s.io/v1alpha2/policyreports"
DEVICE = "vendor.example/device"
# Every capability that sends requests to the API server.
EVERYTHING = {
    **SETTINGS,
    "schedulers": {"kubevirt": {"healthCheck": "pods"}, "other": {"healthCheck": "lease other/other"}},
    "migration": {"requireRight": True, "maxUnfinished": 5},
    "events": True,
    "driftScan": {"everyMinutes": 60},
}


def test_every_right_is_used_and_none_is_missing(own_plane: OwnPlane, tmp_path: Path) -> None:
    plane = own_plane()
    log = plane.requests_of(ACCOUNT.user)
    port = free_port()
    settings = {**EVERYTHING, "explain": {"listen": f"0.0.0.0:{port}"}}
    with (
        Balancer() as balancer,
        LiveInstallation(plane, tmp_path, balancer, "--tls=managed", settings=settings) as installed,
    ):
        installed.apply()
        installed.start()
        tenant = Tenant.new(installed.replicas[0], None)
        tenant.owner.create(VMS, vm("older"), tenant.namespace)
        # The last one last: once the API server knows of it, it knows of all.
        for policy in (INSTANCETYPES, EVICTION, MIGRATION, SCHEDULING):
            tenant.label("enforce", policy)
        eventually(lambda: tenant.choice() == "kubevirt", what="the API server to call us")

        evaluate(tenant)
        where = "/v1/explain/migration?namespace=shop&name=web"
        assert fetch(port, where, "nonsense")[0] == HTTPStatus.UNAUTHORIZED
        ca = installed.secret()["data"]["ca.crt"]
        installed.rotate()
        installed.wait_serving(ca)
        make_policy_reports(plane.admin)
        settings["explain"] = {}
        # Begins with a scan for objects that are not as enforce would make them.
        installed.start()
        eventually(lambda: plane.admin.list(POLICY_REPORTS), what="the VM that is older than the label to be reported")
        asyncio.run(beside_admission(plane, tenant))

        granted, used = manifests.granted(), log.used()
        assert granted - used == set(), "granted, and never used"
        assert {right for right in used if not any(manifests.covers(one, right) for one in granted)} == set(), (
            "not granted"
        )
        assert log.refused() == set()


def evaluate(tenant: Tenant) -> None:
    """Sends VMs, pods and migrations whose evaluation takes every look-up."""
    tenant.server.ask("/mutate/scheduling/pods/enforce", review(launcher_pod(), namespace="nowhere"))
    owner = tenant.create(vm("web"))
    vmi = tenant.start(owner)
    manifest = launcher_of(vmi)
    manifest["spec"]["containers"][0]["resources"] = {part: {DEVICE: "1"} for part in ("requests", "limits")}
    manifest["spec"]["nodeName"] = "node-a"
    pod = tenant.pod(manifest)
    runtime_class = {"spec": {"configuration": {"defaultRuntimeClass": "kata"}}}
    tenant.server.access.admin.patch("kubevirt.io/v1/kubevirts", "kubevirt", runtime_class, "kubevirt")
    # Settings count from when the operator has taken them up.
    deployed = {"status": {"phase": "Deployed"}}
    tenant.server.access.admin.patch("kubevirt.io/v1/kubevirts", "kubevirt", deployed, "kubevirt", subresource="status")
    # A running VM, so that its pod and node are looked at.
    migratable = {"type": "LiveMigratable", "status": "True"}
    running = {"phase": "Running", "nodeName": "node-a", "conditions": [migratable]}
    # A device of which a driver may provide more than the kubelet.
    devices = {"domain": {"devices": {"gpus": [{"name": "one", "deviceName": DEVICE}]}}}
    change = {"spec": {"evictionStrategy": "LiveMigrate", **devices}, "status": running}
    tenant.controller.patch(VMIS, "web", change, tenant.namespace)
    assert pod["spec"].get("schedulerName") == "kubevirt"
    spec = {"vmiName": "web", "addedNodeSelector": {"example.com/zone": "a"}}
    migration = obj("VirtualMachineInstanceMigration", "away", spec=spec)

    def refused() -> bool:
        error = denial(lambda: tenant.owner.create(MIGRATIONS, migration, tenant.namespace, dryRun="All"))
        return error is not None and "node" in error.message

    eventually(refused, what="a migration to be refused, since there are no nodes")
    # Quotas are looked at where all else allows an eviction, and LimitRanges where there is a quota.
    admin = tenant.server.access.admin
    make_node(admin, "node-b", allocatable={DEVICE: "1"})
    admin.make(obj("ResourceQuota", "some", spec={"hard": {"count/secrets": "100"}}), tenant.namespace)

    name = pod["metadata"]["name"]
    evicted = eviction(name, "sigs.k8s.io/descheduler")
    where: Json = {"namespace": tenant.namespace, "name": name, "subresource": "eviction", "dryRun": "All"}
    ask = partial(tenant.owner.create, PODS, evicted, **where)
    eventually(lambda: not denial(ask), what="an eviction to be allowed, since there is a node")
    admin.delete("v1/nodes", "node-b")
    for kind in ("VirtualMachine", "VirtualMachineCluster"):
        for field, what in (("instancetype", "Instancetype"), ("preference", "Preference")):
            named: Json = {field: {"kind": f"{kind}{what}", "name": "nothing"}}
            tenant.create(vm("named", **named), dryRun="All")
    tenant.create(vm("kept", instancetype={"name": "nothing", "revisionName": "kept"}), dryRun="All")
    # Whether a preset gives a size to a VM that loses its own.
    tenant.create(vm("sized", template=SIZED_TEMPLATE))
    unsized = {"spec": {"template": {"spec": {"domain": {"memory": None}}}}}
    tenant.owner.patch(VMS, "sized", unsized, tenant.namespace, dryRun="All")
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

    eventually(constrained, what="the constraint")


async def beside_admission(plane: Access, tenant: Tenant) -> None:
    """The hourly work beside admission: a round of each, as the server's account."""
    plane.admin.patch(VMS, "web", {"status": {"created": True}}, tenant.namespace, subresource="status")
    api = await connect(str(plane.kubeconfig_for(*ACCOUNT)))
    try:
        rounds = FidelitySettings(sample=9, every_minutes=1)
        watch = FidelityCheck(api, lambda: DEFAULTS, lambda: rounds, lambda _: None, clock=FakeClock())
        await watch.compare(9)
        assert sum(watch.checked.values()) == 1

        clock = FakeClock()
        events = EventWriter(api, "here", clock=clock)
        for _ in range(2):
            events.add(Event(tenant.namespace, "v1", "Pod", "one", "", "Refused", "code", "a note"))
        await events.write()
        await clock.sleep(WINDOW_SECONDS)
        await events.write()
        assert events.results["failed"] == 0

        await Reports(api).write({})
    finally:
        await api.close()
    eventually(lambda: not plane.admin.list(POLICY_REPORTS), what="the report to be gone")


def make_policy_reports(kube: Kube) -> None:
    """Has the API server serve PolicyReports, which are another project's."""
    kube.apply(yaml.safe_load((Path(__file__).parent / "policyreports.yaml").read_text()))
    eventually(lambda: kube.list(POLICY_REPORTS) is not None, what="PolicyReports to be served")
