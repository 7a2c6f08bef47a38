"""A large cluster in a real API server: its nodes, its tenants, and the VMs in them."""

from __future__ import annotations

import itertools
import json
import random
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final, NamedTuple

from bench.churn.nodes import PLAIN_SHARE, nodes
from tests.e2e.support.installed import NAME, LiveInstallation, ServerReplica
from tests.e2e.support.kube import Json, Kube, KubeError, eventually
from tests.e2e.support.migrations import guest, source_of
from tests.e2e.support.objects import ensure_namespace, obj, owner_reference
from tests.e2e.support.plane import KUBEVIRT_SCHEDULER_LEASE, ControlPlane
from tests.e2e.support.webhook_server import DOMAIN, EVICTION, INSTANCETYPES, MIGRATION, OURS, SCHEDULING
from tests.e2e.support.workloads import INSTANCETYPES as SIZES
from tests.e2e.support.workloads import PODS, PREFERENCES, VMIS, VMS, instancetype, preference, vm

POLICIES: Final = (SCHEDULING, INSTANCETYPES, MIGRATION, EVICTION)
SIZE_NAMES: Final = ("small", "large")
SELECTOR: Final = {"matchExpressions": [{"key": OURS, "operator": "In", "values": [NAME]}]}
# All that runs beside reviews is on, often enough that an hour has some of each.
SETTINGS: Final[Mapping[str, Any]] = {
    "webhooks": {"namespaceSelector": SELECTOR},
    "tls": {"leafExpirationSeconds": 900, "caExpirationSeconds": 86_400},
    "driftScan": {"everyMinutes": 10},
    "events": "on",
    "instancetypes": {"fidelityCheck": {"sample": 20, "everyMinutes": 5}},
}
# The API server would taint all nodes as not ready, for no controller says the opposite.
FLAGS: Final = ("--disable-admission-plugins=TaintNodesByCondition",)
# Those that have opted in, and those that have not.
_TENANT_VMS: Final = 50
_OTHERS: Final = 160
_BESIDE: Final = 4

Answered = Callable[[str, float], object]


class Size(NamedTuple):
    """How large the cluster is."""

    nodes: int
    vms: int

    @property
    def tenants(self) -> list[str]:
        return [f"tenant-{number:03}" for number in range(max(2, self.vms // _TENANT_VMS))]

    @property
    def hosts(self) -> range:
        """The numbers of the nodes on which VMs can run."""
        return range(int(self.nodes * PLAIN_SHARE), self.nodes)


class ChurnReplica(ServerReplica):
    """A replica as it is shipped, with nothing hurried for tests."""

    @property
    def pid(self) -> int:
        assert self._popen is not None
        return self._popen.pid

    def write(self, settings: Mapping[str, Any]) -> None:
        """Give it other settings."""
        self._settings.write_text(json.dumps(settings))

    def _command(self) -> list[str]:
        return ["webhook" if part == "tests.e2e.support.counted" else part for part in super()._command()]


class ChurnInstallation(LiveInstallation):
    """The configurations, with failurePolicy Fail, so that a lost call is seen; one replica serves them."""

    def __init__(self, plane: ControlPlane, directory: Path) -> None:
        super().__init__(plane, directory, "--tls=managed", settings=SETTINGS)
        self._place = directory / "replica"

    def begin(self) -> ChurnReplica:
        """The replica, once it is ready and the API server reaches it."""
        self.apply()
        replica = ChurnReplica(self.access, self._place, self.url, self.arguments, self.settings)
        self.replicas.append(replica)
        replica.start()
        replica.wait_ready()
        self.balancer.endpoints.append(replica.port)
        return replica


class Machine(NamedTuple):
    """A VM by its namespace and name."""

    namespace: str
    name: str

    @property
    def pod(self) -> str:
        return f"virt-launcher-{self.name}-abcde"


class Workloads:
    """Makes and removes VMs as their owners do, and their VMIs and pods as KubeVirt and a scheduler do.

    Args:
        plane: holds them.
        size: of the cluster.
        answered: gets what was asked and the seconds until the answer, of each request that is reviewed.
    """

    def __init__(self, plane: ControlPlane, size: Size, answered: Answered) -> None:
        self.admin: Final[Kube] = plane.admin
        controller = plane.kubevirt_controller.user
        groups = ("system:serviceaccounts", "system:serviceaccounts:kubevirt", "system:authenticated")
        self.controller: Final[Kube] = plane.kube(controller, groups)
        self.size: Final = size
        self._answered: Final = answered
        self._numbers: Final = itertools.count()

    def timed(self, what: str, ask: Callable[[], Any]) -> Any:
        """The answer to a request that is reviewed; denials by a policy are answers, too."""
        begun = time.perf_counter()
        try:
            return ask()
        except KubeError as error:
            what = f"{what}: {error.status}"
            raise
        finally:
            self._answered(what, time.perf_counter() - begun)

    def prepare(self, say: Callable[[str], object]) -> None:
        """Nodes, namespaces and what VMs may name."""
        ensure_namespace(self.admin, KUBEVIRT_SCHEDULER_LEASE.namespace)
        self.renew()
        begun = time.monotonic()
        _all(self._make_node, nodes(self.size.nodes))
        say(f"{self.size.nodes:,} nodes in {time.monotonic() - begun:.0f} s")
        for number in range(_OTHERS):
            self.admin.create("v1/namespaces", obj("Namespace", f"other-{number:03}"))
        for name in self.size.tenants:
            labels = {OURS: NAME} | dict.fromkeys(POLICIES, "enforce")
            annotations = {f"{DOMAIN}/default-preference": "VirtualMachinePreference/linux"}
            self.admin.create("v1/namespaces", obj("Namespace", name, labels=labels, annotations=annotations))
            for size, cpus in zip(SIZE_NAMES, (1, 4), strict=True):
                self.admin.create(SIZES, instancetype(size, cluster=False, cpu={"guest": cpus}), name)
            self.admin.create(PREFERENCES, preference("linux"), name)

    def populate(self, say: Callable[[str], object]) -> list[Machine]:
        """All VMs, which are reviewed already."""
        begun = time.monotonic()
        dice = random.Random(self.size.vms)  # noqa: S311 - nothing is secret
        tenants = itertools.islice(itertools.cycle(self.size.tenants), self.size.vms)
        made = _all(lambda tenant: self.make(tenant, dice), tenants)
        say(f"{self.size.vms:,} VMs, VMIs and launcher pods in {time.monotonic() - begun:.0f} s")
        return made

    def renew(self) -> None:
        """The Lease of the injected scheduler, as its leader does it."""
        lease = KUBEVIRT_SCHEDULER_LEASE
        now = time.strftime("%Y-%m-%dT%H:%M:%S.000000Z", time.gmtime())
        spec = {"holderIdentity": "churn", "leaseDurationSeconds": 60, "renewTime": now}
        self.admin.apply(
            obj("Lease", lease.name, "coordination.k8s.io/v1", namespace=lease.namespace, spec=spec),
            fieldManager="churn",
        )

    def node(self, dice: random.Random) -> str:
        """A node that takes VMs."""
        return f"node-{dice.choice(self.size.hosts):05}"

    def _make_node(self, node: Json) -> None:
        self.admin.create("v1/nodes", {"apiVersion": "v1", "kind": "Node", **node})
        name = node["metadata"]["name"]
        status = {"capacity": node["status"]["allocatable"], **node["status"], **heartbeat()}
        self.admin.patch("v1/nodes", name, {"status": status}, subresource="status")

    def remake_node(self, number: int) -> None:
        """As an autoscaler does it: a node goes, and comes again as new."""
        name = f"node-{number:05}"
        found = self.admin.get("v1/nodes", name)
        self.admin.delete("v1/nodes", name)
        metadata = {"name": name, "labels": found["metadata"]["labels"]}
        self._make_node(
            {
                "metadata": metadata,
                "spec": {"taints": found["spec"].get("taints", [])},
                "status": {"allocatable": found["status"]["allocatable"]},
            }
        )

    def make(self, namespace: str, dice: random.Random) -> Machine:
        """A VM that runs."""
        machine = Machine(namespace, f"vm-{next(self._numbers)}")
        spec: Json = {}
        if dice.random() < 0.6:
            spec["instancetype"] = {"kind": "VirtualMachineInstancetype", "name": dice.choice(SIZE_NAMES)}
        wanted = vm(machine.name, **spec)
        made = self.timed("create VM", lambda: self.admin.create(VMS, wanted, namespace))
        host = self.node(dice)
        vmi = guest(machine.name, evictionStrategy="LiveMigrate")
        vmi["metadata"]["ownerReferences"] = [owner_reference(made)]
        vmi["spec"] |= {key: value for key, value in made["spec"]["template"]["spec"].items() if key == "schedulerName"}
        conditions = [{"type": "LiveMigratable", "status": "True"}]
        vmi["status"] = {"phase": "Running", "nodeName": host, "conditions": conditions}
        created = self.timed("create VMI", lambda: self.controller.create(VMIS, vmi, namespace))
        self.launch(machine, created)
        return machine

    def launch(self, machine: Machine, vmi: Mapping[str, Any]) -> None:
        """The launcher pod of a VMI, which waits for its scheduler, and then has a node."""
        host = vmi["status"]["nodeName"]
        pod = source_of(vmi, host)
        del pod["spec"]["nodeName"], pod["metadata"]["generateName"]
        pod["metadata"]["name"] = machine.pod
        self.timed("create pod", lambda: self.controller.create(PODS, pod, machine.namespace))
        bound = obj("Binding", machine.pod, "v1", target={"apiVersion": "v1", "kind": "Node", "name": host})
        self.admin.create(PODS, bound, machine.namespace, name=machine.pod, subresource="binding")

    def remove(self, machine: Machine) -> None:
        """A VM goes, with all that was made for it."""
        for resource, name in ((PODS, machine.pod), (VMIS, machine.name), (VMS, machine.name)):
            self.admin.delete(resource, name, machine.namespace, gracePeriodSeconds="0")


def heartbeat() -> Json:
    """A kubelet's condition, as of now."""
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    ready = {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "kubelet is posting ready status"}
    return {"conditions": [{**ready, "lastHeartbeatTime": now}]}


def wait_called(workloads: Workloads) -> None:
    """Returns once the API server calls the replica."""

    def called() -> bool:
        made = workloads.admin.create(VMS, vm("probe"), workloads.size.tenants[0], dryRun="All")
        return bool(made["spec"]["template"]["spec"].get("schedulerName"))

    eventually(called, what="the API server to call the replica")


def _all(make: Callable[[Any], Any], each: Iterable[Any]) -> list[Any]:
    with ThreadPoolExecutor(_BESIDE, "prepare") as pool:
        return list(pool.map(make, each))
