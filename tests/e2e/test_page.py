"""The page on a real API server: its decisions, and tokens that the documented roles let in."""

from __future__ import annotations

import http.client
import ssl
from contextlib import closing

import yaml

from tests.e2e.support.readers import bind

from .conftest import NewTenant, NewWebhook
from .support.access import Access
from .support.commands import LOOPBACK
from .support.kube import Kube, eventually
from .support.processes import ROOT, free_port
from .support.webhook_server import SCHEDULING, WebhookServer
from .support.workloads import vm
from .test_tenants_secrets import bindings  # noqa: F401 - a fixture

MANIFESTS = ROOT / "manifests"


def test_the_page_shows_decisions_of_a_real_api_server(new_webhook: NewWebhook, new_tenant: NewTenant) -> None:
    port = free_port()
    server = new_webhook({"page": {"listen": f"{LOOPBACK}:{port}"}})
    tenant = new_tenant(policies=[SCHEDULING], server=server)
    tenant.create(vm())

    def decided() -> str:
        status, text = looked(port, f"/page/decisions?namespace={tenant.namespace}", tls=False)
        return text if status == 200 and "VirtualMachine" in text else ""

    assert "/page/decisions/" in eventually(decided, what="the decision to be on the page")
    overview = looked(port, f"/page?prefix={tenant.namespace}", tls=False)[1]
    assert 'm-enforce">enforce' in overview


def test_a_token_needs_the_role(
    new_webhook: NewWebhook,
    new_tenant: NewTenant,
    plane: Access,
    bindings: list[str],  # noqa: F811
) -> None:
    for role in yaml.safe_load_all((MANIFESTS / "components" / "page" / "rbac.yaml").read_text()):
        plane.admin.apply(role)
    plane.admin.apply(yaml.safe_load((MANIFESTS / "roles" / "page.yaml").read_text()))
    port = free_port()
    server: WebhookServer = new_webhook({"page": {"listen": f"0.0.0.0:{port}"}})
    tenant = new_tenant()
    token = token_of(tenant.owner, tenant.namespace)

    assert looked(port, "/page", "")[0] == 401
    assert looked(port, "/page", "forged")[0] == 401
    assert looked(port, "/page", token)[0] == 403
    bindings.append(
        bind(
            plane.admin,
            "kubevirt-webhook:page-reader",
            {"kind": "ServiceAccount", "namespace": tenant.namespace, "name": "reader"},
        )
    )
    eventually(lambda: looked(port, "/page", token)[0] == 200, what="the role to be known", timeout=45)
    # The placement of a VM takes what it shows.
    assert looked(port, f"/page/placement?namespace={tenant.namespace}&name=web", token)[0] == 403
    assert token not in server.log.read_text()


def token_of(kube: Kube, namespace: str) -> str:
    """The token of a new service account."""
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "reader"}}
    kube.create("v1/serviceaccounts", account, namespace)
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    made = kube.create("v1/serviceaccounts", request, namespace, name="reader", subresource="token")
    token: str = made["status"]["token"]
    return token


def looked(port: int, path: str, token: str = "", *, tls: bool = True) -> tuple[int, str]:
    """The status and the text of a page."""
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    unverified = ssl._create_unverified_context()
    connection = (
        http.client.HTTPSConnection(LOOPBACK, port, timeout=20, context=unverified)
        if tls
        else http.client.HTTPConnection(LOOPBACK, port, timeout=20)
    )
    with closing(connection):
        connection.request("GET", path, headers=headers)
        response = connection.getresponse()
        return response.status, response.read().decode()
