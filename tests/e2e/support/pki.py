"""The certificates of one control plane: an authority, serving certificates, and a client certificate per identity.

For the API server a client certificate is a name and groups, signed: that makes it the shortest way to act as any user,
KubeVirt's service accounts included. The authority lives in files, so that every process that shares a plane can issue.
"""

from __future__ import annotations

import base64
import datetime as dt
import hashlib
import json
import os
import re
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from certs.source import certificate_builder, common_name, server_builder

LOOPBACK = ("localhost", "127.0.0.1")
LIFETIME = dt.timedelta(days=7)


class Identity(NamedTuple):
    """The sender of a request; unpacks into every method that takes a user and groups."""

    user: str
    groups: tuple[str, ...] = ()


def service_account(namespace: str, name: str) -> Identity:
    """The identity that the API server gives to a service account's token."""
    return Identity(
        f"system:serviceaccount:{namespace}:{name}", ("system:serviceaccounts", f"system:serviceaccounts:{namespace}")
    )


ADMIN = Identity("admin", ("system:masters",))
KUBEVIRT_CONTROLLER = service_account("kubevirt", "kubevirt-controller")
KUBEVIRT_APISERVER = service_account("kubevirt", "kubevirt-apiserver")
KUBE_SCHEDULER = Identity("system:kube-scheduler")


class Pki:
    """Issues certificates into ``directory``; every PEM file holds a key and its certificate."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.ca = directory / "ca.crt"
        self.service_account_key = directory / "service-accounts.pem"
        self._ca_pem = directory / "ca.pem"
        if not self._ca_pem.exists():
            self._create_authority()
        pem = self._ca_pem.read_bytes()
        self._ca_key = serialization.load_pem_private_key(pem, password=None)
        self._subject = x509.load_pem_x509_certificate(pem).subject

    def serving(self, name: str, hosts: Sequence[str] = LOOPBACK) -> Path:
        """A server's key and certificate, valid for ``hosts``."""
        key = ec.generate_private_key(ec.SECP256R1())
        return self._issue(f"serving-{name}", key, server_builder(hosts, self._subject, key, *_validity()))

    def client(self, user: str, groups: Iterable[str] = ()) -> Path:
        """A client's key and certificate, issued once for each identity."""
        groups = tuple(groups)
        path = self.directory / f"{_file_name(user, groups)}.pem"
        if path.exists():
            return path
        key = ec.generate_private_key(ec.SECP256R1())
        subject = _name((NameOID.COMMON_NAME, user), *((NameOID.ORGANIZATION_NAME, group) for group in groups))
        purpose = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH])
        builder = certificate_builder(subject, self._subject, key, *_validity()).add_extension(purpose, critical=False)
        return self._issue(path.stem, key, builder)

    def kubeconfig(self, server: str, user: str, groups: Iterable[str] = ()) -> Path:
        """A kubeconfig for ``user`` that refers to no other file, so that it may be copied and mounted anywhere."""
        pem = self.client(user, groups)
        secret = base64.b64encode(pem.read_bytes()).decode()
        config = kubeconfig(server, self.ca, {"client-certificate-data": secret, "client-key-data": secret}, user)
        return _write(pem.with_suffix(".kubeconfig"), config.encode())

    def _create_authority(self) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)
        key = ec.generate_private_key(ec.SECP256R1())
        name = common_name("e2e control plane")
        others = "content_commitment key_encipherment data_encipherment key_agreement encipher_only decipher_only"
        signs = dict.fromkeys(("digital_signature", "key_cert_sign", "crl_sign"), True)
        certificate = (
            certificate_builder(name, name, key, *_validity())
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(x509.KeyUsage(**signs, **dict.fromkeys(others.split(), False)), critical=True)
            .sign(key, hashes.SHA256())
        )
        _write(self.service_account_key, _key_pem(ec.generate_private_key(ec.SECP256R1())))
        _write(self.ca, certificate.public_bytes(serialization.Encoding.PEM))
        _write(self._ca_pem, _key_pem(key) + self.ca.read_bytes())

    def _issue(self, stem: str, key: ec.EllipticCurvePrivateKey, builder: x509.CertificateBuilder) -> Path:
        assert isinstance(self._ca_key, ec.EllipticCurvePrivateKey)
        authority = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._ca_key.public_key())
        certificate = builder.add_extension(authority, critical=False).sign(self._ca_key, hashes.SHA256())
        pem = certificate.public_bytes(serialization.Encoding.PEM)
        return _write(self.directory / f"{stem}.pem", _key_pem(key) + pem)


def kubeconfig(server: str, ca: Path | None, credentials: Mapping[str, str], user: str = "e2e") -> str:
    """The text of a kubeconfig that refers to no other file."""
    authority = {"certificate-authority-data": base64.b64encode(ca.read_bytes()).decode()} if ca else {}
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "e2e", "cluster": {"server": server, **authority}}],
        "users": [{"name": user, "user": dict(credentials)}],
        "contexts": [{"name": "e2e", "context": {"cluster": "e2e", "user": user}}],
        "current-context": "e2e",
    }
    return json.dumps(config, indent=1)


def _validity() -> tuple[dt.datetime, dt.datetime]:
    now = dt.datetime.now(dt.UTC)
    return now, now + LIFETIME


def _name(*attributes: tuple[x509.ObjectIdentifier, str]) -> x509.Name:
    """One attribute in each part of the name: the API server reads groups from as many O parts as there are."""
    # Users of Kubernetes may have names beyond X.509's limit of 64 characters; neither Go nor this module enforces it.
    return x509.Name([x509.NameAttribute(oid, value, _validate=False) for oid, value in attributes])


def _key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    # The traditional form, not PKCS #8: the API server reads service account keys in it.
    form = serialization.PrivateFormat.TraditionalOpenSSL
    return key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption())


def _file_name(user: str, groups: tuple[str, ...]) -> str:
    """Readable, and different for different groups of one user."""
    readable = re.sub(r"[^A-Za-z0-9]+", "-", user).strip("-")[:60]
    digest = hashlib.sha256("\0".join((user, *groups)).encode()).hexdigest()[:8]
    return f"{readable}-{digest}"


def _write(path: Path, content: bytes) -> Path:
    """Writes by rename: parallel workers may issue the same certificate, and none of them may read half of it."""
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    with os.fdopen(handle, "wb") as file:
        file.write(content)
    return Path(temporary).replace(path)
