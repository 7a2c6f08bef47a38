"""Files that people give: only regular ones are read, no more of them than fits, and none keeps a command waiting."""

from __future__ import annotations

import gzip
import io
import os
import stat
import zlib
from pathlib import Path
from typing import BinaryIO, Final

from webhook.errors import InputError

# Manifests compress to a twentieth; a file that unfolds to a hundred times its size is none, or a bomb.
MAX_RATIO: Final = 100
# Small files may have any ratio.
_ANY_RATIO_BYTES: Final = 4 * 1024 * 1024
_PIECE_BYTES: Final = 1024 * 1024


_SPLIT: Final = "split it into several files"


def read_file(path: str | os.PathLike[str], most: int, fix: str = _SPLIT) -> bytes:
    """The content of a regular file.

    Args:
        path: the file.
        most: limit of its size, in bytes.
        fix: what to do about a larger one.

    Raises:
        InputError: it cannot be read, is a named pipe, a device or another thing that is not a file, or is larger.
    """
    where = os.fspath(path)
    try:
        # The first check avoids opening a device, which may act on that; the second is of the opened file.
        _check(Path(where).stat(), where)
        # Without O_NONBLOCK, open() of a named pipe that was created since would wait for its writer.
        with os.fdopen(os.open(where, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as stream:
            _check(os.fstat(stream.fileno()), where)
            return read_limited(stream, most, where, fix)
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror or error}", where) from error


def read_limited(stream: BinaryIO, most: int, where: str, fix: str = _SPLIT) -> bytes:
    """All that a stream holds.

    Raises:
        InputError: it holds more than ``most`` bytes.
    """
    data = stream.read(most + 1)
    if len(data) > most:
        raise InputError(f"is larger than {most >> 20} MiB", where, fix)
    return data


def decompress(data: bytes, most: int, where: str) -> bytes:
    """What a gzip file holds.

    Raises:
        InputError: it is not a whole gzip file, or unfolds to more than ``most`` bytes or `MAX_RATIO` times its size.
    """
    allowed = min(most, max(len(data) * MAX_RATIO, _ANY_RATIO_BYTES))
    result = bytearray()
    try:
        with gzip.open(io.BytesIO(data)) as stream:
            while piece := stream.read(_PIECE_BYTES):
                result += piece
                if len(result) > most:
                    raise InputError(f"is larger than {most >> 20} MiB", where, _SPLIT)
                if len(result) > allowed:
                    what = f"decompresses to more than {MAX_RATIO} times its size"
                    raise InputError(what, where, "if you trust it, decompress it first")
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise InputError("is not a whole gzip file", where, "compress it again, or drop .gz from its name") from error
    return bytes(result)


def _check(status: os.stat_result, where: str) -> None:
    if stat.S_ISDIR(status.st_mode):
        raise InputError("cannot be read: Is a directory", where)
    if not stat.S_ISREG(status.st_mode):
        raise InputError(
            "is not a regular file", where, "use a regular file, or - for standard input where it is supported"
        )
