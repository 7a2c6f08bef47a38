"""The serving TLS context, and how it changes under open connections."""

from __future__ import annotations

import asyncio
import ssl
from typing import Final

from certs.handshake import show, trust


def context(certificate: bytes = b"", key: bytes = b"", client_ca: bytes = b"") -> ssl.SSLContext:
    """A server context, of the parts that `ReloadableTLSContext` has.

    Raises:
        ssl.SSLError: OpenSSL does not accept one of them.
    """
    result = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    result.minimum_version = ssl.TLSVersion.TLSv1_2
    # Admission clients keep no sessions (client-go has no ClientSessionCache): a ticket would be work for nothing.
    result.num_tickets = 0
    # OpenSSL 3 denies clients that want to renegotiate by itself; with older ones each renegotiation costs a handshake.
    result.options |= ssl.OP_NO_RENEGOTIATION
    result.set_alpn_protocols(["http/1.1"])
    if client_ca:
        # Optional, and denied by HTTP where it is missing: the API server then says why, instead of an alert's
        # number. A certificate of a stranger still ends the handshake. In TLS 1.2 a resumed session would bring back a
        # client that was verified long ago.
        result.verify_mode = ssl.CERT_OPTIONAL
        result.minimum_version = ssl.TLSVersion.TLSv1_3
        try:
            trust(result, client_ca)
        except ValueError:
            raise ssl.SSLError(0, "no PEM") from None
    if certificate:
        show(result, certificate, key)
    return result


class ReloadableTLSContext:
    """A context for the listener, whose pair can be replaced while connections are open.

    Loading a new pair into the live context breaks it for every later handshake if key and certificate do not match. So
    each pair gets a context of its own, and the handshake picks the present one, also without SNI. Whether clients need
    a certificate is fixed with the listener; the CAs that sign them may change. One thread makes all changes, since
    each of them takes over what it does not change.

    Args:
        certificate: PEM; empty: every handshake fails until the first `swap`.
        key: PEM of the certificate's key.
        client_ca: PEM of the CAs whose client certificates are accepted; empty: clients need none.
    """

    def __init__(self, certificate: bytes = b"", key: bytes = b"", client_ca: bytes = b"") -> None:
        self._use(certificate, key, client_ca)
        self.listener: Final = self._present
        self.listener.sni_callback = self._pick

    def swap(self, certificate: bytes, key: bytes) -> None:
        """Serve new handshakes with another pair; open connections keep theirs.

        Raises:
            ssl.SSLError: OpenSSL does not accept the pair; the present one is kept.
        """
        self._use(certificate, key, self._parts[2])

    def trust(self, client_ca: bytes) -> None:
        """Verify clients of new handshakes by other CAs.

        Raises:
            ssl.SSLError: OpenSSL does not accept them; the present ones are kept.
        """
        self._use(*self._parts[:2], client_ca)

    def _use(self, certificate: bytes, key: bytes, client_ca: bytes) -> None:
        self._present = context(certificate, key, client_ca)
        self._parts = (certificate, key, client_ca)

    def _pick(self, connection: ssl.SSLObject, _name: str | None, _listener: ssl.SSLContext) -> None:
        connection.context = self._present


def client_name(transport: asyncio.BaseTransport) -> str:
    """The common name in the verified certificate of a connection's client; empty without one."""
    certificate = transport.get_extra_info("peercert") or {}
    subject = dict(pair for part in certificate.get("subject", ()) for pair in part)
    return str(subject.get("commonName", ""))
