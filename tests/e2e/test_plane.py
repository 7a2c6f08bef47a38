"""The control plane itself: that it is what the other end-to-end tests take it for."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from .support.access import Access
from .support.kube import Json, Kube, KubeError, eventually
from .support.objects import launcher_pod
from .support.pki import service_account

PODS = "v1/pods"
VMIS = "kubevirt.io/v1/virtualmachineinstances"
LEASES = "coordination.k8s.io/v1/leases"


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


def test_a_vmi_has_no_status_subresource(plane: Access, namespace: str) -> None:
    created = plane.admin.create(VMIS, {**vmi("web"), "status": {"phase": "Running"}}, namespace)

    assert created["status"]["phase"] == "Running"
    with pytest.raises(KubeError) as refused:
        plane.admin.patch(VMIS, "web", {"status": {}}, namespace, subresource="status")
    assert refused.value.status == 404


def test_a_refusal_says_who_asked_for_what(plane: Access, namespace: str) -> None:
    nobody = plane.kube(*service_account(namespace, "nobody"))

    with pytest.raises(KubeError, match=f"POST .*/{namespace}/pods as system:serviceaccount:{namespace}:nobody: 403"):
        nobody.create(PODS, launcher_pod("web"), namespace)


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
