from __future__ import annotations

import ssl
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from certs.authority import Authority
from certs.handshake import verify_server_certificate
from tests.certs.memory import serving

WEEK = timedelta(days=7)


@pytest.fixture
def served() -> Authority:
    return Authority.new(["service.test"], datetime.now(UTC), WEEK)


@pytest.fixture
async def port(served: Authority, tmp_path: Path) -> AsyncIterator[int]:
    async with serving(served, "service.test", tmp_path) as port:
        yield port


async def test_another_bundle_refuses_it_and_so_does_another_name(port: int, served: Authority) -> None:
    await verify_server_certificate("localhost", port, "service.test", served.pem)
    other = Authority.new(["service.test"], datetime.now(UTC), WEEK)
    for host, bundle_ in (("service.test", other.pem), ("other.test", served.pem)):
        with pytest.raises(ssl.SSLCertVerificationError):
            await verify_server_certificate("localhost", port, host, bundle_)


@pytest.mark.parametrize(("pem", "kind"), [(b"\xff", ValueError), (b"no certificate", OSError)])
async def test_a_bundle_that_is_none(port: int, pem: bytes, kind: type[Exception]) -> None:
    with pytest.raises(kind):
        await verify_server_certificate("localhost", port, "service.test", pem)


async def test_nobody_is_there(served: Authority) -> None:
    with pytest.raises(OSError, match="1"):
        await verify_server_certificate("127.0.0.1", 1, "service.test", served.pem)
