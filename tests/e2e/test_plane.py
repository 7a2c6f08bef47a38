"""The control plane itself: that it is what the other end-to-end tests take it for."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from .conftest import NewNamespace, OwnPlane
from .support.access import Access
from .support.commands import KUBEVIRT_SCHEDULER, HeldLease
from .support.kube import Json, Kube, KubeError, eventually
from .support.objects import launcher_pod, make_node
from .support.pki import KUBEVIRT_CONTROLLER, service_account

PODS = "v1/pods"
VMS = "kubevirt.io/v1/virtualmachines"
VMIS = "kubevirt.io/v1/virtualmachineinstances"
LEASES = "coordination.k8s.io/v1/leases"


def vm(name: str) -> Json:
    template = {"metadata": {"labels": {"app": name}}, "spec": {"domain": {"devices": {}}}}
    return {
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachine",
        "metadata": {"name": name},
        "spec": {"runStrategy": "Always", "template": template},
    }


def vmi(name: str) -> Json:
    spec: Json = {"domain": {"devices": {}}}
    return {"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance", "metadata": {"name": name}, "spec": spec}


def bound_to(kube: Kube, pod: str, namespace: str) -> str:
    """The node of a pod, once it has one."""
    found = kube.wait(PODS, pod, namespace, until=lambda it: it["spec"].get("nodeName"), what=f"a node for {pod}")
    return str(found["spec"]["nodeName"])


def scheduled_by(kube: Kube, pod: str, namespace: str) -> str:
    """The scheduler that says, in its event, that it bound a pod."""
    events = eventually(
        lambda: kube.list("events.k8s.io/v1/events", namespace, fieldSelector=f"regarding.name={pod},reason=Scheduled"),
        what=f"the event of {pod}'s scheduling",
    )
    return str(events[0]["reportingController"])


def test_is_ready(plane: Access) -> None:
    assert plane.admin.text("/readyz") == "ok"
    assert plane.admin.request("GET", "/version")["gitVersion"].startswith("v1.")


def test_serves_every_kind_of_kubevirt(plane: Access) -> None:
    served = {
        group: {resource["kind"] for resource in plane.admin.request("GET", f"/apis/{group}")["resources"]}
        for group in ("kubevirt.io/v1", "kubevirt.io/v1alpha3", "pool.kubevirt.io/v1beta1")
    }
    instancetypes = plane.admin.request("GET", "/apis/instancetype.kubevirt.io/v1beta1")["resources"]

    kinds = {"VirtualMachine", "VirtualMachineInstance", "VirtualMachineInstanceReplicaSet"}
    assert kinds | {"VirtualMachineInstanceMigration", "KubeVirt"} <= served["kubevirt.io/v1"]
    assert kinds <= served["kubevirt.io/v1alpha3"]
    assert "VirtualMachinePool" in served["pool.kubevirt.io/v1beta1"]
    assert {resource["name"] for resource in instancetypes} == {
        "virtualmachineinstancetypes",
        "virtualmachineclusterinstancetypes",
        "virtualmachinepreferences",
        "virtualmachineclusterpreferences",
    }


def test_vm_round_trip(plane: Access, namespace: str) -> None:
    created = plane.admin.create(VMS, vm("web"), namespace)
    assert created["spec"]["runStrategy"] == "Always"

    plane.admin.patch(VMS, "web", {"status": {"ready": True}}, namespace, subresource="status")
    plane.admin.patch(
        VMS, "web", [{"op": "replace", "path": "/spec/runStrategy", "value": "Halted"}], namespace, kind="json"
    )
    found = plane.admin.get(VMS, "web", namespace)
    assert (found["spec"]["runStrategy"], found["status"]["ready"]) == ("Halted", True)

    found["metadata"]["labels"] = {"replaced": "yes"}
    plane.admin.replace(VMS, found)
    assert [it["metadata"]["name"] for it in plane.admin.list(VMS, namespace, labelSelector="replaced")] == ["web"]

    plane.admin.delete(VMS, "web", namespace)
    plane.admin.wait_gone(VMS, "web", namespace)


def test_a_vmi_has_no_status_subresource(plane: Access, namespace: str) -> None:
    created = plane.admin.create(VMIS, {**vmi("web"), "status": {"phase": "Running"}}, namespace)

    assert created["status"]["phase"] == "Running"
    with pytest.raises(KubeError) as refused:
        plane.admin.patch(VMIS, "web", {"status": {}}, namespace, subresource="status")
    assert refused.value.status == 404


def test_apply_finds_the_resource_of_a_kind(plane: Access, namespace: str) -> None:
    config = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c", "namespace": namespace}}

    plane.admin.apply({**config, "data": {"a": "1", "b": "2"}})
    applied = plane.admin.apply({**config, "data": {"a": "1"}})

    assert applied["data"] == {"a": "1"}
    with pytest.raises(LookupError, match="serves no Nothing in v1"):
        plane.admin.apply({**config, "kind": "Nothing"})


def test_warnings_come_with_the_answer(plane: Access, namespace: str) -> None:
    old = {**vm("old"), "apiVersion": "kubevirt.io/v1alpha3"}

    created = plane.admin.create("kubevirt.io/v1alpha3/virtualmachines", old, namespace, dryRun="All")

    assert [text for text in created.warnings if "v1alpha3" in text and "deprecated" in text]


def test_a_refusal_says_who_asked_for_what(plane: Access, namespace: str) -> None:
    nobody = plane.kube(*service_account(namespace, "nobody"))

    with pytest.raises(KubeError, match=f"POST .*/{namespace}/pods as system:serviceaccount:{namespace}:nobody: 403"):
        nobody.create(PODS, launcher_pod("web"), namespace)


@pytest.mark.namespace_labels({"example.com/purpose": "test"})
def test_namespaces_carry_the_labels_asked_for(plane: Access, namespace: str, new_namespace: NewNamespace) -> None:
    other = new_namespace(annotations={"example.com/note": "too"})

    assert plane.admin.get("v1/namespaces", namespace)["metadata"]["labels"]["example.com/purpose"] == "test"
    assert plane.admin.get("v1/namespaces", other)["metadata"]["annotations"] == {"example.com/note": "too"}


def test_kubectl_knows_the_plane(plane: Access, namespace: str) -> None:
    applied = plane.kubectl(
        "apply", "--server-side", "--dry-run=server", f"--namespace={namespace}", "-f-", stdin=json.dumps(vm("web"))
    )
    assert applied.stdout.strip() == "virtualmachine.kubevirt.io/web serverside-applied (server dry run)"

    asked = plane.kubectl("auth", "can-i", "create", "pods", user=KUBEVIRT_CONTROLLER.user)
    assert asked.stdout.strip() == "yes"
    with pytest.raises(AssertionError, match="kubectl get nothing exited 1"):
        plane.kubectl("get", "nothing")


def test_default_scheduler_binds_a_launcher(schedulers: Access, namespace: str) -> None:
    owner = schedulers.admin.create(VMIS, vmi("web"), namespace)
    pod = schedulers.kubevirt_controller.create(PODS, launcher_pod("virt-launcher-web", vmi=owner), namespace)

    assert pod["spec"]["schedulerName"] == "default-scheduler"
    node = bound_to(schedulers.admin, "virt-launcher-web", namespace)
    assert node in {it["metadata"]["name"] for it in schedulers.admin.list("v1/nodes")}
    assert scheduled_by(schedulers.admin, "virt-launcher-web", namespace) == "default-scheduler"


def test_kubevirt_scheduler_binds_a_launcher(schedulers: Access, namespace: str) -> None:
    pod = launcher_pod("virt-launcher-web", scheduler="kubevirt")

    schedulers.kubevirt_controller.create(PODS, pod, namespace)

    assert bound_to(schedulers.admin, "virt-launcher-web", namespace)
    assert scheduled_by(schedulers.admin, "virt-launcher-web", namespace) == "kubevirt"


def test_kubevirt_scheduler_renews_its_lease(schedulers: Access) -> None:
    lease = schedulers.admin.get(LEASES, "kubevirt-scheduler", "kubevirt-scheduler")["spec"]

    assert lease["leaseDurationSeconds"] == 15
    schedulers.admin.wait(
        LEASES,
        "kubevirt-scheduler",
        "kubevirt-scheduler",
        until=lambda it: it["spec"]["renewTime"] > lease["renewTime"],
    )


def test_owned_objects_are_collected(schedulers: Access, namespace: str) -> None:
    owner = schedulers.admin.create(VMIS, vmi("web"), namespace)
    schedulers.admin.create(PODS, launcher_pod("virt-launcher-web", vmi=owner, scheduler="nobody"), namespace)

    schedulers.admin.delete(VMIS, "web", namespace)

    schedulers.admin.wait_gone(PODS, "virt-launcher-web", namespace)


def test_apiserver_restarts_with_its_data(own_plane: OwnPlane) -> None:
    plane = own_plane(definitions=())
    config = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "kept"}}
    plane.admin.create("v1/configmaps", config, "default")

    plane.restart_apiserver()

    assert plane.admin.get("v1/configmaps", "kept", "default")["metadata"]["name"] == "kept"
    plane.stop_apiserver()
    with pytest.raises(ConnectionRefusedError):
        plane.admin.text("/readyz")


@pytest.mark.usefixtures("kube_scheduler")
def test_a_scheduler_stops_and_another_takes_over(own_plane: OwnPlane) -> None:
    plane = own_plane(definitions=())
    lease = HeldLease("schedulers", "kubevirt", seconds=6)
    make_node(plane.admin, "node-a")
    plane.start_scheduler("first", KUBEVIRT_SCHEDULER, lease=lease)
    plane.start_scheduler("second", KUBEVIRT_SCHEDULER, lease=lease, wait=False)
    plane.admin.create(PODS, launcher_pod("before", scheduler="kubevirt"), "default")
    assert bound_to(plane.admin, "before", "default") == "node-a"

    plane.stop_scheduler("first", grace=0)

    plane.admin.create(PODS, launcher_pod("after", scheduler="kubevirt"), "default")
    assert bound_to(plane.admin, "after", "default") == "node-a"


def test_servers_die_with_a_killed_test_run(binaries: Path, tmp_path: Path) -> None:
    program = f"""
import pathlib, time
from {__package__}.support.plane import ControlPlane
plane = ControlPlane(pathlib.Path({str(tmp_path / "plane")!r}), pathlib.Path({str(binaries)!r}), definitions=())
plane.start()
print(plane._etcd.pid, plane._apiserver.pid, flush=True)
time.sleep(600)
"""
    root = Path(__file__).resolve().parents[str(__package__).count(".") + 1]
    with subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": str(root)}
    ) as run:
        assert run.stdout is not None
        servers = [int(pid) for pid in run.stdout.readline().split()]
        assert [alive(pid) for pid in servers] == [True, True]
        run.send_signal(signal.SIGKILL)

    eventually(lambda: not any(alive(pid) for pid in servers), what="the servers to die")
    shutil.rmtree(tmp_path / "plane" / "etcd")  # 120 MB that no process was left to remove


def alive(pid: int) -> bool:
    """Whether a process runs; one that ended and whose parent has not waited for it yet (a zombie) does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
