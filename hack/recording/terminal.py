"""Runs the program on a terminal of its own, as a person would."""

from __future__ import annotations

import fcntl
import os
import pty
import struct
import sys
import termios
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]


def on_terminal(*words: str, columns: int = 80, rows: int = 40) -> tuple[str, int]:
    """What a command writes on a terminal, with its colors, and its exit status.

    Args:
        words: the words after the program's name.
        columns: the width of the terminal.
        rows: its height.
    """
    argv = [sys.executable, "-m", "webhook", *words]
    kept = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES", "NO_COLOR")}
    child, terminal = pty.fork()
    if not child:
        os.chdir(ROOT)
        fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        os.execve(sys.executable, argv, {**kept, "TERM": "xterm-256color"})  # noqa: S606 - the caller's own words
    written = b""
    while piece := _read(terminal):
        written += piece
    os.close(terminal)
    return written.decode().replace("\r\n", "\n"), os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65536)
    except OSError:
        # The terminal of a child that has ended.
        return b""
