"""`bench` on a real API server: its dry runs reach the webhooks, it reads their share, and nothing of it is stored."""

from __future__ import annotations

import json

from click.testing import Result

from webhook.cli.bench.samples import BASELINES

from .conftest import NewTenant
from .support.access import Access
from .support.foreign_webhook import Labeller
from .support.kube import Json
from .support.pki import KUBEVIRT_CONTROLLER, Identity
from .support.program import command
from .support.rbac import user_with
from .support.tenant import Tenant
from .support.webhook_server import SCHEDULING
from .support.workloads import MIGRATIONS, PODS, VMIS, VMS, vm, vmi_of

POD_ENTRY = "pods.scheduling.enforce.kubevirt-webhook.github.io"
VM_ENTRY = "virtualmachines.scheduling.enforce.kubevirt-webhook.github.io"
NUMBER = 6


def bench(plane: Access, namespace: str, *options: str, user: Identity | None = None) -> Result:
    words = ("bench", f"--namespace={namespace}", f"--number={NUMBER}", "--rate=50", "--yes", *options)
    return command(plane, *words, check=False, **({"user": user} if user else {}))


def measured(result: Result) -> tuple[Json, dict[str, Json], dict[str, Json]]:
    """The report, its requests by kinds, and its webhooks by names."""
    report: Json = json.loads(result.stdout)
    webhooks = {each["name"]: each for each in report["webhooks"] or ()}
    return report, {each["kind"]: each for each in report["requests"]}, webhooks


def stored(plane: Access, namespace: str) -> list[str]:
    found = [each for resource in (PODS, VMS, MIGRATIONS) for each in plane.admin.list(resource, namespace)]
    return [each["metadata"]["name"] for each in found if each["metadata"]["name"].startswith("kubevirt-webhook")]


def test_each_webhook_has_its_share_and_nothing_is_stored(plane: Access, tenant: Tenant) -> None:
    # It is only there to be migrated.
    tenant.controller.create(VMIS, {**vmi_of(vm()), "status": {"phase": "Running"}}, tenant.namespace)
    with Labeller(plane, tenant.namespace) as other:
        result = bench(plane, tenant.namespace, f"--launcher-as={KUBEVIRT_CONTROLLER.user}", "--output=json")

        assert result.exit_code == 0, result.output
        report, requests, webhooks = measured(result)
        assert {kind: each["requests"] for kind, each in requests.items()} == dict.fromkeys(
            (
                "ConfigMap",
                "Pod",
                "VirtualMachine",
                "VirtualMachineInstance",
                "VirtualMachineInstanceMigration",
            ),
            NUMBER,
        ), report
        assert {each["denied"] for each in requests.values()} == {0}
        # Other tests of this API server may have their webhooks called meanwhile, too.
        assert webhooks[POD_ENTRY]["calls"] >= NUMBER
        assert webhooks[VM_ENTRY]["calls"] >= NUMBER
        assert webhooks[POD_ENTRY]["type"] == "mutating"
        assert 0 < webhooks[POD_ENTRY]["meanMs"] < 20_000
        assert len(other.asked) >= NUMBER
        assert any(name.endswith(".example.com") and each["calls"] >= NUMBER for name, each in webhooks.items())
    assert report["baselineWebhooks"] == []
    assert stored(plane, tenant.namespace) == []


def test_a_user_who_may_read_no_metrics_gets_the_clients_figures(plane: Access, new_tenant: NewTenant) -> None:
    tenant = new_tenant(policies=[SCHEDULING])
    rules = [
        {"apiGroups": [""], "resources": ["configmaps", "pods"], "verbs": ["create"]},
        {"apiGroups": ["kubevirt.io"], "resources": ["virtualmachines"], "verbs": ["create"]},
    ]
    name = f"bench-{tenant.namespace}"
    user_with(plane, name, rules, tenant.namespace)

    result = bench(plane, tenant.namespace, "--output=json", user=Identity(name))

    assert result.exit_code == 0, result.output
    report, requests, _ = measured(result)
    assert report["webhooks"] is None
    assert "grant get on the nonResourceURL /metrics" in report["metricsUnread"]
    assert set(requests) == {"ConfigMap", "Pod", "VirtualMachine"}
    whys = {each["kind"]: each["why"] for each in report["notMeasured"]}
    assert "grant create on virtualmachineinstances.kubevirt.io" in whys["VirtualMachineInstance"]
    assert stored(plane, tenant.namespace) == []


def test_every_baseline_is_an_object_that_the_api_server_takes(plane: Access, tenant: Tenant) -> None:
    for kind in BASELINES:
        plane.admin.create(f"{kind.api_version}/{kind.plural}", kind.body(), tenant.namespace)
