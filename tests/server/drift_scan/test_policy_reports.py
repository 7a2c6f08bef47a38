"""PolicyReports: their content, and how they come and go."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from tests.server.conftest import ServedApi
from webhook.admission.decision import Decision, Denial, Reason
from webhook.k8s.resources import POLICY_REPORTS
from webhook.k8s.types.meta import ObjectMeta
from webhook.policies.registry import BY_PATH
from webhook.server.drift_scan import policy_reports
from webhook.server.drift_scan.policy_reports import MAX_RESULTS, NAME, DriftedObject, Reports

PODS = BY_PATH["/mutate/scheduling/pods/enforce"]
WHY = Decision((Reason("scheduler-injected", "the VMI chose no scheduler"),))
FOUND = DriftedObject(PODS, ObjectMeta(namespace="demo", name="pod-1", uid="u1"), WHY)


def report_of(*drifted: DriftedObject, namespace: str = "demo") -> Any:
    report = policy_reports.empty_report(namespace)
    for each in drifted:
        policy_reports.add_result(report, each)
    return json.loads(msgspec.json.encode(report))


REPORTED = {"demo": report_of(FOUND)}
COLLECTION = POLICY_REPORTS.path()
DEMO = POLICY_REPORTS.path("demo", NAME)


@pytest.mark.control("large-objects-in-scans")
def test_a_report() -> None:
    denied = Decision((Reason("no", "it can't be"),), denial=Denial(422, "x"))
    second = DriftedObject(PODS, ObjectMeta(namespace="demo", name="pod-2", uid="u2"), denied)
    made = report_of(FOUND, second)

    labels = {"app.kubernetes.io/managed-by": "kubevirt-webhook"}
    assert made["metadata"] == {"name": NAME, "namespace": "demo", "labels": labels}
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

    bounded = report_of(*[FOUND] * (MAX_RESULTS + 1))
    assert (len(bounded["results"]), bounded["summary"]["fail"]) == (MAX_RESULTS, MAX_RESULTS + 1)
    assert len(json.dumps(bounded)) < 1_000_000


async def test_they_come_and_go(api: ServedApi) -> None:
    server, reports = api[0], Reports(api[1])
    # In a cluster that does not have the kind, nothing is written.
    await reports.write(REPORTED)
    assert [asked.verb for asked in server.asked] == ["get"]
    server.serve(POLICY_REPORTS)
    await reports.write(REPORTED)
    (held,) = server.held(POLICY_REPORTS).values()
    assert (held["summary"]["fail"], server.asked[-1].query["fieldManager"]) == (1, NAME)
    await reports.write({"other": report_of(FOUND, namespace="other")})
    assert set(server.held(POLICY_REPORTS)) == {("other", NAME)}
    await reports.write({})
    assert server.held(POLICY_REPORTS) == {}


@pytest.mark.control("reports-of-others")
async def test_reports_of_others_are_left_alone(api: ServedApi, caplog: pytest.LogCaptureFixture) -> None:
    server, reports = api[0], Reports(api[1])
    server.put(POLICY_REPORTS, NAME, "demo")
    labels = {"app.kubernetes.io/managed-by": "kubevirt-webhook"}
    server.put(POLICY_REPORTS, "mine", "demo", metadata={"labels": labels})
    server.fail(DEMO, 409, verb="patch")
    await reports.write(REPORTED)
    await reports.write({})
    assert set(server.held(POLICY_REPORTS)) == {("demo", NAME), ("demo", "mine")}
    assert "another program" in caplog.messages[0]


@pytest.mark.parametrize(
    ("path", "verb", "right"), [(COLLECTION, "get", "list"), (DEMO, "patch", "patch"), (DEMO, "delete", "delete")]
)
async def test_a_missing_right_is_said_once(
    api: ServedApi, caplog: pytest.LogCaptureFixture, path: str, verb: str, right: str
) -> None:
    server, reports = api[0], Reports(api[1])
    server.serve(POLICY_REPORTS)
    if verb == "delete":
        await reports.write(REPORTED)
    server.fail(path, 403, verb=verb, times=2)
    for _ in range(2):
        await reports.write({} if verb == "delete" else REPORTED)
    (said,) = caplog.messages
    assert f"grant {right} on policyreports.wgpolicyk8s.io" in said
    await api[1].close()
    await reports.write(REPORTED)
    assert "closed" in caplog.messages[1]
