"""The background scan for drift: stored objects that are not as mode enforce would make them, and reports of them.

Every few minutes, all objects that have opted in are evaluated. It runs beside admission and must never disturb it: it
has its own connection for lists, sends one request after the other with pauses between, and any error ends the round
with a line in the log. The next round starts afresh.

What a policy would have decided at an object's CREATE is not known any more. What counts is what it decides now: the
object as it is, as if it were created now. So that this does not report objects that were treated correctly:

* An object that carries the server's annotation for a policy is that policy's work, whatever became of it since.
* What KubeVirt and schedulers have written into it since is taken out (a pod's node), or the object is skipped by a
  policy that would take it for the owner's (a VM whose instancetype KubeVirt has captured is not validated against what
  the instancetype says today).
* What ends by itself is left alone: pods that have ended, objects that are being deleted, migrations.

What a scan found is written as PolicyReports (wgpolicyk8s.io/v1alpha2), which dashboards of the Kubernetes policy group
read: one for each namespace. It is applied as a whole by a field manager of its own, so that replicas with the same
result write nothing; it is deleted where nothing is found any more. Reports of other programs, and clusters without
that kind, are left alone.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

import msgspec
from msgspec.structs import replace

from webhook import names
from webhook.admission.audit import SCHEMA, AuditedObject, DriftRecord, NoAudit, timestamp
from webhook.admission.decision import Decision
from webhook.admission.reasons import common
from webhook.cluster.source import Cluster
from webhook.facts import KubeVirtKey
from webhook.k8s.client.api import READ_ERRORS, ApiError, Transport, explain, list_failure
from webhook.k8s.client.clock import REAL_TIME, Clock
from webhook.k8s.client.list_pages import pages
from webhook.k8s.json_tree import MAX_LEVELS, cut, is_too_deep
from webhook.k8s.resources import NAMESPACES, POLICY_REPORTS, UNSTRUCTURED_PODS, Resource
from webhook.k8s.types.meta import Object, ObjectMeta, Unstructured, decode_status
from webhook.k8s.types.selectors import Expression
from webhook.kubevirt.config import KubeVirtInstall
from webhook.kubevirt.launcher import controller_account
from webhook.kubevirt.resources import UNSTRUCTURED_VMIS, UNSTRUCTURED_VMS
from webhook.names import Policy
from webhook.review.endpoints import ENDPOINTS, Endpoint
from webhook.review.reviewer import Observer, Reviewer
from webhook.settings.model import Settings

_ANNOTATIONS: Final[Mapping[str, tuple[str, ...]]] = {
    names.SCHEDULING: (names.INJECTED_SCHEDULER_ANNOTATION, names.INJECTED_SPREAD_ANNOTATION),
    names.INSTANCETYPES: (names.INJECTED_INSTANCETYPE_ANNOTATION, names.INJECTED_PREFERENCE_ANNOTATION),
}
_ENDED: Final = ("Succeeded", "Failed")


class ScannedKind(msgspec.Struct, frozen=True):
    """A kind of objects to list, with the parameters of the query, and the endpoints whose policies evaluate them."""

    resource: Resource[Unstructured]
    query: Mapping[str, str]
    endpoints: tuple[Endpoint, ...]


def _scanned_kind(resource: Resource[Unstructured], query: Mapping[str, str]) -> ScannedKind:
    target = (resource.group, resource.plural, "", names.ENFORCE)
    evaluates = (e for e in ENDPOINTS if (e.group, e.resource, e.sub_resource, e.stage) == target)
    return ScannedKind(resource, query, tuple(e for e in evaluates if "CREATE" in e.operations))


SCANNED_KINDS: Final = (
    _scanned_kind(UNSTRUCTURED_PODS, {"labelSelector": f"{names.APP_LABEL}={names.LAUNCHER_APP}"}),
    _scanned_kind(UNSTRUCTURED_VMS, {}),
    _scanned_kind(UNSTRUCTURED_VMIS, {}),
)


def scanned_kinds(policies: Collection[Policy], settings: Settings) -> list[ScannedKind]:
    """What to list in a namespace that enforces these policies: nothing that the settings have switched off."""
    chosen = (
        replace(
            kind, endpoints=tuple(each for each in kind.endpoints if each.policy in policies and each.is_on(settings))
        )
        for kind in SCANNED_KINDS
    )
    return [kind for kind in chosen if kind.endpoints]


def enforced_policies(namespace: Object, settings: Settings) -> frozenset[Policy]:
    """The policies for which the API server calls this server in a namespace, with mode ``enforce``."""
    meta, labels = namespace.meta, namespace.meta.labels or {}
    requirements = settings.webhooks.namespace_selector.match_expressions
    selector = (Expression(each.key, each.operator, each.values) for each in requirements)
    if meta.deletion_timestamp or meta.name in settings.every_excluded_namespace:
        return frozenset()
    if not all(expression.accepts(labels.get(expression.key)) for expression in selector):
        return frozenset()

    def is_enforced(policy: Policy) -> bool:
        default = names.ENFORCE if settings.policy(policy).cluster_wide else ""
        return labels.get(names.policy_label(policy), default) == names.ENFORCE

    return frozenset(filter(is_enforced, {endpoint.policy for kind in SCANNED_KINDS for endpoint in kind.endpoints}))


def is_evaluated(endpoint: Endpoint, stored: Unstructured) -> bool:
    """Whether a policy can say of an object that exists what it would say at its CREATE."""
    status = stored.status or {}
    if stored.meta.deletion_timestamp or (endpoint.kind == "Pod" and status.get("phase") in _ENDED):
        return False
    if any(stored.meta.annotation(key) for key in _ANNOTATIONS.get(endpoint.policy, ())):
        return False
    spec = stored.spec or {}
    # A VM whose instancetype or preference KubeVirt has captured.
    is_captured = any(
        status.get(f"{field}Ref") or (isinstance(spec.get(field), dict) and spec[field].get("revisionName"))
        for field in ("instancetype", "preference")
    )
    return endpoint.verb != "validate" or not is_captured


def review(endpoint: Endpoint, stored: Unstructured, user: str) -> bytes:
    """The AdmissionReview of creating an object again, which fits all endpoints of its resource."""
    obj = {**stored.plain(), "apiVersion": endpoint.api_version, "kind": endpoint.kind, "status": {}}
    if endpoint.kind == "Pod" and stored.spec:
        obj["spec"] = {key: value for key, value in stored.spec.items() if key != "nodeName"}
    if is_too_deep(stored):
        # Too deep it stays, but such that it can be encoded.
        obj = cut(obj, MAX_LEVELS + 1)
    request = {
        "uid": stored.meta.uid or "none",
        "kind": {"group": endpoint.group, "version": endpoint.version, "kind": endpoint.kind},
        "resource": {"group": endpoint.group, "version": endpoint.version, "resource": endpoint.resource},
        "name": stored.meta.name,
        "namespace": stored.meta.namespace,
        "operation": "CREATE",
        "userInfo": {"username": user},
        "object": obj,
        "dryRun": True,
    }
    return msgspec.json.encode({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request})


NAME: Final = "kubevirt-webhook"
_MANAGED_BY: Final = ("app.kubernetes.io/managed-by", NAME)

# Of a namespace. A result takes some 400 bytes; an object may have 1.5 MiB.
MAX_RESULTS: Final = 500
_SECONDS: Final = 10.0
_REPORTS_PAGE_LIMIT: Final = 500

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
        query = {"labelSelector": "=".join(_MANAGED_BY)}
        listed = pages(self._api, POLICY_REPORTS, query=query, limit=_REPORTS_PAGE_LIMIT, seconds=_SECONDS)
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
    """The report of a namespace without findings."""
    return {
        "apiVersion": POLICY_REPORTS.api_version,
        "kind": POLICY_REPORTS.kind,
        "metadata": {"name": NAME, "namespace": namespace, "labels": dict([_MANAGED_BY])},
        "summary": {"fail": 0, "pass": 0, "warn": 0, "error": 0, "skip": 0},
        "results": [],
    }


def add_result(report: dict[str, Any], finding: DriftedObject) -> None:
    """Count a finding in the report of its namespace; the first `MAX_RESULTS` are results, too."""
    report["summary"]["fail"] += 1
    if len(report["results"]) < MAX_RESULTS:
        report["results"].append(_result(finding))


def _result(finding: DriftedObject) -> msgspec.Raw:
    """A finding as a report holds it, encoded, because those of all namespaces are kept until the round ends."""
    endpoint, meta, reason = finding.endpoint, finding.meta, finding.decision.reasons[0]
    would = "deny" if finding.decision.denial else "change"
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


V = TypeVar("V", bound=Object)

RESULTS: Final = ("finished", "failed")

_TICK_SECONDS: Final = 1.0
# Between two pages and between two objects: a slow scan takes nothing from reviews, nor does a small page.
_PAUSE_SECONDS: Final = 0.1
_BREATH_SECONDS: Final = 0.005
_PAGE_LIMIT: Final = 20
_LIST_SECONDS: Final = 60.0
_EVALUATE_SECONDS: Final = 10.0


class _ScanGivenUp(Exception):  # noqa: N818 - ends a round
    pass


class _Bugs(Observer):
    """An observer that logs bugs; the reviews of a scan are not requests, so they are not counted."""

    def on_error(self, endpoint: Endpoint, error: BaseException) -> None:
        logger.error("background scan: internal error in %s", endpoint.path, exc_info=error)


@dataclass(eq=False, repr=False)
class DriftScanner:
    """Finds objects that are not as enforce would make them.

    Args:
        transport: the connection to the API server, for lists; the caller closes it.
        cluster: the source of the policies' facts.
        settings: returns the present snapshot.
        audit: gets a record of every object that is found, once for each.
        reports: gets all that a round has found.
        clock: the source of time, and of sleep.

    Attributes:
        rounds: rounds by their result, one of `RESULTS`.
        counts: objects by policy and resource, of the last complete round.
    """

    transport: Transport
    cluster: Cluster
    settings: Callable[[], Settings]
    audit: Callable[[DriftRecord], None]
    reports: Reports
    clock: Clock = field(default=REAL_TIME, kw_only=True)

    def __post_init__(self) -> None:
        self._reviewer = Reviewer(self.cluster, self.settings, NoAudit(), _Bugs(), wall=self.clock.wall)
        # By namespace, the endpoint and uid of each finding that has an audit line.
        self._recorded_keys: dict[str, set[tuple[str, str]]] = {}
        self._began: float | None = None
        self.cluster.on_restore(self._start_over)
        self.rounds = Counter(dict.fromkeys(RESULTS, 0))
        self.counts: Mapping[tuple[str, ...], float] = {}

    async def run(self) -> None:
        """Scan indefinitely, at first as soon as the cluster's answers can be trusted; ends when it is cancelled."""
        while True:
            await self.clock.sleep(_TICK_SECONDS)
            every, now = 60.0 * self.settings().drift_scan.every_minutes, self.clock.now()
            if every and not self.cluster.waiting_for() and (self._began is None or now - self._began >= every):
                self._began = now
                await self._round()

    def _start_over(self, _why: str) -> None:
        """The findings are of an etcd that is gone: the next round begins at once, and reports everything again."""
        self._recorded_keys, self._began = {}, None

    async def _round(self) -> None:
        try:
            await self.scan()
        except _ScanGivenUp as why:
            logger.warning("background scan: round skipped: %s", why)
        except Exception:
            logger.exception("background scan: internal error")
        else:
            self.rounds["finished"] += 1
            return
        self.rounds["failed"] += 1

    async def scan(self) -> None:
        """One round; it raises whatever ends it early."""
        # After a restore, the keys of this round do not count for the next one.
        settings, maker, recorded_keys = self.settings(), self._maker(), self._recorded_keys
        counts: Counter[tuple[str, ...]] = Counter()
        reports: dict[str, dict[str, Any]] = {}
        opted = [
            (namespace.meta.name, policies)
            async for namespace in self._all(NAMESPACES, "", {})
            if namespace.meta.name and (policies := enforced_policies(namespace, settings))
        ]
        for namespace, policies in opted:
            keys: set[tuple[str, str]] = set()
            recorded = recorded_keys.setdefault(namespace, set())
            for kind in scanned_kinds(policies, settings):
                for endpoint in kind.endpoints:
                    counts[endpoint.policy, endpoint.resource] += 0
                async for stored in self._all(kind.resource, namespace, kind.query):
                    hit = await self._evaluate(kind, stored, maker)
                    # Two endpoints of a policy that find the same object have found one object.
                    counts.update({(finding.endpoint.policy, finding.endpoint.resource) for finding in hit})
                    for finding in hit:
                        keys.add(self._record(finding, recorded))
                        if settings.drift_scan.policy_reports:
                            add_result(reports.setdefault(namespace, empty_report(namespace)), finding)
            recorded &= keys
        for namespace in recorded_keys.keys() - dict(opted):
            del recorded_keys[namespace]
        self.counts = counts
        if settings.drift_scan.policy_reports:
            await self.reports.write(reports)

    async def _all(self, resource: Resource[V], namespace: str, query: Mapping[str, str]) -> AsyncIterator[V]:
        """All objects of a namespace, or of all; those that the list's view cannot hold end the round."""
        listed = pages(self.transport, resource, namespace, query, limit=_PAGE_LIMIT, seconds=_LIST_SECONDS)
        try:
            async with aclosing(listed):
                async for page in listed:
                    for item in page.items or ():
                        yield item
                        # Also after one that is not evaluated.
                        await asyncio.sleep(0)
                    await self.clock.sleep(_PAUSE_SECONDS)
        except READ_ERRORS as error:
            if isinstance(error, ApiError) and error.status == 404:
                return
            meta = decode_status(error.body).metadata if isinstance(error, ApiError) else None
            token = meta and meta.continue_
            # Evaluating the objects of a long list may take longer than etcd keeps its moment.
            if not token or token == query.get("continue"):
                raise _ScanGivenUp(list_failure(error, resource, namespace, _LIST_SECONDS).why) from None
            async for item in self._all(resource, namespace, {**query, "continue": token}):
                yield item

    async def _evaluate(self, kind: ScannedKind, stored: Unstructured, user: str) -> list[DriftedObject]:
        """What enforce would do to an object if the user created it now."""
        endpoints = [endpoint for endpoint in kind.endpoints if is_evaluated(endpoint, stored)]
        body, drifted = review(endpoints[0], stored, user) if endpoints else b"", []
        for endpoint in endpoints:
            await self.clock.sleep(_BREATH_SECONDS)
            deadline = asyncio.get_running_loop().time() + _EVALUATE_SECONDS
            evaluation = await self._reviewer.evaluate(endpoint, body, deadline)
            # Admission may deny a request because a lookup failed, as the admin wants it; that says nothing about the
            # object.
            if evaluation.label in ("patched", "denied") and evaluation.decision.code != common.LOOKUP_FAILED:
                drifted.append(DriftedObject(endpoint, stored.meta, evaluation.decision))
        return drifted

    def _maker(self) -> str:
        """KubeVirt's controller, for the real creator of a launcher pod is not recorded."""
        install = self.cluster.peek(KubeVirtKey())
        here = install.namespaces if isinstance(install, KubeVirtInstall) else ()
        place = self.settings().scheduling.kubevirt_namespace or min(here, default="")
        return controller_account(place) if place else ""

    def _record(self, finding: DriftedObject, recorded: set[tuple[str, str]]) -> tuple[str, str]:
        endpoint, meta, uid = finding.endpoint, finding.meta, finding.meta.uid or ""
        key = (endpoint.path, uid)
        if key not in recorded:
            denial, when = finding.decision.denial, timestamp(self.clock.wall())
            record = DriftRecord(
                *(SCHEMA, when, uid, endpoint.path),
                AuditedObject(endpoint.kind, meta.namespace or "", meta.name or ""),
                meta.creation_timestamp or "",
                "would-deny" if denial else "would-patch",
                finding.decision.reasons,
                [change.redact() for change in finding.decision.changes],
                denial.message if denial else None,
            )
            self.audit(record)
            recorded.add(key)
        return key
