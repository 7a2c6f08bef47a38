from __future__ import annotations

import pytest
from aiohttp import web

from webhook.errors import InputError
from webhook.server.lifecycle import listen, split_address


def runner() -> web.AppRunner:
    return web.AppRunner(web.Application())


async def test_port_in_use() -> None:
    first = runner()
    address = await listen(first, "127.0.0.1:0", None, "--listen")
    assert not address.endswith(":0")

    with pytest.raises(InputError, match=f"--listen: {address} is in use; end the other program"):
        await listen(runner(), address, None, "--listen")
    await first.cleanup()


async def test_address_of_another_host() -> None:
    with pytest.raises(InputError, match=r"nothing can listen on 192\.0\.2\.1:8443"):
        await listen(runner(), "192.0.2.1:8443", None, "--listen")


@pytest.mark.parametrize(
    ("address", "parts"), [("0.0.0.0:8443", ("0.0.0.0", 8443)), ("[::1]:80", ("::1", 80)), (":0", ("", 0))]
)
def test_split(address: str, parts: tuple[str, int]) -> None:
    assert split_address(address) == parts
