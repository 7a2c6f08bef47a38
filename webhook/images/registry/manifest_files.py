"""What has been fetched, kept over restarts in a directory: each manifest in a file that is named after its digest."""

from __future__ import annotations

import contextlib
import logging
import os
import tempfile
import threading
from collections import OrderedDict
from pathlib import Path
from typing import Final

from webhook.images import manifests

# A file takes a block at least.
_BLOCK_BYTES: Final = 4096

logger = logging.getLogger(__name__)


class ManifestFiles:
    """A directory of manifests; its methods block, and may be called from several threads.

    Args:
        directory: an existing directory of the server's own.
        limit: bytes of all files at most; the oldest make room.

    Attributes:
        size: bytes of all files.
    """

    def __init__(self, directory: Path, limit: int) -> None:
        self._directory: Final = directory
        self._limit: Final = limit
        self._sizes: Final[OrderedDict[str, int]] = OrderedDict()
        self.size = 0
        self._is_broken = False
        self._lock: Final = threading.Lock()
        with contextlib.suppress(OSError):
            self._scan()

    def read(self, digest: str) -> bytes | None:
        """A manifest; None where there is none, or where the file does not have this digest any more."""
        with self._lock:
            if digest not in self._sizes:
                return None
            try:
                with self._path(digest).open("rb") as file:
                    body = file.read(manifests.MAX_BYTES + 1)
            except OSError:
                body = b""
            if manifests.digest_of(body) == digest:
                return body
            self._drop(digest)
            return None

    def write(self, digest: str, body: bytes) -> None:
        """Keep a manifest; a directory that is full or cannot be written to is logged once, and does without it."""
        size = _blocks(len(body))
        with self._lock:
            if digest in self._sizes or size > self._limit:
                return
            while self.size + size > self._limit:
                self._drop(next(iter(self._sizes)))
            try:
                with tempfile.NamedTemporaryFile(dir=self._directory, prefix=".new-", delete=False) as file:
                    file.write(body)
                # Whole or not at all, whatever ends this process.
                Path(file.name).replace(self._path(digest))
            except OSError as error:
                if not self._is_broken:
                    logger.warning("manifests cannot be kept in %s: %s", self._directory, error.strerror)
                self._is_broken = True
                return
            self._sizes[digest] = size
            self.size += size

    def _scan(self) -> None:
        files = []
        for entry in os.scandir(self._directory):
            if entry.name.startswith(".new-"):
                with contextlib.suppress(OSError):
                    Path(entry.path).unlink()
                continue
            digest = entry.name.replace("-", ":", 1)
            if manifests.is_digest(digest) and entry.is_file(follow_symlinks=False):
                status = entry.stat(follow_symlinks=False)
                files.append((status.st_mtime, digest, _blocks(status.st_size)))
        for _, digest, size in sorted(files):
            self._sizes[digest] = size
            self.size += size

    def _path(self, digest: str) -> Path:
        return self._directory / digest.replace(":", "-")

    def _drop(self, digest: str) -> None:
        self.size -= self._sizes.pop(digest)
        with contextlib.suppress(OSError):
            self._path(digest).unlink(missing_ok=True)


def _blocks(size: int) -> int:
    return -(-size // _BLOCK_BYTES) * _BLOCK_BYTES
