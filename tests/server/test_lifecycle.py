from __future__ import annotations

import asyncio

import pytest
from aiohttp import web

from webhook.errors import InputError
from webhook.server.lifecycle import finish, listen, split_address


def runner() -> web.AppRunner:
    return web.AppRunner(web.Application())


async def test_port_in_use() -> None:
    first = runner()
    address = await listen(first, "127.0.0.1:0", None, "--listen")
    assert not address.endswith(":0")

    with pytest.raises(InputError) as refused:
        await listen(runner(), address, None, "--listen")
    assert refused.value.where == "--listen"
    assert address in refused.value.what
    await first.cleanup()


async def test_address_of_another_host() -> None:
    with pytest.raises(InputError, match=r"nothing can listen on 192\.0\.2\.1:8443"):
        await listen(runner(), "192.0.2.1:8443", None, "--listen")


@pytest.mark.parametrize(
    ("address", "parts"), [("0.0.0.0:8443", ("0.0.0.0", 8443)), ("[::1]:80", ("::1", 80)), (":0", ("", 0))]
)
def test_split(address: str, parts: tuple[str, int]) -> None:
    assert split_address(address) == parts


async def test_requests_that_have_begun_end() -> None:
    """The rest of a body may come after the server was signaled to end."""
    begun, may_end = asyncio.Event(), asyncio.Event()
    counts = {"in_flight": 0}

    async def handle(request: web.BaseRequest) -> web.Response:
        counts["in_flight"] += 1
        begun.set()
        body = await request.read()
        await may_end.wait()
        counts["in_flight"] -= 1
        return web.Response(body=body)

    server = web.ServerRunner(web.Server(handle))
    address = await listen(server, "127.0.0.1:0", None, "--listen")
    host, port = split_address(address)
    reader, writer = await asyncio.open_connection(host, port)
    writer.write(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\nab")
    await begun.wait()
    ending = asyncio.create_task(finish(server, lambda: counts["in_flight"], 10))
    writer.write(b"cd")
    may_end.set()

    assert (await reader.read()).endswith(b"\r\n\r\nabcd")
    writer.close()
    await ending


async def test_requests_that_never_end_are_ended() -> None:
    await finish(runner_with_nothing := runner(), lambda: 1, 0.05)
    assert runner_with_nothing.server is None
