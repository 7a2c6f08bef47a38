"""What a scan found, as PolicyReports (wgpolicyk8s.io/v1alpha2), which dashboards of the Kubernetes policy group read.

One report for each namespace. It is applied as a whole by a field manager of its own, so that replicas with the same
result write nothing; it is deleted where nothing is found any more. Reports of other programs, and clusters without
that kind, are left alone.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from contextlib import aclosing
from typing import Any, Final, Protocol

import msgspec

from webhook import names
from webhook.admission.decision import Decision
from webhook.k8s.client.api import ApiConnectionError, ApiError, Requests, Transport, explain
from webhook.k8s.client.list_pages import pages
from webhook.k8s.client.resources import POLICY_REPORTS
from webhook.review.endpoints import Endpoint
from webhook.server.background.drift.candidates import Candidate

NAME: Final = "kubevirt-webhook"
_MANAGED_BY: Final = ("app.kubernetes.io/managed-by", NAME)

# A result takes some 400 bytes; an object may have 1.5 MiB.
MAX_RESULTS: Final = 500
_SECONDS: Final = 10.0
_PAGE_LIMIT: Final = 500

logger = logging.getLogger(__name__)


class DriftedObject(msgspec.Struct, frozen=True):
    """An object that is not as enforce would make it.

    Attributes:
        endpoint: whose policy says so.
        decision: what enforce would do.
    """

    endpoint: Endpoint
    candidate: Candidate
    decision: Decision


class _ReportTransport(Transport, Requests, Protocol):
    """Reads and writes."""


class Reports:
    """Keeps the reports in step with what was found.

    Args:
        api: the way to the API server; the caller closes it.
    """

    def __init__(self, api: _ReportTransport) -> None:
        self._api: Final = api
        self._trouble = ""

    async def write(self, findings: Mapping[str, Sequence[DriftedObject]]) -> None:
        """Make the cluster's reports say this and nothing else; what goes wrong is a line in the log.

        Args:
            findings: the findings by namespace.
        """
        try:
            own = await self._own_reports()
            for namespace, drifted in findings.items() if own is not None else ():
                await self._apply(namespace, drifted)
            for namespace, uid in (own or {}).items():
                if namespace not in findings:
                    await self._delete(namespace, uid)
        except ApiError as refused:
            self._log_failure(explain("list", POLICY_REPORTS, "", refused.status, refused.body).why)
        except ApiConnectionError as error:
            self._log_failure(error.why)
        except TimeoutError:
            self._log_failure("the API server did not answer in time")

    async def _own_reports(self) -> dict[str, str] | None:
        """The uids of this server's reports by namespace; None where the cluster has no such kind.

        Raises:
            ApiError, ApiConnectionError, TimeoutError: they cannot be listed.
        """
        query = {"labelSelector": "=".join(_MANAGED_BY)}
        listed = pages(self._api, POLICY_REPORTS, query=query, limit=_PAGE_LIMIT, seconds=_SECONDS)
        uids = {}
        try:
            async with aclosing(listed):
                async for page in listed:
                    for report in page.items or ():
                        if report.meta.name == NAME:
                            uids[report.meta.namespace or ""] = report.meta.uid or ""
        except ApiError as refused:
            if refused.status == 404:
                return None
            raise
        return uids

    async def _apply(self, namespace: str, drifted: Sequence[DriftedObject]) -> None:
        status, body = await self._api.request(
            "PATCH",
            POLICY_REPORTS.path(namespace, NAME),
            {"fieldManager": NAME},
            report(namespace, drifted),
            "application/apply-patch+yaml",
            seconds=_SECONDS,
        )
        if status == 409:
            self._log_failure(f"the PolicyReport {namespace}/{NAME} belongs to another program")
        elif status not in (200, 201):
            self._log_failure(explain("patch", POLICY_REPORTS, "", status, body).why)

    async def _delete(self, namespace: str, uid: str) -> None:
        path = POLICY_REPORTS.path(namespace, NAME)
        body = {"preconditions": {"uid": uid}}
        status, answer = await self._api.request("DELETE", path, body=body, seconds=_SECONDS)
        if status not in (200, 202, 404, 409):
            self._log_failure(explain("delete", POLICY_REPORTS, "", status, answer).why)

    def _log_failure(self, why: str) -> None:
        if why != self._trouble:
            logger.warning("background scan: PolicyReports cannot be written: %s", why)
        self._trouble = why


def report(namespace: str, drifted: Sequence[DriftedObject]) -> dict[str, Any]:
    """The report of a namespace; of very many findings the first ones, and the number of all."""
    return {
        "apiVersion": POLICY_REPORTS.api_version,
        "kind": POLICY_REPORTS.kind,
        "metadata": {"name": NAME, "namespace": namespace, "labels": dict([_MANAGED_BY])},
        "summary": {"fail": len(drifted), "pass": 0, "warn": 0, "error": 0, "skip": 0},
        "results": [_result(finding) for finding in drifted[:MAX_RESULTS]],
    }


def _result(finding: DriftedObject) -> dict[str, Any]:
    endpoint, candidate, reason = finding.endpoint, finding.candidate, finding.decision.reasons[0]
    would = "deny" if finding.decision.denial else "change"
    return {
        "source": NAME,
        "policy": names.policy_label(endpoint.policy),
        "rule": reason.code,
        "category": endpoint.policy,
        "result": "fail",
        "severity": "medium",
        "message": f"created now, enforce would {would} it: {reason.text}",
        "resources": [
            {
                "apiVersion": f"{endpoint.group}/{endpoint.version}" if endpoint.group else endpoint.version,
                "kind": endpoint.kind,
                "namespace": candidate.namespace,
                "name": candidate.name,
                "uid": candidate.uid,
            }
        ],
    }
