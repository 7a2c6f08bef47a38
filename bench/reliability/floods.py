"""Floods against one server over files: connections, bodies, heads, handshakes."""

from __future__ import annotations

import asyncio
import random
import resource
import socket
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Final

import msgspec
import uvloop

from bench.reliability.client import (
    ATTACKER,
    HOST,
    PATH,
    VMS_PATH,
    RetryingClients,
    Stream,
    answered,
    connect,
    head,
    request,
    unverified,
)
from bench.reliability.outcome import ReliabilityOutcome
from bench.reliability.server import ReliabilityServer, serving
from tests.builders import review, vm
from webhook.server.app import MAX_BODY

SECONDS: Final = 10.0
# Handshakes at the same time: more would only wait for each other.
_DIALLING: Final = 50
_UNREAD_SECONDS: Final = 120.0

Flood = Callable[[ReliabilityServer, float], Awaitable[tuple[str, str]]]


def run(name: str, scale: float) -> ReliabilityOutcome:
    """One of `FLOODS`, at a part of its size."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))

    async def attacked(server: ReliabilityServer) -> ReliabilityOutcome:
        clients = RetryingClients(server.port, unverified(), request())
        async with clients.running() as felt:
            attack, seen = await FLOODS[name](server, scale)
        return ReliabilityOutcome(name, attack, felt, server.peak, seen)

    with serving() as server:
        return uvloop.run(attacked(server))


async def quiet(_: ReliabilityServer, scale: float) -> tuple[str, str]:
    """Nothing: what all others are to be compared with."""
    await asyncio.sleep(SECONDS * scale)
    return "none", ""


async def idle(server: ReliabilityServer, scale: float) -> tuple[str, str]:
    """Connections after their handshake that never ask anything."""
    count, before = int(10_000 * scale), server.memory
    streams = await _dialled(server, count)
    began = time.monotonic()
    await asyncio.sleep(SECONDS * scale)
    more = server.memory - before
    await asyncio.wait({asyncio.ensure_future(reader.read()) for reader, _ in streams})
    closed = time.monotonic() - began
    for _, writer in streams:
        writer.transport.abort()
    return f"{count:,} idle TLS connections", f"{more:.0f} MiB more; the last closed by us after {closed:.0f} s"


async def handshakes(server: ReliabilityServer, scale: float) -> tuple[str, str]:
    """TCP connections that never begin a handshake."""
    count = int(5000 * scale)
    streams = [await asyncio.open_connection(HOST, server.port, local_addr=(ATTACKER, 0)) for _ in range(count)]
    began = time.monotonic()
    await asyncio.wait({asyncio.ensure_future(_end(reader)) for reader, _ in streams})
    closed = time.monotonic() - began
    for _, writer in streams:
        writer.transport.abort()
    return f"{count:,} half-open handshakes", f"closed by us after {closed:.0f} s"


async def garbage(server: ReliabilityServer, scale: float) -> tuple[str, str]:
    """Bytes that are no TLS, as many as two cores manage."""
    dice = random.Random(1)  # noqa: S311 - the same every time
    samples = [dice.randbytes(dice.randrange(1, 4000)) for _ in range(500)]
    samples += [b"\x16\x03\x01" + dice.randbytes(dice.randrange(2, 600)) for _ in range(500)]
    sent = 0

    async def one() -> None:
        nonlocal sent
        with suppress(OSError):
            reader, writer = await asyncio.open_connection(HOST, server.port, local_addr=(ATTACKER, 0))
            writer.write(dice.choice(samples))
            writer.write_eof()
            await _end(reader)
            writer.transport.abort()
        sent += 1

    await _repeated(one, 16, SECONDS * scale)
    return f"{sent:,} handshakes of random bytes", ""


async def bodies(server: ReliabilityServer, scale: float) -> tuple[str, str]:
    """The largest bodies, from many clients, one after another."""
    return await _bodies(server, scale, head(MAX_BODY, f"{PATH}?timeout=3s") + b" " * MAX_BODY, "of 7 MiB")


async def objects(server: ReliabilityServer, scale: float) -> tuple[str, str]:
    """Bodies that take far more memory decoded: empty objects by the hundred thousand."""
    place = review(vm())
    place["request"]["object"]["spec"]["template"]["spec"]["volumes"] = "@@"
    frame = msgspec.json.encode(place)
    body = frame.replace(b'"@@"', b"[" + b"{}," * ((MAX_BODY - len(frame)) // 3 - 2) + b"{}]")
    return await _bodies(server, scale, head(len(body), f"{VMS_PATH}?timeout=3s") + body, "of 2.4 million objects")


async def trickle(server: ReliabilityServer, scale: float) -> tuple[str, str]:
    """Requests that come a byte a second: half of them never end their head, half never their body."""
    count = int(1000 * scale)
    streams = await _dialled(server, count)
    starts = b"POST / HTTP/1.1\r\nHost: x\r\nA: ", head(200_000, f"{PATH}?timeout=30s")
    statuses: Counter[str] = Counter()

    async def one(number: int, stream: Stream) -> None:
        _, writer = stream
        answer = asyncio.ensure_future(answered(stream))
        writer.write(starts[number % 2])
        end = time.monotonic() + SECONDS * scale
        while time.monotonic() < end and not answer.done():
            writer.write(b" ")
            await asyncio.sleep(1)
        answer.cancel()
        try:
            statuses[str((await answer)[0])] += 1
        except (asyncio.CancelledError, OSError, EOFError):
            statuses["none yet"] += 1
        writer.transport.abort()

    await asyncio.gather(*(one(number, stream) for number, stream in enumerate(streams)))
    return f"{count:,} requests of a byte a second", _counted(statuses)


async def unread(server: ReliabilityServer, scale: float) -> tuple[str, str]:
    """Requests without end from clients that read no answer."""
    count, sent = int(10 * scale) or 1, request() * 100

    async def one(stream: Stream) -> None:
        reader, writer = stream
        reader._transport.pause_reading()  # type: ignore[attr-defined] # noqa: SLF001
        # Else the kernel takes megabytes of answers for each client before any client has to wait.
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 * 1024)
        with suppress(OSError):
            while True:
                writer.write(sent)
                await writer.drain()

    await asyncio.sleep(1)
    before = server.files
    streams = await _dialled(server, count)
    tasks = [asyncio.create_task(one(stream)) for stream in streams]
    began = time.monotonic()
    await asyncio.sleep(1)
    # Read from the server: a client that does not read does not notice.
    while (left := server.files - before) > 0 and time.monotonic() - began < _UNREAD_SECONDS:
        await asyncio.sleep(0.5)
    seen = f"{count - max(left, 0)} of {count} cut off by us within {time.monotonic() - began:.0f} s"
    for stream, task in zip(streams, tasks, strict=True):
        task.cancel()
        stream[1].transport.abort()
    return f"{count} clients that never read", seen


async def metrics(server: ReliabilityServer, scale: float) -> tuple[str, str]:
    """Clients that scrape without a pause, on a connection for as long as it lasts."""
    return await _scraped(server, scale, 50)


async def metrics200(server: ReliabilityServer, scale: float) -> tuple[str, str]:
    """As `metrics`, four times as many."""
    return await _scraped(server, scale, 200)


async def _scraped(server: ReliabilityServer, scale: float, count: int) -> tuple[str, str]:
    scraped = ended = 0
    end = time.monotonic() + SECONDS * scale

    async def one() -> None:
        nonlocal scraped, ended
        try:
            stream = await asyncio.open_connection(HOST, server.ops, local_addr=(ATTACKER, 0))
            try:
                while time.monotonic() < end:
                    stream[1].write(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
                    await answered(stream)
                    scraped += 1
            finally:
                stream[1].transport.abort()
        except (OSError, EOFError):
            ended += 1
            # As long as a client needs to come back: what is tried is scraping, not dialling.
            await asyncio.sleep(0.05)

    await _repeated(one, count, SECONDS * scale)
    return f"{count} clients that scrape without a pause", f"{scraped:,} scrapes; {ended:,} connections ended by us"


FLOODS: Final[dict[str, Flood]] = {
    each.__name__: each
    for each in (quiet, idle, handshakes, garbage, bodies, objects, trickle, unread, metrics, metrics200)
}


async def _bodies(server: ReliabilityServer, scale: float, sent: bytes, what: str) -> tuple[str, str]:
    statuses: Counter[str] = Counter()

    async def one() -> None:
        try:
            async with _connected(server) as stream:
                stream[1].write(sent)
                status = (await answered(stream))[0]
        except (OSError, EOFError) as error:
            statuses[type(error).__name__] += 1
        else:
            statuses[str(status)] += 1

    count = int(64 * scale) or 1
    await _repeated(one, count, SECONDS * scale)
    return f"{statuses.total():,} reviews {what} from {count} clients", _counted(statuses)


async def _repeated(one: Callable[[], Awaitable[None]], count: int, seconds: float) -> None:
    end = time.monotonic() + seconds

    async def run() -> None:
        while time.monotonic() < end:
            await one()

    await asyncio.gather(*(run() for _ in range(count)))


async def _dialled(server: ReliabilityServer, count: int) -> list[Stream]:
    turns, trust = asyncio.Semaphore(_DIALLING), unverified()

    async def one() -> Stream:
        async with turns:
            return await connect(server.port, trust, ATTACKER)

    return await asyncio.gather(*(one() for _ in range(count)))


@asynccontextmanager
async def _connected(server: ReliabilityServer) -> AsyncIterator[Stream]:
    stream = await connect(server.port, unverified(), ATTACKER)
    try:
        yield stream
    finally:
        stream[1].transport.abort()


async def _end(reader: asyncio.StreamReader) -> None:
    with suppress(OSError):
        await reader.read()


def _counted(statuses: Counter[str]) -> str:
    return "answers: " + ", ".join(f"{count:,} of {status}" for status, count in sorted(statuses.items()))
