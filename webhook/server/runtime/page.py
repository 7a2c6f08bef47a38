"""The page of a running server: imported only where it is switched on, and so are its templates."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Final

from webhook.admission.audit import Sink
from webhook.cluster.source import BrowsableCluster
from webhook.server.authorizer import CrashObserver
from webhook.server.page.health import HealthCondition, HealthHistory, HealthSubject, certificates, schedulers
from webhook.server.page.listener import PageHandler
from webhook.server.page.recorder import DecisionRecorder
from webhook.server.page.views import PATH, PageViews
from webhook.server.runtime.certificates import EXPIRY, MATCH, Certificates, cancel
from webhook.settings.model import Settings
from webhook.settings.syntax import is_loopback


class PageParts:
    """What the page shows of a running server.

    Args:
        audit: gets every audit record, as before.
        cluster: the source of facts.
        settings: returns the settings in force.
        certs: the certificate of the listener.

    Attributes:
        recorder: the sink of audit records for the reviewer.
    """

    def __init__(
        self, audit: Sink, cluster: BrowsableCluster, settings: Callable[[], Settings], certs: Certificates
    ) -> None:
        self._cluster: Final = cluster
        self._settings: Final = settings
        gauges = certs.gauges()
        self._expiry: Final = gauges[EXPIRY][1]
        self._matches: Final = gauges[MATCH][1]
        self._certs: Final = certs
        self.recorder: Final = DecisionRecorder(audit)

    @asynccontextmanager
    async def listening(
        self, address: str, traffic: CrashObserver, waiting_for: Callable[[], tuple[str, ...]], seconds: float
    ) -> AsyncIterator[str]:
        """The listener for as long as the context lasts; gives the URL of the page.

        Args:
            address: ``HOST:PORT``.
            traffic: gets exceptions.
            waiting_for: what keeps the server from being ready, in words.
            seconds: how long to wait at the end for requests that have begun.

        Raises:
            InputError: nothing can listen there.
        """
        history = HealthHistory(self._health)
        views = PageViews(self._cluster, self._settings, self.recorder, history, waiting_for)
        task = asyncio.create_task(history.run(), name="health")
        try:
            handler = PageHandler(self._cluster, views, traffic, guarded=not is_loopback(address))
            async with handler.listening(address, self._certs.listener, "page.listen", seconds) as url:
                yield url + PATH
        finally:
            await cancel(task)

    def _health(self) -> dict[HealthSubject, HealthCondition]:
        return {
            **schedulers(self._cluster, self._settings()),
            **certificates(self._expiry(), self._matches(), time.time()),
        }
