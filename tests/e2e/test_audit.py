"""The records on a real API server: Events, drift, PolicyReports, and its own metrics of its calls."""

from __future__ import annotations

import secrets
from functools import partial
from pathlib import Path

import pytest
import yaml

from .conftest import SCHEDULERS, NewNamespace
from .support import manifests
from .support.access import Access
from .support.kube import Json, KubeObject, denied, eventually
from .support.messages import parse
from .support.migrations import EAST, WEST, MigrationMover, guest, migration
from .support.rbac import may
from .support.tenant import Tenant
from .support.webhook_server import ACCOUNT, MIGRATION, SCHEDULING, WebhookServer, entries, install
from .support.workloads import vm

EVENTS = "events.k8s.io/v1/events"
REPORTS = "wgpolicyk8s.io/v1alpha2/policyreports"
NAME = "kubevirt-webhook"
OTHERS = Path(__file__).parent / "policyreports.yaml"

SETTINGS = {"schedulers": SCHEDULERS, "events": True, "driftScan": {"everyMinutes": 1}}


@pytest.fixture
def server(schedulers: Access, tmp_path: Path) -> WebhookServer:
    """A server that is not started yet, and whose account may write what it is to write."""
    admin = schedulers.admin
    install(admin)
    admin.apply(yaml.safe_load(OTHERS.read_text()))
    eventually(lambda: [admin.list(REPORTS)], what="policy reports to be served")
    # The permissions stay: on a plane that workers share, another one may be using them.
    manifests.apply(admin, *(f"components/{name}/rbac.yaml" for name in ("events", "drift", "policyreports")))
    reports = partial(may, schedulers.kube(*ACCOUNT), "create", "policyreports", "", "wgpolicyk8s.io")
    eventually(reports, what="the authorizer to know the last role")
    return WebhookServer(schedulers, tmp_path, f"audit-{secrets.token_hex(4)}", SETTINGS)


@pytest.mark.control("events-tell-too-much")
def test_what_passed_us_by_is_reported_and_refusals_and_warnings_are_events_but_those_of_dry_runs(
    server: WebhookServer, new_namespace: NewNamespace
) -> None:
    tenant = Tenant(server, new_namespace(server.labels(policies=[SCHEDULING, MIGRATION])))
    other = Tenant(server, new_namespace())
    mover = MigrationMover(tenant, guest(nodeSelector=EAST))
    target = mover.target(mover.ask(WEST))
    tenant.create(vm("passed"))
    tenant.create(vm("chosen", scheduler="default-scheduler"))
    MigrationMover(other, guest())

    with server:
        scans = partial(server.metric, "kubevirt_webhook_drift_scans_total", result="finished")
        eventually(scans, what="the scan to end")
        lines = eventually(lambda: _found(server, 4), what="the lines of what was found")
        report = server.access.admin.get(REPORTS, NAME, tenant.namespace)
        found = {
            (policy, resource): server.metric("kubevirt_webhook_drift_objects", policy=policy, resource=resource)
            for policy, resource in (("scheduling", "pods"), ("scheduling", "virtualmachines"), ("migration", "pods"))
        }
        assert server.access.admin.list(REPORTS, other.namespace) == []

        assert server.validates
        tenant.annotate(scheduler_name="dead")
        eventually(lambda: tenant.launch(mover.vmi, dryRun="All").warnings, what="the annotation to be known")
        tenant.launch(mover.vmi)
        denied(lambda: tenant.owner.make(migration(mover.name, WEST), tenant.namespace, dryRun="All"))
        for _ in range(3):
            denied(lambda: mover.ask(WEST))
        events = eventually(lambda: _two(tenant), what="both Events")
        effects = {entry["sideEffects"] for entry in entries(server.access.admin, of=server.name)}
        # Counted once the answer has come, which is later than the API server has the Event.
        counted = partial(server.metric, "kubevirt_webhook_events_total")
        eventually(lambda: counted(result="written") == 2, what="both Events to be counted")
        assert [counted(result=result) for result in ("repeated", "failed")] == [2, 0]

    source = mover.source["metadata"]["name"]
    named = {(line["endpoint"].split("/")[2], line["object"]["name"]) for line in lines}
    expected = {("scheduling", source), ("scheduling", target["metadata"]["name"]), ("scheduling", "passed")}
    assert named == expected | {("migration", target["metadata"]["name"])}
    assert found == {("scheduling", "pods"): 2, ("scheduling", "virtualmachines"): 1, ("migration", "pods"): 1}
    assert report["summary"]["fail"] == 4
    assert {(result["category"], result["resources"][0]["name"]) for result in report["results"]} == named

    assert effects == {"NoneOnDryRun"}
    denial, warned = events["Denied"], events["Warned"]
    assert denial["regarding"]["kind"] == "Namespace"
    assert (parse(denial["note"]).policy, parse(denial["note"]).code) == ("migration", "selector-conflict")
    assert warned["regarding"]["uid"] == mover.vmi["metadata"]["uid"]
    assert (parse(warned["note"]).policy, parse(warned["note"]).code) == ("scheduling", "scheduler-unavailable")


def _found(server: WebhookServer, least: int) -> list[Json]:
    lines = [line for line in server.audit() if line["kind"] == "drift"]
    return lines if len(lines) >= least else []


def _two(tenant: Tenant) -> dict[str, KubeObject]:
    ours = [
        event
        for event in tenant.owner.list(EVENTS, tenant.namespace)
        if event.get("reportingController") == "kubevirt-webhook.github.io/admission"
    ]
    found = {event["reason"]: event for event in ours}
    assert len(found) == len(ours), "one Event for each"
    return found if len(found) == 2 else {}
