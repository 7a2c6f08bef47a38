"""A function in a process of its own: what it returns and raises, and that no end of the process is the server's."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from certs.pem import CertificateError
from webhook import apart
from webhook.errors import InputError, InputErrors
from webhook.settings.file import parse


def add(one: int, other: int) -> int:
    print("this is no part of the answer", flush=True)
    os.system("echo nor is this")
    return one + other


def variables() -> tuple[str, bool]:
    return os.environ.get("OWN", ""), os.getsid(0) == os.getpid()


def refuse(kind: str) -> None:
    if kind == "certificate":
        raise CertificateError("bad")
    raise InputError("bad", "here", "do this") if kind == "input" else KeyError(kind)


def end(status: int) -> None:
    os.write(2, b"one\nno memory\n")
    os.kill(os.getpid(), -status) if status < 0 else os._exit(status)


def children() -> set[bytes]:
    return set(subprocess.run(["pgrep", "-P", str(os.getpid())], capture_output=True).stdout.split())


@pytest.fixture(autouse=True)
def no_zombie_is_left() -> Iterator[None]:
    before = children()
    yield
    assert children() <= before


def test_what_it_returns_and_from_where_it_runs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A module of the working directory is not taken for this program's, and no directory is written to."""
    (tmp_path / "webhook.py").write_text("raise SystemExit('another program')")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TMPDIR", "/nonexistent")
    monkeypatch.setenv("OWN", "1")
    waiting = apart.begin(f"{__name__}:variables")
    monkeypatch.setenv("OWN", "2")
    assert (apart.call(f"{__name__}:add", 3, 4), waiting()) == (7, ("1", True))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["webhook.py"]


def test_mistakes_are_raised_as_they_are() -> None:
    with pytest.raises(CertificateError, match=r"^bad$"):
        apart.call(f"{__name__}:refuse", "certificate")
    with pytest.raises(InputError, match=r"^here: bad; do this$"):
        apart.call(f"{__name__}:refuse", "input")
    data = b"scheduling: {clusterWide: 3}\nunknown: 1\n"
    with pytest.raises(InputErrors) as here:
        parse(data, "s.yaml")
    with pytest.raises(InputErrors) as there:
        apart.begin("webhook.settings.file:parse", data, "s.yaml")()
    assert [each.args for each in there.value.mistakes] == [each.args for each in here.value.mistakes]


@pytest.mark.parametrize(
    ("function", "argument", "why"),
    [
        *(("end", 3, "exit status 3; no memory"), ("end", -9, "exit status -9; no memory")),
        *(("end", 0, r"its answer cannot be read \(EOFError\)"), ("refuse", "bug", "exit status 1; KeyError: 'bug'")),
        ("gone", 1, "exit status 1; AttributeError: .*"),
    ],
)
def test_an_end_without_an_answer(function: str, argument: object, why: str) -> None:
    with pytest.raises(apart.ProcessFailed, match=f"^{why}$"):
        apart.call(f"{__name__}:{function}", argument)


def test_one_that_never_answers_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(apart, "_SECONDS", 1.0)
    with pytest.raises(apart.ProcessFailed, match=r"timed out after 1\.0 seconds"):
        apart.call("time:sleep", 600)


def test_no_program_and_garbage(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    broken = tmp_path / "python"
    monkeypatch.setattr(sys, "executable", str(broken))
    with pytest.raises(apart.ProcessFailed, match="No such file"):
        apart.call("time:time")
    broken.write_text("#!/bin/sh\ncat >/dev/null\necho garbage\n")
    broken.chmod(0o755)
    with pytest.raises(apart.ProcessFailed, match=r"^its answer cannot be read \(\w+\)$"):
        apart.call("time:time")
