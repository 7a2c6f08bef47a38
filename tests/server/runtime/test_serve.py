"""A server put together, with all of its parts and without each of them."""

from __future__ import annotations

import asyncio
import logging
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp
import pytest
from prometheus_client.parser import text_string_to_metric_families

from certs.rotation import Rotation
from tests.cli.runner import http_server
from tests.cluster.fake_apiserver import ApiServers
from tests.server.raw_requests import BODY, PODS
from tests.waiting import PATIENCE, until
from webhook.k8s.client.identity import Kubeconfig
from webhook.k8s.resources import NAMESPACES, NODES
from webhook.kubevirt.resources import KUBEVIRTS
from webhook.server.runtime import logs, serve
from webhook.server.runtime.options import Options
from webhook.server.runtime.stop import Stop

ALL_PARTS = """\
server: {listen: "127.0.0.1:0", opsListen: "127.0.0.1:0", shutdownSeconds: 0}
schedulers: {}
admin: {listen: "127.0.0.1:0", metrics: true}
layers: {listen: "127.0.0.1:0"}
events: on
traces: on
driftScan: {everyMinutes: 1}
instancetypes: {fidelityCheck: {sample: 1}}
audit: {output: DIRECTORY/audit.jsonl}
"""


class PartTraces(NamedTuple):
    """By what a client notices a part: names of metrics begin so, a path for admins, events of the log, spans."""

    metrics: str = ""
    path: str = ""
    event: str = ""
    spans: bool = False


TRACES = {
    "layer scores": PartTraces("kubevirt_webhook_layers_", event="serving layer scores"),
    "Events": PartTraces("kubevirt_webhook_events"),
    "requested migrations": PartTraces("kubevirt_webhook_requested_"),
    "headroom": PartTraces("kubevirt_webhook_headroom_"),
    "drift scan": PartTraces("kubevirt_webhook_drift_"),
    "fidelity check": PartTraces("kubevirt_webhook_fidelity_"),
    "traces": PartTraces(spans=True),
    "page": PartTraces(path="/page"),
    "explanations": PartTraces(path="/v1/explain/migration"),
    "metrics for admins": PartTraces(path="/metrics"),
}


class Started:
    """A server in this process, and its clients."""

    def __init__(self, caplog: pytest.LogCaptureFixture, client: aiohttp.ClientSession, stop: Stop) -> None:
        self._log = caplog
        self._client = client
        self.stop = stop.event.set

    def logged(self, event: str) -> dict[str, Any] | None:
        """The fields of an event."""
        found = (record for record in self._log.records if record.getMessage() == event)
        return next((getattr(record, "fields") for record in found), None)  # noqa: B009 - no attribute of each record

    async def get(self, event: str, field: str, path: str) -> tuple[int, str]:
        """What is answered at an address that was logged."""
        async with self._client.get(f"{(self.logged(event) or {})[field]}{path}") as answer:
            return answer.status, await answer.text()

    async def review(self) -> int:
        headers = {"Content-Type": "application/json"}
        url = f"{(self.logged('serving') or {})['address']}{PODS}"
        async with self._client.post(url, data=BODY, headers=headers) as answer:
            assert (await answer.json())["response"]["uid"]
            return answer.status


@asynccontextmanager
async def started(options: Options, caplog: pytest.LogCaptureFixture) -> AsyncIterator[Started]:
    caplog.set_level(logging.INFO, "webhook")
    stop = Stop()
    running = asyncio.create_task(serve._serve(options, stop, logs.follow_loop()))
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=False)) as client:
        server = Started(caplog, client, stop)
        try:
            await until(lambda: server.logged("serving") or running.done())
            yield server
        finally:
            stop.event.set()
            await asyncio.wait_for(running, PATIENCE)


@pytest.mark.parametrize("removed", ["", *TRACES])
async def test_a_server_runs_without_each_of_its_parts(
    removed: str, apiservers: ApiServers, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: Any
) -> None:
    assert [part.name for part in serve.PARTS] == list(TRACES)
    monkeypatch.setattr(serve, "PARTS", tuple(part for part in serve.PARTS if part.name != removed))
    # This process goes on.
    monkeypatch.setattr("gc.freeze", lambda: None)
    expected = {name: traces for name, traces in TRACES.items() if name != removed}
    cluster = await apiservers.start()
    for resource in (NAMESPACES, NODES, KUBEVIRTS):
        cluster.serve(resource)
    config = tmp_path / "settings.yaml"
    config.write_text(ALL_PARTS.replace("DIRECTORY", str(tmp_path)))
    kubeconfig, spans = Kubeconfig(cluster.kubeconfig(tmp_path / "kubeconfig")), list[str]()

    def collect(request: BaseHTTPRequestHandler, _: bytes) -> tuple[int, bytes]:
        spans.append(request.path)
        return 200, b""

    with http_server(collect) as collector:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector)
        async with started(Options(kubeconfig=kubeconfig, config_file=config), caplog) as server:
            assert await server.review() == 200
            status, text = await server.get("serving", "ops", "/metrics")
            assert status == (404 if "metrics for admins" in expected else 200)
            if status == 404:
                status, text = await server.get("serving admins", "address", "/metrics")
            served = server.logged("serving admins") or {}
            paths = [each.path for each in TRACES.values() if each.path]
            answers = {path: (await server.get("serving admins", "address", path))[0] for path in paths}
    families = {family.name for family in text_string_to_metric_families(text)}

    assert status == 200
    for name, traces in TRACES.items():
        is_there = name in expected
        if traces.metrics:
            assert any(family.startswith(traces.metrics) for family in families) == is_there, name
        if traces.event:
            assert bool(server.logged(traces.event)) == is_there, name
    assert sorted(served["paths"]) == sorted(each.path for each in expected.values() if each.path)
    assert sorted(path for path, answer in answers.items() if answer != 404) == sorted(served["paths"])
    assert bool(spans) == ("traces" in expected)
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR] == []


async def test_of_the_rotation_nothing_is_logged_once_the_server_stops(
    apiservers: ApiServers, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It serves on for some seconds, in which an uninstall removes its permissions and configurations."""
    monkeypatch.setattr("gc.freeze", lambda: None)
    cluster = await apiservers.start()
    for resource in (NAMESPACES, NODES, KUBEVIRTS):
        cluster.serve(resource)
    steps = 0

    async def step(_: Rotation) -> float:
        nonlocal steps
        steps += 1
        return 0.001

    monkeypatch.setattr(Rotation, "step", step)
    config = tmp_path / "settings.yaml"
    config.write_text(
        'server: {listen: "127.0.0.1:0", opsListen: "127.0.0.1:0", shutdownSeconds: 1}\ntls: {mode: managed}\n'
    )
    options = Options(kubeconfig=Kubeconfig(cluster.kubeconfig(tmp_path / "kubeconfig")), config_file=config)
    async with started(options, caplog) as server:
        await until(lambda: steps)
        server.stop()
        await until(lambda: server.logged("stopping") is not None)
        at_stop = steps
        await asyncio.sleep(0.2)
        assert steps == at_stop


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
