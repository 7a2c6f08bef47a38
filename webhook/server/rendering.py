"""The metrics as text: rendered once for all who ask within a second, and never twice at the same time."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Final

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import generate_latest
from prometheus_client.metrics_core import Metric

# Scrapers come every few seconds at most; what several of them get may be as old as this.
KEPT_SECONDS: Final = 1.0


class _Family(CollectorRegistry):
    """A registry of one metric."""

    def __init__(self, metric: Metric) -> None:
        super().__init__()
        self._metric: Final = metric

    def collect(self) -> Iterable[Metric]:
        """The metric."""
        return (self._metric,)


class Rendering:
    """The text of a registry.

    Args:
        registry: the metrics.

    Attributes:
        count: how often it was rendered.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry: Final = registry
        self._text = b""
        self._until = float("-inf")
        self._running: asyncio.Task[bytes] | None = None
        self.count = 0

    async def text(self) -> bytes:
        """The text, at most `KEPT_SECONDS` old."""
        if asyncio.get_running_loop().time() < self._until:
            return self._text
        if self._running is None:
            self._running = asyncio.create_task(self._render(), name="metrics")
        # One who goes must not take it from the others.
        return await asyncio.shield(self._running)

    async def _render(self) -> bytes:
        try:
            self.count += 1
            parts = []
            for metric in self._registry.collect():
                parts.append(generate_latest(_Family(metric)))
                # Reviews come between: all of it in one go would hold them up for many times what one takes.
                await asyncio.sleep(0)
            self._text = b"".join(parts)
            self._until = asyncio.get_running_loop().time() + KEPT_SECONDS
            return self._text
        finally:
            self._running = None
