"""Hostile bytes at every listener: the process stays small, and a review beside them is answered."""

from __future__ import annotations

import asyncio
import os
import re
import ssl
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Final

import pytest

from tests.e2e.support.processes import free_port
from tests.server.raw_requests import BODY, PODS, head
from tests.waiting import PATIENCE

ROOT: Final = Path(__file__).parents[2]
MAX_RESIDENT_MIB: Final = 150
LISTENERS: Final = ("webhooks", "ops", "metrics", "explain", "page", "extender")
PATHS: Final = {
    "webhooks": PODS,
    "ops": "/metrics",
    "metrics": "/metrics",
    "explain": "/v1/explain/migration",
    "page": "/page",
    "extender": "/v1/layers/prioritize",
}
AT_A_TIME: Final = 16
# Another client than the one that is answered beside it.
ATTACKER: Final = "127.0.0.2"
# What a client sends on one connection, as long as it is read.
FLOOD_BYTES: Final = 4 * 1024 * 1024
PIECE: Final = 64 * 1024

_EXTENDER: Final = """
import asyncio
from tests.server.test_extender import ExtenderWorld
from webhook.server.extender import extending

async def main():
    async with extending("127.0.0.1:%d", ExtenderWorld().extender, None, 1.0):
        print("serving", flush=True)
        await asyncio.Event().wait()

asyncio.run(main())
"""


class Attacked:
    """A server process, and where it listens."""

    def __init__(self, process: subprocess.Popen[bytes], ports: dict[str, int]) -> None:
        self.process = process
        self.ports = ports

    @property
    def peak_mib(self) -> float:
        """Resident memory at its highest."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        found = re.search(r"VmHWM:\s+(\d+) kB", status)
        assert found
        return int(found[1]) / 1024

    @asynccontextmanager
    async def connected(
        self, listener: str, source: str = "127.0.0.1"
    ) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
        trust = ssl._create_unverified_context() if listener == "webhooks" else None
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", self.ports[listener], ssl=trust, local_addr=(source, 0)
        )
        try:
            yield reader, writer
        finally:
            writer.transport.abort()


@contextmanager
def served(listener: str, directory: Path) -> Iterator[Attacked]:
    """The server with the listener: all of them in one process, but for the extender, which needs a cluster."""
    ports = {name: free_port() for name in LISTENERS}
    if listener == "extender":
        command = [sys.executable, "-c", _EXTENDER % ports["extender"]]
    else:
        settings = directory / "settings.yaml"
        others = "".join(f"{name}: {{listen: '127.0.0.1:{ports[name]}'}}\n" for name in ("metrics", "explain", "page"))
        settings.write_text((ROOT / "examples/settings.yaml").read_text() + others)
        command = [sys.executable, "-m", "webhook", "serve", f"--cluster-from={ROOT / 'examples/cluster'}"]
        command += [f"--config={settings}", f"--listen=127.0.0.1:{ports['webhooks']}"]
        command += [f"--ops-listen=127.0.0.1:{ports['ops']}"]
    with subprocess.Popen(
        command, stdout=subprocess.DEVNULL if listener != "extender" else None, stderr=subprocess.DEVNULL, cwd=ROOT
    ) as process:
        try:
            yield Attacked(process, ports)
        finally:
            process.kill()


async def answered(server: Attacked, listener: str) -> int:
    """The status of an honest request; 0: there was no answer."""
    if listener == "extender":
        body = b'{"Pod": {}, "NodeNames": []}'
        request = head(len(body), PATHS["extender"], "Connection: close\r\n") + body
    else:
        listener = "webhooks"
        request = head(len(BODY), PODS, "Connection: close\r\n") + BODY
    try:
        async with asyncio.timeout(PATIENCE), server.connected(listener) as (reader, writer):
            writer.write(request)
            return int((await reader.readline()).split()[1])
    except (OSError, IndexError, asyncio.IncompleteReadError):
        return 0


async def ready(server: Attacked, listener: str) -> None:
    async with asyncio.timeout(PATIENCE):
        while await answered(server, listener) != 200:
            assert server.process.poll() is None
            await asyncio.sleep(0.1)


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


FLOODS: Final = (
    *(bad_head, endless_head, endless_line, endless_chunk_extension, endless_trailers, tiny_chunks, large_chunks),
    *(large_body, body_beyond_all_limits, pipelining, expectations, informational),
)


async def flood(server: Attacked, listener: str, kind: Callable[[str], tuple[bytes, bytes]]) -> None:
    """Send without an end, never read, and come back."""
    begin, more = kind(PATHS[listener])
    for _ in range(3):
        with suppress(OSError, TimeoutError):
            async with server.connected(listener, ATTACKER) as (_, writer):
                writer.write(begin)
                for _ in range(FLOOD_BYTES // len(more)):
                    writer.write(more)
                    # A server that reads no more has won; the client comes back.
                    async with asyncio.timeout(0.1):
                        await writer.drain()


async def trickle(server: Attacked, listener: str, data: bytes, count: int) -> None:
    """Half a request on each of many connections, which then stay."""

    async def one() -> None:
        with suppress(OSError):
            async with server.connected(listener, ATTACKER) as (_, writer):
                writer.write(data)
                for _ in range(10):
                    await asyncio.sleep(0.1)
                    writer.write(b" ")

    await asyncio.gather(*(one() for _ in range(count)))


async def beside(server: Attacked, listener: str, attack: Awaitable[object]) -> list[int]:
    """The statuses of honest requests while an attack lasts."""
    attacking = asyncio.ensure_future(attack)
    statuses = [await answered(server, listener)]
    while not attacking.done():
        statuses.append(await answered(server, listener))
        await asyncio.sleep(0.02)
    await attacking
    return statuses


@pytest.mark.parametrize("listener", LISTENERS)
async def test_hostile_bytes_fill_no_memory_and_delay_no_review(listener: str, tmp_path: Path) -> None:
    with served(listener, tmp_path) as server:
        await ready(server, listener)
        before = server.peak_mib
        peaks: dict[str, float] = {}
        for kind in FLOODS:
            floods = asyncio.gather(*(flood(server, listener, kind) for _ in range(AT_A_TIME)))
            statuses = await beside(server, listener, floods)
            assert set(statuses) == {200}, kind.__name__
            peaks[kind.__name__] = round(server.peak_mib)
        for data in (b"GET / HT", head(200_000, PATHS[listener]) + b" " * 190_000):
            statuses = await beside(server, listener, trickle(server, listener, data, 100))
            assert set(statuses) == {200}
            peaks["trickle"] = round(server.peak_mib)

        assert await answered(server, listener) == 200
        assert server.process.poll() is None
        assert server.peak_mib <= MAX_RESIDENT_MIB, f"{before:.0f} MiB before, then {peaks}"
