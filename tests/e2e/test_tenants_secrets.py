"""Hostile content in tenants' objects, on a real API server: no output has a secret, or a terminal sequence."""

from __future__ import annotations

import json
import secrets

import pytest
import yaml

from .conftest import NewTenant, NewWebhook
from .support.access import Access
from .support.allow_lists import ALLOWED, kubectl
from .support.fetch import fetch
from .support.kube import Json, denial, denied, eventually
from .support.manifests import parse
from .support.objects import obj
from .support.processes import ROOT, free_port
from .support.rbac import RBAC, account, bind
from .support.tenant import Tenant
from .support.webhook_server import INSTANCETYPES, WebhookServer
from .support.workloads import PODS, vm

HOSTILE = "\x1b[2J\x1b]0;owned\x07\u202egpj.exe\u2066\u200b\r\nError from server: nothing\u2028\U000e0041\x9b31m"
CANARY = "hunter2canary"
PRESIGNED = f"https://bucket.s3.amazonaws.com/disk.img?X-Amz-Credential=me&X-Amz-Signature={CANARY}"


def shows_all(text: str) -> bool:
    return all(char.isprintable() or char in "\n\t" for char in text)


@pytest.mark.parametrize("mode", ["enforce", "warn"])
def test_kubectl_shows_what_a_tenant_hid_in_a_name(new_tenant: NewTenant, mode: str) -> None:
    tenant = new_tenant(mode, policies=[INSTANCETYPES], annotations={ALLOWED: "u1.*"})
    hostile = vm(instancetype={"kind": "VirtualMachineClusterInstancetype", "name": f"evil{HOSTILE}"})

    done = kubectl(tenant, hostile)

    assert (done.returncode == 1) is (mode == "enforce")
    assert "evil" in done.stderr
    assert shows_all(done.stdout + done.stderr)
    assert len([line for line in done.stderr.splitlines() if line.startswith("Error from server")]) <= 1
    assert shows_all(json.dumps(tenant.audit(), ensure_ascii=False))


def test_a_presigned_address_stays_in_the_object(new_tenant: NewTenant) -> None:
    tenant = new_tenant(policies=[INSTANCETYPES], annotations={ALLOWED: "u1.*"})
    source = {"http": {"url": PRESIGNED, "extraHeaders": [f"Authorization: Bearer {CANARY}"]}}
    template = {"metadata": {"name": "disk"}, "spec": {"source": source, "storage": {}}}
    probe = {"httpGet": {"port": 80, "httpHeaders": [{"name": "Authorization", "value": f"Basic {CANARY}"}]}}
    good = vm(dataVolumeTemplates=[template])
    good["spec"]["template"]["spec"]["readinessProbe"] = probe
    bad = {**good, "spec": {**good["spec"], "instancetype": {"name": PRESIGNED}}}

    made = tenant.create(good)
    refused = denied(lambda: tenant.create({**bad, "metadata": {"name": "bad"}}))

    assert PRESIGNED in json.dumps(made), "what was stored is whole"
    assert CANARY not in json.dumps(refused.body)
    assert CANARY not in json.dumps(tenant.audit())
    assert CANARY not in tenant.server.log.read_text()


def test_metrics_for_those_alone_who_may_have_them(
    new_webhook: NewWebhook, new_tenant: NewTenant, plane: Access, monkeypatch: pytest.MonkeyPatch
) -> None:
    # By its metrics, which are elsewhere now; whether it is called doesn't matter here.
    monkeypatch.setattr(WebhookServer, "answered", lambda _: 1)
    for role in parse((ROOT / "manifests" / "components" / "metrics" / "rbac.yaml").read_text()):
        plane.admin.apply(role)
    plane.admin.apply(yaml.safe_load((ROOT / "manifests" / "roles" / "metrics.yaml").read_text()))
    port = free_port()
    server = new_webhook({"metrics": {"listen": f"0.0.0.0:{port}"}})
    namespace = new_tenant().namespace
    token = plane.token(namespace, "prometheus")

    assert server.ops("/metrics")[0] == 404
    assert server.ops("/healthz")[0] == 200
    assert [fetch(port, "/metrics", one)[0] for one in ("", "forged", token)] == [401, 401, 403]
    binding = bind(plane.admin, "kubevirt-webhook:metrics-reader", account(namespace, "prometheus"))
    eventually(lambda: fetch(port, "/metrics", token)[0] == 200, what="the role to be known")
    assert "kubevirt_webhook_ready 1.0" in fetch(port, "/metrics", token)[1]
    assert token not in server.log.read_text()
    plane.admin.delete(f"{RBAC}/v1/clusterrolebindings", binding)


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
