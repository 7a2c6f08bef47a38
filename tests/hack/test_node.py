from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from hack.node import requirements

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("fault", "word"),
    [
        ("platform", "Linux"),
        ("user", "root"),
        ("program", "unshare"),
        ("memory", "3 GiB"),
        ("probe", "not permitted"),
        ("", ""),
    ],
)
def test_what_is_missing_is_one_line(fault: str, word: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin" if fault == "platform" else "linux")
    monkeypatch.setattr(os, "geteuid", lambda: 1000 if fault == "user" else 0)
    monkeypatch.setattr(os, "sysconf", lambda _: 1 if fault == "memory" else 1 << 20)
    monkeypatch.setattr(shutil, "which", lambda name: None if fault == "program" and name == "unshare" else name)
    monkeypatch.setattr(Path, "read_text", lambda _: "nodev\toverlay\n")
    monkeypatch.setattr(Path, "iterdir", lambda _: iter([Path("memory")]))
    why = "Operation not\npermitted" if fault == "probe" else ""
    monkeypatch.setattr(
        subprocess, "run", lambda *_, **__: subprocess.CompletedProcess([], int(fault == "probe"), "", why)
    )

    said = requirements.missing()

    assert word in said
    assert "\n" not in said
    assert bool(said) is bool(fault)


def test_the_tests_beside_a_node_are_the_make_targets_alone() -> None:
    """Elsewhere they could only fail."""
    assert "hack.node" in (ROOT / "Makefile").read_text()
    assert "collect_ignore_glob" in (ROOT / "tests" / "node" / "conftest.py").read_text()
