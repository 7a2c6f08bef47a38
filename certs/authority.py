"""The server's own CA: created, read, kept as PEM, and used to issue serving certificates.

It may sign for the service's own hosts only (RFC 5280, 4.2.1.10), so that a stolen key is of no use anywhere else.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import lru_cache
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.verification import PolicyBuilder, Store, VerificationError

from certs import source
from certs.pem import CertificateError, Pair

# No hyphen is in base64. With any character between the two, many beginnings without an end would take the square of
# their number, and a beginning that is cut off would take the next certificate with it.
_PEM: Final = re.compile(rb"-----BEGIN CERTIFICATE-----[^-]+-----END CERTIFICATE-----")
# Bundles that are kept with what is in them: their number, and the size up to which one is.
_KEPT_BUNDLES: Final = 64
_KEPT_BYTES: Final = 32 * 1024
_EVERY_IP: Final = ("0.0.0.0/0", "::/0")
# A top-level domain that never exists (RFC 2606): where it is the only name allowed, none is.
_NO_NAME: Final = "invalid"


@dataclass(frozen=True)
class Authority:
    """A CA certificate and its key."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey = field(compare=False, repr=False)

    @classmethod
    def new(cls, hosts: Sequence[str], now: datetime, life: timedelta) -> Authority:
        """A new ECDSA P-256 CA, which may sign for these hosts, at least one, and no CA beneath it.

        It is valid from now, but for five minutes' grace, for its life.
        """
        key = ec.generate_private_key(ec.SECP256R1())
        serial = x509.random_serial_number()
        # A name of its own: with the same name on two CAs a verifier has to try both.
        name = _name(serial)
        certificate = (
            source.certificate_builder(name, name, key, now, now + life, serial)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_usage(signs_certificates=True), critical=True)
            .add_extension(_constraints(hosts), critical=True)
            .sign(key, hashes.SHA256())
        )
        return cls(certificate, key)

    @classmethod
    def parse(cls, certificate: bytes, key: bytes) -> Authority:
        """From PEM; a `CertificateError`, which quotes neither, where they are something else or no pair."""
        certificates = parse_bundle(certificate)
        if len(certificates) != 1:
            raise CertificateError("no CA certificate in PEM" if not certificates else "more than one CA certificate")
        try:
            secret = serialization.load_pem_private_key(key, password=None)
        except source.UNREADABLE:
            raise CertificateError("the CA's key is missing or not unencrypted PEM") from None
        if not isinstance(secret, ec.EllipticCurvePrivateKey):
            raise CertificateError("the CA's key is not an ECDSA key")
        if not source.belongs(secret, certificates[0]):
            raise CertificateError("the CA's key does not belong to its certificate")
        with suppress(x509.ExtensionNotFound, *source.UNREADABLE):
            if certificates[0].extensions.get_extension_for_class(x509.BasicConstraints).value.ca:
                return cls(certificates[0], secret)
        raise CertificateError("the certificate is not a CA's")

    def issue(self, hosts: Sequence[str], now: datetime, life: timedelta) -> Pair:
        """A serving certificate with a key of its own, not valid beyond the CA itself."""
        key = ec.generate_private_key(ec.SECP256R1())
        end = min(now + life, self.certificate.not_valid_after_utc)
        certificate = (
            source.server_builder(hosts, self.certificate.subject, key, now, end)
            .add_extension(_usage(signs_certificates=False), critical=True)
            .add_extension(self._key_identifier(), critical=False)
            .sign(self.key, hashes.SHA256())
        )
        return source.pair_of(bundle([certificate]), source.private_pem(key), self.pem)

    def _key_identifier(self) -> x509.AuthorityKeyIdentifier:
        """By which verifiers find the CA of what it issues: the CA's own, however that was made of its key."""
        with suppress(x509.ExtensionNotFound, *source.UNREADABLE):
            extension = self.certificate.extensions.get_extension_for_class(x509.SubjectKeyIdentifier)
            return x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(extension.value)
        return x509.AuthorityKeyIdentifier.from_issuer_public_key(self.key.public_key())

    def unusable(self, hosts: Sequence[str], now: datetime) -> str:
        """Why nothing can be issued at this time, as a clause; empty if it can. Without hosts, no constraint counts."""
        certificate = self.certificate
        if now >= certificate.not_valid_after_utc:
            return f"the CA expired at {certificate.not_valid_after_utc}"
        if now < certificate.not_valid_before_utc:
            return f"the CA is not valid before {certificate.not_valid_before_utc}"
        try:
            constraints = certificate.extensions.get_extension_for_class(x509.NameConstraints).value
        except x509.ExtensionNotFound:
            return ""
        if hosts and constraints != _constraints(hosts):
            return f"the CA was not made for {', '.join(hosts)}"
        return ""

    @property
    def pem(self) -> bytes:
        """The certificate of the CA in PEM."""
        return bundle([self.certificate])

    @property
    def key_pem(self) -> bytes:
        """The key of the CA in PEM, not encrypted."""
        return source.private_pem(self.key)


def is_bound(certificate: x509.Certificate, hosts: Sequence[str]) -> bool:
    """Whether a CA is one as `Authority.new` makes it for these hosts: so named, and of no use for any others.

    Anyone can make such a CA, but it can only sign for these hosts.
    """
    try:
        extensions = certificate.extensions
        basic = extensions.get_extension_for_class(x509.BasicConstraints)
        bounds = extensions.get_extension_for_class(x509.NameConstraints)
    except (x509.ExtensionNotFound, *source.UNREADABLE):
        return False
    return (
        certificate.subject == certificate.issuer == _name(certificate.serial_number)
        and basic.value == x509.BasicConstraints(ca=True, path_length=0)
        and bounds.value == _constraints(hosts)
        and basic.critical
        and bounds.critical
    )


def bundle(certificates: Iterable[x509.Certificate]) -> bytes:
    """Certificates as PEM, one after the other."""
    return b"".join(each.public_bytes(serialization.Encoding.PEM) for each in certificates)


def parse_bundle(pem: bytes) -> tuple[x509.Certificate, ...]:
    """The certificates in PEM, each once; what cannot be read is left out: people edit bundles."""
    # Others write some of them, of up to a MiB each.
    return _parse_kept(pem) if len(pem) <= _KEPT_BYTES else _parse(pem)


@lru_cache(maxsize=_KEPT_BUNDLES)
def _parse_kept(pem: bytes) -> tuple[x509.Certificate, ...]:
    return _parse(pem)


def _parse(pem: bytes) -> tuple[x509.Certificate, ...]:
    result: dict[x509.Certificate, object] = {}
    for block in _PEM.findall(pem):
        with suppress(*source.UNREADABLE):
            certificate = x509.load_pem_x509_certificate(block)
            # Names are not read before they are needed, and an error must not come then.
            result[certificate] = certificate.subject, certificate.issuer
    return tuple(result)


def is_bundle_of(pem: bytes, certificates: Collection[x509.Certificate]) -> bool:
    """Whether a bundle has these certificates alone: another that cannot be read here, the API server may trust."""
    return {*map(parse_bundle, _PEM.findall(pem))} == {(each,) for each in certificates}


def check_client_authorities(path: Path, pem: bytes) -> None:
    """Whether a file of the CAs of clients holds any; else a `CertificateError`, which names the file."""
    if not parse_bundle(pem):
        fix = "use the CA of the API server's client certificate"
        raise CertificateError(f"{path} contains no certificate in PEM; {fix}")


def verifies(trusted: bytes, leaf: x509.Certificate, host: str, now: datetime) -> bool:
    """Whether a client that trusts a bundle accepts a leaf for a host at a given time."""
    roots = parse_bundle(trusted)
    if not roots:
        return False
    name = source.general_name(host)
    assert isinstance(name, x509.DNSName | x509.IPAddress)
    verifier = PolicyBuilder().store(Store(list(roots))).time(now).build_server_verifier(name)
    try:
        verifier.verify(leaf, [])
    except VerificationError:
        return False
    return True


def _name(serial: int) -> x509.Name:
    return source.common_name(f"kubevirt-webhook CA {serial & 0xFFFFFFFF:08x}")


def _constraints(hosts: Sequence[str]) -> x509.NameConstraints:
    names = [source.general_name(host) for host in hosts]
    domains = [name for name in names if isinstance(name, x509.DNSName)] or [x509.DNSName(_NO_NAME)]
    networks = [x509.IPAddress(ipaddress.ip_network(name.value)) for name in names if isinstance(name, x509.IPAddress)]
    # A kind of name that no permitted subtree mentions is not restricted at all.
    none = None if networks else [x509.IPAddress(ipaddress.ip_network(every)) for every in _EVERY_IP]
    return x509.NameConstraints(permitted_subtrees=[*domains, *networks], excluded_subtrees=none)


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    unused = ("content_commitment", "key_encipherment", "data_encipherment", "key_agreement")
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
        **dict.fromkeys(unused, False),
    )
