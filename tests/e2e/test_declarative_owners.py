"""Owners who declare their VMs and apply them repeatedly: injected fields must not come back as a difference."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest

from .conftest import NewTenant
from .support.kube import Json, KubeObject, denied
from .support.sizes import DEFAULTS, LARGE, LINUX, MUTATE, SMALL, is_ours, marks_of, matchers_of, offer
from .support.tenant import Tenant
from .support.webhook_server import INSTANCETYPES, SCHEDULING
from .support.workloads import VMS, scheduler_of, vm

# Client-side apply remembers the applied manifest in an annotation, and server-side apply has field owners.
both_ways = pytest.mark.parametrize("way", [(), ("--server-side",)], ids=["client-side", "server-side"])


@pytest.fixture
def tenant(new_tenant: NewTenant) -> Tenant:
    """A namespace whose VMs get a scheduler, an instancetype and a preference."""
    made = new_tenant(annotations=DEFAULTS, policies=(SCHEDULING, INSTANCETYPES))
    return offer(made, "small", "large", "linux")


def kubectl(tenant: Tenant, *arguments: str, manifest: Json, warns: str = "") -> str:
    """The output of kubectl, which reads a manifest; a difference, a conflict or an unexpected warning is a failure."""
    done = tenant.kubectl(manifest, *arguments, check=True)
    assert len(done.stderr.splitlines()) == bool(warns)
    assert warns in done.stderr
    return done.stdout


def apply(tenant: Tenant, manifest: Mapping[str, Any], manager: str) -> KubeObject:
    """Server-side apply that takes nothing over by force."""
    metadata = {**manifest["metadata"], "namespace": tenant.namespace}
    return tenant.owner.apply({**manifest, "metadata": metadata}, fieldManager=manager, force="false")


def found(tenant: Tenant) -> KubeObject:
    return tenant.owner.get(VMS, "web", tenant.namespace)


def managers_of(vm: Mapping[str, Any], field: str) -> list[str]:
    """The managers that own a field that the webhook writes."""
    return [it["manager"] for it in vm["metadata"]["managedFields"] if f'"f:{field}"' in json.dumps(it["fieldsV1"])]


@both_ways
def test_applied_again_nothing_changes(tenant: Tenant, way: tuple[str, ...]) -> None:
    shown = kubectl(tenant, "apply", "--dry-run=server", "--output=json", *way, manifest=vm())
    assert scheduler_of(json.loads(shown)) == "kubevirt"
    assert is_ours(json.loads(shown))
    assert tenant.owner.list(VMS, tenant.namespace) == []
    kubectl(tenant, "apply", *way, manifest=vm())
    created = found(tenant)

    assert kubectl(tenant, "diff", *way, manifest=vm()) == ""
    kubectl(tenant, "apply", *way, manifest=vm())
    assert found(tenant) == created
    assert scheduler_of(created) == "kubevirt"
    assert is_ours(created)
    before = len(tenant.verdicts(path=MUTATE))
    kubectl(tenant, "apply", *way, manifest=vm(runStrategy="Halted"))

    assert found(tenant)["spec"]["runStrategy"] == "Halted"
    assert is_ours(found(tenant))
    # They were never gone.
    assert tenant.verdicts(path=MUTATE)[before:] == ["allowed instancetype-unchanged"]


@both_ways
def test_an_owner_who_starts_or_stops_to_declare_a_field_is_obeyed(tenant: Tenant, way: tuple[str, ...]) -> None:
    kubectl(tenant, "apply", *way, manifest=vm())

    for _ in range(2):
        kubectl(tenant, "apply", *way, manifest=vm(scheduler="volcano", instancetype=LARGE, preference=LINUX))
        assert scheduler_of(found(tenant)) == "volcano"
        assert matchers_of(found(tenant)) == [LARGE, LINUX]
    kubectl(tenant, "apply", *way, manifest=vm(), warns="[size-removed]")

    assert scheduler_of(found(tenant)) is None
    assert matchers_of(found(tenant)) == marks_of(found(tenant)) == [None, None]


def test_a_replace_by_kubectl_keeps_the_defaults(tenant: Tenant) -> None:
    kubectl(tenant, "create", manifest=vm())

    kubectl(tenant, "replace", manifest=vm(runStrategy="Halted"))
    kubectl(tenant, "replace", manifest=vm())

    assert is_ours(found(tenant))


def test_nobody_owns_what_we_wrote(tenant: Tenant) -> None:
    """So another manager may declare it without force; managers conflict over what both of them declare alone."""
    first = apply(tenant, vm(), "first")
    same = apply(tenant, vm(scheduler="kubevirt"), "second")
    declared = apply(tenant, vm(scheduler="volcano", instancetype=LARGE), "second")
    again = apply(tenant, vm(), "first")

    for applied, scheduler, matchers, managers in (
        (first, "kubevirt", [SMALL, LINUX], []),
        (declared, "volcano", [LARGE, LINUX], ["second"]),
        (again, "volcano", [LARGE, LINUX], ["second"]),
    ):
        assert (scheduler_of(applied), matchers_of(applied)) == (scheduler, matchers)
        assert managers_of(applied, "schedulerName") == managers_of(applied, "instancetype") == managers
    assert managers_of(same, "schedulerName") == ["second"]
    for field, other in (("schedulerName", vm(scheduler="kubevirt")), ("instancetype", vm(instancetype=SMALL))):
        conflict = denied(lambda other=other: apply(tenant, other, "third"))  # type: ignore[misc]
        assert conflict.status == 409
        assert 'with "second"' in conflict.message
        assert field in conflict.message
