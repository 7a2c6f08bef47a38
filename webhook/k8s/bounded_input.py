"""Files and streams of other people, read at a bounded size: regular files alone, and no bombs."""

from __future__ import annotations

import gzip
import io
import os
import zlib
from typing import BinaryIO, Final

from certs import files
from webhook.errors import InputError

# Manifests compress to a twentieth; a file that unfolds to a hundred times its size is none, or a bomb.
MAX_RATIO: Final = 100
# Small files may have any ratio.
_ANY_RATIO_BYTES: Final = 4 * 1024 * 1024
_PIECE_BYTES: Final = 1024 * 1024
_SPLIT: Final = "split it into several files"


def read_file(path: str | os.PathLike[str], most: int, fix: str = _SPLIT) -> bytes:
    """The content of a regular file of at most so many bytes; ``fix`` is what to do about a larger one.

    An `InputError` where it cannot be read, is larger, or is a named pipe, a device or another thing that is no file.
    """
    try:
        return files.read(path, most)
    except files.FileError as error:
        # What people give a command in place of a file is often the output of another.
        irregular = "use a regular file, or - for standard input where it is supported"
        does = {files.LargeFileError: fix, files.IrregularFileError: irregular}.get(type(error), error.fix)
        raise InputError(error.what, os.fspath(path), does) from error


def read_limited(stream: BinaryIO, most: int, where: str, fix: str = _SPLIT) -> bytes:
    """All that a stream holds; an `InputError` where that is more than ``most`` bytes."""
    data = stream.read(most + 1)
    if len(data) > most:
        raise InputError(f"is larger than {most >> 20} MiB", where, fix)
    return data


def decompress(data: bytes, most: int, where: str) -> bytes:
    """What a whole gzip file holds, of ``most`` bytes or `MAX_RATIO` times its size at most; else an `InputError`."""
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
