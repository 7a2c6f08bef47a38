"""VMs that request what only their own node has: to drains, migrations and the descheduler it is the only node."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from tests.e2e.kube import ApiError, Json, eventually
from tests.e2e.objects import CRDS
from tests.e2e.webhook_server import ROOT, WebhookServer
from tests.e2e.workloads import MIGRATIONS

from .control_plane import NAMESPACE, ZONES, KubeVirt
from .place import Place

pytestmark = pytest.mark.kubevirt

DESCHEDULER = {"requested-by": "sigs.k8s.io/descheduler"}
# A label that all nodes have: it adds nothing, but lets the webhook deny.
ANYWHERE = {"kubernetes.io/os": "linux"}
HERE, SECOND, *OTHERS = sorted(ZONES)
DEVICE, NETWORK, NAMED = "example.com/gpu", "example.com/vf", "example.com/license"
NADS = "k8s.cni.cncf.io/v1/network-attachment-definitions"
# What makes HERE the only node on which these VMs fit.
OFFERED = {DEVICE: "2", NETWORK: "4", NAMED: "3", "hugepages-2Mi": "8Gi", "memory": "256Gi", "cpu": "64"}
SRIOV: Json = {
    "domain": {"devices": {"interfaces": [{"name": "fast", "sriov": {}}]}},
    "networks": [{"name": "fast", "multus": {"networkName": "fast"}}],
}
VMS: Mapping[str, Json] = {
    DEVICE: {"domain": {"devices": {"gpus": [{"name": "gpu", "deviceName": DEVICE}]}}},
    NETWORK: SRIOV,
    NAMED: {"domain": {"devices": {}, "resources": {"requests": {NAMED: "2"}, "limits": {NAMED: "2"}}}},
    "hugepages-2Mi": {
        "domain": {"devices": {}, "memory": {"guest": "1Gi", "hugepages": {"pageSize": "2Mi"}}},
    },
    "memory": {"domain": {"devices": {}, "memory": {"guest": "100Gi"}}},
    "cpu": {
        "domain": {"devices": {}, "memory": {"guest": "1Gi"}, "resources": {"requests": {"cpu": "40"}}},
    },
}


@pytest.fixture(scope="module", autouse=True)
def _offered(real: KubeVirt) -> Iterator[None]:
    """What HERE has beside what every node has; KubeVirt may pass its device on."""
    admin = real.plane.admin
    device = {"pciVendorSelector": "10DE:1EB8", "resourceName": DEVICE, "externalResourceProvider": True}
    # Else KubeVirt leaves the resources of networks to a webhook of another project.
    gates = {"disabledFeatureGates": ["ExternalNetResourceInjection"]}
    real.configure(permittedHostDevices={"pciHostDevices": [device]}, developerConfiguration=gates)
    admin.create(CRDS, _networks())
    for granted in _grants():
        admin.create(admin.resource_of(granted), granted)
    before = admin.get("v1/nodes", HERE)["status"]["allocatable"]
    _offer(real, HERE, OFFERED)
    yield
    _offer(real, HERE, {name: before.get(name) for name in OFFERED})
    real.configure(permittedHostDevices=None, developerConfiguration={"disabledFeatureGates": None})
    admin.delete(CRDS, "network-attachment-definitions.k8s.cni.cncf.io")


def _offer(real: KubeVirt, node: str, amounts: Mapping[str, str | None]) -> None:
    status = {"capacity": dict(amounts), "allocatable": dict(amounts)}
    real.plane.admin.patch("v1/nodes", node, {"status": status}, subresource="status")


def _networks() -> Json:
    names = {
        "plural": "network-attachment-definitions",
        "singular": "network-attachment-definition",
        "kind": "NetworkAttachmentDefinition",
    }
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    version = {"name": "v1", "served": True, "storage": True, "schema": schema}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{names['plural']}.k8s.cni.cncf.io"},
        "spec": {"group": "k8s.cni.cncf.io", "scope": "Namespaced", "names": names, "versions": [version]},
    }


def _grants() -> tuple[Json, Json]:
    """What virt-operator grants to virt-controller while that feature gate is closed."""
    group = {"apiGroup": "rbac.authorization.k8s.io"}
    metadata = {"name": "kubevirt-controller-networks"}
    rule = {"apiGroups": ["k8s.cni.cncf.io"], "resources": ["network-attachment-definitions"], "verbs": ["get"]}
    account = {"kind": "ServiceAccount", "namespace": NAMESPACE, "name": "kubevirt-controller"}
    made: Json = {"apiVersion": f"{group['apiGroup']}/v1", "metadata": metadata}
    binding = {"kind": "ClusterRoleBinding", "roleRef": {**group, "kind": "ClusterRole", **metadata}}
    return {**made, "kind": "ClusterRole", "rules": [rule]}, {**made, **binding, "subjects": [account]}


def _network(place: Place) -> None:
    made = {
        "apiVersion": "k8s.cni.cncf.io/v1",
        "kind": "NetworkAttachmentDefinition",
        "metadata": {"name": "fast", "annotations": {"k8s.v1.cni.cncf.io/resourceName": NETWORK}},
        "spec": {"config": "{}"},
    }

    def create() -> bool:
        try:
            place.create(NADS, made)
        except ApiError as error:
            if error.status != 404:
                raise
            return False
        return True

    eventually(create, what="the API server to serve networks")


def _explained(place: Place) -> Any:
    kubeconfig = place.real.plane.kubeconfig_for("admin", ["system:masters"])
    command = [sys.executable, "-m", "webhook", "explain", "migration", f"{place.namespace}/web", "-o", "json"]
    done = subprocess.run(
        [*command, f"--kubeconfig={kubeconfig}"], check=False, capture_output=True, text=True, cwd=ROOT
    )
    assert done.stdout, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("resource", sorted(VMS))
def test_a_vm_whose_only_node_is_its_own(place: Place, server: WebhookServer, resource: str) -> None:
    if resource == NETWORK:
        _network(place)
    place.vm(template=VMS[resource])
    assert place.running()["status"]["nodeName"] == HERE

    answer = _explained(place)
    (reason,) = (reason for reason in answer["reasons"] if reason["origin"] == "resources")
    assert (answer["eligible"]["count"], reason["nodes"]["names"]) == (0, [SECOND, *OTHERS])
    assert f"insufficient allocatable {resource} " in reason["text"]
    assert answer["gaps"] == []

    with pytest.raises(ApiError, match=f"no eligible node: of 4, .*3 with insufficient allocatable {resource} "):
        place.migrate(**ANYWHERE)
    vetoed = place.evict(place.launcher(), DESCHEDULER)
    assert vetoed.status == 429
    assert f"3 with insufficient allocatable {resource} " in vetoed.message

    # What the webhook says is what comes of it: nobody is kept from trying, but warned.
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

        eventually(lambda: place.running()["status"]["nodeName"] == SECOND, what="the VM to move", timeout=60)
        assert _explained(place)["eligible"]["names"] == [HERE]
    finally:
        _offer(place.real, SECOND, {DEVICE: None})


def _migrates(place: Place) -> bool:
    try:
        place.migrate(**ANYWHERE)
    except ApiError as error:
        assert "insufficient allocatable" in error.message
        return False
    return True
