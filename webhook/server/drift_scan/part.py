"""The background scan for drift as a part of a server."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Final

from webhook.install import components
from webhook.server.ops import StateMetric
from webhook.server.part import Contribution, Part, ServerHandle, has_api_server
from webhook.server.tasks import keep_until

_OBJECTS: Final = StateMetric(
    "kubevirt_webhook_drift_objects",
    "Objects that are not as enforce would make them, at the last scan.",
    dict,
    ("policy", "resource"),
)
_SCANS: Final = StateMetric(
    "kubevirt_webhook_drift_scans_total",
    "Scans for objects that are not as enforce would make them, by result.",
    dict,
    ("result",),
)


@asynccontextmanager
async def _running(server: ServerHandle) -> AsyncIterator[Contribution]:
    from webhook.server.drift_scan.policy_reports import Reports
    from webhook.server.drift_scan.scanner import DriftScanner

    assert server.api_server
    async with AsyncExitStack() as ends:
        api = await server.api_server.connect(ends)
        scanner = DriftScanner(api, server.cluster, server.settings, server.audit, Reports(api))
        keep_until(ends, scanner.run, "DriftScanner: internal error; retrying")
        objects, scans = _OBJECTS.reading(lambda: scanner.counts), _SCANS.reading(lambda: scanner.rounds)
        yield Contribution(metrics=(objects, scans))


_COMPONENTS: Final = (components.DRIFT, components.POLICY_REPORTS)
DRIFT_SCAN: Final = Part("drift scan", has_api_server, _running, (_OBJECTS, _SCANS), _COMPONENTS)
