"""What the API server itself measures of each webhook (k8s.io/apiserver, pkg/admission/metrics)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from prometheus_client.parser import text_string_to_metric_families

from webhook.cli.bench.report import WebhookFigures

_DURATION: Final = "apiserver_admission_webhook_admission_duration_seconds"
_REQUESTS: Final = "apiserver_admission_webhook_request_total"
_OPEN: Final = "apiserver_admission_webhook_fail_open_count"
_OPEN_TOTAL: Final = f"{_OPEN}_total"
_START: Final = "process_start_time_seconds"
# The rest of an API server's metrics is a hundred times as much.
_READ: Final = tuple(name.encode() for name in (_DURATION, _REQUESTS, _OPEN, _START))
_CREATE: Final = "CREATE"


class _Webhook(NamedTuple):
    """A webhook entry by its name; ``admit`` for those that mutate, or ``validating``."""

    name: str
    type: str


class WebhookMetrics(NamedTuple):
    """The counters of an API server at one time.

    Attributes:
        started: when the process began, in Unix seconds: it distinguishes API servers behind one address.
        buckets: for each webhook how many calls for CREATE took no longer than so many seconds.
        seconds: that they took in all.
        rejected: how many of them were denied.
        opened: how many requests went on without the webhook, since it failed.
    """

    started: float
    buckets: Mapping[_Webhook, Mapping[float, float]]
    seconds: Mapping[_Webhook, float]
    rejected: Mapping[_Webhook, float]
    opened: Mapping[_Webhook, float]


def parse(text: bytes) -> WebhookMetrics:
    """The counters in an answer to ``GET /metrics``.

    Raises:
        ValueError: it is not in Prometheus' text format.
    """
    lines = [line for line in text.splitlines() if line.startswith(_READ)]
    found = WebhookMetrics(0.0, {}, {}, {}, {})
    started, buckets = 0.0, dict[_Webhook, dict[float, float]]()
    seconds, rejected, opened = dict(found.seconds), dict(found.rejected), dict(found.opened)
    for family in text_string_to_metric_families(b"\n".join([*lines, b""]).decode(errors="replace")):
        for sample in family.samples:
            labels, value = sample.labels, sample.value
            webhook = _Webhook(labels.get("name", ""), labels.get("type", ""))
            is_create = labels.get("operation") == _CREATE
            if sample.name == _START:
                started = value
            elif sample.name == f"{_DURATION}_bucket" and is_create:
                edges = buckets.setdefault(webhook, {})
                edge = float(labels["le"])
                edges[edge] = edges.get(edge, 0.0) + value
            elif sample.name == f"{_DURATION}_sum" and is_create:
                seconds[webhook] = seconds.get(webhook, 0.0) + value
            elif sample.name == _REQUESTS and is_create and labels.get("rejected") == "true":
                rejected[webhook] = rejected.get(webhook, 0.0) + value
            elif sample.name in (_OPEN, _OPEN_TOTAL):
                opened[webhook] = opened.get(webhook, 0.0) + value
    return WebhookMetrics(started, buckets, seconds, rejected, opened)


def difference(before: WebhookMetrics, after: WebhookMetrics) -> list[WebhookFigures]:
    """What happened between two times, for each webhook that was called or failed; the most expensive one first."""
    figures = []
    for webhook in after.buckets.keys() | after.opened.keys():
        earlier = before.buckets.get(webhook, {})
        buckets = {edge: count - earlier.get(edge, 0.0) for edge, count in after.buckets.get(webhook, {}).items()}
        number = max(buckets.values(), default=0.0)
        seconds, rejected, opened = (
            later.get(webhook, 0.0) - sooner.get(webhook, 0.0)
            for later, sooner in (
                (after.seconds, before.seconds),
                (after.rejected, before.rejected),
                (after.opened, before.opened),
            )
        )
        if number <= 0 and opened <= 0:
            continue
        figures.append(
            WebhookFigures(
                name=webhook.name,
                type="mutating" if webhook.type == "admit" else webhook.type,
                calls=int(number),
                rejected=int(rejected),
                failed_open=int(opened),
                p50_ms=quantile(buckets, 0.5) * 1000 if number > 0 else None,
                p99_ms=quantile(buckets, 0.99) * 1000 if number > 0 else None,
                mean_ms=seconds / number * 1000 if number > 0 else None,
            )
        )
    return sorted(figures, key=lambda each: (-(each.mean_ms or 0.0) * each.calls, each.name))


def quantile(buckets: Mapping[float, float], share: float) -> float:
    """A quantile of a histogram whose buckets count all below their edge, as Prometheus estimates it.

    Within a bucket the estimate is linear; beyond the last edge nothing is known, so that is the answer.
    """
    wanted, lower, below = max(buckets.values()) * share, 0.0, 0.0
    for edge, count in sorted(buckets.items()):
        if count >= wanted and count > below:
            return lower if edge == float("inf") else lower + (edge - lower) * (wanted - below) / (count - below)
        lower, below = (edge, count) if edge != float("inf") else (lower, below)
    return lower
