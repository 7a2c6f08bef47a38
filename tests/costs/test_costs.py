"""What may not grow with a cluster, counted in calls of Python functions, and what a server does not load."""

from __future__ import annotations

import asyncio
import copy
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.costs import counted_calls
from webhook.cluster.files import FilesCluster
from webhook.facts import NodesKey
from webhook.placement.index import NodeIndex
from webhook.settings_file import default_settings

MIGRATIONS = "/validate/migration/virtualmachineinstancemigrations/enforce"
NODES = 600


def test_a_migration_takes_no_longer_with_more_nodes(tmp_path: Path) -> None:
    cluster = tmp_path / "cluster"
    shutil.copytree(counted_calls.CLUSTER, cluster)
    nodes = list(yaml.safe_load_all((cluster / "nodes.yaml").read_text()))
    more = [copy.deepcopy(nodes[number % len(nodes)]) for number in range(NODES)]
    for number, node in enumerate(more):
        node["metadata"]["name"] = node["metadata"]["labels"]["kubernetes.io/hostname"] = f"more-{number}"
    (cluster / "more.json").write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": more}))

    with asyncio.Runner() as runner:
        few = runner.run(counted_calls.counted([MIGRATIONS]))
        many = runner.run(counted_calls.counted([MIGRATIONS], cluster))

    index = FilesCluster.load(cluster, default_settings()).peek(NodesKey())
    assert isinstance(index, NodeIndex)
    assert len(index) == len(more) + len(nodes) >= NODES
    assert sum(many[MIGRATIONS].values()) <= 1.03 * sum(few[MIGRATIONS].values())


# What is switched off: the page, layer scores, explanations, and traces.
OFF = (
    *("jinja2", "markupsafe", "webhook.server.page.recorder", "webhook.server.page.renderer", "webhook.images"),
    *("webhook.server.layer_scores.extender", "webhook.server.layer_scores.scores"),
    *("webhook.server.explanations.explainer", "webhook.policies.migration.explanation"),
    *("opentelemetry", "google", "requests"),
)
# With what `serve` imports later on, as soon as it knows that it serves a cluster.
SERVE = (
    *("webhook.cli.main", "webhook.cli.serve", "webhook.server.runtime.serve", "webhook.cluster.live"),
    *("webhook.k8s.client.transport", "webhook.server.drift_scan.scanner"),
    *("webhook.server.events.writer", "webhook.server.fidelity_check.check"),
)


@pytest.mark.control("permissions-for-layers")
def test_what_is_switched_off_is_not_imported() -> None:
    program = f"import json, sys, {', '.join(SERVE)}; print(json.dumps(sorted(sys.modules)))"
    output = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True).stdout
    assert [name for name in json.loads(output) if name.startswith(OFF)] == []
