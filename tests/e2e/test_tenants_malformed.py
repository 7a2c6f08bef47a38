"""Objects that no honest program sends, by tenants who may create VMs: none of them gets around an allow-list."""

from __future__ import annotations

import copy
import json
import secrets
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from .conftest import NewTenant
from .support.access import Access
from .support.kube import Json, KubeObject, denial, denied, eventually, path
from .support.messages import parse
from .support.pki import KUBEVIRT_APISERVER
from .support.rbac import account, grant
from .support.sizes import LARGE, SMALL, VALIDATE
from .support.tenant import Tenant
from .support.webhook_server import DOMAIN, INSTANCETYPES, WebhookServer, install
from .support.workloads import VMS, vm

ONLY_SMALL = {f"{DOMAIN}/allowed-instancetypes": "VirtualMachineInstancetype/small"}
HERE = '"@here@"'
VALIDATOR = f"virtualmachines.instancetypes.enforce.{DOMAIN}"
# The API server reads 10,000 levels, of the object and of the review around it.
DEPTHS = (150, 900, 950, 975, 990, 1_100, 5_000, 9_900)


def nested(levels: int) -> bytes:
    return b'{"a":' * levels + b"1" + b"}" * levels


def written(obj: Json, value: bytes) -> bytes:
    """An object as its owner writes it by hand, who puts a value where the template's metadata has no schema."""
    made = copy.deepcopy(obj)
    made["spec"]["template"]["metadata"] = json.loads(HERE)
    return json.dumps(made).encode().replace(HERE.encode(), value)


def post(tenant: Tenant, body: bytes, **query: str) -> KubeObject:
    return tenant.owner.request("POST", path(VMS, tenant.namespace), body, query=query)


def names(tenant: Tenant) -> list[str]:
    return [found["metadata"]["name"] for found in tenant.owner.list(VMS, tenant.namespace)]


def test_no_depth_gets_around_an_allow_list(new_sized: NewTenant) -> None:
    tenant = new_sized(annotations=ONLY_SMALL)
    for levels in DEPTHS:
        body = written(vm(instancetype=LARGE), nested(levels))
        refused = denied(partial(post, tenant, body))

        assert (refused.status, refused.body["reason"]) == (422, "Invalid")
        assert (parse(refused.message).webhook, parse(refused.message).code) == (VALIDATOR, "invalid-object")
        assert "levels deep" in refused.message
    assert names(tenant) == []
    assert tenant.verdicts(path=VALIDATE) == ["denied invalid-object"] * len(DEPTHS)


def test_a_deep_vm_from_before_does_not_become_another_size(new_sized: NewTenant) -> None:
    tenant = new_sized("off", annotations=ONLY_SMALL)
    stored = post(tenant, written(vm(instancetype=SMALL), nested(1_100)))
    tenant.label("enforce", INSTANCETYPES)
    probe = vm("probe", instancetype=LARGE)

    def enforced() -> bool:
        error = denial(lambda: tenant.create(probe, dryRun="All"))
        return error is not None and error.status == 403

    eventually(enforced, what="the allow-list to be enforced")

    larger = {"spec": {"instancetype": LARGE}}
    assert denied(lambda: tenant.owner.patch(VMS, "web", larger, tenant.namespace)).status == 422
    # A request that leaves the spec alone still passes, or no user could delete the VM.
    tenant.owner.patch(VMS, "web", {"metadata": {"labels": {"a": "b"}}}, tenant.namespace)
    tenant.owner.delete(VMS, stored["metadata"]["name"], tenant.namespace)


VALUES = (
    *(b"5", b'"x"', b"[]", b"[[]]", b"true", b"null"),
    *(b'{"annotations":5}', b'{"annotations":[]}', b'{"annotations":{"a":5}}', b'{"labels":{"a":{}}}'),
    *(b'{"annotations":{"a":"\\u0000"}}', b'{"annotations":{"a":"\\ud800"}}'),
    *(b'{"annotations":{"a":"\xff\xfe"}}', b'{"annotations":{"a":"\x01"}}'),
    b'{"a":1e308,"b":-1e-400,"c":1e999999}',
    b'{"a":' + b"9" * 400 + b"}",
    b'{"a":1,"a":2,"annotations":{},"annotations":5}',
    *(b'{"":{"":{"":""}}}', b'{"a":NaN}'),
    b'{"' + b"k" * 100_000 + b'":1}',
    b"[" + b"{}," * 50_000 + b"{}]",
    b"[" + b"[1]," * 60_000 + nested(1_100) + b"]",
)


def test_nothing_that_has_no_schema_gets_around_an_allow_list(new_sized: NewTenant) -> None:
    """KubeVirt's schema, the API server or the webhook denies it: in no case is it stored."""
    tenant = new_sized(annotations=ONLY_SMALL)
    for value in VALUES:
        body = written(vm(instancetype=LARGE), value)
        assert denied(partial(post, tenant, body)).status in (400, 403, 422), value[:24]
    assert names(tenant) == []
    assert "internal-error" not in " ".join(tenant.verdicts())


# -- closed on failure -------------------------------------------------------------------------------------------------


@pytest.fixture
def closed(plane: Access, kube_scheduler: Path, tmp_path: Path) -> Iterator[WebhookServer]:
    """A server whose admin wants VMs denied while it is down; its configurations outlive it."""
    install(plane.admin)
    name = f"closed-{secrets.token_hex(4)}"
    settings = {"instancetypes": {"failurePolicy": "Fail"}, "webhooks": {"timeoutSeconds": 2}}
    made = WebhookServer(plane, tmp_path, name, settings)
    made.start()
    made.wait_called()
    made.insist()
    yield made
    made.kill()
    for configuration in made.configurations():
        plane.kubectl("delete", configuration.replace("/", ".admissionregistration.k8s.io/"))


def test_closed_on_failure_denies_vms_and_holds_up_neither_kubevirt_nor_drains(
    closed: WebhookServer, new_sized: NewTenant
) -> None:
    tenant = new_sized(annotations=ONLY_SMALL, server=closed)
    stored = tenant.create(vm("stored", instancetype=SMALL))
    plain = tenant.create(vm("plain"))
    virt_api = closed.access.kube(*KUBEVIRT_APISERVER)
    # The permissions that KubeVirt grants to its API server, for the subresources of VMs.
    rule = {"apiGroups": ["kubevirt.io"], "resources": ["virtualmachines"], "verbs": ["get", "patch", "update"]}
    apiserver = account("kubevirt", "kubevirt-apiserver")
    grant(closed.access.admin, "e2e-kubevirt-apiserver-vms", [rule], tenant.namespace, apiserver)

    closed.kill()
    for instancetype in (LARGE, SMALL):
        made = vm("web", instancetype=instancetype)
        attempt = partial(denial, partial(tenant.create, made, dryRun="All"))
        refused = eventually(attempt, what="the failure policy to be known")
        assert (refused.status, refused.body["reason"]) == (500, "InternalError")
        assert f'failed calling webhook "{VALIDATOR}"' in refused.message
    larger = {"spec": {"instancetype": LARGE}}
    denied(lambda: tenant.owner.patch(VMS, "stored", larger, tenant.namespace))

    # KubeVirt at work: virtctl start, hotplug, what its controller writes; VMIs, pods, and so drains.
    changes: list[Json] = [{"runStrategy": "Halted"}, {"template": {"metadata": {"labels": {"a": "b"}}}}]
    for client in (virt_api, tenant.controller):
        for change in (*changes, {"runStrategy": "Always"}):
            changed = client.patch(VMS, "stored", {"spec": change}, tenant.namespace)
            assert changed["spec"]["instancetype"] == SMALL
    tenant.launch(tenant.start(stored))
    # KubeVirt creates the VMs of pools, but a pool's owner chose their template.
    denied(lambda: tenant.controller.create(VMS, vm("of-a-pool", instancetype=LARGE), tenant.namespace))
    denied(lambda: tenant.controller.patch(VMS, "stored", larger, tenant.namespace))
    # A VM that the list does not concern never waits.
    tenant.create(vm("sized"))
    tenant.owner.delete(VMS, plain["metadata"]["name"], tenant.namespace)
