"""The component autoscaling beside the real metrics-server: the autoscaler reads what the replicas use."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from hack.controlplane.build import location
from hack.controlplane.bundles import METRICS_SERVER
from hack.node.cluster import NodeCluster
from tests.e2e.support.kube import Json, eventually
from tests.e2e.support.objects import has_condition, obj
from tests.e2e.support.pki import ADMIN
from tests.e2e.support.processes import Process

from .support import NAMESPACE, NodeInstallation, accepts

PORT = 10443
AUTOSCALERS = "autoscaling/v2/horizontalpodautoscalers"
METRICS = f"/apis/metrics.k8s.io/v1beta1/namespaces/{NAMESPACE}/pods"
SYSTEM = "kube-system"
NAME: Json = {"name": "metrics-server", "namespace": SYSTEM}
HTTPS = {"name": "https", "protocol": "TCP", "port": PORT}
SERVICE = obj("Service", **NAME, spec={"ports": [{**HTTPS, "port": 443, "targetPort": PORT}]})
SLICE = obj("EndpointSlice", **NAME, labels={"kubernetes.io/service-name": "metrics-server"}, addressType="IPv4")
SLICE |= {"ports": [HTTPS], "endpoints": [{"addresses": [NodeCluster.ADDRESSES[0]], "conditions": {"ready": True}}]}
GROUP = {"group": "metrics.k8s.io", "version": "v1beta1", "groupPriorityMinimum": 100, "versionPriority": 100}
API = obj("APIService", "v1beta1.metrics.k8s.io", spec={**GROUP, "service": NAME, "insecureSkipTLSVerify": True})


@pytest.fixture
def metrics_server(node: NodeInstallation) -> Iterator[None]:
    kubeconfig = node.kubeconfig_for(*ADMIN)
    command = [
        str(location(os.environ, bundle=METRICS_SERVER) / "metrics-server"),
        *(f"--{name}kubeconfig={kubeconfig}" for name in ("", "authentication-", "authorization-")),
        *(f"--secure-port={PORT}", f"--cert-dir={node.directory / 'metrics-server'}", "--metric-resolution=10s"),
        *("--kubelet-request-timeout=5s", "--kubelet-insecure-tls", "--kubelet-use-node-status-port"),
        "--kubelet-preferred-address-types=InternalIP",
    ]
    process = Process("metrics-server", command, node.directory / "logs" / "metrics-server.log")
    process.start()
    process.wait_ready(lambda: accepts(NodeCluster.ADDRESSES[0], PORT))
    for manifest in (SERVICE, SLICE, API):
        node.admin.apply(manifest)
    yield
    # An API whose server is gone would keep namespaces from being deleted.
    node.admin.delete("apiregistration.k8s.io/v1/apiservices", "v1beta1.metrics.k8s.io")
    process.kill()


def autoscaler_sees(node: NodeInstallation) -> Json | None:
    autoscaler = node.admin.get(AUTOSCALERS, NAMESPACE, NAMESPACE)
    if not has_condition(autoscaler, "ScalingActive"):
        return None
    (metric,) = autoscaler["status"]["currentMetrics"]
    current: Json = metric["resource"]["current"]
    return current


def test_the_autoscaler_reads_what_replicas_use(node: NodeInstallation, metrics_server: None, tmp_path: Path) -> None:
    node.run("uninstall")
    try:
        node.apply(tmp_path, "autoscaling")
        node.wait_ready()
        are_there = lambda: len(node.admin.request("GET", METRICS)["items"]) == 2
        eventually(are_there, what="metrics of both replicas", timeout=90)
        current = eventually(lambda: autoscaler_sees(node), what="the autoscaler to read metrics", timeout=150)
        assert "averageValue" in current
        # Idle replicas are not scaled beyond the least number.
        assert node.admin.get(AUTOSCALERS, NAMESPACE, NAMESPACE)["status"]["desiredReplicas"] == 2
    finally:
        node.remove_everything()
