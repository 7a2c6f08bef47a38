"""Soft topology spread constraints through the real API server, and where the stock scheduler puts pods with them."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from webhook import names

from .conftest import ModuleWebhook, NewTenant, NewWebhook, OwnPlane
from .support import versions
from .support.kube import Json, KubeObject, eventually
from .support.objects import ZONE, launcher_pod, make_node
from .support.processes import ROOT
from .support.tenant import Tenant
from .support.webhook_server import WebhookServer
from .support.workloads import PODS, VMS, launcher_of, migration_target_of, vm

NODES = 4
MACHINES = 3 * NODES
# On these a small VM changes no whole-number score, so that the stock scheduler piles VMs up.
LARGE = {"cpu": "64", "memory": "256Gi"}
SPREADING: Mapping[str, Any] = {"schedulers": {}, "scheduling": {"spread": "hostname"}}
CONSTRAINT = {
    "maxSkew": 1,
    "topologyKey": "kubernetes.io/hostname",
    "whenUnsatisfiable": "ScheduleAnyway",
    "labelSelector": {"matchLabels": {"kubevirt.io": "virt-launcher"}},
    "nodeAffinityPolicy": "Honor",
    "nodeTaintsPolicy": "Honor",
}
OWN = {"maxSkew": 2, "topologyKey": "rack", "whenUnsatisfiable": "ScheduleAnyway"}


def constraints(pod: KubeObject) -> list[Json]:
    """Those of a pod, without what the API server adds."""
    found: list[Json] = pod["spec"].get("topologySpreadConstraints", [])
    return found


def placed(tenant: Tenant, count: int) -> Counter[str]:
    """How many launcher pods of a namespace are on each node, once all have one."""

    def nodes() -> list[str] | None:
        found = [pod["spec"].get("nodeName") for pod in tenant.owner.list(PODS, tenant.namespace)]
        return found if len(found) == count and all(found) else None

    return Counter(eventually(nodes, what=f"nodes for {count} pods"))


def test_the_stock_scheduler_spreads_vms_evenly_over_the_nodes_they_can_use(
    own_plane: OwnPlane, new_webhook: NewWebhook
) -> None:
    plane = own_plane()
    for number in range(NODES):
        make_node(plane.admin, f"node-{number}", allocatable=LARGE)
    # A node that no VM may use looks empty for good, and must not count.
    make_node(plane.admin, "tainted", allocatable=LARGE)
    taints = [{"key": "dedicated", "value": "gpu", "effect": "NoSchedule"}]
    plane.admin.patch("v1/nodes", "tainted", {"spec": {"taints": taints}})
    plane.start_scheduler("default")
    server = new_webhook(SPREADING, access=plane)
    without, spread = Tenant.new(server, mode=None), Tenant.new(server)

    for tenant in (without, spread):
        for number in range(MACHINES):
            tenant.launch(tenant.start(vm(f"vm-{number}")))

    assert set(placed(spread, MACHINES).values()) == {MACHINES // NODES}
    # The reason for constraints: without constraints some node gets more than its share.
    assert max(placed(without, MACHINES).values()) > MACHINES // NODES
    assert set(spread.verdicts("Pod")) == {"patched spread-injected"}


def test_doctor_says_where_vms_are_and_what_the_constraint_then_does(
    own_plane: OwnPlane, new_webhook: NewWebhook, tmp_path: Path
) -> None:
    plane = own_plane()
    image = launcher_pod("any")["spec"]["containers"][0]["image"]
    listed = {True: [image], False: [f"registry.example/other:{number}" for number in range(50)]}
    for number in range(NODES):
        images = [{"names": [name], "sizeBytes": 700_000_000} for name in listed[number < NODES // 2]]
        make_node(plane.admin, f"node-{number}", allocatable=LARGE, images=images)
    plane.start_scheduler("default")
    server = new_webhook(SPREADING, access=plane)
    without, spread = Tenant.new(server, mode=None), Tenant.new(server)
    settings = tmp_path / "settings.yaml"
    settings.write_text(json.dumps(SPREADING))

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        kubeconfig = plane.kubeconfig_for("admin", ["system:masters"])
        command = [sys.executable, "-m", "webhook", *arguments, f"--kubeconfig={kubeconfig}", f"--config={settings}"]
        return subprocess.run([*command, "-o", "json"], check=False, capture_output=True, text=True, cwd=ROOT)

    def doctor() -> dict[str, Json]:
        report = json.loads(run("doctor").stdout)
        return {finding["subject"]: finding for finding in report["findings"] if finding["check"] == "spread"}

    for number in range(MACHINES):
        without.launch(without.start(vm(f"vm-{number}")))
    piled = placed(without, MACHINES)
    before = doctor()

    counts = Counter(piled[f"node-{number}"] for number in range(NODES))
    assert before["VMs"]["figures"]["vmsPerNode"] == [
        {"vms": vms, "nodes": nodes} for vms, nodes in sorted(counts.items())
    ]
    # Only since this score counts what a pod changes does it prefer used nodes.
    biased = before["NodeResourcesBalancedAllocation"]["figures"]["biasedNodes"]
    assert biased == (NODES if versions.BALANCE_BY_CHANGE.is_there else 0)
    shown = before["launcher image"]["figures"]
    assert (shown["image"], shown["listing"], shown["withoutItAndFull"]) == (image, NODES // 2, NODES // 2)
    # By the estimate VMs pile up as things are, and so they did.
    estimate = before["estimate"]["figures"]
    assert estimate["asNow"]["nodesWithoutVms"] > 0
    assert len(piled) < NODES
    assert (before["cure"]["verdict"], estimate["cheapest"]) == ("warning", "constraint")

    # The constraint then does what doctor reports.
    plane.admin.delete_all(PODS, without.namespace, gracePeriodSeconds="0")
    for number in range(MACHINES):
        spread.launch(spread.start(vm(f"vm-{number}")))
    assert estimate["cures"][1]["cure"] == "constraint"
    assert estimate["cures"][1]["vmsStandardDeviation"] == 0
    assert set(placed(spread, MACHINES).values()) == {MACHINES // NODES}
    assert doctor()["cure"]["verdict"] == "ok"

    explained = run("explain", "spread", f"{spread.namespace}/vm-0")
    assert (explained.returncode, json.loads(explained.stdout)["injected"]) == (0, [CONSTRAINT])
    assert run("explain", "spread", f"{without.namespace}/vm-0").returncode == 1


@pytest.fixture
def spreading(module_webhook: ModuleWebhook) -> WebhookServer:
    return module_webhook(SPREADING)


def test_launcher_pods_and_target_pods_get_constraints_and_no_warning(
    spreading: WebhookServer, new_tenant: NewTenant
) -> None:
    tenant = new_tenant(server=spreading)
    vmi = tenant.start(vm())
    pods = [tenant.pod(launcher_of(vmi)), tenant.pod(migration_target_of(vmi))]

    for pod in pods:
        assert constraints(pod) == [CONSTRAINT]
        assert pod["metadata"]["annotations"][names.INJECTED_SPREAD_ANNOTATION] == "hostname"
        assert pod["spec"]["schedulerName"] == "default-scheduler"
        assert not pod.warnings


def test_a_namespace_chooses_for_itself_and_gets_zones_only_where_nodes_have_them(
    own_plane: OwnPlane, new_webhook: NewWebhook
) -> None:
    plane = own_plane()
    nodes = {"node-a": {ZONE: "a"}, "node-b": {ZONE: "b"}, "node-c": {ZONE: "b", "disk": "ssd"}}
    for name, labels in nodes.items():
        make_node(plane.admin, name, labels)
    tenant = Tenant.new(new_webhook(SPREADING, access=plane))
    plane.admin.patch(
        "v1/namespaces", tenant.namespace, {"metadata": {"annotations": {names.SPREAD_ANNOTATION: "both"}}}
    )

    def keys(name: str) -> list[str]:
        pod = tenant.launch(tenant.start(vm(name)))
        return [constraint["topologyKey"] for constraint in constraints(pod)]

    assert keys("all") == [ZONE, "kubernetes.io/hostname"]
    plane.admin.patch("v1/nodes", "node-a", {"metadata": {"labels": {ZONE: None}}})
    attempts = itertools.count()
    eventually(lambda: keys(f"some-{next(attempts)}") == ["kubernetes.io/hostname"], what="the label's end to be known")


class TestInVms:
    @pytest.fixture
    def tenant(self, module_webhook: ModuleWebhook, new_tenant: NewTenant) -> Tenant:
        scheduling = {"spread": "hostname", "spreadVirtualMachines": True}
        return new_tenant(server=module_webhook({"schedulers": {}, "scheduling": scheduling}))

    @staticmethod
    def spread(found: KubeObject) -> Any:
        return found["spec"]["template"]["spec"].get("topologySpreadConstraints")

    def test_they_are_written_and_an_overwrite_gets_them_back(self, tenant: Tenant) -> None:
        created = tenant.create(vm())
        assert self.spread(created) == [CONSTRAINT]

        assert self.spread(tenant.overwrite(created, vm())) == [CONSTRAINT]

    @pytest.mark.parametrize("writing", ["server-side apply", "merge patch"])
    def test_they_give_way_to_what_the_owner_writes_later(self, tenant: Tenant, writing: str) -> None:
        applied = {**vm("later"), "metadata": {"name": "later", "namespace": tenant.namespace}}
        assert self.spread(tenant.owner.apply(applied)) == [CONSTRAINT]
        wanted = {**CONSTRAINT, "maxSkew": 5, "labelSelector": {"matchLabels": {"app": "web"}}}
        del wanted["nodeTaintsPolicy"]
        if writing == "server-side apply":
            applied["spec"]["template"]["spec"]["topologySpreadConstraints"] = [wanted, OWN]
            result = tenant.owner.apply(applied)
        else:
            template = {"spec": {"topologySpreadConstraints": [wanted, OWN]}}
            result = tenant.owner.patch(VMS, "later", {"spec": {"template": template}}, tenant.namespace)

        assert self.spread(result) == [wanted, OWN]
        assert names.INJECTED_SPREAD_ANNOTATION not in result["metadata"].get("annotations", {})
        assert len(result.warnings) == 1
