"""Servers as processes: what a test learns of one that fails, and that none survives."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from .support.processes import Process, StartError


def process(tmp_path: Path, script: str) -> Process:
    return Process("server", [shutil.which("sh") or "/bin/sh", "-c", script], tmp_path / "server.log")


def test_one_that_ends_shows_its_log(tmp_path: Path) -> None:
    server = process(tmp_path, "echo no such flag; exit 3")
    server.start()

    with pytest.raises(StartError, match=r"server ended before it was ready \(exit code 3\).*\n  no such flag"):
        server.wait_ready(lambda: False)
    assert not server.running


def test_one_that_ignores_the_request_to_end_is_killed(tmp_path: Path) -> None:
    server = process(tmp_path, "trap '' TERM; echo up; while :; do sleep 0.1; done")
    server.start()
    server.wait_ready(lambda: server.log.read_text() == "up\n")

    server.stop(grace=0.3)

    assert not server.running
