from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from hack.node import requirements

ROOT = Path(__file__).parents[2]


def test_what_is_missing_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    for attribute, value, word in (("platform", "darwin", "Linux"), ("platform", "linux", "root")):
        monkeypatch.setattr(sys, attribute, value)
        monkeypatch.setattr(os, "geteuid", lambda: 1000)
        assert word in requirements.missing()
        assert "\n" not in requirements.missing()


def test_the_tests_beside_nodes_and_guests_are_the_make_targets_alone() -> None:
    """Elsewhere they could only fail."""
    for name, directory in (("hack.node", "node"), ("hack.guests", "guests")):
        assert name in (ROOT / "Makefile").read_text()
        assert "collect_ignore_glob" in (ROOT / "tests" / directory / "conftest.py").read_text()


def test_ci_runs_what_there_is_on_a_node_last() -> None:
    """What costs most is run when everything else is green; a guest is even more than a node."""
    commands = [line for line in (ROOT / ".ci" / "run").read_text().splitlines() if line.startswith("make ")]
    assert commands[-2:] == ["make node-gate", "make guests-gate"]
