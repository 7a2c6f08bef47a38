"""The serving TLS context, and how it changes under open connections."""

from __future__ import annotations

import os
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
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
    # OpenSSL wants files: these are in memory alone, so that a key touches no disk and a read-only root will do.
    with _in_memory("tls.crt", certificate) as crt, _in_memory("tls.key", key) as secret:
        result.load_cert_chain(crt, secret)
    return result


@contextmanager
def _in_memory(name: str, content: bytes) -> Iterator[str]:
    """The path of a file that is in memory only, for as long as the context lasts."""
    with os.fdopen(os.memfd_create(name), "wb", buffering=0) as file:
        file.write(content)
        yield f"/proc/self/fd/{file.fileno()}"


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
