"""The sizes policy: the API server asks about inline sizes, and records what a webhook has written as nobody's."""

from __future__ import annotations

import copy
import json
from functools import partial
from http import HTTPStatus
from typing import Any

import pytest

from .conftest import NewTenant
from .support import sizes
from .support.kube import Json, denial, denied
from .support.sizes import DEFAULTS, SMALL
from .support.tenant import Tenant
from .support.webhook_server import DOMAIN, INSTANCETYPES
from .support.workloads import VMIS, VMS, vm, vmi_of

SIZES = f"{DOMAIN}/sizes"
LIMITS = {"cpu": {"max": 4}, "memory": {"max": "8Gi", "step": "512Mi"}}


def sized(cores: int, memory: str = "4Gi", name: str = "web", **spec: Any) -> Json:
    made = vm(name, **spec)
    made["spec"]["template"]["spec"]["domain"] |= {"cpu": {"cores": cores}, "memory": {"guest": memory}}
    return made


@pytest.fixture
def limited(new_tenant: NewTenant) -> Tenant:
    return new_tenant(policies=[SIZES], annotations={f"{DOMAIN}/size-limits": json.dumps(LIMITS)})


@pytest.fixture
def requiring(new_tenant: NewTenant) -> Tenant:
    annotations = {f"{DOMAIN}/require-instancetype": "true", f"{DOMAIN}/expand-instancetypes": "true", **DEFAULTS}
    return sizes.offer(new_tenant(policies=[SIZES, INSTANCETYPES], annotations=annotations), "small", "linux")


def asked(tenant: Tenant) -> list[str]:
    return tenant.verdicts(path="/validate/sizes")


def test_a_size_in_the_limits_and_one_out_of_them(limited: Tenant) -> None:
    error = denied(lambda: limited.create(sized(8, "16896Mi")))
    assert error.status == HTTPStatus.FORBIDDEN
    causes = [(cause["field"], cause["reason"]) for cause in error.body["details"]["causes"]]
    base = "spec.template.spec.domain"
    assert causes == [(f"{base}.cpu.cores", "FieldValueInvalid"), (f"{base}.memory.guest", "FieldValueInvalid")]
    made = limited.create(sized(4))
    assert asked(limited) == ["denied size-out-of-limits", "allowed size-within-limits"]

    # What leaves the spec alone, and what leaves the size alone.
    changed = {"metadata": {"labels": {"a": "b"}, "finalizers": ["example.com/x"]}}
    limited.owner.patch(VMS, "web", changed, limited.namespace)
    limited.owner.patch(VMS, "web", {"status": {"ready": True}}, limited.namespace, subresource="status")
    assert len(asked(limited)) == 2
    limited.owner.patch(VMS, "web", {"spec": {"runStrategy": "Halted"}}, limited.namespace)
    assert len(asked(limited)) == 2
    labeled = {"spec": {"template": {"metadata": {"labels": {"a": "b"}}}}}
    limited.owner.patch(VMS, "web", labeled, limited.namespace)
    assert asked(limited)[2:] == ["allowed size-unchanged"]
    grown = {"spec": {"template": {"spec": {"domain": {"cpu": {"cores": 5}}}}}}
    assert denial(lambda: limited.owner.patch(VMS, "web", grown, limited.namespace))

    # KubeVirt's VMI of it, and one that a user makes.
    limited.start(made)
    assert denial(lambda: limited.owner.create(VMIS, vmi_of(sized(8, name="own")), limited.namespace))
    limited.owner.patch(VMS, "web", {"metadata": {"finalizers": None}}, limited.namespace)


def test_a_vm_with_an_instancetype_is_not_asked_about(requiring: Tenant) -> None:
    requiring.owner.patch(
        "v1/namespaces", requiring.namespace, {"metadata": {"annotations": {f"{DOMAIN}/expand-instancetypes": "false"}}}
    )
    error = denied(lambda: requiring.create(sized(1, name="inline")))
    assert "[instancetype-required]" in error.message
    requiring.create(vm("named", instancetype=SMALL))
    assert asked(requiring) == ["denied instancetype-required"]


def test_a_default_that_is_written_out_is_no_inline_size(requiring: Tenant) -> None:
    for name, written in (("defaulted", vm("defaulted")), ("named", vm("named", instancetype=SMALL))):
        made = requiring.create(written)
        assert "instancetype" not in made["spec"], name
        assert made["spec"]["template"]["spec"]["domain"]["memory"]["guest"]
    assert asked(requiring) == ["allowed no-inline-size"] * 2


@pytest.mark.control("forged-sizes")
def test_whoever_claims_that_nobody_wrote_the_size_is_recorded(requiring: Tenant) -> None:
    """What ownership.py says of the API server: a sender adds records, and removes none."""
    forged: list[list[Json]] = [
        [],
        [{}],
        [
            {
                "manager": "kubectl",
                "operation": operation,
                "apiVersion": "kubevirt.io/v1",
                "fieldsType": "FieldsV1",
                "fieldsV1": {"f:spec": {"f:runStrategy": {}}},
            }
            for operation in ("Apply", "Update")
        ],
    ]
    for entries in forged:
        claimed = copy.deepcopy(sized(64))
        claimed["metadata"]["managedFields"] = entries
        assert "[instancetype-required]" in denied(partial(requiring.create, claimed)).message
    applied = sized(64)
    applied["metadata"]["namespace"] = requiring.namespace
    assert denial(lambda: requiring.owner.apply(applied, fieldManager="flux"))


@pytest.mark.control("forged-sizes")
def test_a_forged_owner_does_not_help_a_vmi(limited: Tenant) -> None:
    owner = limited.create(sized(1))
    forged = vmi_of(sized(64, name="forged"))
    forged["metadata"]["ownerReferences"] = vmi_of(owner)["metadata"]["ownerReferences"]
    assert "[size-out-of-limits]" in denied(lambda: limited.owner.create(VMIS, forged, limited.namespace)).message
