"""Clients that write bytes over real TLS, and what they get."""

from __future__ import annotations

import asyncio
import ssl

from tests.server.conftest import ServedApp
from tests.server.raw_requests import BODY, PODS, head
from tests.waiting import PATIENCE, until
from webhook.server.edge import split_address

REQUEST = head(len(BODY)) + BODY
Stream = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def connect(server: ServedApp, trust: ssl.SSLContext | None = None) -> Stream:
    host, port = split_address(server.address)
    return await asyncio.open_connection(host, port, ssl=trust or server.trust, server_hostname="localhost")


async def status(stream: Stream) -> int:
    """Of the next answer; 0: there is none. The connection is ended."""
    reader, writer = stream
    try:
        return int((await asyncio.wait_for(reader.readuntil(b"\r\n"), PATIENCE)).split()[1])
    except (asyncio.IncompleteReadError, ConnectionError, ssl.SSLError):
        return 0
    finally:
        writer.transport.abort()


async def sent(server: ServedApp, data: bytes) -> int:
    """The status that bytes get."""
    stream = await connect(server)
    stream[1].write(data)
    return await status(stream)


async def unharmed(server: ServedApp) -> None:
    """The server serves the next client, holds nothing for those before, and had no internal error."""
    assert (await server.post(PODS, BODY))[0] == 200
    await until(lambda: server.app.in_flight == 0, "requests to end")
    assert server.app.taken_bytes == 0
    assert server.counted.crashes == []
