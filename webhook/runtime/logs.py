"""The server's own log, on standard error: JSON lines, or readable text on a terminal. Audit lines are not logs."""

from __future__ import annotations

import asyncio
import logging
import os
import select
import sys
from collections.abc import Iterator, MutableMapping
from contextlib import suppress
from typing import Any, Final

import structlog

from webhook.admission.credentials import scrub_prose
from webhook.admission.redaction import redact
from webhook.text import visible, visible_lines

# A pipe that is ready to be written to takes so much without waiting (POSIX: PIPE_BUF; Linux has a page).
_PIECE: Final = 4096


class Lossy:
    """A stream for a log that neither waits nor fails: what a full disk or a reader that hangs does not take is lost.

    The log is written from the event loop, and every review would wait with it.

    Args:
        descriptor: an open file descriptor, for example 2; it stays open.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor: Final = descriptor
        self._torn = False

    def write(self, text: str) -> None:
        """Write it, or as much of it as is taken at once."""
        data = text.encode("utf-8", "backslashreplace")
        if self._torn:
            data = b"\n" + data
        with suppress(OSError):
            while data:
                self._torn = True
                if not select.select((), (self._descriptor,), (), 0)[1]:
                    return
                data = data[os.write(self._descriptor, data[:_PIECE]) :]
            self._torn = False

    def flush(self) -> None:
        """Do nothing: no text is buffered."""


def configure() -> Any:
    """Set up logging for a server in the running loop, for its own events and the warnings of libraries.

    Returns:
        The server's logger.
    """
    terminal = sys.stderr.isatty()
    stream: Any = Lossy(sys.stderr.fileno())
    shared: list[Any] = [
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,
        _sanitize_event,
    ]
    renderer = structlog.dev.ConsoleRenderer() if terminal else structlog.processors.JSONRenderer()
    structlog.configure(
        processors=[*shared, renderer],
        logger_factory=structlog.PrintLoggerFactory(stream),
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler(stream)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *shared, renderer]
        )
    )
    logging.basicConfig(handlers=[handler], level=logging.WARNING, force=True)
    logging.getLogger("webhook").setLevel(logging.INFO)
    # Every scan of the port would be an error in aiohttp's eyes; what reaches us is counted by the metrics.
    logging.getLogger("aiohttp.server").setLevel(logging.CRITICAL)
    asyncio.get_running_loop().set_exception_handler(_log_unhandled)
    return structlog.get_logger()


def _sanitize_event(_: Any, __: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Leave no credential in a line, and nothing that a terminal would obey; a traceback keeps its line feeds."""
    for key, value in event.items():
        if key == "exception":
            event[key] = "\n".join(_traceback(str(value)))
        elif isinstance(value, str):
            event[key] = visible_lines(scrub_prose(value))
        elif isinstance(value, list | tuple | dict):
            event[key] = redact(value)
    return event


def _traceback(text: str) -> Iterator[str]:
    """Its lines: places and source are the program's own, what an exception says may quote an object."""
    source = hidden = False
    for line in text.split("\n"):
        place = line.startswith('  File "')
        if place or source:
            yield visible(line)
        elif not hidden:
            shown = scrub_prose(line)
            # What follows within the same message is part of what begins here.
            hidden = shown != line
            yield visible(shown)
        hidden = hidden and not place
        source = place


def _log_unhandled(_: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Log an exception that was not caught, except for broken connections, which are their clients' concern."""
    error = context.get("exception")
    if not isinstance(error, OSError):
        structlog.get_logger().error("unhandled", what=context.get("message"), exc_info=error)
