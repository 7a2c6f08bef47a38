"""Handshakes that are none, names and protocols that are not served, renegotiation."""

from __future__ import annotations

import asyncio
import random
import shutil
import ssl
from contextlib import suppress

import pytest

from tests.server.clients import REQUEST, connect, status, unharmed
from tests.server.conftest import ServedApp, Start
from tests.waiting import PATIENCE, until
from webhook.server.edge import split_address
from webhook.server.tls import context


def client_hello(name: str = "localhost", alpn: tuple[str, ...] = ("http/1.1",)) -> bytes:
    """The first bytes of a client."""
    trust = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    trust.set_alpn_protocols(list(alpn))
    outgoing = ssl.MemoryBIO()
    with suppress(ssl.SSLWantReadError):
        trust.wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname=name).do_handshake()
    return outgoing.read()


async def plain(server: ServedApp, data: bytes, *, eof: bool = False) -> bytes:
    """What a client gets that sends bytes other than TLS; with ``eof`` it ends its stream."""
    host, port = split_address(server.address)
    reader, writer = await asyncio.open_connection(host, port)
    writer.write(data)
    if eof:
        writer.write_eof()
    try:
        async with asyncio.timeout(0.05 if not eof else PATIENCE):
            return await reader.read()
    except (TimeoutError, ConnectionError):
        return b""
    finally:
        writer.transport.abort()


async def test_handshakes_that_are_none(start: Start) -> None:
    server = await start()
    dice = random.Random(1)
    hello = client_hello()
    truncated = [hello[: len(hello) * n // 12] for n in range(12)]
    changed = []
    for _ in range(30):
        copy = bytearray(hello)
        for _ in range(3):
            copy[dice.randrange(5, len(copy))] = dice.randrange(256)
        changed.append(bytes(copy))
    records = [
        b"\x16\x03\x01\xff\xff" + dice.randbytes(20_000),
        b"\x16\x03\x01\x00\x00" * 1000,
        b"\x80\x2e\x01\x00\x02",
    ]
    for data in [*truncated, *changed, *records, *(dice.randbytes(dice.randrange(1, 3000)) for _ in range(30))]:
        answer = await plain(server, data, eof=True)
        # An alert, or the server's own hello if the client's still makes sense; never output of the application.
        assert answer[:1] in (b"", b"\x15", b"\x16")
        assert b"HTTP" not in answer
    assert await plain(server, REQUEST, eof=True) in (
        b"",
        b"\x15\x03\x01\x00\x02\x02\x46",
        b"\x15\x03\x01\x00\x02\x02\x50",
    )
    await until(lambda: len(server.server.open) == 0, "nobody to have come through")
    await unharmed(server)


async def test_names_and_protocols_that_we_do_not_have(start: Start) -> None:
    server = await start()
    server.trust.check_hostname = False
    host, port = split_address(server.address)
    for name in ("a" * 63 + "." + "b" * 63, "xn--80ak6aa92e.com", "192.0.2.1", "*.example", "-", "a b", None):
        with suppress(ssl.SSLError, ConnectionError):
            stream = await asyncio.open_connection(host, port, ssl=server.trust, server_hostname=name or "")
            stream[1].write(REQUEST)
            assert await status(stream) == 200, "names decide nothing here"
    other = ssl.create_default_context(cadata=server.pair.authority.decode())
    other.set_alpn_protocols(["h2", "nonsense"])
    stream = await connect(server, other)
    assert stream[1].get_extra_info("ssl_object").selected_alpn_protocol() is None
    stream[1].write(REQUEST)
    assert await status(stream) == 200, "as Go's servers do where a client names no protocol that they have"
    await unharmed(server)


async def test_renegotiation_is_refused(start: Start) -> None:
    assert context().options & ssl.OP_NO_RENEGOTIATION
    client = shutil.which("openssl")
    if not client:
        pytest.skip("no openssl on this machine, and Python's client can't ask for it")
    server = await start()
    asking = await asyncio.create_subprocess_exec(
        *(client, "s_client", "-connect", server.address, "-tls1_2"),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    said, _ = await asyncio.wait_for(asking.communicate(b"R\n"), PATIENCE)
    assert b"RENEGOTIATING" in said
    assert b"no renegotiation" in said
    await unharmed(server)
