"""The scheduling policy on VirtualMachines and their VMIs: the fields that it writes, and when the server is called."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from .conftest import SCHEDULERS, ModuleWebhook, NewTenant
from .support.kube import Json
from .support.tenant import Tenant
from .support.workloads import (
    CLUSTER_INSTANCETYPES,
    INSTANCETYPES,
    MARK,
    OLD_VMS,
    VMIS,
    VMS,
    instancetype,
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


@pytest.mark.parametrize("scheduler", [None, ""])
def test_a_vm_whose_owner_chose_nothing(tenant: Tenant, scheduler: str | None) -> None:
    created = tenant.create(vm(scheduler=scheduler))

    assert is_ours(created)
    assert created.warnings == ()
    assert tenant.owner.get(VMS, "web", tenant.namespace) == created
    assert tenant.verdicts() == ["patched scheduler-injected"]


def test_a_vm_whose_owner_chose(tenant: Tenant) -> None:
    for scheduler in ("default-scheduler", "volcano"):
        created = tenant.create(vm(scheduler, scheduler=scheduler))
        assert scheduler_of(created) == scheduler
        assert marks_of(created) == [None, None]
    assert tenant.verdicts() == []


def test_a_vm_of_an_older_version(tenant: Tenant) -> None:
    created = tenant.owner.create(OLD_VMS, {**vm(), "apiVersion": "kubevirt.io/v1alpha3"}, tenant.namespace)

    assert created["apiVersion"] == "kubevirt.io/v1alpha3"
    assert is_ours(created)
    assert is_ours(tenant.owner.get(VMS, "web", tenant.namespace))


def test_a_vm_with_an_instancetype(tenant: Tenant) -> None:
    """Of each kind one that sets a scheduler and one that doesn't; the cluster's have the namespace in their names."""
    names = {scheduler: f"{tenant.namespace}-{scheduler or 'plain'}" for scheduler in (None, "volcano")}
    for scheduler, name in names.items():
        namespaced = instancetype(name, scheduler=scheduler, cluster=False)
        tenant.owner.create(INSTANCETYPES, namespaced, tenant.namespace)
        tenant.owner.create(CLUSTER_INSTANCETYPES, instancetype(name, scheduler=scheduler))
    kinds = ["", "VirtualMachineClusterInstancetype", "virtualmachineclusterinstancetypes"]
    kinds += ["VirtualMachineInstancetype", "VIRTUALMACHINEINSTANCETYPES"]
    try:
        for number, kind in enumerate(kinds):
            plain, other = (({"kind": kind} if kind else {}) | {"name": names[one]} for one in (None, "volcano"))
            assert is_ours(tenant.create(vm(f"plain-{number}", instancetype=plain)))
            assert scheduler_of(tenant.create(vm(f"set-{number}", instancetype=other))) is None
    finally:
        for name in names.values():
            tenant.owner.delete(CLUSTER_INSTANCETYPES, name)
    said = ["patched scheduler-injected", "allowed instancetype-sets-scheduler"]
    assert tenant.verdicts() == said * len(kinds)


def test_an_overwrite_keeps_the_choice(tenant: Tenant) -> None:
    created = tenant.create(vm())
    desired = vm(runStrategy="Halted")

    overwritten = tenant.overwrite(created, desired)

    assert is_ours(overwritten)
    assert overwritten["spec"]["runStrategy"] == "Halted"
    again = tenant.overwrite(overwritten, desired)
    assert again["metadata"]["resourceVersion"] == overwritten["metadata"]["resourceVersion"]
    assert tenant.verdicts() == ["patched scheduler-injected", *["patched scheduler-preserved"] * 2]


def test_an_owner_who_takes_the_field_out_means_it(tenant: Tenant) -> None:
    tenant.create(vm())
    change = [{"op": "remove", "path": "/spec/template/spec/schedulerName"}]

    patched = tenant.owner.patch(VMS, "web", change, tenant.namespace, kind="json")

    assert scheduler_of(patched) is None
    assert tenant.verdicts() == ["patched scheduler-injected"]


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
