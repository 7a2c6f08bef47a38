"""Explanations over HTTP as a part of a server."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from webhook.install import components
from webhook.server.part import Contribution, Kernel, Part
from webhook.settings.fields import is_loopback


def _is_on(kernel: Kernel) -> bool:
    admin = kernel.at_start.admin
    return bool(admin.listen) and admin.explain


@asynccontextmanager
async def _running(kernel: Kernel) -> AsyncIterator[Contribution]:
    from webhook.server.explanations.explainer import PATH, Explainer

    explainer = Explainer(kernel.cluster, kernel.metrics, guarded=not is_loopback(kernel.at_start.admin.listen))
    yield Contribution(applications={PATH: explainer.application})


EXPLANATIONS: Final = Part("explanations", _is_on, _running, components=(components.ADMIN,))
