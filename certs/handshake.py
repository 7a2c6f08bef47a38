"""What TLS is made of: whom a client trusts, as programs in Go do, and which certificate either side shows."""

from __future__ import annotations

import asyncio
import os
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

_HANDSHAKE_SECONDS: Final = 5.0


def verifying(authorities: bytes | None = None) -> ssl.SSLContext:
    """TLS of a client that verifies servers by some authorities (PEM), or by those of the system where that is None.

    As in Go, whatever is among the authorities is trusted by itself, and a CA needs no key identifier, as that of EKS
    has none. Python's own defaults follow RFC 5280 from 3.13 on.

    Raises:
        ssl.SSLError, ValueError: there is no certificate among the authorities, or one that is not valid.
    """
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    tls.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    if authorities is None:
        tls.load_default_certs()
    else:
        trust(tls, authorities)
    return tls


def trust(tls: ssl.SSLContext, authorities: bytes) -> None:
    """Verify the other side by some authorities (PEM), between which there may be words in any encoding.

    Raises:
        ssl.SSLError, ValueError: there is no certificate among the authorities, or one that is not valid.
    """
    tls.load_verify_locations(cadata=authorities.decode("ascii", "ignore"))


def show(tls: ssl.SSLContext, certificate: bytes, key: bytes) -> None:
    """Let a server or a client show a certificate (PEM, with what leads to its issuer), whose key is not encrypted.

    OpenSSL wants files: these are in memory alone, so that a key touches no disk and a read-only root will do.

    Raises:
        ssl.SSLError: OpenSSL does not accept one of them, or they don't belong together.
    """
    with _in_memory("tls.crt", certificate) as crt, _in_memory("tls.key", key) as secret:
        # With a password, if an empty one, OpenSSL does not ask for that of an encrypted key at the terminal.
        tls.load_cert_chain(crt, secret, "")


@contextmanager
def _in_memory(name: str, content: bytes) -> Iterator[str]:
    """The path of a file that is in memory only, for as long as the context lasts."""
    with os.fdopen(os.memfd_create(name), "wb", buffering=0) as file:
        file.write(content)
        yield f"/proc/self/fd/{file.fileno()}"


async def verify_server_certificate(address: str, port: int, host: str, pem: bytes) -> None:
    """Dial a port of a name or IP address, and complete a TLS handshake as a client makes it that trusts a bundle.

    Raises:
        ssl.SSLCertVerificationError: the certificate is not accepted for the host; ``verify_message`` says why.
        OSError, TimeoutError: nothing answers, or not with TLS.
        ValueError: there is no certificate in the bundle.
    """
    trust = verifying(pem)
    async with asyncio.timeout(_HANDSHAKE_SECONDS):
        _, writer = await asyncio.open_connection(address, port, ssl=trust, server_hostname=host)
    writer.transport.abort()
