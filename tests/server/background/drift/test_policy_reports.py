from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.fake_apiserver import FakeApiServer, running
from webhook.admission.decision import Decision, Denial, Reason
from webhook.k8s.client.resources import POLICY_REPORTS
from webhook.k8s.client.transport import connect
from webhook.review.endpoints import BY_PATH
from webhook.server.background.drift.candidates import Candidate
from webhook.server.background.drift.policy_reports import MAX_RESULTS, NAME, DriftedObject, Reports, report

PODS = BY_PATH["/mutate/scheduling/pods/enforce"]
WHY = Decision((Reason("scheduler-injected", "the VMI chose no scheduler"),))
FOUND = DriftedObject(PODS, Candidate("demo", "pod-1", "u1", "2026-11-21T15:00:00Z", (PODS,), b""), WHY)
COLLECTION = POLICY_REPORTS.path()
DEMO = POLICY_REPORTS.path("demo", NAME)


class PolicyReportsCase:
    def __init__(self, server: FakeApiServer, api: Any) -> None:
        self.server = server
        self.api = api
        self.reports = Reports(api)

    @property
    def verbs(self) -> list[str]:
        return [asked.verb for asked in self.server.asked]


@pytest.fixture
async def case(tmp_path: Path) -> AsyncIterator[PolicyReportsCase]:
    async with running(FakeApiServer()) as server:
        server.serve(POLICY_REPORTS)
        transport = await connect(server.kubeconfig(tmp_path / "kubeconfig"))
        try:
            yield PolicyReportsCase(server, transport)
        finally:
            await transport.close()


def test_a_report() -> None:
    denied = Decision((Reason("no", "it can't be"),), denial=Denial(422, "x"))
    second = DriftedObject(PODS, Candidate("demo", "pod-2", "u2", "", (PODS,), b""), denied)
    made = report("demo", [FOUND, second])

    assert made["metadata"] == {
        "name": NAME,
        "namespace": "demo",
        "labels": {"app.kubernetes.io/managed-by": "kubevirt-webhook"},
    }
    assert made["summary"]["fail"] == 2
    first, other = made["results"]
    assert first == {
        "source": "kubevirt-webhook",
        "policy": "kubevirt-webhook.github.io/scheduling",
        "rule": "scheduler-injected",
        "category": "scheduling",
        "result": "fail",
        "severity": "medium",
        "message": "created now, enforce would change it: the VMI chose no scheduler",
        "resources": [{"apiVersion": "v1", "kind": "Pod", "namespace": "demo", "name": "pod-1", "uid": "u1"}],
    }
    assert other["message"] == "created now, enforce would deny it: it can't be"


def test_a_report_is_bounded() -> None:
    made = report("demo", [FOUND] * (MAX_RESULTS + 1))

    assert (len(made["results"]), made["summary"]["fail"]) == (MAX_RESULTS, MAX_RESULTS + 1)
    assert len(json.dumps(made)) < 1_000_000


async def test_they_come_and_go(case: PolicyReportsCase) -> None:
    await case.reports.write({"demo": [FOUND]})
    (held,) = case.server.held(POLICY_REPORTS).values()
    assert held["summary"]["fail"] == 1
    assert case.server.asked[-1].query["fieldManager"] == NAME

    await case.reports.write({"other": [FOUND]})
    assert set(case.server.held(POLICY_REPORTS)) == {("other", NAME)}
    await case.reports.write({})
    assert case.server.held(POLICY_REPORTS) == {}


async def test_reports_of_others_are_left_alone(case: PolicyReportsCase, caplog: pytest.LogCaptureFixture) -> None:
    case.server.put(POLICY_REPORTS, NAME, "demo")
    labels = {"app.kubernetes.io/managed-by": "kubevirt-webhook"}
    case.server.put(POLICY_REPORTS, "mine", "demo", metadata={"labels": labels})
    case.server.fail(DEMO, 409, verb="patch")
    await case.reports.write({"demo": [FOUND]})
    await case.reports.write({})

    assert set(case.server.held(POLICY_REPORTS)) == {("demo", NAME), ("demo", "mine")}
    assert "another program" in caplog.messages[0]


async def test_a_cluster_without_that_kind_is_left_alone(
    case: PolicyReportsCase, caplog: pytest.LogCaptureFixture
) -> None:
    case.server.unserve(POLICY_REPORTS)
    await case.reports.write({"demo": [FOUND]})

    assert case.verbs == ["get"]
    assert caplog.messages == []


@pytest.mark.parametrize(
    ("path", "verb", "right"), [(COLLECTION, "get", "list"), (DEMO, "patch", "patch"), (DEMO, "delete", "delete")]
)
async def test_a_missing_right_is_said_once(
    case: PolicyReportsCase, caplog: pytest.LogCaptureFixture, path: str, verb: str, right: str
) -> None:
    if verb == "delete":
        await case.reports.write({"demo": [FOUND]})
    case.server.fail(path, 403, verb=verb, times=2)
    for _ in range(2):
        await case.reports.write({} if verb == "delete" else {"demo": [FOUND]})

    (said,) = caplog.messages
    assert f"grant {right} on policyreports.wgpolicyk8s.io" in said


async def test_a_server_that_is_away(case: PolicyReportsCase, caplog: pytest.LogCaptureFixture) -> None:
    await case.api.close()
    await case.reports.write({"demo": [FOUND]})

    assert "closed" in caplog.messages[0]
