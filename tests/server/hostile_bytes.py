"""Bytes that no honest client sends, and clients that send them without an end; `bench.reliability` uses them too."""

from __future__ import annotations

import asyncio
import os
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Final

from tests.server.raw_requests import PODS, head

LISTENERS: Final = ("webhooks", "ops", "metrics", "explain", "page", "extender")
# Of the admin listener, which is attacked at each of its paths.
ADMIN_PARTS: Final = ("metrics", "explain", "page")
PATHS: Final = {
    "webhooks": PODS,
    "ops": "/metrics",
    "metrics": "/metrics",
    "explain": "/v1/explain/migration",
    "page": "/page",
    "extender": "/v1/layers/prioritize",
}
# Another client than the one that is answered beside it.
ATTACKER: Final = "127.0.0.2"
# What a client sends on one connection, as long as it is read.
FLOOD_BYTES: Final = 4 * 1024 * 1024
PIECE: Final = 64 * 1024


@asynccontextmanager
async def connected(
    port: int, *, tls: bool, source: str = ATTACKER
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """A connection from an address of loopback, cut off at its end."""
    trust = ssl._create_unverified_context() if tls else None
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=trust, local_addr=(source, 0))
    try:
        yield reader, writer
    finally:
        writer.transport.abort()


def _floods(path: str) -> dict[str, tuple[bytes, bytes]]:
    """What a client begins with, and what it sends after that without an end, by the kind of flood."""
    get = f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n".encode()
    chunked = head(0, path).replace(b"Content-Length: 0", b"Transfer-Encoding: chunked")
    large, blanks, headers = 7 * 1024 * 1024, b" " * PIECE, b"A: b\r\n" * (PIECE // 6)
    return {
        "bad head": (b"\x00 bad\r\n\r\n", os.urandom(1) * PIECE),
        "endless head": (get, headers),
        "endless line": (get + b"A: ", b"a" * PIECE),
        "endless chunk extension": (chunked + b"5;", b"a" * PIECE),
        "endless trailers": (chunked + b"0\r\n", headers),
        "endless trailers behind a body": (chunked + b"2000\r\n" + b" " * 8192 + b"\r\n0\r\n", headers),
        "tiny chunks": (chunked, b"1\r\na\r\n" * (PIECE // 6)),
        "large chunks": (chunked, b"10000\r\n" + b"a" * 65536 + b"\r\n"),
        "large body": (head(large, path), blanks),
        "body beyond all limits": (head(10**12, path), blanks),
        "pipelining": (b"", (get + b"\r\n") * 500),
        "expectations": (head(large, path, "Expect: 100-continue\r\n"), blanks),
        "informational": (b"", b"HTTP/1.1 100 Continue\r\n\r\n" * 1000),
    }


FLOODS: Final = tuple(_floods("/"))


async def flood(port: int, path: str, kind: str, *, tls: bool, source: str = ATTACKER) -> None:
    """Send without an end, never read, until the server reads no more or has read `FLOOD_BYTES`."""
    begin, more = _floods(path)[kind]
    with suppress(OSError, TimeoutError):
        async with connected(port, tls=tls, source=source) as (_, writer):
            writer.write(begin)
            for _ in range(FLOOD_BYTES // len(more)):
                writer.write(more)
                # A server that reads no more has won.
                async with asyncio.timeout(0.1):
                    await writer.drain()


async def trickle(port: int, data: bytes, *, tls: bool, source: str = ATTACKER, seconds: float = 1.0) -> None:
    """Half a request, and then a byte at a time until the server ends the connection or the time is over."""
    with suppress(OSError):
        async with connected(port, tls=tls, source=source) as (reader, writer):
            writer.write(data)
            for _ in range(int(seconds / 0.1)):
                with suppress(TimeoutError):
                    async with asyncio.timeout(0.1):
                        await reader.read()
                        return
                if writer.transport.is_closing():
                    return
                writer.write(b" ")
