"""Sends dry runs, one after the other, and takes the times of their answers."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from webhook.admission.credentials import scrub_prose
from webhook.cli.bench import webhook_metrics
from webhook.cli.bench.report import BenchReport, NotMeasured, RequestFigures, WebhookFigures, figures
from webhook.cli.bench.samples import RunningVmi, SampleKind
from webhook.cli.bench.webhook_metrics import WebhookMetrics
from webhook.k8s.client.api import ApiConnectionError, Requests, Transport, explain
from webhook.k8s.json_tree import member
from webhook.k8s.resources import Resource
from webhook.k8s.types.meta import Object, decode_status

METRICS_PATH: Final = "/metrics"
_DRY_RUN: Final = {"dryRun": "All"}
# The metrics of a large API server take megabytes.
_METRICS_BYTES: Final = 64 * 1024 * 1024
# Denied so often in a row, all the others would be, too.
_DENIED_IN_A_ROW: Final = 3
# k8s.io/apiserver, pkg/admission/plugin/webhook/errors, NewDryRunUnsupportedErr.
_UNSUPPORTED: Final = re.compile(r'admission webhook "([^"]+)" does not support dry run')


class Target(NamedTuple):
    """A kind in a namespace.

    Attributes:
        api: as the one who creates it.
        is_baseline: whether it shows what the others cost without the webhooks.
    """

    kind: SampleKind
    namespace: str
    api: Requests
    is_baseline: bool


class Limits(NamedTuple):
    """How much is sent.

    Attributes:
        number: of each target.
        rate: in a second, of all together.
        seconds: after which no more dry runs are sent.
    """

    number: int
    rate: int
    seconds: int


class _Series:
    """The dry runs of one target."""

    def __init__(self, target: Target) -> None:
        self.target: Final = target
        self.seconds: Final[list[float]] = []
        self.denied = 0
        self.ended: NotMeasured | None = None
        self._in_a_row = 0

    async def send(self) -> None:
        """Send one."""
        begun = time.perf_counter()
        try:
            fault = await self._ask()
        except ApiConnectionError as error:
            self.ended = self._unanswered(error)
            return
        if fault is None:
            self.seconds.append(time.perf_counter() - begun)
            self._in_a_row = 0
            return
        self.denied += 1
        self._in_a_row += 1
        if self._in_a_row >= _DENIED_IN_A_ROW:
            self.ended = fault

    async def probe(self) -> None:
        """Send one that does not count: it opens the connection, and shows what cannot be measured."""
        try:
            self.ended = await self._ask()
        except ApiConnectionError as error:
            self.ended = self._unanswered(error)

    @property
    def figures(self) -> RequestFigures:
        """What was measured."""
        target = self.target
        return figures(target.kind.kind, target.namespace, self.seconds, self.denied, baseline=target.is_baseline)

    async def _ask(self) -> NotMeasured | None:
        """Why the API server does not allow one; None if it does."""
        kind, namespace = self.target.kind, self.target.namespace
        status, body = await self.target.api.request("POST", kind.path(namespace), _DRY_RUN, kind.body())
        return None if status < 300 else _fault(kind, namespace, status, body)

    def _unanswered(self, error: ApiConnectionError) -> NotMeasured:
        # Perhaps a webhook hangs that is called for this kind alone, so the others go on.
        return NotMeasured(self.target.kind.kind, self.target.namespace, f"a dry run got no answer: {error.why}")


def _fault(kind: SampleKind, namespace: str, status: int, body: bytes) -> NotMeasured:
    answer = decode_status(body)
    if unsupported := _UNSUPPORTED.search(answer.text):
        why = f"the webhook {unsupported[1]} does not support dry runs, which the API server therefore denies"
        todo = "set its sideEffects to None or NoneOnDryRun, if that is true of it"
        return NotMeasured(kind.kind, namespace, why, todo)
    if status == 404 and answer.reason != "NotFound":
        return NotMeasured(kind.kind, namespace, f"the cluster does not serve {kind.resource}")
    if status == 403 and not answer.is_of_admission and "cannot create" in answer.text:
        version = kind.api_version.rpartition("/")[2]
        resource = Resource(kind.group, version, kind.plural, kind.kind, True, Object)
        return NotMeasured(kind.kind, namespace, explain("create", resource, namespace, status, body).why)
    return NotMeasured(kind.kind, namespace, f"the API server answers {status}: {scrub_prose(answer.text)}")


async def measure(api: Transport, cluster: str, targets: Sequence[Target], limits: Limits) -> BenchReport:
    """Send the dry runs of all targets by turns."""
    until = time.monotonic() + limits.seconds
    series = [_Series(target) for target in targets]
    for each in series:
        if time.monotonic() < until:
            await each.probe()
    before = await _metrics(api)
    begun = time.monotonic()
    is_cut_short = not await _send(series, limits, begun, until)
    seconds = time.monotonic() - begun
    webhooks, unread = _webhooks(before, await _metrics(api) if isinstance(before, WebhookMetrics) else before)
    return BenchReport(
        cluster=cluster,
        seconds=round(seconds, 3),
        requests=[each.figures for each in series if each.seconds or each.denied],
        not_measured=[each.ended for each in series if each.ended],
        webhooks=webhooks,
        metrics_unread=unread,
        is_cut_short=is_cut_short,
    )


async def _send(series: Sequence[_Series], limits: Limits, begun: float, until: float) -> bool:
    """Send the dry runs by turns; returns whether there was time for all of them."""
    sent = 0
    for _ in range(limits.number):
        for each in series:
            if each.ended:
                continue
            await asyncio.sleep(max(0.0, begun + sent / limits.rate - time.monotonic()))
            if time.monotonic() > until:
                return False
            await each.send()
            sent += 1
    return True


async def _metrics(api: Transport) -> WebhookMetrics | str:
    """The API server's own counters, or a clause that says why they are not known."""
    try:
        status, body = await api.get(METRICS_PATH, most=_METRICS_BYTES)
    except ApiConnectionError as error:
        return f"since the API server did not answer a read of {METRICS_PATH}: {error.why}"
    if status == 403:
        return f"since the API server denied the request (403): grant get on the nonResourceURL {METRICS_PATH}"
    if status != 200:
        return f"since the API server answered {status} to a read of {METRICS_PATH}"
    try:
        return webhook_metrics.parse(body)
    except (ValueError, KeyError):
        return f"since {METRICS_PATH} of the API server is not in the Prometheus text format"


def _webhooks(before: WebhookMetrics | str, after: WebhookMetrics | str) -> tuple[list[WebhookFigures] | None, str]:
    if isinstance(before, str) or isinstance(after, str):
        return None, next(each for each in (before, after) if isinstance(each, str))
    if before.started != after.started:
        return None, "since two API servers, or one that has restarted, answered the reads of their metrics"
    return webhook_metrics.difference(before, after), ""


def running_vmi(listed: Any) -> RunningVmi | None:
    """The first VMI of a list that runs; None if none does."""
    items = member(listed, "items")
    for item in items if isinstance(items, list) else ():
        name, uid = member(item, "metadata.name"), member(item, "metadata.uid")
        if member(item, "status.phase") == "Running" and isinstance(name, str) and isinstance(uid, str):
            return RunningVmi(name, uid)
    return None
