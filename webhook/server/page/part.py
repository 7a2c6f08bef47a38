"""The page for admins as a part of a server."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Final

from aiohttp import web

from webhook.install import components
from webhook.server.admin import PAGE_PATH
from webhook.server.part import Contribution, Part, ServerHandle
from webhook.server.tasks import keep_until
from webhook.settings.fields import is_loopback

if TYPE_CHECKING:
    from webhook.server.page.health import HealthCondition, HealthSubject


@asynccontextmanager
async def _running(server: ServerHandle) -> AsyncIterator[Contribution]:
    from webhook.server.page import health
    from webhook.server.page.recorder import DecisionRecorder

    cluster, certificates = server.cluster, server.certificates

    def conditions() -> Mapping[HealthSubject, HealthCondition]:
        pairs = health.certificates(certificates.expiry(), certificates.matches(), time.time())
        return health.schedulers(cluster, server.settings()) | pairs

    recorder, history = DecisionRecorder(), health.HealthHistory(conditions)

    def application() -> web.Application:
        # To import and compile the templates takes longer than the rest of the start.
        from webhook.server.page.listener import PageHandler
        from webhook.server.page.views import PageViews

        views = PageViews(cluster, server.settings, recorder, history, server.waiting_for)
        guarded = not is_loopback(server.at_start.admin.listen)
        return PageHandler(cluster, views, server.metrics, guarded=guarded).application()

    async with AsyncExitStack() as ends:
        keep_until(ends, history.run, "internal error while the health on the page is sampled; retrying")
        yield Contribution(sinks=(recorder,), applications={PAGE_PATH: application})


PAGE: Final = Part("page", lambda server: server.at_start.admin.serves_page, _running, components=(components.ADMIN,))
