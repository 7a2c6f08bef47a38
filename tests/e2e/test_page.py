"""The page on a real API server: its decisions, and tokens that the documented roles let in."""

from __future__ import annotations

import yaml

from .conftest import NewTenant, NewWebhook
from .support.access import Access
from .support.commands import LOOPBACK
from .support.fetch import fetch
from .support.kube import eventually
from .support.manifests import MANIFESTS, parse
from .support.processes import free_port
from .support.rbac import RBAC, account, bind
from .support.workloads import vm


def test_the_page_shows_decisions_of_a_real_api_server(new_webhook: NewWebhook, new_tenant: NewTenant) -> None:
    port = free_port()
    tenant = new_tenant(server=new_webhook({"page": {"listen": f"{LOOPBACK}:{port}"}}))
    tenant.create(vm())

    def decided() -> str:
        status, text = fetch(port, f"/page/decisions?namespace={tenant.namespace}", tls=False)
        return text if status == 200 and "VirtualMachine" in text else ""

    assert "/page/decisions/" in eventually(decided, what="the decision to be on the page")
    assert 'm-enforce">enforce' in fetch(port, f"/page?prefix={tenant.namespace}", tls=False)[1]


def test_a_token_needs_the_role(new_webhook: NewWebhook, new_tenant: NewTenant, plane: Access) -> None:
    for role in parse((MANIFESTS / "components" / "page" / "rbac.yaml").read_text()):
        plane.admin.apply(role)
    plane.admin.apply(yaml.safe_load((MANIFESTS / "roles" / "page.yaml").read_text()))
    port = free_port()
    server = new_webhook({"page": {"listen": f"0.0.0.0:{port}"}})
    namespace = new_tenant().namespace
    token = plane.token(namespace, "reader")

    assert [fetch(port, "/page", one)[0] for one in ("", "forged", token)] == [401, 401, 403]
    binding = bind(plane.admin, "kubevirt-webhook:page-reader", account(namespace, "reader"))
    eventually(lambda: fetch(port, "/page", token)[0] == 200, what="the role to be known")
    # The placement of a VM takes what it shows.
    assert fetch(port, f"/page/placement?namespace={namespace}&name=web", token)[0] == 403
    assert token not in server.log.read_text()
    plane.admin.delete(f"{RBAC}/v1/clusterrolebindings", binding)
