"""The scheduling policy on VirtualMachines, their VMIs and virt-launcher pods: which scheduler really gets them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import pytest

from .conftest import SCHEDULERS, ModuleWebhook, NewTenant
from .support.foreign_webhook import Labeller
from .support.kube import Json, KubeObject, eventually
from .support.objects import launcher_pod
from .support.tenant import Tenant
from .support.workloads import (
    CLUSTER_INSTANCETYPES,
    MARK,
    OLD_VMS,
    PODS,
    VMIS,
    VMS,
    instancetype,
    launcher_of,
    scheduler_of,
    vm,
)


def marks_of(found: Mapping[str, Any]) -> list[str | None]:
    """The webhook's annotation on a VM and on its template."""
    both = (found["metadata"], found["spec"]["template"]["metadata"])
    return [metadata.get("annotations", {}).get(MARK) for metadata in both]


def is_ours(found: Mapping[str, Any]) -> bool:
    """Whether the webhook chose a VM's scheduler; it writes the field and both annotations together."""
    written = {scheduler_of(found), *marks_of(found)}
    assert written in ({"kubevirt"}, {None})
    return written == {"kubevirt"}


def test_a_vm_whose_owner_chose_nothing(tenant: Tenant) -> None:
    created = tenant.create(vm())
    assert is_ours(created)
    assert created.warnings == ()
    assert tenant.owner.get(VMS, "web", tenant.namespace) == created

    overwritten = tenant.overwrite(created, vm(runStrategy="Halted"))
    assert is_ours(overwritten)
    assert overwritten["spec"]["runStrategy"] == "Halted"
    change = [{"op": "remove", "path": "/spec/template/spec/schedulerName"}]
    assert scheduler_of(tenant.owner.patch(VMS, "web", change, tenant.namespace, kind="json")) is None
    # The API server does not even call the webhook for an owner who takes the field out.
    assert tenant.verdicts() == ["patched scheduler-injected", "patched scheduler-preserved"]

    older = {**vm("older"), "apiVersion": "kubevirt.io/v1alpha3"}
    assert is_ours(tenant.create(vm("empty", scheduler="")))
    assert tenant.owner.create(OLD_VMS, older, tenant.namespace)["apiVersion"] == "kubevirt.io/v1alpha3"
    assert is_ours(tenant.owner.get(VMS, "older", tenant.namespace))


def test_an_instancetype_may_set_a_scheduler(tenant: Tenant) -> None:
    """One of the namespace, and one of the cluster with the namespace's name."""
    name, asked = tenant.namespace, {"kind": "VirtualMachineInstancetype", "name": tenant.namespace}
    tenant.owner.make(instancetype(name, cluster=False), name)
    tenant.owner.make(instancetype(name, scheduler="volcano"))
    try:
        assert is_ours(tenant.create(vm("plain", instancetype=asked)))
        assert scheduler_of(tenant.create(vm("set", instancetype={"name": name}))) is None
    finally:
        tenant.owner.delete(CLUSTER_INSTANCETYPES, name)
    assert tenant.verdicts() == ["patched scheduler-injected", "allowed instancetype-sets-scheduler"]


def test_a_vm_whose_owner_chose(tenant: Tenant) -> None:
    for scheduler in ("default-scheduler", "volcano"):
        created = tenant.create(vm(scheduler, scheduler=scheduler))
        assert scheduler_of(created) == scheduler
        assert marks_of(created) == [None, None]
    assert tenant.verdicts() == []


def test_neither_a_status_nor_a_deletion_is_our_business(tenant: Tenant) -> None:
    kept = vm()
    kept["metadata"]["finalizers"] = ["example.com/finalizer"]
    stored = tenant.create(kept)

    # A webhook for the status subresource would see the whole object, and would preserve the annotations on this copy.
    old_copy = {**vm(runStrategy="Halted"), "metadata": {**stored["metadata"], "annotations": {}}}
    tenant.controller.replace(VMS, {**old_copy, "status": {"ready": True}}, subresource="status")
    found = tenant.owner.get(VMS, "web", tenant.namespace)
    assert found["status"]["ready"] is True
    assert is_ours(found)

    deleting = tenant.owner.delete(VMS, "web", tenant.namespace)
    del deleting["metadata"]["finalizers"]
    tenant.overwrite(deleting, vm())
    tenant.owner.wait_gone(VMS, "web", tenant.namespace)
    assert tenant.verdicts() == ["patched scheduler-injected"]


@pytest.fixture
def of_vmis(module_webhook: ModuleWebhook, new_tenant: NewTenant) -> Tenant:
    """A namespace of a server that matches VMIs and not VMs."""
    switches = {"virtualMachines": False, "virtualMachineInstances": True}
    return new_tenant(server=module_webhook({"schedulers": SCHEDULERS, "scheduling": switches}))


def test_switched_on_for_vmis_the_choice_shows_there_and_the_vm_stays_as_it_was(of_vmis: Tenant) -> None:
    created = of_vmis.create(vm())
    vmi = of_vmis.start(created)
    pod = of_vmis.launch(vmi)

    assert (scheduler_of(created), scheduler_of(vmi), scheduler_of(pod)) == (None, "kubevirt", "kubevirt")
    assert vmi["metadata"]["annotations"][MARK] == "kubevirt"
    assert [line["object"]["kind"] for line in of_vmis.audit()] == ["VirtualMachineInstance", "Pod"]
    said = ["patched scheduler-injected", "allowed already-injected"]
    assert of_vmis.verdicts() == said

    for scheduler in ("default-scheduler", "volcano"):
        assert scheduler_of(of_vmis.start(vm(scheduler, scheduler=scheduler))) == scheduler
    # Without a status subresource, every change of a VMI's status is an update of the VMI.
    running: Json = of_vmis.controller.patch(VMIS, "web", {"status": {"phase": "Running"}}, of_vmis.namespace)
    assert running["status"]["phase"] == "Running"
    assert of_vmis.verdicts() == said


def is_given_ours(pod: KubeObject) -> bool:
    """Whether the webhook chose the pod's scheduler; the pod must then have both the name and the annotation."""
    chosen, mark = pod["spec"]["schedulerName"], pod["metadata"].get("annotations", {}).get(MARK)
    assert (chosen == "kubevirt") == (mark == "kubevirt")
    return bool(mark)


def test_a_vm_made_under_judgement_runs_by_the_declared_scheduler(tenant: Tenant) -> None:
    vmi = tenant.start(tenant.create(vm()))
    shown = tenant.launch(vmi, dryRun="All")
    assert is_given_ours(shown)
    assert tenant.owner.list(PODS, tenant.namespace) == []

    pod = tenant.launch(vmi)

    assert is_given_ours(pod)
    assert tenant.bound_by(pod) == "kubevirt"
    assert tenant.verdicts() == ["patched scheduler-injected", *["allowed already-injected"] * 2]
    assert [line["dryRun"] for line in tenant.audit("Pod")] == [True, False]


def test_a_vm_older_than_us_does_too(new_tenant: NewTenant) -> None:
    tenant = new_tenant("off")
    created = tenant.create(vm())
    tenant.label("enforce")
    vmi = tenant.start(created)
    eventually(lambda: is_given_ours(tenant.launch(vmi, dryRun="All")), what="the namespace to be judged")
    before = len(tenant.verdicts())
    pod = tenant.launch(vmi)

    assert "schedulerName" not in vmi["spec"]
    assert is_given_ours(pod)
    assert tenant.bound_by(pod) == "kubevirt"
    assert tenant.verdicts()[before:] == ["patched scheduler-injected"]


def test_what_is_decided_is_written_down(tenant: Tenant) -> None:
    pod = tenant.launch(tenant.start(vm()))

    (line,) = tenant.audit()
    assert line["schema"] == "kubevirt-webhook.github.io/audit/v1alpha1"
    assert line["endpoint"] == "/mutate/scheduling/pods/enforce"
    assert line["object"] == {"kind": "Pod", "namespace": tenant.namespace, "name": pod["metadata"]["generateName"]}
    assert line["user"] == tenant.controller.user
    assert (line["mode"], line["dryRun"]) == ("enforce", False)
    assert {"/".join(change["path"]): (change["old"], change["new"]) for change in line["changes"]} == {
        "spec/schedulerName": ("default-scheduler", "kubevirt"),
        f"metadata/annotations/{MARK}": (None, "kubevirt"),
    }


def test_a_user_who_copies_a_launcher_pod_gets_nothing(tenant: Tenant) -> None:
    pod = tenant.owner.create(PODS, launcher_of(tenant.start(vm())), tenant.namespace)

    assert not is_given_ours(pod)
    assert tenant.bound_by(pod) == "default-scheduler"
    assert tenant.verdicts() == []


def test_the_api_server_sends_one_head_but_for_the_length(tenant: Tenant) -> None:
    """What makes it worth remembering a head (docs/adr/0019)."""
    with Labeller(tenant.server.access, tenant.namespace) as other:
        for size in (1, 100, 1000):
            pod = launcher_pod("sized")
            pod["metadata"]["labels"] = {"app": "sized"}
            pod["metadata"]["annotations"] = {"size": "x" * size}
            tenant.server.access.admin.create(PODS, pod, tenant.namespace, dryRun="All")
    lengths = {found[1] for head in other.heads if (found := re.search(r"\nContent-Length: (\d+)\n", head))}

    assert len(lengths) >= 3
    assert len({re.sub(r"Content-Length: \d+", "", head) for head in other.heads}) == 1, other.heads


def test_a_later_webhook_makes_us_look_again_and_we_add_nothing(tenant: Tenant) -> None:
    with Labeller(tenant.server.access, tenant.namespace) as other:
        pod = tenant.launch(tenant.start(vm()))

    assert other.pods.count("virt-launcher-web-") == 1
    assert pod["metadata"]["labels"]["example.com/seen"] == "yes"
    assert is_given_ours(pod)
    assert tenant.verdicts() == ["patched scheduler-injected", "allowed already-injected"]
