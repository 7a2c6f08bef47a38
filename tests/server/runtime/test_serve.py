from __future__ import annotations

import asyncio
import json
import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from prometheus_client import CollectorRegistry, generate_latest

from tests import builders
from tests.admission.audit_schema import STRICT
from tests.builders import installed, known, launcher_pod, review, vm, vmi
from tests.cluster.fake_apiserver import FakeApiServer, running
from tests.review.memory import VMS, MemoryCluster
from tests.server.background.conftest import DENIED, NAMESPACE_LABELS, stored
from tests.server.background.conftest import settings as drift_settings
from tests.waiting import until
from webhook.admission.audit import NoAudit
from webhook.admission.lines import LineWriter
from webhook.admission.output import Descriptor, RotatedFile
from webhook.errors import InputError
from webhook.facts import KubeVirtKey
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
from webhook.server.runtime import serve
from webhook.server.runtime.certificates import Certificates
from webhook.server.runtime.options import Options
from webhook.server.runtime.serve import Background, background
from webhook.settings.model import FidelitySettings, InstancetypeSettings, Settings

CLUSTER: Any = MemoryCluster({KubeVirtKey(): installed()})


class Following:
    """Settings that are followed."""

    def __init__(self, sample: int) -> None:
        self.reloads = {"accepted": 0, "rejected": 0}
        fidelity = FidelitySettings(sample=sample, every_minutes=0.0002)
        self._current = msgspec.structs.replace(
            builders.settings(schedulers={}), instancetypes=InstancetypeSettings(fidelity_check=fidelity)
        )

    def current(self) -> Settings:
        return self._current


@pytest.fixture
def audit() -> Iterator[LineWriter]:
    sink = os.open(os.devnull, os.O_WRONLY)
    writer = LineWriter(Descriptor(sink))
    yield writer
    writer.close()
    os.close(sink)


def scraped(audit: LineWriter, settings: Any, beside: Background, cluster: Any = CLUSTER) -> str:
    class Idle:
        in_flight = 0
        taken_bytes = 0
        senders = None

    registry = CollectorRegistry()
    app: Any = Idle()
    certificates = Certificates(builders.settings().tls, "localhost", logging.getLogger())
    registry.register(serve.metrics_state(app, audit, settings, cluster, beside, certificates, cluster.waiting_for))
    return generate_latest(registry).decode()


def beside_metrics(beside: Background) -> str:
    registry = CollectorRegistry()
    registry.register(MetricsState(beside.metrics()))
    return generate_latest(registry).decode()


def events(server: FakeApiServer) -> set[tuple[str, str]]:
    """The reason and the namespace of every Event."""
    return {(event["reason"], namespace) for (namespace, _), event in server.held(EVENTS).items()}


async def test_events_and_the_look_out_run_until_the_end(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    audit = LineWriter(RotatedFile(str(path), 1_000_000, 1))
    made = drift_settings(events=True)
    cluster = MemoryCluster(known(vmi()))
    async with running(FakeApiServer()) as server:
        server.serve(EVENTS)
        server.put(NAMESPACES, "demo", metadata={"labels": NAMESPACE_LABELS})
        server.put(UNSTRUCTURED_PODS, "pod-1", "demo", **stored(launcher_pod(), "pod-1"))
        options = Options(kubeconfig=Kubeconfig(server.kubeconfig(tmp_path / "kubeconfig")))
        async with background(options, lambda: made, cluster, audit) as beside:
            endpoint = msgspec.structs.replace(VMS, handler=lambda *_: DENIED)
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
            text = beside_metrics(beside)
        await until(lambda: not server.connected())
        asked = len(server.asked)
    audit.close()

    assert 'kubevirt_webhook_drift_objects{policy="scheduling",resource="pods"} 1.0' in text
    assert 'kubevirt_webhook_events_total{result="written"} 2.0' in text
    (line,) = path.read_bytes().splitlines()
    STRICT.validate(json.loads(line))
    assert json.loads(line)["kind"] == "drift"
    assert len(server.asked) == asked, "it has ended"


async def test_a_live_cluster_is_watched_until_the_end(
    tmp_path: Path, audit: LineWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("webhook.server.background.fidelity._TICK_SECONDS", 0.01)
    settings: Any = Following(sample=3)
    async with running(FakeApiServer()) as server:
        server.put(STORED_VMS, "vm", "demo", status={"created": True})
        options = Options(kubeconfig=Kubeconfig(server.kubeconfig(tmp_path / "kubeconfig")))
        async with background(options, settings.current, CLUSTER, audit) as beside:
            watch = beside.fidelity
            assert watch
            await until(lambda: watch.checked["skipped"])
            metrics = scraped(audit, settings, beside)
        # The records that were under way have arrived.
        await until(lambda: not server.connected())
        ended = len(server.asked)
        await asyncio.sleep(0.05)
        assert len(server.asked) == ended

    assert 'kubevirt_webhook_fidelity_checked_total{result="same"} 0.0' in metrics
    assert 'kubevirt_webhook_fidelity_checked_total{result="skipped"}' in metrics
    assert "kubevirt_webhook_fidelity_differences_total 0.0" in metrics
    assert "kubevirt_webhook_fidelity_checks_failed_total 0.0" in metrics


async def test_files_are_not_watched(tmp_path: Path, audit: LineWriter) -> None:
    settings: Any = Following(sample=3)
    async with background(Options(cluster_from=tmp_path), settings.current, CLUSTER, audit) as beside:
        assert beside == Background()
        metrics = scraped(audit, settings, beside)
    assert "kubevirt_webhook_fidelity_checked_total{" not in metrics
    assert "drift_objects{" not in metrics
    assert "kubevirt_webhook_build_info{" in metrics


@pytest.mark.parametrize(("known_fields", "said"), [(None, "tables"), (Definitions(()), "definitions")])
def test_the_metric_of_the_release_says_what_knows_its_fields(
    audit: LineWriter, known_fields: Definitions | None, said: str
) -> None:
    version = parse_version("v1.8.1")
    assert version
    configuration = ClusterConfig.of(None, rules=rules_of(release_of(version, known_fields)))
    cluster = MemoryCluster({KubeVirtKey(): installed(configuration)})
    metrics = scraped(audit, Following(sample=0), Background(), cluster)
    assert f'kubevirt_webhook_kubevirt_release{{fields="{said}",rules="known",version="1.8.1"}} 1.0' in metrics


async def test_of_two_connections_the_first_is_closed_where_the_second_cannot_be_made(
    audit: LineWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file may be replaced between the two."""

    class First:
        closed = False

        async def close(self) -> None:
            self.closed = True

    made = list[First]()

    async def connect(kubeconfig: Kubeconfig | None) -> First:
        if made:
            raise InputError("the kubeconfig is not YAML", "config", "repair or replace it")
        made.append(First())
        return made[0]

    monkeypatch.setattr("webhook.k8s.client.transport.connect", connect)
    settings: Any = Following(sample=3)
    with pytest.raises(InputError):
        async with background(Options(), settings.current, CLUSTER, audit):
            pass

    assert [each.closed for each in made] == [True]


def test_what_is_switched_off_is_not_imported() -> None:
    """The page, layer scores, traces, and what validates settings."""
    program = "import sys, webhook.cli.main, webhook.server.runtime.serve, webhook.cluster.live; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    page = ("jinja2", "markupsafe", "webhook.server.page")
    layers = ("webhook.images", "webhook.server.extender", "webhook.server.runtime.layers")
    off = ("pydantic", "opentelemetry", "google", "requests", *page, *layers)
    assert [name for name in done.stdout.split() if name.startswith(off)] == []


# Requests of 20 KB on one connection, in two records of TLS each; printed are the page faults of a thousand of them.
_READS = """
import asyncio, resource, socket, ssl, uvloop
from certs.source import self_signed
from webhook.server import edge, tls
from webhook.server.request import Answer
from webhook.server.runtime import serve

serve._return_large_blocks()
pair = self_signed(["localhost"])
REQUEST = b"POST / HTTP/1.1\\r\\nHost: x\\r\\nContent-Length: 20000\\r\\n\\r\\n" + b"x" * 20000

class Echo(edge.Application):
    def answer_at_once(self, request):
        return Answer.text(200, "x")

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
    server = edge.Server(Echo(), edge.Limits(body_bytes=100_000))
    async with edge.serving(server, "127.0.0.1:0", tls.context(pair.certificate, pair.key), "--listen", 0.0) as address:
        await asyncio.to_thread(ask, int(address.rpartition(":")[2]))

uvloop.run(main())
"""


def test_no_read_asks_the_kernel_for_memory() -> None:
    # A process of its own: the thresholds of malloc stay set.
    printed = subprocess.run([sys.executable, "-c", _READS], capture_output=True, check=True, text=True).stdout
    assert int(printed) < 100
