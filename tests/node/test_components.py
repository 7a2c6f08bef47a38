"""Every component of the manifests on a node: replicas with it become ready, and serve."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.e2e.support.kube import eventually
from tests.e2e.support.manifests import MANIFESTS

from .support import NAMESPACE, ROOT, SETTINGS, NodeInstallation, accepts

# Those for cert-manager have tests of their own; kinds of the Prometheus operator and KubeVirt's Plugin are not served
# here.
ELSEWHERE = {"cert-manager", "metrics-monitoring-cert-manager"}
FOREIGN = {"monitoring", "metrics-monitoring", "kubevirt-plugin"}
NATIVE = sorted({each.name for each in (MANIFESTS / "components").iterdir()} - ELSEWHERE - FOREIGN)
LAYERS_CA = "/etc/kubevirt-webhook-layers/ca.crt"
# What switches on what the components permit.
WITH_ALL: dict[str, Any] = {
    **SETTINGS,
    "events": "on",
    "preemption": {"requestMigrations": True},
    "headroom": {"enabled": True},
    "admin": {"listen": "0.0.0.0:8090", "metrics": True},
    "layers": {"listen": "0.0.0.0:8446", "clientCaFile": LAYERS_CA, "clientNames": ["system:kube-scheduler"]},
    "instancetypes": {"fidelityCheck": {"sample": 5}},
    "driftScan": {"everyMinutes": 1, "policyReports": True},
}


@pytest.fixture
def empty(node: NodeInstallation) -> Iterator[NodeInstallation]:
    node.run("uninstall")
    yield node
    node.remove_everything()


def test_all_of_them_together(empty: NodeInstallation, tmp_path: Path) -> None:
    node = empty
    for definition in yaml.safe_load_all((ROOT / "tests" / "e2e" / "policyreports.yaml").read_text()):
        node.admin.apply(definition)
    node.admin.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
    secret = {"metadata": {"name": "kubevirt-webhook-layers"}, "stringData": {"ca.crt": node.pki.ca.read_text()}}
    node.admin.create("v1/secrets", secret, NAMESPACE)

    node.apply(tmp_path, *NATIVE, settings=WITH_ALL)
    node.offer_namespace()

    # Every port of the Service leads to replicas that listen there.
    ports = {port["name"] for port in node.admin.get("v1/services", NAMESPACE, NAMESPACE)["spec"]["ports"]}
    assert {"admin", "layers"} <= ports
    for pod in node.ready_pods():
        for port in (8443, 8090, 8446):
            assert accepts(pod["status"]["podIP"], port), port
    assert node.logs("forbidden") == []
    eventually(
        lambda: node.admin.get("autoscaling/v2/horizontalpodautoscalers", NAMESPACE, NAMESPACE)["status"],
        what="the autoscaler to have looked at the Deployment",
    )
