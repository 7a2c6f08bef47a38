"""The serving TLS context, and how it changes under open connections."""

from __future__ import annotations

import ssl
import tempfile
from pathlib import Path
from typing import Final


def context(certificate: bytes, key: bytes) -> ssl.SSLContext:
    """A TLS 1.2+ server context for a pair in PEM.

    Raises:
        ssl.SSLError: OpenSSL refuses the pair.
    """
    result = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    result.minimum_version = ssl.TLSVersion.TLSv1_2
    # Admission clients keep no sessions (client-go has no ClientSessionCache): a ticket would be work for nothing.
    result.num_tickets = 0
    result.set_alpn_protocols(["http/1.1"])
    # OpenSSL wants files. The directory is ours alone and gone at once.
    with tempfile.TemporaryDirectory(prefix="kubevirt-webhook-") as directory:
        files = Path(directory, "tls.crt"), Path(directory, "tls.key")
        for file, content in zip(files, (certificate, key), strict=True):
            file.touch(0o600)
            file.write_bytes(content)
        result.load_cert_chain(*files)
    return result


class Swappable:
    """A context for the listener, whose pair can be replaced while connections are open.

    Loading a new pair into the live context breaks it for every later handshake if key and certificate don't match.
    So each pair gets a context of its own, and the handshake picks the present one; it is asked without SNI as well.
    """

    def __init__(self, certificate: bytes, key: bytes) -> None:
        self.listener: Final = context(certificate, key)
        self._present = self.listener
        self.listener.sni_callback = self._pick

    def swap(self, certificate: bytes, key: bytes) -> None:
        """Serve new handshakes with another pair; open connections keep theirs.

        Raises:
            ssl.SSLError: OpenSSL refuses the pair; the present one stays.
        """
        self._present = context(certificate, key)

    def _pick(self, connection: ssl.SSLObject, _name: str | None, _listener: ssl.SSLContext) -> None:
        connection.context = self._present
