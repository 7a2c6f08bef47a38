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


@pytest.fixture
def tool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Makes a pip-audit, the only program there is."""

    def make(body: str) -> None:
        program = tmp_path / "pip-audit"
        program.write_text(f"#!{sys.executable}\n{body}\n")
        program.chmod(0o755)

    monkeypatch.setenv("PATH", os.fspath(tmp_path))
    return make


def says(*packages: Any) -> str:
    return f"print({json.dumps({'dependencies': packages, 'fixes': []})!r})"


def test_nothing_known(tool: Any, capsys: pytest.CaptureFixture[str]) -> None:
    tool(says(CLEAN, SKIPPED))

    assert audit.main() == 0
    assert capsys.readouterr().out == (
        "audit: no known vulnerabilities in requirements.lock and requirements-dev.lock; "
        "the database does not know yarl\n"
    )


def test_what_is_known_fails(tool: Any, capsys: pytest.CaptureFixture[str]) -> None:
    tool(says(CLEAN, BAD) + "\nraise SystemExit(1)")

    assert audit.main() == 1
    assert capsys.readouterr().err.splitlines() == [
        "audit: aiohttp 1.0 has PYSEC-1, fixed in 1.1",
        "audit: aiohttp 1.0 has PYSEC-2, fixed in no version yet",
    ]
