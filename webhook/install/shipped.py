"""The manifests that come with the program, read once."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Any

import msgspec

from webhook.k8s.yaml_documents import read_documents


def shipped(file: Path) -> list[dict[str, Any]]:
    """The objects of a file; new ones each time, since callers change them.

    Raises:
        InputError: the file cannot be read, or is not YAML.
    """
    try:
        about = file.stat()
        state = (about.st_ino, about.st_mtime_ns, about.st_size)
    except OSError:
        state = None  # reading it says why
    objects: list[dict[str, Any]] = msgspec.json.decode(_read(file, state))
    return objects


# A plan takes parts of the same files up to ten times, and a report on permissions all of them for each installation.
@lru_cache(maxsize=32)
def _read(file: Path, _state: tuple[int, int, int] | None) -> bytes:
    """The objects of a file in a state, as JSON, which is decoded in no time."""
    return msgspec.json.encode([document.value for document in read_documents(file)])
