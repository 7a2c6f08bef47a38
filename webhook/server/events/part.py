"""Kubernetes Events as a part of a server."""

from __future__ import annotations

import os
import socket
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Final

from webhook.install import components
from webhook.server.ops import StateMetric
from webhook.server.part import Contribution, Part, ServerHandle, has_api_server
from webhook.server.tasks import keep_until

_WRITTEN: Final = StateMetric("kubevirt_webhook_events_total", "Kubernetes Events by result.", dict, ("result",))


@asynccontextmanager
async def _running(server: ServerHandle) -> AsyncIterator[Contribution]:
    from webhook.server.events.writer import EventWriter, restore_event

    assert server.api_server
    settings = server.settings
    async with AsyncExitStack() as ends:
        api = await server.api_server.connect(ends)
        instance = os.environ.get("HOSTNAME") or socket.gethostname()
        writer = EventWriter(api, instance, lambda: settings().events)
        if place := settings().webhooks.service.namespace:
            server.cluster.on_restore(lambda why: writer.add(restore_event(place, why)) if settings().events else None)
        keep_until(ends, writer.run, "EventWriter: internal error; retrying")
        yield Contribution(metrics=(_WRITTEN.reading(lambda: writer.results),), observers=(writer,))


EVENTS: Final = Part("Events", has_api_server, _running, (_WRITTEN,), (components.EVENTS,))
