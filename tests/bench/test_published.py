"""The figures in the pages say which code they are of: a change of it is noticed, and a change of words is not."""

from __future__ import annotations

import json
from pathlib import Path

from bench.reviews import published, sources
from bench.reviews.load import Pressure, Sample
from bench.reviews.payloads import PAYLOADS
from bench.reviews.report import ReviewsReport
from bench.reviews.rounds import ReviewsOutcome, ReviewsPlan, arrivals

PAGE = "Before.\n\n<!-- make bench writes from here -->\n\nold\n\n<!-- to here -->\n\nAfter.\n"


def test_the_request_path_is_found_out() -> None:
    found = sources.digests()

    path = ("server/edge.py", "review/reviewer.py", "placement/index.py", "policies/scheduling/scheduler_name.py")
    assert {"bench/reviews/go/plain/main.go", "requirements.lock: msgspec", *(f"webhook/{one}" for one in path)} <= {
        *found
    }
    assert not [name for name in found if name.startswith(("tests/", "webhook/cli/", "webhook/kubevirt/vm/"))]


def test_a_run_is_written_and_then_current(tmp_path: Path) -> None:
    record = tmp_path / "published.json"
    (tmp_path / "docs").mkdir()
    for name in (published.README, published.PAGE):
        (tmp_path / name).write_text(PAGE)
    servers = ["ours", "plain"]
    samples = [
        Sample(server, payload.name, arrival.title, 0, 1000, cpu, 5000.0, 1000.0, 2000.0, 3000.0, 60.0, 0.5)
        for payload in PAYLOADS
        for arrival in arrivals(payload)
        for server, cpu in zip(servers, (100.0, 300.0), strict=True)
    ]
    report = ReviewsReport(ReviewsPlan(servers, 1, Pressure(1.0, 0.1)), ReviewsOutcome(samples), {"Machine": "a"})

    assert published.write(report, tmp_path, record) == [published.README, published.PAGE]

    written = json.loads(record.read_text())
    row = "| launcher pod, 11.6 kB | **kubevirt-webhook** | **100** | **1** |"
    for name, part in ((published.README, "| launcher pod, 11.6 kB | 100 | 300 |"), (published.PAGE, row)):
        page = (tmp_path / name).read_text()
        assert (page[:8], page[-7:], "old" in page, part in page) == ("Before.\n", "After.\n", False, True)
    assert published.faults(written, written["sources"], tmp_path) == []
    one = next(iter(written["sources"]))
    assert published.faults(written, {**written["sources"], one: "other"}, tmp_path) == [f"{one}: changed"]
    (tmp_path / published.README).write_text(PAGE)
    assert [each.partition(":")[0] for each in published.faults(written, written["sources"], tmp_path)] == ["README.md"]


def test_the_pages_have_a_place_for_the_figures() -> None:
    record = json.loads(published.RECORD.read_text())
    assert published.faults({**record, "sources": {}}, {}) == []
