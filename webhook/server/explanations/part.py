"""Explanations over HTTP as a part of a server."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from webhook.install import components
from webhook.server.part import Contribution, Part, ServerHandle
from webhook.settings.fields import is_loopback


def _is_on(server: ServerHandle) -> bool:
    admin = server.at_start.admin
    return bool(admin.listen) and admin.explain


@asynccontextmanager
async def _running(server: ServerHandle) -> AsyncIterator[Contribution]:
    from webhook.server.explanations.explainer import PATH, Explainer

    guarded = not is_loopback(server.at_start.admin.listen)
    explainer = Explainer(server.cluster, server.metrics, server.settings, guarded=guarded)
    yield Contribution(applications={PATH: explainer.application})


EXPLANATIONS: Final = Part("explanations", _is_on, _running, components=(components.ADMIN,))
