"""What runs, and what is open, until the server's end."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, suppress
from typing import Any, Final

from webhook.k8s.client.api import Transport
from webhook.k8s.client.identity import Kubeconfig

_RESTART_SECONDS: Final = 10.0


async def keep(work: Callable[[], Awaitable[None]], log: Any, event: str) -> None:
    """Run a task again and again until cancelled: a bug, which is logged, must not end it without notice."""
    while True:
        try:
            await work()
        except Exception as error:
            log.error(event, exc_info=error)  # noqa: TRY400 - the same call as for failures without an exception
            await asyncio.sleep(_RESTART_SECONDS)


async def connected(kubeconfig: Kubeconfig | None, ends: AsyncExitStack) -> Transport:
    """A connection to the API server until the end; an `InputError` where the kubeconfig cannot be used.

    Without a kubeconfig, it is that of the pod's service account, else kubectl's default.
    """
    from webhook.k8s.client.transport import connect

    transport = await connect(kubeconfig)
    ends.push_async_callback(transport.close)
    return transport


async def cancel(task: asyncio.Task[None]) -> None:
    """End a task, and wait until it has ended."""
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
