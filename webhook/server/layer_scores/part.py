"""Layer scores as a part of a server."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from webhook.errors import InputError
from webhook.server.part import Contribution, Part, ServerHandle


@asynccontextmanager
async def _running(server: ServerHandle) -> AsyncIterator[Contribution]:
    if server.api_server is None:
        raise InputError("layers are scored for the nodes of a cluster", "layers.listen", "use --kubeconfig FILE")
    from webhook.server.layer_scores.scores import open_layer_scores

    settings = server.at_start.layers

    @asynccontextmanager
    async def listening() -> AsyncIterator[None]:
        async with scores.listening(settings, server.certificates, server.metrics) as address:
            server.log.info("serving layer scores", address=address)
            yield

    async with open_layer_scores(server.api_server.connect, settings) as scores:
        server.api_server.report_nodes(scores.nodes)
        yield Contribution(metrics=scores.metrics(), listeners=(listening,))


LAYER_SCORES: Final = Part("layer scores", lambda server: bool(server.at_start.layers.listen), _running)
