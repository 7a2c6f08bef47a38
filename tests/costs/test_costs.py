"""The cost of a review and of a server's start, counted: more than in the table fails.

A change that is worth its price comes with a new table: run ``python -m tests.costs.table`` and commit it.
"""

from __future__ import annotations

import asyncio
import copy
import json
import shutil
from pathlib import Path

import pytest
import yaml

from tests.costs import calls, table
from tests.costs.table import imported
from webhook.cluster.files import FilesCluster
from webhook.facts import NodesKey
from webhook.placement.index import NodeIndex
from webhook.review.endpoints import BY_PATH
from webhook.settings.file import default_settings

MIGRATIONS = "/validate/migration/virtualmachineinstancemigrations/enforce"
NODES = 600


@pytest.fixture(scope="module")
def now() -> dict[str, dict[str, int]]:
    return table.calls()


def test_no_review_calls_more_functions_than_it_did(now: dict[str, dict[str, int]]) -> None:
    then = table.committed()["calls"]
    assert now.keys() == then.keys() == BY_PATH.keys(), table.AGAIN

    sums = {path: sum(each.values()) for path, each in now.items()}
    grown = {path: f"{sums[path]} instead of {then[path]}" for path in sums if table.is_more(sums[path], then[path])}
    assert not grown, f"{grown}; if it is worth that, run {table.AGAIN}"


def test_counting_twice_gives_the_same_figures(now: dict[str, dict[str, int]]) -> None:
    assert table.calls() == now


def test_a_migration_takes_no_longer_with_more_nodes(now: dict[str, dict[str, int]], tmp_path: Path) -> None:
    cluster = tmp_path / "cluster"
    shutil.copytree(calls.CLUSTER, cluster)
    nodes = list(yaml.safe_load_all((cluster / "nodes.yaml").read_text()))
    more = [copy.deepcopy(nodes[number % len(nodes)]) for number in range(NODES)]
    for number, node in enumerate(more):
        node["metadata"]["name"] = node["metadata"]["labels"]["kubernetes.io/hostname"] = f"more-{number}"
    (cluster / "more.json").write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": more}))

    with asyncio.Runner() as runner:
        many = runner.run(calls.counted([MIGRATIONS], cluster))

    index = FilesCluster.load(cluster, default_settings()).peek(NodesKey())
    assert isinstance(index, NodeIndex)
    assert len(index) == len(more) + len(nodes) >= NODES
    assert not table.is_more(sum(many[MIGRATIONS].values()), sum(now[MIGRATIONS].values()))


def test_serve_imports_no_more_than_it_did() -> None:
    now = imported()
    assert not table.is_more(sum(now.values()), table.committed()["modules"]), now


def test_serve_in_a_pod_imports_none_of_the_kubernetes_client() -> None:
    """Its models alone are 768 modules and 39 MB."""
    assert not [package for package in imported() if package.startswith("kubernetes")]
