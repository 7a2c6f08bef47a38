"""Where servers listen, and how they end."""

from __future__ import annotations

import asyncio

import pytest

from tests.server.unanswering import Unanswering
from webhook.errors import InputError
from webhook.server.edge import split_address


async def test_port_in_use() -> None:
    first = Unanswering.server()
    await first.listen("127.0.0.1:0", None, "--listen")
    assert not first.address.endswith(":0")

    with pytest.raises(InputError) as refused:
        await Unanswering.server().listen(first.address, None, "--listen")
    assert refused.value.where == "--listen"
    assert first.address in refused.value.what
    await first.shutdown(0.0)


async def test_address_of_another_host() -> None:
    with pytest.raises(InputError, match=r"nothing can listen on 192\.0\.2\.1:8443"):
        await Unanswering.server().listen("192.0.2.1:8443", None, "--listen")


@pytest.mark.parametrize(
    ("address", "parts"), [("0.0.0.0:8443", ("0.0.0.0", 8443)), ("[::1]:80", ("::1", 80)), (":0", ("", 0))]
)
def test_split(address: str, parts: tuple[str, int]) -> None:
    assert split_address(address) == parts


@pytest.mark.parametrize("address", [":0", "localhost:0"])
async def test_every_address_of_a_host_is_listened_on(address: str) -> None:
    server = Unanswering.server()
    await server.listen(address, None, "--listen")
    _, writer = await asyncio.open_connection("127.0.0.1", split_address(server.address)[1])
    writer.close()
    await server.shutdown(0.0)
