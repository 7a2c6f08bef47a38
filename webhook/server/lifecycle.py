"""Listeners: start them, and end them without cutting a request."""

from __future__ import annotations

import asyncio
import errno
import ssl
from collections.abc import Callable

from aiohttp import web

from webhook.errors import InputError
from webhook.server.connections import Connections


def split_address(address: str) -> tuple[str, int]:
    """Host and port of ``HOST:PORT``; an IPv6 address stands in brackets. The settings have checked the form."""
    host, _, port = address.rpartition(":")
    return host.strip("[]"), int(port)


async def listen(runner: web.BaseRunner, address: str, tls: ssl.SSLContext | None, what: str) -> str:
    """Start a runner's listener.

    Args:
        runner: the runner of the server.
        address: ``HOST:PORT``; with port 0 the kernel chooses one.
        tls: the context; None: plain HTTP.
        what: the setting or option to name in an error.

    Returns:
        ``HOST:PORT`` with the real port.

    Raises:
        InputError: nothing can listen there.
    """
    host, port = split_address(address)
    await runner.setup()
    try:
        await web.TCPSite(runner, host, port, ssl_context=tls, backlog=1024).start()
    except OSError as error:
        await runner.cleanup()
        if error.errno == errno.EADDRINUSE:
            raise InputError(f"{address} is in use", what, "end the other program or choose another port") from None
        cause = error.strerror or str(error)
        raise InputError(f"nothing can listen on {address}: {cause}", what, "choose an address of this host") from None
    bound = runner.addresses[0][1]
    shown = f"[{host}]" if ":" in host else host
    return f"{shown}:{bound}"


async def drain(connections: Connections, seconds: float) -> None:
    """Serve on while clients learn that the server ends: every answer closes its connection.

    A Service's endpoints are removed some time after SIGTERM, and open connections outlive them.

    Args:
        connections: the connections of the listener.
        seconds: how long to serve on.
    """
    connections.drain()
    await asyncio.sleep(seconds)


async def finish(runner: web.BaseRunner, in_flight: Callable[[], int], seconds: float) -> None:
    """End a runner: take no new connections, let requests that have begun end, then close.

    Args:
        runner: the runner of the server.
        in_flight: how many requests are being answered.
        seconds: how long to wait for them at most.
    """
    for site in list(runner.sites):
        await site.stop()
    loop = asyncio.get_running_loop()
    deadline = loop.time() + seconds
    while in_flight() and loop.time() < deadline:  # noqa: ASYNC110 - there is a count anyway; an event is a cost
        await asyncio.sleep(0.02)
    await runner.cleanup()
