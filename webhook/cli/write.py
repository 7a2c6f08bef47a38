"""What commands write: lines for people, in which nothing acts on a terminal, and encoded data for programs."""

from __future__ import annotations

import click

from webhook.admission.credentials import scrub_prose
from webhook.text import visible_lines


def line(text: str, *, err: bool = False, color: str | None = None) -> None:
    """A line, or several whose line feeds are the program's own."""
    click.echo(click.style(visible_lines(text), color) if color else visible_lines(text), err=err)


def error(text: str) -> None:
    """A line on standard error that may quote what a file or an object holds."""
    line(scrub_prose(text), err=True)


def data(text: str) -> None:
    """JSON or YAML as it was encoded: both encoders write out by themselves what is not seen."""
    click.echo(text, nl=not text.endswith("\n"))
