from __future__ import annotations

import sys

from tests.cli.terminal import Terminal

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
    """What a terminal shows once the prompt is answered, and the exit status.

    The answer comes once the prompt waits for it. CPython looks at signals for the last time before it reads: one that
    came between the two would be noticed only after a line. So the prompt's last space must have come, and the program
    must sleep: in that read.
    """
    with Terminal([sys.executable, "-c", PROGRAM]) as terminal:
        terminal.find(rb"\[y/N\]: $")
        terminal.wait_until_asleep()
        terminal.type(answer)
        status = terminal.end()
    return terminal.shown.decode(), status


def test_one_ctrl_c_ends_a_prompt() -> None:
    shown, status = answered(b"\x03")
    assert (status, "went on" in shown) == (130, False)


def test_answers() -> None:
    assert "went on" in answered(b"y\n")[0]
    assert "did not" in answered(b"\n")[0]
