"""The upstream descheduler on a node: what it would evict in vain goes on running, and it evicts what can move."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from hack.node.cluster import PAUSE
from tests.e2e.support.descheduler import evicting_every_vm
from tests.e2e.support.kube import Json, KubeObject, eventually
from tests.e2e.support.objects import NODE_LABELS, ensure_namespace
from tests.e2e.support.processes import Process
from tests.e2e.support.workloads import PODS, VMIS, launcher_of, vm, vmi_of

from .support import NodeInstallation

NAMESPACE = "evicted"
LABEL = "kubevirt-webhook.github.io/eviction"
KVM = "devices.kubevirt.io/kvm"
NOWHERE = {"example.com/zone": "nowhere"}
DENIED = "[no-eligible-node]"


@pytest.fixture
def nodes(installed: NodeInstallation) -> NodeInstallation:
    """Both nodes as KubeVirt's labeller and device plugins leave them."""
    for name in ("node-1", "node-2"):
        installed.admin.patch("v1/nodes", name, {"metadata": {"labels": dict(NODE_LABELS)}})
        capacity = {"status": {"capacity": dict.fromkeys((KVM, "devices.kubevirt.io/tun"), "100")}}
        installed.admin.patch("v1/nodes", name, capacity, subresource="status")
    ensure_namespace(installed.admin, NAMESPACE)
    installed.admin.patch("v1/namespaces", NAMESPACE, {"metadata": {"labels": {LABEL: "enforce"}}})
    return installed


def run(node: NodeInstallation, name: str, **spec: object) -> KubeObject:
    """A VM at work on the first node, whose launcher pod a kubelet runs; keywords go into its VMI's spec."""
    manifest = vmi_of(vm(name))
    domain: Json = {"devices": {}, "cpu": {"model": "host-passthrough"}, "machine": {"type": "q35"}}
    manifest["spec"] |= {"architecture": "amd64", "domain": domain, "evictionStrategy": "LiveMigrate"} | spec
    pod = launcher_of(node.admin.create(VMIS, manifest, NAMESPACE))
    pod["metadata"]["name"] = f"virt-launcher-{name}"
    container = {"name": "compute", "image": PAUSE, "imagePullPolicy": "Never"}
    pod["spec"] |= {"nodeName": "node-1", "nodeSelector": {}, "readinessGates": [], "containers": [container]}
    pod["spec"]["terminationGracePeriodSeconds"] = 1
    node.admin.create(PODS, pod, NAMESPACE)
    migratable = {"type": "LiveMigratable", "status": "True"}
    status = {"phase": "Running", "nodeName": "node-1", "conditions": [migratable]}
    return node.admin.patch(VMIS, name, {"status": status}, NAMESPACE)


def running(node: NodeInstallation) -> dict[str, str]:
    """The container ids of the launcher pods that kubelets run, by name."""
    return {
        pod["metadata"]["name"]: one["containerID"]
        for pod in node.admin.list(PODS, NAMESPACE)
        for one in pod["status"].get("containerStatuses", ())
        if "running" in one["state"] and "deletionTimestamp" not in pod["metadata"]
    }


@pytest.fixture
def descheduler(nodes: NodeInstallation, tmp_path: Path) -> Iterator[Process]:
    process = evicting_every_vm(nodes, NAMESPACE, tmp_path)
    yield process
    process.kill()
    nodes.kubectl("delete", "namespace", NAMESPACE, "--timeout=60s", timeout=70)


def test_a_vm_that_cannot_move_goes_on_running_and_another_is_evicted(
    nodes: NodeInstallation, descheduler: Process
) -> None:
    run(nodes, "stuck", nodeSelector=NOWHERE)
    run(nodes, "free")
    eventually(lambda: len(running(nodes)) == 2, what="kubelets to run the launcher pods")
    before = running(nodes)

    descheduler.start()
    eventually(lambda: "virt-launcher-free" not in running(nodes), what="the VM that can move to be evicted")
    eventually(lambda: descheduler.log.read_text().count(DENIED) >= 3, what="evictions to be denied")

    assert running(nodes) == {"virt-launcher-stuck": before["virt-launcher-stuck"]}
    lines = [line for line in descheduler.log.read_text().splitlines() if DENIED in line]
    assert all("virt-launcher-stuck" in line for line in lines)
    # A drain evicts it all the same.
    descheduler.stop()
    nodes.kubectl("drain", "node-1", "--pod-selector=kubevirt.io", "--force", "--timeout=60s", timeout=70)
    nodes.kubectl("uncordon", "node-1")
    assert running(nodes) == {}
