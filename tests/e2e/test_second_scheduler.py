"""The component manifests/scheduler/second on a real API server, run by the real kube-scheduler as its own account."""

from __future__ import annotations

import json
import os
import urllib.error
from functools import partial
from pathlib import Path

import pytest
import yaml

from hack.controlplane import build, bundles
from webhook.install.schedulers import render as permissions
from webhook.install.schedulers.render import CONFIGURATION_KEY, VARIANTS, Variant, configuration

from .conftest import OwnPlane
from .support import manifests, second_scheduler, versions
from .support.access import Access
from .support.audited import AuditLog
from .support.kube import Json, Kube, denial, eventually
from .support.lent import LentPlane
from .support.manifests import MANIFESTS
from .support.objects import is_unschedulable, make_node, obj
from .support.placing import create, placed
from .support.plane import ControlPlane
from .support.program import command
from .support.rbac import account, grant
from .support.second_scheduler import ACCOUNT, NAME, SchedulerReplica, holder
from .support.workloads import PODS, VMS, vm

INSTALL = ("install", "--image=one", "--with=scheduler", "--no-wait")
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
    """A control plane with two nodes and the component."""
    started = own_plane()
    for number in range(2):
        make_node(started.admin, f"node-{number}", allocatable={"cpu": "4", "memory": "16Gi"})
    second_scheduler.apply(started)
    return started


@pytest.fixture
def log(cluster: LentPlane) -> AuditLog:
    return cluster.requests_of(ACCOUNT.user)


def title(one: Json) -> str:
    return f"{one['kind']} {one['metadata']['name']}"


@pytest.mark.parametrize("variant", VARIANTS)
def test_what_the_program_carries_is_what_kustomize_makes(plane: Access, tmp_path: Path, variant: Variant) -> None:
    made = yaml.safe_load_all(kustomize(plane, tmp_path, "second", variant))

    assert sorted(made, key=title) == sorted(second_scheduler.documents(variant), key=title)


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_component_for_openshift_has_the_variants_too(plane: Access, tmp_path: Path, variant: Variant) -> None:
    made = {one["kind"]: one for one in yaml.safe_load_all(kustomize(plane, tmp_path, "openshift", variant))}

    written = made["ConfigMap"]["data"][CONFIGURATION_KEY]
    assert yaml.safe_load(written) == yaml.safe_load(configuration(MANIFESTS, variant, "openshift"))
    assert made["SecondaryScheduler"]["spec"]["schedulerConfig"] == made["ConfigMap"]["metadata"]["name"]
    assert made["ConfigMap"]["metadata"]["namespace"] == made["SecondaryScheduler"]["metadata"]["namespace"]


def kustomize(plane: Access, directory: Path, component: str, variant: Variant) -> str:
    """The objects of an admin's kustomization with the component and a variant."""
    chosen = [component] if variant == "spread" else [component, f"variants/{variant}"]
    components = [os.path.relpath(MANIFESTS / "scheduler" / one, directory.resolve()) for one in chosen]
    content = {"apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization", "components": components}
    (directory / "kustomization.yaml").write_text(yaml.safe_dump(content))
    return plane.kubectl("kustomize", str(directory)).stdout


def test_install_and_uninstall(own_plane: OwnPlane) -> None:
    cluster = own_plane(controller_manager=True)
    kube = cluster.admin
    own = {"name": "kube-scheduler", "image": "registry.example/kube-scheduler:v1.36.3"}
    pod = obj("Pod", "kube-scheduler-a", labels={"component": "kube-scheduler"}, spec={"containers": [own]})
    kube.create(PODS, pod, "kube-system")

    assert "+ Deployment kubevirt-scheduler/kubevirt-scheduler" in command(cluster, *INSTALL, "--dry-run").stdout
    assert command(cluster, *INSTALL).stdout.endswith("installed\n")
    # PodSecurity's restricted lets its pods in.
    pods = eventually(lambda: kube.list(PODS, NAME), what="pods of the Deployment")
    assert {one["spec"]["containers"][0]["image"] for one in pods} == {own["image"]}
    assert {one["spec"]["priority"] for one in pods} == {1_000_000_000}
    assert command(cluster, *INSTALL).stdout.endswith("no changes\n")

    shown = command(cluster, *INSTALL, "--scheduler-variant=pack").stdout
    assert "ConfigMap kubevirt-scheduler/kubevirt-scheduler: changed" in shown
    assert "Deployment kubevirt-scheduler/kubevirt-scheduler: changed" in shown
    # It stays as it is, variant and image, where it is not mentioned.
    assert command(cluster, "install", "--no-wait").stdout.endswith("no changes\n")

    kube.create(VMS, vm("web", scheduler="kubevirt"), "default")
    assert "1 VM, 0 VMIs and 0 waiting pods" in command(cluster, "uninstall").stderr
    assert kube.get("apps/v1/deployments", NAME, NAME)
    kube.delete(VMS, "web", "default")
    said = command(cluster, "uninstall").stdout
    assert f"Namespace {NAME}: deleted" in said
    assert command(cluster, "uninstall").stdout.endswith("kubevirt-webhook is not installed\n")
    assert NAME not in {one["metadata"]["name"] for one in kube.list("rbac.authorization.k8s.io/v1/clusterroles")}


def test_two_replicas_place_pods_one_after_the_other(
    cluster: ControlPlane, tmp_path: Path, kube_scheduler: Path
) -> None:
    first, second = (SchedulerReplica(cluster, tmp_path, f"replica-{number}", kube_scheduler) for number in range(2))
    try:
        first.start()
        leads = holder(cluster)
        # Ready while it waits for the Lease, so that a roll-out goes on.
        second.start()
        create(cluster.admin, "one")
        placed(cluster.admin, "one")
        assert holder(cluster) == leads

        first.kill()
        holder(cluster, other_than=leads)
        create(cluster.admin, "two")
        placed(cluster.admin, "two")
    finally:
        first.kill()
        second.kill()


# A scheduler may be older than its API server, never newer.
MINOR = bundles.CONTROL_PLANE.version.split(".")[1]
OLDER = [version for version in bundles.older_versions() if version.partition(".")[2] < MINOR]


@pytest.mark.parametrize("version", ["", *OLDER])
def test_every_right_is_used_and_none_is_missing(
    cluster: ControlPlane, log: AuditLog, tmp_path: Path, kube_scheduler: Path, version: str
) -> None:
    binary, is_newest = kube_scheduler, not version and versions.DEVICES_AS_RESOURCES.is_there
    if version:
        binary = (
            build.location({}, build.cache_root(os.environ), bundles.older_control_plane(version)) / "kube-scheduler"
        )
        if not binary.exists():
            pytest.skip(
                f"kube-scheduler {version} is not built: python -m hack.controlplane.build --kubernetes {version}"
            )
    replica = SchedulerReplica(cluster, tmp_path, "replica", binary)
    try:
        replica.start()
        kube = cluster.admin
        create(kube, "plain")
        placed(kube, "plain")
        preempt(kube)
        bind_volumes(kube)
        claim_devices(kube)
        if is_newest:
            # Older schedulers leave this to device plugins.
            limits = {"example.com/gpu": "1"}
            create(kube, "extended", container={"resources": {"limits": limits, "requests": {"cpu": "100m"}}})
            assert placed(kube, "extended") == "node-0"
        scrape(cluster, replica)
    finally:
        replica.kill()

    granted = manifests.granted(second_scheduler.documents())
    used = log.used()
    assert log.refused() == set()
    assert {right for right in used if not any(manifests.covers(one, right) for one in granted)} == set(), "not granted"
    if is_newest:
        unused = {right for right in granted - used if not is_listed_by_watching(right, used)}
        assert unused <= UNUSED.keys(), "granted, and never used"


def test_the_recorded_roles_are_those_of_the_api_server(plane: Access) -> None:
    """tests/install/schedulers/test_render.py holds the component's permissions to them."""
    recorded = yaml.safe_load((MANIFESTS.parent / "tests" / "data" / "scheduler-roles.yaml").read_text())
    minor = json.loads(plane.admin.text("/version"))["gitVersion"].rpartition(".")[0]
    (roles,) = (roles for version, roles in recorded.items() if version.rpartition(".")[0] == minor)
    for name, rules in roles.items():
        live = plane.admin.get("rbac.authorization.k8s.io/v1/clusterroles", name)["rules"]
        assert permissions.granted(live) == permissions.granted(rules)


def is_listed_by_watching(right: manifests.Right, used: set[manifests.Right]) -> bool:
    """Whether a watch can replace the list request: kube-scheduler 1.34 lists, newer ones watch."""
    return right[0] == "list" and ("watch", *right[1:]) in used


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
    """A pod with a device of a driver's."""
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
    with pytest.raises(urllib.error.HTTPError, match="403"):
        replica.get("/metrics", token)
    rules = [{"nonResourceURLs": ["/metrics"], "verbs": ["get"]}]
    grant(plane.admin, "metrics", rules, subject=account("default", "prometheus"))

    def is_read() -> bool:
        try:
            return "scheduler_schedule_attempts_total" in replica.get("/metrics", token)
        except urllib.error.HTTPError:
            return False

    eventually(is_read, what="the metrics to be read")
    assert NAME in ACCOUNT.user
