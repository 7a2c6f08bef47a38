"""Traces of reviews with OpenTelemetry: one span for each, below the API server's own if that sends ``traceparent``.

Nothing of OpenTelemetry is imported before `with_tracing` is called. The standard environment variables say where spans
go, and how many are kept, for example ``OTEL_EXPORTER_OTLP_ENDPOINT`` and ``OTEL_TRACES_SAMPLER``.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from contextvars import ContextVar
from typing import Any, Final

from webhook import __version__
from webhook.admission import wire
from webhook.admission.credentials import scrub_prose
from webhook.errors import InputError
from webhook.review.endpoints import Endpoint
from webhook.review.reviewer import Evaluation, Observer
from webhook.server.app import App
from webhook.server.request import Answer, HttpRequest
from webhook.text import shorten

_NAME: Final = "kubevirt-webhook"
_HEADERS: Final = ("traceparent", "tracestate")
# Of an attribute that a tenant chose.
_MAX_LENGTH: Final = 256
_NANOSECONDS: Final = 1_000_000_000

# The request that is being answered: the observer of its review does not get it.
_request: ContextVar[HttpRequest | None] = ContextVar("request", default=None)


class TracedApp(App):
    """An `App` whose reviews know the request that they belong to."""

    def answer_at_once(self, request: HttpRequest) -> Answer | None:
        """As `App`, with the request at hand for its span."""
        token = _request.set(request)
        try:
            return super().answer_at_once(request)
        finally:
            _request.reset(token)

    async def answer(self, request: HttpRequest) -> Answer:
        """As `App`, with the request at hand for its span."""
        token = _request.set(request)
        try:
            return await super().answer(request)
        finally:
            _request.reset(token)


class SpanObserver:
    """Makes a span of every evaluated review.

    Args:
        observer: gets every evaluation, too.
        tracer: an OpenTelemetry ``Tracer``.
    """

    def __init__(self, observer: Observer, tracer: Any) -> None:
        from opentelemetry.trace import SpanKind, Status, StatusCode
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        self._observer: Final = observer
        self._tracer: Final = tracer
        self._propagator: Final = TraceContextTextMapPropagator()
        self._kind: Final = SpanKind.SERVER
        self._failed: Final = Status(StatusCode.ERROR)

    def on_evaluated(self, endpoint: Endpoint, verdict: Evaluation, seconds: float) -> None:
        """Make the span, with the times that the review took."""
        self._observer.on_evaluated(endpoint, verdict, seconds)
        end = time.time_ns()
        span = self._tracer.start_span(
            f"{endpoint.verb} {endpoint.policy} {endpoint.resource}",
            context=self._parent(),
            kind=self._kind,
            attributes=attributes_of(endpoint, verdict),
            start_time=end - int(seconds * _NANOSECONDS),
        )
        if verdict.label == "error":
            span.set_status(self._failed)
        span.end(end)

    def on_error(self, endpoint: Endpoint, error: BaseException) -> None:
        """Pass the error on; its review becomes a span with the status of an error."""
        self._observer.on_error(endpoint, error)

    def _parent(self) -> Any:
        """The context that the sender's headers name; None: the review is a trace of its own."""
        request = _request.get()
        if request is None:
            return None
        found = request.head.headers
        carrier = {name: found[name] for name in _HEADERS if name in found}
        return self._propagator.extract(carrier) if carrier else None


def attributes_of(endpoint: Endpoint, verdict: Evaluation) -> dict[str, str | bool | int | list[str]]:
    """What a span says about a decision: the fields of the audit line, without the changes."""
    request = verdict.request
    return {
        "url.path": endpoint.path,
        "k8s.namespace.name": _bound_text(request.namespace or ""),
        "kubevirt_webhook.policy": endpoint.policy,
        "kubevirt_webhook.mode": verdict.mode,
        "kubevirt_webhook.decision": verdict.label,
        "kubevirt_webhook.reasons": [reason.code for reason in verdict.decision.reasons],
        "kubevirt_webhook.changes": len(verdict.decision.changes),
        "kubevirt_webhook.operation": request.operation,
        "kubevirt_webhook.object.kind": endpoint.kind,
        "kubevirt_webhook.object.name": _bound_text(wire.object_name(request)),
        "kubevirt_webhook.request.uid": _bound_text(request.uid),
        "kubevirt_webhook.dry_run": wire.is_dry_run(request),
    }


def _bound_text(text: str) -> str:
    return scrub_prose(shorten(text, _MAX_LENGTH))


@asynccontextmanager
async def without_tracing(observer: Observer) -> AsyncIterator[tuple[Observer, type[App]]]:
    """The observer itself, and the usual `App`."""
    yield observer, App


@asynccontextmanager
async def with_tracing(observer: Observer, exporter: Any = None) -> AsyncIterator[tuple[Observer, type[App]]]:
    """The observer that makes spans, and the kind of `App` that it needs; at the end, spans that wait are sent.

    Args:
        observer: gets every evaluation, too.
        exporter: where spans go; None: OTLP over HTTP.

    Raises:
        InputError: OpenTelemetry is not installed.
    """
    try:
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor

        if exporter is None:
            from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

            exporter = OTLPSpanExporter()
    except ImportError as error:
        what = f"OpenTelemetry is not installed: {error}"
        raise InputError(what, "traces", "install kubevirt-webhook[otel], or set traces: off") from None
    resource = Resource.create({"service.name": _NAME, "service.version": __version__})
    provider = TracerProvider(resource=resource)
    provider.add_span_processor(BatchSpanProcessor(exporter))
    try:
        yield SpanObserver(observer, provider.get_tracer(_NAME, __version__)), TracedApp
    finally:
        # It waits for the last spans to be sent.
        await asyncio.to_thread(provider.shutdown)
