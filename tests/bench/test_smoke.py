"""Every benchmark runs at its smallest, and prints a row for each thing that it measures; no figure is asserted."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Iterator

import pytest

from bench.commands.__main__ import main as commands
from bench.complexity.__main__ import main as complexity
from bench.index import rounds
from bench.index.__main__ import main as index
from bench.instancetypes.__main__ import main as instancetypes
from bench.reliability.__main__ import main as reliability
from bench.start.__main__ import main as start


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(rounds, "_SAMPLE_SECONDS", 0.0)
    # What is frozen stays: every later search for garbage would visit all collected tests (tests/conftest.py).
    monkeypatch.setattr(gc, "unfreeze", lambda: None)
    cores = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else None
    yield
    if cores:
        os.sched_setaffinity(0, cores)


@pytest.mark.parametrize(
    ("program", "words", "printed"),
    [
        (commands, "--vms 4 --nodes 2 --rounds 1", " MB at most"),
        (complexity, "--only pinned --bytes 2000", "VM, pinned to a revision"),
        (index, "--nodes 60 --rounds 1 --markdown", "60 nodes with "),
        (instancetypes, "--quick", "x ours"),
        (reliability, "bodies --scale 0.05", "reviews of 7 MiB from 3 clients"),
        (reliability, "lists --scale 0.1", "50 dry-run migrations at a time"),
    ],
)
def test_it_runs(
    program: Callable[[list[str]], int], words: str, printed: str, capsys: pytest.CaptureFixture[str]
) -> None:
    # Attacks on a busy machine may leave failures, which the second status says.
    assert program(words.split()) in ((0, 1) if "lists" in words else (0,))

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
