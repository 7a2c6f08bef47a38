"""Where audit lines end up: standard output, or a file of bounded size."""

from __future__ import annotations

import logging
import os
import select
import stat
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, Protocol

from webhook.errors import InputError

logger = logging.getLogger(__name__)


class Lost(Exception):  # noqa: N818 - the rest goes on
    """Lines that could not be written.

    Args:
        lines: how many.
        why: the cause as a clause.
    """

    def __init__(self, lines: int, why: str) -> None:
        super().__init__(why)
        self.lines: Final = lines
        self.why: Final = why


class Output(Protocol):
    """The destination of audit lines, which takes whole lines."""

    def write(self, lines: Sequence[bytes]) -> None:
        """Write lines, which come without their ends; may block. `Lost` where not all were written; the next may be."""


class Descriptor(Output):
    """An open file descriptor that others may share, for example 1. It stays open.

    Args:
        descriptor: its number.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor: Final = descriptor
        self._torn = False

    def write(self, lines: Sequence[bytes]) -> None:
        """Write lines. A part of one that a failure left behind gets an end first, so that it spoils no other."""
        data = b"\n".join((*((b"",) if self._torn else ()), *lines, b""))
        done = 0
        try:
            while done < len(data):
                done += self._write_some(memoryview(data)[done:])
        except OSError as error:
            lost = min(data.count(b"\n", done), len(lines))
            self._torn = data[done - 1 : done] != b"\n" if done else self._torn
            raise Lost(lost, _why(error)) from None
        self._torn = False

    def _write_some(self, data: memoryview) -> int:
        while True:
            try:
                return os.write(self._descriptor, data)
            except BlockingIOError:
                # Another process that shares the descriptor has made it non-blocking: wait for the reader.
                select.select((), (self._descriptor,), ())


class RotatedFile(Output):
    """A file that makes room for a new one when it is full: ``FILE``, then ``FILE.1`` to ``FILE.keep``.

    A file that logrotate or another program renames, removes or truncates is opened again for the next lines; no signal
    is needed. Only one process may write to it.

    Args:
        path: the path of the file, in a directory that exists.
        max_bytes: size of one file, at least some hundred kilobytes.
        keep: full files to keep.

    Raises:
        InputError: it cannot be opened.
    """

    def __init__(self, path: str, max_bytes: int, keep: int) -> None:
        self._path: Final = Path(path)
        self._max_bytes: Final = max_bytes
        self._keep: Final = keep
        self._stuck = False
        try:
            self._descriptor = _open(self._path)
        except OSError as error:
            what = f"audit lines cannot be written to it: {_why(error)}"
            fix = "name a file in a directory that kubevirt-webhook may write to, or stdout"
            raise InputError(what, path, fix) from None

    def write(self, lines: Sequence[bytes]) -> None:
        """Write lines to the file, or to a new one if they would make it too large."""
        written, data, size = 0, b"\n".join((*lines, b"")), None
        try:
            size = self._follow()
            if size and size + len(data) > self._max_bytes:
                size = self._rotate(size)
            while written < len(data):
                written += os.write(self._descriptor, memoryview(data)[written:])
        except OSError as error:
            whole = data.rfind(b"\n", 0, written) + 1
            if written > whole and size is not None:
                with suppress(OSError):
                    os.ftruncate(self._descriptor, size + whole)
            raise Lost(data.count(b"\n", whole), _why(error)) from None

    def _follow(self) -> int:
        """The size of the file at the path, in bytes; a file that was replaced there is opened again."""
        opened = os.fstat(self._descriptor)
        try:
            there: os.stat_result | None = self._path.stat()
        except FileNotFoundError:
            there = None
        if there is None or not os.path.samestat(opened, there):
            self._reopen()
            opened = os.fstat(self._descriptor)
        return opened.st_size

    def _rotate(self, size: int) -> int:
        """The size in bytes after a full file of this size was put away; unchanged where that could not be done."""
        try:
            for number in range(self._keep - 1, 0, -1):
                with suppress(FileNotFoundError):
                    self._numbered_path(number).replace(self._numbered_path(number + 1))
            self._path.replace(self._numbered_path(1))
        except OSError as error:
            if not self._stuck:
                logger.warning("%s: cannot be rotated, so that it grows: %s", self._path, _why(error))
            self._stuck = True
            return size
        self._stuck = False
        self._reopen()
        return 0

    def _numbered_path(self, number: int) -> Path:
        return self._path.with_name(f"{self._path.name}.{number}")

    def _reopen(self) -> None:
        fresh = _open(self._path)
        os.close(self._descriptor)
        self._descriptor = fresh


def _open(path: Path) -> int:
    """A descriptor that appends to a regular file, whose last line has an end; an `OSError` where there can be none."""
    # Without O_NONBLOCK, open() of a named pipe would wait for its reader.
    descriptor = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK, 0o600)
    try:
        _end_last_line(descriptor)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def _end_last_line(descriptor: int) -> None:
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode):
        raise OSError(0, "not a regular file")
    if status.st_size and os.pread(descriptor, 1, status.st_size - 1) != b"\n":
        os.write(descriptor, b"\n")


def _why(error: OSError) -> str:
    return error.strerror or str(error)
