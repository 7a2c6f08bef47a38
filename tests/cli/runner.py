"""Running a command in this process."""

from __future__ import annotations

from pathlib import Path

from click.testing import CliRunner, Result

from webhook.cli.main import main


def run(*arguments: str | Path, stdin: str | None = None) -> Result:
    return CliRunner().invoke(main, [str(argument) for argument in arguments], input=stdin, catch_exceptions=False)
