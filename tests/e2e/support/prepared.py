"""The data with which control planes start: made once by a real API server, and copied for each.

An API server that finds an empty etcd makes hundreds of objects before it is ready, and serves KubeVirt's kinds only
seconds after it gets their definitions, since it makes more of their schemas than of all else. So the first plane of a
kind leaves what its etcd then holds in the project's cache, and the others begin with a copy.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from filelock import FileLock

from hack.controlplane.build import cache_root

from .kube import Json
from .processes import StartError

HERE = Path(__file__).resolve().parent
# Whatever else decides what the data is.
SOURCES = ("commands.py", "objects.py", "plane.py", "prepared.py", "rbac.yaml")
BINARIES = ("etcd", "kube-apiserver")
BLOCK = 1 << 18


def prepare(binaries: Path, definitions: Sequence[Json], make: Callable[[], Path]) -> Path:
    """The directory with the data, made now if it is not there; nothing changes it afterwards.

    ``make`` runs a control plane with these definitions, ends it, and gives the directory of its data.
    """
    root = cache_root(os.environ) / "control-plane-data"
    directory = root / digest(binaries, definitions)
    if directory.is_dir():
        return directory
    try:
        root.mkdir(parents=True, exist_ok=True)
        with FileLock(root / f"{directory.name}.lock"), tempfile.TemporaryDirectory(dir=root) as temporary:
            if not directory.is_dir():  # else another process made it while this one waited
                made = make()
                copy(made, Path(temporary, "data")).rename(directory)
                shutil.rmtree(made)
    except OSError as error:
        raise StartError(f"{root}: {error.strerror}; set KUBEVIRT_WEBHOOK_CACHE to another directory") from error
    return directory


def digest(binaries: Path, definitions: Sequence[Json]) -> str:
    """Names the data by everything that it is made of."""
    made_of = hashlib.sha256(json.dumps(list(definitions), sort_keys=True).encode())
    for file in (binaries / name for name in BINARIES):
        status = file.stat()
        made_of.update(f"{file.resolve()} {status.st_size} {status.st_mtime_ns}".encode())
    for name in SOURCES:
        made_of.update((HERE / name).read_bytes())
    return made_of.hexdigest()[:16]


def copy(source: Path, target: Path) -> Path:
    """Copies a directory, zeros as holes: etcd reserves 64 MB, and fills less than one of them."""
    shutil.copytree(source, target, copy_function=_copy_filled)
    return target


def _copy_filled(source: str, target: str) -> None:
    with Path(source).open("rb") as reader, Path(target).open("wb") as writer:
        while block := reader.read(BLOCK):
            if block == bytes(len(block)):
                writer.seek(len(block), os.SEEK_CUR)
            else:
                writer.write(block)
        writer.truncate()
