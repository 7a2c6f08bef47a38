"""Servers as processes: what a test learns of one that fails, and that none survives."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from .support.processes import Process, StartError, free_port


def process(tmp_path: Path, script: str) -> Process:
    return Process("server", [shutil.which("sh") or "/bin/sh", "-c", script], tmp_path / "server.log")


def state(pid: int) -> str:
    """The state letter of a process: S sleeps, T is stopped."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def test_one_that_ends_shows_its_log(tmp_path: Path) -> None:
    server = process(tmp_path, "echo no such flag; exit 3")
    server.start()

    with pytest.raises(StartError, match=r"server ended before it was ready \(exit code 3\).*\n  no such flag"):
        server.wait_ready(lambda: False)
    assert not server.running


def test_one_that_never_gets_ready_shows_its_log(tmp_path: Path) -> None:
    server = process(tmp_path, "echo waiting for a database; exec sleep 60")
    server.start()

    with pytest.raises(StartError, match=r"server was not ready after 1 seconds.*\n  waiting for a database"):
        server.wait_ready(lambda: False, timeout=1)
    server.stop()


def test_ready_is_asked_again_while_nobody_listens(tmp_path: Path) -> None:
    server = process(tmp_path, "exec sleep 60")
    server.start()
    answers = iter([ConnectionRefusedError(), None])

    def ready() -> bool:
        if error := next(answers):
            raise error
        return True

    server.wait_ready(ready)
    server.kill()


def test_one_that_ignores_the_request_to_end_is_killed(tmp_path: Path) -> None:
    server = process(tmp_path, "trap '' TERM; echo up; while :; do sleep 0.1; done")
    server.start()
    server.wait_ready(lambda: server.log.read_text() == "up\n")

    server.stop(grace=0.3)

    assert not server.running


def test_it_freezes_and_goes_on(tmp_path: Path) -> None:
    server = process(tmp_path, "echo up; exec sleep 60")
    server.start()
    server.wait_ready(lambda: server.log.read_text() == "up\n")

    server.pause()
    server.wait_ready(lambda: state(server.pid) == "T")
    server.resume()
    server.wait_ready(lambda: state(server.pid) == "S")
    server.stop()


def test_it_is_not_started_twice(tmp_path: Path) -> None:
    server = process(tmp_path, "exec sleep 60")
    with pytest.raises(StartError, match="it isn't running"):
        _ = server.pid
    server.start()
    with pytest.raises(StartError, match="server is running already"):
        server.start()
    server.stop()
    server.stop()  # nothing to do


def test_ports_differ() -> None:
    assert len({free_port() for _ in range(200)}) == 200
