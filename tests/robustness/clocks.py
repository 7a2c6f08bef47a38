"""A wall clock that is wrong in one process: a replica's, which the test sets while it runs.

The process maps a file of eight bytes, in which the test writes by how many seconds the clock is off. The monotonic
clock goes on, as it does when a real clock is set. Programs in C, such as OpenSSL, still see the right time.
"""

from __future__ import annotations

import mmap
import struct
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

_OFFSET: Final = struct.Struct("d")


def set_clock(file: Path, seconds: float) -> None:
    """Has the clock of the process that has `shifted` by this file be off by so many seconds from now on."""
    # In place: what a process has mapped is the file, not its name.
    with file.open("r+b" if file.exists() else "wb") as opened:
        opened.write(_OFFSET.pack(seconds))


def shift(file: Path) -> Callable[[], float]:
    """Has this process read the wall clock as `set_clock` sets it; returns what tells the right time.

    Modules that take `time.time` for themselves must be imported afterwards.
    """
    with file.open("r+b") as opened:
        mapped = mmap.mmap(opened.fileno(), _OFFSET.size)
    right, right_ns = time.time, time.time_ns

    def offset() -> float:
        seconds: float = _OFFSET.unpack_from(mapped)[0]
        return seconds

    time.time = lambda: right() + offset()
    time.time_ns = lambda: right_ns() + int(offset() * 1e9)
    return right
