"""The peer in Go does what kubevirt-webhook does: where the two answer differently, the bench compares two jobs."""

from __future__ import annotations

import base64
import http.client
import json
import re
import ssl
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml

from bench.reviews import certificate, golang, host
from bench.reviews.errors import MissingToolError
from bench.reviews.payloads import DRAIN, MIGRATION, PAYLOADS, POD, VM, Payload
from bench.reviews.servers import OURS, PEER, Pythons, RunningServer, lineup, started

Json = dict[str, Any]

# Beside those of the bench: a namespace in each mode, and an instancetype beside which KubeVirt denies a scheduler.
_MORE = [
    {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": mode, "labels": labels}}
    for mode in ("warn", "audit", "off", "on")
    for labels in [{f"kubevirt-webhook.github.io/{policy}": mode for policy in ("scheduling", "migration")}]
] + [
    {
        "apiVersion": "instancetype.kubevirt.io/v1beta1",
        "kind": "VirtualMachineClusterInstancetype",
        "metadata": {"name": "scheduled"},
        "spec": {"cpu": {"guest": 1}, "memory": {"guest": "1Gi"}, "schedulerName": "other"},
    }
]
_DELETED = object()
_JSON = "application/json"


# These reasons are those of the bench's own reviews; of others, the peer's words are its own.
_SAME_WORDS = ("scheduler-injected", "nodes-eligible", "requested-by-kubevirt")


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[RunningServer, RunningServer]]:
    """kubevirt-webhook and its peer, before the same cluster. At their end, the audit lines of both are the same."""
    try:
        built = golang.build(host.cache_directory(), [PEER])
    except MissingToolError as error:
        pytest.skip(str(error))
    directory = tmp_path_factory.mktemp("servers")
    pair = certificate.make(directory)
    servers = lineup([OURS, PEER], Pythons(Path(sys.executable)), built.binaries, pair, directory)
    (directory / "cluster" / "more.yaml").write_text(yaml.safe_dump_all(_MORE))
    with started(servers, None, pair, directory) as (ours, peer):
        yield ours, peer
    ours_lines, peer_lines = (_lines(directory / f"{key}.out") for key in (OURS, PEER))
    assert peer_lines == ours_lines != []


def _put(request: Json, path: str, value: object) -> None:
    """Set a member of a request by its path, whose names are separated by spaces; `_DELETED` takes it away."""
    node: Any = request
    *parents, last = path.split()
    for name in parents:
        node = node[int(name)] if isinstance(node, list) else node.setdefault(name, {})
    if value is _DELETED:
        del node[last]
    else:
        node[last] = value


def _send(running: RunningServer, payload: Payload, method: str, body: str, content_type: str) -> tuple[int, bytes]:
    url = urlsplit(running.server.url(payload))
    tls = ssl._create_unverified_context()
    connection = http.client.HTTPSConnection(url.hostname or "", url.port, timeout=60, context=tls)
    with closing(connection):
        connection.request(method, f"{url.path}?timeout=30s", body, {"Content-Type": content_type})
        response = connection.getresponse()
        return response.status, response.read()


def _ask(running: RunningServer, payload: Payload, review: Json) -> Json:
    status, body = _send(running, payload, "POST", json.dumps(review), _JSON)
    assert status == 200, body
    answer: Json = json.loads(body)
    if patch := answer["response"].get("patch"):
        answer["response"]["patch"] = json.loads(base64.b64decode(patch, validate=True))
    return answer


_LABELS = "object metadata labels"
_ANNOTATIONS = "object metadata annotations"
_SPEC = "object spec"
_ADDED = f"{_SPEC} addedNodeSelector"
_INJECTED = f"{_ANNOTATIONS} kubevirt-webhook.github.io/injected-scheduler"


@pytest.mark.parametrize(
    ("payload", "changes"),
    [
        (POD, {"operation": "UPDATE"}),
        (POD, {f"{_SPEC} nodeName": "node-a"}),
        (POD, {f"{_LABELS} kubevirt.io": "other"}),
        (POD, {f"{_LABELS}": _DELETED}),
        (POD, {"object metadata ownerReferences 0 kind": "Pod"}),
        (POD, {"object metadata ownerReferences 0 uid": "another"}),
        (POD, {"object metadata ownerReferences 0 name": "missing"}),
        (POD, {"userInfo username": "system:serviceaccount:demo:kubevirt-controller"}),
        (POD, {f"{_SPEC} schedulerName": "other"}),
        (POD, {f"{_SPEC} schedulerName": "kubevirt", _INJECTED: "kubevirt"}),
        (POD, {f"{_SPEC} schedulerName": "gone", _INJECTED: "gone"}),
        (POD, {_INJECTED: "gone"}),
        (POD, {f"{_SPEC} schedulerName": _DELETED}),
        (POD, {_ANNOTATIONS: _DELETED}),
        (POD, {"namespace": "kubevirt"}),
        (POD, {"namespace": "off"}),
        (POD, {"namespace": "on"}),
        (POD, {"namespace": "missing"}),
        (POD, {"subResource": "status"}),
        (POD, {"dryRun": True}),
        (VM, {"operation": "DELETE", "object": None}),
        (VM, {f"{_SPEC} template": _DELETED}),
        (VM, {"object metadata deletionTimestamp": "2026-11-21T10:00:00Z"}),
        (VM, {f"{_SPEC} template spec schedulerName": "default-scheduler"}),
        (VM, {f"{_SPEC} template spec schedulerName": "other"}),
        (VM, {f"{_SPEC} template metadata": _DELETED}),
        (VM, {_ANNOTATIONS: {}, f"{_SPEC} template metadata annotations": _DELETED}),
        (VM, {f"{_SPEC} instancetype": {"kind": "VirtualMachineClusterInstancetype", "name": "scheduled"}}),
        (VM, {f"{_SPEC} instancetype": {"name": "missing"}}),
        (VM, {f"{_SPEC} instancetype": {"inferFromVolume": "containerdisk"}}),
        (VM, {"namespace": "warn", f"{_SPEC} instancetype": _DELETED}),
        (VM, {"namespace": "audit", f"{_SPEC} instancetype": _DELETED}),
        (MIGRATION, {_ADDED: {"zone": "a"}}),
        (MIGRATION, {_ADDED: {"zone": "c", "kubernetes.io/os": "linux"}}),
        (MIGRATION, {_ADDED: {"kubernetes.io/hostname": "node-a"}}),
        (MIGRATION, {_ADDED: {"kubernetes.io/arch": "arm64"}}),
        (MIGRATION, {_ADDED: {"kubevirt.io/schedulable": "true"}}),
        (MIGRATION, {_ADDED: {"cpu-vendor.node.kubevirt.io/AMD": "true"}}),
        (MIGRATION, {_ADDED: {"zone": "not a value"}}),
        (MIGRATION, {_ADDED: {f"key-{number}": "" for number in range(257)}}),
        (MIGRATION, {_ADDED: _DELETED}),
        (MIGRATION, {f"{_SPEC} sendTo": {"migrationID": "x"}}),
        (MIGRATION, {f"{_SPEC} vmiName": "missing"}),
        (MIGRATION, {f"{_SPEC} vmiName": "pool-0"}),
        (MIGRATION, {"object metadata name": "kubevirt-evacuation-x"}),
        (MIGRATION, {"operation": "UPDATE"}),
        (MIGRATION, {"namespace": "warn"}),
        (DRAIN, {_ANNOTATIONS: _DELETED}),
        (DRAIN, {_ANNOTATIONS: {"kubevirt.io/workloadUpdateMigration": ""}}),
        (DRAIN, {_ANNOTATIONS: _DELETED, f"{_SPEC} vmiName": "missing"}),
        (DRAIN, {_ADDED: {"zone": "b"}}),
        (DRAIN, {f"{_SPEC} sendTo": {"migrationID": "x"}}),
        (DRAIN, {"operation": "UPDATE"}),
    ],
)
def test_both_decide_alike(
    both: tuple[RunningServer, RunningServer], payload: Payload, changes: dict[str, object]
) -> None:
    review = json.loads(payload.file.read_bytes())
    for path, value in changes.items():
        _put(review["request"], path, value)

    ours, peer = ({**_ask(running, payload, review)["response"]} for running in both)

    for response in (ours, peer):
        # Of the words only the codes are the same.
        response["warnings"] = [re.findall(r"\[([a-z-]+)\]$", each) for each in response.get("warnings", ())]
        response["status"] = response.get("status", {}).get("code")
    assert peer == ours


def test_payloads_get_the_same_answers_and_counts(both: tuple[RunningServer, RunningServer]) -> None:
    reviews = [(payload, json.loads(payload.file.read_bytes())) for payload in PAYLOADS]

    ours, peer = ([_ask(running, *review) for review in reviews] for running in both)

    assert peer == ours
    for sent in (("GET", "", _JSON), ("POST", "{}", "text/plain"), ("POST", "{", _JSON), ("POST", "{}", _JSON)):
        ours_status, peer_status = (_send(running, POD, *sent)[0] for running in both)
        assert peer_status == ours_status >= 400
    ours_counts, peer_counts = map(_counts, both)
    assert peer_counts == ours_counts
    assert {name for name, _ in peer_counts} == {"requests_total", "decisions_total", "latency_seconds_count"}


def _counts(running: RunningServer) -> dict[tuple[str, str], float]:
    """What was counted of reviews, by metric and labels."""
    with urllib.request.urlopen(running.server.ready.replace("readyz", "metrics"), timeout=60) as response:
        text = response.read().decode()
    samples = re.findall(r"^kubevirt_webhook_(\w+)\{(.*)\} (\S+)$", text, re.MULTILINE)
    counted = ("requests_total", "decisions_total", "latency_seconds_count")
    return {
        (name, ",".join(sorted(labels.split(",")))): float(value)
        for name, labels, value in samples
        if name in counted and float(value)
    }


def _lines(file: Path) -> list[Json]:
    """Audit lines without what the two servers need not share: times, and most words."""
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    for line in lines:
        assert line.pop("durationMs") > 0
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", line.pop("time"))
        line.pop("details", None)
        line["message"] = line["message"] is not None
        for reason in line["reasons"]:
            if reason["code"] not in _SAME_WORDS:
                assert reason.pop("text")
    return lines
