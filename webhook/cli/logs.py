"""Our own log, on standard error: JSON lines, or readable text on a terminal. Audit lines are not logs."""

from __future__ import annotations

import asyncio
import logging
import sys
from typing import Any

import structlog


def configure() -> Any:
    """Set up logging for a server in the running loop and return its logger; libraries' warnings go the same way."""
    terminal = sys.stderr.isatty()
    shared: list[Any] = [
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,
    ]
    renderer = structlog.dev.ConsoleRenderer() if terminal else structlog.processors.JSONRenderer()
    structlog.configure(
        processors=[*shared, renderer],
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler(sys.stderr)
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
