"""Whether layers are scored. What scores them is imported only then."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from webhook.errors import InputError
from webhook.server.runtime.options import Options
from webhook.settings.snapshot import LayersSettings

if TYPE_CHECKING:
    from webhook.server.runtime.layers import LayerScores


@asynccontextmanager
async def layer_scores(options: Options, settings: LayersSettings) -> AsyncIterator[LayerScores | None]:
    """The scores of layers for as long as the context lasts; None where they are off.

    Args:
        options: the command line.
        settings: the section ``layers``.

    Raises:
        InputError: the settings cannot be used.
    """
    if not settings.listen:
        yield None
        return
    if options.cluster_from:
        raise InputError("layers are scored for the nodes of a cluster", "layers.listen", "use --kubeconfig FILE")
    from webhook.server.runtime.layers import open_layer_scores

    async with open_layer_scores(options.kubeconfig, settings) as scores:
        yield scores
