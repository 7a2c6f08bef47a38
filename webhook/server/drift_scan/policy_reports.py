"""What a scan for drift found, as PolicyReports (wgpolicyk8s.io/v1alpha2): one for each namespace.

Dashboards of the Kubernetes policy group read them. A report is applied as a whole by a field manager of its own, so
that replicas with the same result write nothing; it is deleted where nothing is found any more. Reports of other
programs, and clusters without that kind, are left alone.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from contextlib import aclosing
from typing import Any, Final

import msgspec

from webhook import names
from webhook.admission.decision import Decision
from webhook.k8s.client.api import READ_ERRORS, ApiError, Transport, explain, list_failure
from webhook.k8s.client.list_pages import pages
from webhook.k8s.resources import POLICY_REPORTS
from webhook.k8s.types.meta import ObjectMeta
from webhook.policy import Endpoint

NAME: Final = "kubevirt-webhook"
# The label, and its value, by which the reports are found.
MANAGED_BY: Final = ("app.kubernetes.io/managed-by", NAME)

# Of a namespace. A result takes some 400 bytes; an object may have 1.5 MiB.
MAX_RESULTS: Final = 500
_SECONDS: Final = 10.0
_PAGE_LIMIT: Final = 500

logger = logging.getLogger(__name__)


class DriftedObject(msgspec.Struct, frozen=True):
    """An object that is not as enforce would make it, as the policy of an endpoint decides."""

    endpoint: Endpoint
    meta: ObjectMeta
    decision: Decision


class Reports:
    """Keeps the reports in step with what was found.

    Args:
        api: the way to the API server; the caller closes it.
    """

    def __init__(self, api: Transport) -> None:
        self._api: Final = api
        self._trouble = ""

    async def write(self, reports: Mapping[str, dict[str, Any]]) -> None:
        """Make these, by namespace, the cluster's reports, and no others; what goes wrong is a line in the log."""
        try:
            own = await self._own_reports()
            for namespace, report in reports.items():
                await self._apply(namespace, report)
            for namespace in own.keys() - reports.keys():
                body = {"preconditions": {"uid": own[namespace]}}
                path = POLICY_REPORTS.path(namespace, NAME)
                status, answer = await self._api.request("DELETE", path, body=body, seconds=_SECONDS)
                if status not in (200, 202, 404, 409):
                    self._log_failure(explain("delete", POLICY_REPORTS, "", status, answer).why)
        except READ_ERRORS as error:
            # Where lists are not found, the cluster has no such kind.
            if not (isinstance(error, ApiError) and error.status == 404):
                self._log_failure(list_failure(error, POLICY_REPORTS, "", _SECONDS).why)

    async def _own_reports(self) -> dict[str, str]:
        """The uids of this server's reports by namespace."""
        query = {"labelSelector": "=".join(MANAGED_BY)}
        listed = pages(self._api, POLICY_REPORTS, query=query, limit=_PAGE_LIMIT, seconds=_SECONDS)
        async with aclosing(listed):
            metas = [report.meta async for page in listed for report in page.items or ()]
        return {meta.namespace or "": meta.uid or "" for meta in metas if meta.name == NAME}

    async def _apply(self, namespace: str, report: dict[str, Any]) -> None:
        target = (POLICY_REPORTS.path(namespace, NAME), {"fieldManager": NAME}, report)
        status, body = await self._api.request("PATCH", *target, "application/apply-patch+yaml", seconds=_SECONDS)
        if status == 409:
            self._log_failure(f"the PolicyReport {namespace}/{NAME} belongs to another program")
        elif status not in (200, 201):
            self._log_failure(explain("patch", POLICY_REPORTS, "", status, body).why)

    def _log_failure(self, why: str) -> None:
        if why != self._trouble:
            logger.warning("background scan: PolicyReports cannot be written: %s", why)
        self._trouble = why


def empty_report(namespace: str) -> dict[str, Any]:
    """The report of a namespace without drifted objects."""
    return {
        "apiVersion": POLICY_REPORTS.api_version,
        "kind": POLICY_REPORTS.kind,
        "metadata": {"name": NAME, "namespace": namespace, "labels": dict([MANAGED_BY])},
        "summary": {"fail": 0, "pass": 0, "warn": 0, "error": 0, "skip": 0},
        "results": [],
    }


def add_result(report: dict[str, Any], drifted: DriftedObject) -> None:
    """Count a drifted object in the report of its namespace; the first `MAX_RESULTS` are results, too."""
    report["summary"]["fail"] += 1
    if len(report["results"]) < MAX_RESULTS:
        report["results"].append(_result(drifted))


def _result(drifted: DriftedObject) -> msgspec.Raw:
    """A drifted object as a report holds it, encoded, because those of all namespaces are kept until the round ends."""
    endpoint, meta, reason = drifted.endpoint, drifted.meta, drifted.decision.reasons[0]
    would = "deny" if drifted.decision.denial else "change"
    identity = {"namespace": meta.namespace, "name": meta.name, "uid": meta.uid}
    result = {
        "source": NAME,
        "policy": names.policy_label(endpoint.policy),
        "rule": reason.code,
        "category": endpoint.policy,
        "result": "fail",
        "severity": "medium",
        "message": f"created now, enforce would {would} it: {reason.text}",
        "resources": [{"apiVersion": endpoint.api_version, "kind": endpoint.kind, **identity}],
    }
    return msgspec.Raw(msgspec.json.encode(result))
