"""The scheduling policy on VirtualMachines: the fields that it writes, and how the owners' tools treat these."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from .conftest import NewTenant
from .support.kube import Json, Kube, KubeObject
from .support.messages import parse
from .support.tenant import Tenant
from .support.workloads import CLUSTER_INSTANCETYPES, INSTANCETYPES, MARK, OLD_VMS, VMS, instancetype, scheduler_of, vm


def marks_of(found: Mapping[str, Any]) -> list[str | None]:
    """The webhook's annotation on a VM and on its template."""
    both = (found["metadata"], found["spec"]["template"]["metadata"])
    return [metadata.get("annotations", {}).get(MARK) for metadata in both]


def is_ours(found: Mapping[str, Any]) -> bool:
    """Whether the webhook chose a VM's scheduler; it writes the field and both annotations together."""
    written = {scheduler_of(found), *marks_of(found)}
    assert written in ({"kubevirt"}, {None})
    return written == {"kubevirt"}


# -- creation ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scheduler", [None, ""])
def test_a_vm_whose_owner_chose_nothing(tenant: Tenant, scheduler: str | None) -> None:
    created = tenant.create(vm(scheduler=scheduler))

    assert is_ours(created)
    assert created.warnings == ()
    assert tenant.owner.get(VMS, "web", tenant.namespace) == created
    assert tenant.verdicts() == ["patched scheduler-injected"]


@pytest.mark.parametrize("scheduler", ["default-scheduler", "volcano"])
def test_a_vm_whose_owner_chose(tenant: Tenant, scheduler: str) -> None:
    created = tenant.create(vm(scheduler=scheduler))

    assert scheduler_of(created) == scheduler
    assert marks_of(created) == [None, None]
    assert tenant.verdicts() == []


def test_a_vm_of_an_older_version(tenant: Tenant) -> None:
    old = {**vm(), "apiVersion": "kubevirt.io/v1alpha3"}

    created = tenant.owner.create(OLD_VMS, old, tenant.namespace)

    assert created["apiVersion"] == "kubevirt.io/v1alpha3"
    assert is_ours(created)
    assert is_ours(tenant.owner.get(VMS, "web", tenant.namespace))


# -- instancetypes -----------------------------------------------------------------------------------------------------


@pytest.fixture
def instancetypes(tenant: Tenant) -> Iterator[Mapping[str, KubeObject]]:
    """Of each kind one that sets a scheduler and one that doesn't; the cluster's have the namespace in their names."""
    made = {}
    for scheduler in (None, "volcano"):
        name = f"{tenant.namespace}-{scheduler or 'plain'}"
        namespaced = instancetype(name, scheduler=scheduler, cluster=False)
        made[f"namespaced {scheduler}"] = tenant.owner.create(INSTANCETYPES, namespaced, tenant.namespace)
        made[f"cluster {scheduler}"] = tenant.owner.create(
            CLUSTER_INSTANCETYPES, instancetype(name, scheduler=scheduler)
        )
    yield made
    for scheduler in ("plain", "volcano"):
        tenant.owner.delete(CLUSTER_INSTANCETYPES, f"{tenant.namespace}-{scheduler}")


@pytest.mark.parametrize(
    "kind",
    [
        None,
        "VirtualMachineClusterInstancetype",
        "virtualmachineclusterinstancetypes",
        "VirtualMachineInstancetype",
        "VIRTUALMACHINEINSTANCETYPES",
    ],
)
def test_a_vm_with_an_instancetype(tenant: Tenant, instancetypes: Mapping[str, KubeObject], kind: str | None) -> None:
    sort = "namespaced" if kind and "cluster" not in kind.lower() else "cluster"

    def matcher(scheduler: str | None) -> Json:
        name = instancetypes[f"{sort} {scheduler}"]["metadata"]["name"]
        return {"name": name} | ({"kind": kind} if kind else {})

    assert is_ours(tenant.create(vm("plain", instancetype=matcher(None))))
    assert scheduler_of(tenant.create(vm("set", instancetype=matcher("volcano")))) is None
    assert tenant.verdicts() == ["patched scheduler-injected", "allowed instancetype-sets-scheduler"]


# -- updates -----------------------------------------------------------------------------------------------------------


def overwrite(kube: Kube, found: Mapping[str, Any], desired: Mapping[str, Any]) -> KubeObject:
    """Replaces a VM as a VirtualMachinePool does: spec and annotations as they are in the template, and no others."""
    changed = copy.deepcopy(dict(found))
    changed["spec"] = desired["spec"]
    changed["metadata"].pop("annotations", None)
    return kube.replace(VMS, changed)


def test_an_overwrite_keeps_the_choice(tenant: Tenant) -> None:
    created = tenant.create(vm())
    desired = vm(runStrategy="Halted")

    overwritten = overwrite(tenant.controller, created, desired)

    assert is_ours(overwritten)
    assert overwritten["spec"]["runStrategy"] == "Halted"
    again = overwrite(tenant.controller, overwritten, desired)
    assert again["metadata"]["resourceVersion"] == overwritten["metadata"]["resourceVersion"]
    assert tenant.verdicts() == ["patched scheduler-injected", *["patched scheduler-preserved"] * 2]


def test_an_owner_who_takes_the_field_out_means_it(tenant: Tenant) -> None:
    tenant.create(vm())
    change = [{"op": "remove", "path": "/spec/template/spec/schedulerName"}]

    patched = tenant.owner.patch(VMS, "web", change, tenant.namespace, kind="json")

    assert scheduler_of(patched) is None
    assert tenant.verdicts() == ["patched scheduler-injected"]


def test_a_vm_that_is_being_deleted_is_not_touched(tenant: Tenant) -> None:
    kept = vm()
    kept["metadata"]["finalizers"] = ["example.com/finalizer"]
    tenant.create(kept)

    deleting = tenant.owner.delete(VMS, "web", tenant.namespace)
    del deleting["metadata"]["finalizers"]
    overwrite(tenant.controller, deleting, vm())

    tenant.owner.wait_gone(VMS, "web", tenant.namespace)
    assert tenant.verdicts() == ["patched scheduler-injected"]


def test_a_status_is_none_of_our_business(tenant: Tenant) -> None:
    stored = tenant.create(vm())
    before = tenant.server.answered()

    # A webhook for the status subresource would see the whole object, and would preserve the annotations on this copy.
    old_copy = {**vm(runStrategy="Halted"), "metadata": {**stored["metadata"], "annotations": {}}}
    tenant.controller.replace(VMS, {**old_copy, "status": {"ready": True}}, subresource="status")

    found = tenant.owner.get(VMS, "web", tenant.namespace)
    assert found["status"]["ready"] is True
    assert is_ours(found)
    assert tenant.server.answered() == before


# -- warnings ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("scheduler", "code", "why"),
    [
        ("dead", "scheduler-unavailable", "Lease kubevirt-scheduler/nobody"),
        ("unheard-of", "scheduler-undeclared", "the settings"),
    ],
)
def test_a_scheduler_that_may_not_be_named_is_warned_of(
    new_tenant: NewTenant, scheduler: str, code: str, why: str
) -> None:
    tenant = new_tenant(annotations={"kubevirt-webhook.github.io/scheduler-name": scheduler})

    created = tenant.create(vm())
    shown = tenant.server.access.kubectl("create", "-f-", f"-n{tenant.namespace}", stdin=json.dumps(vm("other")))

    assert scheduler_of(created) is None
    (warning,) = created.warnings
    assert parse(warning).code == code
    assert f'"{scheduler}"' in warning
    assert why in warning
    assert f"Warning: {warning}" in shown.stderr
