"""The preemption policy beside the real scheduler and taint controller; the test stands for KubeVirt."""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from .conftest import NewWebhook, OwnPlane
from .support import manifests
from .support.kube import Json, Kube, KubeObject, eventually
from .support.lent import LentPlane
from .support.migrations import HOSTNAME
from .support.objects import owner_reference
from .support.rbac import may
from .support.tenant import Tenant
from .support.victims import Nodes
from .support.webhook_server import ACCOUNT, DOMAIN, WebhookServer
from .support.workloads import MIGRATIONS, PODS, VMIS, vm, vmi_of

PREEMPTION = f"{DOMAIN}/preemption"
SETTINGS = {"preemption": {"requestMigrations": True}, "events": "on"}
ONE, TWO = {HOSTNAME: "one"}, {HOSTNAME: "two"}
NOT_ASKED = "no-eligible-node"


class Machine:
    """A VM that runs on node ``one``, and may run on ``two`` or on neither."""

    def __init__(self, nodes: Nodes, tenant: Tenant, name: str = "web", selector: Json | None = None) -> None:
        self.nodes, self.tenant, self.name, self.pod = nodes, tenant, name, f"virt-launcher-{name}-abcde"
        manifest = vmi_of(vm(name))
        domain = {"devices": {}, "cpu": {"model": "host-passthrough"}, "machine": {"type": "q35"}}
        spec = {"architecture": "amd64", "domain": domain, "evictionStrategy": "LiveMigrate"}
        manifest["spec"] |= spec | ({"nodeSelector": selector} if selector else {})
        vmi = tenant.controller.create(VMIS, manifest, tenant.namespace)
        labels = {"kubevirt.io": "virt-launcher", "kubevirt.io/created-by": vmi["metadata"]["uid"]}
        nodes.run(self.pod, "one", cpu="3", labels=labels)
        self._patch(PODS, self.pod, {"metadata": {"ownerReferences": [owner_reference(vmi)]}})
        conditions = [{"type": "LiveMigratable", "status": "True"}]
        self._patch(VMIS, name, {"status": {"phase": "Running", "nodeName": "one", "conditions": conditions}})

    def migrations(self) -> list[KubeObject]:
        return self.nodes.kube.list(MIGRATIONS, self.nodes.space)

    def migration(self) -> KubeObject:
        """The migration that was requested."""
        return eventually(self.migrations, what="a migration")[0]

    def enter(self, phase: str, **state: Any) -> None:
        name, status = self.migration()["metadata"]["name"], {"phase": phase, "migrationState": state}
        self._patch(MIGRATIONS, name, {"status": status}, subresource="status")

    def move(self) -> float:
        """The guest runs on the other node from here on; returns the time."""
        self._patch(VMIS, self.name, {"status": {"nodeName": "two"}})
        self.enter("Succeeded", endTimestamp=dt.datetime.now(dt.UTC).isoformat(timespec="seconds"))
        return self.nodes.end(self.pod)

    def codes(self) -> set[str]:
        return {line["reasons"][0]["code"] for line in self.tenant.audit("Pod")}

    def _patch(self, resource: str, name: str, change: Json, **more: Any) -> None:
        self.nodes.kube.patch(resource, name, change, self.nodes.space, **more)


def notes(kube: Kube, name: str, reason: str) -> list[str]:
    """What Events with a reason say of an object."""
    which = f"regarding.name={name},reason={reason}"
    return [event["note"] for event in kube.list("events.k8s.io/v1/events", fieldSelector=which)]


@pytest.fixture
def plane(own_plane: OwnPlane, kube_scheduler: object) -> LentPlane:
    plane = own_plane()
    manifests.apply(plane.admin, "components/preemption/rbac.yaml", "components/events/rbac.yaml")
    return plane


@pytest.fixture
def server(plane: LentPlane, new_webhook: NewWebhook) -> WebhookServer:
    server = new_webhook(SETTINGS, access=plane)
    creates = partial(may, plane.kube(*ACCOUNT), "create", "virtualmachineinstancemigrations", "", "kubevirt.io")
    eventually(creates, what="the authorizer to know the role")
    return server


@pytest.fixture
def tenant(server: WebhookServer) -> Tenant:
    return Tenant.new(server, policies=[PREEMPTION])


@pytest.fixture
def nodes(plane: LentPlane, tenant: Tenant) -> Iterator[Nodes]:
    yield Nodes(plane.admin, "one", "two", space=tenant.namespace)
    plane.admin.delete_all(PODS, tenant.namespace, gracePeriodSeconds="0")


def test_a_preempted_vm_moves_and_its_room_is_the_preemptors(plane: LentPlane, tenant: Tenant, nodes: Nodes) -> None:
    plane.start_scheduler("default")
    machine = Machine(nodes, tenant)

    nodes.ask(nodeSelector=ONE)
    machine.migration()
    machine.enter("Running")
    time.sleep(12)

    assert not nodes.is_ending(machine.pod)
    assert {"migration-requested", "waits-for-migration"} <= machine.codes()
    assert len(machine.migrations()) == 1
    told = eventually(partial(notes, nodes.kube, "preemptor", "WaitsForMigration"), what="the preemptor's Event")
    assert f"the migration of VM {tenant.namespace}/web, for at most " in told[0]
    assert eventually(partial(notes, nodes.kube, "web", "Denied"), what="the VM's Event")
    moved = machine.move()
    assert nodes.bound() - moved < 5
    assert not nodes.is_ending(machine.pod)


def test_the_same_without_the_policy_kills_it(plane: LentPlane, server: WebhookServer, nodes: Nodes) -> None:
    tenant = Tenant.new(server, mode="audit", policies=[PREEMPTION])
    nodes.space = tenant.namespace
    plane.start_scheduler("default")
    machine = Machine(nodes, tenant)

    nodes.ask(nodeSelector=ONE)

    eventually(lambda: nodes.is_ending(machine.pod), what="its deletion")
    assert machine.migrations() == []
    plane.admin.delete_all(PODS, tenant.namespace, gracePeriodSeconds="0")


def test_one_that_cannot_move_makes_room_at_once(plane: LentPlane, tenant: Tenant, nodes: Nodes) -> None:
    plane.start_scheduler("default")
    machine = Machine(nodes, tenant, selector=ONE)

    nodes.ask(nodeSelector=ONE)

    eventually(lambda: nodes.is_ending(machine.pod), what="its deletion")
    assert NOT_ASKED in machine.codes()
    assert machine.migrations() == []


def test_one_whose_migration_fails_makes_room_then(plane: LentPlane, tenant: Tenant, nodes: Nodes) -> None:
    plane.start_scheduler("default")
    machine = Machine(nodes, tenant)
    nodes.ask(nodeSelector=ONE)
    machine.migration()
    assert not nodes.is_ending(machine.pod)

    machine.enter("Failed", endTimestamp=dt.datetime.now(dt.UTC).isoformat(timespec="seconds"))

    eventually(lambda: nodes.is_ending(machine.pod), what="its deletion", timeout=60)
    assert "migration-was-requested" in machine.codes()
    assert len(machine.migrations()) == 1


def test_a_taint_waits_until_the_vm_has_moved(plane: LentPlane, tenant: Tenant, nodes: Nodes) -> None:
    plane.start_controller_manager(accounts=True)
    machine = Machine(nodes, tenant)

    nodes.taint("one")
    machine.migration()
    machine.enter("Running")
    time.sleep(12)

    assert not nodes.is_ending(machine.pod)
    assert "waits-for-migration" in machine.codes()
    machine.move()
    assert not nodes.is_ending(machine.pod)


def test_synchronous_preemption_goes_on_as_before(plane: LentPlane, tenant: Tenant, nodes: Nodes) -> None:
    plane.start_scheduler("default", options=("--feature-gates=SchedulerAsyncPreemption=false",))
    machine = Machine(nodes, tenant)

    nodes.ask(nodeSelector=ONE)

    eventually(lambda: nodes.is_ending(machine.pod), what="its deletion", timeout=30)
    assert "preemptor-not-nominated" in machine.codes()
    assert machine.migrations() == []
