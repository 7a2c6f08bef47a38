"""The hour under churn at its smallest: everything that changes in it does, and the replica answers all of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.churn.__main__ import main
from bench.churn.samples import ChurnOutcome


def test_it_runs_at_its_smallest(binaries: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, svg = tmp_path / "churn.json", tmp_path / "churn.svg"
    words = "--seconds 12 --every 1 --nodes 20 --vms 10 --steps 12 --settings 3 --rotations 5"

    # What so few samples say of growth is not asserted.
    assert main([*words.split(), "--json", str(file), "--svg", str(svg)]) in (0, 1)

    found = ChurnOutcome.load(file)
    kept = {verdict.what: verdict.kept for verdict in found.verdicts()}
    assert kept["every review is answered"], capsys.readouterr().out
    assert kept["no error in the log"], found.errors
    assert kept["no store is older than 150 s"]
    assert {
        "create VM",
        "create VMI",
        "create pod",
        "update VM",
        "create migration",
        "evict pod",
    } <= found.counts.keys()
    assert {"heartbeat of a node", "settings written", "CA rotated"} <= found.counts.keys()
    assert found.replica["kubevirt_webhook_requests_total"] > 20
    assert svg.read_text().startswith("<svg")
