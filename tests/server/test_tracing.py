"""Traces: one span a review, below the API server's own, without secrets."""

from __future__ import annotations

import asyncio
import gzip
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import msgspec
import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from tests.builders import known, launcher_pod, review, vmi
from tests.cli.runner import http_server
from tests.cli.test_serve import FILES, PODS, example, pair, serving, tls  # noqa: F401 - a fixture
from tests.review.memory import MemoryCluster
from tests.server.conftest import ServedApp, SlowCluster, Start
from tests.server.raw_requests import BODY
from webhook.errors import InputError
from webhook.facts import VmiKey
from webhook.server import tracing

TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
TRACEPARENT = f"00-{TRACE}-{PARENT}-01"


@asynccontextmanager
async def traced(start: Start, cluster: MemoryCluster | None = None) -> AsyncIterator[tuple[ServedApp, Any]]:
    """A server whose spans can be read once it has ended."""
    exporter = InMemorySpanExporter()
    async with tracing.with_tracing(exporter) as traces:
        yield await start(cluster, observer=traces.observers[0], middlewares=traces.middlewares), exporter


async def test_a_review_is_a_span_below_the_senders(start: Start) -> None:
    async with traced(start) as (server, exporter):
        await server.post(PODS, BODY, traceparent=TRACEPARENT, tracestate="a=b")
    (span,) = exporter.get_finished_spans()

    assert (f"{span.context.trace_id:032x}", f"{span.parent.span_id:016x}") == (TRACE, PARENT)
    assert (span.context.trace_state.get("a"), span.name, span.kind) == ("b", "mutate scheduling pods", SpanKind.SERVER)
    assert span.start_time <= span.end_time
    assert dict(span.attributes) == {
        "url.path": PODS,
        "k8s.namespace.name": "demo",
        "kubevirt_webhook.policy": "scheduling",
        "kubevirt_webhook.mode": "enforce",
        "kubevirt_webhook.decision": "patched",
        "kubevirt_webhook.reasons": ("scheduler-injected",),
        "kubevirt_webhook.changes": 2,
        "kubevirt_webhook.operation": "CREATE",
        "kubevirt_webhook.object.kind": "Pod",
        "kubevirt_webhook.object.name": span.attributes["kubevirt_webhook.object.name"],
        "kubevirt_webhook.request.uid": span.attributes["kubevirt_webhook.request.uid"],
        "kubevirt_webhook.dry_run": False,
    }
    assert span.resource.attributes["service.name"] == "kubevirt-webhook"


@pytest.mark.parametrize("header", [None, "nonsense", "00-0-0-01", f"00-{'0' * 32}-{PARENT}-01"])
async def test_without_a_valid_parent_a_review_is_a_trace_of_its_own(start: Start, header: str | None) -> None:
    async with traced(start) as (server, exporter):
        headers = {"traceparent": header} if header else {}
        assert (await server.post(PODS, BODY, **headers))[0] == 200
    (span,) = exporter.get_finished_spans()
    assert span.parent is None


async def test_the_sender_decides_whether_a_trace_is_kept(start: Start) -> None:
    async with traced(start) as (server, exporter):
        await server.post(PODS, BODY, traceparent=f"00-{TRACE}-{PARENT}-00")
    assert exporter.get_finished_spans() == ()


async def test_reviews_that_wait_for_lookups_keep_their_parents(start: Start) -> None:
    """Several at once, of which each has a parent of its own."""
    facts = known(vmi())
    slow = SlowCluster(facts, {key for key in facts if not isinstance(key, VmiKey)})
    parents = [f"{number:016x}" for number in range(1, 9)]
    async with traced(start, slow) as (server, exporter):
        posts = [server.post(PODS, BODY, traceparent=f"00-{TRACE}-{parent}-01") for parent in parents]
        waiting = asyncio.gather(*posts)
        while slow.waiting < len(parents):
            await asyncio.sleep(0)
        slow.release.set()
        await waiting
    assert sorted(f"{span.parent.span_id:016x}" for span in exporter.get_finished_spans()) == parents


async def test_what_cannot_be_evaluated_is_an_error(start: Start) -> None:
    async with traced(start, MemoryCluster({})) as (server, exporter):
        await server.post(PODS, BODY)
    spans: tuple[ReadableSpan, ...] = exporter.get_finished_spans()
    assert [span.status.status_code for span in spans] == [StatusCode.ERROR]


@pytest.mark.control("traces-carry-secrets")
async def test_attributes_are_bounded_and_hold_no_secrets(start: Start) -> None:
    pod = launcher_pod()
    pod["metadata"]["name"] = "https://b.s3.amazonaws.com/d.img?X-Amz-Signature=hunter2canary" + "x" * 5000
    body = msgspec.json.encode(review(pod, uid="u" * 5000))
    async with traced(start) as (server, exporter):
        await server.post(PODS, body)
    (span,) = exporter.get_finished_spans()
    assert "hunter2canary" not in str(span.attributes)
    assert all(len(value) <= 300 for value in span.attributes.values() if isinstance(value, str))


async def test_without_the_extra_the_setting_is_a_mistake(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith("opentelemetry.exporter")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter", None)
    with pytest.raises(InputError) as caught:
        async with tracing.with_tracing():
            pass
    assert caught.value.where == "traces"
    assert "kubevirt-webhook[otel]" in caught.value.fix


@pytest.mark.control("silent-collector")
def test_a_server_sends_its_last_spans_before_it_ends(
    tmp_path: Path,
    pair: Any,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    settings, received = tmp_path / "settings.yaml", list[tuple[str, Any]]()
    settings.write_text("traces: on\n")

    def collect(request: BaseHTTPRequestHandler, body: bytes) -> tuple[int, bytes]:
        body = gzip.decompress(body) if request.headers.get("Content-Encoding") == "gzip" else body
        received.append((request.path, ExportTraceServiceRequest.FromString(body)))
        return 200, b""

    # A receiver of OTLP over HTTP.
    with http_server(collect) as address:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", address)
        with serving(*FILES, "--config", str(settings), *tls(tmp_path), pair=pair) as server:
            server.post(example("01-launcher-pod.yaml"))
    spans = [
        span for _, sent in received for by in sent.resource_spans for scope in by.scope_spans for span in scope.spans
    ]

    assert {path for path, _ in received} == {"/v1/traces"}
    assert [span.name for span in spans] == ["mutate scheduling pods"]
    decision = json.loads(json.dumps({each.key: each.value.string_value for each in spans[0].attributes}))
    assert decision["kubevirt_webhook.decision"] == "patched"
