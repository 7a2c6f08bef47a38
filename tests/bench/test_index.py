"""The benchmark of the node index runs and reports its results; this module does not assert how fast it is."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.index import rounds
from bench.index.__main__ import main
from bench.index.cluster import nodes
from bench.index.report import IndexReport
from bench.index.rounds import Figure, IndexOutcome, IndexPlan
from webhook.placement.eligibility import Eligibility
from webhook.placement.index import NodeIndex
from webhook.placement.requirements import Requirements


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(rounds, "_SAMPLE_SECONDS", 0.0)
    cores = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else None
    yield
    if cores:
        os.sched_setaffinity(0, cores)


def test_the_cluster_is_the_same_every_time_and_labelled_like_real_ones() -> None:
    cluster = list(nodes(50))

    assert cluster == list(nodes(50))
    sizes = sorted(len(node["metadata"]["labels"]) for node in cluster)
    assert (sizes[0], sizes[9]) == (15, 15)
    assert 75 < sizes[10] <= sizes[-1] < 110


def test_a_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "figures.json"

    assert main(["--nodes", "60", "--rounds", "1", "--markdown", "--json", str(file)]) == 0

    figures = json.loads(file.read_text())["figures"]
    assert [figure["aim"] for figure in figures] == [0.5, 0.5, 0.1, 0.1]
    assert all(figure["index"] > 0 and figure["other"] > 0 for figure in figures)
    printed = capsys.readouterr().out
    assert printed.count("\n| ") == 1 + len(figures)
    assert "60 nodes with " in printed


def test_answers_that_differ_are_worth_no_figure(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def blind(index: NodeIndex, requirements: Requirements) -> Eligibility:
        return Eligibility((), 0, 0, ())

    monkeypatch.setattr(NodeIndex, "review", blind)

    assert main(["--nodes", "60", "--rounds", "1"]) == 1
    assert "the index answers otherwise than looking at each node" in capsys.readouterr().err


def test_aims(capsys: pytest.CaptureFixture[str]) -> None:
    figures = (Figure("a", 0.1, 50.0, 0.5), Figure("b", 1.0, 50.0, 0.5), Figure("c", 1.0, 50.0, None))
    report = IndexReport(IndexPlan(), IndexOutcome(figures, 77.4))
    report.print()

    assert [figure.met for figure in figures] == [True, False, None]
    lines = report.markdown().splitlines()
    assert lines[2] == "| a | 0.100 | 50.0 | 1/500 | 0.5 met | looking at each node |"
    assert lines[3] == "| b | 1.000 | 50.0 | 1/50 | 0.5 NOT met | looking at each node |"
    assert "5,000 nodes with 77 labels" in lines[-1]
    assert "NOT met" in capsys.readouterr().out


@pytest.mark.parametrize("arguments", [["--nodes", "9"], ["--rounds", "0"], ["--json", "/nowhere/at/all"]])
def test_wrong_options(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(arguments)
    assert "error: argument --" in capsys.readouterr().err
