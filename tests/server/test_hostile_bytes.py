"""Whole processes: hostile bytes at every listener, a full disk, no more files, and a reader that hangs.

The process stays small, and a review beside all that is answered.
"""

from __future__ import annotations

import asyncio
import os
import re
import resource
import select
import socket
import subprocess
import sys
from collections.abc import Awaitable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from tests.e2e.support.processes import free_port
from tests.server.hostile_bytes import ADMIN_PARTS, FLOODS, LISTENERS, PATHS, connected, flood, trickle
from tests.server.raw_requests import BODY, PODS, head
from tests.waiting import PATIENCE, until

ROOT: Final = Path(__file__).parents[2]
MAX_RESIDENT_MIB: Final = 200
AT_A_TIME: Final = 8
# What all floods of a listener may add: 16 MiB of heads and everyday bodies, a client's half of the room for large ones
# and a copy of one, and the buffers of OpenSSL and the allocator for connections that are paused.
MAX_KEPT_MIB: Final = 96

_EXTENDER: Final = """
import asyncio
from tests.server.layer_scores.test_extender import ExtenderWorld
from webhook.server.listener import serving

async def main():
    async with serving(ExtenderWorld().extender.listener(), "127.0.0.1:%d", None, "layers.listen", 1.0):
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

    def attacked(self, listener: str) -> dict[str, Any]:
        """How a listener is reached."""
        return {"port": self.ports[listener], "tls": listener == "webhooks"}


@contextmanager
def served(listener: str, directory: Path, **options: Any) -> Iterator[Attacked]:
    """The server with the listener: all of them in one process, but for the extender, which needs a cluster.

    Keywords are options of the process.
    """
    ports = {name: free_port() for name in LISTENERS}
    ports |= dict.fromkeys(ADMIN_PARTS, ports[ADMIN_PARTS[0]])
    if listener == "extender":
        command = [sys.executable, "-c", _EXTENDER % ports["extender"]]
    else:
        settings = directory / "settings.yaml"
        admin = f"admin: {{listen: '127.0.0.1:{ports[ADMIN_PARTS[0]]}', metrics: true}}\n"
        settings.write_text((ROOT / "examples/settings.yaml").read_text() + admin)
        command = [sys.executable, "-m", "webhook", "serve", f"--cluster-from={ROOT / 'examples/cluster'}"]
        command += [f"--config={settings}", f"--listen=127.0.0.1:{ports['webhooks']}"]
        command += [f"--ops-listen=127.0.0.1:{ports['ops']}"]
    silent: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    with subprocess.Popen(command, cwd=ROOT, **silent | options) as process:
        try:
            yield Attacked(process, ports)
        finally:
            process.kill()


async def answered(server: Attacked, listener: str = "webhooks") -> int:
    """The status of an honest request; 0: there was no answer."""
    if listener == "extender":
        body = b'{"Pod": {}, "NodeNames": []}'
        request = head(len(body), PATHS["extender"], "Connection: close\r\n") + body
    else:
        listener = "webhooks"
        request = head(len(BODY), PODS, "Connection: close\r\n") + BODY
    try:
        async with (
            asyncio.timeout(PATIENCE),
            connected(**server.attacked(listener), source="127.0.0.1") as (reader, writer),
        ):
            writer.write(request)
            return int((await reader.readline()).split()[1])
    except (OSError, IndexError, asyncio.IncompleteReadError):
        return 0


async def ready(server: Attacked, listener: str = "webhooks") -> None:
    async with asyncio.timeout(PATIENCE):
        while await answered(server, listener) != 200:
            assert server.process.poll() is None
            await asyncio.sleep(0.1)


async def beside(server: Attacked, listener: str, attack: Awaitable[object]) -> list[int]:
    """The statuses of honest requests while an attack lasts."""
    attacking = asyncio.ensure_future(attack)
    statuses = [await answered(server, listener)]
    while not attacking.done():
        statuses.append(await answered(server, listener))
        await asyncio.sleep(0.02)
    await attacking
    return statuses


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Attacked]]:
    """The server of each listener, which are attacked one after the other."""
    directory = tmp_path_factory.mktemp("server")
    with served("webhooks", directory) as whole, served("extender", directory) as extender:
        yield dict.fromkeys(LISTENERS, whole) | {"extender": extender}


@pytest.mark.control("bytes-without-end")
@pytest.mark.parametrize("listener", LISTENERS)
async def test_hostile_bytes_fill_no_memory_and_delay_no_review(listener: str, servers: dict[str, Attacked]) -> None:
    server = servers[listener]
    await ready(server, listener)
    before = server.peak_mib
    peaks: dict[str, float] = {}
    for kind in FLOODS:
        floods = (flood(path=PATHS[listener], kind=kind, **server.attacked(listener)) for _ in range(AT_A_TIME))
        statuses = await beside(server, listener, asyncio.gather(*floods))
        assert set(statuses) == {200}, kind
        peaks[kind] = round(server.peak_mib)
    assert server.peak_mib - before <= MAX_KEPT_MIB, f"{before:.0f} MiB before, then {peaks}"
    for data in (b"GET / HT", head(200_000, PATHS[listener]) + b" " * 190_000):
        trickles = asyncio.gather(*(trickle(data=data, **server.attacked(listener)) for _ in range(100)))
        statuses = await beside(server, listener, trickles)
        assert set(statuses) == {200}
        peaks["trickle"] = round(server.peak_mib)

    assert await answered(server, listener) == 200
    assert server.process.poll() is None
    assert server.peak_mib <= MAX_RESIDENT_MIB, f"{before:.0f} MiB before, then {peaks}"


@pytest.mark.parametrize("listener", LISTENERS)
async def test_what_is_no_http_learns_nothing_of_the_server(listener: str, servers: dict[str, Attacked]) -> None:
    """Which versions answer, and nothing comes back of what was sent: it may be a token that went to the wrong port."""
    server = servers[listener]
    await ready(server, listener)
    async with connected(**server.attacked(listener)) as (reader, writer):
        writer.write(b"GET / HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer s3cr\x00et\r\n\r\n")
        beginning, _, body = (await asyncio.wait_for(reader.read(), PATIENCE)).partition(b"\r\n\r\n")
    first, *headers = beginning.split(b"\r\n")
    assert (first.split()[1], body) == (b"400", b"the request is not valid HTTP/1.1\n")
    assert [line for line in headers if line.lower().startswith(b"server:")] == [b"Server: kubevirt-webhook"]


async def test_full_disks_and_files_that_run_out_stop_nothing(tmp_path: Path) -> None:
    """Standard output and error on a full disk; more connections than files, whose limit the server raises itself."""

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (40, 120))

    # The child sets the limit itself: a limit of this process would apply to all tests.
    full = os.open("/dev/full", os.O_WRONLY)
    with served("webhooks", tmp_path, stdout=full, stderr=full, preexec_fn=limit) as server:
        os.close(full)
        await ready(server)
        assert [await answered(server) for _ in range(20)] == [200] * 20
        # More than the 40 that it was started with.
        address = ("127.0.0.1", server.ports["webhooks"])
        idle = [socket.create_connection(address, timeout=PATIENCE) for _ in range(60)]
        assert await answered(server) == 200
        idle += [socket.create_connection(address, timeout=PATIENCE) for _ in range(100)]
        assert server.process.poll() is None
        for each in idle:
            each.close()
        # Reviews are served again as soon as there are files.
        await ready(server)


async def test_a_reader_of_audit_lines_that_hangs_stops_nothing(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    with served("webhooks", tmp_path, stdout=writing) as server:
        await ready(server)
        # Far more than a pipe holds.
        assert [await answered(server) for _ in range(150)] == [200] * 150
        await until(lambda: not select.select((), (writing,), (), 0)[1], "a thread to fill the pipe")
        assert server.process.poll() is None
    os.close(reading)
    os.close(writing)
