"""Writes what commands print into the pages that show it: ``python -m hack.outputs``.

A command takes part if it needs no cluster, which is so if it names files in ``examples/``, and if the page shows any
output of it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Final

from click.testing import CliRunner

ROOT: Final = Path(__file__).resolve().parent.parent
_BLOCK: Final = re.compile(r"(?<=^```\n)\$ .*?(?=^```)|(?<=^```console\n)\$ .*?(?=^```)", re.DOTALL | re.MULTILINE)
_COMMAND: Final = re.compile(r"^\$ kubevirt-webhook ([^\n#]*examples/[^\n#]*)\n((?:(?!\$ ).*\n)+)", re.MULTILINE)

Run = Callable[..., str]


def rewritten(page: str, run: Run) -> str:
    """A page whose outputs are those that the commands print now.

    Args:
        page: Markdown.
        run: takes the words of a command, without the program's name, and returns what it prints.
    """

    def block(found: re.Match[str]) -> str:
        return _COMMAND.sub(lambda each: f"$ kubevirt-webhook {each[1]}\n{run(*each[1].split())}", found[0])

    return _BLOCK.sub(block, page)


def pages() -> list[Path]:
    """The pages that may show outputs."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def outdated(run: Run) -> list[str]:
    """The pages that show something else than the commands print."""
    before = Path.cwd()
    os.chdir(ROOT)
    try:
        return [page.name for page in pages() if page.read_text() != rewritten(page.read_text(), run)]
    finally:
        os.chdir(before)


def _run(*words: str) -> str:
    from webhook.cli.main import main as program  # noqa: PLC0415 - loads the whole command line

    return CliRunner().invoke(program, words, catch_exceptions=False).output


def main() -> None:
    """Write all outputs again."""
    os.chdir(ROOT)
    for page in pages():
        page.write_text(rewritten(page.read_text(), _run))


if __name__ == "__main__":
    main()
