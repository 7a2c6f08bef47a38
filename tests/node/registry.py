"""A registry that serves the image of an OCI archive to those who send its credentials."""

from __future__ import annotations

import base64
import json
import tarfile
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

USER: Final = "puller"
PASSWORD: Final = "open sesame"
_EXPECTED: Final = "Basic " + base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()


class PrivateRegistry:
    """Serves on a port of 127.0.0.1, which kubelets ask without TLS; a context manager.

    Args:
        archive: the image.

    Attributes:
        address: its host and port.
        denied: how many requests had no credentials.
    """

    def __init__(self, archive: Path) -> None:
        with tarfile.open(archive) as opened:
            self._files: Final = {
                member.name: file.read() for member in opened if (file := opened.extractfile(member)) is not None
            }
        (self._manifest,) = json.loads(self._files["index.json"])["manifests"]
        self.denied = 0
        registry = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                registry._answer(self)

            def do_HEAD(self) -> None:
                registry._answer(self)

            def log_message(self, *_: Any) -> None:
                pass

        self._server: Final = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address: Final = f"127.0.0.1:{self._server.server_port}"

    @property
    def image(self) -> str:
        """The image's name in this registry."""
        return f"{self.address}/kubevirt-webhook@{self._manifest['digest']}"

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()

    def _answer(self, request: BaseHTTPRequestHandler) -> None:
        if request.headers["Authorization"] != _EXPECTED:
            self.denied += 1
            request.send_response(401)
            request.send_header("WWW-Authenticate", 'Basic realm="registry"')
            request.send_header("Content-Length", "0")
            request.end_headers()
            return
        found = self._files.get(f"blobs/sha256/{request.path.rpartition('sha256:')[2]}", b"")
        is_manifest = "/manifests/" in request.path
        request.send_response(200 if found or request.path == "/v2/" else 404)
        request.send_header("Content-Type", self._manifest["mediaType"] if is_manifest else "application/octet-stream")
        request.send_header("Content-Length", str(len(found)))
        request.end_headers()
        if request.command == "GET":
            request.wfile.write(found)
