"""Images as OCI archives, written without a builder: layers that are there already, and layers of single files."""

from __future__ import annotations

import hashlib
import io
import json
import os
import stat
import struct
import tarfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

CHUNK_BYTES = 1024**2
LAYER = "application/vnd.oci.image.layer.v1.tar"
CONFIG = "application/vnd.oci.image.config.v1+json"
MANIFEST = "application/vnd.oci.image.manifest.v1+json"
CAPABILITY = "SCHILY.xattr.security.capability"
# linux/capability.h: version 2 of the attribute, effective at once.
CAPABILITY_REVISION = 0x02000001
CAP_NET_BIND_SERVICE = 10


@dataclass(frozen=True)
class Entry:
    """A file, a directory or a symbolic link of a layer.

    Attributes:
        content: of the file, or where it is; a text: where the link leads; None: a directory.
        mode: the permissions.
        owner: user and group.
        capabilities: the numbers of the file's capabilities.
    """

    content: bytes | Path | str | None
    mode: int = 0o755
    owner: tuple[int, int] = (0, 0)
    capabilities: tuple[int, ...] = ()


def write_layer(layer: Path, entries: Mapping[str, Entry]) -> Path:
    """Write an uncompressed layer; returns its path.

    Args:
        layer: the tar archive.
        entries: by their absolute paths.
    """
    with tarfile.open(layer, "w", format=tarfile.PAX_FORMAT) as tar:
        for name, entry in entries.items():
            info = tarfile.TarInfo(name.lstrip("/"))
            info.mode = entry.mode
            info.uid, info.gid = entry.owner
            if entry.capabilities:
                # Bytes in a header of text: PAX has them as they are, so each has to be a character of its own.
                info.pax_headers = {CAPABILITY: _capability(entry.capabilities)}
            if entry.content is None:
                info.type = tarfile.DIRTYPE
                tar.addfile(info)
            elif isinstance(entry.content, str):
                info.type, info.linkname = tarfile.SYMTYPE, entry.content
                tar.addfile(info)
            elif isinstance(entry.content, bytes):
                info.size = len(entry.content)
                tar.addfile(info, io.BytesIO(entry.content))
            else:
                info.size = entry.content.stat().st_size
                with entry.content.open("rb") as file:
                    tar.addfile(info, file)
    return layer


def _capability(numbers: Iterable[int]) -> str:
    permitted = sum(1 << number for number in numbers)
    low, high = permitted & 0xFFFFFFFF, permitted >> 32
    return struct.pack("<IIIII", CAPABILITY_REVISION, low, 0, high, 0).decode("ascii")


def write_image(archive: Path, names: Sequence[str], layers: Sequence[Path], config: Mapping[str, Any]) -> None:
    """Write an image, which appears complete or not at all.

    Args:
        archive: the OCI archive.
        names: the references under which a node finds the image.
        layers: uncompressed tar archives, the lowest first.
        config: such as ``User`` and ``Entrypoint``.
    """
    digests = [_digest(layer) for layer in layers]
    image = {
        "architecture": "amd64",
        "os": "linux",
        "config": dict(config),
        "rootfs": {"type": "layers", "diff_ids": digests},
    }
    configuration = json.dumps(image).encode()
    described = [_descriptor(LAYER, digest, each.stat().st_size) for digest, each in zip(digests, layers, strict=True)]
    manifest = json.dumps(
        {
            "schemaVersion": 2,
            "mediaType": MANIFEST,
            "config": _descriptor(CONFIG, _digest_of(configuration), len(configuration)),
            "layers": described,
        }
    ).encode()
    found = _descriptor(MANIFEST, _digest_of(manifest), len(manifest))
    index = {
        "schemaVersion": 2,
        "manifests": [{**found, "annotations": {"io.containerd.image.name": name}} for name in names],
    }
    partial = archive.with_suffix(".partial")
    with tarfile.open(partial, "w") as tar:
        _add(tar, "oci-layout", b'{"imageLayoutVersion": "1.0.0"}')
        _add(tar, "index.json", json.dumps(index).encode())
        for content in (configuration, manifest):
            _add(tar, _blob(_digest_of(content)), content)
        for digest, layer in dict(zip(digests, layers, strict=True)).items():
            tar.add(layer, _blob(digest))
    partial.rename(archive)


def _add(tar: tarfile.TarFile, name: str, content: bytes) -> None:
    info = tarfile.TarInfo(name)
    info.size = len(content)
    tar.addfile(info, io.BytesIO(content))


def _descriptor(kind: str, digest: str, size: int) -> dict[str, Any]:
    return {"mediaType": kind, "digest": digest, "size": size}


def _blob(digest: str) -> str:
    return f"blobs/{digest.replace(':', '/')}"


def _digest_of(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def _digest(file: Path) -> str:
    with file.open("rb") as opened:
        return f"sha256:{hashlib.file_digest(opened, 'sha256').hexdigest()}"


def write_initramfs(archive: Path, entries: Mapping[str, Entry]) -> None:
    """Write files as the kernel unpacks them at its start: an uncompressed cpio archive of the "newc" format.

    Args:
        archive: the file.
        entries: by their absolute paths, directories before what is in them.
    """
    with archive.open("wb") as file:
        for number, (name, entry) in enumerate(entries.items(), 1):
            kind = {type(None): stat.S_IFDIR, str: stat.S_IFLNK}.get(type(entry.content), stat.S_IFREG)
            _write_cpio(file, number, name.lstrip("/"), kind | entry.mode, _content(entry))
        _write_cpio(file, 0, "TRAILER!!!", 0, b"")


def _content(entry: Entry) -> bytes:
    if isinstance(entry.content, Path):
        return entry.content.read_bytes()
    return os.fsencode(entry.content) if isinstance(entry.content, str) else entry.content or b""


def _write_cpio(file: io.BufferedWriter, number: int, name: str, mode: int, content: bytes) -> None:
    """One file: a header of hexadecimal numbers, its name and its content, both padded to four bytes."""
    path = os.fsencode(name) + b"\0"
    fields = (number, mode, 0, 0, 1, 0, len(content), 0, 0, 0, 0, len(path), 0)
    header = b"070701" + b"".join(b"%08x" % field for field in fields) + path
    file.writelines(part + b"\0" * (-len(part) % 4) for part in (header, content))
