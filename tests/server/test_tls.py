from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator

import pytest

from certs.pem import Pair
from certs.source import self_signed
from webhook.server.tls import ReloadableTLSContext


async def _echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(ConnectionError, ssl.SSLError):
        while line := await reader.readline():
            writer.write(line)
    writer.close()


@contextlib.asynccontextmanager
async def serving(swappable: ReloadableTLSContext) -> AsyncIterator[int]:
    async with await asyncio.start_server(_echo, "127.0.0.1", 0, ssl=swappable.listener) as server:
        yield server.sockets[0].getsockname()[1]


async def connect(port: int, trust: Pair, name: str | None) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    context = ssl.create_default_context(cadata=trust.authority.decode())
    if name is None:
        context.check_hostname = False
    return await asyncio.open_connection("127.0.0.1", port, ssl=context, server_hostname=name or "")


@pytest.mark.parametrize("name", ["localhost", None])
async def test_swap_serves_new_handshakes_and_leaves_open_connections(name: str | None) -> None:
    first, second = self_signed(["localhost"]), self_signed(["localhost"])
    swappable = ReloadableTLSContext(first.certificate, first.key)
    async with serving(swappable) as port:
        reader, writer = await connect(port, first, name)
        swappable.swap(second.certificate, second.key)

        writer.write(b"still here\n")
        assert await reader.readline() == b"still here\n"
        _, new = await connect(port, second, name)
        with pytest.raises(ssl.SSLCertVerificationError):
            await connect(port, first, name)
        for each in (writer, new):
            each.close()
            await each.wait_closed()


async def test_a_bad_pair_never_disturbs_the_running_one() -> None:
    good, other = self_signed(["localhost"]), self_signed(["localhost"])
    swappable = ReloadableTLSContext(good.certificate, good.key)
    async with serving(swappable) as port:
        with pytest.raises(ssl.SSLError):
            swappable.swap(good.certificate, other.key)
        _, writer = await connect(port, good, "localhost")
        writer.close()
        await writer.wait_closed()
