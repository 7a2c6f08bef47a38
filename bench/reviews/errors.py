"""What can keep the benchmark from giving figures."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path


class BenchError(Exception):
    """The benchmark can't go on; the message is one sentence for people."""

    exit_code = 1


class MissingToolError(BenchError):
    """Something that the benchmark needs is not on this machine."""

    exit_code = 2


def last_line(text: str) -> str:
    """The last line that says something: where most programs put what went wrong."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else "it printed nothing"


def run(
    what: str,
    argv: Sequence[str | Path],
    *,
    cwd: Path | None = None,
    environment: Mapping[str, str] | None = None,
    seconds: float = 600,
) -> str:
    """Run a command to its end and return what it printed.

    Args:
        what: names the command in the error, as in "building the Go servers".

    Raises:
        BenchError: it failed, or took longer than ``seconds``.
    """
    try:
        done = subprocess.run(
            argv, cwd=cwd, env=environment, capture_output=True, text=True, timeout=seconds, check=False
        )
    except subprocess.TimeoutExpired:
        raise BenchError(f"{what} took longer than {seconds:.0f} s") from None
    except OSError as error:
        raise BenchError(f"{what} failed: {error}") from None
    if done.returncode:
        raise BenchError(f"{what} failed: {last_line(done.stderr or done.stdout)}")
    return done.stdout
