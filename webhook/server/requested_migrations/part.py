"""The requests for migrations as a part of a server."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Final

from webhook.install import components
from webhook.policies.preemption.settings import PreemptionSettings
from webhook.server.ops import StateMetric
from webhook.server.part import Contribution, Part, ServerHandle, has_api_server
from webhook.server.tasks import keep_until

_REQUESTED: Final = StateMetric(
    "kubevirt_webhook_requested_migrations_total",
    "Migrations requested for VMs whose pods were to be deleted by a preemption or a taint, by result.",
    dict,
    ("result",),
)


@asynccontextmanager
async def _running(server: ServerHandle) -> AsyncIterator[Contribution]:
    from webhook.server.requested_migrations.requester import MigrationRequester

    assert server.api_server
    async with AsyncExitStack() as ends:
        connection = await server.api_server.connect(ends)
        requester = MigrationRequester(connection, lambda: server.settings().of(PreemptionSettings).max_per_cluster)
        keep_until(ends, requester.run, "MigrationRequester: internal error; retrying")
        yield Contribution(metrics=(_REQUESTED.reading(lambda: requester.results),), observers=(requester,))


REQUESTED_MIGRATIONS: Final = Part(
    "requested migrations", has_api_server, _running, (_REQUESTED,), (components.PREEMPTION,)
)
