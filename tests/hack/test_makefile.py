"""Targets of the Makefile leave alone what others use."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.skipif(not shutil.which("make"), reason="make is missing")
def test_an_environment_that_works_is_added_to(tmp_path: Path) -> None:
    binaries = tmp_path / "venv" / "bin"
    binaries.mkdir(parents=True)
    (binaries / "python").write_text("#!/bin/sh\nexit 0\n")
    (binaries / "python").chmod(0o755)
    serving = tmp_path / "venv" / "a-server-runs-from-it"
    serving.touch()

    command = ["make", "--silent", "light", f"VENV={tmp_path / 'venv'}"]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)

    assert ran.returncode == 0, ran.stderr
    assert "setting up" not in ran.stdout
    assert serving.exists()


@pytest.mark.skipif(not shutil.which("make"), reason="make is missing")
def test_one_that_does_not_work_is_made_again(tmp_path: Path) -> None:
    (tmp_path / "venv" / "bin").mkdir(parents=True)
    left = tmp_path / "venv" / "of-another-python"
    left.touch()

    command = ["make", "--silent", "light", f"VENV={tmp_path / 'venv'}", "PIP=true"]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)

    assert ran.returncode == 0, ran.stderr
    assert "setting up" in ran.stdout
    assert not left.exists()
