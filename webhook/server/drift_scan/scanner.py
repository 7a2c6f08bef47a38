"""The background scan for drift: stored objects that are not as mode enforce would make them.

Every few minutes, all objects that have opted in are evaluated. It runs beside admission and must never disturb it: it
has its own connection for lists, sends one request after the other with pauses between, and any error ends the round
with a line in the log. The next round starts afresh.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from webhook.admission.audit import SCHEMA, AuditedObject, DriftRecord, NoAudit, timestamp
from webhook.cluster.source import Cluster
from webhook.facts import KubeVirtKey
from webhook.forecast.additions import additions_by
from webhook.k8s.client.api import READ_ERRORS, ApiError, Transport, list_failure
from webhook.k8s.client.clock import REAL_TIME, Clock
from webhook.k8s.client.list_pages import pages
from webhook.k8s.resources import NAMESPACES, Resource
from webhook.k8s.types.meta import Object, Unstructured, decode_status
from webhook.kubevirt.config import KubeVirtInstall
from webhook.kubevirt.launcher import controller_account
from webhook.policy import Endpoint
from webhook.review.reviewer import Observer, Reviewer
from webhook.server.drift_scan.policy_reports import DriftedObject, Reports, add_result, empty_report
from webhook.server.drift_scan.scanned_objects import (
    ScannedKind,
    enforced_policies,
    is_evaluated,
    review,
    scanned_kinds,
)
from webhook.settings.model import Settings

V = TypeVar("V", bound=Object)

RESULTS: Final = ("finished", "failed")

_TICK_SECONDS: Final = 1.0
# Between two pages and between two objects: a slow scan takes nothing from reviews, nor does a small page.
_PAUSE_SECONDS: Final = 0.1
_BREATH_SECONDS: Final = 0.005
_PAGE_LIMIT: Final = 20
_LIST_SECONDS: Final = 60.0
_EVALUATE_SECONDS: Final = 10.0

logger = logging.getLogger(__name__)


class _ScanGivenUp(Exception):  # noqa: N818 - ends a round
    pass


class _Bugs(Observer):
    """An observer that logs bugs; the reviews of a scan are not requests, so they are not counted."""

    def on_failure(self, endpoint: Endpoint, error: BaseException) -> None:
        logger.error("background scan: internal error in %s", endpoint.path, exc_info=error)


@dataclass(eq=False, repr=False)
class DriftScanner:
    """Finds objects that are not as enforce would make them.

    Args:
        transport: the connection to the API server, for lists; the caller closes it.
        cluster: the source of the policies' facts.
        settings: returns those in force.
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
        self._reviewer = Reviewer(
            self.cluster, self.settings, NoAudit(), _Bugs(), wall=self.clock.wall, additions=additions_by
        )
        # By namespace, the endpoint and uid of each drifted object that has an audit line.
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
        """What was reported is of an etcd that is gone: the next round begins at once, and reports everything again."""
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
                    counts.update({(drifted.endpoint.policy, drifted.endpoint.resource) for drifted in hit})
                    for drifted in hit:
                        keys.add(self._record(drifted, recorded))
                        if settings.drift_scan.policy_reports:
                            add_result(reports.setdefault(namespace, empty_report(namespace)), drifted)
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
            # An error, which admission may deny as the admin wants it, says nothing about the object.
            if evaluation.label in ("patched", "denied"):
                drifted.append(DriftedObject(endpoint, stored.meta, evaluation.decision))
        return drifted

    def _maker(self) -> str:
        """KubeVirt's controller, for the real creator of a launcher pod is not recorded."""
        install = self.cluster.peek(KubeVirtKey())
        here = install.namespaces if isinstance(install, KubeVirtInstall) else ()
        place = self.settings().kubevirt.namespace or min(here, default="")
        return controller_account(place) if place else ""

    def _record(self, drifted: DriftedObject, recorded: set[tuple[str, str]]) -> tuple[str, str]:
        endpoint, meta, uid = drifted.endpoint, drifted.meta, drifted.meta.uid or ""
        key = (endpoint.path, uid)
        if key not in recorded:
            denial, when = drifted.decision.denial, timestamp(self.clock.wall())
            record = DriftRecord(
                *(SCHEMA, when, uid, endpoint.path),
                AuditedObject(endpoint.kind, meta.namespace or "", meta.name or ""),
                meta.creation_timestamp or "",
                "would-deny" if denial else "would-patch",
                drifted.decision.reasons,
                [change.redact() for change in drifted.decision.changes],
                denial.message if denial else None,
            )
            self.audit(record)
            recorded.add(key)
        return key
