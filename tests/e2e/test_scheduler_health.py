"""The scheduler health check: an unavailable scheduler gets no more pods, and pods that wait for it get another one."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from .conftest import NewTenant, NewWebhook, OwnPlane
from .support.commands import KUBEVIRT_SCHEDULER, HeldLease
from .support.kube import KubeObject, eventually
from .support.objects import make_node
from .support.plane import ControlPlane
from .support.tenant import Tenant
from .support.workloads import PODS, VMIS, vm

SCHEDULER_NAME = "kubevirt-webhook.github.io/scheduler-name"
LEASE = HeldLease("kubevirt-scheduler", "kubevirt-scheduler")
HEALTH_CHECK = f"lease {LEASE.namespace}/{LEASE.name}"
UNNOTICED_SECONDS = 30.0


def injects(tenant: Tenant) -> bool:
    """Whether the webhook sets the scheduler of new VMs."""
    return tenant.choice() is not None


def gives_up(tenant: Tenant) -> bool:
    """Whether they are left to the default scheduler."""
    return tenant.choice() is None


def seconds_until(check: Callable[[], bool], what: str) -> float:
    """How long it takes."""
    began = time.monotonic()
    eventually(check, what=what)
    return time.monotonic() - began


@pytest.fixture
def plane_with_short_lease(own_plane: OwnPlane, kube_scheduler: Path) -> ControlPlane:
    """Two schedulers, of which `kubevirt` is believed dead soon after it is."""
    plane = own_plane()
    make_node(plane.admin, "node-a")
    plane.start_scheduler("default")
    plane.start_scheduler("kubevirt", KUBEVIRT_SCHEDULER, lease=LEASE)
    return plane


def test_a_scheduler_is_killed_and_comes_back(
    plane_with_short_lease: ControlPlane, new_webhook: NewWebhook, record_property: Callable[[str, object], None]
) -> None:
    plane = plane_with_short_lease
    tenant = Tenant.new(new_webhook({"schedulers": {"kubevirt": {"healthCheck": HEALTH_CHECK}}}, access=plane))
    eventually(partial(injects, tenant), what="injection")
    promised = tenant.start(tenant.create(vm()))
    assert promised["spec"]["schedulerName"] == "kubevirt"
    assert tenant.bound_by(tenant.launch(promised)) == "kubevirt"

    plane.stop_scheduler("kubevirt", grace=0)
    stopped = seconds_until(partial(gives_up, tenant), "injection to stop")
    pod = tenant.launch(promised)

    assert pod["spec"]["schedulerName"] == "default-scheduler"
    assert tenant.bound_by(pod) == "default-scheduler"
    assert tenant.verdicts("Pod")[-1] == "patched scheduler-fell-back"

    plane.start_scheduler("kubevirt", KUBEVIRT_SCHEDULER, lease=LEASE)
    resumed = seconds_until(partial(injects, tenant), "injection to go on")

    assert tenant.bound_by(tenant.launch(promised)) == "kubevirt"
    plane.stop_scheduler("kubevirt")
    released = seconds_until(partial(gives_up, tenant), "injection to stop")
    (warning,) = tenant.create(vm("last"), dryRun="All").warnings
    assert "has been released" in warning
    record_property("seconds from the graceful end to the end of injection", round(released, 1))
    record_property("seconds from the kill to the end of injection", round(stopped, 1))
    record_property("seconds from the scheduler's return to injection", round(resumed, 1))


def launch_known(tenant: Tenant, name: str) -> KubeObject:
    """The launcher pod of a new VM; its VMI lists it, as virt-controller sees to."""
    vmi = tenant.start(vm(name))
    pod = tenant.launch(vmi)
    status = {"activePods": {pod["metadata"]["uid"]: pod["spec"].get("nodeName", "")}}
    tenant.controller.patch(VMIS, vmi["metadata"]["name"], {"status": status}, tenant.namespace)
    return pod


def test_a_name_that_nobody_serves_is_noticed_by_its_pods(
    new_webhook: NewWebhook, new_tenant: NewTenant, record_property: Callable[[str, object], None]
) -> None:
    """And a namespace gives up by itself what its own VMs wait for: both take the same half minute."""
    # The process renews its Lease, but its only profile has another name.
    health_checks = {"behind-a-lease": HEALTH_CHECK, "by-pods-alone": "pods", "unchecked": "off"}
    schedulers = {name: {"healthCheck": health_check} for name, health_check in health_checks.items()}
    server = new_webhook({"schedulers": schedulers, "scheduling": {"schedulerName": "unchecked"}})
    # Two namespaces each: what one says counts for itself alone.
    tenants = {
        name: [new_tenant(annotations={SCHEDULER_NAME: name}, server=server) for _ in range(2)]
        for name in health_checks
    }
    strict = new_webhook(
        {"schedulers": {"nobody": {"healthCheck": HEALTH_CHECK}}, "scheduling": {"schedulerName": "nobody"}}
    )
    waits, other = new_tenant(server=strict), new_tenant(server=strict)
    began = time.monotonic()
    waiting = {name: [launch_known(tenant, "web") for tenant in both] for name, both in tenants.items()}
    for name in ("web", "db"):
        assert launch_known(waits, name)["spec"]["schedulerName"] == "nobody"
    for name, pods in waiting.items():
        assert [pod["spec"]["schedulerName"] for pod in pods] == [name, name]
    bystanders = {name: new_tenant(annotations={SCHEDULER_NAME: name}, server=server) for name in health_checks}

    for name in ("behind-a-lease", "by-pods-alone"):
        tenant = bystanders[name]
        eventually(partial(gives_up, tenant), what=f"{name} to be given up")
        noticed = time.monotonic() - began
        record_property(f"seconds until {name} is given up", round(noticed, 1))
        assert noticed > UNNOTICED_SECONDS - 1
        (warning,) = tenant.create(vm(), dryRun="All").warnings
        # Other tenants must not learn whose pods wait.
        assert not [both for both in tenants[name] if both.namespace in warning]
        assert tenant.bound_by(tenant.launch(tenant.start(vm("next")))) == "default-scheduler"
    assert injects(bystanders["unchecked"])

    for name in ("behind-a-lease", "by-pods-alone"):
        tenant, pod = tenants[name][0], waiting[name][0]
        tenant.owner.delete(PODS, pod["metadata"]["name"], tenant.namespace, gracePeriodSeconds="0")
        eventually(partial(injects, bystanders[name]), what=f"{name} to be tried again")

    eventually(partial(gives_up, waits), what="its namespace to give it up")
    assert injects(other)
