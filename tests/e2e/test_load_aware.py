"""The load-aware configurations, run by the kube-scheduler of scheduler-plugins beside a real Prometheus."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from hack.controlplane import bundles
from hack.debian import MissingError
from webhook.cli.data import directory
from webhook.install.schedulers.render import CONFIGURATION_KEY, LOAD_AWARE, Variant, configuration

from .conftest import OwnPlane
from .support import manifests, second_scheduler
from .support.audited import AuditLog
from .support.lent import LentPlane
from .support.manifests import MANIFESTS
from .support.objects import install_crds, make_node, obj
from .support.placing import place
from .support.plane import ControlPlane
from .support.processes import StartError
from .support.prometheus import BusyNodes, NodePrometheus
from .support.second_scheduler import ACCOUNT, NAME, SchedulerReplica

pytestmark = pytest.mark.builds("scheduler-plugins")

PAGE = Path(__file__).resolve().parents[2] / "docs" / "scheduler-variants.md"
# What VMs on the nodes use, whatever they request.
BUSY = {"node-0": 0.85, "node-1": 0.25, "node-2": 0.05}
PODS_PLACED = 6
METRICS = "metrics.k8s.io"
# The page has these figures. A VM that requests 100m counts as half a CPU of 16: after four of them 40 % are near.
EXPECTED = {"load-aware": {"node-2": 6}, "load-aware-pack": {"node-1": 4, "node-2": 2}}


@pytest.fixture(scope="module")
def binary(built: Callable[[bundles.Bundle], Path]) -> Path:
    """The kube-scheduler of scheduler-plugins."""
    return built(bundles.SCHEDULER_PLUGINS) / "kube-scheduler"


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodePrometheus]:
    """A Prometheus that knows what the nodes use, by the recording rules that the page gives."""
    (written,) = re.findall(r"```yaml\n(groups:\n.*?)```", PAGE.read_text(), re.DOTALL)
    groups = yaml.safe_load(written)["groups"]
    try:
        with (
            BusyNodes(BUSY) as nodes,
            NodePrometheus(tmp_path_factory.mktemp("prometheus"), nodes, list(BUSY), groups) as running,
        ):
            for rule in groups[0]["rules"]:
                # A node that seems 0.6 points less busy gets one VM more.
                running.wait_for(f"avg_over_time({rule['record']}[15m])", BUSY, within=0.005)
            yield running
    except MissingError as reason:
        pytest.skip(str(reason))


@pytest.fixture
def plane(own_plane: OwnPlane) -> LentPlane:
    started = own_plane()
    for name in BUSY:
        make_node(started.admin, name)
    return started


@pytest.fixture
def log(plane: LentPlane) -> AuditLog:
    return plane.requests_of(ACCOUNT.user)


def apply(plane: ControlPlane, variant: Variant, url: str = "") -> None:
    """What `install --with scheduler` applies, with the Prometheus of `--prometheus`."""
    second_scheduler.apply(plane, variant)
    if url:
        written = configuration(MANIFESTS, variant, "second", url)
        plane.admin.patch("v1/configmaps", NAME, {"data": {CONFIGURATION_KEY: written}}, NAME)


def serve_usage(plane: ControlPlane) -> None:
    """What metrics-server serves about nodes, as objects of the API server itself."""
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    spec = {
        "group": METRICS,
        "scope": "Cluster",
        "names": {"plural": "nodes", "singular": "node", "kind": "NodeMetrics", "listKind": "NodeMetricsList"},
        "versions": [{"name": "v1beta1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}],
    }
    approval = {"api-approved.kubernetes.io": "unapproved, a test"}
    install_crds(plane.admin, [obj("CustomResourceDefinition", f"nodes.{METRICS}", annotations=approval, spec=spec)])
    version, when = f"{METRICS}/v1beta1", {"timestamp": "2026-01-01T00:00:00Z", "window": "10s"}
    for name, busy in BUSY.items():
        used = {"cpu": f"{int(16_000 * busy)}m", "memory": f"{int(64 * 1024 * busy)}Mi"}
        plane.admin.create(f"{version}/nodes", obj("NodeMetrics", name, version, **when, usage=used))


@pytest.mark.parametrize("variant", LOAD_AWARE)
def test_with_prometheus_vms_go_where_the_load_says(
    plane: ControlPlane, tmp_path: Path, binary: Path, prometheus: NodePrometheus, log: AuditLog, variant: Variant
) -> None:
    apply(plane, variant, prometheus.url)
    assert_places(SchedulerReplica(plane, tmp_path, "replica", binary), plane, log, variant)


def assert_places(replica: SchedulerReplica, plane: ControlPlane, log: AuditLog, variant: Variant) -> None:
    """It puts VMs where the load says, by the variant's own permissions."""
    try:
        replica.start()
        assert place(plane.admin, PODS_PLACED) == EXPECTED[variant]
    finally:
        replica.kill()
    assert log.refused() == set()
    granted = manifests.granted(second_scheduler.documents(variant))
    assert {right for right in log.used() if not any(manifests.covers(one, right) for one in granted)} == set()


@pytest.mark.parametrize("variant", LOAD_AWARE)
def test_with_metrics_server_too_and_with_no_further_permission_than_the_variants_own(
    plane: ControlPlane, tmp_path: Path, binary: Path, log: AuditLog, variant: Variant
) -> None:
    serve_usage(plane)
    apply(plane, variant)
    replica = SchedulerReplica(plane, tmp_path, "replica", binary, in_cluster="KUBE_CONFIG")
    assert_places(replica, plane, log, variant)
    assert ("list", METRICS, "nodes", "") in log.used()


def test_by_requests_alone_the_busy_node_gets_as_many_vms_as_the_others(plane: ControlPlane) -> None:
    written: dict[str, Any] = yaml.safe_load((directory("manifests") / "scheduler" / "spread.yaml").read_text())
    written.pop("leaderElection")
    plane.start_scheduler("spread", written)

    assert set(place(plane.admin, PODS_PLACED).values()) == {PODS_PLACED // len(BUSY)}


def test_in_a_static_pod_metrics_server_is_not_found_without_a_kubeconfig(
    plane: ControlPlane, tmp_path: Path, binary: Path
) -> None:
    """It is named by KUBE_CONFIG, since the plugin does not read the kubeconfig of the configuration."""
    apply(plane, "load-aware")
    replica = SchedulerReplica(plane, tmp_path, "replica", binary)
    with pytest.raises(StartError):
        replica.start()
    replica.kill()
