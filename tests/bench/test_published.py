"""The figures in the pages say which code they are of: a change of it is noticed, and a change of words is not."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

from bench.reviews import published, sources
from bench.reviews.load import Pressure, Sample
from bench.reviews.payloads import PAYLOADS
from bench.reviews.ratios import Ratio
from bench.reviews.report import ReviewsReport
from bench.reviews.rounds import BUSY, STEADY, ReviewsOutcome, ReviewsPlan, arrivals
from bench.reviews.servers import TITLES
from webhook.placement.machines import Migration, MigrationSpec

PAGE = "Before.\n\n<!-- make bench writes from here -->\n\nold\n\n<!-- to here -->\n\nAfter.\n"

CODE = '''
"""What it is."""

def f(x: int) -> str:
    """What it does."""
    # Why.
    return f"{x} pods" if x > 1 else "a pod"
'''


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("What it is.", "Another word."),
        ('    """What it does."""\n', ""),
        ("# Why.", "# For another reason."),
        ("a pod", "one pod"),
        ("{x} pods", "{x} Pods"),
        ("    return ", "    return  "),
    ],
)
def test_words_do_not_count(old: str, new: str) -> None:
    assert sources.normalized(CODE.replace(old, new)) == sources.normalized(CODE)


@pytest.mark.parametrize(
    ("old", "new"), [("x > 1", "x > 2"), ("x > 1", "x >= 1"), ("def f", "def g"), ("x: int", "y: int")]
)
def test_code_counts(old: str, new: str) -> None:
    assert sources.normalized(CODE.replace(old, new)) != sources.normalized(CODE)


def test_of_a_view_all_views_below_it_count() -> None:
    assert {Migration, MigrationSpec} < sources.views(Migration)
    assert all(issubclass(each, msgspec.Struct) for each in sources.views(Migration))


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


def test_what_has_changed_is_named() -> None:
    then = {"a.py": "1", "b.py": "1", "c.py": "1"}

    assert sources.changed(then, then) == []
    assert sources.changed(then, {"a.py": "1", "b.py": "2", "d.py": "1"}) == [
        "b.py: changed",
        "c.py: no longer on the path",
        "d.py: new on the path",
    ]


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


@pytest.mark.parametrize("page", ["", PAGE + PAGE])
def test_a_page_without_one_place_is_a_mistake(page: str) -> None:
    with pytest.raises(ValueError, match="places"):
        published.replaced(page, "table")


def test_the_pages_have_a_place_for_the_figures() -> None:
    record = json.loads(published.RECORD.read_text())

    assert published.faults({**record, "sources": {}}, {}) == []


@pytest.mark.parametrize(
    ("ratio", "shares"),
    [
        (Ratio("plain", "pod", BUSY.title, 3.4, 2.9, 3.5, 4.5), ["1/3.4 of", "1/3.5 to 1/2.9", "1/4.5: NOT met"]),
        (Ratio("partial", "pod", BUSY.title, 0.8, 0.5, 1.25, None), ["1.25 times", "0.80 to 2.00"]),
        (Ratio("plain", "pod", STEADY.title, 2.5, 2.5, 2.5, 2.5), ["p99", "1/2.5 of", "1/2.5: met"]),
    ],
)
def test_a_ratio_its_range_and_its_aim_read_in_one_direction(ratio: Ratio, shares: list[str]) -> None:
    assert [share for share in shares if share not in str(ratio)] == []


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
