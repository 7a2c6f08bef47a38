"""What a server does beside answering: Kubernetes Events, and the background scan for drift."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

import msgspec

from webhook.admission.lines import LineWriter
from webhook.cluster.source import Cluster
from webhook.k8s.client.identity import Kubeconfig
from webhook.review.reviewer import Observer
from webhook.server.background.events import EventObserver
from webhook.server.ops import Read
from webhook.server.runtime.certificates import cancel
from webhook.settings.snapshot import Settings

if TYPE_CHECKING:
    from webhook.server.background.drift import DriftScanner
    from webhook.server.background.events import EventWriter

LABELS: Final[Mapping[str, str | tuple[str, ...]]] = {
    "kubevirt_webhook_events_total": "result",
    "kubevirt_webhook_unenforced_objects": ("policy", "resource"),
    "kubevirt_webhook_unenforced_rounds_total": "result",
}


class Background(msgspec.Struct, frozen=True):
    """What runs; nothing of it where facts come from files."""

    events: EventWriter | None = None
    drift_scan: DriftScanner | None = None

    def announcing(self, observer: Observer, settings: Callable[[], Settings]) -> Observer:
        """An observer that also makes Kubernetes Events, where there is an API server to write them to."""
        return EventObserver(observer, self.events.add, lambda: settings().events) if self.events else observer

    def gauges(self) -> dict[str, Read]:
        """The gauges of the background tasks: help text and a function that reads the values, by name."""
        drift_scan = self.drift_scan
        return {
            "kubevirt_webhook_unenforced_objects": (
                "Objects that are not as enforce would make them, at the last scan.",
                lambda: drift_scan.found if drift_scan else {},
            ),
        }

    def counters(self) -> dict[str, Read]:
        """The counters of the background tasks: help text and a function that reads the values, by name."""
        events, drift_scan = self.events, self.drift_scan
        return {
            "kubevirt_webhook_events_total": (
                "Kubernetes Events by result.",
                lambda: dict(events.results) if events else {},
            ),
            "kubevirt_webhook_unenforced_rounds_total": (
                "Scans for objects that are not as enforce would make them, by result.",
                lambda: dict(drift_scan.rounds) if drift_scan else {},
            ),
        }


@asynccontextmanager
async def background(
    kubeconfig: Kubeconfig | None, settings: Callable[[], Settings], cluster: Cluster, audit: LineWriter
) -> AsyncIterator[Background]:
    """Both, with a connection of their own, until the end.

    Raises:
        InputError: the kubeconfig cannot be used.
    """
    from webhook.k8s.client.transport import connect
    from webhook.server.background.drift import DriftScanner, Reports
    from webhook.server.background.events import EventWriter, restore_event

    transport = await connect(kubeconfig)
    events = EventWriter(transport, os.environ.get("HOSTNAME") or socket.gethostname())
    if place := settings().webhooks.service_namespace:
        cluster.on_restore(
            lambda why: events.add(restore_event(place, why)) if settings().events else None,
        )
    drift_scan = DriftScanner(transport, cluster, settings, audit.write, Reports(transport))
    tasks = [asyncio.create_task(work.run(), name=type(work).__name__) for work in (events, drift_scan)]
    try:
        yield Background(events, drift_scan)
    finally:
        for task in tasks:
            await cancel(task)
        await transport.close()
