"""TLS of clients that trust what programs in Go do, such as the API server, kubectl and kubelets."""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path
from typing import Final

_HANDSHAKE_SECONDS: Final = 5.0


def verifying(cafile: str | Path | None = None, cadata: str | None = None) -> ssl.SSLContext:
    """TLS that verifies servers by some authorities, or by the system's; an `OSError` or `ValueError` where it cannot.

    As in Go, whatever is among the authorities is trusted by itself, and a CA needs no key identifier, as that of EKS
    has none. Python's own defaults follow RFC 5280 from 3.13 on.
    """
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    tls.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    if cafile is None and cadata is None:
        tls.load_default_certs()
    else:
        tls.load_verify_locations(cafile, cadata=cadata)
    return tls


async def verify_server_certificate(address: str, port: int, host: str, pem: bytes) -> None:
    """Dial a port of a name or IP address, and complete a TLS handshake as a client makes it that trusts a bundle.

    Raises:
        ssl.SSLCertVerificationError: the certificate is not accepted for the host; ``verify_message`` says why.
        OSError, TimeoutError: nothing answers, or not with TLS.
        ValueError: the bundle is not ASCII.
    """
    trust = verifying(cadata=pem.decode("ascii"))
    async with asyncio.timeout(_HANDSHAKE_SECONDS):
        _, writer = await asyncio.open_connection(address, port, ssl=trust, server_hostname=host)
    writer.transport.abort()
