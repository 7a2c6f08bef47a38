"""The instancetypes policy on VirtualMachines that exist: what overwrites, owners, admins and restores do."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import pytest

from .support.kube import Json
from .support.sizes import LINUX, MUTATE, SIZED_TEMPLATE, SMALL, VALIDATE, is_ours, matchers_of
from .support.tenant import Tenant
from .support.workloads import INSTANCETYPES as NAMESPACED_INSTANCETYPES
from .support.workloads import PREFERENCES, REVISIONS, VMS, revision_of, vm

CARRIED_OVER = "patched defaults-preserved"


def test_a_pools_overwrite_keeps_the_defaults(sized: Tenant) -> None:
    created = sized.create(vm())
    desired = vm(runStrategy="Halted")

    overwritten = sized.overwrite(created, desired)

    assert is_ours(overwritten)
    assert overwritten["spec"]["runStrategy"] == "Halted"
    assert overwritten["metadata"]["annotations"]["pool.example/revision"] == "2"
    again = sized.overwrite(overwritten, desired)
    assert again["metadata"]["resourceVersion"] == overwritten["metadata"]["resourceVersion"]
    assert sized.verdicts(path=MUTATE) == ["patched defaults-injected", CARRIED_OVER, CARRIED_OVER]


def test_an_owner_who_takes_a_matcher_out_means_it(sized: Tenant) -> None:
    sized.create(vm())

    removed = sized.owner.patch(VMS, "web", {"spec": {"instancetype": None}}, sized.namespace)
    later = sized.owner.patch(VMS, "web", {"spec": {"runStrategy": "Halted"}}, sized.namespace)

    assert matchers_of(removed) == matchers_of(later) == [None, LINUX]
    assert sized.verdicts(path=MUTATE)[1] == "allowed owner-removed-instancetype"


def test_an_expansion_by_kubevirt_itself_is_not_undone(sized: Tenant) -> None:
    created = sized.create(vm())
    expanded = copy.deepcopy(created)
    for field in ("instancetype", "preference"):
        del expanded["spec"][field]
    sizes = {"cpu": {"sockets": 1, "cores": 1, "threads": 1}, "memory": {"guest": "1Gi"}}
    expanded["spec"]["template"]["spec"]["domain"] |= sizes

    updated = sized.controller.replace(VMS, expanded)
    overwritten = sized.overwrite(updated, vm(runStrategy="Halted"))

    assert matchers_of(updated) == matchers_of(overwritten) == [None, None]
    assert sized.verdicts(path=MUTATE)[1:] == ["allowed owner-removed-instancetype", "allowed size-removed"]


def test_neither_status_nor_metadata_are_our_business(sized: Tenant) -> None:
    sized.create(vm())
    before = sized.server.answered()

    sized.owner.patch(VMS, "web", {"metadata": {"labels": {"a": "b"}, "annotations": {"c": "d"}}}, sized.namespace)
    sized.controller.patch(VMS, "web", {"status": {"ready": True}}, sized.namespace, subresource="status")
    stored = sized.owner.get(VMS, "web", sized.namespace)
    stale = {**vm(), "metadata": {**stored["metadata"], "annotations": {}}, "status": {"ready": False}}
    sized.controller.replace(VMS, stale, subresource="status")
    assert sized.server.answered() == before

    sized.owner.patch(VMS, "web", {"spec": {"runStrategy": "Halted"}}, sized.namespace)
    assert sized.server.answered() == before + 2
    found = sized.owner.get(VMS, "web", sized.namespace)
    assert is_ours(found)
    assert found["status"]["ready"] is False


def test_a_deletion_is_never_held_up(sized: Tenant) -> None:
    kept = vm()
    kept["metadata"]["finalizers"] = ["example.com/finalizer"]
    created = sized.create(kept)
    before = sized.server.answered()

    deleting = sized.owner.delete(VMS, "web", sized.namespace)
    # Matchers to missing objects beside sizes: they no longer matter while the VM is being deleted.
    odd = sized.overwrite(deleting, vm(template=SIZED_TEMPLATE, instancetype=SMALL))
    del odd["metadata"]["finalizers"]
    sized.controller.replace(VMS, odd)

    sized.owner.wait_gone(VMS, "web", sized.namespace)
    assert is_ours(created)
    assert sized.server.answered() == before


def capture(tenant: Tenant) -> None:
    """Stands for virt-controller: it stores the objects that matchers name, and refers to them in the status."""
    status: Json = {}
    for field, resource, name in (
        ("instancetypeRef", NAMESPACED_INSTANCETYPES, "small"),
        ("preferenceRef", PREFERENCES, "linux"),
    ):
        stored = tenant.owner.get(resource, name, tenant.namespace)
        stored["metadata"].pop("managedFields")
        tenant.controller.create(REVISIONS, revision_of(stored, f"web-{name}"), tenant.namespace)
        status[field] = {"name": name, "controllerRevisionRef": {"name": f"web-{name}"}}
    tenant.controller.patch(VMS, "web", {"status": status}, tenant.namespace, subresource="status")


def test_a_vm_whose_default_was_deleted_stays_editable(sized: Tenant) -> None:
    sized.create(vm())
    sized.owner.delete(NAMESPACED_INSTANCETYPES, "small", sized.namespace)
    sized.owner.delete(PREFERENCES, "linux", sized.namespace)

    labelled = sized.owner.patch(VMS, "web", {"metadata": {"labels": {"a": "b"}}}, sized.namespace)
    halted = sized.owner.patch(VMS, "web", {"spec": {"runStrategy": "Halted"}}, sized.namespace)
    change = {"spec": {"template": {"metadata": {"labels": {"a": "b"}}}}}
    changed = sized.owner.patch(VMS, "web", change, sized.namespace)
    overwritten = sized.overwrite(changed, vm())

    for found in (labelled, halted, changed, overwritten):
        assert is_ours(found)
        assert found.warnings == ()


def restored(found: Mapping[str, Any], **matcher: str) -> Json:
    """The VM that a backup tool makes of one that it once read: no status, no identity, marks and all."""
    kept = {field: found["metadata"][field] for field in ("name", "annotations")}
    spec = copy.deepcopy(found["spec"])
    spec["instancetype"] |= matcher
    return {"apiVersion": found["apiVersion"], "kind": found["kind"], "metadata": kept, "spec": spec}


def test_a_restored_vm_is_as_it_was(sized: Tenant) -> None:
    original = sized.create(vm())
    sized.owner.delete(VMS, "web", sized.namespace)
    sized.annotate(default_instancetype="VirtualMachineInstancetype/large")

    # A status that a restore brings along is not believed.
    forged = {"instancetypeRef": {"name": "small", "controllerRevisionRef": {"name": "nowhere"}}}
    again = sized.create(restored(original) | {"status": forged})

    assert again["spec"] == original["spec"]
    assert is_ours(again)
    assert again.warnings == ()
    assert is_ours(sized.overwrite(again, vm(runStrategy="Halted")))


@pytest.mark.parametrize("there", [True, False])
def test_a_restored_vm_with_a_revision(sized: Tenant, there: bool) -> None:
    original = sized.create(vm())
    if there:
        capture(sized)
    sized.owner.delete(VMS, "web", sized.namespace)
    sized.owner.delete(NAMESPACED_INSTANCETYPES, "small", sized.namespace)

    again = sized.create(restored(original, revisionName="web-small"))

    assert matchers_of(again) == [SMALL | {"revisionName": "web-small"}, LINUX]
    assert sized.verdicts(path=VALIDATE)[1:] == [
        "allowed instancetype-valid" if there else "allowed instancetype-missing"
    ]
    assert bool(again.warnings) == (not there)
    overwritten = sized.overwrite(again, vm(runStrategy="Halted"))
    assert matchers_of(overwritten) == matchers_of(again)
