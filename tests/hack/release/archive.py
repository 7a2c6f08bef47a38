"""A small OCI archive."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from pathlib import Path

FILES = {
    "app/lib/python3.13/site-packages/aiohttp-3.dist-info/METADATA": b"Name: aiohttp\nVersion: 3.14.5\n"
    b"Requires-Dist: typing_extensions>=4; python_version < '3.14'\nRequires-Dist: Left_Out>=1\n"
    b"Requires-Dist: brotli; extra == 'speedups'\nRequires-Dist: old; python_version < '3.13'\n\nText\n",
    "app/lib/python3.13/site-packages/te.dist-info/METADATA": b"Name: typing_extensions\nVersion: 4.1\n",
    "usr/lib/libc.so.6": b"libc",
    "usr/local/bin/python3.13": b"python",
    "etc/passwd": b"nobody",
}


def _tar(files: dict[str, bytes]) -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as archive:
        for name, data in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return stream.getvalue()


def _digest(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def oci_archive(file: Path) -> str:
    """Writes the archive; returns the digest of its manifest."""
    layer = _tar(FILES)
    manifest = json.dumps({"schemaVersion": 2, "layers": [{"digest": _digest(layer), "size": len(layer)}]}).encode()
    index = json.dumps(
        {"schemaVersion": 2, "manifests": [{"digest": _digest(manifest), "size": len(manifest)}]}
    ).encode()
    blobs = {f"blobs/sha256/{_digest(data).partition(':')[2]}": data for data in (layer, manifest)}
    file.write_bytes(_tar({"index.json": index, **blobs}))
    return _digest(manifest)
