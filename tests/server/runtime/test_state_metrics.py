"""The metrics of a server itself."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Iterator
from typing import Any
from unittest.mock import Mock

import pytest
from prometheus_client import generate_latest

from tests import builders
from tests.builders import installed
from tests.review.memory import MemoryCluster
from webhook import names
from webhook.admission.lines import LineWriter
from webhook.admission.output import Descriptor
from webhook.facts import KubeVirtKey
from webhook.k8s.types.meta import Namespace, ObjectMeta
from webhook.kubevirt.config import ClusterConfig
from webhook.kubevirt.releases.capabilities import parse_version
from webhook.kubevirt.releases.fields import Definitions
from webhook.kubevirt.releases.release import release_of
from webhook.kubevirt.rules import rules_of
from webhook.policies.migration.settings import MigrationSettings
from webhook.server.ops import MetricsState
from webhook.server.runtime.certificates import Certificates
from webhook.server.runtime.state_metrics import metrics_state
from webhook.settings.model import Settings


@pytest.fixture
def audit() -> Iterator[LineWriter]:
    sink = os.open(os.devnull, os.O_WRONLY)
    writer = LineWriter(Descriptor(sink))
    yield writer
    writer.close()
    os.close(sink)


def scraped(audit: LineWriter, cluster: MemoryCluster, made: Settings | None = None) -> str:
    app = Mock(in_flight=0, request_bytes=0, senders=None)
    settings: Any = Mock(reloads={"accepted": 0, "rejected": 0}, current=lambda: made or builders.settings())
    certificates = Certificates(builders.settings().tls, "localhost", logging.getLogger())
    state = metrics_state(app, audit, settings, cluster, cluster.waiting_for)
    return generate_latest(MetricsState([*state, *certificates.metrics()])).decode()


@pytest.mark.parametrize(("known_fields", "said"), [(None, "tables"), (Definitions(()), "definitions")])
async def test_the_metric_of_the_release_says_what_knows_its_fields(
    audit: LineWriter, known_fields: Definitions | None, said: str
) -> None:
    version = parse_version("v1.8.1")
    assert version
    configuration = ClusterConfig.of(None, rules=rules_of(release_of(version, known_fields)))
    metrics = scraped(audit, MemoryCluster({KubeVirtKey(): installed(configuration)}))
    assert "kubevirt_webhook_build_info{" in metrics
    assert f'kubevirt_webhook_kubevirt_release{{fields="{said}",rules="known",version="1.8.1"}} 1.0' in metrics


async def test_namespaces_are_counted_by_the_modes_that_they_chose(audit: LineWriter) -> None:
    def opted_in(name: str, **modes: str) -> Namespace:
        labels = {names.policy_label(policy): mode for policy, mode in modes.items()}
        return Namespace(ObjectMeta(name=name, labels=labels))

    # An excluded namespace, an invalid mode and the mode off have opted in to nothing.
    listed = [
        *(opted_in("a", scheduling="enforce", sizes="warn"), opted_in("b", scheduling="enforce"), opted_in("c")),
        *(opted_in("kube-system", scheduling="enforce"), opted_in("d", scheduling="yes", migration="off")),
    ]
    cluster = MemoryCluster({KubeVirtKey(): installed()}, listed=listed)

    def counted(settings: Settings | None = None) -> set[str]:
        lines = scraped(audit, cluster, settings).splitlines()
        return {line for line in lines if line.startswith("kubevirt_webhook_namespaces{")}

    own = {
        'kubevirt_webhook_namespaces{mode="enforce",policy="scheduling"} 2.0',
        'kubevirt_webhook_namespaces{mode="warn",policy="sizes"} 1.0',
    }
    assert counted() == own
    ordinary = builders.settings()
    wide = builders.changed(ordinary, migration=builders.changed(ordinary.of(MigrationSettings), cluster_wide=True))
    assert counted(wide) == own | {'kubevirt_webhook_namespaces{mode="enforce",policy="migration"} 3.0'}


async def test_tasks_that_have_not_ended_are_counted(audit: LineWriter) -> None:
    def counted() -> int:
        text = scraped(audit, MemoryCluster({KubeVirtKey(): installed()}))
        (line,) = (line for line in text.splitlines() if line.startswith("kubevirt_webhook_event_loop_tasks "))
        return int(float(line.split()[1]))

    before = counted()
    waiting = [asyncio.create_task(asyncio.sleep(3600)) for _ in range(3)]
    assert counted() == before + 3
    for task in waiting:
        task.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)
    assert counted() == before
