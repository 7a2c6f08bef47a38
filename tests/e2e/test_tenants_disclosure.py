"""A tenant learns nothing through the server of objects that RBAC denies, on a real API server."""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping
from functools import partial
from typing import Any

import pytest

from .conftest import SCHEDULERS, ModuleWebhook, NewTenant
from .support.kube import Json, Kube, KubeError, KubeObject, denied, eventually
from .support.objects import obj, owner_reference
from .support.rbac import account, grant, may
from .support.sizes import LARGE, LINUX, SMALL
from .support.tenant import Tenant
from .support.webhook_server import DOMAIN
from .support.workloads import INSTANCETYPES, REVISIONS, VMS, revision_of, vm

EVENTS = "events.k8s.io/v1/events"
# Shared by the tests of this module.
DENYING = {"schedulers": SCHEDULERS, "instancetypes": {"missing": "deny"}, "events": True}
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
    grant(tenant.owner, name, [rule], tenant.namespace)
    user = tenant.server.access.kube(name)
    create = partial(may, user, "create", "virtualmachines", tenant.namespace, "kubevirt.io")
    eventually(create, what=f"the rights of {name}")
    return user


def daemonset_revision(tenant: Tenant, name: str, **labels: str) -> None:
    """A ControllerRevision as the DaemonSet controller makes it; its labels are the pod template's."""
    template = {"metadata": {"labels": {"app": name}}, "spec": POD}
    spec = {"selector": {"matchLabels": {"app": name}}, "template": template}
    # A real one: the garbage collector removes what belongs to nothing.
    owners = [owner_reference(tenant.owner.make(obj("DaemonSet", name, spec=spec), tenant.namespace))]
    data = {"spec": {"template": {**template, "$patch": "replace"}}}
    revision = obj("ControllerRevision", name, labels=labels, ownerReferences=owners, data=data, revision=1)
    tenant.owner.create(REVISIONS, revision, tenant.namespace)


def stored_large(tenant: Tenant) -> Json:
    """The instancetype large, as a revision holds it."""
    stored = tenant.owner.get(INSTANCETYPES, "large", tenant.namespace)
    stored["metadata"].pop("managedFields")
    return stored


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


@pytest.mark.parametrize("missing", ["warn", "deny"])
def test_a_foreign_revision_is_as_good_as_absent(
    module_webhook: ModuleWebhook, new_sized: NewTenant, missing: str
) -> None:
    tenant = new_sized(server=module_webhook(DENYING) if missing == "deny" else None, annotations={})
    user = user_of(tenant)
    daemonset_revision(tenant, "foreign-1")
    # Labels come from a pod template, which is a tenant's.
    labels = {f"instancetype.kubevirt.io/object-{key}": value for key, value in (("name", "small"), ("uid", "u"))}
    labels["instancetype.kubevirt.io/object-kind"] = SMALL["kind"]
    daemonset_revision(tenant, "foreign-2", **labels)

    assert denied(lambda: user.get(REVISIONS, "foreign-1", tenant.namespace)).status == 403
    for field in ("instancetype", "preference"):
        status, text = answer_to(user, tenant, with_revision("none", field))
        assert status == {"warn": 201, "deny": 422}[missing]
        assert 'controllerrevisions.apps "none" not found' in text.replace("\\", "")
        for name in ("foreign-1", "foreign-2"):
            assert answer_to(user, tenant, with_revision(name, field)) == (status, text.replace("none", name))
    assert CANARY not in json.dumps(tenant.audit())


def test_a_foreign_revision_is_no_way_around_an_allow_list(new_sized: NewTenant) -> None:
    tenant = new_sized(annotations={f"{DOMAIN}/allowed-instancetypes": "VirtualMachineInstancetype/small"})
    user = user_of(tenant)
    daemonset_revision(tenant, "foreign")
    forged = revision_of(stored_large(tenant), "forged")
    # KubeVirt takes any revision that it can decode, whatever its creator.
    forged["metadata"].pop("labels")
    tenant.owner.create(REVISIONS, forged, tenant.namespace)

    answers = {name: answer_to(user, tenant, with_revision(name)) for name in ("foreign", "forged", "none")}

    assert answers["none"][0] == 403
    for name in ("foreign", "forged"):
        assert answers[name] == (403, answers["none"][1].replace("none", name))
    assert set(tenant.verdicts(path="/validate/instancetypes")) == {"denied instancetype-not-allowed"}


def test_a_revision_of_another_vm_counts_as_it_does_for_kubevirt(new_sized: NewTenant) -> None:
    tenant = new_sized(annotations={})
    stored = stored_large(tenant)
    owner = tenant.create(vm("db"))
    # KubeVirt 1.0 wrote no labels.
    old = revision_of(stored, "old")
    del old["metadata"]["labels"]
    old["metadata"]["ownerReferences"] = [owner_reference(owner)]
    # A restore makes its revisions before the VM that is to own them.
    for revision in (old, revision_of(stored, "restored")):
        tenant.owner.create(REVISIONS, revision, tenant.namespace)

    for name in ("old", "restored"):
        created = tenant.create(vm(f"web-{name}", instancetype=LARGE | {"revisionName": name}))
        assert created.warnings == ()


def test_an_event_says_nothing_of_a_foreign_revision(module_webhook: ModuleWebhook, new_sized: NewTenant) -> None:
    tenant = new_sized(server=module_webhook(DENYING), annotations={})
    rights = {"apiGroups": ["events.k8s.io"], "resources": ["events"], "verbs": ["create", "patch"]}
    server = account("kubevirt-webhook", "kubevirt-webhook")
    grant(tenant.owner, "kubevirt-webhook-events", [rights], tenant.namespace, server)
    daemonset_revision(tenant, "foreign")

    def told() -> list[KubeObject]:
        denied(lambda: tenant.create(with_revision("foreign")))
        return tenant.owner.list(EVENTS, tenant.namespace)

    assert CANARY not in json.dumps(eventually(told, what="the Event"))


def test_a_vm_on_update_gets_the_same_answer(new_sized: NewTenant) -> None:
    tenant = new_sized(annotations={})
    user = user_of(tenant)
    daemonset_revision(tenant, "foreign")
    user.create(VMS, vm(instancetype=SMALL), tenant.namespace)

    def changed(name: str) -> list[str]:
        change = {"spec": {"instancetype": {"name": "small", "revisionName": name}}}
        return list(user.patch(VMS, "web", change, tenant.namespace, dryRun="All").warnings)

    assert changed("foreign") == [text.replace("none", "foreign") for text in changed("none")]
