"""Explanations of migrations on a real API server: what the documented roles let whom see, and that it comes true."""

from __future__ import annotations

import http.client
import json
import secrets
import ssl
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest
import yaml

from tests.e2e.support.readers import RBAC, bind

from .conftest import NewTenant, NewWebhook
from .support.access import Access
from .support.commands import LOOPBACK
from .support.kube import Json, eventually
from .support.migrations import WEST, MigrationMover, guest
from .support.objects import ZONE
from .support.processes import ROOT, free_port
from .support.tenant import Tenant
from .support.webhook_server import MIGRATION, WebhookServer

ROLES = ROOT / "manifests" / "roles" / "migrate.yaml"


@pytest.fixture
def roles(plane: Access) -> None:
    for role in yaml.safe_load_all(ROLES.read_text()):
        plane.admin.apply(role)


class ExplainCaller:
    """A service account, whose token authenticates requests for explanations.

    Args:
        port: where the server explains.
    """

    def __init__(self, tenant: Tenant, port: int) -> None:
        self._kube, self._namespace, self._port = tenant.owner, tenant.namespace, port
        self.subject = {"kind": "ServiceAccount", "namespace": self._namespace, "name": "asker"}
        account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "asker"}}
        self._kube.create("v1/serviceaccounts", account, self._namespace)
        request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
        made = self._kube.create("v1/serviceaccounts", request, self._namespace, name="asker", subresource="token")
        self.token: str = made["status"]["token"]

    def ask(self, query: str, token: str | None = None) -> tuple[int, Json]:
        unverified = ssl._create_unverified_context()
        headers = {"Authorization": f"Bearer {self.token if token is None else token}"}
        with closing(http.client.HTTPSConnection(LOOPBACK, self._port, timeout=20, context=unverified)) as connection:
            path = f"/v1/explain/migration?namespace={self._namespace}&name=web{query}"
            connection.request("GET", path, headers=headers)
            response = connection.getresponse()
            return response.status, json.load(response)

    def go(self) -> None:
        self._kube.delete("v1/serviceaccounts", "asker", self._namespace)


@pytest.fixture
def bound(plane: Access, roles: None) -> Iterator[list[str]]:
    """Names of ClusterRoleBindings that end with the test."""
    made: list[str] = []
    yield made
    for name in made:
        plane.admin.delete(f"{RBAC}/v1/clusterrolebindings", name)


@pytest.fixture
def explaining(new_webhook: NewWebhook, plane: Access, bound: list[str]) -> tuple[WebhookServer, int]:
    port = free_port()
    account = {"kind": "ServiceAccount", "namespace": "kubevirt-webhook", "name": "kubevirt-webhook"}
    bound.append(bind(plane.admin, "system:auth-delegator", account))
    return new_webhook({"explain": {"listen": f"0.0.0.0:{port}"}}), port


def test_who_may_see_it_is_told_what_then_happens(
    explaining: tuple[WebhookServer, int], new_tenant: NewTenant, plane: Access, bound: list[str]
) -> None:
    server, port = explaining
    tenant = new_tenant(server=server, policies=[MIGRATION])
    vm = MigrationMover(tenant, guest())
    asker = ExplainCaller(tenant, port)
    west = f"&to={ZONE}=west"

    status, nothing = asker.ask(west)
    assert (status, "may not get virtualmachineinstances.kubevirt.io" in nothing["error"]) == (403, True)
    bind(plane.admin, "kubevirt-webhook:explain", asker.subject, tenant.namespace)
    status, nothing = eventually(
        lambda: answered(asker, west, "may not list nodes"), what="the authorizer to know of one role"
    )
    assert (status, "may not list nodes" in nothing["error"]) == (403, True)
    bound.append(bind(plane.admin, "kubevirt-webhook:explain-nodes", asker.subject))
    status, answer = eventually(lambda: answered(asker, west, ""), what="both roles to be known")

    assert status == 200, answer
    assert answer["runningOn"] == "node-a"
    # The server does not read quotas, since who asks may not be allowed to see them.
    assert [gap for gap in answer["gaps"] if not gap.startswith("ResourceQuotas")] == []
    target = vm.target(vm.ask(WEST))
    assert vm.node_of(target) in answer["eligible"]["names"]
    (own,) = (group for group in answer["groups"] if "node-a" in group["nodes"]["names"])
    assert own["nodes"]["names"] == ["node-a"]
    assert own["fails"]

    assert asker.ask(west, token="forged")[0] == 401
    assert asker.ask(west, token=f"{asker.token}x")[0] == 401
    asker.go()
    # The API server itself remembers an accepted token for some seconds; the webhook does not.
    eventually(lambda: asker.ask(west)[0] == 401, what="the API server to forget the account")
    assert server.metric("kubevirt_webhook_explain_requests_total", code="401") == 3
    assert asker.token not in server.log.read_text()


def answered(asker: ExplainCaller, query: str, missing: str) -> tuple[int, Json] | None:
    """The answer, once what it complains of is another thing than the right that was given last."""
    status, answer = asker.ask(query)
    return (status, answer) if missing in answer.get("error", "") and ("error" in answer) == bool(missing) else None


def explain(plane: Access, user: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "webhook", "explain", "migration", *arguments]
    kubeconfig = ["--kubeconfig", str(plane.kubeconfig_for(user))]
    return subprocess.run([*command, *kubeconfig], capture_output=True, text=True, cwd=ROOT)


def admitted(plane: Access, user: str, *arguments: str) -> subprocess.CompletedProcess[str] | None:
    done = explain(plane, user, *arguments)
    return done if done.returncode == 0 else None


def test_the_command_needs_the_documented_rights_and_no_others(moving: Tenant, plane: Access, bound: list[str]) -> None:
    MigrationMover(moving, guest())
    user = f"asker-{secrets.token_hex(4)}"
    subject: dict[str, Any] = {"apiGroup": RBAC, "kind": "User", "name": user}
    asked = ("web", "-n", moving.namespace, "--to", f"{ZONE}=west")

    refused = explain(plane, user, *asked)
    assert refused.returncode == 2
    assert "grant get on virtualmachineinstances.kubevirt.io" in refused.stderr
    bind(plane.admin, "kubevirt-webhook:explain", subject, moving.namespace)
    bound.append(bind(plane.admin, "kubevirt-webhook:explain-nodes", subject))
    # KubeVirt itself grants this to all users.
    everybody = {"apiGroups": ["kubevirt.io"], "resources": ["kubevirts"], "verbs": ["list"]}
    role = {"apiVersion": f"{RBAC}/v1", "kind": "ClusterRole", "metadata": {"name": "e2e-sees-kubevirt"}}
    plane.admin.apply({**role, "rules": [everybody]})
    bound.append(bind(plane.admin, "e2e-sees-kubevirt", subject))
    done = eventually(lambda: admitted(plane, user, *asked), what="the authorizer to know of the roles")

    assert " eligible: " in done.stdout.splitlines()[0]
    assert "Not taken into account" not in done.stdout
    gone = explain(plane, user, "nothing", "-n", moving.namespace)
    assert gone.returncode == 2
    assert f" VirtualMachine {moving.namespace}/nothing" in gone.stderr
    assert gone.stderr.count("\n") == 1
