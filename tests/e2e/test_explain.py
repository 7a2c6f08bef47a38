"""Explanations and the page on a real API server: what the documented roles let whom see, and that it comes true."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from click.testing import Result

from .conftest import NewTenant, NewWebhook
from .support import manifests
from .support.access import Access
from .support.kube import Json, eventually
from .support.migrations import WEST, MigrationMover, guest
from .support.objects import ZONE, obj
from .support.pki import ADMIN, Identity
from .support.processes import free_port
from .support.program import command
from .support.rbac import RBAC, account, bind, grant
from .support.tenant import Tenant
from .support.webhook_server import MIGRATION, WebhookServer, fetch
from .support.workloads import MIGRATIONS, instancetype, vm


@pytest.fixture
def bound(plane: Access) -> Iterator[list[str]]:
    """Names of ClusterRoleBindings that end with the test; the documented roles are there."""
    manifests.apply(plane.admin, "roles/migrate.yaml")
    made: list[str] = []
    yield made
    for name in made:
        plane.admin.delete(f"{RBAC}/v1/clusterrolebindings", name)


@pytest.mark.control("explanations-over-http")
def test_who_may_see_it_is_told_what_then_happens(
    new_webhook: NewWebhook, new_tenant: NewTenant, plane: Access, bound: list[str]
) -> None:
    port = free_port()
    bound.append(bind(plane.admin, "system:auth-delegator", account("kubevirt-webhook", "kubevirt-webhook")))
    server = new_webhook({"admin": {"listen": f"0.0.0.0:{port}"}})
    tenant = new_tenant(server=server, policies=[MIGRATION])
    mover = MigrationMover(tenant, guest())
    token, subject = plane.token(tenant.namespace, "asker"), account(tenant.namespace, "asker")
    path = f"/v1/explain/migration?namespace={tenant.namespace}&name=web&to={ZONE}=west"

    def answer(missing: str) -> Json | None:
        """The answer, once what it complains of is another thing than the right that was given last."""
        status, text = fetch(port, path, token)
        found: Json = json.loads(text)
        assert status == (403 if "error" in found else 200)
        return found if missing in found.get("error", "") and ("error" in found) == bool(missing) else None

    assert answer("may not get virtualmachineinstances.kubevirt.io")
    bind(plane.admin, "kubevirt-webhook:explain", subject, tenant.namespace)
    eventually(lambda: answer("may not list nodes"), what="the authorizer to know of one role")
    bound.append(bind(plane.admin, "kubevirt-webhook:explain-nodes", subject))
    said = eventually(lambda: answer(""), what="both roles to be known")

    assert said["runningOn"] == "node-a"
    # The server does not read quotas, since who asks may not be allowed to see them.
    assert [gap for gap in said["gaps"] if not gap.startswith("ResourceQuotas")] == []
    assert mover.node_of(mover.target(mover.ask(WEST))) in said["eligible"]["names"]
    (own,) = (group for group in said["groups"] if "node-a" in group["nodes"]["names"])
    assert own["nodes"]["names"] == ["node-a"]
    assert own["fails"]

    assert [fetch(port, path, wrong)[0] for wrong in ("forged", f"{token}x")] == [401, 401]
    assert server.metric("kubevirt_webhook_explain_requests_total", code="401") == 2
    assert token not in server.log.read_text()


def test_the_command_needs_the_documented_rights_and_no_others(moving: Tenant, plane: Access, bound: list[str]) -> None:
    MigrationMover(moving, guest())
    user = Identity(f"asker-{secrets.token_hex(4)}")
    subject = {"apiGroup": RBAC, "kind": "User", "name": user.user}

    def explain(name: str, *options: str) -> tuple[int, str, str]:
        words = ("explain", "migration", name, "-n", moving.namespace, *options)
        done = command(plane, *words, user=user, check=False)
        return done.exit_code, done.stdout, done.stderr

    def explained() -> str:
        status, said, _ = explain("web", "--to", f"{ZONE}=west")
        return said if status == 0 else ""

    status, _, error = explain("web", "--to", f"{ZONE}=west")
    assert (status, "grant get on virtualmachineinstances.kubevirt.io" in error) == (3, True)
    bind(plane.admin, "kubevirt-webhook:explain", subject, moving.namespace)
    bound.append(bind(plane.admin, "kubevirt-webhook:explain-nodes", subject))
    # KubeVirt itself grants this to all users.
    grant(plane.admin, user.user, [{"apiGroups": ["kubevirt.io"], "resources": ["kubevirts"], "verbs": ["list"]}])
    said = eventually(explained, what="the authorizer to know of the roles")

    assert " eligible: " in said.splitlines()[0]
    assert "Not evaluated:" not in said
    # One that waits for a quota is an obstacle.
    assert plane.kube(user.user).list(MIGRATIONS, moving.namespace) == []
    status, _, error = explain("nothing")
    assert (status, error.count("\n")) == (2, 1)
    assert f" VirtualMachine {moving.namespace}/nothing" in error


def test_what_becomes_of_a_vm_with_an_instancetype(moving: Tenant, plane: Access, bound: list[str]) -> None:
    user = Identity(f"asker-{secrets.token_hex(4)}")
    subject = {"apiGroup": RBAC, "kind": "User", "name": user.user}
    plane.admin.create(
        "instancetype.kubevirt.io/v1beta1/virtualmachineinstancetypes",
        instancetype("small", cluster=False),
        moving.namespace,
    )
    moving.create(vm("sized", instancetype={"kind": "VirtualMachineInstancetype", "name": "small"}))
    every = ["virtualmachines", "virtualmachineinstances", "kubevirts"]
    grant(plane.admin, user.user, [{"apiGroups": ["kubevirt.io"], "resources": every, "verbs": ["get", "list"]}])

    def explained() -> Json | None:
        words = ("explain", "vm", "sized", "-n", moving.namespace, "-o", "json")
        done = command(plane, *words, user=user, check=False)
        return json.loads(done.stdout) if done.exit_code == 0 else None

    said = eventually(explained, what="the authorizer to know of the grant")
    (gap,) = (each for each in said["gaps"] if "instancetype.kubevirt.io" in each)
    assert (gap.startswith("the VMI that KubeVirt makes of it"), said["denial"], said["fields"]) == (True, "", [])

    bind(plane.admin, "kubevirt-webhook:explain", subject, moving.namespace)
    bound.append(bind(plane.admin, "kubevirt-webhook:explain-nodes", subject))

    def whole() -> Json | None:
        said = explained()
        return said if said and said["nodes"] is not None else None

    said = eventually(whole, what="the authorizer to know of the roles")
    assert "instancetype" in {each["origin"] for each in said["fields"]}


# Of the server, and of those who read what a listener shows.


@pytest.mark.control("metrics-reveal-names", "page-shows-everything")
def test_a_token_needs_the_role(
    new_webhook: NewWebhook, new_tenant: NewTenant, plane: Access, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the page, which then shows decisions, and of metrics that are on the admin listener."""
    # By its metrics, which are elsewhere now; whether it is called doesn't matter here.
    monkeypatch.setattr(WebhookServer, "answered", lambda _: 1)
    port = free_port()
    manifests.apply(plane.admin, "components/admin/rbac.yaml", "roles/page.yaml", "roles/metrics.yaml")
    server = new_webhook({"admin": {"listen": f"0.0.0.0:{port}", "metrics": True}})
    tenant = new_tenant(server=server)
    namespace = tenant.namespace
    token = plane.token(namespace, "reader")

    assert [server.ops(path)[0] for path in ("/metrics", "/healthz")] == [404, 200]
    for name in ("page", "metrics"):
        assert [fetch(port, f"/{name}", one)[0] for one in ("", "forged", token)] == [401, 401, 403]
        binding = bind(plane.admin, f"kubevirt-webhook:{name}-reader", account(namespace, "reader"))
        read = partial(fetch, port, f"/{name}", token)
        eventually(lambda: read()[0] == 200, what="the role to be known")  # noqa: B023
        assert name != "metrics" or "kubevirt_webhook_ready 1.0" in read()[1]
        # The placement of a VM takes what it shows.
        if name == "page":
            assert fetch(port, f"/page/placement?namespace={namespace}&name=web", token)[0] == 403
            eventually(lambda: _decided(tenant, port, token), what="a decision to be on the page")
            assert 'm-enforce">enforce' in fetch(port, f"/page?prefix={namespace}", token)[1]
        plane.admin.delete(f"{RBAC}/v1/clusterrolebindings", binding)
    assert token not in server.log.read_text()


def _decided(tenant: Tenant, port: int, token: str) -> bool:
    """Whether the page shows a decision on a VM, links to it included."""
    tenant.create(vm(), dryRun="All")
    _, text = fetch(port, f"/page/decisions?namespace={tenant.namespace}", token)
    return "VirtualMachine" in text and "/page/decisions/" in text


@pytest.fixture
def image(plane: Access, namespace: str) -> Iterator[str]:
    """A labelled claim, and what its labels name; the name of all three."""
    name = f"e2e-{namespace}"
    labels = {f"instancetype.kubevirt.io/default-{kind}": name for kind in ("instancetype", "preference")}
    wanted = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    plane.admin.make(obj("PersistentVolumeClaim", name, labels=labels, spec=wanted), namespace)
    preferred = {"devices": {"preferredDiskBus": "virtio"}}
    made = (
        instancetype(name, cpu={"guest": 3}, memory={"guest": "3Gi"}),
        obj("VirtualMachineClusterPreference", name, spec=preferred),
    )
    for each in made:
        plane.admin.make(each)
    yield name
    for each in made:
        plane.admin.delete(plane.admin.resource_of(each), name)


def inferring(namespace: str, claim: str) -> Json:
    """A VM whose volume says which instancetype and preference go with it."""
    made = vm("a", instancetype={"inferFromVolume": "root"}, preference={"inferFromVolume": "root"})
    made["metadata"]["namespace"] = namespace
    made["spec"]["template"]["spec"]["volumes"] = [{"name": "root", "persistentVolumeClaim": {"claimName": claim}}]
    return made


@pytest.mark.control("volumes-of-other-namespaces")
def test_a_volume_leads_to_the_machine_and_the_users_rights_count(
    plane: Access, namespace: str, image: str, tmp_path: Path
) -> None:
    def expand(claim: str, *options: str, user: Identity = ADMIN) -> Result:
        (tmp_path / "vm.json").write_text(json.dumps(inferring(namespace, claim)))
        return command(plane, "expand", "-f", tmp_path / "vm.json", *options, user=user, check=False)

    done = expand(image, "--explain", "-o", "json")
    assert done.exit_code == 0, done.stderr
    found = json.loads(done.stdout)
    size = {"kind": "VirtualMachineClusterInstancetype", "name": image, "inferredFromVolume": "root"}
    assert found["instancetype"] == size
    origins = {field["path"]: (field["value"], field["origin"]) for field in found["fields"]}
    assert origins["spec.domain.cpu.sockets"] == (3, "instancetype")
    assert origins["spec.domain.devices.disks[0].disk.bus"] == ("virtio", "preference")

    missing = expand("none")
    assert (missing.exit_code, 'persistentvolumeclaims "none" not found' in missing.stderr) == (1, True)
    denied = expand(image, user=Identity("nobody-in-particular"))
    assert (denied.exit_code, denied.stdout) == (2, "")
    assert "grant list on kubevirts.kubevirt.io" in denied.stderr
