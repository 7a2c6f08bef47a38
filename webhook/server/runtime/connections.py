"""Connections to the API server that are open until the server's end."""

from __future__ import annotations

from contextlib import AsyncExitStack

from webhook.k8s.client.api import Transport
from webhook.k8s.client.identity import Kubeconfig


async def connected(kubeconfig: Kubeconfig | None, ends: AsyncExitStack) -> Transport:
    """A connection to the API server until the end; an `InputError` where the kubeconfig cannot be used.

    Without a kubeconfig, it is that of the pod's service account, else kubectl's default.
    """
    from webhook.k8s.client.transport import connect

    transport = await connect(kubeconfig)
    ends.push_async_callback(transport.close)
    return transport
