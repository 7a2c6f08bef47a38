"""Certificates and keys in PEM: read from files, followed while they change, and handed over as a pair."""

from __future__ import annotations

import hashlib
import os
import stat
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Final

# Between two looks at files that are in use.
POLL_SECONDS: Final = 5.0
_MAX_BYTES: Final = 4 * 1024 * 1024


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


def read_pem(path: Path) -> bytes:
    """The content of a regular file that is not too large for certificates; a `CertificateError` where it is none.

    From a named pipe or a device nothing is read: that could block indefinitely.
    """
    try:
        with open(path, "rb", opener=_open_at_once) as stream:
            is_regular = stat.S_ISREG(os.fstat(stream.fileno()).st_mode)
            data = stream.read(_MAX_BYTES + 1) if is_regular else b""
    except OSError as error:
        raise CertificateError(f"{path} cannot be read: {error.strerror}; use a readable PEM file") from None
    except ValueError:
        # A NUL byte, which YAML can have, or half a surrogate pair.
        name = ascii(str(path))
        raise CertificateError(f"{name} is not the name of a file; use that of a readable PEM file") from None
    if not is_regular:
        raise CertificateError(f"{path} is not a regular file; use a readable PEM file")
    if len(data) > _MAX_BYTES:
        raise CertificateError(f"{path} is larger than {_MAX_BYTES >> 20} MiB; use a readable PEM file")
    return data


def _open_at_once(path: str, flags: int) -> int:
    # `open` closes what its opener has opened where that is a directory; os.fdopen does not.
    return os.open(path, flags | os.O_NONBLOCK)


class FileWatcher:
    """Files that are followed by content: watching for events misses a mounted Secret's change of links.

    A change counts once two looks in a row have seen it, so that half a write, or a certificate whose key comes a
    moment later, is nothing.
    """

    def __init__(self, *paths: Path) -> None:
        self._paths: Final = paths
        self._seen = self._evaluated = self._digests()

    def has_changed(self) -> bool:
        """Whether the files have settled on a content that is not the last one; reads them, so call it in a thread."""
        now = self._digests()
        settled = now == self._seen
        self._seen = now
        if not settled or now == self._evaluated:
            return False
        self._evaluated = now
        return True

    def _digests(self) -> tuple[str, ...]:
        return tuple(map(_digest, self._paths))


def _digest(path: Path) -> str:
    try:
        return hashlib.sha256(read_pem(path)).hexdigest()
    except CertificateError as error:
        return f"unreadable: {error}"
