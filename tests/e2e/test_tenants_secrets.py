"""Hostile content in tenants' objects, on a real API server: no output has a secret, or a terminal sequence."""

from __future__ import annotations

import http.client
import json
import secrets
import ssl
from collections.abc import Iterator
from contextlib import closing

import pytest
import yaml

from tests.e2e.support.allow_lists import ALLOWED, kubectl
from tests.e2e.support.readers import RBAC, bind

from .conftest import NewTenant, NewWebhook
from .support.access import Access
from .support.commands import LOOPBACK
from .support.kube import Json, KubeError, eventually
from .support.processes import ROOT, free_port
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
    with pytest.raises(KubeError) as refused:
        tenant.create({**bad, "metadata": {"name": "bad"}})

    assert PRESIGNED in json.dumps(made), "what was stored is whole"
    assert CANARY not in json.dumps(refused.value.body)
    assert CANARY not in json.dumps(tenant.audit())
    assert CANARY not in tenant.server.log.read_text()


@pytest.fixture
def bindings(plane: Access) -> Iterator[list[str]]:
    """Names of ClusterRoleBindings that end with the test."""
    made: list[str] = []
    yield made
    for name in made:
        plane.admin.delete(f"{RBAC}/v1/clusterrolebindings", name)


def test_metrics_for_those_alone_who_may_have_them(
    new_webhook: NewWebhook, new_tenant: NewTenant, plane: Access, bindings: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # By its metrics, which are elsewhere now; whether it is called doesn't matter here.
    monkeypatch.setattr(WebhookServer, "answered", lambda _: 1)
    for role in yaml.safe_load_all((ROOT / "manifests" / "components" / "metrics" / "rbac.yaml").read_text()):
        plane.admin.apply(role)
    plane.admin.apply(yaml.safe_load((ROOT / "manifests" / "roles" / "metrics.yaml").read_text()))
    port = free_port()
    server = new_webhook({"metrics": {"listen": f"0.0.0.0:{port}"}})
    tenant = new_tenant()
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "prometheus"}}
    tenant.owner.create("v1/serviceaccounts", account, tenant.namespace)
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    made = tenant.owner.create("v1/serviceaccounts", request, tenant.namespace, name="prometheus", subresource="token")
    token: str = made["status"]["token"]

    assert server.ops("/metrics")[0] == 404
    assert server.ops("/healthz")[0] == 200
    assert scraped(port, "")[0] == 401
    assert scraped(port, "forged")[0] == 401
    assert scraped(port, token)[0] == 403
    subject = {"kind": "ServiceAccount", "namespace": tenant.namespace, "name": "prometheus"}
    bindings.append(bind(plane.admin, "kubevirt-webhook:metrics-reader", subject))
    text = eventually(lambda: allowed(port, token), what="the role to be known", timeout=45)
    assert "kubevirt_webhook_ready 1.0" in text
    assert token not in server.log.read_text()


def scraped(port: int, token: str) -> tuple[int, str]:
    unverified = ssl._create_unverified_context()
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    with closing(http.client.HTTPSConnection(LOOPBACK, port, timeout=20, context=unverified)) as connection:
        connection.request("GET", "/metrics", headers=headers)
        response = connection.getresponse()
        return response.status, response.read().decode()


def allowed(port: int, token: str) -> str:
    status, text = scraped(port, token)
    return text if status == 200 else ""


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
        assert tries(tenant, name) == "", "without a quota anybody may"
        plane.admin.apply(quota)
        refused = eventually(lambda: tries(tenant, name), what="the quota to be known")
        assert "exceeded quota: no-kubevirt-webhook-priority" in refused
        assert tries(tenant, None) == "", "other pods are not counted"
    finally:
        plane.admin.delete("scheduling.k8s.io/v1/priorityclasses", name)


def tries(tenant: Tenant, priority: str | None) -> str:
    """Why a pod of this priority is denied; empty: it is allowed."""
    spec: Json = {"containers": [{"name": "c", "image": "i"}]}
    if priority:
        spec["priorityClassName"] = priority
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"generateName": "p-"}, "spec": spec}
    try:
        tenant.owner.create(PODS, pod, tenant.namespace, dryRun="All")
    except KubeError as error:
        return error.message
    return ""
