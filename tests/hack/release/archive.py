"""A small OCI archive."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from pathlib import Path

_PACKAGES = "app/lib/python3.13/site-packages"
_FILES = {
    f"{_PACKAGES}/aiohttp-3.dist-info/METADATA": b"Name: aiohttp\nVersion: 3.14.5\n"
    b"Requires-Dist: typing_extensions>=4; python_version < '3.14'\nRequires-Dist: Left_Out>=1\n"
    b"Requires-Dist: brotli; extra == 'speedups'\nRequires-Dist: old; python_version < '3.13'\n\nText\n",
    f"{_PACKAGES}/te.dist-info/METADATA": b"Name: typing_extensions\nVersion: 4.1\n",
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


def _descriptor(data: bytes) -> dict[str, object]:
    return {"digest": f"sha256:{hashlib.sha256(data).hexdigest()}", "size": len(data)}


def oci_archive(file: Path) -> str:
    """Writes the archive; returns the digest of its manifest."""
    layer = _tar(_FILES)
    manifest = json.dumps({"schemaVersion": 2, "layers": [_descriptor(layer)]}).encode()
    index = json.dumps({"schemaVersion": 2, "manifests": [_descriptor(manifest)]}).encode()
    blobs = {f"blobs/{str(_descriptor(data)['digest']).replace(':', '/')}": data for data in (layer, manifest)}
    file.write_bytes(_tar({"index.json": index, **blobs}))
    return str(_descriptor(manifest)["digest"])
