"""The output of commands: lines with control characters escaped, and encoded data for programs."""

from __future__ import annotations

import click

from webhook.admission.credentials import scrub_prose
from webhook.text import visible_lines


def line(text: str, *, err: bool = False, color: str | None = None) -> None:
    """Write a line, or several whose line feeds are the program's own."""
    click.echo(click.style(visible_lines(text), color) if color else visible_lines(text), err=err)


def error(text: str) -> None:
    """Write a line on standard error that may quote the content of a file or object."""
    line(scrub_prose(text), err=True)


def data(text: str) -> None:
    """Write encoded JSON or YAML, in which the encoders have escaped invisible characters."""
    click.echo(text, nl=not text.endswith("\n"))
