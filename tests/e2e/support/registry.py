"""A real image registry, Debian's docker-registry, and images in it that a test makes."""

from __future__ import annotations

import hashlib
import http.client
import json
import os
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Self

from hack.debian import ensure

from .kube import PATIENCE
from .processes import LOOPBACK, Process, free_port

PACKAGE = "docker-registry"
MANIFEST = "application/vnd.oci.image.manifest.v1+json"
_CONFIG = "application/vnd.oci.image.config.v1+json"
_LAYER = "application/vnd.oci.image.layer.v1.tar+gzip"


def find_registry() -> Path:
    """The registry's program, the installed one or Debian's, unpacked into a cache once; or a MissingError."""
    return ensure(PACKAGE, (PACKAGE,), os.environ) / PACKAGE


class Registry(Process):
    """One registry on loopback, its contents in a directory; a context manager.

    Clients must match ``htpasswd``, a line ``USER:BCRYPT``; empty: every client may read and write.
    """

    def __init__(self, binary: Path, directory: Path, *, htpasswd: str = "") -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._port = free_port()
        self.address = f"{LOOPBACK}:{self._port}"
        self._authorization: dict[str, str] = {}
        configuration = {
            "version": "0.1",
            "log": {"level": "warn"},
            "storage": {"filesystem": {"rootdirectory": str(directory / "contents")}},
            "http": {"addr": self.address},
        }
        if htpasswd:
            file = directory / "htpasswd"
            file.write_text(f"{htpasswd}\n")
            configuration["auth"] = {"htpasswd": {"realm": "test", "path": str(file)}}
        # JSON is YAML.
        config = directory / "config.yml"
        config.write_text(json.dumps(configuration))
        super().__init__(PACKAGE, [str(binary), "serve", str(config)], directory / "log")

    def __enter__(self) -> Self:
        self.start()
        self.wait_ready(lambda: self._send("GET", "/v2/")[0] in (200, 401))
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def authorize(self, authorization: str) -> None:
        self._authorization = {"Authorization": authorization}

    def push(self, repository: str, layers: Mapping[str, int]) -> str:
        """Make an image of layers of so many bytes; equal names are equal layers. Returns its digest."""
        config = self._blob(repository, json.dumps({"repository": repository, "layers": list(layers)}).encode())
        written = [self._blob(repository, content(name, size)) for name, size in layers.items()]
        manifest = {
            "schemaVersion": 2,
            "mediaType": MANIFEST,
            "config": {"mediaType": _CONFIG, **config},
            "layers": [{"mediaType": _LAYER, **layer} for layer in written],
        }
        body = json.dumps(manifest).encode()
        status, _ = self._send("PUT", f"/v2/{repository}/manifests/v1", body, MANIFEST)
        assert status == 201, status
        return digest(body)

    def _blob(self, repository: str, body: bytes) -> dict[str, str | int]:
        found, _ = self._send("HEAD", f"/v2/{repository}/blobs/{digest(body)}")
        if found != 200:
            status, headers = self._send("POST", f"/v2/{repository}/blobs/uploads/")
            assert status == 202, status
            location = headers["Location"].partition(self.address)[2]
            sign = "&" if "?" in location else "?"
            status, _ = self._send("PUT", f"{location}{sign}digest={digest(body)}", body, "application/octet-stream")
            assert status == 201, status
        return {"digest": digest(body), "size": len(body)}

    def _send(self, method: str, path: str, body: bytes = b"", kind: str = "") -> tuple[int, Mapping[str, str]]:
        headers = {**self._authorization, **({"Content-Type": kind} if kind else {})}
        with closing(http.client.HTTPConnection(LOOPBACK, self._port, timeout=PATIENCE)) as connection:
            connection.request(method, path, body, headers)
            response = connection.getresponse()
            response.read()
            return response.status, dict(response.getheaders())


def content(name: str, size: int) -> bytes:
    """The bytes of a layer of the given size; no client unpacks them."""
    return (hashlib.sha256(name.encode()).digest() * (size // 32 + 1))[:size]


def digest(body: bytes) -> str:
    return f"sha256:{hashlib.sha256(body).hexdigest()}"
