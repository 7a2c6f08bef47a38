"""Clients that write bytes over real TLS, and what they get."""

from __future__ import annotations

import asyncio
import ssl
from typing import Any, NamedTuple

from tests.server.conftest import ServedApp
from tests.server.raw_requests import BODY, PODS, head
from tests.waiting import PATIENCE, until
from webhook.server.edge import split_address

REQUEST = head(len(BODY)) + BODY
LAST = head(len(BODY), extra="Connection: close\r\n") + BODY
Stream = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class RawAnswer(NamedTuple):
    """An answer: its head as text, and its body."""

    head: str
    body: bytes

    @property
    def status(self) -> int:
        return int(self.head.split()[1])

    @property
    def is_last(self) -> bool:
        return "connection: close" in self.head.lower()


async def connect(server: ServedApp, trust: ssl.SSLContext | None = None, source: str = "127.0.0.1") -> Stream:
    host, port = split_address(server.address)
    at: dict[str, Any] = {"ssl": trust or server.trust, "server_hostname": "localhost", "local_addr": (source, 0)}
    return await asyncio.open_connection(host, port, **at)


async def ask(stream: Stream, request: bytes = REQUEST) -> RawAnswer:
    """The answer to a request on a connection that stays open."""
    stream[1].write(request)
    text = (await stream[0].readuntil(b"\r\n\r\n")).decode()
    length = next(line for line in text.splitlines() if line.startswith("Content-Length"))
    return RawAnswer(text, await stream[0].readexactly(int(length.partition(":")[2])))


async def everything(server: ServedApp, data: bytes, trust: ssl.SSLContext | None = None) -> bytes:
    """All that the server sends until it closes the connection."""
    reader, writer = await connect(server, trust)
    writer.write(data)
    try:
        return await asyncio.wait_for(reader.read(), PATIENCE)
    finally:
        writer.close()


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
    assert (server.app.taken_bytes, server.counted.crashes) == (0, [])
