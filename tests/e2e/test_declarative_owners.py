"""Owners who declare their VMs and apply them repeatedly: injected fields must not come back as a difference."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest

from .support.kube import Json, KubeError, KubeObject
from .support.tenant import Tenant
from .support.workloads import VMS, scheduler_of, vm

# Client-side apply remembers the applied manifest in an annotation, and server-side apply has field owners.
both_ways = pytest.mark.parametrize("way", [(), ("--server-side",)], ids=["client-side", "server-side"])


def kubectl(tenant: Tenant, *arguments: str, manifest: Json) -> str:
    """The output of kubectl, which reads a manifest; a difference, a conflict or a warning is a failure."""
    where = (f"--namespace={tenant.namespace}", "--filename=-")
    done = tenant.server.access.kubectl(*arguments, *where, stdin=json.dumps(manifest))
    assert done.stderr == ""
    return done.stdout


def apply(tenant: Tenant, manifest: Mapping[str, Any], manager: str) -> KubeObject:
    """Server-side apply that takes nothing over by force."""
    metadata = {**manifest["metadata"], "namespace": tenant.namespace}
    return tenant.owner.apply({**manifest, "metadata": metadata}, fieldManager=manager, force="false")


def found(tenant: Tenant) -> KubeObject:
    return tenant.owner.get(VMS, "web", tenant.namespace)


def managers_of(vm: Mapping[str, Any]) -> list[str]:
    """The field manager that owns the choice of the scheduler."""
    return [it["manager"] for it in vm["metadata"]["managedFields"] if "f:schedulerName" in json.dumps(it["fieldsV1"])]


@both_ways
def test_applied_again_nothing_changes(tenant: Tenant, way: tuple[str, ...]) -> None:
    kubectl(tenant, "apply", *way, manifest=vm())
    created = found(tenant)

    assert kubectl(tenant, "diff", *way, manifest=vm()) == ""
    kubectl(tenant, "apply", *way, manifest=vm())

    assert found(tenant) == created
    assert scheduler_of(created) == "kubevirt"


@both_ways
def test_a_dry_run_of_a_new_vm_shows_what_would_be_written(tenant: Tenant, way: tuple[str, ...]) -> None:
    shown = kubectl(tenant, "apply", "--dry-run=server", "--output=json", *way, manifest=vm())

    assert scheduler_of(json.loads(shown)) == "kubevirt"
    assert tenant.owner.list(VMS, tenant.namespace) == []


@both_ways
def test_an_owner_who_starts_to_declare_the_field_gets_it(tenant: Tenant, way: tuple[str, ...]) -> None:
    kubectl(tenant, "apply", *way, manifest=vm())

    kubectl(tenant, "apply", *way, manifest=vm(scheduler="volcano"))

    assert scheduler_of(found(tenant)) == "volcano"


@both_ways
def test_an_owner_who_stops_declaring_the_field_is_obeyed(tenant: Tenant, way: tuple[str, ...]) -> None:
    kubectl(tenant, "apply", *way, manifest=vm(scheduler="volcano"))

    kubectl(tenant, "apply", *way, manifest=vm())

    assert scheduler_of(found(tenant)) is None
    assert tenant.verdicts() == []


def test_nobody_owns_what_we_wrote(tenant: Tenant) -> None:
    applied = apply(tenant, vm(), "first")

    assert scheduler_of(applied) == "kubevirt"
    assert managers_of(applied) == []


@pytest.mark.parametrize("scheduler", ["kubevirt", "volcano"])
def test_another_manager_may_declare_the_field_without_force(tenant: Tenant, scheduler: str) -> None:
    apply(tenant, vm(), "first")

    declared = apply(tenant, vm(scheduler=scheduler), "second")
    applied = apply(tenant, vm(), "first")

    assert (scheduler_of(declared), managers_of(declared)) == (scheduler, ["second"])
    assert (scheduler_of(applied), managers_of(applied)) == (scheduler, ["second"])


def test_managers_conflict_with_each_other_only_over_what_they_declare(tenant: Tenant) -> None:
    apply(tenant, vm(), "first")
    apply(tenant, vm(scheduler="volcano"), "second")

    with pytest.raises(KubeError, match=r'conflict with "second": \.spec\.template\.spec\.schedulerName') as refused:
        apply(tenant, vm(scheduler="kubevirt"), "third")

    assert refused.value.status == 409
