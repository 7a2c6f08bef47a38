"""The server's own log, on standard error: JSON lines, or readable text on a terminal. Audit lines are not logs."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import select
import sys
from collections.abc import Iterator, MutableMapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from typing import Any, Final

from webhook.admission.credentials import scrub_prose
from webhook.admission.redaction import redact
from webhook.text import visible, visible_lines

# A pipe that is ready to be written to takes so much without waiting (POSIX: PIPE_BUF; Linux has a page).
_PIECE: Final = 4096
# The attribute of a record that holds an event's fields.
_FIELDS: Final = "fields"
_SERVER: Final = logging.getLogger("webhook.server")


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


class StructuredLogger(logging.LoggerAdapter[logging.Logger]):
    """Logs events with fields, each of which is a member of its JSON line; the warnings of libraries have none."""

    def process(self, msg: Any, kwargs: MutableMapping[str, Any]) -> tuple[Any, MutableMapping[str, Any]]:
        """The event, and its fields, which are all keywords but an exception."""
        exc_info = kwargs.pop("exc_info", None)
        # An event has no arguments, so that a percent sign in it stands for itself.
        return msg, {"exc_info": exc_info, "extra": {_FIELDS: kwargs}}


class Lines(logging.Formatter):
    """Makes a line of a record: JSON, or text for a terminal, on which only a traceback has lines of its own.

    Args:
        terminal: make text.
    """

    def __init__(self, *, terminal: bool) -> None:
        super().__init__()
        self._terminal: Final = terminal

    def format(self, record: logging.LogRecord) -> str:
        """The line of a record."""
        when = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="microseconds")
        event: dict[str, Any] = {
            "timestamp": when.replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "event": record.getMessage(),
            **getattr(record, _FIELDS, {}),
        }
        # No credential is left in a line, and nothing that a terminal would obey.
        event = {key: _sanitize_value(value) for key, value in event.items()}
        if record.exc_info and record.exc_info != (None, None, None):
            event["exception"] = "\n".join(_traceback(self.formatException(record.exc_info)))
        if not self._terminal:
            return json.dumps(event, default=str)
        timestamp, level, what = (visible(str(event.pop(key))) for key in ("timestamp", "level", "event"))
        exception = event.pop("exception", None)
        # As JSON a value is on one line, and shows where it ends.
        shown = {visible(key): json.dumps(value, default=str, ensure_ascii=False) for key, value in event.items()}
        line = "  ".join([timestamp, level, what, *(f"{key}={value}" for key, value in shown.items())])
        return line if exception is None else f"{line}\n{exception}"


@contextmanager
def configured() -> Iterator[None]:
    """Log as a server does, and the warnings of libraries with it, until the end of the block.

    The loop must end first. Then all is as before: a handler that stayed would write to a descriptor that is closed
    one day, and whose number is soon another file's, or a client's.
    """
    handler = logging.StreamHandler(Lossy(sys.stderr.fileno()))
    handler.setFormatter(Lines(terminal=sys.stderr.isatty()))
    # Every scan of the port would be an error in aiohttp's eyes; requests that fail are counted by the metrics.
    levels = {"": logging.WARNING, "webhook": logging.INFO, "aiohttp.server": logging.CRITICAL}
    root = logging.getLogger()
    handlers, former = root.handlers[:], {name: logging.getLogger(name).level for name in levels}
    root.handlers[:] = [handler]
    try:
        for name, level in levels.items():
            logging.getLogger(name).setLevel(level)
        yield
    finally:
        root.handlers[:] = handlers
        for name, level in former.items():
            logging.getLogger(name).setLevel(level)


def follow_loop() -> StructuredLogger:
    """The server's logger, which also gets the exceptions that are not caught in the running loop."""
    asyncio.get_running_loop().set_exception_handler(_log_unhandled)
    return StructuredLogger(_SERVER)


def _sanitize_value(value: Any) -> Any:
    if isinstance(value, str):
        return visible_lines(scrub_prose(value))
    return redact(value) if isinstance(value, list | tuple | dict) else value


def _traceback(text: str) -> Iterator[str]:
    """The lines of one: places and source are the program's own, what an exception says may quote an object."""
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
        StructuredLogger(_SERVER).error("unhandled", what=context.get("message"), exc_info=error)
