"""The headroom policy beside a real KubeVirt and scheduler: which VMs start, what their owners read, and how KubeVirt
goes on.

Each of the four nodes has room for two of the VMs that start here. Six may run, so that any node may be lost.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import pytest

from tests.e2e.support import manifests
from tests.e2e.support.kube import Json, KubeObject, eventually
from tests.e2e.support.objects import is_unschedulable, obj
from tests.e2e.support.program import command
from tests.e2e.support.rbac import may
from tests.e2e.support.tenant import Tenant
from tests.e2e.support.webhook_server import ACCOUNT, DOMAIN, WebhookServer, install
from tests.e2e.support.workloads import MIGRATIONS, PODS, VMIS, VMS, launcher_of
from webhook.k8s.quantity import parse

from .control_plane import REPLICA_SETS, ZONES, RunningKubeVirt
from .place import Place, make_place, move, restart

pytestmark = pytest.mark.kubevirt

HEADROOM = f"{DOMAIN}/headroom"
QUOTAS, MEMORY = "v1/resourcequotas", "requests.memory"
ONE, *OTHERS = sorted(ZONES)
NODE_MEMORY, VM_MEMORY = "10Gi", "4Gi"
MAY_RUN, HAVE_ROOM = 6, 8
TEMPLATE: Json = {
    "domain": {"devices": {}, "memory": {"guest": VM_MEMORY}},
    "evictionStrategy": "LiveMigrate",
    "terminationGracePeriodSeconds": 0,
}
# A machine that is busy with other tests.
SLACK_SECONDS = 30.0


class Machines:
    """A namespace of VMs, and a server that reviews their starts."""

    def __init__(self, place: Place, server: WebhookServer) -> None:
        self.place, self.server = place, server
        self.admin, self.namespace = place.admin, place.namespace
        self.template = TEMPLATE

    def declare(self, *names: str, run: str = "Always") -> None:
        for name in names:
            self.place.vm(name, run=run, template=self.template)

    def start(self, *names: str, run: str = "Always") -> None:
        """VMs that start one after the other, and run."""
        for name in names:
            self.declare(name, run=run)
            if run == "Manual":
                self.call(name, "start")
            self.place.running(name)

    def fill(self) -> list[str]:
        """As many VMs as may run."""
        names = [f"vm-{number}" for number in range(MAY_RUN)]
        self.start(*names)
        return names

    def call(self, name: str, what: str) -> None:
        """As `virtctl` does."""
        assert self.place.real.call(self.namespace, name, what) == ""

    def stop(self, name: str) -> None:
        self.call(name, "stop")
        eventually(lambda: not self.place.launchers(name), what=f"{name} to be gone")

    def try_again(self, name: str) -> None:
        """As `kubectl annotate` does: whatever changes in a VMI has KubeVirt look at it again."""
        self.place.patch(VMIS, name, {"metadata": {"annotations": {"tests.example/again": str(time.monotonic())}}})

    def vmis(self) -> dict[str, KubeObject]:
        return {vmi["metadata"]["name"]: vmi for vmi in self.admin.list(VMIS, self.namespace)}

    def running(self) -> list[str]:
        return sorted(name for name, vmi in self.vmis().items() if vmi["status"].get("phase") == "Running")

    def why(self, kind: str, name: str) -> str:
        """What docs/headroom.md has an owner ask."""
        path = '{.status.conditions[?(@.type=="Synchronized")].message}'
        asked = self.place.real.plane.kubectl("-n", self.namespace, "get", kind, name, "-o", f"jsonpath={path}")
        return asked.stdout

    def waits(self, name: str, code: str = "no-place-after-loss") -> str:
        """Returns, once a VM's start has been denied, what its owner reads."""
        told = lambda: [said] if (said := self.why("vm", name)).endswith(f"[{code}]") else []
        return eventually(told, what=f"the denial of {name}")[0]

    def events(self, name: str) -> list[KubeObject]:
        """Those of a VMI about pods that could not be created."""
        which = f"involvedObject.name={name},involvedObject.kind=VirtualMachineInstance,reason=FailedCreate"
        return self.admin.list("v1/events", self.namespace, fieldSelector=which)

    def starts(self, name: str) -> list[str]:
        """The decisions on the starts of a VM, in their order."""
        lines = Tenant(self.server, self.namespace).audit("Pod")
        mine = [line for line in lines if line["object"]["name"].startswith(f"virt-launcher-{name}-")]
        return [f"{line['decision']} {line['reasons'][0]['code']}" for line in mine]

    def denials(self) -> list[str]:
        return [verdict for verdict in Tenant(self.server, self.namespace).verdicts("Pod") if "denied" in verdict]


class NewMachines(Protocol):
    """Makes a namespace with a mode of the policy, and a server with settings."""

    def __call__(self, mode: str | None = "enforce", **settings: Any) -> Machines: ...


@pytest.fixture(scope="module", autouse=True)
def _small(real: RunningKubeVirt) -> Iterator[None]:
    """Nodes of which each has room for two VMs."""
    admin = real.plane.admin
    install(admin)
    manifests.apply(admin, "components/headroom/rbac.yaml")
    watches = partial(may, real.plane.kube(*ACCOUNT), "watch", "virtualmachines", "", "kubevirt.io")
    eventually(watches, what="the authorizer to know the role")
    before = admin.get("v1/nodes", ONE)["status"]["allocatable"]["memory"]
    for name in ZONES:
        _resize(real, name, NODE_MEMORY)
    yield
    for name in ZONES:
        _resize(real, name, before)


def _resize(real: RunningKubeVirt, node: str, memory: str) -> None:
    status = {"capacity": {"memory": memory}, "allocatable": {"memory": memory}}
    real.plane.admin.patch("v1/nodes", node, {"status": status}, subresource="status")


@pytest.fixture
def new_machines(real: RunningKubeVirt, tmp_path: Path) -> Iterator[NewMachines]:
    eventually(real.is_empty, what="the VMs of other tests to end")
    with contextlib.ExitStack() as ends:

        def make(mode: str | None = "enforce", **settings: Any) -> Machines:
            given = {"schedulers": {}, "headroom": {"enabled": True, **settings}}
            server = ends.enter_context(WebhookServer(real.plane, tmp_path, f"headroom-{time.monotonic_ns()}", given))
            server.insist()
            made = Machines(make_place(real, server.labels(mode, [HEADROOM]), {}), server)
            ends.callback(real.empty)
            if mode is not None:
                _is_watching(made)
            return made

        yield make
    eventually(real.is_empty, what="the VMs to end")


def _is_watching(made: Machines) -> None:
    """Returns once starts are evaluated."""
    tenant = Tenant(made.server, made.namespace)
    owner = obj("VirtualMachineInstance", "probe", spec={})
    owner["metadata"]["uid"] = "1"
    probe = launcher_of(owner)

    def evaluates() -> bool:
        tenant.pod(probe, dryRun="All")
        return any("headroom-kept" in each for each in tenant.verdicts("Pod")[-1:])

    eventually(evaluates, what="all to be watched")


@pytest.fixture
def machines(new_machines: NewMachines) -> Machines:
    return new_machines()


class TestDenial:
    @pytest.mark.parametrize("way", ["stop", "add"])
    def test_the_owner_reads_why_and_the_vm_starts_by_itself_once_there_is_room(
        self, machines: Machines, way: str, record_property: Any
    ) -> None:
        names = machines.fill()
        machines.declare("late")
        began = time.monotonic()

        said = machines.waits("late")
        # As docs/headroom.md prints it, but without names: nothing proves here that the API server asks.
        who = 'admission webhook "pods.headroom.enforce.kubevirt-webhook.github.io" denied the request'
        what = "kubevirt-webhook (headroom): if it starts and one of the nodes is lost, 1 VM finds no place; "
        assert said.startswith(f"failed to create virtual machine pod: {who}: {what}")
        assert machines.why("vmi", "late") == said
        assert machines.admin.get(VMS, "late", machines.namespace)["status"]["printableStatus"] == "Starting"
        assert "[no-place-after-loss]" in machines.events("late")[0]["message"]
        assert machines.place.launchers("late") == []
        time.sleep(10)  # the longer it has waited, the later KubeVirt asks again
        assert machines.place.launchers("late") == []

        if way == "stop":
            machines.stop(names[0])
        else:
            machines.place.real.nodes.add("node-5", "b", {"memory": NODE_MEMORY})
        room = time.monotonic()
        try:
            machines.place.running("late")
            delay = time.monotonic() - room
            record_property("waited", room - began)
            record_property("delay", delay)
            # Each time it waits twice as long, so that altogether it has waited twice as long at most.
            assert delay < room - began + SLACK_SECONDS
            gone = lambda: machines.why("vm", "late") == ""
            eventually(gone, what="the condition to go")
        finally:
            if way == "add":
                machines.place.real.empty()
                eventually(machines.place.real.is_empty, what="the VMs to end")
                machines.place.real.nodes.lose("node-5")

    def test_an_owner_who_annotates_the_vmi_has_it_tried_at_once(self, machines: Machines) -> None:
        names = machines.fill()
        machines.declare("late")
        machines.waits("late")
        # It tries after 20 s and then after 41 s.
        time.sleep(25)
        machines.stop(names[0])
        machines.try_again("late")
        began = time.monotonic()
        machines.place.running("late")
        assert time.monotonic() - began < 14

    def test_the_condition_keeps_the_first_denial_and_events_have_the_last(
        self, machines: Machines, real: RunningKubeVirt
    ) -> None:
        machines.fill()
        machines.declare("late")
        said = machines.waits("late")
        Machines(make_place(real, {}, {}), machines.server).start("one", "two")
        machines.try_again("late")
        eventually(lambda: machines.starts("late")[-1] == "denied no-room-for-start", what="another denial")

        def is_listed() -> bool:
            listed = real.plane.kubectl("-n", machines.namespace, "events", "--for", "vmi/late").stdout
            return "[no-room-for-start]" in listed

        eventually(is_listed, what="the event of it")
        assert machines.why("vm", "late") == said

    def test_a_vm_that_waits_is_stopped_and_takes_nothing(self, machines: Machines) -> None:
        names = machines.fill()
        machines.declare("late")
        machines.waits("late")
        machines.call("late", "stop")
        eventually(lambda: "late" not in machines.vmis(), what="late to be stopped")
        machines.stop(names[0])
        machines.start("next")
        machines.call("late", "start")
        machines.waits("late")

    def test_a_server_that_has_just_started_goes_on_denying_it(self, machines: Machines, real: RunningKubeVirt) -> None:
        """It takes VMs without a pod for VMs that start again, but not one that was denied."""
        machines.fill()
        machines.declare("late")
        machines.waits("late")
        server, before = machines.server, len(machines.starts("late"))
        registered = len(server.configurations())
        with real.without_controller():  # else it would try while nobody denies it
            server.stop()
            server.start()
            eventually(lambda: len(server.configurations()) == registered, what="the configurations of the server")
            server.wait_called()
            server.insist()
            _is_watching(machines)
        eventually(lambda: len(machines.starts("late")) > before, what="another look")
        assert set(machines.starts("late")) == {"denied no-place-after-loss"}
        assert machines.place.launchers("late") == []


class TestNeverDenied:
    @pytest.fixture
    def crowded(self, new_machines: NewMachines) -> Machines:
        """A cluster without headroom: one more VM runs than may, since another namespace does not ask the policy."""
        made = new_machines()
        made.fill()
        beside = Machines(make_place(made.place.real, {}, {}), made.server)
        beside.start("beside")
        made.declare("late")
        made.waits("late")
        return made

    def test_a_migration(self, crowded: Machines) -> None:
        move(crowded.place, "vm-0")
        assert {each.partition(" ")[0] for each in crowded.starts("vm-0")} == {"allowed"}

    def test_the_evacuation_by_a_drain(self, crowded: Machines) -> None:
        node = crowded.place.running("vm-0")["status"]["nodeName"]
        crowded.place.evict(crowded.place.launcher("vm-0"))
        left = lambda vmi: vmi["status"]["nodeName"] != node and vmi["status"]["phase"] == "Running"
        crowded.admin.wait(VMIS, "vm-0", crowded.namespace, until=left, what="vm-0 to be evacuated")
        (evacuation,) = crowded.admin.list(MIGRATIONS, crowded.namespace)
        assert crowded.place.ended(evacuation) == "Succeeded"

    def test_a_restart(self, crowded: Machines) -> None:
        restart(crowded.place, "vm-0")
        assert crowded.starts("vm-0")[-1] == "allowed vm-restarts"

    def test_the_start_of_another_instance_after_the_first_was_deleted(self, crowded: Machines) -> None:
        before = crowded.place.get(VMIS, "vm-0")["metadata"]["uid"]
        crowded.admin.delete(VMIS, "vm-0", crowded.namespace)
        is_new = lambda vmi: vmi["metadata"]["uid"] != before and vmi["status"].get("phase") == "Running"
        crowded.admin.wait(VMIS, "vm-0", crowded.namespace, until=is_new, what="vm-0 to run again")
        assert crowded.starts("vm-0")[-1] == "allowed vm-restarts"

    @pytest.mark.parametrize("run", ["Manual", "RerunOnFailure"])
    def test_a_restart_of_a_vm_that_its_owner_starts(self, new_machines: NewMachines, run: str) -> None:
        machines = new_machines()
        machines.fill()
        machines.stop("vm-0")
        machines.start("own", run=run)
        machines.declare("late")
        machines.waits("late")
        restart(machines.place, "own")
        assert machines.starts("own")[-1] == "allowed vm-restarts"

    def test_the_vms_of_a_lost_node(self, machines: Machines) -> None:
        names = machines.fill()
        machines.declare("late")
        machines.waits("late")
        nodes = {name: machines.place.running(name)["status"]["nodeName"] for name in names}
        lost = max(nodes.values(), key=list(nodes.values()).count)
        try:
            machines.place.real.nodes.lose(lost)
            again = lambda: (
                machines.running() == names
                and all(vmi["status"]["nodeName"] != lost for name, vmi in machines.vmis().items() if name in names)
            )
            eventually(again, what="all VMs to run on other nodes")
            assert all("denied" not in verdict for name in names for verdict in machines.starts(name))
            assert machines.place.launchers("late") == []
        finally:
            machines.place.real.nodes.add(lost, ZONES[lost], {"memory": NODE_MEMORY})

    def test_the_vms_of_a_lost_node_in_a_cluster_without_headroom(self, crowded: Machines) -> None:
        """One finds no node, since the cluster has not the room; its pod waits for it as without the policy."""
        names = [f"vm-{number}" for number in range(MAY_RUN)]
        nodes = {name: crowded.place.running(name)["status"]["nodeName"] for name in names}
        lost = max(nodes.values(), key=list(nodes.values()).count)
        gone = [name for name, node in nodes.items() if node == lost]
        try:
            crowded.place.real.nodes.lose(lost)
            for name in gone:
                has_pod = lambda name=name: [
                    pod
                    for pod in crowded.place.launchers(name)
                    if is_unschedulable(pod) or pod["spec"].get("nodeName", lost) != lost
                ]
                eventually(has_pod, what=f"another pod of {name}")
            assert all("denied" not in verdict for name in gone for verdict in crowded.starts(name))
        finally:
            crowded.place.real.nodes.add(lost, ZONES[lost], {"memory": NODE_MEMORY})
        eventually(lambda: set(names) <= set(crowded.running()), what="all to run again")


class TestQuota:
    def test_a_vm_starts_only_where_its_quota_has_room_for_its_migration(
        self, machines: Machines, new_machines: NewMachines
    ) -> None:
        """By the pods that KubeVirt makes: with a little less, it could not migrate."""
        sample = new_machines("audit")
        _limit(sample, "1Pi")
        sample.start("web")
        used = lambda: parse(sample.place.get(QUOTAS, "q")["status"]["used"][MEMORY]).value
        size = int(eventually(used, what="the quota to count the pod"))

        little = str(2 * size - 1)
        _limit(machines, little)
        machines.declare("web")
        said = machines.waits("web", "no-room-for-migration")
        assert f"VM {machines.namespace}/web could not migrate then: exceeded quota: q" in said
        # So it is.
        _limit(sample, little)
        blocked = sample.place.migrate("web")["metadata"]["name"]
        failed = lambda: [each for each in sample.events("web") if "exceeded quota: q" in each["message"]]
        eventually(failed, what="the quota to deny the target pod")
        sample.admin.delete(MIGRATIONS, blocked, sample.namespace)

        _limit(machines, str(2 * size))
        machines.place.running("web")
        move(machines.place, "web")


def _limit(machines: Machines, memory: str) -> None:
    machines.admin.apply(obj("ResourceQuota", "q", namespace=machines.namespace, spec={"hard": {MEMORY: memory}}))
    in_force = lambda found: found.get("status", {}).get("hard") == found["spec"]["hard"]
    machines.admin.wait(QUOTAS, "q", machines.namespace, until=in_force, what="the quota to be in force")


class TestModes:
    @pytest.mark.parametrize("mode", ["audit", "warn"])
    def test_audit_and_warn_deny_nothing(self, new_machines: NewMachines, mode: str) -> None:
        machines = new_machines(mode)
        names = [f"vm-{number}" for number in range(HAVE_ROOM)]
        machines.start(*names)
        found = [machines.starts(name) for name in names]
        assert found == [["allowed headroom-kept"]] * MAY_RUN + [["would-deny no-place-after-loss"]] * 2

    def test_vms_start_while_the_webhook_is_down(self, machines: Machines) -> None:
        machines.fill()
        machines.server.kill()
        machines.start("late")


class TestBurst:
    def test_as_many_start_at_once_as_there_is_headroom_for(self, machines: Machines) -> None:
        names = [f"vm-{number}" for number in range(10)]
        machines.declare(*names, run="Halted")
        with machines.place.real.without_controller():
            _start_at_once(machines, names)
        _settles(machines, names, MAY_RUN)
        running = machines.running()
        # Two that stop make room for two that wait, and for no more.
        for name in running[:2]:
            machines.stop(name)
        eventually(lambda: len(machines.running()) == MAY_RUN, what="two more to run")
        _settles(machines, [name for name in names if name not in running[:2]], MAY_RUN)

    def test_two_replicas_admit_no_more_than_is_created_at_the_same_time(
        self, new_machines: NewMachines, real: RunningKubeVirt, record_property: Any
    ) -> None:
        """Each reviews the starts of a namespace, and learns of the other's by its watch."""
        both = new_machines(), new_machines()
        names = [f"vm-{number:02}" for number in range(20)]
        for machines in both:
            machines.template = {**TEMPLATE, "domain": {"devices": {}, "memory": {"guest": "1Gi"}}}
            machines.declare(*names, run="Halted")
        # Seven on each node.
        may_run = 7 * (len(ZONES) - 1)
        with real.without_controller():
            for name in names:
                for machines in both:
                    _start_at_once(machines, [name])

        def is_decided() -> bool:
            found = [(machines, name, vmi) for machines in both for name, vmi in machines.vmis().items()]
            runs = [vmi["status"].get("phase") == "Running" for _, _, vmi in found]
            waits = [bool(machines.why("vmi", name)) for machines, name, _ in found]
            return len(found) == 2 * len(names) and all(map(any, zip(runs, waits, strict=True)))

        eventually(is_decided, what="each VM to run or to wait")
        eventually(lambda: sum(len(machines.running()) for machines in both) >= may_run, what="VMs to run")
        running = sum(len(machines.running()) for machines in both)
        record_property("too many", running - may_run)
        # virt-controller creates ten pods at the same time.
        assert running <= may_run + 9


def _start_at_once(machines: Machines, names: Sequence[str]) -> None:
    for name in names:
        machines.place.patch(VMS, name, {"spec": {"runStrategy": "Always"}})


def _settles(machines: Machines, names: Sequence[str], count: int) -> None:
    """So many run and stay, the others say why they wait, and have no pod."""
    is_decided = lambda: (
        len(machines.running()) >= count
        and all(machines.why("vm", name) for name in names if name not in machines.running())
    )
    eventually(is_decided, what="each VM to run or to wait")
    running, uids = machines.running(), _uids(machines)
    assert len(running) == count
    time.sleep(15)
    assert machines.running() == running
    assert _uids(machines) == uids
    for name in set(names) - set(running):
        assert machines.waits(name)
        assert machines.place.launchers(name) == []


def _uids(machines: Machines) -> set[str]:
    objects = [*machines.vmis().values(), *machines.admin.list(PODS, machines.namespace)]
    return {each["metadata"]["uid"] for each in objects}


class TestScaling:
    @pytest.mark.parametrize("kind", ["pool", "replica set"])
    def test_a_denied_vm_is_tried_less_and_less_often(
        self, machines: Machines, kind: str, record_property: Any
    ) -> None:
        labels = {"app": "web"}
        inner = {"metadata": {"labels": labels}, "spec": TEMPLATE}
        if kind == "pool":
            machine = {"metadata": {"labels": labels}, "spec": {"runStrategy": "Always", "template": inner}}
            spec = {"replicas": 8, "selector": {"matchLabels": labels}, "virtualMachineTemplate": machine}
            resource = machines.place.real.pools
            made = obj("VirtualMachinePool", "web", resource.rpartition("/")[0], spec=spec)
        else:
            machines.start("own-0", "own-1", "own-2", "own-3")
            spec = {"replicas": 5, "selector": {"matchLabels": labels}, "template": inner}
            resource, made = REPLICA_SETS, obj("VirtualMachineInstanceReplicaSet", "web", spec=spec)
        machines.place.make(made)
        time.sleep(45)
        waiting = [name for name, vmi in machines.vmis().items() if vmi["status"].get("phase") != "Running"]
        counts = {name: len(machines.starts(name)) for name in waiting}
        running = machines.running()
        time.sleep(30)
        later = {name: len(machines.starts(name)) - counts[name] for name in waiting}
        record_property("reviews in 45 s", counts)
        record_property("reviews in 30 s after that", later)
        assert waiting
        # After 5 ms, and then after twice as long each time.
        assert all(count < 20 for count in counts.values())
        assert all(count <= 2 for count in later.values())
        assert running == machines.running()
        assert len(running) == MAY_RUN
        machines.place.patch(resource, "web", {"spec": {"replicas": 1}})
        eventually(lambda: len([n for n in machines.vmis() if n.startswith("web")]) == 1, what="one to be left")


class TestExplained:
    def test_explain_vm_foretells_whether_a_stopped_vm_may_start(self, machines: Machines, tmp_path: Path) -> None:
        settings = tmp_path / "explained.yaml"
        settings.write_text("headroom: {enabled: true}")

        def foretold(name: str) -> str:
            words = ("explain", "vm", f"{machines.namespace}/{name}", "-o", "json", f"--config={settings}")
            done = command(machines.place.real.plane, *words, check=False)
            assert done.stdout, done.stderr
            (pod,) = (each for each in json.loads(done.stdout)["requests"] if each["kind"] == "Pod")
            (said,) = (each for each in pod["policies"] if each["policy"] == "headroom")
            return f"{said['decision']} {said['reasons'][0]['code']}"

        names = [f"vm-{number}" for number in range(MAY_RUN)]
        machines.start(*names[:-1])
        machines.declare(names[-1], "late", run="Halted")
        assert foretold(names[-1]) == "allowed headroom-kept"
        assert foretold(names[0]) == "allowed vm-restarts"
        machines.call(names[-1], "start")
        machines.place.running(names[-1])
        assert foretold("late") == "denied no-place-after-loss"
        machines.call("late", "start")
        machines.waits("late")
        assert foretold("late") == "denied no-place-after-loss"
