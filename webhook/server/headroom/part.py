"""The watch of headroom as a part of a server."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Final

from webhook.facts import HeadroomKey, VerdictKey
from webhook.install import components
from webhook.policies.headroom.settings import HeadroomSettings
from webhook.server.ops import StateMetric
from webhook.server.part import Contribution, Part, ServerHandle, has_api_server
from webhook.server.tasks import keep_until

_VERDICTS: Final = StateMetric(
    "kubevirt_webhook_headroom_starts_total",
    "Starts of VMs that were judged, by what was found out.",
    dict,
    ("verdict",),
)


@asynccontextmanager
async def _running(server: ServerHandle) -> AsyncIterator[Contribution]:
    from webhook.server.headroom.decider import Decider
    from webhook.server.headroom.watch import HeadroomWatch

    assert server.api_server
    async with AsyncExitStack() as ends:
        watch = HeadroomWatch(await server.api_server.connect(ends))
        keep_until(ends, watch.run, "HeadroomWatch: internal error; retrying")
        server.api_server.answer(HeadroomKey(), watch.peek)
        server.api_server.answer_later(VerdictKey, Decider(watch.headroom).read)
        yield Contribution(metrics=(_VERDICTS.reading(lambda: watch.headroom.verdicts),), observers=(watch,))


def _is_on(server: ServerHandle) -> bool:
    return has_api_server(server) and server.at_start.of(HeadroomSettings).enabled


HEADROOM: Final = Part("headroom", _is_on, _running, (_VERDICTS,), (components.HEADROOM,))
