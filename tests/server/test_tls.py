from __future__ import annotations

import asyncio
import ssl

import pytest

from certs.pem import Pair
from certs.source import self_signed
from tests.server.clients import Stream, ask
from tests.server.conftest import ServedApp, Start
from webhook.server.edge import split_address
from webhook.server.tls import ReloadableTLSContext


async def connect(server: ServedApp, trust: Pair, name: str | None) -> Stream:
    context = ssl.create_default_context(cadata=trust.authority.decode())
    context.check_hostname = name is not None
    return await asyncio.open_connection(*split_address(server.address), ssl=context, server_hostname=name or "")


@pytest.mark.parametrize("name", ["localhost", None])
async def test_swap_serves_new_handshakes_and_leaves_open_connections(start: Start, name: str | None) -> None:
    first, second = self_signed(["localhost"]), self_signed(["localhost"])
    swappable = ReloadableTLSContext(first.certificate, first.key)
    server = await start(swappable=swappable)
    open_before = await connect(server, first, name)
    swappable.swap(second.certificate, second.key)

    assert (await ask(open_before)).status == 200
    new = await connect(server, second, name)
    with pytest.raises(ssl.SSLCertVerificationError):
        await connect(server, first, name)
    for _, writer in (open_before, new):
        writer.close()


async def test_a_bad_pair_never_disturbs_the_running_one(start: Start) -> None:
    good, other = self_signed(["localhost"]), self_signed(["localhost"])
    swappable = ReloadableTLSContext(good.certificate, good.key)
    server = await start(swappable=swappable)
    with pytest.raises(ssl.SSLError):
        swappable.swap(good.certificate, other.key)
    stream = await connect(server, good, "localhost")
    assert (await ask(stream)).status == 200
    stream[1].close()
