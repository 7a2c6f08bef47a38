"""What a server offers to a part, for tests."""

from __future__ import annotations

from typing import Any
from unittest.mock import Mock

from tests.review.memory import MemoryCluster
from webhook.cluster.source import Cluster
from webhook.policies.registry import BY_PATH
from webhook.server.ops import Metrics
from webhook.server.part import ApiServer, Connect, ServerHandle
from webhook.settings.model import Settings


def server_handle(
    settings: Settings, cluster: Cluster | None = None, connect: Connect | None = None, audit: Any = None
) -> ServerHandle:
    """The offer of a server with these settings; without a way to connect, its facts come from files."""
    return ServerHandle(
        at_start=settings,
        settings=lambda: settings,
        cluster=cluster or MemoryCluster({}),
        api_server=ApiServer(connect, Mock(), Mock(), Mock()) if connect else None,
        audit=audit or Mock(),
        log=Mock(),
        certificates=Mock(),
        metrics=Metrics(BY_PATH, lambda *_: None),
        waiting_for=tuple,
    )
