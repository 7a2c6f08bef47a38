"""Golden files: differences are found, equal texts are stored once, and the order of tests does not matter."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import golden_files


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Golden files in a directory of the test's own, which are rewritten."""
    monkeypatch.setattr(golden_files, "GOLDEN", tmp_path)
    monkeypatch.setattr(golden_files, "_begun", set())
    monkeypatch.setenv("REWRITE_GOLDEN", "1")
    monkeypatch.delenv("PYTEST_XDIST_WORKER", raising=False)
    return tmp_path


def test_a_text_that_differs_is_found(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    golden_files.check_section("a.txt", "test_x", "one")
    golden_files.check_entry("b.txt", "one")
    monkeypatch.delenv("REWRITE_GOLDEN")
    golden_files.check_section("a.txt", "test_x", "one\n")
    golden_files.check_entry("b.txt", "one")
    with pytest.raises(AssertionError, match=r"a\.txt"):
        golden_files.check_section("a.txt", "test_x", "two")
    with pytest.raises(AssertionError):
        golden_files.check_section("a.txt", "test_y", "one")
    with pytest.raises(AssertionError):
        golden_files.check_entry("b.txt", "two")
