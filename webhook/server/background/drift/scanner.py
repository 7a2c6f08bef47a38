"""The background scan: every few minutes, all objects that have opted in are evaluated as if they were created anew.

It runs beside admission and must never disturb it: it has its own connection for lists, sends one request after the
other with pauses between, and any error ends the round with a line in the log. The next round starts afresh.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import aclosing
from typing import Final, TypeVar

from webhook.admission.audit import SCHEMA, AuditedObject, DriftRecord, NoAudit, timestamp
from webhook.cluster.source import Cluster
from webhook.facts import KubeVirtKey
from webhook.k8s.client.api import READ_ERRORS, ApiError, Transport, list_failure
from webhook.k8s.client.clock import REAL_TIME, Clock
from webhook.k8s.client.list_pages import pages
from webhook.k8s.client.resources import NAMESPACES, Resource
from webhook.k8s.views import Object
from webhook.kubevirt.config import KubeVirtInstall
from webhook.kubevirt.launcher import controller_account
from webhook.names import Code
from webhook.review.endpoints import Endpoint
from webhook.review.reviewer import NullObserver, Reviewer
from webhook.server.background.drift import candidates
from webhook.server.background.drift.candidates import Candidate
from webhook.server.background.drift.policy_reports import DriftedObject, Reports
from webhook.settings.snapshot import Settings

V = TypeVar("V", bound=Object)

RESULTS: Final = ("finished", "failed")

_TICK_SECONDS: Final = 1.0
# Between two pages and between two objects: a slow scan takes nothing from reviews.
_PAUSE_SECONDS: Final = 0.1
_BREATH_SECONDS: Final = 0.005
_PAGE_LIMIT: Final = 100
_LIST_SECONDS: Final = 60.0
_EVALUATE_SECONDS: Final = 10.0

logger = logging.getLogger(__name__)


class _ScanGivenUp(Exception):  # noqa: N818 - ends a round
    pass


class _Bugs(NullObserver):
    """An observer that logs bugs; the reviews of a scan are not requests, so they are not counted."""

    def on_error(self, endpoint: Endpoint, error: BaseException) -> None:
        logger.error("background scan: internal error in %s", endpoint.path, exc_info=error)


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
        found: objects by policy and resource, of the last complete round.
    """

    def __init__(
        self,
        transport: Transport,
        cluster: Cluster,
        settings: Callable[[], Settings],
        audit: Callable[[DriftRecord], None],
        reports: Reports,
        *,
        clock: Clock = REAL_TIME,
    ) -> None:
        self._transport: Final = transport
        self._cluster: Final = cluster
        self._settings: Final = settings
        self._audit: Final = audit
        self._reports: Final = reports
        self._clock: Final = clock
        self._reviewer: Final = Reviewer(cluster, settings, NoAudit(), _Bugs(), clock.wall)
        self._told: frozenset[tuple[str, str]] = frozenset()
        self._began: float | None = None
        cluster.on_restore(self._start_over)
        self.rounds: Final = Counter(dict.fromkeys(RESULTS, 0))
        self.found: Mapping[tuple[str, ...], float] = {}

    async def run(self) -> None:
        """Scan indefinitely, at first as soon as the cluster's answers can be trusted; ends when it is cancelled."""
        while True:
            await self._clock.sleep(_TICK_SECONDS)
            every, now = self._settings().unenforced.every_seconds, self._clock.now()
            if every and not self._cluster.waiting_for() and (self._began is None or now - self._began >= every):
                self._began = now
                await self._round()

    def _start_over(self, _why: str) -> None:
        """What was found is of an etcd that is gone: the next round begins at once, and reports everything anew."""
        self._told, self._began = frozenset(), None

    async def _round(self) -> None:
        try:
            await self.look()
        except _ScanGivenUp as why:
            logger.warning("background scan: round skipped: %s", why)
        except Exception:
            logger.exception("background scan: internal error")
        else:
            self.rounds["finished"] += 1
            return
        self.rounds["failed"] += 1

    async def look(self) -> None:
        """One round.

        Raises:
            Exception: whatever ended it early.
        """
        settings, maker = self._settings(), self._maker()
        told: set[tuple[str, str]] = set()
        counts: Counter[tuple[str, ...]] = Counter()
        findings: dict[str, list[DriftedObject]] = {}
        opted = [
            (namespace.meta.name, policies)
            async for namespace in self._all(NAMESPACES, "", {})
            if namespace.meta.name and (policies := candidates.enforced_policies(namespace, settings))
        ]
        for namespace, policies in opted:
            for look in candidates.looks(policies, settings):
                for endpoint in look.endpoints:
                    counts[endpoint.policy, endpoint.resource] += 0
                listed = self._all(look.resource, namespace, look.query)
                made = [candidates.candidate(look, stored, maker) async for stored in listed]
                # A whole list, then its objects: a continued list that waits too long expires.
                for candidate in filter(None, made):
                    hit = await self._evaluate(candidate)
                    # Two policies of a policy that find the same object have found one object.
                    counts.update({(finding.endpoint.policy, finding.endpoint.resource) for finding in hit})
                    told.update(self._record(finding) for finding in hit)
                    if hit:
                        findings.setdefault(namespace, []).extend(hit)
        self._told, self.found = frozenset(told), counts
        if settings.unenforced.policy_reports:
            await self._reports.write(findings)

    async def _all(self, resource: Resource[V], namespace: str, query: Mapping[str, str]) -> AsyncIterator[V]:
        """All objects of a namespace, or of all; those that the list's view cannot hold end the round.

        Raises:
            _ScanGivenUp: they cannot be listed.
        """
        listed = pages(self._transport, resource, namespace, query, limit=_PAGE_LIMIT, seconds=_LIST_SECONDS)
        try:
            async with aclosing(listed):
                async for page in listed:
                    for item in page.items or ():
                        yield item
                    await self._clock.sleep(_PAUSE_SECONDS)
        except READ_ERRORS as error:
            if not (isinstance(error, ApiError) and error.status == 404):
                raise _ScanGivenUp(list_failure(error, resource, namespace, _LIST_SECONDS).why) from None

    async def _evaluate(self, candidate: Candidate) -> list[DriftedObject]:
        """What enforce would do to an object if it were created now."""
        drifted = []
        for endpoint in candidate.endpoints:
            await self._clock.sleep(_BREATH_SECONDS)
            deadline = asyncio.get_running_loop().time() + _EVALUATE_SECONDS
            verdict = await self._reviewer.evaluate(endpoint, candidate.review, deadline)
            # Admission may deny a request because a lookup failed, as the admin wants it; that says nothing about the
            # object.
            if verdict.label in ("patched", "denied") and verdict.decision.code != Code.LOOKUP_FAILED:
                drifted.append(DriftedObject(endpoint, candidate, verdict.decision))
        return drifted

    def _maker(self) -> str:
        """KubeVirt's controller, for the real creator of a launcher pod is not recorded."""
        known = self._cluster.peek(KubeVirtKey())
        here = known.namespaces if isinstance(known, KubeVirtInstall) else frozenset()
        place = self._settings().scheduling.kubevirt_namespace or min(here, default="")
        return controller_account(place) if place else ""

    def _record(self, finding: DriftedObject) -> tuple[str, str]:
        endpoint, candidate = finding.endpoint, finding.candidate
        key = (endpoint.path, candidate.uid)
        if key not in self._told:
            decision = finding.decision
            self._audit(
                DriftRecord(
                    SCHEMA,
                    timestamp(self._clock.wall()),
                    candidate.uid,
                    endpoint.path,
                    AuditedObject(endpoint.kind, candidate.namespace, candidate.name),
                    candidate.created,
                    "would-deny" if decision.denial else "would-patch",
                    decision.reasons,
                    [change.redact() for change in decision.changes],
                    decision.denial.message if decision.denial else None,
                )
            )
        return key
