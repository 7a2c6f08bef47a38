"""`cleanup` on a real API server: what it takes back, and what it leaves."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from .conftest import NewTenant
from .support.kube import Json, eventually
from .support.program import command
from .support.sizes import DEFAULTS, offer
from .support.tenant import Tenant
from .support.webhook_server import DOMAIN, INSTANCETYPES, SCHEDULING
from .support.workloads import VMS, scheduler_of, vm


def marks(found: Mapping[str, Any]) -> set[str]:
    """All injected annotations on a VM and its template."""
    inner = found["spec"]["template"].get("metadata", {}).get("annotations", {})
    outer = found["metadata"].get("annotations", {})
    return {key.rpartition("/")[2] for key in (*outer, *inner) if key.startswith(f"{DOMAIN}/injected-")}


@pytest.fixture
def marked(new_tenant: NewTenant) -> Tenant:
    """A namespace whose VMs got schedulers and sizes from the server, and which it doesn't look at any more."""
    tenant = offer(new_tenant(annotations=DEFAULTS, policies=(SCHEDULING, INSTANCETYPES)), "small", "linux")
    for name in ("stopped", "running", "chosen"):
        made = tenant.create(vm(name))
        assert marks(made) == {"injected-scheduler", "injected-instancetype", "injected-preference"}, made
        assert scheduler_of(made) == "kubevirt"
    for policy in (SCHEDULING, INSTANCETYPES):
        tenant.label(None, policy)
    eventually(lambda: marks(tenant.create(vm("probe"), dryRun="All")) == set(), what="the labels' end to be known")
    tenant.owner.create(VMS, vm("plain", scheduler="kubevirt"), tenant.namespace)
    tenant.owner.patch(VMS, "chosen", {"spec": {"template": {"spec": {"schedulerName": "theirs"}}}}, tenant.namespace)
    tenant.owner.patch(VMS, "running", {"status": {"created": True}}, tenant.namespace, subresource="status")
    return tenant


def found(tenant: Tenant, name: str) -> Json:
    return tenant.owner.get(VMS, name, tenant.namespace)


def test_cleanup_takes_back_what_is_ours(marked: Tenant) -> None:
    access, where = marked.server.access, f"--namespace={marked.namespace}"
    stored = {name: found(marked, name) for name in ("stopped", "running", "chosen", "plain")}

    shown = command(access, "cleanup", where, "--dry-run").stdout
    assert {name: found(marked, name) for name in stored} == stored
    assert f"VirtualMachine {marked.namespace}/stopped: remove schedulerName kubevirt" in shown
    assert f"{marked.namespace}/running: skipped " in shown
    assert "plain" not in shown

    assert command(access, "cleanup", where).stdout.endswith("cleaned 3/3 VMs\n")
    assert [scheduler_of(found(marked, name)) for name in stored] == [None, "kubevirt", "theirs", "kubevirt"]
    assert [marks(found(marked, name)) for name in stored] == [set(), {"injected-scheduler"}, set(), set()]
    # Its template is as it was: it requires no restart.
    assert found(marked, "running")["spec"] == stored["running"]["spec"]
    for name in ("stopped", "running", "chosen"):
        for field in ("instancetype", "preference"):
            assert found(marked, name)["spec"][field] == stored[name]["spec"][field]
    assert found(marked, "plain")["metadata"]["resourceVersion"] == stored["plain"]["metadata"]["resourceVersion"]

    assert "no VM to clean" in command(access, "cleanup", where).stdout
    command(access, "cleanup", where, "--allow-restart-required")
    assert scheduler_of(found(marked, "running")) is None
    assert marks(found(marked, "running")) == set()
    assert command(access, "cleanup", where).stdout.endswith("no VM to clean\n")
