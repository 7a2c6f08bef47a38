"""Bytes that no honest client sends, and clients that send them without an end; `bench.reliability` uses them too."""

from __future__ import annotations

import asyncio
import os
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Final

from tests.server.raw_requests import PODS, head

LISTENERS: Final = ("webhooks", "ops", "metrics", "explain", "page", "extender")
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

Bytes = Callable[[str], tuple[bytes, bytes]]


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


def bad_head(path: str) -> tuple[bytes, bytes]:
    return b"\x00 bad\r\n\r\n", os.urandom(1) * PIECE


def endless_head(path: str) -> tuple[bytes, bytes]:
    return f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n".encode(), b"A: b\r\n" * (PIECE // 6)


def endless_line(path: str) -> tuple[bytes, bytes]:
    return f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nA: ".encode(), b"a" * PIECE


def _chunked(path: str) -> bytes:
    return head(0, path).replace(b"Content-Length: 0", b"Transfer-Encoding: chunked")


def endless_chunk_extension(path: str) -> tuple[bytes, bytes]:
    return _chunked(path) + b"5;", b"a" * PIECE


def endless_trailers(path: str) -> tuple[bytes, bytes]:
    return _chunked(path) + b"0\r\n", b"A: b\r\n" * (PIECE // 6)


def tiny_chunks(path: str) -> tuple[bytes, bytes]:
    return _chunked(path), b"1\r\na\r\n" * (PIECE // 6)


def large_chunks(path: str) -> tuple[bytes, bytes]:
    return _chunked(path), b"10000\r\n" + b"a" * 65536 + b"\r\n"


def large_body(path: str) -> tuple[bytes, bytes]:
    return head(7 * 1024 * 1024, path), b" " * PIECE


def body_beyond_all_limits(path: str) -> tuple[bytes, bytes]:
    return head(10**12, path), b" " * PIECE


def pipelining(path: str) -> tuple[bytes, bytes]:
    return b"", f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode() * 500


def expectations(path: str) -> tuple[bytes, bytes]:
    return head(7 * 1024 * 1024, path, "Expect: 100-continue\r\n"), b" " * PIECE


def informational(path: str) -> tuple[bytes, bytes]:
    return b"", b"HTTP/1.1 100 Continue\r\n\r\n" * 1000


FLOODS: Final[tuple[Bytes, ...]] = (
    *(bad_head, endless_head, endless_line, endless_chunk_extension, endless_trailers, tiny_chunks, large_chunks),
    *(large_body, body_beyond_all_limits, pipelining, expectations, informational),
)


async def flood(port: int, path: str, kind: Bytes, *, tls: bool, source: str = ATTACKER) -> None:
    """Send without an end, never read, until the server reads no more or has read `FLOOD_BYTES`."""
    begin, more = kind(path)
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
