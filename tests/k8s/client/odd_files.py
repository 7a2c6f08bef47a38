"""Files that must not be read to their end."""

from __future__ import annotations

import os
from pathlib import Path


def device(path: Path) -> None:
    path.symlink_to("/dev/zero")


def pipe(path: Path) -> None:
    os.mkfifo(path)


def large(path: Path) -> None:
    with path.open("wb") as stream:
        stream.truncate(1 << 40)


ODD_FILES = [device, pipe, large]
