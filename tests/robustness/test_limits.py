"""A process that reaches a limit of its memory is killed, or has allocations that fail; one that does not goes on."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager

import pytest

from .limits import CannotError, address_space_limit, memory_limit

# Takes so many bytes as it reads, and says so.
PROGRAM = """
import sys
print(flush=True)
kept = []
for line in sys.stdin:
    kept.append(b"x" * int(line))
    print(len(kept), flush=True)
"""
MEGABYTE = 1 << 20


def take(
    limit: Callable[[int, int], AbstractContextManager[None]], bytes_: int, *, afterwards: int = 0
) -> tuple[int, str]:
    """How a process ends that takes so much within a limit of 16 MiB, and more after it."""
    with subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", PROGRAM],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdin
        assert process.stdout
        process.stdout.readline()
        try:
            with limit(process.pid, 16 * MEGABYTE):
                process.stdin.write(f"{bytes_}\n")
                process.stdin.flush()
                process.stdout.readline()
        except CannotError as error:
            process.kill()
            pytest.skip(str(error))
        _, said = process.communicate(f"{afterwards}\n" if afterwards else None)
        return process.returncode, said


def test_a_cgroup_kills_a_process_that_reaches_its_limit() -> None:
    assert take(memory_limit, 64 * MEGABYTE) == (-signal.SIGKILL, "")
    assert take(memory_limit, MEGABYTE, afterwards=64 * MEGABYTE) == (0, "")


def test_allocations_fail_beyond_the_limit_of_the_address_space() -> None:
    status, said = take(address_space_limit, 64 * MEGABYTE)
    assert (status, said.splitlines()[-1]) == (1, "MemoryError")
    assert take(address_space_limit, MEGABYTE, afterwards=64 * MEGABYTE) == (0, "")
