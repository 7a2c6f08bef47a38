"""Files that others write: read within bounds, and followed while they change. Knows nothing of what they hold."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Final


class FileError(ValueError):
    """A file that cannot be read; the text is one sentence.

    Args:
        what: what is wrong, as a clause about the file.
        path: the path of the file, as it is shown.
        fix: what to do about it; empty where the clause says it.
    """

    def __init__(self, what: str, path: str, fix: str = "") -> None:
        super().__init__(what, path, fix)
        self.what: Final = what
        self.path: Final = path
        self.fix: Final = fix

    def __str__(self) -> str:
        return f"{self.path} {self.what}{f'; {self.fix}' if self.fix else ''}"


class IrregularFileError(FileError):
    """A named pipe, a device or another thing that may have no end."""


class LargeFileError(FileError):
    """A file of more bytes than are read."""


def read(path: str | os.PathLike[str], most: int) -> bytes:
    """The content of a regular file of at most so many bytes; a `FileError` where there is none.

    Of a named pipe or a device nothing is read: that could take forever.
    """
    where = os.fspath(path)
    try:
        # The first look avoids opening a device, which may act on that; the second is at the opened file.
        _check(Path(where).stat(), where)
        # Without O_NONBLOCK, the opening of a named pipe that was created since would wait for its writer. A directory
        # that was created since is closed by `open`, not by os.fdopen.
        with open(where, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as stream:
            _check(os.fstat(stream.fileno()), where)
            data = stream.read(most + 1)
    except OSError as error:
        raise FileError(f"cannot be read: {error.strerror or error}", where) from error
    except FileError:
        raise
    except ValueError as error:
        # A NUL byte, which YAML can have, or half a surrogate pair.
        raise FileError("cannot be read: its name is not one of a file", ascii(where)[1:-1]) from error
    if len(data) > most:
        raise LargeFileError(f"is larger than {most >> 20} MiB", where, "use a smaller one")
    return data


def _check(status: os.stat_result, where: str) -> None:
    if stat.S_ISDIR(status.st_mode):
        raise FileError("cannot be read: Is a directory", where)
    if not stat.S_ISREG(status.st_mode):
        raise IrregularFileError("is not a regular file", where, "use a regular file")


class Followed:
    """Files that belong together, and are read again and again: all of them, and only their content counts.

    To watch for events would miss a mounted Secret's or ConfigMap's change of links. With two looks or more, a change
    counts once so many in a row have seen the same: neither half a copy, nor a certificate whose key comes a moment
    later, nor a file that is missing while links are swapped. One look at a time. Each reads all files: in a thread
    where they are large or slow to read, now and then where they are small.

    Args:
        paths: the files; symbolic links are resolved at each look.
        most: the size of one, in bytes, from which on it is not read.
        looks: how many must see the same, the first that sees it included.
    """

    def __init__(self, *paths: Path, most: int, looks: int = 2) -> None:
        self.paths: Final = paths
        self._most: Final = most
        self._looks: Final = looks
        # What was returned or raised last, and what the last looks in a row have seen: contents, or what an error says.
        self._known: tuple[object, ...] | None = None
        self._seen: tuple[object, ...] | None = None
        self._times = 0

    def read(self) -> tuple[bytes, ...]:
        """What the files hold now, which `look` does not return again; a `FileError` where one cannot be read."""
        contents, error = self._now()
        self._seen = self._known = contents if error is None else error.args
        self._times = self._looks
        if error is not None:
            raise error
        return contents

    def look(self) -> tuple[bytes, ...] | None:
        """What the files hold if that has changed since it was returned or raised last, and stayed; else None.

        Raises:
            FileError: one cannot be read, which is a change, too: it is said once.
        """
        contents, error = self._now()
        seen = contents if error is None else error.args
        self._times = self._times + 1 if seen == self._seen else 1
        self._seen = seen
        if self._times < self._looks or seen == self._known:
            return None
        self._known = seen
        if error is not None:
            raise error
        return contents

    def _now(self) -> tuple[tuple[bytes, ...], FileError | None]:
        try:
            return tuple(read(path, self._most) for path in self.paths), None
        except FileError as error:
            return (), error
