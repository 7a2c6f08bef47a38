"""Tenants on a real API server: what they must not learn, and objects of theirs that no honest program sends."""

from __future__ import annotations

import copy
import json
import secrets
from collections.abc import Mapping
from functools import partial
from typing import Any

import pytest
import yaml

from .conftest import NewSized, NewTenant, NewWebhook
from .support.access import Access
from .support.kube import Json, Kube, KubeError, KubeObject, denial, denied, eventually, path
from .support.messages import parse
from .support.objects import obj, owner_reference
from .support.pki import KUBEVIRT_APISERVER
from .support.processes import ROOT
from .support.rbac import account, grant, may, user_with
from .support.sizes import LARGE, LINUX, SMALL, VALIDATE
from .support.tenant import Tenant
from .support.webhook_server import DOMAIN, WebhookServer
from .support.workloads import PODS, REVISIONS, VMS, vm

CANARY = "canary-7d1f"
# A DaemonSet's revision keeps this of its pod template: everything that an admin wrote into it.
POD = {
    "nodeSelector": {"e2e": "nowhere"},
    "containers": [{"name": "agent", "image": "agent", "env": [{"name": "TOKEN", "value": CANARY}]}],
}


def user_of(tenant: Tenant) -> Kube:
    """A user who has permissions on VMs in a namespace, and on nothing else anywhere."""
    name = f"user-{secrets.token_hex(4)}"
    verbs = ["get", "create", "update", "patch"]
    rule = {"apiGroups": ["kubevirt.io"], "resources": ["virtualmachines"], "verbs": verbs}
    return user_with(tenant.server.access, name, [rule], tenant.namespace)


def daemonset_revision(tenant: Tenant, name: str, **labels: str) -> None:
    """A ControllerRevision as the DaemonSet controller makes it; its labels are the pod template's."""
    template = {"metadata": {"labels": {"app": name}}, "spec": POD}
    spec = {"selector": {"matchLabels": {"app": name}}, "template": template}
    # A real one: the garbage collector removes what belongs to nothing.
    owners = [owner_reference(tenant.owner.make(obj("DaemonSet", name, spec=spec), tenant.namespace))]
    data = {"spec": {"template": {**template, "$patch": "replace"}}}
    revision = obj("ControllerRevision", name, labels=labels, ownerReferences=owners, data=data, revision=1)
    tenant.owner.create(REVISIONS, revision, tenant.namespace)


def answer_to(user: Kube, tenant: Tenant, obj: Mapping[str, Any]) -> tuple[int, str]:
    """The status of a new VM, and all texts of the answer: denial, causes, warnings."""
    try:
        created = user.create(VMS, obj, tenant.namespace, dryRun="All")
    except KubeError as error:
        return error.status, json.dumps(error.body)
    return 201, "\n".join(created.warnings)


def with_revision(name: str, field: str = "instancetype") -> Json:
    made = vm()
    made["spec"][field] = {"instancetype": SMALL, "preference": LINUX}[field] | {"revisionName": name}
    return made


@pytest.mark.control("foreign-revisions", "reveals-foreign-revisions")
def test_a_foreign_revision_is_as_good_as_absent(new_sized: NewSized) -> None:
    tenant = new_sized(annotations={})
    user = user_of(tenant)
    daemonset_revision(tenant, "foreign-1")
    # Labels come from a pod template, which is a tenant's.
    labels = {f"instancetype.kubevirt.io/object-{key}": value for key, value in (("name", "small"), ("uid", "u"))}
    labels["instancetype.kubevirt.io/object-kind"] = SMALL["kind"]
    daemonset_revision(tenant, "foreign-2", **labels)

    assert denied(lambda: user.get(REVISIONS, "foreign-1", tenant.namespace)).status == 403
    for field in ("instancetype", "preference"):
        status, text = answer_to(user, tenant, with_revision("none", field))
        assert status == 201
        assert 'controllerrevisions.apps "none"' in text.replace("\\", "")
        assert "[instancetype-missing]" in text
        for name in ("foreign-1", "foreign-2"):
            assert answer_to(user, tenant, with_revision(name, field)) == (status, text.replace("none", name))
    assert CANARY not in json.dumps(tenant.audit())


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


@pytest.mark.control("unreadable-vms")
def test_no_depth_gets_around_an_allow_list(new_sized: NewSized) -> None:
    tenant = new_sized(annotations=ONLY_SMALL)
    for levels in DEPTHS:
        body = written(vm(instancetype=LARGE), nested(levels))
        refused = denied(partial(post, tenant, body))

        assert (refused.status, refused.body["reason"]) == (422, "Invalid")
        assert (parse(refused.message).webhook, parse(refused.message).code) == (VALIDATOR, "invalid-object")
        assert "levels deep" in refused.message
    assert names(tenant) == []
    assert tenant.verdicts(path=VALIDATE) == ["denied invalid-object"] * len(DEPTHS)


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


@pytest.mark.control("unreadable-vms")
def test_nothing_that_has_no_schema_gets_around_an_allow_list(new_sized: NewSized) -> None:
    """KubeVirt's schema, the API server or the webhook denies it: in no case is it stored."""
    tenant = new_sized(annotations=ONLY_SMALL)
    for value in VALUES:
        body = written(vm(instancetype=LARGE), value)
        assert denied(partial(post, tenant, body)).status in (400, 403, 422), value[:24]
    assert names(tenant) == []
    assert "internal-error" not in " ".join(tenant.verdicts())


# -- closed on failure -------------------------------------------------------------------------------------------------


def virt_api_in(closed: WebhookServer, tenant: Tenant) -> Kube:
    """KubeVirt's API server, with the permissions that KubeVirt grants it for the subresources of VMs."""
    virt_api = closed.access.kube(*KUBEVIRT_APISERVER)
    rule = {"apiGroups": ["kubevirt.io"], "resources": ["virtualmachines"], "verbs": ["get", "patch", "update"]}
    apiserver = account("kubevirt", "kubevirt-apiserver")
    grant(closed.access.admin, "e2e-kubevirt-apiserver-vms", [rule], tenant.namespace, apiserver)
    patches = partial(may, virt_api, "patch", "virtualmachines", tenant.namespace, "kubevirt.io")
    eventually(patches, what="the authorizer to know that virt-api may")
    return virt_api


@pytest.mark.control("outage-blocks-the-cluster")
def test_limits_that_hold_without_an_answer_hold_up_new_sizes_alone(
    new_webhook: NewWebhook, new_tenant: NewTenant
) -> None:
    closed = new_webhook({"sizes": {"failurePolicy": "Fail"}, "kubevirt": {"namespace": "kubevirt"}})
    closed.insist()
    limits = {f"{DOMAIN}/size-limits": json.dumps({"cpu": {"max": 4}})}
    tenant = new_tenant(server=closed, policies=[f"{DOMAIN}/sizes"], annotations=limits)

    def sized(name: str, cores: int) -> Json:
        made = vm(name)
        made["spec"]["template"]["spec"]["domain"]["cpu"] = {"cores": cores}
        return made

    tenant.create(sized("stored", 2))
    virt_api = virt_api_in(closed, tenant)

    closed.kill()
    attempt = partial(denial, partial(tenant.create, sized("web", 2), dryRun="All"))
    assert eventually(attempt, what="the failure policy to be known").status == 500
    grown = {"spec": {"template": {"spec": {"domain": {"cpu": {"cores": 3}}}}}}
    denied(lambda: tenant.owner.patch(VMS, "stored", grown, tenant.namespace))
    # Its owner stops and starts it; virt-api plugs a volume into its template, virt-controller restores a snapshot.
    for strategy in ("Halted", "Always"):
        tenant.owner.patch(VMS, "stored", {"spec": {"runStrategy": strategy}}, tenant.namespace)
    for client in (virt_api, tenant.controller):
        labeled = {"spec": {"template": {"metadata": {"labels": {"by": secrets.token_hex(2)}}}}}
        client.patch(VMS, "stored", labeled, tenant.namespace)


@pytest.mark.control("outage-blocks-the-cluster", "allow-list-while-down")
def test_closed_on_failure_denies_vms_and_holds_up_neither_kubevirt_nor_drains(
    new_webhook: NewWebhook, new_sized: NewSized
) -> None:
    """Where the admin wants VMs denied while no server is there."""
    closed = new_webhook({"instancetypes": {"failurePolicy": "Fail"}})
    closed.insist()
    tenant = new_sized(annotations=ONLY_SMALL, server=closed)
    stored = tenant.create(vm("stored", instancetype=SMALL))
    plain = tenant.create(vm("plain"))
    virt_api = virt_api_in(closed, tenant)

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


@pytest.mark.control("borrowed-priority")
def test_a_quota_keeps_our_priority_from_tenants(new_tenant: NewTenant, plane: Access) -> None:
    tenant = new_tenant()
    name = f"e2e-{secrets.token_hex(4)}"
    (priority,) = yaml.safe_load_all((ROOT / "manifests" / "base" / "priority.yaml").read_text())
    plane.admin.apply({**priority, "metadata": {"name": name}, "value": 1000})
    quota: Json = yaml.safe_load((ROOT / "manifests" / "quota" / "priority.yaml").read_text())
    assert quota["spec"]["scopeSelector"]["matchExpressions"][0]["values"] == [priority["metadata"]["name"]]
    quota["metadata"]["namespace"] = tenant.namespace
    quota["spec"]["scopeSelector"]["matchExpressions"][0]["values"] = [name]
    try:
        # The API server takes priorities from an informer, a moment after the write.
        eventually(lambda: not tries(tenant, name), what="any pod to be allowed without a quota")
        plane.admin.apply(quota)
        refused = eventually(lambda: tries(tenant, name), what="the quota to be known")
        assert "exceeded quota: no-kubevirt-webhook-priority" in refused
        assert tries(tenant, None) == "", "other pods are not counted"
    finally:
        plane.admin.delete("scheduling.k8s.io/v1/priorityclasses", name)


def tries(tenant: Tenant, priority: str | None) -> str:
    """Why a pod of this priority is denied; empty: it is allowed."""
    spec: Json = {"containers": [{"name": "c", "image": "i"}]} | ({"priorityClassName": priority} if priority else {})
    pod = obj("Pod", generateName="p-", spec=spec)
    error = denial(lambda: tenant.owner.create(PODS, pod, tenant.namespace, dryRun="All"))
    return error.message if error else ""
