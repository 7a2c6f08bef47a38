"""What a run of `kubevirt-webhook bench` has shown, as JSON and as text."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import Final

import msgspec

from webhook.text import pluralize

SCHEMA: Final = 1


class RequestFigures(msgspec.Struct, frozen=True, rename="camel"):
    """The dry runs of one kind in one namespace, as the client saw them; times are of those that were allowed.

    Attributes:
        kind: as in manifests.
        namespace: where they were sent.
        baseline: whether they show what the others cost without the webhooks that are measured.
        requests: how many were answered.
        denied: how many of them were not allowed.
    """

    kind: str
    namespace: str
    baseline: bool
    requests: int
    denied: int
    p50_ms: float | None
    p99_ms: float | None
    mean_ms: float | None


class WebhookFigures(msgspec.Struct, frozen=True, rename="camel"):
    """The calls of one webhook for CREATE, as the API server counts them: those of all its clients.

    Attributes:
        type: ``mutating`` or ``validating``.
        calls: how many there were.
        rejected: how many denied the request.
        failed_open: how many failed, so that the request went on without the webhook.
        p50_ms: an estimate from the API server's buckets, as `p99_ms`; `mean_ms` is exact.
    """

    name: str
    type: str
    calls: int
    rejected: int
    failed_open: int
    p50_ms: float | None
    p99_ms: float | None
    mean_ms: float | None


class NotMeasured(msgspec.Struct, frozen=True, rename="camel"):
    """A kind that was not measured, or only in part.

    Attributes:
        why: a clause.
        todo: what to do about it, a clause in the imperative; may be empty.
    """

    kind: str
    namespace: str
    why: str
    todo: str = ""


class BenchReport(msgspec.Struct, frozen=True, rename="camel"):
    """A run.

    Attributes:
        cluster: the context and the URL of the API server.
        seconds: that it took.
        requests: by kinds.
        not_measured: kinds that were not.
        webhooks: that were called meanwhile; None where the API server's metrics were not read.
        metrics_unread: why they were not, a clause.
        baseline_webhooks: that are called for the baseline, too.
        is_cut_short: whether the time was over before all dry runs were sent.
    """

    cluster: str
    seconds: float
    requests: list[RequestFigures]
    not_measured: list[NotMeasured]
    webhooks: list[WebhookFigures] | None
    metrics_unread: str = ""
    baseline_webhooks: list[str] = msgspec.field(default_factory=list)
    is_cut_short: bool = False
    schema_version: int = SCHEMA


def figures(kind: str, namespace: str, seconds: Sequence[float], denied: int, *, baseline: bool) -> RequestFigures:
    """The figures of the dry runs that were allowed, which took so many seconds each, and of some that were not."""
    p50, p99, mean = None, None, None
    if seconds:
        ordered = sorted(seconds)
        p50, p99 = (round(ordered[math.ceil(len(ordered) * share) - 1] * 1000, 3) for share in (0.5, 0.99))
        mean = round(statistics.fmean(ordered) * 1000, 3)
    return RequestFigures(kind, namespace, baseline, len(seconds) + denied, denied, p50, p99, mean)


def lines(report: BenchReport) -> list[str]:
    """The report as text."""
    rows: list[tuple[str, ...]] = [("dry run", "namespace", "requests", "denied", "p50 ms", "p99 ms", "mean ms")]
    for each in report.requests:
        what = f"{each.kind} (baseline)" if each.baseline else each.kind
        times = map(_ms, (each.p50_ms, each.p99_ms, each.mean_ms))
        rows.append((what, each.namespace, f"{each.requests}", f"{each.denied}", *times))
    total = pluralize(sum(each.requests for each in report.requests), "dry run")
    cut = "; the time limit ended them, so raise --time or lower --number" if report.is_cut_short else ""
    text = [f"{total} in {report.seconds:.0f}s{cut}", ""]
    text += _aligned(rows, 2)
    if report.baseline_webhooks:
        text.append(f"called for the baseline, too: {', '.join(report.baseline_webhooks)}")
    text.append("")
    for skipped in report.not_measured:
        todo = f"; {skipped.todo}" if skipped.todo else ""
        text.append(f"not measured: {skipped.kind} in {skipped.namespace}: {skipped.why}{todo}")
    if report.not_measured:
        text.append("")
    if report.webhooks is None:
        text.append(f"webhooks: not known, {report.metrics_unread}")
    elif not report.webhooks:
        text.append("webhooks: the API server whose metrics were read called none for a CREATE")
    else:
        rows = [("webhook", "type", "calls", "rejected", "failed open", "p50 ms", "p99 ms", "mean ms")]
        for webhook in report.webhooks:
            counts = (f"{webhook.calls}", f"{webhook.rejected}", f"{webhook.failed_open}")
            times = map(_ms, (webhook.p50_ms, webhook.p99_ms, webhook.mean_ms))
            rows.append((webhook.name, webhook.type, *counts, *times))
        text += _aligned(rows, 2)
        text.append("of all clients' CREATEs meanwhile; p50 and p99 are estimates from the API server's buckets")
    return text


def _ms(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f}"


def _aligned(rows: Sequence[tuple[str, ...]], left: int) -> list[str]:
    """The rows in columns; all but the first ones to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    aligned = []
    for row in rows:
        cells = [
            f"{cell:{width}}" if number < left else f"{cell:>{width}}"
            for number, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        aligned.append("  ".join(cells).rstrip())
    return aligned
