"""What a process may still take of memory, set while it runs: as a kubelet's cgroup does it, or by its own limit."""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

_MOUNT: Final = Path("/sys/fs/cgroup")
# Of both versions of cgroups: where groups with a memory limit are made, the file of the limit, and what is no limit.
_VERSIONS: Final = ((_MOUNT, "memory.max", "max"), (_MOUNT / "memory", "memory.limit_in_bytes", "-1"))
_PATIENCE_SECONDS = 5.0


class CannotError(Exception):
    """This machine does not let a test do it; the message says why."""


@contextmanager
def memory_limit(pid: int, room: int) -> Iterator[None]:
    """A process is in a cgroup of its own, in which so many bytes are left for it; beyond them the kernel kills it.

    What it has already is not counted: pages stay with the group in which they were first used.

    Raises:
        CannotError: cgroups are not this user's to make, or do not limit memory.
    """
    group, limit, nothing = _make_group()
    home = group.parent / "cgroup.procs"
    try:
        try:
            (group / limit).write_text(str(room))
            if limit == "memory.max":
                with suppress(OSError):  # there is none where nothing can be swapped
                    (group / "memory.swap.max").write_text("0")
            (group / "cgroup.procs").write_text(str(pid))
        except OSError as error:
            raise CannotError(f"{group} does not take a limit or a process: {error.strerror}") from None
        yield
    finally:
        with suppress(OSError):
            (group / limit).write_text(nothing)
        # Gone, or a zombie, where the limit was reached.
        with suppress(OSError):
            home.write_text(str(pid))
        _remove(group)


def _make_group() -> tuple[Path, str, str]:
    why = f"{_MOUNT} has no cgroups that limit memory"
    for parent, limit, nothing in _VERSIONS:
        group = parent / f"robustness-{os.getpid()}-{time.monotonic_ns()}"
        try:
            group.mkdir()
        except OSError as error:
            why = f"no cgroup can be made in {parent}: {error.strerror}"
            continue
        if (group / limit).exists():
            return group, limit, nothing
        _remove(group)
    raise CannotError(why)


def _remove(group: Path) -> None:
    """Of a group that a killed process leaves a moment after it was killed."""
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while group.exists() and time.monotonic() < deadline:
        with suppress(OSError):
            group.rmdir()
            return
        time.sleep(0.05)


@contextmanager
def address_space_limit(pid: int, room: int) -> Iterator[None]:
    """A process may map so many bytes more than it has; beyond them its allocations fail.

    Raises:
        CannotError: this system has no such limit of another process.
    """
    if not hasattr(resource, "prlimit"):
        raise CannotError("only Linux limits the memory of another process that runs")
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[0])
    _, most = resource.prlimit(pid, resource.RLIMIT_AS)
    resource.prlimit(pid, resource.RLIMIT_AS, (pages * resource.getpagesize() + room, most))
    try:
        yield
    finally:
        with suppress(ProcessLookupError):
            resource.prlimit(pid, resource.RLIMIT_AS, (most, most))
