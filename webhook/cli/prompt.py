"""Questions to the user, on a terminal alone."""

from __future__ import annotations

import signal
import sys

import click


def confirm(question: str, *, yes: bool, err: bool = False) -> bool:
    """Whether to go on: without a terminal, where no answer can come, always.

    Args:
        question: what is asked.
        yes: the answer, given beforehand.
        err: ask on standard error.

    Raises:
        click.Abort: Ctrl-C, or the end of standard input.
    """
    if yes or not is_on_terminal():
        return True
    # asyncio's handler only cancels a task at the first Ctrl-C, and its loop doesn't run while a prompt waits.
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        return click.confirm(question, err=err)
    finally:
        signal.signal(signal.SIGINT, handler)


def is_on_terminal() -> bool:
    """Whether an answer can come."""
    return sys.stdin.isatty()
