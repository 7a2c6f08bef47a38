"""The cost of a review and of a server's start, counted: more than in the table fails and names what was added.

A change that is worth its price comes with a new table: run ``python -m tests.costs.table`` and commit it. A change
that makes something cheaper needs a new table too, or a later change could make it expensive again unnoticed.
"""

from __future__ import annotations

import asyncio
import json
import shutil
from pathlib import Path

import pytest
import yaml

from tests.costs import calls, table
from tests.costs.modules import imported
from webhook.cluster.files import FilesCluster
from webhook.facts import NodesKey
from webhook.placement.index import NodeIndex
from webhook.review.endpoints import BY_PATH
from webhook.settings.file import default_settings

MIGRATIONS = "/validate/migration/virtualmachineinstancemigrations/enforce"
NODES = 600


@pytest.fixture(scope="module")
def now() -> dict[str, dict[str, int]]:
    """The current counts."""
    return table.calls()


def test_no_review_calls_more_functions_than_it_did(now: dict[str, dict[str, int]]) -> None:
    then = table.committed()["calls"]
    assert now.keys() == then.keys() == BY_PATH.keys(), table.AGAIN

    grown = {path: said for path in now if (said := table.growth(now[path], then[path]))}
    assert not grown, "\n".join(f"{path}: {said}" for path, said in grown.items())


def test_counting_twice_gives_the_same_figures(now: dict[str, dict[str, int]]) -> None:
    assert table.calls() == now


@pytest.mark.skipif(table.version() != table.committed()["python"], reason="another Python counts otherwise")
def test_what_became_cheaper_is_in_the_table(now: dict[str, dict[str, int]]) -> None:
    then = table.committed()["calls"]

    assert not [path for path in now if table.shrunk(now[path], then[path])], f"run {table.AGAIN}"


def test_a_migration_takes_no_longer_with_more_nodes(now: dict[str, dict[str, int]], tmp_path: Path) -> None:
    cluster = tmp_path / "cluster"
    shutil.copytree(calls.CLUSTER, cluster)
    nodes = list(yaml.safe_load_all((cluster / "nodes.yaml").read_text()))
    more = []
    for number in range(NODES):
        metadata = nodes[number % len(nodes)]["metadata"]
        name = f"{metadata['name']}-{number}"
        labels = {**metadata["labels"], "kubernetes.io/hostname": name}
        more.append({**nodes[number % len(nodes)], "metadata": {**metadata, "name": name, "labels": labels}})
    (cluster / "more.json").write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": more}))

    with asyncio.Runner() as runner:
        many = runner.run(calls.counted([MIGRATIONS], cluster))

    index = FilesCluster.load(cluster, default_settings()).peek(NodesKey())
    assert isinstance(index, NodeIndex)
    assert len(index) == NODES + len(nodes)
    assert table.growth(many[MIGRATIONS], now[MIGRATIONS]) == ""


def test_serve_imports_no_more_than_it_did() -> None:
    then, now = table.committed()["modules"], imported()

    assert not table.growth(now, then), table.growth(now, then)
    assert not table.shrunk(now, then), f"run {table.AGAIN}"


def test_serve_in_a_pod_imports_none_of_the_kubernetes_client() -> None:
    """Its models alone are 768 modules and 39 MB."""
    assert not [package for package in imported() if package.startswith("kubernetes")]


def test_a_call_that_is_added_is_named() -> None:
    then = {"webhook.facts:Facts.get": 5, "webhook.names:policy_label": 1}

    assert table.growth(then, then) == ""
    assert table.growth({**then, "webhook.k8s.views:Object.meta": 2}, then) == (
        "8 instead of 6:\n  +2 webhook.k8s.views:Object.meta"
    )
    assert table.shrunk({"webhook.facts:Facts.get": 5}, then)
