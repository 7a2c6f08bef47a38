"""What may not grow with a cluster, counted in calls of Python functions, and what a server does not load."""

from __future__ import annotations

import asyncio
import copy
import json
import shutil
import subprocess
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
from tests.costs import counted_calls
from webhook.cluster.files import FilesCluster
from webhook.facts import NodesKey
from webhook.k8s.resources import Resource
from webhook.k8s.types.meta import Object
from webhook.placement.index import NodeIndex
from webhook.server.runtime.certificates import host_of
from webhook.settings.file import default_settings

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


# What is switched off: the page, layer scores, and traces.
OFF = (
    *("jinja2", "markupsafe", "webhook.server.page", "webhook.images", "webhook.server.extender"),
    *("webhook.server.runtime.layers", "opentelemetry", "google", "requests"),
)
# With what `serve` imports later on, as soon as it knows that it serves a cluster.
SERVE = (
    *("webhook.cli.main", "webhook.cli.serve", "webhook.server.runtime.serve", "webhook.cluster.live"),
    *("webhook.k8s.client.transport", "webhook.server.background.drift"),
    *("webhook.server.background.events", "webhook.server.background.fidelity"),
)


def test_what_is_switched_off_is_not_imported() -> None:
    program = f"import json, sys, {', '.join(SERVE)}; print(json.dumps(sorted(sys.modules)))"
    output = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True).stdout
    assert [name for name in json.loads(output) if name.startswith(OFF)] == []


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
