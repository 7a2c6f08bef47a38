"""The scheduler health check: an unavailable scheduler gets no more pods, and no tenant's pods make one unavailable."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import pytest

from .conftest import NewTenant, NewWebhook, OwnPlane
from .support.kube import Json, KubeObject, denial, eventually
from .support.objects import make_node, obj
from .support.plane import KUBEVIRT_SCHEDULER, KUBEVIRT_SCHEDULER_LEASE, ControlPlane, HeldLease
from .support.rbac import user_with
from .support.tenant import Tenant
from .support.webhook_server import WebhookServer
from .support.workloads import PODS, VMIS, launcher_of, vm, vmi_of

SCHEDULER_NAME = "kubevirt-webhook.github.io/scheduler-name"
LEASE = HeldLease("kubevirt-scheduler", "kubevirt-scheduler")
HEALTH_CHECK = f"lease {LEASE.namespace}/{LEASE.name}"


def gives_up(tenant: Tenant) -> bool:
    """Whether new VMs are left to the default scheduler."""
    return tenant.choice() is None


def plane_with(lease: HeldLease, own_plane: OwnPlane) -> ControlPlane:
    """A plane with two schedulers, of which `kubevirt` has the Lease."""
    plane = own_plane()
    make_node(plane.admin, "node-a")
    plane.start_scheduler("default")
    plane.start_scheduler("kubevirt", KUBEVIRT_SCHEDULER, lease=lease)
    return plane


@pytest.mark.usefixtures("kube_scheduler")
def test_a_scheduler_is_killed_and_comes_back(own_plane: OwnPlane, new_webhook: NewWebhook) -> None:
    plane = plane_with(LEASE, own_plane)
    tenant = Tenant.new(new_webhook({"schedulers": {"kubevirt": {"healthCheck": HEALTH_CHECK}}}, access=plane))
    eventually(tenant.choice, what="injection")
    promised = tenant.start(tenant.create(vm()))
    assert promised["spec"]["schedulerName"] == "kubevirt"
    assert tenant.bound_by(tenant.launch(promised)) == "kubevirt"

    plane.stop_scheduler("kubevirt", grace=0)
    eventually(partial(gives_up, tenant), what="injection to stop")
    pod = tenant.launch(promised)

    assert pod["spec"]["schedulerName"] == "default-scheduler"
    assert tenant.bound_by(pod) == "default-scheduler"
    assert tenant.verdicts("Pod")[-1] == "patched scheduler-fell-back"

    plane.start_scheduler("kubevirt", KUBEVIRT_SCHEDULER, lease=LEASE)
    eventually(tenant.choice, what="injection to go on")

    assert tenant.bound_by(tenant.launch(promised)) == "kubevirt"
    plane.stop_scheduler("kubevirt")
    eventually(partial(gives_up, tenant), what="injection to stop")
    (warning,) = tenant.create(vm("last"), dryRun="All").warnings
    assert "has been released" in warning


def launch_known(tenant: Tenant, name: str) -> KubeObject:
    """The launcher pod of a new VM; its VMI lists it, as virt-controller sees to."""
    vmi = tenant.start(vm(name))
    pod = tenant.launch(vmi)
    status = {"activePods": {pod["metadata"]["uid"]: pod["spec"].get("nodeName", "")}}
    tenant.controller.patch(VMIS, vmi["metadata"]["name"], {"status": status}, tenant.namespace)
    return pod


@pytest.mark.control("pods-named-in-warnings", "reveals-schedulers")
def test_a_name_that_nobody_serves_is_noticed_by_its_pods(
    new_webhook: NewWebhook, new_tenant: NewTenant, record_property: Callable[[str, object], None]
) -> None:
    # The process renews its Lease, but its only profile has another name.
    health_checks = {"behind-a-lease": HEALTH_CHECK, "by-pods-alone": "pods", "unchecked": "off"}
    schedulers = {name: {"healthCheck": health_check} for name, health_check in health_checks.items()}
    server = new_webhook({"schedulers": schedulers, "scheduling": {"schedulerName": "unchecked"}})
    # Two namespaces each: what one says counts for itself alone.
    tenants = {
        name: [new_tenant(annotations={SCHEDULER_NAME: name}, server=server) for _ in range(2)]
        for name in health_checks
    }
    began = time.monotonic()
    waiting = {name: [launch_known(tenant, "web") for tenant in both] for name, both in tenants.items()}
    for name, pods in waiting.items():
        assert [pod["spec"]["schedulerName"] for pod in pods] == [name, name]
    bystanders = {name: new_tenant(annotations={SCHEDULER_NAME: name}, server=server) for name in health_checks}

    for name in ("behind-a-lease", "by-pods-alone"):
        tenant = bystanders[name]
        eventually(partial(gives_up, tenant), what=f"{name} to be given up")
        noticed = time.monotonic() - began
        record_property(f"seconds until {name} is given up", round(noticed, 1))
        assert noticed > 29
        (warning,) = tenant.create(vm(), dryRun="All").warnings
        # Other tenants must not learn whose pods wait.
        assert not [both for both in tenants[name] if both.namespace in warning]
        assert tenant.bound_by(tenant.launch(tenant.start(vm("next")))) == "default-scheduler"
    assert bystanders["unchecked"].choice()

    for name in ("behind-a-lease", "by-pods-alone"):
        tenant, pod = tenants[name][0], waiting[name][0]
        tenant.owner.delete(PODS, pod["metadata"]["name"], tenant.namespace, gracePeriodSeconds="0")
        eventually(bystanders[name].choice, what=f"{name} to be tried again")


# Longer than a pod waits before the server may take its wait for evidence.
LONG_SECONDS = 36.0
UNKNOWN_CLAIM = [{"name": "gpu", "resourceClaimName": "does-not-exist"}]

Attack = Callable[["Mallory"], None]


class Mallory:
    """A user who may only create pods, in a namespace that has not opted in and in two that have; he owns VMs there."""

    def __init__(self, server: WebhookServer) -> None:
        self.foreign = Tenant.new(server, None)
        self.own = [Tenant.new(server), Tenant.new(server)]
        for tenant in (self.foreign, *self.own):
            rule = {"apiGroups": [""], "resources": ["pods"], "verbs": ["create"]}
            self.kube = user_with(server.access, "mallory", [rule], tenant.namespace)

    def create(self, tenant: Tenant, pod: Mapping[str, Any]) -> None:
        """A pod by himself, for the scheduler of all."""
        made = {**pod, "spec": {**pod["spec"], "schedulerName": "kubevirt"}}
        self.kube.create(PODS, made, tenant.namespace)

    def untried(self, name: str) -> list[str]:
        """His pods in whose names this is, that no scheduler has written a condition into."""
        found = []
        for tenant in (self.foreign, *self.own):
            for pod in tenant.owner.list(PODS, tenant.namespace):
                conditions = {condition["type"] for condition in pod["status"].get("conditions", [])}
                if name in pod["metadata"]["name"].split("-") and "PodScheduled" not in conditions:
                    found.append(pod["metadata"]["name"])
        return found


def plain(name: str, **spec: Any) -> Json:
    """A pod that has nothing to do with KubeVirt."""
    containers = [{"name": "main", "image": "registry.example/main:v1"}]
    return obj("Pod", name, spec={"automountServiceAccountToken": False, "containers": containers, **spec})


def an_unknown_claim(mallory: Mallory) -> None:
    """kube-scheduler keeps these out of its queue (PreEnqueue), and writes no condition."""
    for number in range(3):
        mallory.create(mallory.foreign, plain(f"claims-{number}", resourceClaims=UNKNOWN_CLAIM))


def scheduling_gates(mallory: Mallory) -> None:
    for number in range(3):
        mallory.create(mallory.foreign, plain(f"gated-{number}", schedulingGates=[{"name": "example.com/gate"}]))


def forged_launcher_pods(mallory: Mallory) -> None:
    """Every tenant can write the label and the owner of a launcher pod; these owners do not exist."""
    for tenant in mallory.own:
        for number in range(2):
            vmi = obj("VirtualMachineInstance", f"none-{number}", spec={})
            vmi["metadata"]["uid"] = f"forged-{number}"
            forged = launcher_of(vmi)
            forged["spec"] |= {"resourceClaims": UNKNOWN_CLAIM}
            mallory.create(tenant, forged)


def own_launcher_pods_that_are_gated(mallory: Mallory) -> None:
    """KubeVirt's pods of VMs whose owner saw to it that they can't be scheduled."""
    _own_launcher_pods(mallory, "gated", resourceClaims=UNKNOWN_CLAIM)


def own_launcher_pods_whose_volumes_are_never_made(mallory: Mallory) -> None:
    """The scheduler waits for volumes before it binds (PreBind), for ten minutes, and writes no condition."""
    admin = mallory.foreign.owner
    waits = {"provisioner": "example.com/nobody", "volumeBindingMode": "WaitForFirstConsumer"}
    admin.apply(obj("StorageClass", "never", **waits))
    for tenant in mallory.own:
        for number in range(2):
            wanted = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
            claim = obj("PersistentVolumeClaim", f"root-{number}", spec={**wanted, "storageClassName": "never"})
            admin.make(claim, tenant.namespace)
    _own_launcher_pods(mallory, "volumes")


def own_launcher_pods_without_room_for_a_condition(mallory: Mallory) -> None:
    """A pod as large as etcd allows: the scheduler's condition would make it larger and fails, as its end does."""
    for tenant in mallory.own:
        vmi = tenant.controller.create(VMIS, vmi_of(vm("large")), tenant.namespace)
        status = {"activePods": {_largest(tenant, vmi)["metadata"]["uid"]: ""}}
        tenant.controller.patch(VMIS, "large", {"status": status}, tenant.namespace)


# For so many more bytes etcd has room, and for so many not; each search narrows them for the next one.
BOUNDS = [1_200_000, 1_600_000]


def _largest(tenant: Tenant, vmi: Mapping[str, Any]) -> Json:
    """A launcher pod that cannot have many bytes more; most that were tried before it are gone."""
    fits, too_large = BOUNDS
    largest: Json | None = None
    while largest is None or too_large - fits > 32:
        size = (fits + too_large) // 2
        made = _padded(tenant, vmi, size)
        if made is None:
            too_large = size
            continue
        if largest:
            # Where there is not even room for its end, it stays.
            name = largest["metadata"]["name"]
            denial(partial(tenant.controller.delete, PODS, name, tenant.namespace, gracePeriodSeconds="0"))
        fits, largest = size, made
    BOUNDS[:] = fits - 100, too_large + 100
    return largest


def _padded(tenant: Tenant, vmi: Mapping[str, Any], size: int) -> Json | None:
    """A launcher pod with so many bytes more than usual; None where etcd has no room for it."""
    pod = launcher_of(vmi)
    pod["spec"] |= {"schedulerName": "kubevirt", "nodeSelector": {"example.com/zone": "nowhere"}}
    pod["spec"]["containers"][0]["env"] = [{"name": "PADDING", "value": "x" * size}]
    made: list[Json] = []
    error = denial(lambda: made.append(tenant.controller.create(PODS, pod, tenant.namespace)))
    assert error is None or "too large" in error.message, error
    return made[0] if made else None


def _own_launcher_pods(mallory: Mallory, name: str, **spec: Any) -> None:
    for tenant in mallory.own:
        for number in range(2):
            vmi = tenant.controller.create(VMIS, vmi_of(vm(f"{name}-{number}")), tenant.namespace)
            pod = launcher_of(vmi)
            pod["spec"] |= {"schedulerName": "kubevirt", **spec}
            if name == "volumes":
                pod["spec"]["volumes"] = [{"name": "root", "persistentVolumeClaim": {"claimName": f"root-{number}"}}]
            made = tenant.controller.create(PODS, pod, tenant.namespace)
            status = {"activePods": {made["metadata"]["uid"]: ""}}
            tenant.controller.patch(VMIS, vmi["metadata"]["name"], {"status": status}, tenant.namespace)


ATTACKS: tuple[Attack, ...] = (
    an_unknown_claim,
    scheduling_gates,
    forged_launcher_pods,
    own_launcher_pods_that_are_gated,
    own_launcher_pods_whose_volumes_are_never_made,
    own_launcher_pods_without_room_for_a_condition,
)


@pytest.mark.control("live-scheduler-looks-dead")
@pytest.mark.usefixtures("kube_scheduler")
def test_no_pod_of_a_tenant_switches_scheduling_off(own_plane: OwnPlane, new_webhook: NewWebhook) -> None:
    """By no kind of health check: a server for each, attacked together, so that the long wait is one."""
    plane = plane_with(KUBEVIRT_SCHEDULER_LEASE, own_plane)
    servers = [
        new_webhook({"schedulers": {"kubevirt": {"healthCheck": health_check}}}, access=plane)
        for health_check in (HEALTH_CHECK, "pods")
    ]
    neighbours, attackers = [Tenant.new(server) for server in servers], [Mallory(server) for server in servers]
    for neighbour in neighbours:
        eventually(lambda: neighbour.choice() == "kubevirt", what="the server to know that the scheduler is available")  # noqa: B023

    for mallory in attackers:
        for attack in ATTACKS:
            attack(mallory)
    before = [len(neighbour.verdicts()) for neighbour in neighbours]
    over = time.monotonic() + LONG_SECONDS
    while time.monotonic() < over:
        for neighbour in neighbours:
            denial(neighbour.choice)  # on a loaded machine one may get no answer, or the server no read: verdicts count
        time.sleep(1)
    for neighbour, mallory, count in zip(neighbours, attackers, before, strict=True):
        eventually(lambda: neighbour.choice() == "kubevirt", what="a choice after all attacks")  # noqa: B023
        verdicts = Counter(verdict.split()[1] for verdict in neighbour.verdicts()[count:])
        assert verdicts.keys() <= {"scheduler-injected", "scheduler-health-unknown"}
        assert verdicts["scheduler-injected"] > verdicts.total() / 2
        # The attacks are real: none of these pods has been tried, but for those whose gate the API server itself notes.
        untried = {name: len(mallory.untried(name)) for name in ("claims", "none", "gated")}
        assert untried == {"claims": 3, "none": 4, "gated": 4}
        # The scheduler writes a condition where its own write of a claim meets another one's.
        assert len(mallory.untried("volumes")) >= 2
        assert len(mallory.untried("large")) >= 2
        promised = neighbour.launch(neighbour.start(neighbour.create(vm())))
        assert promised["spec"]["schedulerName"] == "kubevirt"
        assert neighbour.bound_by(promised) == "kubevirt"
