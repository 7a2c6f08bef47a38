"""Our own log, on standard error: JSON lines, or readable text on a terminal. Audit lines are not logs."""

from __future__ import annotations

import asyncio
import logging
import sys
from contextlib import suppress
from typing import Any, Final, TextIO

import structlog


class _Unfailing:
    """A stream for a log: what can't be written, on a full disk or to a reader that has gone, is lost and no error."""

    def __init__(self, stream: TextIO) -> None:
        self._stream: Final = stream

    def write(self, text: str) -> None:
        """Write it, or not."""
        with suppress(OSError):
            self._stream.write(text)

    def flush(self) -> None:
        """Flush it, or not."""
        with suppress(OSError):
            self._stream.flush()


def configure() -> Any:
    """Set up logging for a server in the running loop and return its logger; libraries' warnings go the same way."""
    terminal = sys.stderr.isatty()
    stream: Any = _Unfailing(sys.stderr)
    shared: list[Any] = [
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,
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
    asyncio.get_running_loop().set_exception_handler(_unhandled)
    return structlog.get_logger()


def _unhandled(_: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Log what nobody caught, but for connections that broke: those are their clients' business."""
    error = context.get("exception")
    if not isinstance(error, OSError):
        structlog.get_logger().error("unhandled", what=context.get("message"), exc_info=error)
