"""A start can be measured, and the output has its figures; the tests check no figure."""

from __future__ import annotations

import asyncio
import sys
import time
from pathlib import Path

import pytest

from bench.start import turns
from bench.start.__main__ import main


def test_a_start(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["bench.start", "--rounds", "1", "--nodes", "5", "--namespaces", "4"])

    assert main() == 0

    said, _, header, _, small, large, *_ = capsys.readouterr().out.splitlines()
    assert said.startswith("--help: ")
    assert "idle MB" in header
    cells = [[float(cell) for cell in row.strip("| ").split(" | ")] for row in (small, large)]
    assert [row[:2] for row in cells] == [[3, 3], [5, 4]]
    # No turn of so small a cluster need be long enough to be noted.
    turns_begin = next(place for place, name in enumerate(header.strip("| ").split(" | ")) if "turn" in name)
    assert all(figure > 0 for row in cells for figure in row[:turns_begin])


@pytest.mark.parametrize("arguments", [["--nodes", "0"], ["--rounds", "x"]])
def test_what_can_not_be_run(
    arguments: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["bench.start", *arguments])
    with pytest.raises(SystemExit, match="2"):
        main()
    assert "usage:" in capsys.readouterr().err


def test_a_long_turn_of_the_event_loop_is_noted(tmp_path: Path) -> None:
    file = tmp_path / "turns"

    async def stall() -> tuple[float, float]:
        await asyncio.sleep(0)
        begin = time.monotonic()
        time.sleep(0.02)
        end = time.monotonic()
        await asyncio.sleep(0.005)
        return begin, end

    with asyncio.Runner(loop_factory=turns.noting(asyncio.new_event_loop, file)) as runner:
        begin, end = runner.run(stall())

    assert turns.read(file, begin, float("inf"))
    assert turns.read(file, end + 60, float("inf")) == []
