"""The progress of a long review: a bar on standard error, if that is a terminal."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

# Less is done before it could be read.
_LEAST_BYTES: Final = 1024 * 1024


@contextmanager
def progress(total: int) -> Iterator[Callable[[int], None]]:
    """A bar that goes away at the end; nothing for a short review, or where the output is not a terminal.

    Args:
        total: bytes of all inputs.

    Yields:
        A function that is called with the number of bytes that are done.
    """
    if total < _LEAST_BYTES or not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.progress import BarColumn, DownloadColumn, Progress, TimeRemainingColumn

    from webhook.cli.show import error_console

    columns = (BarColumn(), DownloadColumn(), TimeRemainingColumn())
    with Progress(*columns, console=error_console(), transient=True) as bar:
        task = bar.add_task("review", total=total)
        yield lambda done: bar.advance(task, done)
