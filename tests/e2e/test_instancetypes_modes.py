"""The instancetypes policy in the modes of its namespace label."""

from __future__ import annotations

import pytest

from .conftest import NewTenant
from .support.kube import Json, eventually
from .support.messages import parse
from .support.sizes import LARGE, is_ours, marks_of, matchers_of, named, offer
from .support.webhook_server import INSTANCETYPES
from .support.workloads import VMIS, vm, vmi_of

REFUSED: Json = {"instancetype": LARGE, "preference": named("Preference", "demanding")}
CRASHING: Json = {"preference": named("Preference", "featured")}


def test_warn_tells_and_changes_nothing(new_sized: NewTenant) -> None:
    tenant = new_sized("warn")

    created = tenant.create(vm())

    assert matchers_of(created) == marks_of(created) == [None, None]
    for warning, path in zip(created.warnings, ("spec.instancetype", "spec.preference"), strict=True):
        said = parse(warning)
        assert (said.policy, said.mode, said.code) == ("instancetypes", "warn", "defaults-injected")
        assert f" {path} " in said.text
    filled = tenant.owner.create(VMIS, vmi_of(vm()), tenant.namespace)
    assert filled["spec"] == vmi_of(vm())["spec"]
    assert filled.warnings
    assert [(line["mode"], line["decision"]) for line in tenant.audit()] == [("warn", "would-patch")] * 2


@pytest.mark.parametrize(("mode", "said"), [("warn", True), ("audit", False)])
@pytest.mark.parametrize(
    ("spec", "text"), [(REFUSED, "preference requires 8 vCPU"), (CRASHING, "KubeVirt would crash")]
)
def test_nothing_is_refused_where_not_enforced(
    new_sized: NewTenant, mode: str, said: bool, spec: Json, text: str
) -> None:
    tenant = offer(new_sized(mode, annotations={}), "demanding", "featured")

    created = tenant.create(vm(**spec))

    assert matchers_of(created) == [spec.get("instancetype"), spec["preference"]]
    denied = [warning for warning in created.warnings if parse(warning).code == "instancetype-denied"]
    assert any(text in warning for warning in denied) == said
    assert bool(created.warnings) == said
    assert "would-deny" in [line["decision"] for line in tenant.audit()]


@pytest.mark.parametrize("mode", ["off", None, "Enforce"])
def test_a_namespace_that_has_not_opted_in_never_reaches_us(new_sized: NewTenant, mode: str | None) -> None:
    tenant = new_sized(mode)

    tenant.create(vm(**REFUSED))
    tenant.owner.create(VMIS, vmi_of(vm()), tenant.namespace)

    assert tenant.audit() == []


def test_a_relabelled_namespace_is_followed(new_sized: NewTenant) -> None:
    tenant = new_sized("off")

    def in_force() -> bool:
        return is_ours(tenant.create(vm("probe"), dryRun="All"))

    def not_in_force() -> bool:
        return not in_force()

    assert not_in_force()
    for mode in ("warn", "audit", None):
        tenant.label("enforce", INSTANCETYPES)
        eventually(in_force, what="VMs to be in mode enforce")
        tenant.label(mode, INSTANCETYPES)
        eventually(not_in_force, what=f"VMs to be in mode {mode}")
