"""VMs that request what only their own node has: to drains, migrations and the descheduler it is the only node."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping

import msgspec
import pytest

from tests.builders import read_node
from tests.e2e.support.foreign_webhook import DESCHEDULER
from tests.e2e.support.kube import Json, KubeError, KubeObject, eventually
from tests.e2e.support.objects import CRDS, obj, open_crd
from tests.e2e.support.rbac import account, grant
from tests.e2e.support.webhook_server import WebhookServer
from tests.e2e.support.workloads import MIGRATIONS, PODS, VMIS
from tests.e2e.support.workloads import VMS as VIRTUAL_MACHINES
from webhook.kubevirt.config import ClusterConfig
from webhook.kubevirt.types.views import KubeVirt as KubeVirtView
from webhook.placement.demand import is_sidecar, sum_requests, target_pod_demand
from webhook.placement.machines import LauncherPod, Vmi
from webhook.placement.nodes import parse_allocatable, to_scheduler_units

from .control_plane import KUBEVIRTS, NAMESPACE, ZONES, RunningKubeVirt
from .place import Place

pytestmark = pytest.mark.kubevirt

# A label that all nodes have: it adds nothing, but lets the webhook deny.
ANYWHERE = {"kubernetes.io/os": "linux"}
HERE, SECOND, *OTHERS = sorted(ZONES)
DEVICE, NETWORK, NAMED = "example.com/gpu", "example.com/vf", "example.com/license"
NADS = "k8s.cni.cncf.io/v1/network-attachment-definitions"
# These resources make HERE the only node on which these VMs fit.
OFFERED = {DEVICE: "2", NETWORK: "4", NAMED: "3", "hugepages-2Mi": "8Gi", "memory": "256Gi", "cpu": "64"}
SRIOV: Json = {
    "domain": {"devices": {"interfaces": [{"name": "fast", "sriov": {}}]}},
    "networks": [{"name": "fast", "multus": {"networkName": "fast"}}],
}
VMS: Mapping[str, Json] = {
    DEVICE: {"domain": {"devices": {"gpus": [{"name": "gpu", "deviceName": DEVICE}]}}},
    NETWORK: SRIOV,
    NAMED: {"domain": {"devices": {}, "resources": {"requests": {NAMED: "2"}, "limits": {NAMED: "2"}}}},
    "hugepages-2Mi": {"domain": {"devices": {}, "memory": {"guest": "1Gi", "hugepages": {"pageSize": "2Mi"}}}},
    "memory": {"domain": {"devices": {}, "memory": {"guest": "100Gi"}}},
    "cpu": {"domain": {"devices": {}, "memory": {"guest": "1Gi"}, "resources": {"requests": {"cpu": "40"}}}},
}


@pytest.fixture(scope="module", autouse=True)
def _offered(real: RunningKubeVirt) -> Iterator[None]:
    """The additional resources of the node HERE; KubeVirt may pass its device on."""
    admin = real.plane.admin
    device = {"pciVendorSelector": "10DE:1EB8", "resourceName": DEVICE, "externalResourceProvider": True}
    # Else KubeVirt leaves the resources of networks to a webhook of another project.
    gates = {"disabledFeatureGates": ["ExternalNetResourceInjection"]}
    real.configure(permittedHostDevices={"pciHostDevices": [device]}, developerConfiguration=gates)
    admin.create(
        CRDS, open_crd("network-attachment-definitions", "k8s.cni.cncf.io", "NetworkAttachmentDefinition", "v1")
    )
    # The permissions that virt-operator grants to virt-controller while that feature gate is closed.
    rule = {"apiGroups": ["k8s.cni.cncf.io"], "resources": ["network-attachment-definitions"], "verbs": ["get"]}
    grant(admin, "kubevirt-controller-networks", [rule], subject=account(NAMESPACE, "kubevirt-controller"))
    before = admin.get("v1/nodes", HERE)["status"]["allocatable"]
    _offer(real, HERE, OFFERED)
    yield
    _offer(real, HERE, {name: before.get(name) for name in OFFERED})
    real.configure(permittedHostDevices=None, developerConfiguration={"disabledFeatureGates": None})
    admin.delete(CRDS, "network-attachment-definitions.k8s.cni.cncf.io")


@pytest.fixture(autouse=True)
def _left(place: Place) -> Iterator[None]:
    """Large VMs would fill the nodes of the tests that follow."""
    yield
    place.admin.delete_all(VIRTUAL_MACHINES, place.namespace)
    eventually(lambda: not place.admin.list(VMIS, place.namespace), what="the VMs to be gone")
    eventually(lambda: not place.admin.list(PODS, place.namespace), what="their pods to be gone")


def _offer(real: RunningKubeVirt, node: str, amounts: Mapping[str, str | None]) -> None:
    status = {"capacity": dict(amounts), "allocatable": dict(amounts)}
    real.plane.admin.patch("v1/nodes", node, {"status": status}, subresource="status")


def _network(place: Place) -> None:
    annotations = {"k8s.v1.cni.cncf.io/resourceName": NETWORK}
    made = obj(
        "NetworkAttachmentDefinition", "fast", "k8s.cni.cncf.io/v1", annotations=annotations, spec={"config": "{}"}
    )
    eventually(lambda: place.admin.create(NADS, made, place.namespace), what="the API server to serve networks")


@pytest.mark.parametrize("resource", sorted(VMS))
def test_a_vm_whose_only_node_is_its_own(place: Place, server: WebhookServer, resource: str) -> None:
    if resource == NETWORK:
        _network(place)
    place.vm(template=VMS[resource])
    assert place.running()["status"]["nodeName"] == HERE

    answer = place.explained()
    (reason,) = (reason for reason in answer["reasons"] if reason["origin"] == "resources")
    assert (answer["eligible"]["count"], reason["nodes"]["names"]) == (0, [SECOND, *OTHERS])
    assert f"insufficient allocatable {resource} " in reason["text"]
    assert answer["gaps"] == []

    with pytest.raises(KubeError, match=rf"0/4 nodes .*3 node\(s\) with insufficient allocatable {resource} "):
        place.migrate(**ANYWHERE)
    denial = place.evict(place.launcher(), DESCHEDULER)
    assert denial.status == 429
    assert f"3 node(s) with insufficient allocatable {resource} " in denial.message

    # The webhook predicts the outcome: it warns the user, and does not deny the migration.
    migration = place.migrate()
    assert f"insufficient allocatable {resource}" in migration.warnings[0]
    pod = eventually(place.unschedulable, what="the scheduler to find no node")
    said = next(one["message"] for one in pod["status"]["conditions"] if one["type"] == "PodScheduled")
    assert f"Insufficient {resource}" in said
    place.admin.delete(MIGRATIONS, migration["metadata"]["name"], place.namespace)


def test_a_second_node_that_offers_it_is_where_the_vm_goes(place: Place) -> None:
    place.vm(template=VMS[DEVICE])
    assert place.running()["status"]["nodeName"] == HERE
    _offer(place.real, SECOND, {DEVICE: "1"})
    try:
        eventually(lambda: _migrates(place), what="the webhook to see what the node offers")

        eventually(lambda: place.running()["status"]["nodeName"] == SECOND, what="the VM to move")
        assert place.explained()["eligible"]["names"] == [HERE]
    finally:
        _offer(place.real, SECOND, {DEVICE: None})


def _migrates(place: Place) -> bool:
    try:
        place.migrate(**ANYWHERE)
    except KubeError as error:
        assert "insufficient allocatable" in error.message
        return False
    return True


POOLED = "pooled-later"
SHAPES: Mapping[str, Json] = {
    "small": {"memory": {"guest": "1Gi"}},
    "threads": {"cpu": {"sockets": 3, "cores": 2, "threads": 2}, "memory": {"guest": "1500M"}},
    "pooled": {
        "cpu": {"cores": 3},
        "memory": {"guest": "1Gi"},
        "ioThreadsPolicy": "supplementalPool",
        "ioThreads": {"supplementalPoolThreadCount": 4},
    },
    "requested": {
        "cpu": {"cores": 2},
        "memory": {"guest": "2Gi"},
        "resources": {"requests": {"cpu": "700m", "memory": "1Gi"}, "limits": {"cpu": "2", "memory": "3Gi"}},
    },
    "limited": {"memory": {"guest": "1Gi"}, "resources": {"limits": {"cpu": "1", "memory": "2Gi"}}},
    "without-overhead": {
        "memory": {"guest": "2Gi"},
        "resources": {"requests": {"memory": "1Gi"}, "overcommitGuestOverhead": True},
    },
    "huge": {"memory": {"guest": "512Mi", "hugepages": {"pageSize": "2Mi"}}},
    "huge-and-more": {
        "memory": {"guest": "256Mi", "hugepages": {"pageSize": "2Mi"}},
        "resources": {"requests": {"memory": "512Mi"}},
    },
    "devices": {"memory": {"guest": "1Gi"}, "devices": {"gpus": [{"name": "one", "deviceName": DEVICE}]}},
}


def test_what_a_target_pod_will_request_is_known(place: Place) -> None:
    """Before KubeVirt makes it, and also where the settings have changed since the present pod was made."""
    for name, domain in SHAPES.items():
        for turn in ("first", "later"):
            place.vm(f"{name}-{turn}", template={"domain": {"devices": {}, **domain}})
    later = [f"{name}-later" for name in SHAPES]
    first = {name: _predicted(place, name) for name in (f"{name}-first" for name in SHAPES)}
    assert first == {name: _rendered(place, name) for name in first}
    before = {name: _predicted(place, name) for name in later}

    place.real.configure(developerConfiguration={"cpuAllocationRatio": 4, "memoryOvercommit": 200})
    try:
        numbers = itertools.count()
        eventually(lambda: _cpu_of_a_new_vm(place, next(numbers)) == 250, what="the ratio to be in force")
        predicted = {name: _predicted(place, name) for name in later}
        rendered = {name: _rendered(place, name) for name in later}
    finally:
        place.real.configure(developerConfiguration={"cpuAllocationRatio": None, "memoryOvercommit": None})
    assert sum(predicted[name] != before[name] for name in later) >= len(later) // 2
    # Older KubeVirts count no threads of I/O pools, so only what both request is certain.
    assert predicted.pop(POOLED)["cpu"] < rendered.pop(POOLED)["cpu"]
    assert predicted == rendered


def _predicted(place: Place, name: str) -> dict[str, int]:
    vmi, pod = place.running(name), msgspec.convert(place.launcher(name), LauncherPod)
    node = read_node(place.admin.get("v1/nodes", vmi["status"]["nodeName"]))
    kubevirt = msgspec.convert(place.admin.get(KUBEVIRTS, "kubevirt", NAMESPACE), KubeVirtView)
    found = target_pod_demand(msgspec.convert(vmi, Vmi), pod, node, ClusterConfig.of_kubevirt(kubevirt))
    assert found.gaps == ()
    return found.requests


def _rendered(place: Place, name: str) -> dict[str, int]:
    """The requests of a migration's target pod; then the VM is given up, so that it takes no place of another."""
    migration = place.migrate(name)

    def target() -> KubeObject | None:
        uid, key = migration["metadata"]["uid"], "kubevirt.io/migrationJobUID"
        return next((pod for pod in place.launchers(name) if pod["metadata"]["labels"].get(key) == uid), None)

    found = msgspec.convert(eventually(target, what=f"a target pod of {name}"), LauncherPod)
    place.admin.delete(VIRTUAL_MACHINES, name, place.namespace)
    place.admin.delete(MIGRATIONS, migration["metadata"]["name"], place.namespace)
    spec = found.spec
    assert spec
    whole = sum_requests(
        [each.requests for each in spec.containers or () if each],
        [(each.requests, is_sidecar(each)) for each in spec.init_containers or () if each],
    )
    return {name: to_scheduler_units(name, value) for name, value in sorted(whole.items())}


def _cpu_of_a_new_vm(place: Place, number: int) -> int:
    name = f"new-{number}"
    place.vm(name, template={"domain": {"devices": {}, "memory": {"guest": "64Mi"}, "cpu": {"cores": 1}}})
    pods = eventually(lambda: place.launchers(name), what="a pod")
    place.admin.delete(VIRTUAL_MACHINES, name, place.namespace)
    compute = next(one for one in pods[0]["spec"]["containers"] if one["name"] == "compute")
    return parse_allocatable(compute["resources"]["requests"])["cpu"]
