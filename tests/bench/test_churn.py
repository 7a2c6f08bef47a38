"""What the hour under churn says of its samples: growth is found under noise, and noise is no growth."""

from __future__ import annotations

import math
import random
import xml.etree.ElementTree as ET
from collections.abc import Callable
from pathlib import Path

import pytest

from bench.churn.__main__ import main
from bench.churn.plot import plot
from bench.churn.samples import ChurnOutcome, Sample, counters, staleness, tasks
from bench.churn.trend import independent, percentile, trend

HOUR = 3600
EVERY = 5
METRICS = """\
# TYPE kubevirt_webhook_staleness_seconds gauge
kubevirt_webhook_staleness_seconds{watch="namespaces"} 12.5
kubevirt_webhook_staleness_seconds{watch="nodes"} 3.0
kubevirt_webhook_event_loop_tasks 31.0
kubevirt_webhook_events_total{result="written"} 2.0
kubevirt_webhook_decisions_total{policy="scheduling",mode="enforce"} 4.0
kubevirt_webhook_decisions_total{policy="migration",mode="enforce"} 3.0
"""


def noisy(seed: int, slope: float = 0.0, kept: float = 0.9) -> tuple[list[float], list[float]]:
    """Samples of an hour, of which each is much like the one before; the slope is in an hour."""
    dice, noise = random.Random(seed), 0.0
    times, values = [], []
    for at in range(0, HOUR, EVERY):
        noise = kept * noise + dice.gauss(0, 0.5)
        times.append(float(at))
        values.append(150 + slope * at / HOUR + noise)
    return times, values


def test_noise_that_lasts_is_no_growth() -> None:
    found = [trend(*noisy(seed)).grows for seed in range(200)]

    # One in forty would be expected; a line through samples that were taken for independent finds many more.
    assert sum(found) <= 16


def test_growth_is_found_under_noise() -> None:
    found = [trend(*noisy(seed, slope=5.0)) for seed in range(50)]

    assert all(each.grows for each in found)
    assert sum(abs(each.slope - 5.0) <= each.margin for each in found) >= 40


def test_samples_that_depend_on_each_other_are_fewer() -> None:
    dice = random.Random(1)
    alone = [dice.gauss(0, 1) for _ in range(500)]
    held = [value - 150 for value in noisy(1)[1]]

    assert independent(alone) > 400
    assert independent(held) < len(held) / 8
    assert independent([0.0] * 7) == 7


def test_of_too_few_samples_nothing_is_said() -> None:
    assert trend([1.0, 2.0], [1.0, 9.0]).margin == math.inf
    assert not trend([], []).grows
    assert math.isnan(percentile([], 0.5))
    assert [percentile([3.0, 1.0, 2.0], share) for share in (0.01, 0.5, 0.99)] == [1.0, 2.0, 3.0]


def outcome(change: Callable[[Sample], Sample] = lambda sample: sample) -> ChurnOutcome:
    """A run in which everything stays as it is, but for a change."""
    dice = random.Random(3)
    made = ChurnOutcome("2026-01-01 00:00 UTC", "a machine", {"nodes": 50, "vms": 20}, 600.0)
    for at in range(EVERY, HOUR, EVERY):
        seconds = [dice.uniform(0.004, 0.02) for _ in range(10)]
        load = {"cpu": at * 0.02, "all_cpu": at * 0.2, "load": 2.0, "seconds": seconds}
        sample = Sample(
            at=float(at),
            resident=150 + dice.gauss(0, 0.4),
            anonymous=120.0,
            descriptors=30 + dice.randrange(4),
            tasks=28 + dice.randrange(5),
            staleness=dice.uniform(1, 60),
            **load,  # type: ignore[arg-type]
        )
        made.samples.append(change(sample))
    made.marks = [(900.0, "settings written"), (1200.0, "CA rotated")]
    made.counts.update({"create VM": 7, "create migration: 403": 2})
    made.replica = {"kubevirt_webhook_decisions_total": 12.0, "kubevirt_webhook_panics_total": 0.0}
    return made


def changed(**values: Callable[[Sample], object]) -> Callable[[Sample], Sample]:
    def change(sample: Sample) -> Sample:
        return Sample(**{**vars(sample), **{name: read(sample) for name, read in values.items()}})

    return change


def broken(found: ChurnOutcome) -> list[str]:
    return [verdict.what for verdict in found.verdicts() if not verdict.kept]


def test_a_run_in_which_nothing_grows_keeps_all() -> None:
    found = outcome()

    assert broken(found) == []
    text = "\n".join(found.lines())
    assert "of one core the replica took 2.0%, and it with the API server, etcd and the clients 20.0%" in text
    assert "create migration: 403" in text
    assert "panics" not in text


@pytest.mark.parametrize(
    ("change", "what"),
    [
        (changed(resident=lambda sample: sample.resident + 2 * sample.at / HOUR), "memory does not grow"),
        # One at each rotation of the CA.
        (changed(descriptors=lambda sample: sample.descriptors + sample.at // 600), "no file descriptor stays"),
        (changed(tasks=lambda sample: sample.tasks + sample.at // 600), "no task stays"),
        (
            changed(seconds=lambda sample: [each * (1 + sample.at / HOUR) for each in sample.seconds]),
            "p99 does not grow",
        ),
        (
            changed(staleness=lambda sample: 151.0 if sample.at == 2000 else sample.staleness),
            "no store is older than 150 s",
        ),
    ],
)
def test_each_broken_promise_is_found(change: Callable[[Sample], Sample], what: str) -> None:
    assert what in broken(outcome(change))


def test_the_warm_up_counts_for_nothing() -> None:
    assert broken(outcome(changed(resident=lambda sample: sample.resident - (50 if sample.at < 600 else 0)))) == []


def test_failed_reviews_and_errors_in_the_log_are_broken_promises() -> None:
    found = outcome()
    found.counts["create pod: 500"] = 1
    found.errors.append("internal error while a request was answered")

    assert broken(found) == ["every review is answered", "no error in the log"]


@pytest.mark.parametrize("text", ["", "[]", "{}", "null", '{"samples": [{}], "marks": []}'])
def test_a_file_of_something_else_is_not_drawn(tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str) -> None:
    file = tmp_path / "churn.json"
    file.write_text(text)
    assert main(["--draw", str(file)]) == 1
    assert "has no samples of this benchmark" in capsys.readouterr().err


def test_a_run_is_written_read_and_drawn_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found, file, svg = outcome(), tmp_path / "churn.json", tmp_path / "churn.svg"
    found.save(file)

    assert ChurnOutcome.load(file).lines() == found.lines()
    assert main(["--draw", str(file), "--svg", str(svg)]) == 0
    assert "kept    memory does not grow" in capsys.readouterr().out
    root = ET.fromstring(svg.read_text())
    lines = [each.get("points", "").split() for each in root.iter("{http://www.w3.org/2000/svg}polyline")]
    assert sum(len(points) == len(found.samples) for points in lines) == 4
    assert all(0 <= float(x) <= 860 for points in lines for x in (point.split(",")[0] for point in points))
    texts = [each.text for each in root.iter("{http://www.w3.org/2000/svg}text")]
    assert {"memory (RSS)", "file descriptors", "p99"} <= set(texts)
    assert texts.count("▼") == 4

    # A store that is not proved to be of etcd's present is infinitely stale, and the others are still drawn.
    lost = outcome(changed(staleness=lambda sample: math.inf if sample.at > 600 else sample.staleness))
    assert "inf" not in plot(lost)

    # Without any sample it is a picture, too.
    ET.fromstring(plot(ChurnOutcome("now", "here", {"nodes": 1, "vms": 1}, 0.0)))


def test_what_is_read_of_the_metrics() -> None:
    assert staleness(METRICS) == {"namespaces": 12.5, "nodes": 3.0}
    assert tasks(METRICS) == 31
    assert counters(METRICS) == {"kubevirt_webhook_events_total written": 2.0, "kubevirt_webhook_decisions_total": 7.0}
