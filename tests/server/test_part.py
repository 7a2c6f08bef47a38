"""Parts of a server, and what they need of it."""

from __future__ import annotations

import json
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import AsyncMock

import msgspec
import pytest
from prometheus_client import generate_latest

from tests import builders
from tests.admission.audit_schema import STRICT
from tests.builders import changed, known, launcher_pod, review, vm, vmi
from tests.cluster.fake_apiserver import ApiServers, FakeApiServer
from tests.policies.decisions import always
from tests.review.memory import VMS, MemoryCluster
from tests.server.drift_scan.conftest import NAMESPACE_LABELS, stored
from tests.server.drift_scan.conftest import settings as drift_settings
from tests.server.events.test_writer import DENIED
from tests.server.handles import server_handle
from tests.waiting import until
from webhook.admission.audit import NoAudit
from webhook.admission.lines import LineWriter
from webhook.admission.output import RotatedFile
from webhook.errors import InputError
from webhook.install.components import COMPONENTS
from webhook.k8s.client.identity import Kubeconfig
from webhook.k8s.resources import EVENTS as STORED_EVENTS
from webhook.k8s.resources import NAMESPACES, UNSTRUCTURED_PODS
from webhook.kubevirt.resources import STORED_VMS
from webhook.policies.instancetypes.settings import FidelitySettings, InstancetypeSettings
from webhook.review.reviewer import Reviewer
from webhook.server.drift_scan.part import DRIFT_SCAN
from webhook.server.events.part import EVENTS
from webhook.server.fidelity_check.part import FIDELITY_CHECK
from webhook.server.ops import MetricsState
from webhook.server.part import Contribution, ServerHandle
from webhook.server.runtime.connections import connected
from webhook.server.runtime.serve import PARTS

ROOT = Path(__file__).parents[2]
BESIDE_REVIEWS = (EVENTS, DRIFT_SCAN, FIDELITY_CHECK)


async def begun(offered: ServerHandle, ends: AsyncExitStack) -> Contribution:
    return Contribution.joined([await ends.enter_async_context(part.running(offered)) for part in BESIDE_REVIEWS])


def scraped(contribution: Contribution) -> str:
    state: Any = MetricsState(contribution.metrics)
    return generate_latest(state).decode()


def events(server: FakeApiServer) -> set[tuple[str, str]]:
    """The reason and the namespace of every Event."""
    return {(event["reason"], namespace) for (namespace, _), event in server.held(STORED_EVENTS).items()}


async def test_what_runs_beside_reviews_runs_until_the_end(
    apiservers: ApiServers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("webhook.server.fidelity_check.check._TICK_SECONDS", 0.01)
    path = tmp_path / "audit.jsonl"
    audit = LineWriter(RotatedFile(str(path), 1_000_000, 1))
    sampling = InstancetypeSettings(fidelity_check=changed(FidelitySettings(sample=3), every_minutes=0.0002))
    made = drift_settings(events=True, instancetypes=sampling)
    cluster = MemoryCluster(known(vmi()))
    server = await apiservers.start()
    server.serve(STORED_EVENTS)
    server.put(NAMESPACES, "demo", metadata={"labels": NAMESPACE_LABELS})
    server.put(UNSTRUCTURED_PODS, "pod-1", "demo", **stored(launcher_pod(), "pod-1"))
    server.put(STORED_VMS, "vm", "demo", status={"created": True})
    connect = partial(connected, Kubeconfig(server.kubeconfig(tmp_path / "kubeconfig")))
    async with AsyncExitStack() as ends:
        beside = await begun(server_handle(made, cluster, connect, audit.write), ends)
        endpoint = msgspec.structs.replace(VMS, handler=always(DENIED))
        reviewer = Reviewer(cluster, lambda: made, NoAudit(), *beside.observers)
        await reviewer.evaluate(endpoint, msgspec.json.encode(review(vm())), 1e9)
        await until(lambda: server.held(STORED_EVENTS))
        for act in cluster.restored:
            act("namespaces were at resourceVersion 9, which etcd has not reached")
        await until(lambda: ("EtcdRestored", "kubevirt-webhook") in events(server))
        # Counted once the answer has come, which is later than the server has the event.
        await until(lambda: 'events_total{result="written"} 2.0' in scraped(beside))
        await until(lambda: 'drift_scans_total{result="finished"} 1.0' in scraped(beside))
        await until(lambda: 'fidelity_checked_total{result="skipped"} 0.0' not in scraped(beside))
        text = scraped(beside)
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


def test_files_are_not_watched_and_what_is_not_set_is_off() -> None:
    offered = server_handle(builders.settings())
    assert [part.name for part in PARTS if part.is_on(offered)] == []


def test_the_components_that_grant_permissions_are_those_of_parts() -> None:
    """Who removes a part sees which permissions go with it."""
    granting = {file.parent.name for file in (ROOT / "manifests").glob("components/*/rbac.yaml")}
    assert {component.name for part in PARTS for component in part.components} == granting
    assert {component for part in PARTS for component in part.components} == set(COMPONENTS)


async def test_of_two_connections_the_first_is_closed_where_the_second_cannot_be_made(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The file may be replaced between the two."""
    first, mistake = AsyncMock(), InputError("the kubeconfig is not YAML", "config", "repair or replace it")
    monkeypatch.setattr("webhook.k8s.client.transport.connect", AsyncMock(side_effect=[first, mistake]))
    with pytest.raises(InputError):
        async with AsyncExitStack() as ends:
            await begun(server_handle(builders.settings(), connect=partial(connected, None)), ends)
    first.close.assert_awaited_once()
