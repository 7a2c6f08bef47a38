"""The component manifests/scheduler/second and its variants, run by real kube-schedulers as its own account."""

from __future__ import annotations

import json
import os
import re
import signal
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Self

import pytest
import yaml

from hack.controlplane import build, bundles
from webhook.install.plan import title
from webhook.install.schedulers import render as permissions
from webhook.install.schedulers.render import CONFIGURATION_KEY, LOAD_AWARE, VARIANTS, Variant, configuration

from .conftest import OwnPlane
from .support import manifests, pki, versions
from .support.access import Access
from .support.audited import AuditLog
from .support.kube import PATIENCE, Json, Kube, denial, eventually
from .support.lent import SECOND_SCHEDULER, LentPlane
from .support.loopback import LoopbackServer, reply
from .support.manifests import MANIFESTS
from .support.objects import install_crds, is_unschedulable, make_node, obj, open_crd
from .support.placing import create, place, placed
from .support.plane import ControlPlane
from .support.processes import LOOPBACK, Process, StartError, free_port
from .support.rbac import account, grant
from .support.webhook_server import fetch
from .support.workloads import PODS

NAME = "kubevirt-scheduler"
LEASE = ("coordination.k8s.io/v1/leases", NAME, NAME)


def documents(variant: Variant = "spread") -> list[Json]:
    """What `install --with scheduler` applies."""
    return manifests.rendered(f"scheduler-{variant}")


def apply(plane: Access, variant: Variant = "spread", prometheus: str = "") -> None:
    """Has the API server take all of it, strictly, with the Prometheus of `--prometheus`."""
    for document in sorted(documents(variant), key=lambda one: one["kind"] != "Namespace"):
        plane.admin.apply(document, fieldValidation="Strict")
    if prometheus:
        written = configuration(MANIFESTS, variant, "second", prometheus)
        plane.admin.patch("v1/configmaps", NAME, {"data": {CONFIGURATION_KEY: written}}, NAME)


class SchedulerReplica(Process):
    """One replica of the Deployment, on a plane where the component has been applied.

    ``in_cluster`` is the environment variable by which a client finds what it finds by itself in a pod.
    """

    def __init__(self, plane: ControlPlane, directory: Path, name: str, binary: Path, *, in_cluster: str = "") -> None:
        self.port = free_port()
        kubeconfig = directory / f"{name}.kubeconfig"
        # In a pod it finds the API server and the token by itself.
        kubeconfig.write_text(pki.kubeconfig(plane.server, plane.pki.ca, {"token": plane.token(NAME, NAME)}))
        written = plane.admin.get("v1/configmaps", NAME, NAME)["data"]["config.yaml"]
        whole = {**yaml.safe_load(written), "clientConnection": {"kubeconfig": str(kubeconfig)}}
        config = directory / f"{name}.yaml"
        config.write_text(yaml.safe_dump(whole))
        deployment = plane.admin.get("apps/v1/deployments", NAME, NAME)
        (container,) = deployment["spec"]["template"]["spec"]["containers"]
        assert container["command"] == ["kube-scheduler"]
        given = {
            "--config=/etc/kubevirt-scheduler/config.yaml": f"--config={config}",
            "--secure-port=10259": f"--secure-port={self.port}",
        }
        assert given.keys() <= set(container["args"])
        arguments = [given.get(one, one) for one in container["args"]]
        own = [f"--authentication-kubeconfig={kubeconfig}", f"--authorization-kubeconfig={kubeconfig}"]
        given_by = ["/usr/bin/env", f"{in_cluster}={kubeconfig}"] if in_cluster else []
        command = [*given_by, str(binary), *arguments, *own, f"--bind-address={LOOPBACK}"]
        super().__init__(name, command, directory / f"{name}.log")

    def __enter__(self) -> Self:
        """Returns once the Deployment's probes would succeed."""
        self.start()
        try:
            self.wait_ready(lambda: fetch(self.port, "/healthz") == (200, "ok"))
        except StartError:
            self.kill()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()


def holder(plane: Access, other_than: str = "") -> str:
    """The holder of the Lease, once another replica than ``other_than`` holds it."""

    def held() -> str:
        found = str(plane.admin.get(*LEASE)["spec"].get("holderIdentity") or "")
        return found if found != other_than else ""

    return eventually(held, what="a replica to hold the Lease")


class BusyNodes(LoopbackServer):
    """What node-exporter says on several nodes, of which such shares of CPUs and memory are in use, each at a path."""

    def __init__(self, busy: Mapping[str, float]) -> None:
        self._busy = busy
        kind = {"Content-Type": "text/plain; version=0.0.4"}
        super().__init__(lambda handler: reply(handler, self._text(handler.path.strip("/")).encode(), headers=kind))

    def _text(self, node: str) -> str:
        busy, now, memory = self._busy[node], time.time(), 64 * 2**30
        seconds = [
            f'node_cpu_seconds_total{{cpu="{cpu}",mode="{mode}"}} {now * share:.3f}\n'
            for cpu in range(16)
            for mode, share in (("idle", 1 - busy), ("user", busy))
        ]
        available = f"node_memory_MemAvailable_bytes {memory * (1 - busy):.0f}\n"
        return "".join([f"node_memory_MemTotal_bytes {memory}\n", available, *seconds])


class NodePrometheus:
    """A Prometheus on loopback that scrapes such nodes, with groups of recording rules; a context manager."""

    def __init__(self, programs: Path, directory: Path, nodes: BusyNodes, groups: list[Any]) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        port = free_port()
        self.url = f"http://{LOOPBACK}:{port}"
        # Rules of a page have the intervals of a cluster, after whose length there is a rate.
        quick = [{**group, "interval": "1s"} for group in groups]
        self._rules = json.dumps({"groups": quick}).replace("[5m]", "[5s]")
        self._rules_file = directory / "rules.json"
        jobs = [
            {
                "job_name": f"node-exporter-{name}",
                "metrics_path": f"/{name}",
                "static_configs": [{"targets": [nodes.address], "labels": {"instance": name}}],
            }
            for name in BUSY
        ]
        content = {"global": {"scrape_interval": "1s"}, "rule_files": [self._rules_file.name], "scrape_configs": jobs}
        (directory / "prometheus.yml").write_text(json.dumps(content))
        command = [str(programs / "prometheus"), f"--config.file={directory / 'prometheus.yml'}"]
        command += [f"--storage.tsdb.path={directory / 'data'}", f"--web.listen-address={LOOPBACK}:{port}"]
        self._process = Process("prometheus", command, directory / "log")

    def __enter__(self) -> Self:
        self._process.start()
        # Rates of fewer scrapes than a window holds are rough, and would stay in averages: rules begin after that.
        self._process.wait_ready(lambda: bool(self.values("count_over_time(up[5s:1s]) >= 5 and up == 1")))
        self._rules_file.write_text(self._rules)
        os.kill(self._process.pid, signal.SIGHUP)
        return self

    def __exit__(self, *_: object) -> None:
        self._process.stop()

    def values(self, query: str) -> dict[str, float]:
        parameters = urllib.parse.urlencode({"query": query})
        with urllib.request.urlopen(f"{self.url}/api/v1/query?{parameters}", timeout=PATIENCE) as answer:
            result = json.load(answer)["data"]["result"]
        return {one["metric"]["instance"]: float(one["value"][1]) for one in result}


CLAIMS = "resource.k8s.io"
# Permissions that are granted but not always used here, with the reason.
UNUSED: dict[manifests.Right, str] = {
    ("update", CLAIMS, "resourceclaims/binding", ""): "no resource: the API server looks for it when a status changes",
    ("patch", CLAIMS, "resourceclaims/binding", ""): "the same",
    ("patch", CLAIMS, "resourceclaims/status", ""): "a claim that it gives back, after a pod could not be bound",
    ("delete", CLAIMS, "resourceclaims", ""): "a claim that it has made, for a pod that then does not fit",
    ("patch", "events.k8s.io", "events", ""): "an event that repeats after some minutes",
    ("list", CLAIMS, "devicetaintrules", ""): "Kubernetes 1.37 does",
    ("watch", CLAIMS, "devicetaintrules", ""): "the same",
}


@pytest.fixture
def cluster(own_plane: OwnPlane) -> LentPlane:
    started = own_plane()
    for number in range(2):
        make_node(started.admin, f"node-{number}", allocatable={"cpu": "4", "memory": "16Gi"})
    apply(started)
    return started


@pytest.fixture
def log(cluster: LentPlane) -> AuditLog:
    return cluster.requests_of(SECOND_SCHEDULER.user)


@pytest.mark.parametrize("variant", VARIANTS)
def test_what_the_program_carries_is_what_kustomize_makes(plane: Access, tmp_path: Path, variant: Variant) -> None:
    second = kustomize(plane, tmp_path, "second", variant)
    assert sorted(second, key=title) == sorted(documents(variant), key=title)
    # The component for OpenShift has the variants, too.
    made = {one["kind"]: one for one in kustomize(plane, tmp_path, "openshift", variant)}
    written = made["ConfigMap"]["data"][CONFIGURATION_KEY]
    assert yaml.safe_load(written) == yaml.safe_load(configuration(MANIFESTS, variant, "openshift"))
    assert made["SecondaryScheduler"]["spec"]["schedulerConfig"] == made["ConfigMap"]["metadata"]["name"]
    assert made["ConfigMap"]["metadata"]["namespace"] == made["SecondaryScheduler"]["metadata"]["namespace"]


def kustomize(plane: Access, directory: Path, component: str, variant: Variant) -> list[Json]:
    """The objects of an admin's kustomization with the component and a variant."""
    chosen = [component] if variant == "spread" else [component, f"variants/{variant}"]
    components = [os.path.relpath(MANIFESTS / "scheduler" / one, directory.resolve()) for one in chosen]
    content = {"apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization", "components": components}
    (directory / "kustomization.yaml").write_text(yaml.safe_dump(content))
    return manifests.parse(plane.kubectl("kustomize", str(directory)).stdout)


def test_two_replicas_place_pods_one_after_the_other(
    cluster: ControlPlane, tmp_path: Path, kube_scheduler: Path
) -> None:
    # PodSecurity's restricted lets its pods in.
    (template,) = (one["spec"]["template"] for one in documents() if one["kind"] == "Deployment")
    cluster.admin.create(PODS, obj("Pod", "replica", spec=template["spec"]), NAME, dryRun="All")
    first, second = (SchedulerReplica(cluster, tmp_path, f"replica-{number}", kube_scheduler) for number in range(2))
    with first:
        leads = holder(cluster)
        # Ready while it waits for the Lease, so that a roll-out goes on.
        with second:
            create(cluster.admin, "one")
            placed(cluster.admin, "one")
            assert holder(cluster) == leads

            first.kill()
            holder(cluster, other_than=leads)
            create(cluster.admin, "two")
            placed(cluster.admin, "two")


# A scheduler may be older than its API server, never newer.
MINOR = bundles.CONTROL_PLANE.version.split(".")[1]
OLDER = [version for version in bundles.older_versions() if version.partition(".")[2] < MINOR]


@pytest.mark.control("second-schedulers-account")
@pytest.mark.parametrize("version", ["", *OLDER[:1]])
def test_every_right_is_used_and_none_is_missing(
    cluster: ControlPlane, log: AuditLog, tmp_path: Path, kube_scheduler: Path, version: str
) -> None:
    binary, is_newest = kube_scheduler, not version and versions.DEVICES_AS_RESOURCES.is_there
    if version:
        older = bundles.older_control_plane(version)
        binary = build.location({}, build.cache_root(os.environ), older) / "kube-scheduler"
        if not binary.exists():
            why = f"kube-scheduler {version} is not built"
            pytest.skip(f"{why}: python -m hack.controlplane.build --kubernetes {version}")
    with SchedulerReplica(cluster, tmp_path, "replica", binary) as replica:
        kube = cluster.admin
        create(kube, "plain")
        placed(kube, "plain")
        preempt(kube)
        bind_volumes(kube)
        if version != "1.33":
            # It looks at no claim without a feature gate; they are GA since 1.34 (KEP-4381).
            claim_devices(kube)
        if is_newest:
            # Older schedulers leave this to device plugins.
            limits = {"example.com/gpu": "1"}
            create(kube, "extended", container={"resources": {"limits": limits, "requests": {"cpu": "100m"}}})
            assert placed(kube, "extended") == "node-0"
        scrape(cluster, replica)

    granted = manifests.granted(documents())
    used = log.used()
    assert log.refused() == set()
    assert manifests.uncovered(used, granted) == set(), "not granted"
    if is_newest:
        # A watch can replace the list request: kube-scheduler 1.34 lists, newer ones watch.
        listed = {("list", *right[1:]) for right in used if right[0] == "watch"}
        assert granted - used - listed <= UNUSED.keys(), "granted, and never used"


def test_the_recorded_roles_are_those_of_the_api_server(plane: Access) -> None:
    """tests/install/schedulers/test_render.py holds the component's permissions to them."""
    recorded = yaml.safe_load((MANIFESTS.parent / "tests" / "data" / "scheduler-roles.yaml").read_text())
    minor = json.loads(plane.admin.text("/version"))["gitVersion"].rpartition(".")[0]
    (roles,) = (roles for version, roles in recorded.items() if version.rpartition(".")[0] == minor)
    for name, rules in roles.items():
        live = plane.admin.get("rbac.authorization.k8s.io/v1/clusterroles", name)["rules"]
        assert permissions.granted(live) == permissions.granted(rules)


def preempt(kube: Kube) -> None:
    """A pod that fits nowhere, and one of higher priority that makes room for itself."""
    for name, value in (("low", 1), ("high", 1000)):
        kube.make(obj("PriorityClass", name, value=value))
        # The API server takes priorities from an informer, a moment after the write.
        probe = partial(create, kube, "probe", priorityClassName=name, query={"dryRun": "All"})
        eventually(lambda: not denial(probe), what=f"the priority {name} to be known")  # noqa: B023
    for number in range(2):
        create(kube, f"low-{number}", requests={"cpu": "3"}, priorityClassName="low")
        placed(kube, f"low-{number}")
    create(kube, "fits-nowhere", requests={"cpu": "3"}, priorityClassName="low")
    kube.wait(PODS, "fits-nowhere", "default", until=is_unschedulable)
    create(kube, "high", requests={"cpu": "3"}, priorityClassName="high")

    def makes_room() -> bool:
        victims = [pod for pod in kube.list(PODS, "default") if pod["metadata"].get("deletionTimestamp")]
        for pod in victims:
            kube.delete(PODS, pod["metadata"]["name"], "default", gracePeriodSeconds="0")
        return "nodeName" in kube.get(PODS, "high", "default")["spec"]

    eventually(makes_room, what="room for the pod of high priority")


def bind_volumes(kube: Kube) -> None:
    """A claim that waits for its first pod, and one for which there is a volume."""
    size = {"accessModes": ["ReadWriteOnce"]}
    for name, provisioner in (("made", "example.com/makes"), ("local", "kubernetes.io/no-provisioner")):
        kube.make(obj("StorageClass", name, provisioner=provisioner, volumeBindingMode="WaitForFirstConsumer"))
        spec = size | {"storageClassName": name, "resources": {"requests": {"storage": "1Gi"}}}
        kube.make(obj("PersistentVolumeClaim", name, spec=spec), "default")
    place = {"storageClassName": "local", "capacity": {"storage": "1Gi"}, "hostPath": {"path": "/tmp/nothing"}}
    kube.make(obj("PersistentVolume", "local", spec=size | place))
    kube.patch("v1/persistentvolumes", "local", {"status": {"phase": "Available"}}, subresource="status")
    for name in ("made", "local"):
        create(kube, f"volume-{name}", volumes=[{"name": "disk", "persistentVolumeClaim": {"claimName": name}}])

    def is_given_a_node() -> bool:
        claim = kube.get("v1/persistentvolumeclaims", "made", "default")
        return "volume.kubernetes.io/selected-node" in claim["metadata"].get("annotations", {})

    eventually(is_given_a_node, what="the claim to be given a node")
    eventually(lambda: kube.get("v1/persistentvolumes", "local")["spec"].get("claimRef"), what="the volume to be given")


def claim_devices(kube: Kube) -> None:
    pool = {"name": "node-0", "generation": 1, "resourceSliceCount": 1}
    devices = [{"name": "gpu-0"}, {"name": "gpu-1"}]
    request = {"name": "gpu", "exactly": {"deviceClassName": "gpu"}}
    specs: dict[str, Json] = {
        "DeviceClass": {"extendedResourceName": "example.com/gpu"},
        "ResourceSlice": {"driver": "example.com", "nodeName": "node-0", "pool": pool, "devices": devices},
        "ResourceClaim": {"devices": {"requests": [request]}},
    }
    for kind, spec in specs.items():
        namespace = "default" if kind == "ResourceClaim" else None
        kube.make(obj(kind, "gpu", "resource.k8s.io/v1", spec=spec), namespace)
    resources = {"claims": [{"name": "gpu"}], "requests": {"cpu": "100m"}}
    claims = [{"name": "gpu", "resourceClaimName": "gpu"}]
    create(kube, "device", resourceClaims=claims, container={"resources": resources})
    assert placed(kube, "device") == "node-0"


def scrape(plane: ControlPlane, replica: SchedulerReplica) -> None:
    """Reads its metrics, with a token that may and with one that may not."""
    token = plane.token("default", "prometheus")
    assert fetch(replica.port, "/metrics", token)[0] == 403
    rules = [{"nonResourceURLs": ["/metrics"], "verbs": ["get"]}]
    grant(plane.admin, "metrics", rules, subject=account("default", "prometheus"))

    is_read = lambda: "scheduler_schedule_attempts_total" in fetch(replica.port, "/metrics", token)[1]
    eventually(is_read, what="the metrics to be read")


pytestmark = pytest.mark.builds("scheduler-plugins")

PAGE = Path(__file__).resolve().parents[2] / "docs" / "schedulers.md"
# What VMs on the nodes use, whatever they request.
BUSY = {"node-0": 0.85, "node-1": 0.25, "node-2": 0.05}
PODS_PLACED = 6
METRICS = "metrics.k8s.io"
# The page has these figures. A VM that requests 100m counts as half a CPU of 16: after four of them 40 % are near.
EXPECTED = {"load-aware": {"node-2": 6}, "load-aware-pack": {"node-1": 4, "node-2": 2}}


@pytest.fixture(scope="module")
def binary(built: Callable[[bundles.Bundle], Path]) -> Path:
    return built(bundles.SCHEDULER_PLUGINS) / "kube-scheduler"


@pytest.fixture(scope="module")
def busy_prometheus(prometheus: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodePrometheus]:
    """A Prometheus that knows what the nodes use, by the recording rules that the page gives."""
    (written,) = re.findall(r"```yaml\n(groups:\n.*?)```", PAGE.read_text(), re.DOTALL)
    groups = yaml.safe_load(written)["groups"]
    directory = tmp_path_factory.mktemp("prometheus")
    with BusyNodes(BUSY) as nodes, NodePrometheus(prometheus, directory, nodes, groups) as running:
        for query in (f"avg_over_time({rule['record']}[15m])" for rule in groups[0]["rules"]):
            # A node that seems 0.6 points less busy gets one VM more.
            expected = pytest.approx(BUSY, rel=0, abs=0.005)
            eventually(lambda: running.values(query) == expected, what=f"{query} of all nodes")  # noqa: B023
        yield running


@pytest.fixture
def busy_plane(own_plane: OwnPlane) -> LentPlane:
    started = own_plane()
    for name in BUSY:
        make_node(started.admin, name)
    return started


def serve_usage(busy_plane: LentPlane) -> None:
    """What metrics-server serves about nodes, as objects of the API server itself."""
    approval = {"api-approved.kubernetes.io": "unapproved, a test"}
    definition = open_crd("nodes", METRICS, "NodeMetrics", "v1beta1", "Cluster", annotations=approval)
    install_crds(busy_plane.admin, [definition])
    version, when = f"{METRICS}/v1beta1", {"timestamp": "2026-01-01T00:00:00Z", "window": "10s"}
    for name, busy in BUSY.items():
        used = {"cpu": f"{int(16_000 * busy)}m", "memory": f"{int(64 * 1024 * busy)}Mi"}
        busy_plane.admin.create(f"{version}/nodes", obj("NodeMetrics", name, version, **when, usage=used))


@pytest.mark.parametrize("variant", LOAD_AWARE)
def test_with_prometheus_vms_go_where_the_load_says(
    busy_plane: LentPlane, tmp_path: Path, binary: Path, busy_prometheus: NodePrometheus, variant: Variant
) -> None:
    apply(busy_plane, variant, busy_prometheus.url)
    assert_places(SchedulerReplica(busy_plane, tmp_path, "replica", binary), busy_plane, variant)


def assert_places(replica: SchedulerReplica, busy_plane: LentPlane, variant: Variant) -> set[manifests.Right]:
    """It puts VMs where the load says, by the variant's own permissions, of which it returns those that were used."""
    log = busy_plane.requests_of(SECOND_SCHEDULER.user)
    with replica:
        assert place(busy_plane.admin, PODS_PLACED) == EXPECTED[variant]
    assert log.refused() == set()
    granted = manifests.granted(documents(variant))
    assert manifests.uncovered(log.used(), granted) == set()
    return log.used()


def test_with_metrics_server_too_and_with_no_further_permission_than_the_variants_own(
    busy_plane: LentPlane, tmp_path: Path, binary: Path
) -> None:
    serve_usage(busy_plane)
    apply(busy_plane, "load-aware")
    replica = SchedulerReplica(busy_plane, tmp_path, "replica", binary, in_cluster="KUBE_CONFIG")
    assert ("list", METRICS, "nodes", "") in assert_places(replica, busy_plane, "load-aware")


def test_in_a_static_pod_metrics_server_is_not_found_without_a_kubeconfig(
    busy_plane: LentPlane, tmp_path: Path, binary: Path
) -> None:
    """It is named by KUBE_CONFIG, since the plugin does not read the kubeconfig of the configuration."""
    apply(busy_plane, "load-aware")
    with pytest.raises(StartError), SchedulerReplica(busy_plane, tmp_path, "replica", binary):
        pass
