from __future__ import annotations

import json
from pathlib import Path

import msgspec
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import generate_latest

from tests.admission.audit_schema import STRICT
from tests.builders import known, launcher_pod, review, vm, vmi
from tests.cluster.fake_apiserver import FakeApiServer, running
from tests.review.memory import VMS, KeptInMemory, MemoryCluster
from tests.server.background.world import DENIED, NAMESPACE_LABELS, settings, stored
from tests.waiting import until
from webhook.admission.audit import NoAudit
from webhook.admission.lines import LineWriter
from webhook.admission.output import RotatedFile
from webhook.k8s.client.identity import Kubeconfig
from webhook.k8s.resources import EVENTS, NAMESPACES, UNSTRUCTURED_PODS
from webhook.review.reviewer import Reviewer
from webhook.server.ops import MetricsState
from webhook.server.runtime.options import Options
from webhook.server.runtime.serve import Background, background


def scraped(beside: Background) -> str:
    registry = CollectorRegistry()
    registry.register(MetricsState(beside.metrics()))
    return generate_latest(registry).decode()


def events(server: FakeApiServer) -> set[tuple[str, str]]:
    """The reason and the namespace of every Event."""
    return {(event["reason"], namespace) for (namespace, _), event in server.held(EVENTS).items()}


async def test_events_and_the_look_out_run_until_the_end(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    audit = LineWriter(RotatedFile(str(path), 1_000_000, 1))
    made = settings(events=True)
    cluster = MemoryCluster(known(vmi()))
    async with running(FakeApiServer()) as server:
        server.serve(EVENTS)
        server.put(NAMESPACES, "demo", metadata={"labels": NAMESPACE_LABELS})
        server.put(UNSTRUCTURED_PODS, "pod-1", "demo", **stored(launcher_pod(), "pod-1"))
        options = Options(kubeconfig=Kubeconfig(server.kubeconfig(tmp_path / "kubeconfig")))
        async with background(options, lambda: made, cluster, audit) as beside:
            endpoint = msgspec.structs.replace(VMS, handler=lambda *_: DENIED)
            observer = beside.announcing(KeptInMemory(), lambda: made)
            reviewer = Reviewer(cluster, lambda: made, NoAudit(), observer)
            await reviewer.evaluate(endpoint, msgspec.json.encode(review(vm())), 1e9)
            await until(lambda: server.held(EVENTS))
            for act in cluster.restored:
                act("namespaces were at resourceVersion 9, which etcd has not reached")
            await until(lambda: ("EtcdRestored", "kubevirt-webhook") in events(server))
            # Counted once the answer has come, which is later than the server has the event.
            await until(lambda: 'events_total{result="written"} 2.0' in scraped(beside))
            await until(lambda: 'drift_scans_total{result="finished"} 1.0' in scraped(beside))
            text = scraped(beside)
        await until(lambda: not server.connected())
        asked = len(server.asked)
    audit.close()

    assert 'kubevirt_webhook_drift_objects{policy="scheduling",resource="pods"} 1.0' in text
    assert 'kubevirt_webhook_events_total{result="written"} 2.0' in text
    (line,) = path.read_bytes().splitlines()
    STRICT.validate(json.loads(line))
    assert json.loads(line)["kind"] == "drift"
    assert len(server.asked) == asked, "it has ended"


def test_files_have_nobody_to_announce_to() -> None:
    kept = KeptInMemory()
    beside = Background()

    assert beside.announcing(kept, settings) is kept
    assert "drift_objects{" not in scraped(beside)
