"""A client as the API server is one: keep-alive connections over TLS, a review at a time on each, nothing repeated."""

from __future__ import annotations

import asyncio
import re
import ssl
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from tests.builders import launcher_pod, review, vm

PATH: Final = "/mutate/scheduling/pods/enforce"
VMS_PATH: Final = "/mutate/scheduling/virtualmachines/enforce"
HOST: Final = "127.0.0.1"
# From here floods come, as those of a pod do: the server gives each address its part of the connections.
ATTACKER: Final = "127.0.0.2"
# An answer that comes later is none for an API server with the timeout that `install` sets.
PATIENCE: Final = 3.0

_LENGTH: Final = re.compile(rb"content-length: (\d+)", re.IGNORECASE)
_CLOSE: Final = re.compile(rb"connection: close", re.IGNORECASE)

Stream = tuple[asyncio.StreamReader, asyncio.StreamWriter]


def head(length: int, path: str = PATH) -> bytes:
    """A request's head."""
    lines = f"POST {path} HTTP/1.1", "Host: x", "Content-Type: application/json", f"Content-Length: {length}", "", ""
    return "\r\n".join(lines).encode()


def request(namespace: str = "demo") -> bytes:
    """A review of a launcher pod."""
    return _post(PATH, review(launcher_pod(), namespace=namespace))


def vm_request(namespace: str) -> bytes:
    """A review of a new VM, which takes no look-up in the cluster."""
    return _post(VMS_PATH, review(vm(), namespace=namespace))


def _post(path: str, content: dict[str, Any]) -> bytes:
    body = msgspec.json.encode(content)
    return head(len(body), f"{path}?timeout=3s") + body


def unverified() -> ssl.SSLContext:
    """For servers whose certificate isn't what is tried."""
    return ssl._create_unverified_context()  # noqa: S323, SLF001 - loopback


async def connect(port: int, trust: ssl.SSLContext, source: str = HOST) -> Stream:
    """A connection after its handshake, from an address of this machine."""
    return await asyncio.open_connection(HOST, port, ssl=trust, server_hostname="localhost", local_addr=(source, 0))


async def answered(stream: Stream) -> tuple[int, bool, bytes]:
    """The status of the next answer, whether it is the last on its connection, and its body."""
    reader, _ = stream
    lines = await reader.readuntil(b"\r\n\r\n")
    length = _LENGTH.search(lines)
    body = await reader.readexactly(int(length[1]) if length else 0)
    return int(lines.split(None, 2)[1]), bool(_CLOSE.search(lines)), body


@dataclass
class Felt:
    """What reviews felt; times in milliseconds."""

    times: list[float] = field(default_factory=list)
    failures: Counter[str] = field(default_factory=Counter)

    @property
    def count(self) -> int:
        return len(self.times) + self.failures.total()

    def quantile(self, part: float) -> float:
        """The time within which a part of all answers came."""
        ordered = sorted(self.times)
        return ordered[min(int(len(ordered) * part), len(ordered) - 1)] if ordered else float("nan")


class RetryingClients:
    """Several clients that send one review after another.

    Args:
        pause: between an answer and the next review, in seconds.
        expected: is part of each answer that is not an error, in spite of status 200.
    """

    def __init__(
        self,
        port: int,
        trust: ssl.SSLContext,
        sent: bytes,
        *,
        count: int = 4,
        pause: float = 0.02,
        expected: bytes = b"",
    ) -> None:
        self._port = port
        self._trust = trust
        self._sent = sent
        self._count = count
        self._pause = pause
        self._expected = expected
        self.felt = Felt()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Felt]:
        """They send for as long as the context lasts; what is under way at its end is waited for."""
        end = asyncio.Event()
        tasks = [asyncio.create_task(self._run(end)) for _ in range(self._count)]
        try:
            yield self.felt
        finally:
            end.set()
            await asyncio.gather(*tasks)

    async def _run(self, end: asyncio.Event) -> None:
        stream: Stream | None = None
        while not end.is_set():
            began = time.perf_counter()
            try:
                async with asyncio.timeout(PATIENCE):
                    stream = stream or await connect(self._port, self._trust)
                    stream[1].write(self._sent)
                    status, last, body = await answered(stream)
            except (OSError, EOFError, TimeoutError) as error:
                self.felt.failures[type(error).__name__] += 1
                last = True
            else:
                if status == 200 and self._expected not in body:
                    self.felt.failures["not evaluated"] += 1
                elif status == 200:
                    self.felt.times.append((time.perf_counter() - began) * 1000)
                else:
                    self.felt.failures[str(status)] += 1
            if last and stream:
                stream[1].transport.abort()
                stream = None
            await asyncio.sleep(self._pause)
        if stream:
            stream[1].transport.abort()
