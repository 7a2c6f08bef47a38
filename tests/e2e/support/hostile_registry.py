"""A registry on loopback that answers as a test says: wrong, hostile, or not at all."""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

from .commands import LOOPBACK
from .registry import MANIFEST

Handler = BaseHTTPRequestHandler
Answer = Callable[[Handler], None]


def answering(status: int, headers: Mapping[str, str] | None = None, body: bytes = b"") -> Answer:
    """An answer that is whole."""

    def answer(handler: Handler) -> None:
        handler.send_response(status)
        for name, value in {"Content-Length": str(len(body)), "Content-Type": MANIFEST, **(headers or {})}.items():
            handler.send_header(name, value)
        handler.end_headers()
        handler.wfile.write(body)

    return answer


def endless(handler: Handler) -> None:
    """A body without an end."""
    handler.send_response(200)
    handler.end_headers()
    while True:
        handler.wfile.write(b" " * 65536)


def dripping(handler: Handler) -> None:
    """A byte now and then."""
    handler.send_response(200)
    handler.send_header("Content-Length", "1000")
    handler.end_headers()
    for _ in range(1000):
        handler.wfile.write(b" ")
        handler.wfile.flush()
        time.sleep(0.1)


def another_manifest() -> bytes:
    """A manifest, and not the one that any digest names."""
    layer = {"digest": "sha256:" + "0" * 64, "size": 1}
    return json.dumps({"schemaVersion": 2, "mediaType": MANIFEST, "layers": [layer]}).encode()


class HostileRegistry:
    """One that listens for as long as its context lasts.

    Args:
        answer: gives each answer.

    Attributes:
        address: ``HOST:PORT``.
        paths: of all requests.
    """

    def __init__(self, answer: Answer) -> None:
        registry = self
        self.paths: list[str] = []

        class HostileHandler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                registry.paths.append(self.path)
                with contextlib.suppress(OSError):
                    answer(self)

            def do_HEAD(self) -> None:
                self.do_GET()

            def log_message(self, *_: Any) -> None:
                """Nothing is logged."""

        self._server = ThreadingHTTPServer((LOOPBACK, 0), HostileHandler)
        self.address = f"{LOOPBACK}:{self._server.server_port}"

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
