from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TypeAlias

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from certs.authority import Authority
from certs.handshake import verify_server_certificate, verifying
from tests.certs.memory import serving

WEEK = timedelta(days=7)

Issuer: TypeAlias = tuple[x509.Name, ec.EllipticCurvePrivateKey]


@pytest.fixture
def served() -> Authority:
    return Authority.new(["service.test"], datetime.now(UTC), WEEK)


@pytest.fixture
async def port(served: Authority, tmp_path: Path) -> AsyncIterator[int]:
    async with serving(served, "service.test", tmp_path) as port:
        yield port


@pytest.mark.control("impostor-of-the-webhook")
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


def signed(name: str, by: Issuer | None, *, is_ca: bool) -> tuple[bytes, Issuer]:
    """A certificate without any key identifier, as the CA of EKS is."""
    key, subject = ec.generate_private_key(ec.SECP256R1()), x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.now(UTC)
    issuer, signer = by or (subject, key)
    serial = x509.random_serial_number()
    builder = x509.CertificateBuilder(issuer, subject, key.public_key(), serial, now - WEEK, now + WEEK)
    builder = builder.add_extension(x509.BasicConstraints(ca=is_ca, path_length=None), critical=True)
    builder = builder.add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
    return builder.sign(signer, SHA256()).public_bytes(Encoding.PEM), (subject, key)


async def test_authorities_are_trusted_as_by_kubectl(tmp_path: Path) -> None:
    """Without a key identifier, which Python's defaults want from 3.13 on; and one that another CA has signed."""
    root_pem, root = signed("root.test", None, is_ca=True)
    between_pem, between = signed("between.test", root, is_ca=True)
    leaf_pem, (_, key) = signed("service.test", between, is_ca=False)
    pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    (tmp_path / "pair").write_bytes(pem + leaf_pem + between_pem)
    own = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    own.load_cert_chain(tmp_path / "pair")
    async with await asyncio.start_server(lambda _, writer: writer.close(), "localhost", 0, ssl=own) as server:
        port = server.sockets[0].getsockname()[1]
        for authority in (root_pem, between_pem):
            await verify_server_certificate("localhost", port, "service.test", authority)
            assert verifying(authority).verify_flags == verifying().verify_flags
