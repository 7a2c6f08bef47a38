"""The cost of a review and of a server's start, counted: more than in the table fails.

A change that is worth its price comes with a new table: run ``python -m tests.costs.table`` and commit it.
"""

from __future__ import annotations

import asyncio
import copy
import json
import shutil
import sys
from base64 import b64encode
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import yaml

from certs.authority import Authority
from certs.rotation import RotationEvent
from certs.source import self_signed
from certs.state import CaState
from tests.cluster.fake_apiserver import FakeApiServer, running
from tests.costs import table
from webhook.cluster.files import FilesCluster
from webhook.facts import NodesKey
from webhook.k8s.resources import Resource
from webhook.k8s.types.meta import Object
from webhook.placement.index import NodeIndex
from webhook.review.endpoints import BY_PATH
from webhook.server.runtime.certificates import host_of
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
    # Counting twice gives the same figures.
    assert table.calls() == now


def test_a_migration_takes_no_longer_with_more_nodes(now: dict[str, dict[str, int]], tmp_path: Path) -> None:
    cluster = tmp_path / "cluster"
    shutil.copytree(table.CLUSTER, cluster)
    nodes = list(yaml.safe_load_all((cluster / "nodes.yaml").read_text()))
    more = [copy.deepcopy(nodes[number % len(nodes)]) for number in range(NODES)]
    for number, node in enumerate(more):
        node["metadata"]["name"] = node["metadata"]["labels"]["kubernetes.io/hostname"] = f"more-{number}"
    (cluster / "more.json").write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": more}))

    with asyncio.Runner() as runner:
        many = runner.run(table.counted([MIGRATIONS], cluster))

    index = FilesCluster.load(cluster, default_settings()).peek(NodesKey())
    assert isinstance(index, NodeIndex)
    assert len(index) == len(more) + len(nodes) >= NODES
    assert not table.is_more(sum(many[MIGRATIONS].values()), sum(now[MIGRATIONS].values()))


def test_serve_imports_no_more_than_it_did() -> None:
    now = table.imported()
    assert not table.is_more(len(now), table.committed()["modules"]), now
    assert not [name for name in now if name.startswith((*ABSENT, *OFF))]


# What a server does without, or leaves to a process of its own: cryptography takes 11 MB, and pydantic 9.
ABSENT = ("_cffi_backend", "cryptography", "jwt", "pydantic", "rich")
# What is switched off: the page, layer scores, and traces.
OFF = (
    *("jinja2", "markupsafe", "webhook.server.page", "webhook.images", "webhook.server.extender"),
    *("webhook.server.runtime.layers", "opentelemetry", "google", "requests"),
)


@pytest.mark.parametrize("mode", ["managed", "mounted", "self-signed"])
async def test_a_replica_has_loaded_none_of_it_once_it_serves(mode: str, tmp_path: Path) -> None:
    """With a certificate, issued by the CA in the Secret where it is managed."""
    pair = self_signed(["localhost"])
    (tmp_path / "crt").write_bytes(pair.certificate)
    (tmp_path / "key").write_bytes(pair.key)
    (tmp_path / "settings.yaml").write_text("{}")
    server, settings = FakeApiServer(), default_settings()
    secrets = Resource("", "v1", "secrets", "Secret", True, Object)
    server.serve(secrets)
    hosts, now = [host_of(None, settings)], datetime.now(UTC)
    data = CaState(Authority.new(hosts, now, timedelta(days=365)), rotated=now).encode()
    encoded = {key: b64encode(value).decode() for key, value in data.items()}
    server.put(secrets, settings.tls.secret_name, settings.webhooks.service.namespace, data=encoded)
    arguments = ["--listen", "127.0.0.1:0", "--ops-listen", "127.0.0.1:0", "--config", str(tmp_path / "settings.yaml")]
    arguments += ["--tls-cert", str(tmp_path / "crt"), "--tls-key", str(tmp_path / "key")] * (mode == "mounted")
    async with running(server):
        arguments += ["--kubeconfig", server.kubeconfig(tmp_path / "kubeconfig"), "--tls", mode]
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "webhook", "serve"), *arguments, stderr=asyncio.subprocess.PIPE
        )
        try:
            assert process.stderr
            events = set[str]()
            while not events >= {"serving", *([RotationEvent.LEAF_ISSUED] if mode == "managed" else [])}:
                events.add(json.loads(await process.stderr.readline())["event"])
            maps = Path(f"/proc/{process.pid}/maps").read_text()
        finally:
            process.kill()
            await process.wait()
    assert [name for name in ("_ssl", "cryptography", "pydantic", "_cffi_backend") if name in maps] == ["_ssl"]
