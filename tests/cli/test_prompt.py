from __future__ import annotations

import os
import pty
import select
import signal
import sys
import time
from pathlib import Path
from typing import Self

from tests.e2e.support.processes import ROOT

# A command's prompt, while asyncio runs it.
PROGRAM = """
import asyncio
from unittest import mock
import click
from webhook.cli import main, prompt

@click.command()
def install():
    async def run():
        print("went on" if prompt.confirm("Apply?", yes=False) else "did not")
    asyncio.run(run())

with mock.patch.object(main.Lazy, "get_command", lambda *_: install):
    main.main(["install"])
"""


# For all that the child does, on a machine that does much else.
SECONDS = 60.0


class Terminal:
    """The program on a terminal of its own, which is read until a deadline; the program is killed there."""

    def __init__(self) -> None:
        self.shown = b""
        self._deadline = time.monotonic() + SECONDS
        self._child, self._terminal = pty.fork()
        if not self._child:
            os.chdir(ROOT)
            os.execv(sys.executable, [sys.executable, "-c", PROGRAM])

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
            piece = os.read(self._terminal, 4096)
        except OSError:  # On Linux that is the end of a terminal.
            return False
        self.shown += piece
        return bool(piece)

    def answer(self, answer: bytes) -> None:
        """Type an answer once the prompt waits for it.

        CPython looks at signals for the last time before it reads: one that came between the two would be noticed only
        after a line. So the prompt's last space must have come, and the child must sleep: in that read.
        """
        while not self.shown.endswith(b"[y/N]: "):
            assert self.read(), self.shown
        while Path(f"/proc/{self._child}/stat").read_text().rpartition(")")[2].split()[0] != "S":
            assert time.monotonic() < self._deadline, self.shown
            time.sleep(0.01)
        os.write(self._terminal, answer)

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


def answered(answer: bytes) -> tuple[str, int]:
    """What a terminal shows once the prompt is answered, and the exit status."""
    with Terminal() as terminal:
        terminal.answer(answer)
        status = terminal.end()
    return terminal.shown.decode(), status


def test_one_ctrl_c_ends_a_prompt() -> None:
    shown, status = answered(b"\x03")
    assert (status, "went on" in shown) == (130, False)


def test_answers() -> None:
    assert "went on" in answered(b"y\n")[0]
    assert "did not" in answered(b"\n")[0]
