"""Where a serving pair of certificate and key comes from: files, or made at start for local use."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from certs.pem import CertificateError, Pair

# Clocks differ: a certificate that is valid from now on is not yet valid for a client that is a minute behind.
BACKDATED: Final = timedelta(minutes=5)
# What cryptography raises for a certificate that is not valid, some of it only when a part is looked at.
_X509_ERRORS: Final = (x509.InvalidVersion, x509.DuplicateExtension, x509.UnsupportedGeneralNameType)
UNREADABLE: Final = (ValueError, TypeError, UnsupportedAlgorithm, *_X509_ERRORS)


def pair_of(certificate: bytes, key: bytes, authority: bytes = b"") -> Pair:
    """A pair of PEM, of which only the leaf is read; one of `UNREADABLE` where there is none."""
    leaf = x509.load_pem_x509_certificate(certificate)
    return Pair(certificate, key, authority, leaf.not_valid_before_utc, leaf.not_valid_after_utc)


def common_name(text: str) -> x509.Name:
    """A distinguished name of a common name alone."""
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def certificate_builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePrivateKey,
    now: datetime,
    end: datetime,
    serial: int = 0,
) -> x509.CertificateBuilder:
    """What all certificates have that are made here; without a serial number, a random one."""
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(serial or x509.random_serial_number())
        .not_valid_before(now - BACKDATED)
        .not_valid_after(end)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )


_SERVER: Final = common_name("kubevirt-webhook")


def server_builder(
    hosts: Sequence[str], issuer: x509.Name, key: ec.EllipticCurvePrivateKey, now: datetime, end: datetime
) -> x509.CertificateBuilder:
    """A certificate for a server of these hosts, which signs no other."""
    return (
        certificate_builder(_SERVER, issuer, key, now, end)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectAlternativeName([general_name(host) for host in hosts]), critical=False)
    )


def self_signed(hosts: Sequence[str], now: datetime | None = None, life: timedelta = timedelta(days=365)) -> Pair:
    """A new self-signed ECDSA P-256 pair for names and IP addresses, at least one.

    It is valid for its life from now, by default the present, but for five minutes' grace. P-256 because its handshake
    costs the server half of what RSA-2048 does. Go's verifier takes a self-signed leaf as its own root; a CA flag would
    let it sign for others.
    """
    start = now or datetime.now(UTC)
    key = ec.generate_private_key(ec.SECP256R1())
    certificate = server_builder(hosts, _SERVER, key, start, start + life).sign(key, hashes.SHA256())
    pem = certificate.public_bytes(serialization.Encoding.PEM)
    return pair_of(pem, private_pem(key), pem)


def private_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    """A private key in PEM, not encrypted."""
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def check_files(certificate: Path, key: Path, content: tuple[bytes, bytes], now: datetime | None = None) -> Pair:
    """The pair in two PEM files, valid now: a certificate with its chain, and its key, which is not encrypted.

    Args:
        certificate: the file of the certificate, for messages.
        key: the file of its key, for messages.
        content: what the two files hold.
        now: the time at which it must be valid; None: the present.

    Raises:
        CertificateError: a file holds something else, the key is not the certificate's or of a kind that the API server
            cannot use, or the certificate has expired.
    """
    try:
        pair = pair_of(*content)
    except UNREADABLE:
        fix = "use the file that begins with the certificate"
        raise CertificateError(f"{certificate} contains no certificate in PEM; {fix}") from None
    try:
        secret = serialization.load_pem_private_key(pair.key, password=None)
    except TypeError:
        fix = "use an unencrypted key that only the server can read"
        raise CertificateError(f"the key in {key} is encrypted; {fix}") from None
    except (ValueError, UnsupportedAlgorithm):
        raise CertificateError(f"{key} contains no private key in PEM; use the key of the certificate") from None
    if not _usable(secret):
        raise CertificateError(f"Go's TLS does not support the type of the key in {key}; use ECDSA P-256")
    if pair.not_after <= (now or datetime.now(UTC)):
        raise CertificateError(f"the certificate in {certificate} expired at {pair.not_after}; renew it")
    if not belongs(secret, x509.load_pem_x509_certificate(pair.certificate)):
        raise CertificateError(f"the key in {key} does not belong to the certificate in {certificate}; use its key")
    return pair


def _usable(key: object) -> bool:
    """Whether Go's crypto/tls, with which the API server calls webhooks, supports keys of this kind."""
    if isinstance(key, ec.EllipticCurvePrivateKey):
        return isinstance(key.curve, ec.SECP256R1 | ec.SECP384R1 | ec.SECP521R1)
    return isinstance(key, ed25519.Ed25519PrivateKey | rsa.RSAPrivateKey)


def belongs(key: PrivateKeyTypes, certificate: x509.Certificate) -> bool:
    """Whether a key is the certificate's; it is not where the certificate's public key cannot be read."""
    try:
        return key.public_key() == certificate.public_key()
    except UNREADABLE:
        return False


def general_name(host: str) -> x509.GeneralName:
    """A host as certificates name it: an IP address, or else a DNS name."""
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)
