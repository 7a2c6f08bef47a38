"""Traces: a span of every review, with OpenTelemetry.

Its standard environment variables say where spans go, and how many are kept, for example
``OTEL_EXPORTER_OTLP_ENDPOINT`` and ``OTEL_TRACES_SAMPLER``.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from webhook import __version__
from webhook.admission import wire
from webhook.admission.credentials import scrub_prose
from webhook.errors import InputError
from webhook.policy import Endpoint
from webhook.review.reviewer import Evaluation, Observer
from webhook.server.part import Contribution, Part, ServerHandle
from webhook.text import shorten

_NAME: Final = "kubevirt-webhook"
# Of an attribute that a tenant chose.
_MAX_LENGTH: Final = 256
_NANOSECONDS: Final = 1_000_000_000


class SpanObserver(Observer):
    """Makes a span of every evaluated review.

    Args:
        tracer: an OpenTelemetry ``Tracer``.
    """

    def __init__(self, tracer: Any) -> None:
        from opentelemetry.trace import SpanKind, Status, StatusCode

        self._tracer: Final = tracer
        self._kind: Final = SpanKind.SERVER
        self._failed: Final = Status(StatusCode.ERROR)

    def on_evaluated(self, endpoint: Endpoint, evaluation: Evaluation, seconds: float) -> None:
        """Make the span, with the times that the review took."""
        end = time.time_ns()
        span = self._tracer.start_span(
            f"{endpoint.verb} {endpoint.policy} {endpoint.resource}",
            kind=self._kind,
            attributes=attributes_of(endpoint, evaluation),
            start_time=end - int(seconds * _NANOSECONDS),
        )
        if evaluation.label == "error":
            span.set_status(self._failed)
        span.end(end)


def _continuing_trace() -> Middleware:
    """A middleware: spans that are made during a request belong to the trace that its headers name."""
    from opentelemetry import context, propagate

    @web.middleware
    async def continue_trace(request: web.Request, handler: Handler) -> web.StreamResponse:
        token = context.attach(propagate.extract(request.headers))
        try:
            return await handler(request)
        finally:
            context.detach(token)

    return continue_trace


def attributes_of(endpoint: Endpoint, evaluation: Evaluation) -> dict[str, str | bool | int | list[str]]:
    """What a span says about a decision: the fields of the audit line, without the changes."""
    request = evaluation.request
    return {
        "url.path": endpoint.path,
        "k8s.namespace.name": _bound_text(request.namespace or ""),
        "kubevirt_webhook.policy": endpoint.policy,
        "kubevirt_webhook.mode": evaluation.mode,
        "kubevirt_webhook.decision": evaluation.label,
        "kubevirt_webhook.reasons": [reason.code for reason in evaluation.decision.reasons],
        "kubevirt_webhook.changes": len(evaluation.decision.changes),
        "kubevirt_webhook.operation": request.operation,
        "kubevirt_webhook.object.kind": endpoint.kind,
        "kubevirt_webhook.object.name": _bound_text(wire.object_name(request)),
        "kubevirt_webhook.request.uid": _bound_text(request.uid),
        "kubevirt_webhook.dry_run": wire.is_dry_run(request),
    }


def _bound_text(text: str) -> str:
    return scrub_prose(shorten(text, _MAX_LENGTH))


@asynccontextmanager
async def with_tracing(exporter: Any = None) -> AsyncIterator[Contribution]:
    """What makes spans of reviews; at the end, spans that wait are sent.

    Without an exporter they go to OTLP over HTTP; an `InputError` where OpenTelemetry is not installed.
    """
    try:
        from opentelemetry.sdk.resources import OTELResourceDetector, Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor

        if exporter is None:
            from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

            exporter = OTLPSpanExporter()
    except ImportError as error:
        what = f"OpenTelemetry is not installed: {error}"
        raise InputError(what, "traces", "install kubevirt-webhook[otel], or set traces: off") from None
    own = Resource.create({"service.name": _NAME, "service.version": __version__})
    # Else the environment's OTEL_SERVICE_NAME would not count: what code says is merged last.
    resource = own.merge(OTELResourceDetector().detect())
    provider = TracerProvider(resource=resource)
    provider.add_span_processor(BatchSpanProcessor(exporter))
    try:
        observer = SpanObserver(provider.get_tracer(_NAME, __version__))
        yield Contribution(observers=(observer,), middlewares=(_continuing_trace(),))
    finally:
        # It waits for the last spans to be sent.
        await asyncio.to_thread(provider.shutdown)


@asynccontextmanager
async def _running(_: ServerHandle) -> AsyncIterator[Contribution]:
    async with with_tracing() as contribution:
        yield contribution


TRACING: Final = Part("traces", lambda server: server.at_start.traces, _running)
