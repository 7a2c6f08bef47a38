"""Certificates that are made, or read from files."""

from __future__ import annotations

import ipaddress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed448, ed25519, rsa

from certs.authority import check_client_authorities
from certs.pem import CertificateError, Pair
from certs.rotation import CA_CRT
from certs.source import certificate_builder, check_files, common_name, self_signed
from tests.certs.memory import odd
from tests.golden_files import Golden

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def test_self_signed_is_p256_for_all_hosts() -> None:
    pair = self_signed(["localhost", "127.0.0.1", "::1"], NOW, timedelta(days=1))
    leaf = x509.load_pem_x509_certificate(pair.certificate)
    names = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    key = leaf.public_key()
    assert isinstance(key, ec.EllipticCurvePublicKey)
    assert isinstance(key.curve, ec.SECP256R1)
    assert names.get_values_for_type(x509.DNSName) == ["localhost"]
    assert names.get_values_for_type(x509.IPAddress) == [ipaddress.ip_address("127.0.0.1"), ipaddress.ip_address("::1")]
    assert leaf.not_valid_before_utc == NOW - timedelta(minutes=5)
    assert leaf.not_valid_after_utc == NOW + timedelta(days=1)
    assert pair.authority == pair.certificate


def write(tmp_path: Path, name: str, data: bytes) -> Path:
    path = tmp_path / name
    path.write_bytes(data)
    return path


def from_files(certificate: Path, key: Path, now: datetime | None = None) -> Pair:
    return check_files(certificate, key, (certificate.read_bytes(), key.read_bytes()), now)


def test_wrong_files_get_one_sentence_each(tmp_path: Path, golden: Golden) -> None:
    made, other = self_signed(["localhost"]), self_signed(["localhost"])
    certificate, key = write(tmp_path, "c", made.certificate), write(tmp_path, "k", made.key)
    key_object = serialization.load_pem_private_key(made.key, None)
    encrypted = key_object.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.BestAvailableEncryption(b"x")
    )
    cases = [
        *((key, key), (write(tmp_path, "e", b""), key), (certificate, certificate)),
        *((certificate, write(tmp_path, "x", encrypted)), (certificate, write(tmp_path, "o", other.key))),
    ]
    cases += [(write(tmp_path, name, odd(name)[CA_CRT]), key) for name in ("version 2", "type of key")]
    for crt, secret in cases:
        with pytest.raises(CertificateError) as refused:
            from_files(crt, secret, NOW)
        golden(str(refused.value))


def test_expired_certificate(tmp_path: Path) -> None:
    made = self_signed(["localhost"], NOW, timedelta(days=1))
    files = write(tmp_path, "c", made.certificate), write(tmp_path, "k", made.key)
    assert from_files(*files, now=NOW + timedelta(hours=23)).key == made.key
    with pytest.raises(CertificateError, match="expired at 2026-01-02"):
        from_files(*files, now=NOW + timedelta(days=1))


@pytest.mark.parametrize(
    ("key", "usable"),
    [
        *((ec.generate_private_key(ec.SECP384R1()), True), (ed25519.Ed25519PrivateKey.generate(), True)),
        *((rsa.generate_private_key(65537, 2048), True), (ec.generate_private_key(ec.SECP256K1()), False)),
        (ed448.Ed448PrivateKey.generate(), False),
    ],
    ids=lambda value: type(value).__name__,
)
def test_kinds_of_keys(tmp_path: Path, key: Any, usable: bool, golden: Golden) -> None:
    builder = certificate_builder(common_name("x"), common_name("x"), key, NOW, NOW + timedelta(days=1))
    eddsa = isinstance(key, ed25519.Ed25519PrivateKey | ed448.Ed448PrivateKey)
    certificate = builder.sign(key, None if eddsa else hashes.SHA256())
    pem = serialization.Encoding.PEM
    secret = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    files = write(tmp_path, "c", certificate.public_bytes(pem)), write(tmp_path, "k", secret)
    if usable:
        pair = from_files(*files, now=NOW)
        assert (pair.certificate, pair.key, pair.authority) == (files[0].read_bytes(), secret, b"")
    else:
        with pytest.raises(CertificateError) as refused:
            from_files(*files, now=NOW)
        golden(str(refused.value))


def test_authorities_of_clients(tmp_path: Path, golden: Golden) -> None:
    check_client_authorities(tmp_path / "ca", self_signed(["localhost"]).certificate)
    with pytest.raises(CertificateError) as refused:
        check_client_authorities(tmp_path / "empty", b"nothing")
    golden(str(refused.value))
