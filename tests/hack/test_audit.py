"""The audit of the lock, with a pip-audit that says what a test wants."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from hack import audit

CLEAN = {"name": "aiohttp", "version": "1.0", "vulns": []}
SKIPPED = {"name": "yarl", "skip_reason": "Dependency not found"}
BAD = {"name": "aiohttp", "version": "1.0", "vulns": [{"id": "PYSEC-1", "fix_versions": ["1.1"]}, {"id": "PYSEC-2"}]}


def audited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, status: int, *packages: Any) -> int:
    """The exit status beside a pip-audit that has this one, the only program there is."""
    program = tmp_path / "pip-audit"
    said = json.dumps({"dependencies": packages, "fixes": []})
    program.write_text(f"#!{sys.executable}\nprint({said!r})\nraise SystemExit({status})\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", os.fspath(tmp_path))
    return audit.main()


def test_what_is_known_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert audited(tmp_path, monkeypatch, 0, CLEAN, SKIPPED) == 0
    assert capsys.readouterr().out == (
        "audit: no known vulnerabilities in requirements.lock and requirements-dev.lock; "
        "the database does not know yarl\n"
    )
    assert audited(tmp_path, monkeypatch, 1, CLEAN, BAD) == 1
    assert capsys.readouterr().err.splitlines() == [
        "audit: aiohttp 1.0 has PYSEC-1, fixed in 1.1",
        "audit: aiohttp 1.0 has PYSEC-2, fixed in no version yet",
    ]
