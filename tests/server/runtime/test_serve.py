"""What runs beside reviews, and traces: one span a review, below the API server's own, without secrets.

The webhook's own log never blocks a caller.
"""

from __future__ import annotations

import asyncio
import gzip
import json
import logging
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any
from unittest.mock import AsyncMock, Mock

import msgspec
import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode
from prometheus_client import generate_latest

from tests import builders
from tests.admission.audit_schema import STRICT
from tests.builders import changed, installed, known, launcher_pod, review, vm, vmi
from tests.cli.runner import http_server
from tests.cli.test_serve import FILES, PODS, example, pair, serving, tls  # noqa: F401 - a fixture
from tests.cluster.fake_apiserver import ApiServers, FakeApiServer
from tests.policies.decisions import always
from tests.review.memory import VMS, MemoryCluster
from tests.server.background.conftest import DENIED, NAMESPACE_LABELS, stored
from tests.server.background.conftest import settings as drift_settings
from tests.server.conftest import ServedApp, SlowCluster, Start
from tests.server.raw_requests import BODY
from tests.waiting import until
from webhook.admission.audit import NoAudit
from webhook.admission.lines import LineWriter
from webhook.admission.output import Descriptor, RotatedFile
from webhook.errors import InputError
from webhook.facts import KubeVirtKey, VmiKey
from webhook.k8s.client.identity import Kubeconfig
from webhook.k8s.resources import EVENTS, NAMESPACES, UNSTRUCTURED_PODS
from webhook.kubevirt.config import ClusterConfig
from webhook.kubevirt.releases.capabilities import parse_version
from webhook.kubevirt.releases.fields import Definitions
from webhook.kubevirt.releases.release import release_of
from webhook.kubevirt.resources import STORED_VMS
from webhook.kubevirt.rules import rules_of
from webhook.review.reviewer import Reviewer
from webhook.server.ops import MetricsState
from webhook.server.runtime import logs, serve
from webhook.server.runtime.certificates import Certificates
from webhook.server.runtime.logs import Lossy
from webhook.server.runtime.options import Options
from webhook.server.runtime.serve import Background, background
from webhook.settings.model import FidelitySettings, InstancetypeSettings

CLUSTER: Any = MemoryCluster({KubeVirtKey(): installed()})


def following(sample: int) -> Any:
    fidelity = InstancetypeSettings(fidelity_check=changed(FidelitySettings(sample=sample), every_minutes=0.0002))
    current = changed(builders.settings(schedulers={}), instancetypes=fidelity)
    return Mock(reloads={"accepted": 0, "rejected": 0}, current=lambda: current)


@pytest.fixture
def audit() -> Iterator[LineWriter]:
    sink = os.open(os.devnull, os.O_WRONLY)
    writer = LineWriter(Descriptor(sink))
    yield writer
    writer.close()
    os.close(sink)


def scraped(audit: LineWriter, settings: Any, beside: Background, cluster: Any = CLUSTER) -> str:
    app = Mock(in_flight=0, taken_bytes=0, senders=None)
    certificates = Certificates(builders.settings().tls, "localhost", logging.getLogger())
    state = serve.metrics_state(app, audit, settings, cluster, cluster.waiting_for)
    return generate_latest(MetricsState([*state, *certificates.metrics(), *beside.metrics()])).decode()


def beside_metrics(beside: Background) -> str:
    return generate_latest(MetricsState(beside.metrics())).decode()


def events(server: FakeApiServer) -> set[tuple[str, str]]:
    """The reason and the namespace of every Event."""
    return {(event["reason"], namespace) for (namespace, _), event in server.held(EVENTS).items()}


async def test_events_the_look_out_and_the_fidelity_check_run_until_the_end(
    apiservers: ApiServers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("webhook.server.background.fidelity._TICK_SECONDS", 0.01)
    path = tmp_path / "audit.jsonl"
    audit = LineWriter(RotatedFile(str(path), 1_000_000, 1))
    made = drift_settings(events=True, instancetypes=following(sample=3).current().instancetypes)
    cluster = MemoryCluster(known(vmi()))
    server = await apiservers.start()
    server.serve(EVENTS)
    server.put(NAMESPACES, "demo", metadata={"labels": NAMESPACE_LABELS})
    server.put(UNSTRUCTURED_PODS, "pod-1", "demo", **stored(launcher_pod(), "pod-1"))
    server.put(STORED_VMS, "vm", "demo", status={"created": True})
    options = Options(kubeconfig=Kubeconfig(server.kubeconfig(tmp_path / "kubeconfig")))
    async with AsyncExitStack() as ends:
        beside = await background(options, lambda: made, cluster, audit, ends)
        endpoint = msgspec.structs.replace(VMS, handler=always(DENIED))
        assert beside.events
        reviewer = Reviewer(cluster, lambda: made, NoAudit(), beside.events)
        await reviewer.evaluate(endpoint, msgspec.json.encode(review(vm())), 1e9)
        await until(lambda: server.held(EVENTS))
        for act in cluster.restored:
            act("namespaces were at resourceVersion 9, which etcd has not reached")
        await until(lambda: ("EtcdRestored", "kubevirt-webhook") in events(server))
        # Counted once the answer has come, which is later than the server has the event.
        await until(lambda: 'events_total{result="written"} 2.0' in beside_metrics(beside))
        await until(lambda: 'drift_scans_total{result="finished"} 1.0' in beside_metrics(beside))
        await until(lambda: beside.fidelity and beside.fidelity.checked["skipped"])
        text = beside_metrics(beside)
    await until(lambda: not server.connected())
    asked = len(server.asked)
    audit.close()

    assert 'kubevirt_webhook_drift_objects{policy="scheduling",resource="pods"} 1.0' in text
    assert 'kubevirt_webhook_events_total{result="written"} 2.0' in text
    assert 'kubevirt_webhook_fidelity_checked_total{result="same"} 0.0' in text
    assert "kubevirt_webhook_fidelity_differences_total 0.0" in text
    assert "kubevirt_webhook_fidelity_checks_failed_total 0.0" in text
    (line,) = path.read_bytes().splitlines()
    STRICT.validate(json.loads(line))
    assert json.loads(line)["kind"] == "drift"
    assert len(server.asked) == asked, "it has ended"


async def test_files_are_not_watched(tmp_path: Path, audit: LineWriter) -> None:
    settings = following(sample=3)
    async with AsyncExitStack() as ends:
        beside = await background(Options(cluster_from=tmp_path), settings.current, CLUSTER, audit, ends)
        assert beside == Background()
        metrics = scraped(audit, settings, beside)
    assert "kubevirt_webhook_fidelity_checked_total{" not in metrics
    assert "drift_objects{" not in metrics
    assert "kubevirt_webhook_build_info{" in metrics


@pytest.mark.parametrize(("known_fields", "said"), [(None, "tables"), (Definitions(()), "definitions")])
async def test_the_metric_of_the_release_says_what_knows_its_fields(
    audit: LineWriter, known_fields: Definitions | None, said: str
) -> None:
    version = parse_version("v1.8.1")
    assert version
    configuration = ClusterConfig.of(None, rules=rules_of(release_of(version, known_fields)))
    cluster = MemoryCluster({KubeVirtKey(): installed(configuration)})
    metrics = scraped(audit, following(sample=0), Background(), cluster)
    assert f'kubevirt_webhook_kubevirt_release{{fields="{said}",rules="known",version="1.8.1"}} 1.0' in metrics


async def test_tasks_that_have_not_ended_are_counted(audit: LineWriter) -> None:
    def counted() -> int:
        text = scraped(audit, following(sample=0), Background())
        (line,) = (line for line in text.splitlines() if line.startswith("kubevirt_webhook_event_loop_tasks "))
        return int(float(line.split()[1]))

    before = counted()
    waiting = [asyncio.create_task(asyncio.sleep(3600)) for _ in range(3)]
    assert counted() == before + 3
    for task in waiting:
        task.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)
    assert counted() == before


async def test_of_two_connections_the_first_is_closed_where_the_second_cannot_be_made(
    audit: LineWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file may be replaced between the two."""

    first, mistake = AsyncMock(), InputError("the kubeconfig is not YAML", "config", "repair or replace it")
    monkeypatch.setattr("webhook.k8s.client.transport.connect", AsyncMock(side_effect=[first, mistake]))
    with pytest.raises(InputError):
        async with AsyncExitStack() as ends:
            await background(Options(), following(sample=3).current, CLUSTER, audit, ends)
    first.close.assert_awaited_once()


# Requests of 20 KB on one connection, in two records of TLS each; printed are the page faults of a thousand of them.
_READS = """
import asyncio, resource, socket, ssl, uvloop
from certs.source import self_signed
from aiohttp import web
from webhook.server import tls
from webhook.server.answers import response
from webhook.server.bodies import RequestBody
from webhook.server.guard import Limits, guard_of
from webhook.server.listener import Listener, serving
from webhook.server.runtime import serve

serve._return_large_blocks()
pair = self_signed(["localhost"])
REQUEST = b"POST / HTTP/1.1\\r\\nHost: x\\r\\nContent-Length: 20000\\r\\n\\r\\n" + b"x" * 20000

async def echo(request):
    with RequestBody(request, guard_of(request)) as body:
        await body.read(asyncio.get_running_loop().time() + 10)
    return response(200, b"x")

def ask(port):
    trust = ssl.create_default_context(cadata=pair.authority.decode())
    with trust.wrap_socket(socket.create_connection(("127.0.0.1", port)), server_hostname="localhost") as client:
        for count in range(2000):
            if count == 1000:
                warm = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
            client.sendall(REQUEST)
            assert client.recv(1000).startswith(b"HTTP/1.1 200")
    print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - warm)

async def main():
    application = web.Application()
    application.router.add_post("/", echo)
    server = Listener(application, Limits(body_bytes=100_000))
    async with serving(server, "127.0.0.1:0", tls.context(pair.certificate, pair.key), "--listen", 0.0) as address:
        await asyncio.to_thread(ask, int(address.rpartition(":")[2]))

uvloop.run(main())
"""


def test_no_read_asks_the_kernel_for_memory() -> None:
    # A process of its own: the thresholds of malloc stay set.
    printed = subprocess.run([sys.executable, "-c", _READS], capture_output=True, check=True, text=True).stdout
    assert int(printed) < 100


TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
TRACEPARENT = f"00-{TRACE}-{PARENT}-01"


@asynccontextmanager
async def traced(start: Start, cluster: MemoryCluster | None = None) -> AsyncIterator[tuple[ServedApp, Any]]:
    """A server whose spans can be read once it has ended."""
    exporter = InMemorySpanExporter()
    async with serve.with_tracing(exporter) as observer:
        yield await start(cluster, observer=observer, middlewares=[serve.remember_request]), exporter


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
        async with serve.with_tracing():
            pass
    assert caught.value.where == "traces"
    assert "kubevirt-webhook[otel]" in caught.value.fix


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


def test_lines_come_whole_however_long() -> None:
    reading, writing = os.pipe()
    stream = Lossy(writing)
    lines = ["one\n", "x" * 20_000 + "\n", "\ud800 ü\n"]
    for line in lines:
        stream.write(line)
    stream.flush()
    assert os.read(reading, 100_000).decode() == "".join(lines).replace("\ud800", "\\ud800")
    os.close(reading)
    os.close(writing)


def test_a_reader_that_hangs_costs_lines_and_no_time() -> None:
    reading, writing = os.pipe()
    stream = Lossy(writing)
    for number in range(5000):
        stream.write(f"{number}: {'x' * 100}\n")
    seen = os.read(reading, 1_000_000)
    assert seen.startswith(b"0: xxx")
    assert len(seen) < 5000 * 100
    stream.write("later\n")
    assert os.read(reading, 1000).splitlines()[-1] == b"later", "on a line of its own"
    os.close(reading)
    stream.write("to nobody\n")
    os.close(writing)


def test_a_full_disk() -> None:
    full = os.open("/dev/full", os.O_WRONLY)
    Lossy(full).write("lost\n")
    os.close(full)


def fail(why: str) -> None:
    raise ValueError(why)


def test_no_line_tells_a_secret_or_moves_a_terminal(capfd: pytest.CaptureFixture[str]) -> None:
    hostile = "\x1b[2J\u202e https://e.com/x?sig=hunter2"

    async def log() -> None:
        log = logs.follow_loop()
        log.warning(hostile, name=hostile, several=[hostile], inner={"password": "hunter2"})
        logging.getLogger("aiohttp").warning("seen: %s", hostile)
        token = "hunter2".upper()
        with pytest.raises(ValueError) as failure:
            fail(f"{hostile}\n-----BEGIN PRIVATE KEY-----\nhunter2")
        log.error("failed", webhook="/x", exc_info=failure.value)
        assert token

    with logs.configured():
        asyncio.run(log())

    lines = [json.loads(line) for line in capfd.readouterr().err.splitlines()]
    assert len(lines) == 3
    assert "hunter2 " not in str(lines).replace('"hunter2".upper()', "")
    assert "sig=hunter2" not in str(lines)
    assert all(char.isprintable() or char == "\n" for line in lines for value in line.values() for char in str(value))
    exception = lines[2]["exception"]
    assert "raise ValueError(why)" in exception
    assert "PRIVATE KEY-----\nhunter2" not in exception
    assert exception.splitlines()[-1].startswith("ValueError: \\x1b[2J\\u202e https://e.com/x?<redacted>")


def lines_on_a_terminal(*arguments: Any, **fields: Any) -> list[str]:
    record = logging.LogRecord("webhook.server", logging.WARNING, __file__, 1, *arguments)
    record.fields = fields
    return logs.Lines(terminal=True).format(record).splitlines()


def test_a_terminal_gets_text() -> None:
    (line,) = lines_on_a_terminal("%s", ("serving",), None, address="https://127.0.0.1:8443", replicas=2)
    assert line.partition("Z  ")[2] == 'warning  serving  address="https://127.0.0.1:8443"  replicas=2'


def test_nothing_begins_a_line_on_a_terminal() -> None:
    forged = "late\n2026-01-01T00:00:00.000000Z  info  all is well\x1b[2J"
    lines = lines_on_a_terminal("%s", (forged,), None, why=forged, names=[forged], **{"a\nb": 1})
    assert len(lines) == 1
    assert "\x1b" not in lines[0]


def test_a_traceback_on_a_terminal_keeps_its_lines() -> None:
    try:
        fail("cause")
    except ValueError:
        error = sys.exc_info()
    first, *rest = lines_on_a_terminal("%s", ("failed",), error)
    assert first.endswith("warning  failed")
    assert rest[0].startswith("Traceback")
    assert rest[-1] == "ValueError: cause"
