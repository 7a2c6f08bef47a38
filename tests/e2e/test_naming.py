"""The naming policy: the API server asks about names that may be too long, when a VM is made and never again."""

from __future__ import annotations

from http import HTTPStatus

from .conftest import NewTenant
from .support.kube import Json, denial, denied, eventually
from .support.webhook_server import DOMAIN
from .support.workloads import VMS, vm

NAMING = f"{DOMAIN}/naming"


def named(**metadata: str) -> Json:
    return vm() | {"metadata": metadata}


def test_a_name_that_kubevirt_cannot_migrate_is_denied_and_a_generated_one_is_not(new_tenant: NewTenant) -> None:
    tenant = new_tenant(policies=[NAMING])

    error = denied(lambda: tenant.create(named(name="n" * 64)))
    assert error.status == HTTPStatus.UNPROCESSABLE_ENTITY
    assert "has 64 characters (limit 63)" in error.message
    assert error.message.endswith("[name-unmigratable]")
    # The API server cuts it off before it asks.
    assert len(tenant.create(named(generateName="n" * 100))["metadata"]["name"]) == 63
    # No release takes that for too long.
    tenant.create(named(name="n" * 37))
    assert tenant.verdicts() == ["denied name-unmigratable", "allowed name-migratable"]


def test_a_vm_that_is_older_than_the_label_can_be_changed(new_tenant: NewTenant) -> None:
    tenant = new_tenant(None)
    tenant.create(named(name="n" * 64))
    tenant.label("enforce", NAMING)

    def is_denied() -> bool:
        return denial(lambda: tenant.create(named(name="m" * 64), dryRun="All")) is not None

    eventually(is_denied, what="the label to count")
    tenant.label("warn", NAMING)
    eventually(lambda: not is_denied(), what="the other mode to count")
    created = tenant.create(named(name="m" * 64))
    (warning,) = created.warnings
    assert "would deny this request" in warning

    changed = {"spec": {"runStrategy": "Halted"}}
    assert tenant.owner.patch(VMS, "n" * 64, changed, tenant.namespace)["spec"]["runStrategy"] == "Halted"
    assert {line["operation"] for line in tenant.audit()} == {"CREATE"}
