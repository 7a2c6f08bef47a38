"""A TLS handshake as a client makes it that trusts a bundle, to learn whether it would accept a server."""

from __future__ import annotations

import asyncio
import ssl
from typing import Final

_SECONDS: Final = 5.0


async def verify_server_certificate(address: str, port: int, host: str, pem: bytes) -> None:
    """Shake hands and hang up.

    Args:
        address: to dial: a name or an IP address.
        host: that the certificate must be for.
        pem: what is trusted.

    Raises:
        ssl.SSLCertVerificationError: the certificate is refused; ``verify_message`` says why.
        OSError, TimeoutError: there is nobody, or no TLS.
        ValueError: the bundle is no ASCII.
    """
    trust = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    # As in Go, whatever is in the bundle is trusted by itself.
    trust.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    trust.load_verify_locations(cadata=pem.decode("ascii"))
    async with asyncio.timeout(_SECONDS):
        _, writer = await asyncio.open_connection(address, port, ssl=trust, server_hostname=host)
    writer.transport.abort()
