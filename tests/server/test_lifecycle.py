from __future__ import annotations

import asyncio

import pytest

from tests.server.unanswering import Unanswering
from webhook.errors import InputError
from webhook.server.edge import Limits, Server, split_address
from webhook.server.request import Answer, HttpRequest

TAKES_BODIES = Limits(body_bytes=100, room_bytes=100)


class Waiting(Unanswering):
    """Answers with the body, once it may."""

    def __init__(self) -> None:
        self.may_end = asyncio.Event()

    def refuse(self, request: HttpRequest) -> Answer | None:
        return None

    def answer_at_once(self, request: HttpRequest) -> Answer | None:
        return None

    async def answer(self, request: HttpRequest) -> Answer:
        await self.may_end.wait()
        return Answer(200, request.body)

    def patience(self, request: HttpRequest) -> float:
        return 10.0


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


async def test_requests_that_have_begun_end() -> None:
    """The rest of a body may come after the server was signaled to end."""
    waiting = Waiting()
    server = Server(waiting, TAKES_BODIES)
    await server.listen("127.0.0.1:0", None, "--listen")
    host, port = split_address(server.address)
    reader, writer = await asyncio.open_connection(host, port)
    writer.write(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\nab")
    async with asyncio.timeout(10):
        while not server.in_flight:
            await asyncio.sleep(0)
    ending = asyncio.create_task(server.shutdown(10))
    writer.write(b"cd")
    waiting.may_end.set()

    assert (await reader.read()).endswith(b"\r\n\r\nabcd")
    writer.close()
    await ending


async def test_requests_that_never_end_are_ended() -> None:
    server = Server(Waiting(), TAKES_BODIES)
    await server.listen("127.0.0.1:0", None, "--listen")
    host, port = split_address(server.address)
    reader, writer = await asyncio.open_connection(host, port)
    writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
    async with asyncio.timeout(10):
        while not server.in_flight:
            await asyncio.sleep(0)
    await server.shutdown(0.05)

    with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
        await reader.readexactly(1)
    writer.close()
    assert not server.open
