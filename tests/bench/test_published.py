"""The figures in the pages say which code they are of: a change of it is noticed, and a change of words is not."""

from __future__ import annotations

import json
from pathlib import Path

from bench.reviews import published, sources
from bench.reviews.load import Pressure, Sample
from bench.reviews.payloads import PAYLOADS
from bench.reviews.report import ReviewsReport
from bench.reviews.rounds import ReviewsOutcome, ReviewsPlan, arrivals
from bench.reviews.servers import TITLES

PAGE = "Before.\n\n<!-- make bench writes from here -->\n\nold\n\n<!-- to here -->\n\nAfter.\n"


def test_the_request_path_is_found_out() -> None:
    found = sources.digests()

    assert {
        *("webhook/server/edge.py", "webhook/review/reviewer.py", "webhook/admission/wire.py"),
        *(
            "webhook/placement/index.py",
            "webhook/policies/scheduling/scheduler_name.py",
            "webhook/placement/machines.py",
        ),
        *("bench/reviews/data/pod.json", "bench/reviews/go/plain/main.go", "requirements.lock: msgspec"),
    } < found.keys()
    assert not [name for name in found if name.startswith(("tests/", "webhook/cli/", "webhook/kubevirt/vm/"))]
    assert sources.digests() == found


def test_a_run_is_written_and_then_current(tmp_path: Path) -> None:
    record = tmp_path / "published.json"
    (tmp_path / "docs").mkdir()
    for name in (published.README, published.PAGE):
        (tmp_path / name).write_text(PAGE)

    assert published.write(_report(), tmp_path, record) == [published.README, published.PAGE]

    written = json.loads(record.read_text())
    for name in (published.README, published.PAGE):
        page = (tmp_path / name).read_text()
        assert page.startswith("Before.\n")
        assert page.endswith("After.\n")
        assert "old" not in page
        assert TITLES["plain"] in page
    row = "| launcher pod, 11.6 kB | **kubevirt-webhook** | **100** | **1** |"
    assert row in (tmp_path / published.PAGE).read_text()
    assert "| launcher pod, 11.6 kB | 100 | 300 |" in (tmp_path / published.README).read_text()
    assert published.faults(written, written["sources"], tmp_path) == []

    one = next(iter(written["sources"]))
    assert published.faults(written, {**written["sources"], one: "other"}, tmp_path) == [f"{one}: changed"]
    (tmp_path / published.README).write_text(PAGE)
    assert [each.partition(":")[0] for each in published.faults(written, written["sources"], tmp_path)] == ["README.md"]


def test_the_pages_have_a_place_for_the_figures() -> None:
    record = json.loads(published.RECORD.read_text())

    assert published.faults({**record, "sources": {}}, {}) == []


def _report() -> ReviewsReport:
    servers, rounds = ["ours", "plain"], 3
    samples = [
        _sample(server, payload.name, arrival.title, round_)
        for round_ in range(rounds)
        for payload in PAYLOADS
        for arrival in arrivals(payload)
        for server in servers
    ]
    return ReviewsReport(
        ReviewsPlan(servers, rounds, Pressure(1.0, 0.1)), ReviewsOutcome(samples), {"Machine": "a machine"}
    )


def _sample(server: str, payload: str, arrival: str, round_: int) -> Sample:
    cpu = 100.0 if server == "ours" else 300.0
    return Sample(server, payload, arrival, round_, 1000, cpu, 5000.0, 1000.0, 2000.0, 3000.0, 60.0, 0.5)
