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

from bench.reviews import certificate, golang, host
from bench.reviews.errors import MissingToolError
from bench.reviews.payloads import PAYLOADS, POD, Payload
from bench.reviews.servers import OURS, PEER, Pythons, RunningServer, lineup, started

Json = dict[str, Any]

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
    with started(servers, None, pair, directory) as (ours, peer):
        yield ours, peer
    ours_lines, peer_lines = (_lines(directory / f"{key}.out") for key in (OURS, PEER))
    assert peer_lines == ours_lines != []


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
