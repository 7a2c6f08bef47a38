from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from certs.authority import Authority
from certs.handshake import verify_server_certificate

DAY = timedelta(days=1)


@pytest.fixture
def authority() -> Authority:
    return Authority.new(["service.test"], datetime.now(UTC), DAY)


@pytest.fixture
async def port(authority: Authority, tmp_path: Path) -> AsyncIterator[int]:
    pair = authority.issue(["service.test"], datetime.now(UTC), DAY)
    (tmp_path / "crt").write_bytes(pair.certificate)
    (tmp_path / "key").write_bytes(pair.key)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "crt", tmp_path / "key")

    async def nothing(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    async with await asyncio.start_server(nothing, "127.0.0.1", 0, ssl=context) as server:
        yield server.sockets[0].getsockname()[1]


async def test_a_server_that_the_bundle_vouches_for(port: int, authority: Authority) -> None:
    await verify_server_certificate("127.0.0.1", port, "service.test", authority.pem)


async def test_another_bundle_refuses_it(port: int) -> None:
    other = Authority.new(["service.test"], datetime.now(UTC), DAY)

    with pytest.raises(ssl.SSLCertVerificationError):
        await verify_server_certificate("127.0.0.1", port, "service.test", other.pem)


async def test_so_does_another_name(port: int, authority: Authority) -> None:
    with pytest.raises(ssl.SSLCertVerificationError):
        await verify_server_certificate("127.0.0.1", port, "other.test", authority.pem)


@pytest.mark.parametrize(("pem", "kind"), [(b"\xff", ValueError), (b"no certificate", OSError)])
async def test_a_bundle_that_is_none(port: int, pem: bytes, kind: type[Exception]) -> None:
    with pytest.raises(kind):
        await verify_server_certificate("127.0.0.1", port, "service.test", pem)


async def test_nobody_is_there(authority: Authority) -> None:
    with pytest.raises(OSError, match="1"):
        await verify_server_certificate("127.0.0.1", 1, "service.test", authority.pem)
