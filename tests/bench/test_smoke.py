"""Every benchmark runs at its smallest, and prints a row for each thing that it measures; no figure is asserted.

Of the benchmark of placement, which needs a control plane, and of the published figures, the pure parts.
The peer in Go does what kubevirt-webhook does: where the two answer differently, the bench compares two jobs.
"""

from __future__ import annotations

import base64
import gc
import http.client
import json
import os
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

from bench.placement import launcher, profiles, webhook
from bench.placement.cases import BOTH, DEFAULT
from bench.placement.cost import Cost
from bench.placement.errors import PlacementError
from bench.placement.figures import PlacementFigures
from bench.placement.report import PlacementReport
from bench.placement.rows import PlacementRow
from bench.placement.table import Cell, PlacementOutcome, PlacementPlan
from bench.reliability.__main__ import main as reliability
from bench.reviews import certificate, golang, host, published, sources
from bench.reviews.errors import MissingToolError
from bench.reviews.load import Pressure, Sample
from bench.reviews.payloads import PAYLOADS, POD, Payload
from bench.reviews.report import ReviewsReport
from bench.reviews.rounds import ReviewsOutcome, ReviewsPlan, arrivals
from bench.reviews.servers import OURS, PEER, Pythons, RunningServer, lineup, started
from bench.start import measure
from bench.start.__main__ import main as start
from tests.waiting import PATIENCE
from webhook.settings_file import load

CAPTURE = Path(__file__).parents[1] / "data" / "captures" / "pod-create-launcher.json"
ROW = PlacementRow("row", 30, namespaces=20, devices=110)
PAGE = "Before.\n\n<!-- make bench writes from here -->\n\nold\n\n<!-- to here -->\n\nAfter.\n"


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(measure, "_IDLE_SECONDS", 0.1)
    # What is frozen stays: every later search for garbage would visit all collected tests (tests/conftest.py).
    monkeypatch.setattr(gc, "unfreeze", lambda: None)
    cores = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else None
    yield
    if cores:
        os.sched_setaffinity(0, cores)


@pytest.mark.parametrize(
    ("words", "printed"),
    [
        ("bodies --scale 0.05", "reviews of 7 MiB from 3 clients"),
        ("lists --scale 0.02", "50 dry-run migrations at a time"),
    ],
)
def test_attacks_run(words: str, printed: str, capsys: pytest.CaptureFixture[str]) -> None:
    # Attacks on a busy machine may leave failures, which the second status says.
    assert reliability(words.split()) in (0, 1)

    out = capsys.readouterr().out
    assert printed in out
    assert len(out.splitlines()) >= 3


def test_a_start_is_measured(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("sys.argv", ["bench.start", "--rounds", "1", "--nodes", "5", "--namespaces", "4"])

    assert start() == 0
    said, _, header, _, *rows = capsys.readouterr().out.splitlines()
    assert said.startswith("--help: ")
    assert "idle MB" in header
    assert [row.strip("| ").split(" | ")[:2] for row in rows[:2]] == [["3", "3"], ["5", "4"]]


def figures(*counts: int) -> PlacementFigures:
    return PlacementFigures(counts, tuple(float(count) for count in counts), tuple(2.0 * count for count in counts))


def test_a_launcher_asks_for_what_a_recorded_one_asks_for() -> None:
    recorded = json.loads(CAPTURE.read_text())["request"]["object"]["spec"]
    made = launcher.pod({**launcher.machine("vm"), "metadata": {"name": "vm", "uid": "1"}})

    for kind in ("containers", "initContainers"):
        ours, theirs = made["spec"][kind][0], recorded[kind][0]
        for what in ours["resources"].values():
            what.pop("devices.kubevirt.io/kvm", None)  # it was recorded on a node without KVM
        assert {**ours, "image": ""} == {key: theirs[key] for key in ours} | {"image": ""}
    assert made["spec"]["nodeSelector"] == recorded["nodeSelector"]
    made["metadata"]["namespace"] = "tenant-001"
    made["spec"]["schedulerName"] = "default-scheduler"
    with pytest.raises(PlacementError, match="did not write"):
        webhook.check_injected([made], BOTH)
    assert list(load(webhook.SETTINGS).schedulers) == [profiles.SHIPPED]


def test_the_report_has_every_round(tmp_path: Path) -> None:
    even = figures(5, 5, 6, 4, 5, 5)
    rounds = {DEFAULT: (figures(15, 15, 0, 0, 0, 0), figures(10, 9, 11, 0, 0, 0), even), BOTH: (even,) * 3}
    cells = [Cell(ROW, case, measured) for case, measured in rounds.items()]
    costs = [Cost("default", "no constraint", 1.25, 2.5, 99.6, 1)]
    report = PlacementReport(PlacementPlan([ROW], [*rounds], 3), PlacementOutcome("v1.36.3", cells, costs))
    report.write_json(tmp_path / "placement.json")

    assert (
        "| 20 nodes of 64 CPUs, empty; 30 small VMs; 20 namespaces; virtualMachineInstancesPerNode: 110 "
        "| 5.0; 5.0, 10.1; 3 empty | 0.6; 0.6, 1.2 |"
    ) in report.markdown().splitlines()
    (row,) = json.loads((tmp_path / "placement.json").read_text())["rows"]
    assert [one["empty_nodes"] for one in row["cases"]["default"]["rounds"]] == [4, 3, 0]


def test_the_request_path_is_found_out() -> None:
    found = sources.digests()

    path = ("server/guard.py", "review/reviewer.py", "placement/index.py", "policies/scheduling/scheduler_name.py")
    assert {"bench/reviews/go/plain/main.go", "requirements.lock: msgspec", *(f"webhook/{one}" for one in path)} <= {
        *found
    }
    assert not [name for name in found if name.startswith(("tests/", "webhook/cli/", "webhook/kubevirt/vm/"))]


def test_a_run_is_written_and_then_current(tmp_path: Path) -> None:
    record = tmp_path / "published.json"
    (tmp_path / "docs").mkdir()
    (tmp_path / published.PAGE).write_text(PAGE)
    servers = ["ours", "plain"]
    samples = [
        Sample(server, payload.name, arrival.title, 0, 1000, cpu, 5000.0, 1000.0, 2000.0, 3000.0, 60.0, 0.5)
        for payload in PAYLOADS
        for arrival in arrivals(payload)
        for server, cpu in zip(servers, (100.0, 300.0), strict=True)
    ]
    report = ReviewsReport(ReviewsPlan(servers, 1, Pressure(1.0, 0.1)), ReviewsOutcome(samples), {"Machine": "a"})

    assert published.write(report, tmp_path, record) == [published.PAGE]

    written = json.loads(record.read_text())
    row = "| launcher pod, 11.6 kB | **kubevirt-webhook** | **100** | **1** |"
    page = (tmp_path / published.PAGE).read_text()
    assert (page[:8], page[-7:], "old" in page, row in page) == ("Before.\n", "After.\n", False, True)
    assert published.faults(written, written["sources"], tmp_path) == []
    one = next(iter(written["sources"]))
    assert published.faults(written, {**written["sources"], one: "other"}, tmp_path) == [f"{one}: changed"]
    (tmp_path / published.PAGE).write_text(PAGE)
    faults = published.faults(written, written["sources"], tmp_path)
    assert [each.partition(":")[0] for each in faults] == [published.PAGE]


def test_the_pages_have_a_place_for_the_figures() -> None:
    record = json.loads(published.RECORD.read_text())
    assert published.faults({**record, "sources": {}}, {}) == []


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
    connection = http.client.HTTPSConnection(url.hostname or "", url.port, timeout=PATIENCE, context=tls)
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
    with urllib.request.urlopen(running.server.ready.replace("readyz", "metrics"), timeout=PATIENCE) as response:
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
