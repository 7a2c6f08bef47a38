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


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (says(SKIPPED, SKIPPED), "knows none of the 2 packages"),
        ("import sys; sys.exit('ConnectionError: no route')", "reached no database (ConnectionError: no route)"),
        ("import time; time.sleep(60)", "found no end"),
    ],
)
def test_without_a_database_one_line_says_so(
    tool: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, body: str, why: str
) -> None:
    monkeypatch.setattr(audit, "SECONDS", 0.5 if "sleep" in body else 60)
    tool(body)

    assert audit.main() == 0
    out, err = capsys.readouterr()
    assert (out.count("\n"), err) == (1, "")
    assert why in out


def test_without_pip_audit_one_line_says_so(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", os.fspath(tmp_path))

    assert audit.main() == 0
    assert capsys.readouterr().out.startswith("audit: skipped: pip-audit is not installed")
