"""The instancetypes policy: its denials and warnings as users see them."""

from __future__ import annotations

import pytest

from .conftest import SCHEDULERS, NewTenant, NewWebhook
from .support.allow_lists import ALLOWED, kubectl
from .support.kube import Json, KubeError, denial, denied, eventually
from .support.messages import Said, parse
from .support.sizes import DEFAULTS, LARGE, SMALL, VALIDATE, matchers_of, named, offer
from .support.tenant import Tenant
from .support.webhook_server import DOMAIN
from .support.workloads import INSTANCETYPES as NAMESPACED_INSTANCETYPES
from .support.workloads import VMS, vm

MUTATOR = f"virtualmachines.instancetypes.enforce.{DOMAIN}"

TEMPLATE = "spec.template.spec.domain"

MISSING = named("Instancetype", "gone")

NOT_FOUND = 'virtualmachineinstancetypes.instancetype.kubevirt.io "gone" not found'


def in_conflict() -> Json:
    """A VM that says four things which its instancetype says too."""
    made = vm(instancetype=LARGE)
    made["spec"]["template"]["spec"]["domain"] |= {
        "cpu": {"sockets": 1, "cores": 2},
        "memory": {"guest": "1Gi"},
        "resources": {"limits": {"cpu": "1"}},
    }
    return made


def refusal_of(tenant: Tenant, obj: Json) -> KubeError:
    """The denial of a new VM, which is not stored afterwards."""
    refused = denied(lambda: tenant.create(obj))
    assert tenant.owner.list(VMS, tenant.namespace) == []
    return refused


def assert_refused(
    refused: KubeError, status: int, message: str, causes: list[tuple[str, str]], code: str = "instancetype-denied"
) -> None:
    """The whole Status object, as clients see it; the message is KubeVirt's own, word for word."""
    reasons = {422: "Invalid", 403: "Forbidden"}
    assert (refused.status, refused.body["reason"], refused.body["status"]) == (status, reasons[status], "Failure")
    assert parse(refused.message) == Said(MUTATOR, "instancetypes", "", message, code)
    details = refused.body["details"]
    assert (details["kind"], details["name"]) == ("VirtualMachine", "web")
    assert [(cause["reason"], cause["field"]) for cause in details["causes"]] == causes
    told = [parse(cause["message"]) for cause in details["causes"]]
    assert [(one.policy, one.code) for one in told] == [("instancetypes", code)] * len(causes)


def test_conflicts_name_all_fields(sized: Tenant) -> None:
    paths = [f"{TEMPLATE}.{path}" for path in ("resources.limits.cpu", "cpu.sockets", "cpu.cores", "memory.guest")]

    refused = refusal_of(sized, in_conflict())
    shown = kubectl(sized, in_conflict())

    sentences = [f"VM field(s) {path} conflicts with selected instance type" for path in paths]
    assert_refused(refused, 422, ", ".join(sentences), [("FieldValueInvalid", path) for path in paths])
    assert shown.returncode == 1
    assert shown.stderr.startswith('The VirtualMachine "web" is invalid:')
    for path, sentence in zip(paths, sentences, strict=True):
        assert f"* {path}: kubevirt-webhook (instancetypes): {sentence} [instancetype-denied]" in shown.stderr
    assert set(sized.verdicts(path=VALIDATE)) == {"denied instancetype-denied"}


def test_what_kubevirt_would_crash_on_gets_a_sentence(new_sized: NewTenant) -> None:
    tenant = offer(new_sized(annotations={}), "featured", "zero")
    for given, text in (
        ({"preference": named("Preference", "featured")}, "KubeVirt would crash"),
        ({"preference": named("Preference", "zero"), "instancetype": LARGE}, "ratio of 0"),
    ):
        refused = refusal_of(tenant, vm() | {"spec": {**vm()["spec"], **given}})

        assert_refused(refused, 422, parse(refused.message).text, [("FieldValueInvalid", "spec.preference")])
        assert text in refused.message
        assert "EOF" not in refused.message


def test_a_missing_one_is_refused_where_an_admin_wants_that(new_webhook: NewWebhook, new_sized: NewTenant) -> None:
    server = new_webhook({"schedulers": SCHEDULERS, "instancetypes": {"missing": "deny"}})
    tenant = new_sized(server=server, annotations={})

    refused = refusal_of(tenant, vm(instancetype=MISSING, preference=named("Preference", "gone")))

    message = f'{NOT_FOUND}, virtualmachinepreferences.instancetype.kubevirt.io "gone" not found'
    causes = [("FieldValueNotFound", "spec.instancetype"), ("FieldValueNotFound", "spec.preference")]
    assert_refused(refused, 422, message, causes, "instancetype-missing")
    # An owner may delete an object that VMs name: its VMs stay as they are.
    tenant.create(vm(instancetype=SMALL))
    tenant.owner.delete(NAMESPACED_INSTANCETYPES, "small", tenant.namespace)
    change = {"spec": {"template": {"metadata": {"labels": {"a": "b"}}}}}
    assert tenant.owner.patch(VMS, "web", change, tenant.namespace).warnings == ()


@pytest.fixture
def strict(new_sized: NewTenant) -> Tenant:
    """A namespace where only the instancetype small may be named."""
    return new_sized(annotations={**DEFAULTS, ALLOWED: "VirtualMachineInstancetype/small, u1.*"})


def test_an_instancetype_that_is_not_allowed(strict: Tenant) -> None:
    refused = refusal_of(strict, vm(instancetype=LARGE))
    shown = kubectl(strict, vm(instancetype=LARGE))

    message = parse(refused.message).text
    for named_in_it in ("VirtualMachineInstancetype/large", strict.namespace, "VirtualMachineInstancetype/small, u1.*"):
        assert named_in_it in message
    causes = [("FieldValueNotSupported", "spec.instancetype.name")]
    assert_refused(refused, 403, message, causes, "instancetype-not-allowed")
    assert "Error from server (Forbidden)" in shown.stderr
    assert message in shown.stderr
    assert matchers_of(strict.create(vm()))[0] == SMALL


def test_a_vm_that_names_what_is_not_allowed_any_more_stays_editable(new_sized: NewTenant) -> None:
    tenant = new_sized()
    tenant.create(vm(instancetype=LARGE))
    tenant.annotate(allowed_instancetypes="VirtualMachineInstancetype/small")

    probe = vm("probe", instancetype=LARGE)
    eventually(lambda: denial(lambda: tenant.create(probe, dryRun="All")), what="the allow-list to count")
    assert denied(lambda: tenant.create(probe, dryRun="All")).status == 403
    change = {"spec": {"runStrategy": "Halted", "template": {"metadata": {"labels": {"a": "b"}}}}}
    assert matchers_of(tenant.owner.patch(VMS, "web", change, tenant.namespace))[0] == LARGE
