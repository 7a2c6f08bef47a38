"""Files that change while they are in use: mounted Secrets, which swap a symbolic link, and others."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Final

from certs.pem import CertificateError, read_pem

POLL_SECONDS: Final = 5.0


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

    def retry(self) -> None:
        """Report the change again: it could not be taken up, for no fault of the files."""
        self._evaluated = ()

    def _digests(self) -> tuple[str, ...]:
        return tuple(map(_digest, self._paths))


def _digest(path: Path) -> str:
    try:
        return hashlib.sha256(read_pem(path)).hexdigest()
    except CertificateError as error:
        return f"unreadable: {error}"
