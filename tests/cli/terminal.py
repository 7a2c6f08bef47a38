"""A program on a terminal of its own."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import struct
import termios
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Self

from tests.e2e.support.processes import ROOT

# For all that a program does, on a machine that does much else.
SECONDS = 60.0


class Terminal:
    """A program on a terminal, which is read until a deadline; the program is killed at the end, if it still runs.

    Args:
        argv: the program, looked up in the environment's PATH, and its arguments.
        environ: its environment; None: that of the tests.
        directory: where it runs.
        size: rows and columns of the terminal; None: it has none.

    Attributes:
        shown: what the terminal has shown.
    """

    def __init__(
        self,
        argv: Sequence[str],
        environ: Mapping[str, str] | None = None,
        directory: Path = ROOT,
        size: tuple[int, int] | None = None,
    ) -> None:
        self.shown = b""
        self._deadline = time.monotonic() + SECONDS
        self._child, self._terminal = pty.fork()
        if not self._child:
            os.chdir(directory)
            if size:
                fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", *size, 0, 0))
            os.execvpe(argv[0], list(argv), os.environ if environ is None else environ)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._terminal)
        if self._child:
            os.kill(self._child, signal.SIGKILL)
            os.waitpid(self._child, 0)

    def read(self) -> bool:
        """Read what is shown next; False once the program has closed its terminal."""
        self._wait_for(self._terminal)
        try:
            piece = os.read(self._terminal, 65536)
        except OSError:  # On Linux that is the end of a terminal.
            return False
        self.shown += piece
        return bool(piece)

    def find(self, pattern: bytes) -> re.Match[bytes]:
        """Read until a pattern is shown; returns its first match."""
        while not (found := re.search(pattern, self.shown)):
            assert self.read(), self.shown
        return found

    def type(self, text: bytes) -> None:
        """Type a text."""
        os.write(self._terminal, text)

    def wait_until_asleep(self) -> None:
        """Wait until the program waits for something, which it does in its main thread."""
        while Path(f"/proc/{self._child}/stat").read_text().rpartition(")")[2].split()[0] != "S":
            assert time.monotonic() < self._deadline, self.shown
            time.sleep(0.01)

    def end(self) -> int:
        """Read the rest, and return the exit status."""
        while self.read():
            pass
        ended = os.pidfd_open(self._child)
        try:
            self._wait_for(ended)
        finally:
            os.close(ended)
        child, self._child = self._child, 0
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

    def _wait_for(self, descriptor: int) -> None:
        left = max(0.0, self._deadline - time.monotonic())
        assert select.select((descriptor,), (), (), left)[0], f"nothing more in {SECONDS} s after {self.shown!r}"
