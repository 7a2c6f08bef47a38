"""The API server's own metrics of its calls, under the names and labels that the alerts query."""

from __future__ import annotations

import re

from tests.monitoring.rules import RECORDS

from .conftest import NewTenant, NewWebhook
from .support.access import Access
from .support.kube import denial, eventually
from .support.webhook_server import INSTANCETYPES, SCHEDULING
from .support.workloads import vm

METRIC = "apiserver_admission_webhook"
FAILED = 'error_type="calling_webhook_error"'
OURS = re.compile(r'name="[^"]+[.]kubevirt-webhook[.]github[.]io"')


def sample(plane: Access, metric: str, *labels: str) -> float:
    """The sum of a metric's samples that are of kubevirt-webhook and have these labels."""
    text = plane.kubectl("get", "--raw", "/metrics").stdout
    lines = [line for line in text.splitlines() if line.startswith(f"{metric}{{") and OURS.search(line)]
    return sum(float(line.rpartition(" ")[2]) for line in lines if all(label in line for label in labels))


def test_the_rules_ask_for_what_the_test_reads() -> None:
    text = "\n".join(rule["expr"] for rule in RECORDS.values())

    for metric in ("fail_open_count", "rejection_count", "admission_duration_seconds_bucket"):
        assert f'apiserver_admission_webhook_{metric}{{name=~".+[.]kubevirt-webhook[.]github[.]io"' in text


def test_the_api_server_counts_what_happens_while_no_replica_answers(
    plane: Access, new_webhook: NewWebhook, new_tenant: NewTenant
) -> None:
    server = new_webhook()
    tenant = new_tenant(server=server, policies=(SCHEDULING, INSTANCETYPES))
    tenant.create(vm("evaluated"))
    assert sample(plane, f"{METRIC}_admission_duration_seconds_bucket", 'le="+Inf"', 'type="admit"') > 0

    allowed, denied = sample(plane, f"{METRIC}_fail_open_count"), sample(plane, f"{METRIC}_rejection_count", FAILED)
    # As `install` registers them; a server that registers itself never denies requests by its absence.
    entry = "virtualmachines.instancetypes.enforce.kubevirt-webhook.github.io"
    for configuration in server.configurations():
        resource, name = configuration.split("/")
        if resource.startswith("validating"):
            change = {"webhooks": [{"name": entry, "failurePolicy": "Fail"}]}
            plane.admin.patch(f"admissionregistration.k8s.io/v1/{resource}", name, change, kind="strategic")
    server.kill()

    tenant.create(vm("allowed"))

    def is_denied() -> bool:
        error = denial(lambda: tenant.create(vm("denied", instancetype={"name": "small"}), dryRun="All"))
        return error is not None and "failed calling webhook" in error.message

    eventually(is_denied, what="the failure policy to be known")

    assert sample(plane, f"{METRIC}_fail_open_count", 'type="admit"') > allowed
    assert sample(plane, f"{METRIC}_rejection_count", FAILED) > denied
