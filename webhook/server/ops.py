"""Health and metrics: what is counted, how it is rendered, and the listeners that answer with it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, NamedTuple

from aiohttp import web
from aiohttp.typedefs import Handler
from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from webhook.admission.wire import is_dry_run
from webhook.policy import Endpoint
from webhook.review.reviewer import Evaluation, Observer
from webhook.server.answers import (
    TrafficObserver,
    errors_to_answers,
    response,
    text,
)
from webhook.server.authorizer import Authorizer, limited, token_of
from webhook.server.guard import guard_of
from webhook.text import visible

# Scrapers come every few seconds at most; what several of them get may be as old as this.
KEPT_SECONDS: Final = 1.0
# From half a millisecond, which is a usual review, to the API server's longest timeout.
BUCKETS: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
METRICS_PATH: Final = "/metrics"
# Between two answers about health on one connection: probes ask once on each.
SETTLE_SECONDS: Final = 0.1
_STATUSES: Final = (200, 400, 403, 405, 408, 413, 415, 429, 500)
_EXPLAIN_STATUSES: Final = (200, 400, 401, 403, 404, 405, 429, 500, 503)

Labels = tuple[str, ...]


class StateMetric(NamedTuple):
    """A gauge, or a counter if its name ends in ``_total``, that is read at each scrape.

    Attributes:
        name: the name of the metric.
        text: its help.
        read: returns its number; those with labels, the numbers by the value of the one label, or by those of several.
        labels: their names.
        created: since when a counter has counted, in Unix seconds; None: it does not say so.
    """

    name: str
    text: str
    read: Callable[[], float | Mapping[str, float] | Mapping[Labels, float]]
    labels: Labels = ()
    created: float | None = None

    def reading(self, read: Callable[[], float | Mapping[str, float] | Mapping[Labels, float]]) -> StateMetric:
        """The metric with these numbers."""
        return self._replace(read=read)


class MetricsState:
    """What is read at each scrape, for prometheus_client.

    Args:
        metrics: all of it.
    """

    def __init__(self, metrics: Iterable[StateMetric]) -> None:
        self._metrics: Final = tuple(metrics)

    def describe(self) -> Iterable[Metric]:
        """All metrics without numbers, at the registration: it denies a name that is taken."""
        return map(_family, self._metrics)

    def collect(self) -> Iterable[Metric]:
        """All metrics, at a scrape."""
        for metric in self._metrics:
            family, numbers = _family(metric), metric.read()
            created: dict[str, Any] = {} if metric.created is None else {"created": metric.created}
            for value, number in (numbers if isinstance(numbers, Mapping) else {(): numbers}).items():
                family.add_metric((value,) if isinstance(value, str) else value, number, **created)
            yield family


def _family(metric: StateMetric) -> GaugeMetricFamily | CounterMetricFamily:
    kind = CounterMetricFamily if metric.name.endswith("_total") else GaugeMetricFamily
    return kind(metric.name, metric.text, labels=metric.labels)


class _OneMetric(Collector):
    def __init__(self, metric: Metric) -> None:
        self._metric: Final = metric

    def collect(self) -> Iterable[Metric]:
        return (self._metric,)


class Rendering:
    """The text of a registry.

    Args:
        registry: the metrics.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry: Final = registry
        self._text = b""
        self._until = float("-inf")
        self._running: asyncio.Task[bytes] | None = None

    async def text(self) -> bytes:
        """The text, at most `KEPT_SECONDS` old."""
        if asyncio.get_running_loop().time() < self._until:
            return self._text
        if self._running is None:
            self._running = asyncio.create_task(self._render(), name="metrics")
        # One who goes must not take it from the others.
        return await asyncio.shield(self._running)

    async def _render(self) -> bytes:
        try:
            parts = []
            for metric in self._registry.collect():
                parts.append(generate_latest(_OneMetric(metric)))
                # Reviews come between: all of it in one go would hold them up for many times what one takes.
                await asyncio.sleep(0)
            self._text = b"".join(parts)
            self._until = asyncio.get_running_loop().time() + KEPT_SECONDS
            return self._text
        finally:
            self._running = None


class Metrics(Observer, TrafficObserver):
    """Counts what the server does, as controller-runtime does.

    Every label has a closed set of values: paths of the endpoint table, status codes, and the reason codes and modes of
    `webhook.names`.

    Args:
        paths: the paths of the endpoints.
        log: gets event, path and error of an exception.
    """

    def __init__(self, paths: Iterable[str], log: Callable[[str, str, BaseException], None]) -> None:
        self.registry: Final = CollectorRegistry(auto_describe=True)
        self._log: Final = log
        paths = tuple(paths)
        self._requests: Final = self._counter(
            *("kubevirt_webhook_requests", "HTTP requests at an endpoint by status code.", ("webhook", "code")),
            [(path, str(code)) for path in paths for code in _STATUSES],
        )
        self._latencies: Final = Histogram(
            "kubevirt_webhook_latency_seconds",
            "Time from a request's headers to its answer.",
            ("webhook",),
            buckets=BUCKETS,
            registry=self.registry,
        )
        for path in paths:
            self._latencies.labels(path)
        text = "Requests that met an internal error; each has a line in the log."
        self._panics: Final = self._counter("kubevirt_webhook_panics", text, ("webhook",), [(path,) for path in paths])
        text = "Evaluated requests; dry_run distinguishes those that change nothing."
        labels = ("policy", "resource", "mode", "decision", "reason", "dry_run")
        self._decisions: Final = self._counter("kubevirt_webhook_decisions", text, labels)
        series = [(str(code),) for code in _EXPLAIN_STATUSES]
        text = "HTTP requests for explanations by status code."
        self._explained: Final = self._counter("kubevirt_webhook_explain_requests", text, ("code",), series)

    def _counter(self, name: str, text: str, labels: Labels, series: Iterable[Labels] = ()) -> Counter:
        """A counter with labels; ``series`` are shown before anything was counted."""
        counter = Counter(name, text, labels, registry=self.registry)
        for values in series:
            counter.labels(*values)
        return counter

    def on_served(self, path: str, status: int, seconds: float) -> None:
        """Count an HTTP request at an endpoint."""
        self._requests.labels(path, str(status)).inc()
        self._latencies.labels(path).observe(seconds)

    def on_crash(self, path: str, error: BaseException) -> None:
        """Count and log an exception that no handler expects."""
        self._panics.labels(path).inc()
        self._log("internal error while a request was answered", path, error)

    def on_explained(self, status: int) -> None:
        """Count a request for an explanation."""
        self._explained.labels(str(status)).inc()

    def on_evaluated(self, endpoint: Endpoint, evaluation: Evaluation, seconds: float) -> None:
        """Count an evaluation."""
        code = evaluation.decision.reasons[0].code
        dry_run = "true" if is_dry_run(evaluation.request) else "false"
        labels = (endpoint.policy, endpoint.resource, evaluation.mode, evaluation.label, code, dry_run)
        self._decisions.labels(*labels).inc()

    def on_failure(self, endpoint: Endpoint, error: BaseException) -> None:
        """Count and log a bug in a policy or beneath it."""
        self.on_crash(endpoint.path, error)


class Health:
    """Answers the kubelet's probes, and, for Prometheus, with the metrics where no listener asks for a token.

    Args:
        waiting_for: what keeps the server from being ready, in words; empty when ready.
        rendering: the metrics as text; None: they are served elsewhere.
        traffic: gets exceptions.
    """

    def __init__(
        self, waiting_for: Callable[[], tuple[str, ...]], rendering: Rendering | None, traffic: TrafficObserver
    ) -> None:
        self._waiting_for: Final = waiting_for
        self._rendering: Final = rendering
        self._traffic: Final = traffic

    def application(self) -> web.Application:
        """The application of the listener."""
        paths = ("/healthz", "/readyz", *((METRICS_PATH,) if self._rendering else ()))
        errors = errors_to_answers(self._traffic, f"ask for {', '.join(paths)}")
        limit = limited(("/healthz", "/readyz"), names_host=False)
        application = web.Application(middlewares=[errors, self._settle, limit])
        application.router.add_get("/healthz", self._healthz)
        application.router.add_get("/readyz", self._readyz)
        if self._rendering:
            application.router.add_get(METRICS_PATH, metrics_handler(self._rendering, None))
        return application

    @web.middleware
    async def _settle(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Let a connection that asks again and again wait a little each time; its first request is answered at once."""
        guard, now = guard_of(request), asyncio.get_running_loop().time()
        delay = max(0.0, guard.settled_at + SETTLE_SECONDS - now)
        guard.settled_at = now + delay
        if delay:
            await asyncio.sleep(delay)
        return await handler(request)

    async def _healthz(self, _request: web.Request) -> web.Response:
        return text(200, "ok")

    async def _readyz(self, _request: web.Request) -> web.Response:
        if missing := self._waiting_for():
            return web.Response(status=503, text="".join(f"waiting for {visible(item)}\n" for item in missing))
        return text(200, "ok")


def metrics_handler(rendering: Rendering, authorizer: Authorizer | None) -> Handler:
    """A handler that answers with the metrics.

    With an authorizer, it asks for a token whose user may ``get`` the path, as controller-runtime's
    WithAuthenticationAndAuthorization does.
    """

    async def metrics(request: web.Request) -> web.Response:
        if authorizer:
            await authorizer.admit(token_of(request.headers), guard_of(request).client)
        return response(200, await rendering.text(), CONTENT_TYPE_LATEST)

    return metrics


def metrics_application(
    rendering: Rendering, authorizer: Authorizer | None, traffic: TrafficObserver
) -> web.Application:
    """The application below `METRICS_PATH` on the admin listener; ``authorizer`` as for `metrics_handler`."""
    errors = errors_to_answers(traffic, f"ask for {METRICS_PATH}")
    application = web.Application(middlewares=[errors, limited(names_host=False)])
    application.router.add_get("", metrics_handler(rendering, authorizer))
    return application
