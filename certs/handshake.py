"""The TLS handshake of a client that trusts a caBundle."""

from __future__ import annotations

import asyncio
import ssl
from typing import Final

_HANDSHAKE_SECONDS: Final = 5.0


async def verify_server_certificate(address: str, port: int, host: str, pem: bytes) -> None:
    """Dial a port of a name or IP address, and complete a TLS handshake as a client makes it that trusts a bundle.

    Raises:
        ssl.SSLCertVerificationError: the certificate is not accepted for the host; ``verify_message`` says why.
        OSError, TimeoutError: nothing answers, or not with TLS.
        ValueError: the bundle is not ASCII.
    """
    trust = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    # As in Go, whatever is in the bundle is trusted by itself.
    trust.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    trust.load_verify_locations(cadata=pem.decode("ascii"))
    async with asyncio.timeout(_HANDSHAKE_SECONDS):
        _, writer = await asyncio.open_connection(address, port, ssl=trust, server_hostname=host)
    writer.transport.abort()
