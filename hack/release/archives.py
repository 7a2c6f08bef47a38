"""Archives whose bytes depend on the names and contents of their files alone, and on one time."""

from __future__ import annotations

import gzip
import io
import tarfile
from collections.abc import Mapping


def tar_gz(files: Mapping[str, bytes], epoch: int) -> bytes:
    """A compressed archive.

    Args:
        files: contents by path.
        epoch: the time of all files, in seconds since 1970.
    """
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for path in sorted(files):
            member = tarfile.TarInfo(path)
            member.size, member.mtime, member.mode = len(files[path]), epoch, 0o644
            archive.addfile(member, io.BytesIO(files[path]))
    compressed = io.BytesIO()
    # Without a file's name in its header; level 9 is what gzip's own header then records.
    with gzip.GzipFile(filename="", fileobj=compressed, mode="wb", compresslevel=9, mtime=epoch) as stream:
        stream.write(plain.getvalue())
    return compressed.getvalue()
