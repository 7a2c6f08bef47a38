"""The reliability benchmarks run and report their results; this module does not assert their figures."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.reliability import floods, memory, together
from bench.reliability.__main__ import NAMES, main
from bench.reliability.client import Felt
from bench.reliability.errors import ReliabilityToolError
from bench.reliability.outcome import HEADER, ReliabilityOutcome, table


def test_a_flood(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bodies", "--scale", "0.05"]) == 0

    header, _, row, _, machine = capsys.readouterr().out.splitlines()
    assert header == f"| {' | '.join(HEADER)} |"
    name, attack, beside, failed, times, memory, seen = row.strip("| ").split(" | ")
    assert name == "bodies"
    assert failed.partition(" ")[0].isdigit(), "how many, which on a busy machine may be some"
    assert "reviews of 7 MiB from 3 clients" in attack
    assert int(beside) > 0
    assert len(times.split("/")) == 3
    assert int(memory) > 0
    assert "of 400" in seen
    assert "load" in machine


def test_large_objects_in_the_cluster(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["lists", "--scale", "0.1"]) in (0, 1)

    name, attack, beside, _, _, peak, seen = capsys.readouterr().out.splitlines()[2].strip("| ").split(" | ")
    assert (name, int(beside) > 0, int(peak) > 0) == ("lists", True, True)
    assert attack.startswith("50 dry-run migrations at a time")
    assert seen.startswith("answers: ")


def test_all_attacks_together(capsys: pytest.CaptureFixture[str]) -> None:
    status = main(["together", "--scale", "0.005"])

    said = capsys.readouterr()
    if status == ReliabilityToolError.exit_code:
        pytest.skip(said.err)
    name, attack, beside, _, times, memory, seen = said.out.splitlines()[2].strip("| ").split(" | ")
    assert (name, int(beside) > 0, len(times.split("/")), int(memory) > 0) == ("together", True, 3, True)
    assert attack.startswith("all attacks for 3 s; ")
    assert seen.startswith("0 restarts; ")


def test_a_machine_without_cgroups_is_named(tmp_path: Path) -> None:
    with together.limited(tmp_path / "none") as (cgroup, sentence):
        assert cgroup is None
    assert sentence == "no memory limit: no cgroup can be made here (No such file or directory)"


def test_failures_are_counted_by_what_they_were() -> None:
    felt = Felt([3.0, 1.0, 2.0])
    felt.failures.update(["429", "429", "TimeoutError"])

    assert felt.count == 6
    assert [felt.quantile(part) for part in (0, 0.5, 1)] == [1, 2, 3]
    row = ReliabilityOutcome("x", "some", felt, seen="much").row
    assert row == ("x", "some", "6", "3 (2 429, 1 TimeoutError)", "2.0/3.0/3.0", "", "much")
    assert "| x | some |" in table([ReliabilityOutcome("x", "some", felt)])


@pytest.mark.parametrize("arguments", [["nothing"], ["--scale", "0"], ["--scale", "x"], ["--scale", "2"]])
def test_what_can_not_be_run(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(arguments)
    assert "usage:" in capsys.readouterr().err


def test_names() -> None:
    assert {*floods.FLOODS, *memory.MEMORY} < set(NAMES)
    assert len(set(NAMES)) == len(NAMES)
