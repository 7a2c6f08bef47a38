"""The headroom policy beside the real scheduler: what it admits survives the loss of a node.

The test stands for KubeVirt: it makes VMIs and their pods, and makes them anew when a node is lost.
``HEADROOM_FLEETS=20`` takes so many random fleets.
"""

from __future__ import annotations

import os
import random
from functools import partial

import pytest

from .conftest import NewWebhook, OwnPlane
from .support import manifests
from .support.kube import Json, KubeError, KubeObject, eventually
from .support.lent import LentPlane
from .support.migrations import HOSTNAME
from .support.objects import is_unschedulable, make_node, obj
from .support.rbac import may
from .support.tenant import Tenant
from .support.webhook_server import ACCOUNT, DOMAIN, WebhookServer
from .support.workloads import PODS, VMIS, VMS, launcher_of, vm, vmi_of

HEADROOM = f"{DOMAIN}/headroom"
SETTINGS = {"headroom": {"enabled": True}}
NODE, QUOTAS = "v1/nodes", "v1/resourcequotas"
NODES = ("one", "two", "three")
FLEETS = range(int(os.environ.get("HEADROOM_FLEETS", "2")))


class Machines:
    """VMs of one namespace, which start and are lost."""

    def __init__(self, plane: LentPlane, tenant: Tenant) -> None:
        self.plane, self.kube, self.tenant = plane, plane.admin, tenant
        self.running: dict[str, str] = {}

    def declare(self, name: str, strategy: str = "Always") -> None:
        """A VM that does not run yet, which the server has seen."""
        self.tenant.create(vm(name, runStrategy=strategy))

    def start(self, name: str, memory: str = "1Gi", strategy: str = "Always", **labels: str) -> str:
        """Start a VM; returns the code of the denial, or nothing once its pod has a node."""
        self.declare(name, strategy)
        return self.launch(name, memory, **labels)

    def launch(self, name: str, memory: str = "1Gi", **labels: str) -> str:
        """Make a VMI of a VM, and its pod."""
        owner = self.kube.get(VMS, name, self.tenant.namespace)
        vmi = self.tenant.controller.create(VMIS, vmi_of(owner), self.tenant.namespace)
        pod = self.pod(vmi, memory)
        pod["metadata"]["labels"] |= labels
        try:
            made = self.tenant.pod(pod)
        except KubeError as error:
            self.kube.delete(VMIS, name, self.tenant.namespace)
            return str(error).rpartition("[")[2].partition("]")[0]
        self.running[name] = made["metadata"]["name"]
        eventually(lambda: self.node_of(name) or is_unschedulable(self._pod(name)), what=f"{name} to be scheduled")
        return ""

    def pod(self, vmi: KubeObject, memory: str) -> Json:
        pod = launcher_of(vmi)
        pod["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "100m", "memory": memory}}
        pod["spec"]["schedulerName"] = "default-scheduler"
        return pod

    def _pod(self, name: str) -> KubeObject:
        return self.kube.get(PODS, self.running[name], self.tenant.namespace)

    def node_of(self, name: str) -> str:
        return str(self._pod(name)["spec"].get("nodeName", ""))

    def lose(self, node: str, sizes: dict[str, str]) -> list[str]:
        """Delete a node with its pods, and start its VMs again; returns those that find no node."""
        gone = [name for name in self.running if self.node_of(name) == node]
        self.kube.delete(NODE, node)
        for name in gone:
            self.kube.delete(PODS, self.running[name], self.tenant.namespace, gracePeriodSeconds="0")
            self.kube.delete(VMIS, name, self.tenant.namespace)
        for name in gone:
            assert self.launch(name, sizes[name]) == "", "a VM that starts again is never denied"
        return [name for name in gone if not self.node_of(name)]


@pytest.fixture
def plane(own_plane: OwnPlane, kube_scheduler: object) -> LentPlane:
    plane = own_plane()
    manifests.apply(plane.admin, "components/headroom/rbac.yaml")
    plane.start_scheduler("default")
    return plane


@pytest.fixture
def server(plane: LentPlane, new_webhook: NewWebhook) -> WebhookServer:
    for name in NODES:
        make_node(plane.admin, name, {HOSTNAME: name}, allocatable={"cpu": "4", "memory": "4Gi", "pods": "50"})
    watches = partial(may, plane.kube(*ACCOUNT), "watch", "pods", "", "")
    eventually(watches, what="the authorizer to know the role")
    return new_webhook(SETTINGS, access=plane)


def machines(plane: LentPlane, server: WebhookServer, mode: str = "enforce") -> Machines:
    found = Machines(plane, Tenant.new(server, mode=mode, policies=[HEADROOM]))

    def is_watching() -> bool:
        """Whether a start is evaluated; one that is tried takes no room."""
        name = "probe"
        pod = found.pod(found.kube.get(VMIS, name, found.tenant.namespace), "1Mi")
        found.tenant.pod(pod, dryRun="All")
        return not any("lookup-failed" in each for each in found.tenant.verdicts("Pod")[-1:])

    owner = found.tenant.create(vm("probe", runStrategy="Manual"))
    found.tenant.controller.create(VMIS, vmi_of(owner), found.tenant.namespace)
    eventually(is_watching, what="all to be watched")
    found.kube.delete(VMIS, "probe", found.tenant.namespace)
    return found


def test_as_many_vms_start_as_any_two_nodes_can_hold_and_a_lost_node_leaves_none_down(
    plane: LentPlane, server: WebhookServer
) -> None:
    found = machines(plane, server)
    codes = [found.start(f"vm-{number}") for number in range(10)]

    assert codes == [""] * 8 + ["no-place-after-loss"] * 2
    sizes = dict.fromkeys(found.running, "1Gi")
    assert found.lose("one", sizes) == []
    assert len({found.node_of(name) for name in found.running}) == 2


def test_without_it_as_many_start_as_there_is_room_and_a_lost_node_leaves_its_vms_down(
    plane: LentPlane, server: WebhookServer
) -> None:
    found = machines(plane, server, "audit")
    assert [found.start(f"vm-{number}") for number in range(12)] == [""] * 12
    assert sum("would-deny" in each for each in found.tenant.verdicts("Pod")) == 4
    assert len(found.lose("one", dict.fromkeys(found.running, "1Gi"))) == 4


def test_migrations_and_restarts_are_never_denied(plane: LentPlane, server: WebhookServer) -> None:
    found = machines(plane, server)
    for number in range(8):
        assert found.start(f"vm-{number}") == ""
    space = found.tenant.namespace
    vmi = found.kube.get(VMIS, "vm-0", space)
    target = found.pod(vmi, "1Gi")
    target["metadata"]["labels"]["kubevirt.io/migrationJobUID"] = "m"
    name = found.tenant.pod(target)["metadata"]["name"]
    found.kube.delete(PODS, name, space, gracePeriodSeconds="0")

    found.kube.delete(PODS, found.running.pop("vm-1"), space, gracePeriodSeconds="0")
    found.kube.delete(VMIS, "vm-1", space)
    # Its place is kept for it.
    assert found.start("other") == "no-place-after-loss"
    assert found.launch("vm-1") == ""
    # Once it is stopped, another gets it.
    found.kube.patch(VMS, "vm-1", {"spec": {"runStrategy": "Halted"}}, space)
    found.kube.delete(PODS, found.running.pop("vm-1"), space, gracePeriodSeconds="0")
    eventually(lambda: found.launch("other") == "", what="the room to be free")


def test_a_quota_has_to_leave_room_for_a_migration(plane: LentPlane, server: WebhookServer) -> None:
    found = machines(plane, server)
    space = found.tenant.namespace
    found.kube.create(QUOTAS, obj("ResourceQuota", "q", spec={"hard": {"requests.memory": "2Gi"}}), space)
    status = {"status": {"hard": {"requests.memory": "2Gi"}, "used": {"requests.memory": "0"}}}
    found.kube.patch(QUOTAS, "q", status, space, subresource="status")
    assert found.start("small", "1Gi") == ""
    assert found.start("second", "512Mi") == "no-room-for-migration"


@pytest.mark.parametrize("seed", FLEETS)
def test_whatever_it_admits_survives_the_loss_of_any_one_node(
    plane: LentPlane, server: WebhookServer, seed: int
) -> None:
    """VMs of random sizes; then one of the nodes is lost."""
    chance = random.Random(seed)
    found = machines(plane, server)
    sizes = {}
    for number in range(14):
        name, memory = f"vm-{number}", chance.choice(["256Mi", "512Mi", "900Mi", "1500Mi"])
        if found.start(name, memory) == "":
            sizes[name] = memory
    assert len(sizes) > 3
    assert found.lose(chance.choice(NODES), sizes) == []
