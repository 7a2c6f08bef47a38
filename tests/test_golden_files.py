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


def test_parameters_with_the_same_text_share_a_section(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said = {"test_x[a]": "one", "test_x[b]": "one", "test_x[c]": "two", "test_x[a] (2)": "two", "test_x[b] (2)": "two"}
    for section, text in said.items():
        golden_files.check_section("a.txt", section, text)

    assert (folder / "a.txt").read_text().count("=== ") == 3
    monkeypatch.delenv("REWRITE_GOLDEN")
    for section, text in said.items():
        golden_files.check_section("a.txt", section, text)
    with pytest.raises(AssertionError, match=r"a\.txt"):
        golden_files.check_section("a.txt", "test_x[b]", "two")
    with pytest.raises(AssertionError, match=r"a\.txt"):
        golden_files.check_section("a.txt", "test_x[c]", "one")


def test_entries_are_sorted(folder: Path) -> None:
    for entry in ("b", "a", "b", "c"):
        golden_files.check_entry("b.txt", entry)

    assert (folder / "b.txt").read_text() == "a\n\nb\n\nc\n"


def test_several_workers_never_rewrite(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTEST_XDIST_WORKER", "gw0")

    with pytest.raises(AssertionError):
        golden_files.check_section("a.txt", "test_x", "one")
    assert not (folder / "a.txt").exists()
