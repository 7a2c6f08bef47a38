"""Certificates and keys in PEM, handed over as a pair."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

# Between two looks at files that are in use.
POLL_SECONDS: Final = 5.0
# The size of a file of certificates or of a key.
MAX_BYTES: Final = 4 * 1024 * 1024


class CertificateError(ValueError):
    """A certificate or key that cannot be used; the text is one sentence."""


@dataclass(frozen=True)
class Pair:
    """A serving certificate and its private key; `certs.source.pair_of` makes one.

    Attributes:
        certificate: PEM; the leaf first, then what leads to its issuer.
        key: PEM, unencrypted.
        authority: PEM of what a client must trust; the certificate itself where it is self-signed, empty if unknown.
        not_before: when the leaf begins to be valid, in UTC.
        not_after: when the leaf expires, in UTC.
    """

    certificate: bytes
    key: bytes = field(repr=False)
    authority: bytes
    not_before: datetime
    not_after: datetime

    def is_valid(self, now: datetime) -> bool:
        """Whether the leaf is valid at a time."""
        return self.not_before <= now < self.not_after
