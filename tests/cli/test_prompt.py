from __future__ import annotations

import os
import pty
import sys

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


def answered(answer: bytes) -> tuple[str, int]:
    """What a terminal shows once the prompt is answered, and the exit status."""
    child, terminal = pty.fork()
    if not child:
        os.chdir(ROOT)
        os.execv(sys.executable, [sys.executable, "-c", PROGRAM])
    written = b""
    while b"[y/N]" not in written:
        written += os.read(terminal, 4096)
    os.write(terminal, answer)
    try:
        while piece := os.read(terminal, 4096):
            written += piece
    except OSError:
        pass  # The child has ended.
    os.close(terminal)
    return written.decode(), os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def test_one_ctrl_c_ends_a_prompt() -> None:
    shown, status = answered(b"\x03")
    assert (status, "went on" in shown) == (130, False)


def test_answers() -> None:
    assert "went on" in answered(b"y\n")[0]
    assert "did not" in answered(b"\n")[0]
