"""bench/options.py: bad options end before anything is measured."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from bench.options import at_least, writable


@pytest.mark.parametrize("text", ["9", "-10", "ten", "", "1e3"])
def test_a_number_that_is_too_small_or_none(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="is no whole number from 10 on"):
        at_least(10)(text)


def test_a_number_that_will_do() -> None:
    assert at_least(10)("10") == 10


def test_a_file_that_can_be_written(tmp_path: Path) -> None:
    assert writable(str(tmp_path / "new.json")) == tmp_path / "new.json"


@pytest.mark.parametrize("name", ["", "gone/new.json"])
def test_a_directory_or_a_file_in_none(tmp_path: Path, name: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="can't be written"):
        writable(str(tmp_path / name))
